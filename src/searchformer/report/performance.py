"""How many test tasks are answered: against training sequences, task size, and number of answers."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from searchformer.evaluate.metrics import over_seeds
from searchformer.report.charts import Chart, MissingInputError, grid, legend_below, line_style, panels, thousands
from searchformer.report.kinds import ModelKind, TaskKind
from searchformer.report.results import Group, Results
from searchformer.report.tables import measure

COLUMNS = ("task", "size", "variant", "sequences", "metric", "samples", "percent", "standard_error", "seeds")
ERRORS = "Error bars: standard error over training seeds (over resampled test tasks where there is one seed)."


def criterion(group: Group) -> str:
    """The paper's criterion for this kind of data: exact match where A* was deterministic, else any-optimal."""
    exact = group.task.deterministic and any(one.metric("exact_match") for one in group.evaluations)
    return "exact_match" if exact else "any_optimal"


def criterion_label(name: str, samples: int) -> str:
    """An axis label for a criterion."""
    return "exact match [% of answers]" if name == "exact_match" else f"any-optimal-{samples} [% of tasks]"


def plain(results: Results) -> list[Group]:
    """Groups of models trained on A*'s traces, with known training sets."""
    return [g for g in results.groups if not g.model.round and not g.model.control and g.model.sequences]


def percent_axis(axis: Axes, *, low: float = 0.0) -> None:
    """A y axis from 0, or the multiple of twenty below `low`, to 100, with room for markers at both ends."""
    ticks = [tick for tick in range(0, 101, 20) if tick + 20 > low]
    axis.set_ylim(ticks[0] - 0.03 * (100 - ticks[0]), 103)
    axis.set_yticks(ticks)


def draw_line(axis: Axes, x: dict[Group, int], **style: Any) -> list[tuple[Any, ...]]:
    """A line through one model's results, by their places on the axis, with standard errors; its `COLUMNS`."""
    metric = criterion(next(iter(x)))
    found = [
        (group, one) for group in sorted(x, key=lambda group: x[group]) if (one := measure(group, metric, scale=100))
    ]
    values, errors = [one.value for _, one in found], [one.error or 0.0 for _, one in found]
    axis.errorbar([x[group] for group, _ in found], values, yerr=errors, capsize=2.5, elinewidth=1, **style)
    return [
        (g.task.label, g.model.size, g.model.variant, g.model.sequences, metric, g.samples, m.value, m.error, m.repeats)
        for g, m in found
    ]


def training_sequences(results: Results) -> Iterator[Chart]:
    """Correct answers against the number of training sequences, a line per variant and size."""
    by_panel: dict[Any, dict[Any, list[Group]]] = {}
    for group in plain(results):
        lines = by_panel.setdefault((group.task, group.samples), {})
        lines.setdefault((group.model.size, group.model.variant), []).append(group)
    shown = {
        panel: lines
        for panel, lines in by_panel.items()
        if len({group.model.sequences for line in lines.values() for group in line}) > 1
    }
    if not shown:
        raise MissingInputError("needs evaluations of models trained on two or more numbers of sequences")
    sizes = [size for lines in shown.values() for size, _ in lines]
    figure, axes = grid(len(shown))
    rows: list[tuple[Any, ...]] = []
    for axis, ((task, samples), lines) in zip(axes, shown.items(), strict=True):
        drawn: list[tuple[Any, ...]] = []
        for line in lines.values():
            style = line_style(line[0].model, sizes)
            places = {group: group.model.sequences or 0 for group in line}
            drawn += draw_line(axis, places, label=line[0].model.label, **style)
        rows += drawn
        axis.set_xscale("log")
        axis.xaxis.set_major_locator(FixedLocator(sorted({row[3] for row in drawn})))
        axis.xaxis.set_minor_locator(NullLocator())
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: thousands(value)))
        label = criterion_label(criterion(line[0]), samples)
        axis.set(title=task.label, xlabel="training sequences", ylabel=label)
        percent_axis(axis)
    legend_below(figure)
    yield Chart(
        "training-sequences",
        "Correct answers against training sequences",
        "Share of test tasks answered correctly, by number of training sequences, model variant and size. "
        "Deterministic A*: the answer equals A*'s token for token; non-deterministic: some answer holds an optimal "
        f"plan. {ERRORS}",
        figure,
        COLUMNS,
        tuple(rows),
    )


def task_size(results: Results) -> Iterator[Chart]:
    """Performance against task size, a line per variant and size."""
    by_panel: dict[Any, dict[Any, list[Group]]] = {}
    for group in plain(results):
        lines = by_panel.setdefault((group.task.domain, group.task.deterministic, group.samples), {})
        lines.setdefault((group.model.size, group.model.variant, group.model.sequences), []).append(group)
    shown = {panel: kept for panel, lines in by_panel.items() if (kept := _longest_lines(lines))}
    if not shown:
        raise MissingInputError("needs evaluations of one kind of model on two or more task sizes")
    sizes = [size for lines in shown.values() for size, *_ in lines]
    figure, axes = grid(len(shown))
    rows: list[tuple[Any, ...]] = []
    for axis, ((domain, deterministic, samples), lines) in zip(axes, shown.items(), strict=True):
        tasks = sorted({group.task for line in lines.values() for group in line}, key=lambda task: task.cells)
        for line in lines.values():
            model = line[0].model
            label = f"{model.label}, {thousands(model.sequences or 0)} sequences"
            places = {group: tasks.index(group.task) for group in line}
            rows += draw_line(axis, places, label=label, **line_style(model, sizes))
        axis.set_xticks(range(len(tasks)), [task.size for task in tasks])
        axis.set_xlim(-0.3, len(tasks) - 0.7)
        title = f"{domain}, {'deterministic' if deterministic else 'non-deterministic'} A*"
        axis.set(title=title, xlabel="task size [cells]", ylabel=criterion_label(criterion(line[0]), samples))
        percent_axis(axis)
    legend_below(figure, columns=2)
    yield Chart(
        "task-size",
        "Performance against task size",
        f"Share of test tasks answered correctly as tasks grow. {ERRORS}",
        figure,
        COLUMNS,
        tuple(rows),
    )


def _longest_lines(lines: dict[Any, list[Group]]) -> dict[Any, list[Group]]:
    """Per size and variant the training-set size that spans most task sizes (the largest of those), if two or more."""
    best: dict[Any, Any] = {}
    for key in sorted(lines, key=lambda key: (len(lines[key]), key[2])):
        if len(lines[key]) > 1:
            best[key[:2]] = key
    return {key: lines[key] for key in lines if key in best.values()}


def _apart_from_sequences(group: Group) -> tuple[TaskKind, ModelKind]:
    """What models share that differ in the number of training sequences only."""
    return group.task, replace(group.model, sequences=None)


def pass_at_k(results: Results) -> Iterator[Chart]:
    """The chance that k answers hold an optimal, or a correct, plan."""
    groups = [group for group in results.groups if group.samples > 1]
    if not groups:
        raise MissingInputError("needs evaluations with two or more answers per task")
    most_sequences: dict[Any, int] = {}
    for group in groups:
        alike = _apart_from_sequences(group)
        most_sequences[alike] = max(most_sequences.get(alike, 0), group.model.sequences or 0)
    chosen = [g for g in groups if (g.model.sequences or 0) == most_sequences[_apart_from_sequences(g)]]
    tasks = list(dict.fromkeys(group.task for group in chosen))
    sizes = [group.model.size for group in chosen]
    figure, axes = panels(len(tasks), 2, height=2.4, sharey="row")
    rows = []
    for (left, right), task in zip(axes, tasks, strict=True):
        for group in (group for group in chosen if group.task == task):
            style = {**line_style(group.model, sizes), "marker": ""}
            k = range(1, group.samples + 1)
            for axis, key in ((left, "pass_at_k"), (right, "pass_at_k_feasible")):
                curves = [one.stored[key] for one in group.evaluations]
                means = [over_seeds([curve[i - 1] * 100 for curve in curves]) for i in k]
                axis.plot(k, [mean.value for mean in means], label=results.label(group.model), **style)
                if len(curves) > 1:
                    low = [mean.value - (mean.error or 0) for mean in means]
                    high = [mean.value + (mean.error or 0) for mean in means]
                    axis.fill_between(k, low, high, color=style["color"], alpha=0.15, linewidth=0)
                identity = (task.label, group.model.size, group.model.name, group.model.sequences)
                rows += [(*identity, key, i, m.value, m.error, m.repeats) for i, m in zip(k, means, strict=True)]
        most = max(group.samples for group in chosen if group.task == task)
        lowest = min(row[6] for row in rows if row[0] == task.label)
        for axis, what in ((left, "optimal"), (right, "correct")):
            axis.set_xscale("log", base=2)
            axis.xaxis.set_major_locator(FixedLocator([2**i for i in range(most.bit_length())]))
            axis.xaxis.set_minor_locator(NullLocator())
            axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.set(title=f"{task.label}: {what} plans", xlabel="answers per task, k")
            percent_axis(axis, low=min(lowest, 60))
        left.set_ylabel("pass@k [% of tasks]")
    legend_below(figure)
    yield Chart(
        "pass-at-k",
        "pass@k",
        "Chance that at least one of k answers holds an optimal (left) or correct (right) plan: the unbiased "
        "estimate from all answers. Of models that differ in training sequences only, the one with the most is drawn. "
        "Bands: standard error over seeds.",
        figure,
        ("task", "size", "model", "sequences", "curve", "k", "percent", "standard_error", "seeds"),
        tuple(rows),
    )
