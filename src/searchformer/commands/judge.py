"""`searchformer judge`: tasks with answers in, verdicts out."""

import json
from typing import Annotated

from cyclopts import Parameter

from searchformer.commands.options import DomainName, Flat, Settings, domain_settings
from searchformer.dataset.options import AlgorithmOptions


class JudgeOptions(AlgorithmOptions):
    """How answers are judged."""

    paper: bool = False
    """Judge by the published tables' looser rule."""


def run(
    domain: DomainName,
    file: Annotated[str, Parameter(help='JSON lines with a task and its "answer"; - for stdin.')],
    /,
    *,
    options: Annotated[JudgeOptions, Flat] = JudgeOptions(),
    **settings: Settings,
) -> None:
    """Judge each answer by the domain's rules, and its trace by the search algorithm's, a line of JSON each.

    Prints `verdict` (optimal, feasible, invalid), `reason`, `plan_length` and `optimal_length` in nodes, `trace_legal`
    and `trace_sound` (legal but for the order of closing and children left out; both null without a trace) and
    `violation`. An answer is space-separated tokens, without bos and eos.
    """
    from searchformer.commands.tasks import read_tasks
    from searchformer.domains import TaskError, make_domain
    from searchformer.errors import SearchformerError, shown
    from searchformer.evaluate.judge import Judge, describe_violation

    made = make_domain(domain, domain_settings(domain, settings))
    judge = Judge(made, **options.model_dump())
    for place, task in read_tasks(file):
        answer = task.pop("answer", None)
        if not isinstance(answer, str):
            raise SearchformerError(f'{place}: expected "answer", a text of tokens; found {shown(answer)}')
        try:
            verdict = judge.judge_text(made.encode(task), answer)
        except TaskError as error:
            raise TaskError(f"{place}: {error}") from None
        record = {
            "verdict": verdict.verdict,
            "reason": verdict.reason,
            "plan_length": verdict.plan_length if verdict.plan_length >= 0 else None,
            "optimal_length": verdict.optimal_length if verdict.optimal_length >= 0 else None,
            "trace_legal": verdict.trace_legal,
            "trace_sound": verdict.trace_sound,
            "violation": verdict.violation and describe_violation(verdict),
        }
        print(json.dumps(record))
