"""`searchformer evaluate`: judge and score a directory of rollouts."""

import json
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from pydantic import Field
from rich.console import Console
from rich.table import Table

from searchformer.commands.options import Flat, Json
from searchformer.engines.options import EngineOptions, make_engine
from searchformer.options import OptionsModel


class EvaluateOptions(OptionsModel):
    """How answers are judged and compared."""

    paper: bool = False
    """Judge by the published tables' looser rule."""
    astar_runs: int = Field(default=64, ge=1)
    """Runs of A* per task to compare lengths with."""
    workers: int | None = Field(default=None, ge=1)
    """Processes, 1 if left out; on Ray, actors, one per processor if left out."""


def run(
    directory: Annotated[Path, Parameter(help="Directory that `searchformer rollout` wrote.")],
    /,
    *,
    options: Annotated[EvaluateOptions, Flat] = EvaluateOptions(),
    where: Annotated[EngineOptions, Flat] = EngineOptions(),
    as_json: Json = False,
) -> None:
    """Judge every answer, print the scores with 95% intervals over tasks, write metrics.json and verdicts.parquet."""
    from searchformer.addresses import working_copy
    from searchformer.commands.progress import TerminalDisplay
    from searchformer.evaluate.evaluation import evaluate
    from searchformer.files import ROLLOUTS, require_kind

    with working_copy(directory) as here:
        require_kind(here, ROLLOUTS, advice="give a directory that `searchformer rollout` wrote")
        metrics = evaluate(here, display=TerminalDisplay(), engine=make_engine(where), **options.model_dump())
    if as_json:
        print(json.dumps({"out": str(directory), "tasks": metrics["tasks"], "metrics": metrics["metrics"]}))
    else:
        print_metrics(metrics)


def print_metrics(metrics: dict[str, Any]) -> None:
    """The scores as a table."""
    from searchformer.evaluate.metrics import IMITATION

    table = Table(title=f"{metrics['tasks']} tasks, {metrics['samples']} answers each, {metrics['rule']} judge")
    for heading in ("metric", "value", "95% interval"):
        table.add_column(heading, justify="left" if heading == "metric" else "right")
    for name, found in metrics["metrics"].items():
        if found["value"] is not None:
            table.add_row(name, f"{found['value']:.4g}", f"{found['low']:.4g} to {found['high']:.4g}")
        elif name not in IMITATION:
            table.add_row(name, "undefined", "")
    Console().print(table)
