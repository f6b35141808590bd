"""A task in, a verified plan out: `solve(make_task({...}), model=Path("runs/m"))`."""

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
