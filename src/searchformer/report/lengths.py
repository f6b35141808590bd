"""How long searches are: model against A*, by bootstrapping step, as histograms, boxes and scatter plots."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from searchformer.evaluate import metrics
from searchformer.evaluate.metrics import Ratio, Scores, bootstrap, over_seeds
from searchformer.report.charts import (
    BLACK,
    GREY,
    Chart,
    MissingInputError,
    colour,
    fold,
    hide_unused,
    legend_below,
    panels,
    slug,
    swatch,
    token_scale,
)
from searchformer.report.results import Chain, Evaluation, ModelKind, Results
from searchformer.report.tables import Measured

MOST_MODELS = 6
"""Models side by side in one figure."""


@dataclass(frozen=True, eq=False)
class Family:
    """Models that belong in one figure: the steps of a bootstrap, or the searching models of one kind of task."""

    label: str
    evaluations: tuple[Evaluation, ...]
    """One seed of each model."""
    note: str
    """Which seed, and what was left out."""

    @property
    def slug(self) -> str:
        """Part of a file name."""
        return slug(self.label)


def chain_kinds(results: Results) -> dict[Any, list[Chain]]:
    """Chains that differ in their seed only, by what they share."""
    kinds: dict[Any, list[Chain]] = {}
    for chain in results.chains:
        if any(metrics.searched(one.scores, one.scores.optimal).any() for one in chain.evaluations):
            rule = next((one.model.rule for one in chain.evaluations if one.model.rule), "")
            kinds.setdefault((chain.start.task, chain.start.model, chain.start.sampling, rule), []).append(chain)
    return {kind: sorted(chains, key=lambda chain: chain.start.seed) for kind, chains in kinds.items()}


def kind_label(chain: Chain) -> str:
    """What a chain is about: `maze 6×6, 15M, 10,000 sequences`."""
    model = chain.start.model
    sequences = f"{model.sequences:,} sequences" if model.sequences else ""
    rule = next((one.model.rule for one in chain.evaluations if one.model.rule), "")
    return ", ".join(part for part in (chain.start.task.label, model.size, sequences, rule) if part)


def families(results: Results) -> list[Family]:
    """What figures 5 to 7 are drawn of: each bootstrap; without any, the largest searching models of each task."""
    found = []
    for chains in chain_kinds(results).values():
        shown = fewer_steps(chains[0].evaluations)
        note = f"Seed {chains[0].start.seed} of {len(chains)} seeds. " if len(chains) > 1 else ""
        note += "Some steps are not drawn. " if len(shown) < len(chains[0].evaluations) else ""
        found.append(Family(kind_label(chains[0]), shown, note))
    if found:
        return found
    by_task: dict[Any, list[Evaluation]] = {}
    for group in results.groups:
        first = group.evaluations[0]
        if not group.task.deterministic and first.metric("average_on_optimal_length"):
            by_task.setdefault(group.task, []).append(first)
    for task, models in by_task.items():
        left_out = len(models) - MOST_MODELS
        note = f"{left_out} models with fewer parameters or training sequences are not drawn. " if left_out > 0 else ""
        found.append(Family(task.label, tuple(models[-MOST_MODELS:]), note))
    if not found:
        raise MissingInputError("needs an evaluation of a model that searches, with an optimal answer")
    return found


def fewer_steps(evaluations: tuple[Evaluation, ...]) -> tuple[Evaluation, ...]:
    """At most `MOST_MODELS` of a chain: its start, its last step, steps between at even distances, a control."""
    if len(evaluations) <= MOST_MODELS:
        return evaluations
    controls = [one for one in evaluations if one.model.control][-1:]
    steps = [one for one in evaluations if not one.model.control]
    places = np.unique(np.linspace(0, len(steps) - 1, MOST_MODELS - len(controls)).round().astype(int))
    return (*(steps[place] for place in places), *controls)


def model_label(one: Evaluation, family: Family) -> str:
    """A model's name, with whatever tells it from the others of its family."""
    sequences = {other.model.sequences for other in family.evaluations}
    sizes = {other.model.size for other in family.evaluations}
    name = one.model.label if len(sizes) > 1 else one.model.name
    return f"{name}, {one.model.sequences:,} seq." if len(sequences) > 1 and one.model.sequences else name


# --- figure 4 ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """Mean search length after one bootstrapping step, of the model and of A*, on the same tasks."""

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


def step_lengths(chain: Chain, one: Evaluation) -> tuple[Ratio, Ratio, int] | None:
    """A model's average-on-optimal length and A*'s on the tasks that it and the chain's start answered optimally."""
    rows = optimal_in_both(chain.start.scores, one.scores)
    if not rows.any():
        return None
    common = one.scores.subset(rows)
    return metrics.average_on_optimal_length(common), metrics.astar_on_optimal_length(common), common.tasks


def measure_step(lengths: Sequence[tuple[Ratio, Ratio, int]]) -> Step:
    """One step over seeds: means with standard errors over seeds, or over tasks where there is one seed."""
    if len(lengths) == 1:
        model, astar, tasks = lengths[0]
        shorter = Ratio(astar.numerator - model.numerator, astar.numerator)
        estimates = bootstrap([model, astar, shorter])
        values = [Measured(estimate.value or 0.0, estimate.standard_error, 1) for estimate in estimates]
        return Step(values[0], values[1], values[2].scaled(100), tasks)
    pairs = [(model.value or 0.0, astar.value or 1.0) for model, astar, _ in lengths]
    columns = [[m for m, _ in pairs], [a for _, a in pairs], [100 * (1 - m / a) for m, a in pairs]]
    measured = [Measured(r.mean, r.standard_error, r.count) for r in map(over_seeds, columns)]
    return Step(measured[0], measured[1], measured[2], sum(tasks for *_, tasks in lengths))


def bootstrap_steps(results: Results) -> Iterator[Chart]:
    """Figure 4: average search length by bootstrapping step against A*."""
    kinds = list(chain_kinds(results).values())
    if not kinds:
        raise MissingInputError("needs evaluations of bootstrapped models (a bootstrap run)")
    rows_, columns = fold(len(kinds), 2)
    figure, axes = panels(rows_, columns, width=4.6, height=3.0)
    rows: list[tuple[Any, ...]] = []
    for axis, chains in zip(axes.flat, kinds, strict=False):
        names, steps = [], []
        for model in dict.fromkeys(one.model for chain in chains for one in chain.evaluations):
            pairs = [(chain, one) for chain in chains for one in chain.evaluations if one.model == model]
            lengths = [found for chain, one in pairs if (found := step_lengths(chain, one))]
            if lengths:
                names.append(model)
                steps.append(measure_step(lengths))
        draw_steps(axis, names, steps)
        axis.set_title(kind_label(chains[0]))
        rows += [
            (
                kind_label(chains[0]),
                model.name,
                model.round,
                model.control,
                *_flat(step),
                step.tasks,
                step.model.repeats,
            )
            for model, step in zip(names, steps, strict=True)
        ]
    hide_unused(axes.flat, len(kinds))
    legend_below(figure, axes.flat)
    yield Chart(
        "04-bootstrap-length",
        "Search length by bootstrapping step",
        "Mean trace length over optimal answers, averaged over the test tasks that both the first model and the "
        "step's model answered with an optimal plan, beside the mean of non-deterministic A* on the same tasks; the "
        "number above a pair says by how much the model's mean differs from A*'s. Error bars: standard error over "
        "seeds (over resampled tasks with one seed).",
        figure,
        (
            *("run", "model", "round", "control", "model_tokens", "model_standard_error", "astar_tokens"),
            *("astar_standard_error", "shorter_percent", "shorter_standard_error", "tasks", "seeds"),
        ),
        tuple(rows),
    )


def _flat(step: Step) -> list[float | None]:
    """A step's numbers in a row."""
    return [number for one in (step.model, step.astar, step.shorter) for number in (one.value, one.error)]


def draw_steps(axis: Axes, models: list[ModelKind], steps: list[Step]) -> None:
    """Pairs of bars: A* and the model."""
    x = np.arange(len(steps))
    width = 0.38
    options: dict[str, Any] = {"width": width, "capsize": 2.5, "error_kw": {"elinewidth": 1}}
    axis.bar(
        x - width / 2,
        [step.astar.value for step in steps],
        yerr=[step.astar.error or 0 for step in steps],
        color="#C4C4C4",
        hatch="////",
        edgecolor=GREY,
        label="A*",
        **options,
    )
    for place, model, step in zip(x, models, steps, strict=True):
        error = step.model.error or 0
        axis.bar(place + width / 2, step.model.value, yerr=error, color=colour(model), label=model.family, **options)
        top = max(step.model.value + error, step.astar.value + (step.astar.error or 0))
        difference = f"{round(-step.shorter.value, 1) + 0.0:+.1f}%".replace("-", "−")
        axis.annotate(difference, (place, top), (0, 4), textcoords="offset points", ha="center")
    labels = [
        "start" if not m.round and not m.control else f"{'control' if m.control else 'step'} {m.round}" for m in models
    ]
    axis.set_xticks(x, labels)
    axis.set_xlim(-0.6, max(len(steps), 3) - 0.4)
    axis.grid(axis="x", visible=False)
    axis.margins(y=0.12)
    axis.set(xlabel="bootstrapping step", ylabel="mean trace length [tokens]")


# --- figures 5 to 7 ---------------------------------------------------------------------------------------------


def lengths_on_optimal(one: Evaluation) -> tuple[np.ndarray, np.ndarray]:
    """Per task with an optimal answer: A*'s mean length and the model's, float [tasks] each."""
    model = metrics.mean_length(one.scores, one.scores.optimal)
    known = ~np.isnan(model)
    return metrics.astar_length(one.scores)[known], model[known]


def named(number: str, family: Family, of: Sequence[Family]) -> str:
    """A chart's name; the family is part of it where there are several."""
    return number if len(of) == 1 else f"{number}-{family.slug}"


def length_rows(family: Family) -> tuple[tuple[Any, ...], ...]:
    """The data of figures 5 and 6: a row per model and task."""
    rows: list[tuple[Any, ...]] = []
    for one in family.evaluations:
        model = metrics.mean_length(one.scores, one.scores.optimal)
        astar = metrics.astar_length(one.scores)
        known = np.flatnonzero(~np.isnan(model))
        label = model_label(one, family)
        rows += [(family.label, label, one.scores.task_ids[i], float(astar[i]), float(model[i])) for i in known]
    return tuple(rows)


LENGTH_COLUMNS = ("family", "model", "task_id", "astar_tokens", "model_tokens")


def histograms(results: Results) -> Iterator[Chart]:
    """Figure 5: histograms of average-on-optimal length, A* and model."""
    found = families(results)
    for family in found:
        pairs = [lengths_on_optimal(one) for one in family.evaluations]
        longest = max((lengths.max() for pair in pairs for lengths in pair if len(lengths)), default=1)
        bins = np.linspace(0, longest, 1 + min(30, 5 + int(1.5 * np.sqrt(len(pairs[0][0])))))
        rows_, columns = fold(len(pairs))
        figure, axes = panels(rows_, columns, width=3.1, height=2.3, sharex=True, sharey=True)
        for axis, one, (astar, model) in zip(axes.flat, family.evaluations, pairs, strict=False):
            axis.hist(astar, bins, color="#BDBDBD", label="A*")
            axis.hist(model, bins, histtype="step", linewidth=1.6, color=colour(one.model), label=one.model.family)
            for lengths, shade in ((astar, "#555555"), (model, colour(one.model))):
                if len(lengths):
                    axis.axvline(lengths.mean(), color=shade, linestyle=(0, (1.5, 1.2)), linewidth=1.3)
            axis.set_title(model_label(one, family))
            axis.tick_params(labelbottom=True)
            axis.set_xlabel("average-on-optimal length [tokens]")
        for axis in axes[:, 0]:
            axis.set_ylabel("test tasks")
        hide_unused(axes.flat, len(pairs))
        legend_below(figure, axes.flat, columns=4)
        yield Chart(
            named("05-length-histograms", family, found),
            f"Distribution of average-on-optimal length: {family.label}",
            f"{family.note}Trace lengths, first averaged per test task: over the model's optimal answers, and over "
            "runs of non-deterministic A* on the same tasks. Dotted lines: means.",
            figure,
            LENGTH_COLUMNS,
            length_rows(family),
        )


def box_plots(results: Results) -> Iterator[Chart]:
    """Figure 6: box plots of average-on-optimal length, A* and model."""
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
        axis.set_yticks(range(len(known)), [model_label(one, family) for one, *_ in known])
        axis.set_ylim(len(known) - 0.5, -0.5)
        axis.grid(axis="y", visible=False)
        axis.set(xlabel="average-on-optimal length [tokens]", title=family.label)
        legend_below(figure, [axis], columns=4)
        yield Chart(
            named("06-length-boxes", family, found),
            f"Average-on-optimal length: {family.label}",
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


def answers_of_kind(scores: Scores, kind: str) -> np.ndarray:
    """The answers that a row of figure 7 is about, bool [tasks, samples]."""
    hits = {"optimal": scores.optimal, "correct": scores.correct}
    return hits.get(kind, scores.correct & ~scores.optimal)


def deviation(lengths: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """Standard deviation per task over the counted answers, float [tasks]; both arrays are [tasks, samples]."""
    count = np.maximum(counted.sum(axis=1), 1)
    mean = np.where(counted, lengths, 0).sum(axis=1) / count
    squares = np.where(counted, (lengths - mean[:, None]) ** 2, 0).sum(axis=1)
    return np.sqrt(squares / count)


def scatter(results: Results) -> Iterator[Chart]:
    """Figure 7: A*'s length against the model's, a dot per task, by what the answers are worth."""
    found = families(results)
    for family in found:
        evaluations = family.evaluations
        figure, axes = scatter_panels(len(evaluations))
        rows: list[tuple[Any, ...]] = []
        limits = []
        for column, one in enumerate(evaluations):
            scores = one.scores
            astar, spread = metrics.astar_length(scores), scores.astar_lengths.std(axis=1)
            for axis, kind in zip(axes[:, column], KINDS, strict=True):
                hits = answers_of_kind(scores, kind)
                model = metrics.mean_length(scores, hits)
                error = deviation(scores.trace_length, metrics.searched(scores, hits))
                known = ~np.isnan(model)
                draw_scatter(axis, astar[known], model[known], spread[known], error[known], shade=colour(one.model))
                share = 100 * hits.mean()
                heading = f"{model_label(one, family)}\n" if kind == KINDS[0] else ""
                axis.set_title(f"{heading}{share:.1f}% of answers", fontsize=8)
                limits += [astar[known], model[known]]
                rows += [
                    (family.label, model_label(one, family), kind, scores.task_ids[i], *map(float, numbers))
                    for i, *numbers in zip(
                        *(a[known] for a in (np.arange(scores.tasks), astar, spread, model, error)), strict=True
                    )
                ]
        finish_scatter(axes, np.concatenate(limits))
        for axis, kind in zip(axes[:, 0], KINDS, strict=True):
            axis.set_ylabel(f"{kind}\nmodel [tokens]")
        for axis in axes[-1] if len(evaluations) > 1 else axes.flat:
            axis.set_xlabel("A* [tokens]")
        yield Chart(
            named("07-length-scatter", family, found),
            f"A*'s trace length against the model's: {family.label}",
            f"{family.note}Each dot is a test task: mean trace length of A*'s runs against the mean over the model's "
            "answers that end in an optimal, a correct, or a correct but sub-optimal plan. Error bars: standard "
            "deviations. Percentages: share of all answers that a panel is about. Below the diagonal, the model "
            "searches less than A*.",
            figure,
            (
                "family",
                "model",
                "answers",
                "task_id",
                "astar_tokens",
                "astar_deviation",
                "model_tokens",
                "model_deviation",
            ),
            tuple(rows),
        )


def scatter_panels(models: int) -> tuple[Figure, Any]:
    """A row per kind of answer and a column per model; a single model gets one row. Axes [kinds, models]."""
    if models > 1:
        return panels(len(KINDS), models, width=2.15, height=2.25, sharex=True, sharey=True)
    figure, axes = panels(1, len(KINDS), width=2.5, height=2.6, sharex=True, sharey=True)
    return figure, axes.T


def draw_scatter(
    axis: Axes, x: np.ndarray, y: np.ndarray, x_error: np.ndarray, y_error: np.ndarray, *, shade: str
) -> None:
    """Dots with error bars; many dots are drawn fainter, and as pixels in the PDF."""
    alpha = 0.75 if len(x) < 150 else 0.4
    options: dict[str, Any] = {"fmt": "o", "markersize": 2.6, "markeredgewidth": 0, "elinewidth": 0.5}
    axis.errorbar(
        x,
        y,
        xerr=np.minimum(x_error, x * 0.95),
        yerr=np.minimum(y_error, y * 0.95),
        color=shade,
        alpha=alpha,
        rasterized=True,
        **options,
    )


def finish_scatter(axes: np.ndarray, lengths: np.ndarray) -> None:
    """The same limits on both axes of all panels, with the diagonal; logarithmic where lengths span much."""
    logarithmic = len(lengths) > 0 and lengths.max() > 30 * lengths.min()
    low = lengths.min() / 1.4 if logarithmic else 0
    high = lengths.max() * (1.4 if logarithmic else 1.08) if len(lengths) else 1
    for axis in axes.flat:
        if logarithmic:
            axis.set_xscale("log")
            axis.set_yscale("log")
        axis.set_xlim(low, high)
        axis.set_ylim(low, high)
        axis.set_aspect("equal")
        axis.plot([low, high], [low, high], color="#555555", linewidth=0.8, linestyle=(0, (4, 2)), zorder=1)
