"""`searchformer trace`: tasks in, searches out."""

import json
from typing import Annotated

import typer

from searchformer.commands.options import domain_settings

CONTEXT = {"allow_extra_args": True, "ignore_unknown_options": True}


def run(
    context: typer.Context,
    domain: Annotated[str, typer.Argument(help="maze, sokoban, tiles, or a registered one.")],
    file: Annotated[str, typer.Argument(help="Tasks: JSON lines (- for stdin), or a level or map file.")],
    deterministic: Annotated[bool, typer.Option(help="Ties by a fixed order instead of at random.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of ties and of the children's order.")] = 0,
    algorithm: Annotated[str, typer.Option(help="astar, dijkstra, weighted or greedy.")] = "astar",
    weight: Annotated[float, typer.Option(help="Weight of h, with --algorithm weighted.")] = 1.0,
    record: Annotated[bool, typer.Option("--record/--no-record", help="Write the trace, or the plan alone.")] = True,
    max_expansions: Annotated[int, typer.Option(min=1, help="Give up after closing so many nodes.")] = 10_000_000,
    max_gigabytes: Annotated[float, typer.Option(min=0.001, help="Give up when memory passes this.")] = 4.0,
) -> None:
    """Search each task and print it with `solvable`, `prompt`, `trace`, `plan`, `created` and `closed`, a line each.

    A maze: {"width", "height", "start", "goal", "walls"}; a Sokoban level: {"level": [rows]}; other domains:
    {"prompt": "..."}. Settings such as --tokens-format full, or --width for tiles, are options too.
    """
    from searchformer.commands.tasks import read_tasks
    from searchformer.domains import TaskError, make_domain
    from searchformer.search import BudgetError, Options, Searcher
    from searchformer.tokens.grammar import write_text

    made = make_domain(domain, domain_settings(domain, context.args))
    options = Options(deterministic, algorithm, weight, max_expansions, max_gigabytes)
    searcher = Searcher(made, options)
    for place, task in read_tasks(file):
        try:
            problem = made.encode(task)
            found = searcher.search(problem, seed=seed, record=record)
        except (TaskError, BudgetError) as error:
            raise type(error)(f"{place}: {error}") from None
        prompt, trace, plan = write_text(made, problem, found)
        shown = {"trace": trace} if record else {}
        outcome = {"solvable": found.solvable, "prompt": prompt, **shown, "plan": plan}
        typer.echo(json.dumps({**task, **outcome, "created": found.created, "closed": found.closed}))
