"""`searchformer judge`: tasks with answers in, verdicts out."""

import json
from typing import Annotated

import typer

from searchformer.commands.options import domain_settings

CONTEXT = {"allow_extra_args": True, "ignore_unknown_options": True}


def run(
    context: typer.Context,
    domain: Annotated[str, typer.Argument(help="maze, sokoban, tiles, or a registered one.")],
    file: Annotated[str, typer.Argument(help='JSON lines with a task and its "answer"; - for stdin.')],
    paper: Annotated[bool, typer.Option("--paper", help="The published tables' looser rule.")] = False,
) -> None:
    """Judge each answer by the domain's rules, and its trace by A*'s, a line of JSON each.

    Prints `verdict` (optimal, feasible, invalid), `reason`, `plan_length` and `optimal_length` in nodes, `trace_legal`
    and `trace_sound` (legal but for the order of closing and children left out; both null without a trace) and
    `violation`. An answer is space-separated tokens, without bos and eos.
    """
    from searchformer.commands.tasks import read_tasks
    from searchformer.domains import TaskError, make_domain
    from searchformer.errors import SearchformerError
    from searchformer.evaluate.judge import Judge, describe_violation

    made = make_domain(domain, domain_settings(domain, context.args))
    judge = Judge(made, paper=paper)
    for place, task in read_tasks(file):
        answer = task.pop("answer", None)
        if not isinstance(answer, str):
            raise SearchformerError(f'{place}: expected "answer", a text of tokens; found {answer!r}')
        try:
            verdict = judge.judge_text(made.encode(task), answer)
        except TaskError as error:
            raise TaskError(f"{place}: {error}") from None
        shown = {
            "verdict": verdict.verdict,
            "reason": verdict.reason,
            "plan_length": verdict.plan_length if verdict.plan_length >= 0 else None,
            "optimal_length": verdict.optimal_length if verdict.optimal_length >= 0 else None,
            "trace_legal": verdict.trace_legal,
            "trace_sound": verdict.trace_sound,
            "violation": verdict.violation and describe_violation(verdict),
        }
        typer.echo(json.dumps(shown))
