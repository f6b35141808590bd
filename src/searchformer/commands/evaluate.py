"""`searchformer evaluate`: judge and score a directory of rollouts."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer


def run(
    directory: Annotated[Path, typer.Argument(help="Directory that `searchformer rollout` wrote.")],
    paper: Annotated[bool, typer.Option("--paper", help="The published tables' looser rule.")] = False,
    astar_runs: Annotated[int, typer.Option(min=1, help="Runs of A* per task to compare lengths with.")] = 64,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")] = False,
) -> None:
    """Judge every answer, print the scores with 95% intervals over tasks, write metrics.json and verdicts.parquet."""
    from searchformer.commands.progress import Lines
    from searchformer.evaluate.evaluation import evaluate

    metrics = evaluate(directory, paper=paper, astar_runs=astar_runs, display=Lines())
    if as_json:
        typer.echo(json.dumps({"out": str(directory), "tasks": metrics["tasks"], "metrics": metrics["metrics"]}))
    else:
        print_metrics(metrics)


def print_metrics(metrics: dict[str, Any]) -> None:
    """The scores as a table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{metrics['tasks']} tasks, {metrics['samples']} answers each, {metrics['rule']} judge")
    for heading in ("metric", "value", "95% interval"):
        table.add_column(heading, justify="left" if heading == "metric" else "right")
    for name, found in metrics["metrics"].items():
        if found["value"] is None:
            table.add_row(name, "undefined", "")
        else:
            table.add_row(name, f"{found['value']:.4g}", f"{found['low']:.4g} to {found['high']:.4g}")
    Console().print(table)
