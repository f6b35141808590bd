"""Search length by bootstrapping round, against A* on the same tasks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from searchformer.evaluate import metrics
from searchformer.evaluate.metrics import Measured, Ratio, Scores, over_seeds, resample
from searchformer.report.charts import GREY, Chart, MissingInputError, colour, grid, legend_below
from searchformer.report.families import chain_kinds, kind_label
from searchformer.report.kinds import ModelKind
from searchformer.report.results import Chain, Evaluation, Results


@dataclass(frozen=True)
class RoundLengths:
    """Mean search length after one bootstrapping round, of the model and of A*, on the same tasks."""

    model: Measured
    astar: Measured
    shorter: Measured
    """By how much the model's mean is below A*'s, in percent."""
    tasks: int


def optimal_in_both(start: Scores, after: Scores) -> np.ndarray:
    """Which tasks of `after` both answered with an optimal plan that they searched for, bool [tasks]."""
    rows = np.flatnonzero(metrics.searched(start, start.optimal).any(axis=1))
    at_start = {start.task_ids[row] for row in rows}
    also_asked = np.array([task_id in at_start for task_id in after.task_ids])
    return also_asked & metrics.searched(after, after.optimal).any(axis=1)


def round_lengths(chain: Chain, one: Evaluation) -> tuple[Ratio, Ratio, int] | None:
    """A model's average-on-optimal length and A*'s on the tasks that it and the chain's start answered optimally."""
    rows = optimal_in_both(chain.start.scores, one.scores)
    if not rows.any():
        return None
    common = one.scores.subset(rows)
    return metrics.average_on_optimal_length(common), metrics.astar_on_optimal_length(common), common.tasks


def measure_round(lengths: Sequence[tuple[Ratio, Ratio, int]]) -> RoundLengths:
    """One round over seeds: means with standard errors over seeds, or over tasks where there is one seed."""
    if len(lengths) == 1:
        model, astar, tasks = lengths[0]
        shorter = Ratio(astar.numerator - model.numerator, astar.numerator)
        estimates = resample([model, astar, shorter])
        values = [Measured(estimate.value or 0.0, estimate.standard_error, 1) for estimate in estimates]
        return RoundLengths(values[0], values[1], values[2].scaled(100), tasks)
    pairs = [(model.value or 0.0, astar.value or 1.0) for model, astar, _ in lengths]
    columns = [[m for m, _ in pairs], [a for _, a in pairs], [100 * (1 - m / a) for m, a in pairs]]
    measured = [over_seeds(column) for column in columns]
    return RoundLengths(measured[0], measured[1], measured[2], sum(tasks for *_, tasks in lengths))


def bootstrap_rounds(results: Results) -> Iterator[Chart]:
    """Figure 4: average search length by bootstrapping round against A*."""
    kinds = list(chain_kinds(results).values())
    if not kinds:
        raise MissingInputError("needs evaluations of bootstrapped models (a bootstrap run)")
    most = max(len({one.model for chain in chains for one in chain.evaluations}) for chains in kinds)
    figure, axes = grid(len(kinds), most=2, width=max(4.6, 0.75 * most), height=3.0)
    rows: list[tuple[Any, ...]] = []
    for axis, chains in zip(axes, kinds, strict=True):
        models, measured = [], []
        for model in dict.fromkeys(one.model for chain in chains for one in chain.evaluations):
            pairs = [(chain, one) for chain in chains for one in chain.evaluations if one.model == model]
            lengths = [found for chain, one in pairs if (found := round_lengths(chain, one))]
            if lengths:
                models.append(model)
                measured.append(measure_round(lengths))
        draw_rounds(axis, models, measured, start=chains[0].start.model)
        label = kind_label(chains[0])
        axis.set_title(fill(label, 48))
        rows += [
            (label, model.name, model.round, model.control, *_flat(one), one.tasks, one.model.repeats)
            for model, one in zip(models, measured, strict=True)
        ]
    legend_below(figure)
    yield Chart(
        "04-bootstrap-length",
        "Search length by bootstrapping round",
        "Mean trace length over optimal answers, averaged over the test tasks that both the first model and the "
        "round's model answered with an optimal plan, beside the mean of non-deterministic A* on the same tasks; the "
        "number above a pair says by how much the model's mean differs from A*'s. Error bars: standard error over "
        "seeds (over resampled tasks with one seed).",
        figure,
        (
            *("run", "model", "round", "control", "model_tokens", "model_standard_error", "astar_tokens"),
            *("astar_standard_error", "shorter_percent", "shorter_standard_error", "tasks", "seeds"),
        ),
        tuple(rows),
    )


def _flat(lengths: RoundLengths) -> list[float | None]:
    """A round's numbers in a row."""
    return [number for one in (lengths.model, lengths.astar, lengths.shorter) for number in (one.value, one.error)]


def draw_rounds(axis: Axes, models: list[ModelKind], measured: list[RoundLengths], *, start: ModelKind) -> None:
    """Pairs of bars, A* and the model; the chain's `start` is labelled as such."""
    x = np.arange(len(measured))
    width = 0.38
    options: dict[str, Any] = {"width": width, "capsize": 2.5, "error_kw": {"elinewidth": 1}}
    axis.bar(
        x - width / 2,
        [one.astar.value for one in measured],
        yerr=[one.astar.error or 0 for one in measured],
        color="#C4C4C4",
        hatch="////",
        edgecolor=GREY,
        label="A*",
        **options,
    )
    for place, model, one in zip(x, models, measured, strict=True):
        error = one.model.error or 0
        axis.bar(place + width / 2, one.model.value, yerr=error, color=colour(model), label=model.family, **options)
        top = max(one.model.value + error, one.astar.value + (one.astar.error or 0))
        difference = f"{round(-one.shorter.value, 1) + 0.0:+.1f}%".replace("-", "−")
        axis.annotate(difference, (place, top), (0, 4), textcoords="offset points", ha="center")
    axis.set_xticks(x, [_tick(model, start) for model in models])
    axis.set_xlim(-0.6, max(len(measured), 3) - 0.4)
    axis.grid(axis="x", visible=False)
    axis.margins(y=0.12)
    axis.set(xlabel="bootstrapping round", ylabel="mean trace length [tokens]")


def _tick(model: ModelKind, start: ModelKind) -> str:
    return "start" if model == start else f"{'control' if model.control else 'round'} {model.round}"
