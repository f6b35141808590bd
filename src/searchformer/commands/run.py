"""`searchformer run`: a whole experiment from a recipe, stage by stage."""

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from pydantic import Field
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from searchformer.commands.options import Flat, Json
from searchformer.commands.progress import TerminalDisplay
from searchformer.engines.base import Engine
from searchformer.engines.options import EngineOptions, make_engine
from searchformer.errors import SearchformerError
from searchformer.options import OptionsModel

if TYPE_CHECKING:
    from searchformer.recipes.recipe import Recipe

COLUMNS = {
    "solved %": ("any_feasible", 100),
    "optimal %": ("any_optimal", 100),
    "optimal %\nper answer": ("pass_at_1", 100),
    "A* length /\nmodel length": ("length_ratio_of_means", 1),
}
"""Headings of the last table, with metrics and scales: as many as fit 80 columns; the report has them all."""


class RunOptions(OptionsModel):
    """How much runs at the same time."""

    jobs: int | None = Field(default=None, ge=1)
    """Models trained at the same time; if left out, one per core or GPU, but one in all for large networks on a CPU."""
    workers: int | None = Field(default=None, ge=1)
    """Processes that generate and sample; one per core if left out."""


def run(
    recipe: Annotated[str | None, Parameter(help="Name of a shipped recipe (see --list), or a TOML file.")] = None,
    /,
    *,
    changes: Annotated[
        tuple[str, ...],
        Parameter(
            name="--set", metavar="A.B=C", help="Change a field of the recipe, as in train.steps=2000; may be repeated."
        ),
    ] = (),
    out: Annotated[Path | None, Parameter(help="Run directory; runs/NAME if left out.")] = None,
    dry_run: Annotated[bool, Parameter(help="Show the stages and what they cost, run nothing.")] = False,
    list_all: Annotated[bool, Parameter(name="--list", help="Explain the shipped recipes and what they cost.")] = False,
    options: Annotated[RunOptions, Flat] = RunOptions(),
    where: Annotated[EngineOptions, Flat] = EngineOptions(),
    as_json: Json = False,
) -> None:
    """Run a whole experiment from a recipe: data, training, answers, bootstrapping, report.

    What is complete is skipped. After an interruption, run the same command again to continue.
    """
    from searchformer.recipes.recipe import load_recipe

    if list_all:
        show_list(as_json=as_json)
        return
    if recipe is None:
        raise SearchformerError("which recipe? `searchformer run --list` explains those that are shipped")
    loaded = load_recipe(recipe, changes)
    if dry_run:
        show_plan(loaded, as_json=as_json)
        return
    out = out or Path("runs") / Path(recipe).stem
    words = ["searchformer", "run", recipe, *(word for change in changes for word in ("--set", change))]
    command = shlex.join([*words, "--out", str(out), *where.words()])
    run_and_show(loaded, out, command=command, options=options, engine=make_engine(where), as_json=as_json)


def run_and_show(
    recipe: "Recipe", out: Path, *, command: str, options: RunOptions, engine: Engine, as_json: bool
) -> None:
    """Run the recipe, then print every run's scores and where the report is."""
    from searchformer.addresses import working_copy
    from searchformer.files import read_json
    from searchformer.recipes.run import run_recipe

    with working_copy(out) as here:
        shown = TerminalDisplay()
        outcome = run_recipe(recipe, here, display=shown, command=command, engine=engine, **options.model_dump())
        scores = [(name, read_json(path / "metrics.json", what="evaluation")) for name, path in outcome.evaluations]
    if as_json:
        found = {name: metrics["metrics"] for name, metrics in scores}
        print(json.dumps({"out": str(out), "ran": outcome.ran, "report": str(outcome.report), "evaluations": found}))
        return
    print_scores(scores)
    print(f"report: {outcome.report}")


def print_scores(scores: list[tuple[str, dict[str, Any]]]) -> None:
    """A row for every scored set of answers, with 95% intervals over test tasks."""
    if not scores:
        return
    counts = sorted({(metrics["tasks"], metrics["samples"]) for _, metrics in scores})
    asked = "; ".join(f"{tasks} test tasks, {samples} answers each" for tasks, samples in counts)
    table = Table(title=f"{asked}; strict judge, 95% intervals over tasks", box=SIMPLE_HEAD, padding=(0, 1))
    table.add_column("run", overflow="fold")
    for heading in COLUMNS:
        table.add_column(heading, justify="right")
    for name, metrics in scores:
        table.add_row(name, *(_cell(metrics["metrics"].get(metric), scale) for metric, scale in COLUMNS.values()))
    Console().print(table)


def _cell(found: dict[str, float | None] | None, scale: int) -> str:
    if not found or found["value"] is None:
        return "–"
    digits = 1 if scale == 100 else 3
    value, low, high = (f"{(found[key] or 0.0) * scale:.{digits}f}" for key in ("value", "low", "high"))
    return f"{value}\n{low}–{high}"


def show_list(*, as_json: bool) -> None:
    """Every shipped recipe with its title and estimated cost."""
    from searchformer.display import duration
    from searchformer.recipes.cost import CPU, GPU, stage_cost
    from searchformer.recipes.plan import stages_of
    from searchformer.recipes.recipe import load_recipe, shipped_names

    rows = []
    for name in shipped_names():
        recipe = load_recipe(name)
        stages = stages_of(recipe)
        seconds = {
            machine.name: sum(stage_cost(stage, recipe, machine).seconds for stage in stages) for machine in (CPU, GPU)
        }
        rows.append({"name": name, "title": recipe.title, "stages": len(stages), "estimated_seconds": seconds})
        if not as_json:
            costs = ", ".join(f"{duration(value)} on {machine}" for machine, value in seconds.items())
            print(f"{name}\n  {recipe.title}\n  {len(stages)} stages, about {costs}")
    print(json.dumps({"recipes": rows}) if as_json else ESTIMATE_NOTE)


ESTIMATE_NOTE = (
    "Times are estimates from token counts; the rates of the 2-core CPU were measured, those of the GPU are assumed."
)


def show_plan(recipe: "Recipe", *, as_json: bool) -> None:
    """All stages with sizes and estimated times."""
    from searchformer.display import duration
    from searchformer.recipes.cost import CPU, GPU, stage_cost
    from searchformer.recipes.plan import stages_of

    stages = stages_of(recipe)
    costs = [[stage_cost(stage, recipe, machine) for machine in (CPU, GPU)] for stage in stages]
    totals = [sum(cost[index].seconds for cost in costs) for index in (0, 1)]
    if as_json:
        listed = [
            {"stage": stage.key, "size": cost[0].size, "cpu_seconds": cost[0].seconds, "gpu_seconds": cost[1].seconds}
            for stage, cost in zip(stages, costs, strict=True)
        ]
        print(json.dumps({"title": recipe.title, "stages": listed}))
        return
    table = Table(title=recipe.title, caption=ESTIMATE_NOTE, show_footer=True)
    table.add_column("stage", footer=f"{len(stages)} stages", overflow="fold")
    table.add_column("size", footer="")
    for machine, total in zip((CPU, GPU), totals, strict=True):
        table.add_column(machine.name, footer=duration(total), justify="right")
    for stage, cost in zip(stages, costs, strict=True):
        table.add_row(stage.key, cost[0].size, *(duration(one.seconds) for one in cost))
    console = Console()
    if recipe.description:
        console.print(" ".join(recipe.description.split()), markup=False, highlight=False)
    console.print(table)
