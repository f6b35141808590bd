"""Plans one task with a model, and never trusts it: every answer is judged, and A* steps in where none holds.

In: a task and a model's directory. Out: a `Solution` with the best verified plan, what the search for it took, and what
A* takes. Try: `searchformer solve --random maze:6x6`.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from searchformer.domains import Domain, TaskError, make_domain
from searchformer.errors import SearchformerError
from searchformer.evaluate.judge import INVALID, OPTIMAL, Judge, domain_of
from searchformer.files import read_json
from searchformer.records import Trace, Verdict
from searchformer.search import Options, Searcher
from searchformer.search.compiled import bind
from searchformer.search.replay import COST
from searchformer.search.validate import codes_of
from searchformer.seeding import child_seed, new_stream
from searchformer.tokens.vocabulary import Vocabulary

ASTAR_RUNS = 16
"""Most runs of non-deterministic A* to compare with."""
ASTAR_STEPS = 400_000
"""Fewer runs where they would take more steps than this together, but one at least."""
LONGEST_ANSWER = 4
"""An answer this many times as long as A*'s is cut."""
CANDIDATES = 10_000
"""Tasks drawn at random before one that can be solved is given up for."""


@dataclass(frozen=True)
class Task:
    """A planning task."""

    domain: Domain
    """With settings of the task's own size."""
    problem: np.ndarray

    def as_domain(self, domain: Domain) -> "Task":
        """The same task in another variant of its domain; raises TaskError if that cannot express it."""
        return _sized(domain, domain.encode(self.domain.decode(self.problem)))


@dataclass(frozen=True)
class Effort:
    """What a search took, or several on average."""

    created: float
    closed: float
    tokens: float
    """Of the trace."""


@dataclass(frozen=True)
class Step:
    """One step of a search."""

    closes: bool
    """Closes a node, or creates it."""
    state: np.ndarray | None
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
    model: Effort | None
    """Of the model, on average over its answers that hold: one picked answer against A*'s mean would flatter it."""
    answers: dict[str, int]
    """How many of the model's answers were optimal, feasible and invalid; empty if it was not asked."""
    notes: tuple[str, ...]
    """What a reader should know: a size that the model was not trained for, a fallback to A*."""
    found: Trace | np.ndarray
    """The search: A*'s, or the codes of the model's answer."""

    @property
    def solvable(self) -> bool:
        """Whether there is a plan."""
        return len(self.plan) > 0


# --- tasks


def _sized(domain: Domain, problem: np.ndarray) -> Task:
    """Not validated again: settings are limits of what can be sampled, and a task from outside may be beyond them."""
    return Task(domain.model_copy(update=domain.measure(problem)), problem)


def make_task(record: dict[str, Any], *, name: str | None = None, settings: dict[str, Any] | None = None) -> Task:
    """The task of a JSON object, of the domain `name` or the one that it looks like; raises TaskError."""
    name, settings = name or domain_of(record), settings or {}
    record = {field: value for field, value in record.items() if field != "domain"}
    domain = make_domain(name, settings)
    try:
        return _sized(domain, domain.encode(record))
    except TaskError:
        if name != "sokoban" or "tokens_format" in settings:
            raise
        full = make_domain(name, {**settings, "tokens_format": "full"})  # for levels with a box on a dock
        return _sized(full, full.encode(record))


def random_task(domain: Domain, *, seed: int, options: Options | None = None) -> Task:
    """A task drawn as `searchformer generate` draws them: one that has a plan, and not too short a one."""
    rules, settings, searcher = bind(domain.rules), domain.sampling(), Searcher(domain, options)
    problem = np.zeros(domain.problem_size(), dtype=np.int32)
    for index in range(CANDIDATES):
        stream = new_stream(seed, "solve", index)
        if rules["sample_layout"](settings, stream, problem) and rules["sample_task"](settings, stream, problem):
            plan = searcher.search(problem, record=False).plan
            if len(plan) and rules["accepts"](problem, len(plan)):
                return Task(domain, problem)
    raise SearchformerError(f"none of {CANDIDATES:,} random tasks of {domain.name} can be solved; change its settings")


# --- solving


def solve(
    task: Task, *, model: Path | None = None, samples: int = 16, seed: int = 0, options: Options | None = None
) -> Solution:
    """Plan with the model in directory `model`, or with A* alone. `options` limits A*'s searches."""
    options = options or Options()
    notes: list[str] = []
    asked = None
    if model is not None:
        try:
            asked = _Asked.open(model, task)
        except TaskError as error:
            notes.append(f"the model cannot express this task ({error}): planned by A*")
    task = asked.task if asked else task
    solution = _by_astar(task, options)
    if asked and solution.solvable:
        notes += asked.warnings()
        limit = LONGEST_ANSWER * (int(solution.astar.tokens) + len(plan_tokens(solution)))
        solution = _by_model(asked, solution, samples=samples, seed=seed, limit=limit)
    return replace(solution, notes=(*notes, *solution.notes))


def _by_astar(task: Task, options: Options) -> Solution:
    """A*'s own plan, by the deterministic search, and the mean effort of the non-deterministic ones."""
    domain, problem = task.domain, task.problem
    searcher = Searcher(domain, replace(options, deterministic=True))
    found = searcher.search(problem)
    effort = Effort(found.created, found.closed, searcher.trace_length(problem))
    runs = max(1, min(ASTAR_RUNS, ASTAR_STEPS // (found.created + found.closed)))
    efforts = list(_efforts(task, options, runs))
    return Solution(
        task=task,
        planner="astar",
        plan=found.plan,
        optimal=found.solvable,
        effort=effort,
        astar=_mean(efforts),
        astar_runs=runs,
        model=None,
        answers={},
        notes=(),
        found=found,
    )


def _mean(efforts: list[Effort]) -> Effort:
    return Effort(*np.mean([(each.created, each.closed, each.tokens) for each in efforts], axis=0).tolist())


def _efforts(task: Task, options: Options, runs: int) -> Iterator[Effort]:
    """What non-deterministic A* takes, run by run; the same runs as those of `searchformer evaluate`."""
    searcher = Searcher(task.domain, replace(options, deterministic=False))
    for run in range(runs):
        seed = child_seed(run, "astar", 0)
        found = searcher.search(task.problem, seed=seed)
        yield Effort(found.created, found.closed, searcher.trace_length(task.problem, seed=seed))


@dataclass(frozen=True)
class _Asked:
    """A model and the task in its words."""

    directory: Path
    trained: dict[str, Any]
    vocabulary: Vocabulary
    task: Task
    prompt: list[str]

    @classmethod
    def open(cls, directory: Path, task: Task) -> "_Asked":
        """Raises TaskError where the model has no words for the task. No weights are read."""
        trained = read_json(directory / "config.json", what="model").get("trained", {})
        name = trained.get("domain", task.domain.name)
        if name != task.domain.name:
            raise SearchformerError(
                f"the model in {directory} was trained for {name}; this task is of {task.domain.name}"
            )
        task = task.as_domain(make_domain(name, trained.get("settings", {})))
        vocabulary = Vocabulary.load(directory)
        prompt = _Names(task).prompt()
        missing = [token for token in prompt if token not in vocabulary.ids]
        if missing:
            size = _listed(task.domain.measure(task.problem))
            raise TaskError(f"{size}: its vocabulary has no {missing[0]!r}")
        return cls(directory, trained, vocabulary, task, prompt)

    def warnings(self) -> Iterator[str]:
        """Says so if the task is not of the size that the model was trained for."""
        size, settings = self.task.domain.measure(self.task.problem), self.trained.get("settings", {})
        if any(settings.get(name, value) != value for name, value in size.items()):
            there = {name: settings[name] for name in size if name in settings}
            yield f"the model was trained for {_listed(there)}; this task has {_listed(size)}: expect worse answers"

    def answers(self, *, samples: int, seed: int, limit: int) -> Iterator[tuple[np.ndarray, bool]]:
        """Token codes of sampled answers, and whether each ended with eos."""
        from searchformer.model import load_model
        from searchformer.rollout import Engine

        model, vocabulary = load_model(self.directory)
        engine = Engine(model, vocabulary, slots=samples)
        codes = codes_of(self.task.domain, vocabulary.tokens)
        most = min(limit, model.config.positions)
        for answer in engine.sample_all([self.prompt], samples=samples, seed=seed, max_tokens=most):
            yield codes[answer.tokens], answer.finish == "eos"


def _by_model(asked: _Asked, astar: Solution, *, samples: int, seed: int, limit: int) -> Solution:
    """The model's best answer that holds; `astar` if there is none."""
    task, judge = astar.task, Judge(astar.task.domain)
    judged: list[tuple[Verdict, np.ndarray]] = []
    for codes, finished in asked.answers(samples=samples, seed=seed, limit=limit):
        verdict = judge.judge(task.problem, codes, optimal_length=len(astar.plan), finished=finished)
        judged.append((verdict, codes))
    answers = dict(Counter(verdict.verdict for verdict, _ in judged))
    valid = [each for each in judged if each[0].verdict != INVALID]
    if not valid:
        reasons = Counter(str(verdict.reason).split(" at ")[0] for verdict, _ in judged).most_common(2)
        why = ", ".join(f"{reason} {times} times" for reason, times in reasons)
        note = f"none of the model's {samples} answers solves the task ({why}): planned by A*"
        return replace(astar, answers=answers, notes=(note,))
    verdict, codes = min(valid, key=lambda each: preference(each[0]))
    return replace(
        astar,
        planner="model",
        plan=np.array(_Names(task).plan(codes)),
        optimal=verdict.verdict == OPTIMAL,
        effort=_effort(verdict),
        model=_mean([_effort(each) for each, _ in valid]),
        answers=answers,
        found=codes,
    )


def _effort(verdict: Verdict) -> Effort:
    return Effort(verdict.created, verdict.closed, verdict.trace_length)


def _listed(size: dict[str, int]) -> str:
    """A size in words."""
    return ", ".join(f"{name} {value}" for name, value in size.items())


def preference(verdict: Verdict) -> tuple[bool, int, int]:
    """Smaller is better: optimal first, then the shortest plan, then the shortest trace."""
    return verdict.verdict != OPTIMAL, verdict.plan_length, verdict.trace_length


# --- from tokens to states and back


class _Names:
    """A task's states and their tokens, by the domain's own rules."""

    def __init__(self, task: Task) -> None:
        self.domain, self.problem, self.rules = task.domain, task.problem, bind(task.domain.rules)
        room = max(self.domain.prompt_room(self.problem), self.domain.state_room(self.problem))
        self.tokens = np.zeros(room, dtype=np.int32)
        self.keywords = -len(self.domain.words)
        self.start = np.zeros(self.domain.state_size(self.problem), dtype=np.int32)
        self.rules["start"](self.problem, self.start)

    def prompt(self) -> list[str]:
        """The task's tokens."""
        length = self.rules["write_prompt"](self.problem, self.tokens)
        return [self.domain.token_text(code) for code in self.tokens[:length].tolist()]

    def name(self, state: np.ndarray, *, rule: str) -> tuple[int, ...]:
        """The codes that `rule` writes for a state."""
        return tuple(self.tokens[: self.rules[rule](self.problem, state, self.tokens)].tolist())

    def children(self, state: np.ndarray) -> np.ndarray:
        """The states one move away."""
        children = np.zeros((self.domain.max_children, len(state)), dtype=np.int32)
        return children[: self.rules["successors"](self.problem, state, children)]

    def steps(self, codes: np.ndarray) -> Iterator[tuple[int, tuple[int, ...]]]:
        """An answer cut at its keywords: 1 for create, 2 for close, 3 for plan, with the codes behind it."""
        starts = np.flatnonzero((codes < self.keywords) & (codes >= self.keywords - 3)).tolist()
        for first, last in zip(starts, [*starts[1:], len(codes)], strict=True):
            yield self.keywords - int(codes[first]), tuple(codes[first + 1 : last].tolist())

    def plan(self, codes: np.ndarray) -> list[np.ndarray]:
        """The states of an answer's plan, which the judge has found to be legal."""
        states = [self.start]
        for step in [inside for keyword, inside in self.steps(codes) if keyword == 3][1:]:
            states.append(next(s for s in self.children(states[-1]) if self.name(s, rule="write_plan") == step))
        return states

    def search(self, codes: np.ndarray) -> Iterator[Step]:
        """The steps of an answer's trace. A state is known once a closed one leads to it."""
        known = {self.name(self.start, rule="write_state"): self.start}
        for keyword, inside in self.steps(codes):
            if keyword == 3:
                return
            state, (cost, estimate) = known.get(inside[:-2]), (code - COST for code in inside[-2:])
            yield Step(keyword == 2, state, cost, estimate)
            if keyword == 2 and state is not None:
                known |= {self.name(child, rule="write_state"): child for child in self.children(state)}


def plan_tokens(solution: Solution) -> list[str]:
    """The plan as tokens."""
    names, domain = _Names(solution.task), solution.task.domain
    steps = [["plan", *map(domain.token_text, names.name(state, rule="write_plan"))] for state in solution.plan]
    return [token for step in steps for token in step]


def search_steps(solution: Solution) -> Iterator[Step]:
    """The search that found the plan, step by step."""
    found = solution.found
    if isinstance(found, Trace):
        for closes, node, cost, estimate in zip(found.kinds, found.nodes, found.costs, found.estimates, strict=True):
            yield Step(bool(closes), found.states[node], int(cost), int(estimate))
    else:
        yield from _Names(solution.task).search(found)
