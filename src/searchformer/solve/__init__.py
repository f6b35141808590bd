"""A task in, a verified plan out: `searchformer.solve({...}, model="maze-6x6")`."""

import sys
from types import ModuleType
from typing import Any

from searchformer.solve.planning import preference, solve
from searchformer.solve.solution import Effort, Event, Solution, plan_tokens, search_events
from searchformer.solve.tasks import Task, make_task, random_task

__all__ = [
    "Effort",
    "Event",
    "Solution",
    "Task",
    "make_task",
    "plan_tokens",
    "preference",
    "random_task",
    "search_events",
    "solve",
]


class _Callable(ModuleType):
    """Lets users write `searchformer.solve(task)`, although this room has the name of that function."""

    def __call__(self, *arguments: Any, **options: Any) -> Solution:
        return solve(*arguments, **options)


sys.modules[__name__].__class__ = _Callable
