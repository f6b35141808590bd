"""`searchformer generate`: sample tasks, run A*, store a data set of traces."""

import json
from pathlib import Path
from typing import Annotated

import typer

from searchformer.commands.options import domain_settings

CONTEXT = {"allow_extra_args": True, "ignore_unknown_options": True}


def run(
    context: typer.Context,
    domain: Annotated[str, typer.Argument(help="maze, sokoban, tiles, or a registered one.")],
    out: Annotated[Path, typer.Option(help="Directory for the data set.")],
    tasks: Annotated[int, typer.Option(min=1, help="Distinct tasks, training and test together.")] = 1000,
    seed: Annotated[int, typer.Option(help="Same seed, same bytes.")] = 0,
    deterministic: Annotated[bool, typer.Option(help="Ties by a fixed order instead of at random.")] = False,
    algorithm: Annotated[str, typer.Option(help="astar, dijkstra, weighted or greedy.")] = "astar",
    weight: Annotated[float, typer.Option(help="Weight of h, with --algorithm weighted.")] = 1.0,
    test_fraction: Annotated[float, typer.Option(min=0, max=1, help="Share of layouts kept for testing.")] = 0.1,
    max_trace_tokens: Annotated[int | None, typer.Option(min=1, help="Reject longer traces.")] = None,
    max_expansions: Annotated[int, typer.Option(min=1, help="Reject longer searches.")] = 10_000_000,
    start_goal_pairs: Annotated[int, typer.Option(min=1, help="Tasks tried on each layout (mazes).")] = 1,
    workers: Annotated[int, typer.Option(min=1, help="Processes; the result is the same for any number.")] = 1,
    append: Annotated[bool, typer.Option("--append", help="Add --tasks more to the data set in --out.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")] = False,
) -> None:
    """Sample tasks, run A*, and store a data set of prompts, traces and plans.

    The domain's own settings are options too: --width, --height; for sokoban also --walls, --boxes, --tokens-format;
    for tiles --slides. Interrupted, the same command goes on.
    """
    from searchformer.commands.progress import Lines
    from searchformer.dataset.generate import generate
    from searchformer.dataset.shards import GenerateConfig
    from searchformer.domains import domain_class
    from searchformer.errors import SearchformerError

    settings = domain_settings(domain, context.args)
    if start_goal_pairs > 1 and not domain_class(domain).shares_layouts:
        raise SearchformerError(f"--start-goal-pairs is for domains with shared layouts, such as maze; found {domain}")
    config = GenerateConfig(
        domain=domain,
        settings=settings,
        tasks=tasks,
        seed=seed,
        deterministic=deterministic,
        algorithm=algorithm,
        weight=weight,
        test_fraction=test_fraction,
        max_trace_tokens=max_trace_tokens,
        max_expansions=max_expansions,
        start_goal_pairs=start_goal_pairs,
    )
    manifest = generate(config, out, workers=workers, append=append, display=Lines())
    counts = manifest.counts
    if as_json:
        typer.echo(json.dumps({"out": str(out), "counts": counts, "longest": manifest.longest}))
    else:
        typer.echo(f"{out}: {counts['train']:,} training and {counts['test']:,} test tasks")
