"""Search length by bootstrapping round, against A* on the same tasks."""

from collections.abc import Iterator
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from searchformer.evaluate.metrics import Measured
from searchformer.report.charts import GREY, Chart, MissingInputError, colour, grid, legend_below
from searchformer.report.families import chain_kinds, kind_label
from searchformer.report.results import Results
from searchformer.report.saving import Round, rounds_of


def bootstrap_rounds(results: Results) -> Iterator[Chart]:
    """Average search length by bootstrapping round against A*."""
    kinds = {kind_label(chains[0]): rounds_of(chains) for chains in chain_kinds(results).values()}
    if not kinds:
        raise MissingInputError("needs evaluations of bootstrapped models (a bootstrap run)")
    width = max(4.6, 1.15 * max(map(len, kinds.values())))
    figure, axes = grid(len(kinds), most=2, width=width, height=3.0)
    rows: list[tuple[Any, ...]] = []
    for axis, (label, rounds) in zip(axes, kinds.items(), strict=True):
        draw_rounds(axis, rounds)
        axis.set_title(fill(label, 48))
        rows += [
            (label, one.model.name, one.model.round, one.model.control, *_flat(one), one.tasks, len(one.common))
            for one in rounds
        ]
    legend_below(figure)
    yield Chart(
        "bootstrap-length",
        "Search length by bootstrapping round",
        "Mean trace length over optimal answers, averaged over the test tasks that both the first model and the "
        "round's model answered with an optimal plan, beside the mean of non-deterministic A* on the same tasks. Above "
        "a pair: by how much the model's mean differs from A*'s, and which share of the possible saving that is. Error "
        "bars: standard error over seeds (over resampled tasks with one seed).",
        figure,
        (
            *("run", "model", "round", "control", "model_tokens", "model_standard_error", "astar_tokens"),
            *("astar_standard_error", "shorter_percent", "shorter_standard_error"),
            *("possible_saving_percent", "possible_saving_standard_error", "tasks", "seeds"),
        ),
        tuple(rows),
    )


def _flat(one: Round) -> list[float | None]:
    """A round's numbers in a row."""
    lengths = one.lengths
    measured: list[Measured | None] = [lengths.model, lengths.astar, lengths.shorter, lengths.possible]
    return [number for each in measured for number in ((each.value, each.error) if each else (None, None))]


def draw_rounds(axis: Axes, rounds: list[Round]) -> None:
    """Pairs of bars, A* and the model."""
    x = np.arange(len(rounds))
    width = 0.38
    options: dict[str, Any] = {"width": width, "capsize": 2.5, "error_kw": {"elinewidth": 1}}
    axis.bar(
        x - width / 2,
        [one.lengths.astar.value for one in rounds],
        yerr=[one.lengths.astar.error or 0 for one in rounds],
        color="#C4C4C4",
        hatch="////",
        edgecolor=GREY,
        label="A*",
        **options,
    )
    for place, one in zip(x, rounds, strict=True):
        model, astar = one.lengths.model, one.lengths.astar
        shade = colour(one.model)
        axis.bar(place + width / 2, model.value, yerr=model.error or 0, color=shade, label=one.model.family, **options)
        top = max(model.value + (model.error or 0), astar.value + (astar.error or 0))
        axis.annotate(difference(one), (place, top), (0, 4), textcoords="offset points", ha="center", fontsize=7.5)
    axis.set_xticks(x, [one.label for one in rounds])
    axis.set_xlim(-0.6, len(rounds) - 0.4)
    axis.grid(axis="x", visible=False)
    axis.margins(y=0.2)
    axis.set(xlabel="bootstrapping round", ylabel="mean trace length [tokens]")


def difference(one: Round) -> str:
    """What stands above a pair of bars: `−7.6%`, and below it the share of the possible saving."""
    lengths = one.lengths
    text = f"{round(-lengths.shorter.value, 1) + 0.0:+.1f}%"
    if lengths.possible:
        text += f"\n{round(lengths.possible.value) + 0:.0f}% of possible"
    return text.replace("-", "−")
