"""A task to walk about in: its start, its moves, and what its states are called. For everyone who is not a kernel.

In: a domain and a problem. Out: states as tuples, their names as tokens, the states along a plan. Slow and plain: the
domain's rules run uncompiled, and nothing is computed twice. `cut_steps` takes an answer's tokens apart.

    world = World(domain, problem)
    world.walk([("0", "0"), ("0", "1")])        # the states of `plan 0 0 plan 0 1`
"""

import re
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import pairwise

import numpy as np

from searchformer.domains import KEYWORDS, Domain
from searchformer.records import Step
from searchformer.search.compiled import bind

State = tuple[int, ...]
Tokens = tuple[str, ...]

COST_TOKEN = re.compile(r"c(0|[1-9]\d*)", re.ASCII)


class World:
    """One task's rules on states as tuples."""

    def __init__(self, domain: Domain, problem: np.ndarray, *, uses_heuristic: bool = True) -> None:
        """Without `uses_heuristic` every estimate is 0, as in Dijkstra's search."""
        self.domain, self.problem, self.uses_heuristic = domain, problem, uses_heuristic
        self.size = domain.state_size(problem)
        self._rules = bind(domain.rules)
        self._buffer = np.zeros(max(domain.prompt_room(problem), domain.state_room(problem)), dtype=np.int32)
        for method in ("successors", "estimate", "is_goal", "state_tokens", "plan_tokens"):  # each state is met often
            setattr(self, method, cache(getattr(self, method)))

    def start(self) -> State:
        """The state that the task starts in."""
        state = np.zeros(self.size, dtype=np.int32)
        self._rules["start"](self.problem, state)
        return tuple(state.tolist())

    def successors(self, state: State) -> list[State]:
        """The states one legal move away."""
        children = np.zeros((self.domain.max_children, self.size), dtype=np.int32)
        count = self._rules["successors"](self.problem, as_array(state), children)
        return [tuple(child) for child in children[:count].tolist()]

    def estimate(self, state: State) -> int:
        """h, or DEAD_END."""
        return int(self._rules["heuristic"](self.problem, as_array(state))) if self.uses_heuristic else 0

    def is_goal(self, state: State) -> bool:
        """Whether the task is solved."""
        return bool(self._rules["is_goal"](self.problem, as_array(state)))

    def tie_rank(self, state: State) -> int:
        """The domain's order among nodes of equal f."""
        return int(self._rules["tie_rank"](self.problem, as_array(state)))

    def prompt_tokens(self) -> Tokens:
        """The task."""
        return self._text(self._rules["write_prompt"](self.problem, self._buffer))

    def state_tokens(self, state: State) -> Tokens:
        """What a trace calls the state."""
        return self._text(self._rules["write_state"](self.problem, as_array(state), self._buffer))

    def plan_tokens(self, state: State) -> Tokens:
        """What a plan calls the state."""
        return self._text(self._rules["write_plan"](self.problem, as_array(state), self._buffer))

    def _text(self, count: int) -> Tokens:
        return tuple(map(self.domain.token_text, self._buffer[:count].tolist()))

    def walk(self, plan: Iterable[Tokens]) -> list[State]:
        """The states along a plan's steps, up to the first step that is not a legal move."""
        states: list[State] = []
        for step in plan:
            options = self.successors(states[-1]) if states else [self.start()]
            state = next((option for option in options if self.plan_tokens(option) == step), None)
            if state is None:
                break
            states.append(state)
        return states


def as_array(state: State) -> np.ndarray:
    """A state as the domain's rules take it."""
    return np.array(state, dtype=np.int32)


def cut_steps(tokens: Sequence[str]) -> list[Step]:
    """An answer cut at its keywords, legal or not; what stands before the first keyword is left out."""
    starts = [place for place, token in enumerate(tokens) if token in KEYWORDS]
    return [_step(tokens[first], tuple(tokens[first + 1 : last])) for first, last in pairwise([*starts, len(tokens)])]


def _step(kind: str, inside: Tokens) -> Step:
    costs = [match for token in inside[-2:] if (match := COST_TOKEN.fullmatch(token))]
    if kind == "plan" or len(costs) < 2:
        return Step(kind, inside, None, None)
    return Step(kind, inside[:-2], int(costs[0][1]), int(costs[1][1]))
