"""The judge: replays an answer's plan in the domain's own rules, and its trace in A*'s. A plan is never trusted.

In: a task and an answer's tokens. Out: a `Verdict`. Strict by default; `paper` gives the looser verdict of the
published Sokoban tables: the plan's position differences are replayed, blocked moves are ignored, the start is not
checked. Try: `searchformer judge maze FILE.jsonl`.
"""

from typing import Any

import numpy as np

from searchformer.domains import Domain, make_domain
from searchformer.errors import SearchformerError
from searchformer.records import Verdict
from searchformer.search import Options, Searcher
from searchformer.search.compiled import bind
from searchformer.search.validate import PlanVerdict, Validator, codes_of

OPTIMAL, FEASIBLE, INVALID = "optimal", "feasible", "invalid"


class Judge:
    """Judges answers to tasks of one domain, with warm kernels."""

    def __init__(self, domain: Domain, *, paper: bool = False, algorithm: str = "astar", weight: float = 1.0) -> None:
        self.domain, self.paper = domain, paper
        self.validator = Validator(domain, algorithm=algorithm, weight=weight)
        self.searcher = Searcher(domain, Options(deterministic=True))

    def optimal_length(self, problem: np.ndarray) -> int:
        """Nodes of a shortest plan; -1 if there is none."""
        trace = self.searcher.search(problem, record=False)
        return len(trace.plan) if trace.solvable else -1

    def judge_text(self, problem: np.ndarray, answer: str) -> Verdict:
        """Judge an answer given as space-separated tokens, without bos and eos."""
        codes = codes_of(self.domain, answer.split())
        return self.judge(problem, codes, optimal_length=self.optimal_length(problem))

    def judge(self, problem: np.ndarray, codes: np.ndarray, *, optimal_length: int, finished: bool = True) -> Verdict:
        """Judge an answer given as token codes. `finished` says that it ended with eos."""
        validator = self.validator
        begin = validator.plan_begin(codes)
        plan_length = int(np.count_nonzero(codes == validator.keywords - 3)) or -1
        reason = self._reason(problem, codes, begin, finished=finished)
        verdict = INVALID if reason else OPTIMAL if plan_length == optimal_length else FEASIBLE
        trace = validator.trace(problem, codes) if begin else None
        return Verdict(
            verdict=verdict,
            reason=reason,
            plan_length=plan_length,
            optimal_length=optimal_length,
            trace_length=begin,
            created=trace.created if trace else 0,
            closed=trace.closed if trace else 0,
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
        malformed = self.validator.malformed(codes)
        if 0 <= malformed < len(codes) and not (self.paper and malformed < begin):
            return f"parse error at token {malformed}"
        if begin == len(codes):
            return "no plan"
        if malformed >= len(codes):
            return f"parse error at token {malformed}"
        plan = self.loose_plan(problem, codes[begin:]) if self.paper else self.validator.plan(problem, codes)
        if plan.solved:
            return None
        return f"illegal move at step {plan.step}" if plan.reason == "illegal move" else plan.reason

    def loose_plan(self, problem: np.ndarray, codes: np.ndarray) -> PlanVerdict:
        """The published tables' rule, for domains whose plan steps are positions; others are judged strictly."""
        rules, size = bind(self.domain.rules), self.domain.state_size(problem)
        positions = np.array([code for code in codes.tolist() if code >= 0]).reshape(-1, 2)
        if len(positions) != np.count_nonzero(codes < 0):
            return self.validator.plan(problem, codes)
        state, tokens = np.zeros(size, dtype=np.int32), np.zeros(self.domain.state_room(problem), dtype=np.int32)
        children = np.zeros((self.domain.max_children, size), dtype=np.int32)
        rules["start"](problem, state)
        for step, difference in enumerate(np.diff(positions, axis=0), start=1):
            if np.abs(difference).sum() != 1:
                return PlanVerdict(False, "illegal move", step, step)
            rules["write_plan"](problem, state, tokens)
            target = tokens[:2] + difference
            for child in children[: rules["successors"](problem, state, children)]:
                rules["write_plan"](problem, child, tokens)
                if (tokens[:2] == target).all():
                    state = child.copy()
                    break
        solved = bool(rules["is_goal"](problem, state))
        return PlanVerdict(solved, None if solved else "not solved", len(positions) - 1, len(positions))


def domain_of(task: dict[str, Any]) -> str:
    """The name of the domain that a task in JSON belongs to."""
    if "domain" in task:
        return task["domain"]
    for field, name in (("walls", "maze"), ("level", "sokoban")):
        if field in task:
            return name
    raise SearchformerError('a task is a maze ("walls"), a Sokoban level ("level"), or names its "domain"')


def judge(task: dict[str, Any], answer: str, *, paper: bool = False, **settings: Any) -> Verdict:
    """Judge one answer (space-separated tokens, without bos and eos) to a task in JSON."""
    domain = make_domain(domain_of(task), settings)
    record = {field: value for field, value in task.items() if field != "domain"}
    return Judge(domain, paper=paper).judge_text(domain.encode(record), answer)
