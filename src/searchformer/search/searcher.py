"""Runs a domain's compiled kernels: one search at a time, or batches of sampled tasks with their tokens.

In: problems, or a seed. Out: `Trace` records, or rows of ids. Memory starts small and doubles where a search needs it,
up to a budget. Try: `searchformer trace maze FILE.jsonl`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from searchformer.domains import Domain
from searchformer.errors import SearchformerError
from searchformer.records import Trace
from searchformer.search import kernel
from searchformer.search.compiled import bind, specialise
from searchformer.search.ordering import weights
from searchformer.seeding import new_stream, stream_key

FUNCTIONS = ("search", "trace_tokens", "sample_and_search")
GIGABYTE = 1 << 30


class BudgetError(SearchformerError):
    """A search needed more expansions or memory than it was given."""


@dataclass(frozen=True)
class Options:
    """How to search."""

    deterministic: bool = False
    """Ties by the domain's order, or at random."""
    algorithm: str = "astar"
    """astar, dijkstra, weighted, greedy."""
    weight: float = 1.0
    """Weight of h, with the algorithm `weighted`."""
    max_expansions: int = 10_000_000
    """Nodes closed before the search gives up."""
    max_gigabytes: float = 4.0
    """Memory of a search before it gives up."""


@dataclass(frozen=True)
class AcceptedTasks:
    """A batch of accepted tasks as rows of ids. R rows; a part's row r is part[ends[r] : ends[r + 1]]."""

    problems: np.ndarray
    """int32 [R, problem_size]."""
    parts: dict[str, np.ndarray]
    """Ids of prompt, trace and plan."""
    ends: dict[str, np.ndarray]
    """int32 [R + 1], for each part."""


class Searcher:
    """A domain's kernels with their memory. Not for several threads at a time."""

    def __init__(self, domain: Domain, options: Options | None = None) -> None:
        self.domain, self.options = domain, options or Options()
        self.kernels = specialise(kernel, FUNCTIONS, domain.rules, compiled=domain.compiled)
        self.cost_weight, self.estimate_weight = weights(self.options.algorithm, self.options.weight)
        self._nodes, self._events, self._buckets = 1 << 9, 1 << 10, 1 << 8
        self._state_size = self._room = self._problem_size = 0
        self.work: kernel.Work | None = None

    def search(self, problem: np.ndarray, *, seed: int = 0, record: bool = True) -> Trace:
        """Search one task. The seed decides ties and the order of children unless the search is deterministic."""
        outcome, work = self._run(problem, seed, record)
        return _trace(work, solvable=outcome == kernel.SOLVED)

    def trace_length(self, problem: np.ndarray, *, seed: int = 0) -> int:
        """Tokens of one search's trace."""
        _, work = self._run(problem, seed, True)
        return int(self.kernels.trace_tokens(problem, work))

    def _run(self, problem: np.ndarray, seed: int, record: bool) -> tuple[int, kernel.Work]:
        """Search with as much memory as it takes."""
        options = self.options
        numbers = (options.deterministic, self.cost_weight, self.estimate_weight, options.max_expansions, record)
        while True:
            work = self.prepare(self.domain.state_size(problem), self.domain.state_room(problem), len(problem))
            outcome = self.kernels.search(problem, new_stream(seed, "search"), *numbers, work)
            if outcome in (kernel.SOLVED, kernel.UNSOLVABLE):
                return outcome, work
            if outcome == kernel.OVER_BUDGET:
                limit = f"{options.max_expansions:,}"
                raise BudgetError(f"search gave up after closing {limit} nodes; allow more with --max-expansions")
            self.grow(outcome)

    def prepare(self, state_size: int, room: int, problem_size: int) -> kernel.Work:
        """Memory for states and problems of these sizes, with the present capacities."""
        if (
            self.work is None
            or state_size != self._state_size
            or room > self._room
            or problem_size > self._problem_size
        ):
            self._state_size, self._room = state_size, max(room, self._room)
            self._problem_size = max(problem_size, self._problem_size)
            self.work = None  # if the budget forbids the new memory, the old must not serve states of this size
            self.work = self._allocate()
        return self.work

    def _allocate(self) -> kernel.Work:
        nodes, events, buckets = self._nodes, self._events, self._buckets
        shapes: dict[str, tuple[Any, Any]] = {
            "states": ((nodes, self._state_size), np.int32),
            "cost": (nodes, np.int32),
            "estimate": (nodes, np.int32),
            "parent": (nodes, np.int32),
            "closed": (nodes, np.uint8),
            "rank": (nodes, np.int64),
            "table": (max(4 * nodes, 1 << self._problem_size.bit_length()), np.int64),
            "event": (events, np.int32),
            "event_cost": (events, np.int32),
            "pool": (4 * nodes + 16 * buckets, np.int32),
            "first": (buckets, np.int64),
            "filled": (buckets, np.int64),
            "room": (buckets, np.int64),
            "children": ((self.domain.max_children, self._state_size), np.int32),
            "order": (self.domain.max_children, np.int64),
            "counters": (8, np.int64),
            "tokens": (self._room, np.int32),
        }
        total = sum(int(np.prod(shape)) * np.dtype(kind).itemsize for shape, kind in shapes.values())
        if total > self.options.max_gigabytes * GIGABYTE:
            self._nodes, self._events, self._buckets = 1 << 9, 1 << 10, 1 << 8
            raise BudgetError(
                f"search needs {total / GIGABYTE:.1f} GB, more than the {self.options.max_gigabytes:g} GB it may use; "
                "allow more with --max-gigabytes"
            )
        return kernel.Work(**{name: np.zeros(shape, dtype=kind) for name, (shape, kind) in shapes.items()})

    def grow(self, outcome: int) -> None:
        """More memory of the kind that ran out."""
        if outcome == kernel.NODES_FULL:
            self._nodes *= 2
        elif outcome == kernel.EVENTS_FULL:
            self._events *= 2
        else:
            self._buckets *= 2
        self.work = None


class Sampler:
    """Draws tasks, one batch after the other. They depend on the domain, (seed, part) and the options only."""

    def __init__(
        self, searcher: Searcher, ids: np.ndarray, *, seed: int, part: int, pairs: int, max_trace_tokens: int
    ) -> None:
        """`ids` are the vocabulary's ids of `domain.token_list()`; `pairs` tasks are tried on each layout."""
        domain, options = searcher.domain, searcher.options
        self.searcher, self.ids, self.pairs = searcher, ids, pairs
        self.settings, self.key = domain.sampling(), stream_key(seed, "sample", part)
        self.problem, self.stream = np.zeros(domain.problem_size(), dtype=np.int32), np.zeros(2, dtype=np.int64)
        weights = (searcher.cost_weight, searcher.estimate_weight)
        numbers = (options.deterministic, *weights, options.max_expansions, max_trace_tokens, 0)
        self.numbers = np.array(numbers, dtype=np.int64)
        self.output = _output(domain.problem_size(), ids.dtype, tokens=1 << 20)
        self.state_size, self.room = self._sizes()
        self.kernels = specialise(kernel, FUNCTIONS, domain.rules, compiled=domain.compiled, STATE_SIZE=self.state_size)

    def draw(self, most: int, *, candidates: int = 1 << 62) -> AcceptedTasks:
        """The next accepted tasks: `most` or fewer, from that many `candidates`. The next draw overwrites them."""
        domain, output, words = self.searcher.domain, self.output, len(self.searcher.domain.all_words)
        output.cursor[kernel.ROWS] = 0
        self.numbers[5] = min(int(output.cursor[kernel.CANDIDATE]) + candidates - 1, (1 << 62))
        while True:
            try:
                work = self.searcher.prepare(self.state_size, self.room, len(self.problem))
            except BudgetError:
                self._give_up_candidate()
                continue
            outcome = self.kernels.sample_and_search(
                self.settings,
                self.key,
                min(most, len(output.candidates)),
                self.pairs,
                self.numbers,
                self.ids,
                words,
                words + domain.numbers,
                work,
                output,
                self.problem,
                self.stream,
            )
            rows = int(output.cursor[kernel.ROWS])
            if outcome == kernel.BATCH_DONE or (outcome == kernel.OUTPUT_FULL and rows):
                return _rows(output, rows)
            if outcome == kernel.OUTPUT_FULL:
                self.output = output = _enlarged(output)
            else:
                self.searcher.grow(outcome)

    def _give_up_candidate(self) -> None:
        """Reject the candidate at the cursor: its search needs more memory than allowed."""
        cursor = self.output.cursor
        self.output.rejected[kernel.REASONS.index("over budget")] += 1
        cursor[kernel.PAIR] += 1
        if cursor[kernel.PAIR] == self.pairs:
            cursor[kernel.PAIR] = 0
            cursor[kernel.CANDIDATE] += 1

    def rejected(self) -> dict[str, int]:
        """Candidates rejected so far, by reason."""
        return dict(zip(kernel.REASONS, self.output.rejected.tolist(), strict=True))

    def candidates(self) -> int:
        """Candidates drawn so far."""
        return int(self.output.cursor[kernel.CANDIDATE])

    def _sizes(self) -> tuple[int, int]:
        """State size and token scratch of sampled tasks, which the settings decide: taken from one of them."""
        domain = self.searcher.domain
        rules, stream = bind(domain.rules), new_stream(0, "sizes")
        rules["sample_layout"](self.settings, stream, self.problem)
        rules["sample_task"](self.settings, stream, self.problem)
        room = max(domain.prompt_room(self.problem), domain.state_room(self.problem))
        return domain.state_size(self.problem), room


def _trace(work: kernel.Work, *, solvable: bool) -> Trace:
    counters = work.counters
    events, nodes = int(counters[kernel.EVENTS]), int(counters[kernel.NODES])
    event_nodes = work.event[:events] >> 1
    path = []
    node = int(counters[kernel.GOAL])
    while node >= 0:
        path.append(node)
        node = int(work.parent[node])
    return Trace(
        solvable=solvable,
        created=int(counters[kernel.CREATED]),
        closed=int(counters[kernel.CLOSED]),
        kinds=(work.event[:events] & 1).astype(bool),
        nodes=event_nodes,
        costs=work.event_cost[:events].copy(),
        estimates=work.estimate[event_nodes],
        states=work.states[:nodes].copy(),
        plan=work.states[np.array(path[::-1], dtype=np.int64)],
    )


def _output(problem_size: int, kind: np.dtype, *, tokens: int) -> kernel.Output:
    rows = 2048
    return kernel.Output(
        problems=np.zeros((rows, problem_size), dtype=np.int32),
        prompts=np.zeros(tokens, dtype=kind),
        prompt_ends=np.zeros(rows + 1, dtype=np.int32),
        traces=np.zeros(4 * tokens, dtype=kind),
        trace_ends=np.zeros(rows + 1, dtype=np.int32),
        plans=np.zeros(tokens, dtype=kind),
        plan_ends=np.zeros(rows + 1, dtype=np.int32),
        candidates=np.zeros(rows, dtype=np.int64),
        cursor=np.zeros(3, dtype=np.int64),
        rejected=np.zeros(len(kernel.REASONS), dtype=np.int64),
    )


def _enlarged(output: kernel.Output) -> kernel.Output:
    """Twice the room for tokens, with the same cursor and counts."""
    larger = _output(output.problems.shape[1], output.prompts.dtype, tokens=2 * len(output.prompts))
    return larger._replace(cursor=output.cursor, rejected=output.rejected)


def _rows(output: kernel.Output, rows: int) -> AcceptedTasks:
    ends = {"prompt": output.prompt_ends, "trace": output.trace_ends, "plan": output.plan_ends}
    values = {"prompt": output.prompts, "trace": output.traces, "plan": output.plans}
    return AcceptedTasks(
        problems=output.problems[:rows],
        parts={part: values[part][: ends[part][rows]] for part in values},
        ends={part: ends[part][: rows + 1] for part in values},
    )
