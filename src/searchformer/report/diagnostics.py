"""What went in and how it went: data set lengths, training curves, trace validity."""

from collections import Counter
from collections.abc import Iterator, Sequence
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from searchformer.report import charts
from searchformer.report.charts import (
    Chart,
    MissingInputError,
    grid,
    legend_below,
    panels,
    round_ticks,
    swatch,
    thousands,
    token_scale,
)
from searchformer.report.lengths import draw_box
from searchformer.report.results import Curve, DataLengths, Results

PARTS = {"solution-only sequences (plan)": ("plan",), "search-augmented sequences (trace + plan)": ("trace", "plan")}


def sequence_lengths(results: Results) -> Iterator[Chart]:
    """Sequence lengths of data sets, train against test."""
    if not results.datasets:
        raise MissingInputError("needs a data set (manifest.json with its shards) below the runs")
    datasets = results.datasets
    figure, axes = panels(1, 2, width=4.1, height=1.1 + 0.5 * len(datasets), sharey=True)
    rows: list[tuple[Any, ...]] = []
    shown = sum(len(data.lengths) for data in datasets)
    for axis, (title, parts) in zip(axes.flat, PARTS.items(), strict=True):
        for row, data in enumerate(datasets):
            for offset, split, shade in ((-0.18, "train", charts.BLUE), (0.18, "test", charts.ORANGE)):
                if split not in data.lengths:
                    continue
                lengths = response_lengths(data, split, parts)
                draw_box(axis, lengths, place=row + offset, shade=shade, width=0.3)
                rows.append((data.name, data.task.label, split, "+".join(parts), len(lengths), *quantiles(lengths)))
        token_scale(axis, [row[5] for row in rows[-shown:]] + [row[9] for row in rows[-shown:]])
        axis.set(title=fill(title, 26), xlabel="sequence length [tokens]")
        axis.grid(axis="y", visible=False)
    for shade, split in ((charts.BLUE, "train"), (charts.ORANGE, "test")):
        swatch(axes[0, 0], shade, split)
    axes[0, 0].set_yticks(range(len(datasets)), [data.name for data in datasets])
    axes[0, 0].set_ylim(len(datasets) - 0.5, -0.5)
    legend_below(figure)
    yield Chart(
        "sequence-lengths",
        "Sequence lengths of data sets",
        "Lengths of training and test sequences without bos and eos. Boxes: quartiles; dotted lines: means; "
        "whiskers: the whole range.",
        figure,
        ("data_set", "task", "split", "parts", "rows", "least", "quartile_1", "median", "quartile_3", "most", "mean"),
        tuple(rows),
    )


def response_lengths(data: DataLengths, split: str, parts: tuple[str, ...]) -> np.ndarray:
    """Tokens per task of these parts together."""
    return np.sum([data.lengths[split][part] for part in parts], axis=0)


def quantiles(lengths: np.ndarray) -> tuple[float, ...]:
    """Least, quartiles, most, mean."""
    return (*map(float, np.quantile(lengths, [0, 0.25, 0.5, 0.75, 1])), float(lengths.mean()))


def smoothed(points: np.ndarray) -> np.ndarray:
    """(step, value) with each value averaged over its neighbourhood of a fiftieth of the curve, shape [rows, 2]."""
    half = len(points) // 100
    if half == 0:
        return points
    padded = np.pad(points[:, 1], half, mode="edge")
    kernel = np.full(2 * half + 1, 1 / (2 * half + 1))
    return np.column_stack([points[:, 0], np.convolve(padded, kernel, mode="valid")])


def curve_panels(curves: tuple[Curve, ...]) -> list[tuple[str, str, str, dict[str, Any]]]:
    """What training curves can show: (title, kind of row, column, conditions), where some curve has points."""
    splits = sorted({row["split"] for curve in curves for row in curve.rows if row.get("split")})
    wanted: list[tuple[str, str, str, dict[str, Any]]] = [("training loss", "train", "loss", {})]
    for split in splits or [None]:
        where = {"split": split} if split else {}
        suffix = f" ({split})" if split else ""
        for column in ("loss", "plan_accuracy", "sequence_accuracy", "exact_match"):
            name = "evaluation loss" if column == "loss" else column.replace("_", " ")
            wanted.append((f"{name}{suffix}", "eval", column, where))
    return [panel for panel in wanted if any(len(curve.points(panel[1], panel[2], **panel[3])) for curve in curves)]


def training_curves(results: Results) -> Iterator[Chart]:
    """Losses and accuracies against training steps; fine-tuning, which is shorter and begins elsewhere, by itself."""
    if not curve_panels(results.curves):
        raise MissingInputError("needs a training run's metrics.jsonl below the runs")
    begun = tuple(curve for curve in results.curves if not curve.fine_tuned)
    tuned = tuple(curve for curve in results.curves if curve.fine_tuned)
    if curve_panels(begun):
        yield curves_chart(begun, name="training-curves", title="Training curves", xlabel="training step")
    if curve_panels(tuned):
        caption = (
            " Each run begins with the weights of another model, and counts its steps from there. Evaluations are on "
            "test tasks with the traces of A*, which a bootstrapped model is meant to leave behind: its loss on them "
            "may grow."
        )
        title = "Training curves of fine-tuning"
        yield curves_chart(tuned, name="fine-tuning-curves", title=title, xlabel="fine-tuning step", caption=caption)


def curves_chart(curves: tuple[Curve, ...], *, name: str, title: str, xlabel: str, caption: str = "") -> Chart:
    """A panel per measure, a line per run."""
    wanted = curve_panels(curves)
    figure, axes = grid(len(wanted), width=3.2, height=2.4)
    rows: list[tuple[Any, ...]] = []
    for axis, (measure, kind, column, where) in zip(axes, wanted, strict=True):
        for index, curve in enumerate(curves):
            points = curve.points(kind, column, **where)
            if not len(points):
                continue
            label = curve.name.removesuffix("/train")
            rows += [(curve.name, kind, where.get("split"), column, int(step), value) for step, value in points]
            cycle, dashes = charts.CYCLE, charts.DASHES
            style = {"color": cycle[index % len(cycle)], "linestyle": dashes[index // len(cycle) % len(dashes)]}
            if kind == "train":
                axis.plot(*points.T, color=style["color"], alpha=0.2, linewidth=0.6, rasterized=True)
                axis.plot(*smoothed(points).T, label=label, linewidth=1.3, **style)
            else:
                axis.plot(*points.T, label=label, marker="o", markersize=2.5, linewidth=1.3, **style)
        if column == "loss":
            loss_scale(axis, [row[5] for row in rows if (row[1], row[2]) == (kind, where.get("split"))])
            axis.set_ylabel("cross-entropy [nats per token]")
        else:
            axis.set_ylim(-0.03, 1.03)
            axis.set_ylabel("share of sequences")
        axis.set(title=measure, xlabel=xlabel)
        axis.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10], integer=True))
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: thousands(value)))
    legend_below(figure, columns=2)
    return Chart(
        name,
        title,
        "Loss is averaged per sequence, then over sequences. Training loss: raw values faint, a running mean over a "
        f"fiftieth of the run solid.{caption}",
        figure,
        ("run", "kind", "split", "measure", "step", "value"),
        tuple(rows),
    )


def loss_scale(axis: Axes, losses: Sequence[float]) -> None:
    """A logarithmic y axis with round ticks, where losses span enough to have some."""
    if min(losses) > 0 and max(losses) > 5 * min(losses):
        axis.set_yscale("log")
        round_ticks(axis.yaxis)


LEGAL = "legal"
SHADES = (charts.VERMILION, charts.ORANGE, charts.SKY, charts.PURPLE, charts.GREEN, "#999933", charts.YELLOW)
HATCHES = ("", "////", "....", "\\\\\\\\", "xx", "--", "oo")


def trace_validity(results: Results) -> Iterator[Chart]:
    """Which share of traces is a legal execution of A*, and what is wrong with the others."""
    counts = [(group, sum((one.violations for one in group.evaluations), Counter())) for group in results.groups]
    counts = [(group, count) for group, count in counts if count]
    if not counts:
        raise MissingInputError("needs an evaluation with judged traces")
    totals: Counter[str] = sum((count for _, count in counts), Counter())
    kinds = [kind for kind, _ in totals.most_common() if kind != LEGAL]
    named, other = kinds[: len(SHADES)], kinds[len(SHADES) :]
    bars = [(LEGAL, charts.BLUE, ""), *zip(named, SHADES, HATCHES, strict=False)]
    figure, axes = panels(1, 1, width=7.2, height=1.5 + 0.42 * len(counts))
    axis = axes[0, 0]
    rows: list[tuple[Any, ...]] = []
    left = np.zeros(len(counts))
    for kind, shade, hatch in [*bars, *([("other", charts.GREY, "")] if other else [])]:
        members = other if kind == "other" else [kind]
        shares = np.array([100 * sum(count[m] for m in members) / count.total() for _, count in counts])
        edge = {"edgecolor": "white", "linewidth": 0.6}
        axis.barh(range(len(counts)), shares, left=left, color=shade, hatch=hatch, label=kind, height=0.66, **edge)
        left += shares
    labels = []
    for group, count in counts:
        sequences = f", {group.model.sequences:,} sequences" if group.model.sequences else ""
        labels.append(f"{fill(results.label(group.model) + sequences, 48)}\n{group.task.label}")
        identity = (group.task.label, group.model.label, group.model.sequences)
        rows += [(*identity, kind, count[kind], 100 * count[kind] / count.total()) for kind in (LEGAL, *kinds)]
    axis.set_yticks(range(len(counts)), labels, fontsize=7.5)
    axis.set_ylim(len(counts) - 0.5, -0.5)
    axis.grid(axis="y", visible=False)
    axis.set_xlim(0, 100)
    axis.set_xlabel("share of traces [%]")
    legend_below(figure)
    yield Chart(
        "trace-validity",
        "Validity of traces",
        "Every answer's trace is checked as an execution of non-deterministic A*; an illegal one is counted under "
        "its first violation, one that could not be decided as undecided.",
        figure,
        ("task", "model", "sequences", "kind", "traces", "percent"),
        tuple(rows),
    )
