"""Tasks to solve: from a JSON object, or drawn at random."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from searchformer.domains import Domain
from searchformer.errors import SearchformerError
from searchformer.evaluate.judge import read_task
from searchformer.search import Options, Searcher
from searchformer.search.compiled import bind
from searchformer.seeding import new_stream

CANDIDATES = 10_000
"""Tasks drawn at random before giving up on finding one that can be solved."""


@dataclass(frozen=True)
class Task:
    """A planning task."""

    domain: Domain
    """With settings of the task's own size."""
    problem: np.ndarray

    def as_domain(self, domain: Domain) -> "Task":
        """The same task in another variant of its domain; raises TaskError if that cannot express it."""
        problem = domain.encode(self.domain.decode(self.problem))
        return Task(domain.sized(problem), problem)


def make_task(record: dict[str, Any], *, name: str | None = None, settings: dict[str, Any] | None = None) -> Task:
    """The task of a JSON object, of the domain `name` or the one that it looks like; raises TaskError."""
    domain, problem = read_task(record, name=name, settings=settings)
    return Task(domain.sized(problem), problem)


def random_task(domain: Domain, *, seed: int, options: Options | None = None, candidates: int = CANDIDATES) -> Task:
    """A task drawn as `searchformer generate` draws them: one that has a plan, and not too short a one."""
    rules, settings, searcher = bind(domain.rules), domain.sampling(), Searcher(domain, options)
    problem = np.zeros(domain.problem_size(), dtype=np.int32)
    for index in range(candidates):
        stream = new_stream(seed, "solve", index)
        if rules["sample_layout"](settings, stream, problem) and rules["sample_task"](settings, stream, problem):
            plan = searcher.search(problem, record=False).plan
            if len(plan) and rules["accepts"](problem, len(plan)):
                return Task(domain, problem)
    raise SearchformerError(f"none of {candidates:,} random tasks of {domain.name} can be solved; change its settings")
