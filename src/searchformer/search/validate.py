"""Is this token trace a legal execution of (non-deterministic) A*, and is this plan legal?

In: a problem and an answer's tokens as codes. Out: the first violation with its position and kind, and counts. Legal
means: the start is created first; each create is a child of the node just closed with the right g and h, and one that
A* would not skip; no child is left out; each close takes an open node of least f; the search ends when the goal is
closed; the plan follows the parents. Sound means: all of that but for the order of closing and for children left out,
so that what the trace says is true and leads to the plan. Try: `searchformer judge maze FILE.jsonl`.
"""

import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from searchformer.domains import Domain
from searchformer.search import replay
from searchformer.search.compiled import specialise
from searchformer.search.ordering import weights

FUNCTIONS = ("first_malformed", "replay_plan", "replay_trace")
UNKNOWN = -(1 << 24)
"""Code of a token that the domain does not have."""
MOST_REPLAYS = 256
"""Where nodes read alike, the replay is tried with this many combinations of choices, the fewest changes first."""
PLAN_REASONS = ("", "no plan", "wrong start", "illegal move", "not solved")


@dataclass(frozen=True)
class PlanVerdict:
    """What became of a plan."""

    solved: bool
    reason: str | None
    """`no plan`, `wrong start`, `illegal move`, `not solved`; None if solved."""
    step: int
    """The step where it ended, from 0."""
    nodes: int
    """Steps that were legal."""


@dataclass(frozen=True)
class TraceVerdict:
    """What became of a trace."""

    legal: bool
    sound: bool
    """Legal but for the order of closing and children left out: a search, if not A*'s."""
    violation: str | None
    """One of `replay.VIOLATIONS`; None if legal."""
    position: int
    """The token where the first violation is, from 0; -1 if legal."""
    steps: int
    legal_steps: int
    cost_errors: int
    estimate_errors: int
    created: int
    closed: int


def codes_of(domain: Domain, tokens: Sequence[str]) -> np.ndarray:
    """Token codes, int32 [len(tokens)]: numbers as they are, word k as -1 - k, cost c as COST + c, else UNKNOWN."""
    words = {word: -1 - index for index, word in enumerate(domain.all_words)}
    return np.array([_code(token, words) for token in tokens], dtype=np.int32)


def _code(token: str, words: dict[str, int]) -> int:
    if token in words:
        return words[token]
    if re.fullmatch(r"(0|[1-9]\d{0,6})", token, re.ASCII):
        return int(token)
    if re.fullmatch(r"c(0|[1-9]\d{0,6})", token, re.ASCII):
        return replay.COST + int(token[1:])
    return UNKNOWN


class Validator:
    """A domain's replay kernels with their memory. Not for several threads at a time."""

    def __init__(self, domain: Domain, *, algorithm: str = "astar", weight: float = 1.0) -> None:
        self.domain = domain
        self.kernels = specialise(replay, FUNCTIONS, domain.rules, compiled=domain.compiled)
        self.weights = weights(algorithm, weight)
        self.keywords = -len(domain.words)
        self.plan_width = sum(len(group.limits) + (group.word is not None) for group in domain.shapes.plan)
        self._capacity = self._room = self._state_size = 0
        self._ground: replay.Ground | None = None
        self._outcome = np.zeros(3, dtype=np.int64)

    def plan_begin(self, codes: np.ndarray) -> int:
        """Where the plan begins in an answer: at the first `plan`, or at the end."""
        places = np.flatnonzero(codes == self.keywords - 3)
        return int(places[0]) if len(places) else len(codes)

    def malformed(self, codes: np.ndarray) -> int:
        """The first token that is not where a trace and a plan would have it, or -1."""
        unknown = np.flatnonzero(codes == UNKNOWN)
        known = codes[: unknown[0]] if len(unknown) else codes
        place = int(self.kernels.first_malformed(known, self.keywords, self.plan_width))
        return int(unknown[0]) if len(unknown) and place in (-1, len(known)) else place

    def plan(self, problem: np.ndarray, codes: np.ndarray) -> PlanVerdict:
        """Walk an answer's plan from the start."""
        ground, begin = self._prepare(problem, len(codes)), self.plan_begin(codes)
        self.kernels.replay_plan(problem, codes, begin, len(codes), self.keywords, ground, self._outcome)
        ending, step, nodes = self._outcome.tolist()
        return PlanVerdict(ending == replay.SOLVED, PLAN_REASONS[ending] or None, step, nodes)

    def trace(self, problem: np.ndarray, codes: np.ndarray) -> TraceVerdict:
        """Replay an answer's trace, and hold its plan against the parents."""
        begin = self.plan_begin(codes)
        ground = self._prepare(problem, len(codes))
        best: TraceVerdict | None = None
        sound = False
        waiting: deque[tuple[int, ...]] = deque([()])
        for _ in range(MOST_REPLAYS):
            changes = waiting.popleft()
            ground.choices[:] = 0
            ground.choices[: len(changes)] = changes
            verdict = self._replay(problem, codes, begin, ground)
            sound = sound or verdict.sound
            if best is None or verdict.legal or verdict.position > best.position:
                best = verdict
            if not verdict.legal:
                waiting.extend(_more_changes(changes, ground))
            if verdict.legal or not waiting:
                break
        assert best is not None
        return replace(best, sound=sound)

    def _replay(self, problem: np.ndarray, codes: np.ndarray, begin: int, ground: replay.Ground) -> TraceVerdict:
        self.kernels.replay_trace(problem, codes, begin, len(codes), self.keywords, *self.weights, ground)
        result = ground.result.tolist()
        violation = result[replay.VIOLATION]
        legal = violation == replay.NONE
        return TraceVerdict(
            legal=legal,
            sound=result[replay.UNTRUE] == 0,
            violation=None if legal else replay.VIOLATIONS[violation],
            position=-1 if legal else result[replay.POSITION],
            steps=result[replay.STEPS],
            legal_steps=result[replay.LEGAL],
            cost_errors=result[replay.COST_ERRORS],
            estimate_errors=result[replay.ESTIMATE_ERRORS],
            created=result[replay.CREATED],
            closed=result[replay.CLOSED],
        )

    def _prepare(self, problem: np.ndarray, tokens: int) -> replay.Ground:
        """Memory for an answer of so many tokens."""
        size, room = self.domain.state_size(problem), self.domain.state_room(problem)
        capacity = 64
        while capacity < tokens // 4 + 2:  # a step has four tokens or more
            capacity *= 2
        if self._ground is None or size != self._state_size or room > self._room or capacity > self._capacity:
            self._state_size, self._room = size, max(room, self._room)
            self._capacity = max(capacity, self._capacity)
            self._ground = _allocate(self._capacity, size, self.domain.max_children, self._room)
        return self._ground


def _more_changes(changes: tuple[int, ...], ground: replay.Ground) -> Iterator[tuple[int, ...]]:
    """The choices with one more of them changed, behind those changed already, the last one first."""
    for index in range(int(ground.result[replay.CHOICES]) - 1, len(changes) - 1, -1):
        for choice in range(1, int(ground.alternatives[index])):
            yield (*changes, *(0,) * (index - len(changes)), choice)


def _allocate(nodes: int, state_size: int, max_children: int, room: int) -> replay.Ground:
    return replay.Ground(
        states=np.zeros((nodes, state_size), dtype=np.int32),
        cost=np.zeros(nodes, dtype=np.int32),
        estimate=np.zeros(nodes, dtype=np.int32),
        parent=np.zeros(nodes, dtype=np.int32),
        is_open=np.zeros(nodes, dtype=np.uint8),
        reads=np.zeros(nodes, dtype=np.int64),
        table=np.zeros(4 * nodes, dtype=np.int64),
        children=np.zeros((max_children, state_size), dtype=np.int32),
        fate=np.zeros(max_children, dtype=np.int64),
        state=np.zeros(state_size, dtype=np.int32),
        closing=np.zeros(16, dtype=np.int64),
        path=np.zeros(nodes, dtype=np.int64),
        tokens=np.zeros(room, dtype=np.int32),
        choices=np.zeros(64, dtype=np.int64),
        alternatives=np.zeros(64, dtype=np.int64),
        result=np.zeros(replay.RESULTS, dtype=np.int64),
    )
