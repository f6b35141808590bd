"""How long searches are, model against A*: histograms, boxes and scatter plots over test tasks."""

from collections.abc import Iterator
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from searchformer.evaluate import metrics
from searchformer.evaluate.metrics import Scores
from searchformer.report.charts import (
    BLACK,
    Chart,
    colour,
    grid,
    legend_below,
    panels,
    round_ticks,
    swatch,
    token_scale,
)
from searchformer.report.families import Family, families, fewer_rounds, model_label, named, titled
from searchformer.report.results import Evaluation, Results


def lengths_on_optimal(one: Evaluation) -> tuple[np.ndarray, np.ndarray]:
    """Per task with an optimal answer: A*'s mean length and the model's, float [tasks] each."""
    model = metrics.mean_length(one.scores, one.scores.optimal)
    known = ~np.isnan(model)
    return metrics.astar_length(one.scores)[known], model[known]


def length_rows(family: Family) -> tuple[tuple[Any, ...], ...]:
    """The data of histograms and box plots: a row per model and task."""
    rows: list[tuple[Any, ...]] = []
    for one in family.evaluations:
        known = ~np.isnan(metrics.mean_length(one.scores, one.scores.optimal))
        pairs = zip(np.array(one.scores.task_ids)[known].tolist(), *lengths_on_optimal(one), strict=True)
        rows += [(family.label, model_label(one, family), task, float(a), float(m)) for task, a, m in pairs]
    return tuple(rows)


LENGTH_COLUMNS = ("family", "model", "task_id", "astar_tokens", "model_tokens")


def histograms(results: Results) -> Iterator[Chart]:
    """Histograms of average-on-optimal length, A* and model."""
    found = families(results)
    for family in found:
        pairs = [lengths_on_optimal(one) for one in family.evaluations]
        longest = max((lengths.max() for pair in pairs for lengths in pair if len(lengths)), default=1)
        bins = np.linspace(0, longest, 1 + min(30, 5 + int(1.5 * np.sqrt(len(pairs[0][0])))))
        figure, axes = grid(len(pairs), width=3.1, height=2.3, sharex=True, sharey=True)
        for axis, one, (astar, model) in zip(axes, family.evaluations, pairs, strict=True):
            axis.hist(astar, bins, color="#BDBDBD", label="A*")
            axis.hist(model, bins, histtype="step", linewidth=1.6, color=colour(one.model), label=one.model.family)
            for lengths, shade in ((astar, "#555555"), (model, colour(one.model))):
                if len(lengths):
                    axis.axvline(lengths.mean(), color=shade, linestyle=(0, (1.5, 1.2)), linewidth=1.3)
            axis.set_title(fill(model_label(one, family), 28))
            axis.tick_params(labelbottom=True)
            axis.set_xlabel("average-on-optimal length [tokens]")
            if axis.get_subplotspec().is_first_col():
                axis.set_ylabel("test tasks")
        legend_below(figure, columns=4)
        yield Chart(
            named("length-histograms", family, found),
            titled("Distribution of average-on-optimal length", family, found),
            f"{family.note}Trace lengths, first averaged per test task: over the model's optimal answers, and over "
            "runs of non-deterministic A* on the same tasks. Dotted lines: means.",
            figure,
            LENGTH_COLUMNS,
            length_rows(family),
        )


def box_plots(results: Results) -> Iterator[Chart]:
    """Box plots of average-on-optimal length, A* and model."""
    found = families(results)
    for family in found:
        known = [(one, *lengths_on_optimal(one)) for one in family.evaluations]
        known = [(one, astar, model) for one, astar, model in known if len(model)]
        figure, axes = panels(1, 1, width=6.4, height=1.2 + 0.62 * len(known))
        axis = axes[0, 0]
        for row, (one, astar, model) in enumerate(known):
            for offset, lengths, shade in ((-0.19, astar, "#BDBDBD"), (0.19, model, colour(one.model))):
                draw_box(axis, lengths, place=row + offset, shade=shade)
        token_scale(axis, np.concatenate([lengths for _, *pair in known for lengths in pair]))
        swatch(axis, "#BDBDBD", "A* on the same tasks")
        for kind in {one.model.family: one.model for one, *_ in known}.values():
            swatch(axis, colour(kind), kind.family)
        axis.set_yticks(range(len(known)), [fill(model_label(one, family), 30) for one, *_ in known])
        axis.set_ylim(len(known) - 0.5, -0.5)
        axis.grid(axis="y", visible=False)
        axis.set_xlabel("average-on-optimal length [tokens]")
        figure.suptitle(fill(family.label, 70), fontsize=9)
        legend_below(figure, columns=4)
        yield Chart(
            named("length-boxes", family, found),
            titled("Average-on-optimal length", family, found),
            f"{family.note}For each test task with an optimal answer, trace lengths are averaged over the optimal "
            "answers (coloured) and over runs of A* (grey). Boxes: quartiles; dotted lines: means; whiskers: the "
            "whole range.",
            figure,
            LENGTH_COLUMNS,
            length_rows(family),
        )


def draw_box(axis: Axes, lengths: np.ndarray, *, place: float, shade: str, width: float = 0.32) -> None:
    """A horizontal box plot: quartiles, mean as a dotted line, whiskers over the whole range."""
    axis.boxplot(
        lengths,
        positions=[place],
        orientation="horizontal",
        widths=width,
        whis=(0, 100),
        showmeans=True,
        meanline=True,
        patch_artist=True,
        manage_ticks=False,
        boxprops={"facecolor": shade, "edgecolor": "#333333", "linewidth": 0.9, "alpha": 0.75},
        medianprops={"color": BLACK, "linewidth": 1.3},
        meanprops={"color": BLACK, "linewidth": 1.2, "linestyle": (0, (1.2, 1.2))},
        whiskerprops={"color": "#333333", "linewidth": 0.9},
        capprops={"color": "#333333", "linewidth": 0.9},
    )


KINDS = ("optimal", "correct", "correct but sub-optimal")
MOST_SCATTERS = 4
"""Models side by side in a scatter plot; more would be too small to read."""
SCATTER_COLUMNS = (
    *("family", "model", "answers", "task_id"),
    *("astar_tokens", "astar_deviation", "model_tokens", "model_deviation"),
)


def answers_of_kind(scores: Scores, kind: str) -> np.ndarray:
    """The answers that a row of the scatter plots is about, bool [tasks, samples]."""
    hits = {"optimal": scores.optimal, "correct": scores.correct}
    return hits.get(kind, scores.correct & ~scores.optimal)


def deviation(lengths: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """Standard deviation per task over the counted answers, float [tasks]; both arrays are [tasks, samples]."""
    count = np.maximum(counted.sum(axis=1), 1)
    mean = np.where(counted, lengths, 0).sum(axis=1) / count
    squares = np.where(counted, (lengths - mean[:, None]) ** 2, 0).sum(axis=1)
    return np.sqrt(squares / count)


def scatter(results: Results) -> Iterator[Chart]:
    """A*'s length against the model's, a dot per task, by what the answers are worth."""
    found = families(results)
    for family in found:
        evaluations = fewer_rounds(family.evaluations, most=MOST_SCATTERS)
        kinds = KINDS if any(answers_of_kind(one.scores, KINDS[-1]).any() for one in evaluations) else KINDS[:1]
        figure, axes = scatter_panels(len(evaluations), len(kinds))
        rows: list[tuple[Any, ...]] = []
        limits = []
        for column, one in enumerate(evaluations):
            scores = one.scores
            astar, spread = metrics.astar_length(scores), scores.astar_lengths.std(axis=1)
            for axis, kind in zip(axes[:, column], kinds, strict=True):
                hits = answers_of_kind(scores, kind)
                model = metrics.mean_length(scores, hits)
                error = deviation(scores.trace_length, metrics.searched(scores, hits))
                known = ~np.isnan(model)
                draw_scatter(axis, astar[known], model[known], spread[known], error[known], shade=colour(one.model))
                share = 100 * hits.mean()
                heading = f"{fill(model_label(one, family), 22)}\n" if kind == KINDS[0] else ""
                axis.set_title(f"{heading}{share:.1f}% of answers", fontsize=8)
                limits += [astar[known], model[known]]
                rows += [
                    (family.label, model_label(one, family), kind, scores.task_ids[i], *map(float, numbers))
                    for i, *numbers in zip(
                        *(a[known] for a in (np.arange(scores.tasks), astar, spread, model, error)), strict=True
                    )
                ]
        finish_scatter(axes, np.concatenate(limits))
        for axis, kind in zip(axes[:, 0], kinds, strict=True):
            axis.set_ylabel(f"{kind}\nmodel [tokens]")
        fewer = "Some models are not drawn. " if len(evaluations) < len(family.evaluations) else ""
        for axis in axes[-1] if len(evaluations) > 1 else axes.flat:
            axis.set_xlabel("A* [tokens]")
        worth = "an optimal, a correct, or a correct but sub-optimal" if len(kinds) > 1 else "an optimal"
        yield Chart(
            named("length-scatter", family, found),
            titled("A*'s trace length against the model's", family, found),
            f"{family.note}{fewer}Each dot is a test task: mean trace length of A*'s runs against the mean over the "
            f"model's answers that end in {worth} plan. Error bars: "
            "standard deviations. Percentages: share of all answers that a panel is about. Below the diagonal, the "
            "model searches less than A*.",
            figure,
            SCATTER_COLUMNS,
            tuple(rows),
        )


def scatter_panels(models: int, kinds: int) -> tuple[Figure, Any]:
    """A row per kind of answer and a column per model; a single model gets one row. Axes [kinds, models]."""
    if models > 1:
        return panels(kinds, models, width=2.15, height=2.25, sharex=True, sharey=True)
    figure, axes = panels(1, kinds, width=2.5, height=2.6, sharex=True, sharey=True)
    return figure, axes.T


def draw_scatter(
    axis: Axes, x: np.ndarray, y: np.ndarray, x_error: np.ndarray, y_error: np.ndarray, *, shade: str
) -> None:
    """Dots with error bars; many dots are drawn fainter, and as pixels in the PDF."""
    options: dict[str, Any] = {"fmt": "o", "markersize": 2.6, "markeredgewidth": 0, "elinewidth": 0.5}
    options |= {"color": shade, "alpha": 0.75 if len(x) < 150 else 0.4, "rasterized": True}
    axis.errorbar(x, y, xerr=np.minimum(x_error, x * 0.95), yerr=np.minimum(y_error, y * 0.95), **options)


def finish_scatter(axes: np.ndarray, lengths: np.ndarray) -> None:
    """The same limits on both axes of all panels, with the diagonal; logarithmic where lengths span much."""
    logarithmic = len(lengths) > 0 and lengths.max() > 30 * lengths.min()
    low = lengths.min() / 1.4 if logarithmic else 0
    high = lengths.max() * (1.4 if logarithmic else 1.08) if len(lengths) else 1
    for axis in axes.flat:
        if logarithmic:
            axis.set_xscale("log")
            axis.set_yscale("log")
            round_ticks(axis.xaxis)
            round_ticks(axis.yaxis)
        axis.set_xlim(low, high)
        axis.set_ylim(low, high)
        axis.set_aspect("equal")
        axis.plot([low, high], [low, high], color="#555555", linewidth=0.8, linestyle=(0, (4, 2)), zorder=1)
