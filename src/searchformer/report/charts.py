"""What a figure is made of: its drawing, its data, its look.

Colours are Okabe and Ito's, told apart by people with any common kind of colour blindness; markers and line styles
repeat what colours say, for print in grey. Legends stand outside the axes, so that they never cover data.
"""

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from searchformer.errors import SearchformerError
from searchformer.files import replacing, write_text
from searchformer.report.kinds import SEARCH_AUGMENTED, SOLUTION_ONLY, ModelKind, size_order

BLUE, GREEN, VERMILION, PURPLE = "#0072B2", "#009E73", "#D55E00", "#CC79A7"
ORANGE, SKY, YELLOW, BLACK, GREY = "#E69F00", "#56B4E9", "#F0E442", "#000000", "#8C8C8C"
CYCLE = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, BLACK, GREY)
ROUNDS = ("#5FC9A8", "#009E73", "#00664A", "#003D2C")
"""Searchformer's colour by round, growing darker."""
CONTROLS = ("#E6B3CF", "#CC79A7", "#9A4A76", "#6B2C50")
"""The control's, likewise."""
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)))

STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "axes.titlesize": 9,
    "axes.labelsize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#444444",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E3E3E3",
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "legend.handlelength": 2.8,
    "lines.linewidth": 1.5,
    "lines.markersize": 4.5,
    "pdf.fonttype": 42,
    "savefig.dpi": 160,
}


class MissingInputError(SearchformerError):
    """A figure cannot be drawn from what was found; the message says what it lacks."""


@dataclass(frozen=True, eq=False)
class Chart:
    """A figure with its data."""

    name: str
    """File name without ending."""
    title: str
    caption: str
    figure: Figure
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    """The data drawn, one tuple per row of the CSV."""


def save(chart: Chart, directory: Path) -> list[Path]:
    """Write the chart as PNG and PDF, and its data as CSV; the bytes depend on nothing but the chart."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(chart.columns)
    writer.writerows(chart.rows)
    paths = [directory / f"{chart.name}.{ending}" for ending in ("png", "pdf", "csv")]
    write_text(paths[2], out.getvalue())
    undated = {"png": {"Software": None}, "pdf": {"CreationDate": None, "Producer": None, "Creator": None}}
    with rc_context(STYLE):
        for path, (kind, metadata) in zip(paths, undated.items(), strict=False):
            with replacing(path) as temporary:
                chart.figure.savefig(temporary, format=kind, metadata=metadata)
            chart.figure.set_layout_engine("none")  # laid out by the first; doing it again takes as long as drawing
    return paths


def panels(rows: int, columns: int, *, width: float = 3.3, height: float = 2.6, **options: Any) -> tuple[Figure, Any]:
    """A figure of rows x columns axes, each `width` x `height` inches: (figure, axes [rows, columns])."""
    figure = Figure(figsize=(max(width * columns, 4.2), height * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def grid(count: int, *, most: int = 3, **options: Any) -> tuple[Figure, list[Any]]:
    """A figure of `count` panels, at most `most` side by side, and its axes; options as for `panels`.

    The number of columns is the one that leaves the fewest places empty: four panels stand two by two.
    """
    fitting = range(2, most + 1) if count > most else [count]
    columns = min(fitting, key=lambda columns: (-count % columns, -columns))
    figure, axes = panels(-(-count // columns), columns, **options)
    for unused in axes.flat[count:]:
        unused.remove()
    return figure, list(axes.flat[:count])


def legend_below(figure: Figure, *, columns: int = 3) -> None:
    """One legend for all axes, under them, each label once; the figure grows by what it takes."""
    entries: dict[str, Any] = {}
    for axis in figure.axes:
        handles, labels = axis.get_legend_handles_labels()
        for handle, label in zip(handles, labels, strict=True):
            entries.setdefault(label, handle)
    if entries:
        entry_inches = 0.7 + 0.066 * max(map(len, entries))
        fitting = max(1, min(columns, int(figure.get_figwidth() / entry_inches)))
        lines = -(-len(entries) // fitting)
        even = -(-len(entries) // lines)
        figure.set_figheight(figure.get_figheight() + 0.1 + 0.18 * lines)
        figure.legend(list(entries.values()), list(entries), loc="outside lower center", ncols=even)


def swatch(axis: Axes, shade: str, label: str) -> None:
    """An entry in the legend for a filled shape."""
    axis.fill_between([], [], color=shade, alpha=0.75, linewidth=0, label=label)


def token_scale(axis: Axes, lengths: Iterable[float]) -> None:
    """A length axis along x: logarithmic where lengths span much, with plain numbers either way."""
    low, high = min(lengths), max(lengths)
    if high > 20 * max(low, 1):
        axis.set_xscale("log")
        round_ticks(axis.xaxis)
    else:
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def round_ticks(axis: Axis) -> None:
    """Ticks of a logarithmic axis at 1, 2 and 5 times the powers of ten, as plain numbers."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=20))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: thousands(value)))


def colour(model: ModelKind) -> str:
    """The colour of a kind of model."""
    if model.round or model.control:
        shades = CONTROLS if model.control else ROUNDS
        return shades[min(max(model.round, 1), len(shades)) - 1]
    return {SOLUTION_ONLY: VERMILION, SEARCH_AUGMENTED: BLUE}.get(model.variant, ORANGE)


def line_style(model: ModelKind, sizes: Iterable[str]) -> dict[str, Any]:
    """Colour by kind of model, marker and dashes by size; `sizes` are all sizes in the figure."""
    rank = sorted(set(sizes), key=size_order).index(model.size)
    marker = "X" if model.control else MARKERS[rank % len(MARKERS)]
    return {"color": colour(model), "marker": marker, "linestyle": DASHES[rank % len(DASHES)]}


def thousands(count: float) -> str:
    """50,000 as 50k and 1,000,000 as 1M."""
    for limit, letter in ((1_000_000, "M"), (1_000, "k")):
        if count >= limit:
            return f"{count / limit:g}{letter}"
    return f"{count:g}"


def slug(text: str) -> str:
    """Text as part of a file name."""
    kept = "".join(letter if letter.isalnum() else "-" for letter in text.replace("×", "x").lower())
    return "-".join(part for part in kept.split("-") if part)
