"""Is this token trace a legal execution of (non-deterministic) A*, and is this plan legal?

In: a problem and an answer's tokens as codes. Out: the first violation with its position and kind, and counts. Legal
means: the start is created first; each create is a child of the node just closed with the right g and h, and one that
A* would not skip; no child is left out; each close takes an open node of least f; the search ends when the goal is
closed; the plan follows the parents. Sound means: all of that but for the order of closing and for children left out,
so that what the trace says is true and leads to the plan. Try: `searchformer judge maze FILE.jsonl`.

The kernel replays one reading of the trace. If that one is not legal, and a step could have meant another node, the
other readings are tried (readings.py): legal and sound each hold if some reading makes them true. Where there are too
many to try, the answer is None and the violation UNDECIDED.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from searchformer.domains import Domain
from searchformer.records import Step
from searchformer.search import replay
from searchformer.search.compiled import specialise
from searchformer.search.ordering import weights
from searchformer.search.readings import Reading, UndecidedError, find_reading
from searchformer.search.world import World, cut_steps

FUNCTIONS = ("first_refused", "replay_plan", "replay_trace")
UNKNOWN = -(1 << 24)
"""Code of a token that the domain does not have."""
PLAN_REASONS = ("", "no plan", "wrong start", "illegal move", "not solved")
UNDECIDED = "undecided"


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

    legal: bool | None
    """None if undecided."""
    sound: bool | None
    """Legal but for the order of closing and children left out: a search, if not A*'s. None if undecided."""
    violation: str | None
    """One of `replay.VIOLATIONS`, or UNDECIDED; None if legal."""
    position: int
    """The token where the first violation is, from 0; -1 if there is none."""
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


def tokens_of(domain: Domain, codes: np.ndarray) -> list[str]:
    """The tokens that codes stand for; the opposite of `codes_of`, but for tokens that the domain does not have."""
    return [
        f"c{code - replay.COST}" if code >= replay.COST else "?" if code == UNKNOWN else domain.token_text(code)
        for code in codes.tolist()
    ]


class Validator:
    """A domain's replay kernels with their memory. Not for several threads at a time."""

    def __init__(self, domain: Domain, *, algorithm: str = "astar", weight: float = 1.0) -> None:
        self.domain = domain
        self.kernels = specialise(replay, FUNCTIONS, domain.rules, compiled=domain.compiled)
        self.weights = weights(algorithm, weight)
        self.keywords = -len(domain.words)
        self._capacity = self._room = self._state_size = 0
        self._memory: replay.Memory | None = None
        self._outcome = np.zeros(3, dtype=np.int64)
        self._world: World | None = None

    def plan_begin(self, codes: np.ndarray) -> int:
        """Where the plan begins in an answer: at the first `plan`, or at the end."""
        places = np.flatnonzero(codes == self.keywords - 3)
        return int(places[0]) if len(places) else len(codes)

    def first_refused(self, codes: np.ndarray, table: np.ndarray) -> int:
        """Where `codes` leave the grammar with this table, their number if they end too soon, or -1."""
        return int(self.kernels.first_refused(codes, table))

    def plan(self, problem: np.ndarray, codes: np.ndarray) -> PlanVerdict:
        """Walk an answer's plan from the start."""
        memory, begin = self._prepare(problem, len(codes)), self.plan_begin(codes)
        self.kernels.replay_plan(problem, codes, begin, len(codes), self.keywords, memory, self._outcome)
        ending, step, nodes = self._outcome.tolist()
        return PlanVerdict(ending == replay.SOLVED, PLAN_REASONS[ending] or None, step, nodes)

    def trace(self, problem: np.ndarray, codes: np.ndarray) -> TraceVerdict:
        """Replay an answer's trace, and hold its plan against the parents."""
        return self._replay(problem, codes)[0]

    def wrong_steps(self, problem: np.ndarray, codes: np.ndarray) -> dict[int, str]:
        """What is wrong with the steps of an answer's trace, by number from 0; nothing where that is undecided."""
        verdict, reading = self._replay(problem, codes)
        if verdict.legal or verdict.violation == UNDECIDED:
            return {}
        if reading is not None:
            return dict(reading)
        assert self._memory is not None
        wrong = self._memory.wrong[: verdict.steps]
        return {int(step): replay.VIOLATIONS[wrong[step]] for step in np.flatnonzero(wrong)}

    def _replay(self, problem: np.ndarray, codes: np.ndarray) -> tuple[TraceVerdict, Reading | None]:
        """The verdict on a trace, and the reading that it is based on if that is not the kernel's."""
        memory = self._prepare(problem, len(codes))
        begin = self.plan_begin(codes)
        self.kernels.replay_trace(problem, codes, begin, len(codes), self.keywords, *self.weights, memory)
        result = memory.result.tolist()
        violation, position, *counts = result[replay.VIOLATION : replay.CLOSED + 1]  # in the verdict's order
        legal, sound = violation == replay.NONE, result[replay.UNSOUND] == 0
        wrong = (None, -1) if legal else (replay.VIOLATIONS[violation], position)
        verdict = TraceVerdict(legal, sound, *wrong, *counts)
        decided = legal or not result[replay.AMBIGUOUS]
        return (verdict, None) if decided else self._try_other_readings(problem, codes, verdict)

    def _try_other_readings(
        self, problem: np.ndarray, codes: np.ndarray, first: TraceVerdict
    ) -> tuple[TraceVerdict, Reading | None]:
        """The verdict on a trace of which one reading is not legal, and others may be; with the reading."""
        tokens = tokens_of(self.domain, codes)
        if tokens[0] != "create" or not self.plan(problem, codes).solved:
            return first, None  # in no reading is such an answer legal or sound
        world = self._world_of(problem)
        steps = cut_steps(tokens)
        trace = [step for step in steps if step.kind != "plan"]
        plan = world.walk(step.state for step in steps[len(trace) :])
        undecided = False
        for legal in (True, False):
            if first.sound and not legal:
                break
            try:
                reading = find_reading(world, trace, plan, weights=self.weights, legal=legal)
            except UndecidedError:
                undecided = True
                continue
            if reading is not None:
                return _verdict_of(reading, trace, first, legal=None if undecided else legal), reading
        if not undecided:
            return first, None
        return replace(first, legal=None, sound=first.sound or None, violation=UNDECIDED, position=-1), None

    def _world_of(self, problem: np.ndarray) -> World:
        """The task's world; kept, because answers to one task come together."""
        if self._world is None or not np.array_equal(self._world.problem, problem):
            self._world = World(self.domain, problem.copy(), uses_heuristic=self.weights[1] > 0)
        return self._world

    def _prepare(self, problem: np.ndarray, tokens: int) -> replay.Memory:
        """Memory for an answer of so many tokens."""
        size, room = self.domain.state_size(problem), self.domain.state_room(problem)
        capacity = 64
        while capacity < tokens // 4 + 2:  # a step has four tokens or more
            capacity *= 2
        if self._memory is None or size != self._state_size or room > self._room or capacity > self._capacity:
            self._state_size, self._room = size, max(room, self._room)
            self._capacity = max(capacity, self._capacity)
            self._memory = _allocate(self._capacity, size, self.domain.max_children, self._room)
        return self._memory


def _verdict_of(reading: Reading, trace: list[Step], first: TraceVerdict, *, legal: bool | None) -> TraceVerdict:
    """What a sound reading makes of the trace; `legal` says whether it is legal as well."""
    wrong = reading[0] if reading else None
    position = -1 if wrong is None else sum(len(step.tokens()) for step in trace[: wrong[0]])
    violation = UNDECIDED if legal is None else None if wrong is None else wrong[1]
    return replace(
        first,
        legal=legal,
        sound=True,
        violation=violation,
        position=-1 if legal is None else position,
        legal_steps=len(trace) - len({number for number, _ in reading}),
        cost_errors=0,
        estimate_errors=0,
    )


def _allocate(nodes: int, state_size: int, max_children: int, room: int) -> replay.Memory:
    return replay.Memory(
        states=np.zeros((nodes, state_size), dtype=np.int32),
        cost=np.zeros(nodes, dtype=np.int32),
        estimate=np.zeros(nodes, dtype=np.int32),
        parent=np.zeros(nodes, dtype=np.int32),
        is_open=np.zeros(nodes, dtype=np.uint8),
        name=np.zeros(nodes, dtype=np.int64),
        table=np.zeros(4 * nodes, dtype=np.int64),
        children=np.zeros((max_children, state_size), dtype=np.int32),
        status=np.zeros(max_children, dtype=np.int64),
        state=np.zeros(state_size, dtype=np.int32),
        candidates=np.zeros(16, dtype=np.int64),
        path=np.zeros(nodes, dtype=np.int64),
        tokens=np.zeros(room, dtype=np.int32),
        wrong=np.zeros(4 * nodes, dtype=np.int64),  # no more steps than tokens
        result=np.zeros(replay.RESULTS, dtype=np.int64),
    )
