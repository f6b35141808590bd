"""`searchformer judge`: tasks with answers in, verdicts out."""

import json
import sys
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from pydantic import Field

from searchformer.commands.options import DomainName, Flat, Settings, domain_settings
from searchformer.dataset.options import AlgorithmOptions

if TYPE_CHECKING:
    from searchformer.records import Verdict


class JudgeOptions(AlgorithmOptions):
    """How answers are judged."""

    paper: bool = False
    """Judge by the published tables' looser rule."""
    max_expansions: int = Field(default=10_000_000, ge=1)
    """Give up a search for a shortest plan that closes more nodes than this."""
    strict: bool = False
    """Stop at the first bad task or level instead of continuing with the next."""


def run(
    domain: DomainName,
    file: Annotated[
        str, Parameter(help='JSON lines with a task and its "answer" (- for stdin), or mazes of other tools.')
    ],
    /,
    *,
    options: Annotated[JudgeOptions, Flat] = JudgeOptions(),
    **settings: Settings,
) -> None:
    """Judge each answer by the domain's rules, and its trace by the search algorithm's; one line of JSON per answer.

    Prints `verdict` (optimal, feasible, invalid), `reason`, `plan_length` and `optimal_length` in nodes, `trace_legal`,
    `trace_sound` (legal, except that nodes may be closed in any order and children left out; both are null without a
    trace) and `violation`. An answer is space-separated tokens, without bos and eos; or moves, such as rrdd; or
    coordinates, such as (0,0) (1,0); or a list of these. A line that fails gives {"line", "error"} instead, and the
    exit code is 1 at the end.
    """
    from searchformer.commands.tasks import TaskFile
    from searchformer.domains import make_domain
    from searchformer.evaluate.answers import answer_text
    from searchformer.evaluate.judge import Judge, read_task
    from searchformer.search import Options

    given = domain_settings(domain, settings)
    make_domain(domain, given)  # wrong settings show before anything is read
    limits = Options(max_expansions=options.max_expansions)
    judges: dict[str, Judge] = {}
    tasks, verdicts = TaskFile(file, strict=options.strict), Counter[str]()
    for place, task in tasks:
        with tasks.line(place):
            answer, claim = task.pop("answer", None), task.pop("claimed_moves", None)
            made, problem = read_task(task, name=domain, settings=given)
            variant = made.model_dump_json()
            if variant not in judges:
                judges[variant] = Judge(made, limits=limits, **options.model_dump(exclude={"max_expansions", "strict"}))
            judge = judges[variant]
            if claim is not None and answer is None:
                shown = _judged_claim(judge.optimal_length(problem), claim)
            else:
                shown = _shown(judge.judge_text(problem, answer_text(answer)))
            verdicts[shown["verdict"]] += 1
            print(json.dumps(shown))
    if verdicts.total() > 1:
        listed = ", ".join(f"{count:,} {verdict}" for verdict, count in verdicts.most_common())
        print(f"searchformer: of {verdicts.total():,} answers {listed}", file=sys.stderr)
    tasks.finish()


def _judged_claim(optimal_length: int, claim: int) -> dict[str, Any]:
    """An answer that gives no plan, only the number of moves of a shortest one."""
    right = claim == optimal_length - 1
    return {
        "verdict": "right length" if right else "wrong length",
        "claimed_moves": claim,
        "optimal_length": optimal_length if optimal_length >= 0 else None,
    }


def _shown(verdict: "Verdict") -> dict[str, Any]:
    from searchformer.evaluate.judge import describe_violation

    return {
        "verdict": verdict.verdict,
        "reason": verdict.reason,
        "plan_length": verdict.plan_length if verdict.plan_length >= 0 else None,
        "optimal_length": verdict.optimal_length if verdict.optimal_length >= 0 else None,
        "trace_legal": verdict.trace_legal,
        "trace_sound": verdict.trace_sound,
        "violation": verdict.violation and describe_violation(verdict),
    }
