"""Searches that can be played: a task and an answer's tokens in, steps with cells, marks and a verdict out.

A*'s searches take the same way as a model's: both are tokens. `Follower` reads tokens as they come; `Searches` runs and
judges. Everything here may be called from several threads.
"""

import threading
from collections.abc import Sequence
from functools import lru_cache

from searchformer.domains import KEYWORDS
from searchformer.domains.grid import unpack
from searchformer.errors import SearchformerError
from searchformer.evaluate.judge import Judge
from searchformer.records import Step as WrittenStep
from searchformer.records import Trace, Verdict
from searchformer.search import BudgetError, Options, Searcher
from searchformer.search.replay import OF_ORDER
from searchformer.search.shortest import TOKENS_BESIDE_STATE, shortest_search_length
from searchformer.search.validate import codes_of
from searchformer.search.world import State, World, cut_steps
from searchformer.seeding import child_seed
from searchformer.solve import Task, make_task
from searchformer.tokens.grammar import write_text
from searchformer.web.records import Lengths, Plan, Search, SearchRequest, Step, TaskRecord

DRAWN_NODES = 5_000
"""Nodes that a search may close to be drawn step by step."""
PLANNED_NODES = 500_000
"""Nodes that a search may close to find a plan."""
ASTAR_RUNS = 64
"""Runs of A* in a distribution."""


def read_task(record: TaskRecord) -> Task:
    """The task of a request; raises TaskError."""
    return make_task(record.model_dump())


class Follower:
    """Reads an answer token by token, and says which states its steps mean.

    A state can be named once a closed one leads to it; the cells of others are read off the step's numbers.
    """

    def __init__(self, world: World) -> None:
        self.world, self.at = world, 0
        self._pending: list[str] = []
        start = world.start()
        self._reached: dict[tuple[str, ...], State] = {world.state_tokens(start): start}
        self._last_planned: State | None = None

    def feed(self, tokens: Sequence[str], *, last: bool = False) -> list[Step]:
        """The steps that are complete with these tokens; with `last`, no more will come."""
        self._pending += tokens
        starts = [place for place, token in enumerate(self._pending) if token in KEYWORDS]
        first = starts[0] if starts else len(self._pending)  # what stands before the first keyword belongs to no step
        end = len(self._pending) if last or not starts else starts[-1]
        steps = []
        at = self.at + first
        for step in cut_steps(self._pending[:end]):
            steps.append(self._read(step, at))
            at += len(step.tokens())
        self.at += end
        self._pending = self._pending[end:]
        return steps

    def _read(self, step: WrittenStep, at: int) -> Step:
        state = self._plan_state(step) if step.kind == "plan" else self._reached.get(step.state)
        if step.kind == "close" and state is not None:
            self._reached |= {self.world.state_tokens(child): child for child in self.world.successors(state)}
        cells = [list(unpack(cell)) for cell in state] if state is not None else named_cells(step.state)
        return Step(kind=step.kind, at=at, cells=cells, cost=step.cost, estimate=step.estimate)  # type: ignore[arg-type]

    def _plan_state(self, step: WrittenStep) -> State | None:
        options = [self.world.start()] if self._last_planned is None else self.world.successors(self._last_planned)
        found = next((state for state in options if self.world.plan_tokens(state) == step.state), None)
        self._last_planned = found or self._last_planned
        return found


def named_cells(tokens: Sequence[str]) -> list[list[int]]:
    """The cells that neighbouring numbers name: `worker 3 2 box 2 3` has (3, 2) and (2, 3)."""
    cells, waiting = [], list[int]()
    for token in tokens:
        waiting = [*waiting, int(token)] if token.isdecimal() and len(token) < 6 else []
        if len(waiting) == 2:
            cells.append(waiting)
            waiting = []
    return cells


class Searches:
    """Runs searches and judges answers, one at a time per kind of task, with warm kernels."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._judge = lru_cache(maxsize=64)(Judge)
        self._searcher = lru_cache(maxsize=64)(Searcher)
        self._shortest: dict[str, int] = {}

    # --- classical searches

    def run(self, task: Task, request: SearchRequest) -> Search:
        """The search that a request asks for."""
        weight = request.weight if request.algorithm == "weighted" else 1.0
        options = Options(
            deterministic=request.deterministic,
            algorithm=request.algorithm,
            weight=weight,
            max_expansions=DRAWN_NODES,
        )
        found = self._search(task, options, request.seed)
        return self._classical(task, found, who=title_of(request.algorithm, weight))

    def _search(self, task: Task, options: Options, seed: int, *, record: bool = True) -> Trace:
        with self._lock:
            try:
                return self._searcher(task.domain, options).search(task.problem, seed=seed, record=record)
            except BudgetError:
                limit = f"{options.max_expansions:,}"
                doing = "drawn" if record else "solved here"
                raise SearchformerError(
                    f"this task is too large to be {doing}: its search closes more than {limit} nodes"
                ) from None

    def _classical(self, task: Task, found: Trace, *, who: str) -> Search:
        _, trace, plan = write_text(task.domain, task.problem, found)
        optimal = self.plan(task)
        tokens = f"{trace} {plan}".split()
        length, best = len(found.plan) or -1, len(optimal.cells) or -1
        return Search(
            who=who,
            tokens=tokens,
            steps=Follower(World(task.domain, task.problem)).feed(tokens, last=True),
            created=found.created,
            closed=found.closed,
            trace_tokens=len(trace.split()),
            plan_length=length,
            optimal_length=best,
            shortest_search=self._shortest_search(task),
            verdict="unsolvable" if not found.solvable else "optimal" if length == best else "feasible",
            reason=None if found.solvable else "no plan exists",
            legal=True,
            sound=True,
        )

    def plan(self, task: Task) -> Plan:
        """A shortest plan."""
        found = self._optimal(task)
        cells = [[list(unpack(cell)) for cell in state] for state in found.plan.tolist()]
        moves = task.domain.moves(task.problem, found.plan) if found.solvable else ""
        return Plan(solvable=found.solvable, moves=moves or "", cells=cells)

    def _optimal(self, task: Task) -> Trace:
        return self._search(task, Options(deterministic=True, max_expansions=PLANNED_NODES), 0, record=False)

    def _shortest_search(self, task: Task) -> int:
        """Tokens of the shortest search that finds an optimal plan; 0 without a plan."""
        plan = self._optimal(task).plan
        if not len(plan):
            return 0
        if task.domain.name == "maze":  # every state takes as many tokens, so that any plan will do
            state_tokens = len(World(task.domain, task.problem).state_tokens(tuple(plan[0])))
            return 2 * len(plan) * (state_tokens + TOKENS_BESIDE_STATE)
        key = task.domain.task_id(task.problem)
        if key not in self._shortest:
            if len(self._shortest) > 1000:
                self._shortest.clear()
            self._shortest[key] = shortest_search_length(task.domain, task.problem, plan_nodes=len(plan))
        return self._shortest[key]

    def lengths(self, task: Task) -> Lengths:
        """The lengths of A*'s non-deterministic searches: the same runs as those of `searchformer evaluate`."""
        options = Options(max_expansions=DRAWN_NODES)
        self._search(task, options, 0)  # says so where the task is too large
        with self._lock:
            searcher = self._searcher(task.domain, options)
            found = [searcher.trace_length(task.problem, seed=child_seed(run, "astar", 0)) for run in range(ASTAR_RUNS)]
        optimal = len(self._optimal(task).plan) or -1
        return Lengths(trace_tokens=found, shortest_search=self._shortest_search(task), optimal_length=optimal)

    # --- a model's answers

    def judged(self, task: Task, tokens: Sequence[str], *, finished: bool, who: str, sample: int = 0) -> Search:
        """A model's answer with its verdict, and a mark at every step that A* would not make."""
        codes, best = codes_of(task.domain, tokens), len(self._optimal(task).plan) or -1
        with self._lock:
            judge = self._judge(task.domain)
            verdict = judge.judge(task.problem, codes, optimal_length=best, finished=finished)
            wrong = judge.validator.wrong_steps(task.problem, codes) if verdict.trace_length else {}
        steps = Follower(World(task.domain, task.problem)).feed(tokens, last=True)
        return Search(
            who=who,
            tokens=list(tokens),
            steps=[_marked(step, wrong.get(number)) for number, step in enumerate(_with_plan_marks(steps, verdict))],
            created=verdict.created,
            closed=verdict.closed,
            trace_tokens=verdict.trace_length,
            plan_length=verdict.plan_length,
            optimal_length=best,
            shortest_search=self._shortest_search(task),
            verdict=verdict.verdict,  # type: ignore[arg-type]
            reason=verdict.reason,
            legal=verdict.trace_legal,
            sound=verdict.trace_sound,
            violation=verdict.violation,
            sample=sample,
        )


def _with_plan_marks(steps: list[Step], verdict: Verdict) -> list[Step]:
    """Marks the move of the plan that the domain's rules forbid."""
    if not (verdict.reason or "").startswith("illegal move at step "):
        return steps
    wrong = int(str(verdict.reason).rsplit(" ", 1)[1])
    place = [number for number, step in enumerate(steps) if step.kind == "plan"][wrong]
    marked = steps[place].model_copy(update={"wrong": "illegal move", "unsound": True})
    return [*steps[:place], marked, *steps[place + 1 :]]


def _marked(step: Step, wrong: str | None) -> Step:
    return step.model_copy(update={"wrong": wrong, "unsound": wrong not in OF_ORDER}) if wrong else step


def title_of(algorithm: str, weight: float) -> str:
    """What an algorithm is called."""
    names = {"astar": "A*", "dijkstra": "Dijkstra", "weighted": f"weighted A*, {weight:g} h", "greedy": "greedy search"}
    return names[algorithm]
