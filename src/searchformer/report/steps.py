"""Search length by bootstrapping step, against A* on the same tasks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from searchformer.evaluate import metrics
from searchformer.evaluate.metrics import Ratio, Scores, over_seeds, resample
from searchformer.report.charts import (
    GREY,
    Chart,
    MissingInputError,
    colour,
    fold,
    hide_unused,
    legend_below,
    panels,
    wrapped,
)
from searchformer.report.families import chain_kinds, kind_label
from searchformer.report.kinds import ModelKind
from searchformer.report.results import Chain, Evaluation, Results
from searchformer.report.tables import Measured


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
        estimates = resample([model, astar, shorter])
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
    most = max(len({one.model for chain in chains for one in chain.evaluations}) for chains in kinds)
    figure, axes = panels(rows_, columns, width=max(4.6, 0.75 * most), height=3.0)
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
        axis.set_title(wrapped(kind_label(chains[0]), 48))
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
