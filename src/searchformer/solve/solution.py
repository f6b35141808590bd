"""What became of a task: the plan, the search that found it, and what both took."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from searchformer.records import Trace
from searchformer.search.world import State, World, cut_steps
from searchformer.solve.tasks import Task


@dataclass(frozen=True)
class Effort:
    """What a search took, or several on average."""

    created: float
    closed: float
    tokens: float
    """Of the trace."""


@dataclass(frozen=True)
class Event:
    """A node created or closed in a search."""

    closes: bool
    """Whether the node is closed; if not, it is created."""
    state: State | None
    """None where an answer names a state that its search had not reached."""
    cost: int
    estimate: int


@dataclass(frozen=True)
class Solution:
    """What became of a task."""

    task: Task
    """In the variant of the domain that was planned in."""
    planner: str
    """`model` or `astar`: whose plan and search this is."""
    plan: np.ndarray
    """int32 [L, S]: states from start to goal; none if the task cannot be solved."""
    optimal: bool
    effort: Effort
    """Of the search that found the plan."""
    astar: Effort
    """Of A*, on average."""
    astar_runs: int
    found: Trace | list[str]
    """The search: A*'s, or the tokens of the model's answer."""
    model: Effort | None = None
    """Of the model, on average over its valid answers: comparing its best one with A*'s mean would flatter it."""
    answers: dict[str, int] = field(default_factory=dict)
    """How many of the model's answers were optimal, feasible and invalid; empty if there were none."""
    notes: tuple[str, ...] = ()
    """What the user should know: a size that the model was not trained for, a fallback to A*."""

    @property
    def solvable(self) -> bool:
        """Whether there is a plan."""
        return len(self.plan) > 0


def plan_tokens(solution: Solution) -> list[str]:
    """The plan as tokens."""
    world = World(solution.task.domain, solution.task.problem)
    return [token for state in solution.plan.tolist() for token in ("plan", *world.plan_tokens(tuple(state)))]


def search_events(solution: Solution) -> Iterator[Event]:
    """The search that found the plan, event by event."""
    found = solution.found
    if not isinstance(found, Trace):
        yield from _events_of_answer(World(solution.task.domain, solution.task.problem), found)
        return
    for closes, node, cost, estimate in zip(found.kinds, found.nodes, found.costs, found.estimates, strict=True):
        yield Event(bool(closes), tuple(found.states[node].tolist()), int(cost), int(estimate))


def _events_of_answer(world: World, tokens: list[str]) -> Iterator[Event]:
    """The events of a well-formed answer's trace. A state can be named once a closed one leads to it."""
    start = world.start()
    reached = {world.state_tokens(start): start}
    for step in cut_steps(tokens):
        if step.cost is None or step.estimate is None:
            return  # the plan begins
        closes, state = step.kind == "close", reached.get(step.state)
        yield Event(closes, state, step.cost, step.estimate)
        if closes and state is not None:
            reached |= {world.state_tokens(child): child for child in world.successors(state)}
