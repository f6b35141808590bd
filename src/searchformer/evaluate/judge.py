"""The judge: replays an answer's plan in the domain's own rules, and its trace in those of A*. A plan is never trusted.

In: a task and an answer's tokens. Out: a `Verdict`. `optimal` and `feasible` promise that the whole answer follows the
grammar and that its plan solves the task; anything else is `invalid`, with a reason. They do not promise that the
search is a true one: `trace_legal` and `trace_sound` say that. With `paper` the verdict is the looser one of the
published Sokoban tables: only the plan counts, its position differences are replayed, blocked moves are ignored, the
start is not checked. Try: `searchformer judge maze FILE.jsonl`.
"""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from searchformer.domains import Domain, TaskError, make_domain
from searchformer.errors import SearchformerError
from searchformer.evaluate.answers import answer_text, answer_tokens
from searchformer.records import Verdict
from searchformer.search import Options, Searcher
from searchformer.search.validate import PlanVerdict, Validator, codes_of, tokens_of
from searchformer.search.world import World, cut_steps
from searchformer.tokens.grammar import build_table

OPTIMAL, FEASIBLE, INVALID = "optimal", "feasible", "invalid"


class Judge:
    """Judges answers to tasks of one domain, with warm kernels."""

    def __init__(
        self,
        domain: Domain,
        *,
        paper: bool = False,
        algorithm: str = "astar",
        weight: float = 1.0,
        limits: Options | None = None,
    ) -> None:
        """`algorithm` and `weight` say which search a trace must be a run of to be legal.

        `limits` bounds the search for a shortest plan, which raises BudgetError beyond them.
        """
        self.domain, self.paper = domain, paper
        self.validator = Validator(domain, algorithm=algorithm, weight=weight)
        self.searcher = Searcher(domain, replace(limits or Options(), deterministic=True))
        self._tables: dict[tuple[int, ...], tuple[np.ndarray, np.ndarray]] = {}

    def optimal_length(self, problem: np.ndarray) -> int:
        """Nodes of a shortest plan; -1 if there is none."""
        trace = self.searcher.search(problem, record=False)
        return len(trace.plan) if trace.solvable else -1

    def judge_text(self, problem: np.ndarray, answer: str) -> Verdict:
        """Judge an answer given as text: space-separated tokens without bos and eos, moves, or coordinates."""
        codes = codes_of(self.domain, answer_tokens(self.domain, problem, answer))
        return self.judge(problem, codes, optimal_length=self.optimal_length(problem))

    def judge(
        self,
        problem: np.ndarray,
        codes: np.ndarray,
        *,
        optimal_length: int,
        finished: bool = True,
        judge_trace: bool = True,
    ) -> Verdict:
        """Judge an answer given as token codes. `finished` says that it ended with eos.

        Without `judge_trace` the verdict says nothing of the trace but how long it is: the kernel that replays traces
        takes longer to compile than any other.
        """
        validator = self.validator
        begin = validator.plan_begin(codes)
        plan_length = int(np.count_nonzero(codes == validator.keywords - 3)) or -1
        reason = self._reason(problem, codes, begin, finished=finished)
        verdict = INVALID if reason else OPTIMAL if plan_length == optimal_length else FEASIBLE
        trace = validator.trace(problem, codes) if begin and judge_trace else None

        def written(kind: int) -> int:
            return int(np.count_nonzero(codes[:begin] == validator.keywords - kind))

        return Verdict(
            verdict=verdict,
            reason=reason,
            plan_length=plan_length,
            optimal_length=optimal_length,
            trace_length=begin,
            created=trace.created if trace else written(1),
            closed=trace.closed if trace else written(2),
            trace_legal=trace.legal if trace else None,
            trace_sound=trace.sound if trace else None,
            violation=trace.violation if trace else None,
            violation_position=trace.position if trace else -1,
            legal_share=trace.legal_steps / max(trace.steps, 1) if trace else 0.0,
            cost_errors=trace.cost_errors if trace else 0,
            estimate_errors=trace.estimate_errors if trace else 0,
        )

    def _reason(self, problem: np.ndarray, codes: np.ndarray, begin: int, *, finished: bool) -> str | None:
        """Why the answer is invalid, or None."""
        if not finished:
            return "no eos"
        refused = self._first_refused(problem, codes, begin)
        if begin == len(codes) and (refused == begin or self.paper):
            return "no plan"
        if refused >= 0:
            return f"parse error at token {refused}"
        plan = self._loose_plan(problem, codes) if self._is_loose() else self.validator.plan(problem, codes)
        if plan.solved:
            return None
        return f"illegal move at step {plan.step}" if plan.reason == "illegal move" else plan.reason

    def _first_refused(self, problem: np.ndarray, codes: np.ndarray, begin: int) -> int:
        """Where the grammar refuses a token, or the number of tokens if more should follow; -1 if neither."""
        size = tuple(self.domain.measure(problem).values())
        if size not in self._tables:
            sized = self.domain.sized(problem)
            whole, plan_only = (build_table(sized, plan_only=only).next_state for only in (False, True))
            self._tables[size] = whole, plan_only
        skipped = begin if self.paper else 0
        table = self._tables[size][skipped == begin]
        refused = self.validator.first_refused(codes[skipped:], table)
        return refused if refused < 0 else skipped + refused

    def _is_loose(self) -> bool:
        """The published rule is for plans whose steps are positions; others are judged strictly."""
        shape = self.domain.shapes.plan
        return self.paper and len(shape) == 1 and len(shape[0].limits) == 2

    def _loose_plan(self, problem: np.ndarray, codes: np.ndarray) -> PlanVerdict:
        """The published tables' rule."""
        world = World(self.domain, problem)

        def position(tokens: tuple[str, ...]) -> tuple[int, int]:
            return int(tokens[-2]), int(tokens[-1])

        steps = [step for step in cut_steps(tokens_of(self.domain, codes)) if step.kind == "plan"]
        positions, state = [position(step.state) for step in steps], world.start()
        for number, ((old_x, old_y), (new_x, new_y)) in enumerate(pairwise(positions), start=1):
            if abs(new_x - old_x) + abs(new_y - old_y) != 1:
                return PlanVerdict(False, "illegal move", number, number)
            x, y = position(world.plan_tokens(state))
            reached = {position(world.plan_tokens(child)): child for child in world.successors(state)}
            state = reached.get((x + new_x - old_x, y + new_y - old_y), state)
        solved = world.is_goal(state)
        return PlanVerdict(solved, None if solved else "not solved", len(steps) - 1, len(steps))


def describe_violation(verdict: Verdict) -> str:
    """What is wrong with a trace, and where."""
    place = f" at token {verdict.violation_position}" if verdict.violation_position >= 0 else ""
    return f"{verdict.violation}{place}"


def domain_of(task: dict[str, Any]) -> str:
    """The name of the domain that a task in JSON belongs to."""
    if "domain" in task:
        return task["domain"]
    for field, name in (("walls", "maze"), ("level", "sokoban")):
        if field in task:
            return name
    raise SearchformerError('a task is a maze ("walls"), a Sokoban level ("level"), or names its "domain"')


def read_task(
    task: dict[str, Any], *, name: str | None = None, settings: dict[str, Any] | None = None
) -> tuple[Domain, np.ndarray]:
    """A task in JSON, of the domain `name` or the one that it looks like, encoded; raises TaskError.

    Sokoban levels with a box on a dock get the token format that has words for them, unless `settings` name one.
    """
    name, settings = name or domain_of(task), settings or {}
    record = {field: value for field, value in task.items() if field != "domain"}
    domain = make_domain(name, settings)
    try:
        return domain, domain.encode(record)
    except TaskError:
        if name != "sokoban" or "tokens_format" in settings:
            raise
        domain = make_domain(name, {**settings, "tokens_format": "full"})
        return domain, domain.encode(record)


def judge(
    task: dict[str, Any],
    answer: str | list[Any],
    *,
    paper: bool = False,
    algorithm: str = "astar",
    weight: float = 1.0,
    **settings: Any,
) -> Verdict:
    """Judge one answer (tokens without bos and eos, moves, or coordinates; text or list) to a task in JSON."""
    domain, problem = read_task(task, settings=settings)
    return Judge(domain, paper=paper, algorithm=algorithm, weight=weight).judge_text(problem, answer_text(answer))
