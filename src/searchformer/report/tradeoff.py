"""How often answers are optimal against how long the search for them is, models beside algorithms."""

from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import fill
from typing import Any

from matplotlib.axes import Axes

from searchformer.evaluate import metrics
from searchformer.evaluate.metrics import Estimate, Ratio, resample
from searchformer.report.charts import BLACK, GREY, ORANGE, Chart, MissingInputError, colour, legend_below, panels
from searchformer.report.families import Family, families, model_label
from searchformer.report.results import Evaluation, Results

COLUMNS = (
    *("tasks", "what", "optimal", "search_length_percent", "low", "high"),
    *("optimal_percent", "optimal_low", "optimal_high"),
)
CERTAIN = Estimate(1.0, 1.0, 1.0, 0.0)


@dataclass(frozen=True)
class Point:
    """A model or an algorithm: length of its searches and share of its optimal answers, both as shares."""

    name: str
    length: Estimate
    """Mean trace length over A*'s, on the tasks that it answered optimally."""
    per_answer: Estimate
    any_of_all: Estimate
    style: dict[str, Any]
    mark: str = ""
    """Written beside the marker, where several share one entry of the legend."""


def model_point(one: Evaluation, family: Family) -> Point | None:
    """Where a model stands; None if none of its answers is optimal and has a search."""
    scores = one.scores
    ratio = metrics.length_ratio_of_means(scores)
    length, per_answer, any_of_all = resample(
        [Ratio(ratio.weight, ratio.numerator), metrics.pass_at_1(scores), metrics.any_optimal(scores)]
    )
    if length.value is None:
        return None
    marker = "X" if one.model.control else "o" if one.model.round else "s"
    style = {"color": colour(one.model), "marker": marker, "markersize": 6 if marker == "X" else 4.5}
    return Point(model_label(one, family), length, per_answer, any_of_all, style)


def algorithm_points(one: Evaluation) -> list[Point]:
    """A*, and other searches where the evaluation says what they take."""
    found = [Point("A*", CERTAIN, CERTAIN, CERTAIN, {"color": BLACK, "marker": "*", "markersize": 9})]
    for reference in one.stored.get("references", ()):
        length, optimal = (Estimate(**reference[name]) for name in ("length", "optimal"))
        if reference["algorithm"] == "lucky":
            style = {"color": BLACK, "marker": "*", "markersize": 9, "fillstyle": "none"}
            found.append(Point("A*, always lucky among equal f", length, optimal, optimal, style))
            continue
        style = {"color": ORANGE, "marker": "D", "markersize": 4}
        weight = f"{reference['weight']:g}"
        found.append(Point(f"weighted A*, {weight}", length, optimal, optimal, style, mark=weight))
    return found


def limit(one: Evaluation) -> float | None:
    """The shortest true search over A*'s mean, over all tasks."""
    shortest = one.scores.shortest_searches
    return None if shortest is None else float(shortest.sum() / metrics.astar_length(one.scores).sum())


def accuracy_against_length(results: Results) -> Iterator[Chart]:
    """How often models and algorithms answer optimally against how long they search."""
    shown = families(results)
    figure, axes = panels(len(shown), 2, width=3.9, height=3.1)
    rows: list[tuple[Any, ...]] = []
    for pair, family in zip(axes, shown, strict=True):
        first = family.evaluations[0]
        models = [point for one in family.evaluations if (point := model_point(one, family))]
        if not models:
            raise MissingInputError("needs an evaluation of a model that searches, with an optimal answer")
        points, least = [*algorithm_points(first), *models], limit(first)
        for axis, field in zip(pair, ("per_answer", "any_of_all"), strict=True):
            what = "optimal per answer" if field == "per_answer" else f"any of {first.samples} optimal"
            for point in points:
                share: Estimate = getattr(point, field)
                draw_point(axis, point, share)
                rows.append((family.label, point.name, what, *_percent(point.length), *_percent(share)))
            if least is not None:
                axis.axvline(100 * least, color=GREY, linestyle=":", label="shortest true search")
                rows.append((family.label, "shortest true search", what, 100 * least, None, None, None, None, None))
            axis.invert_xaxis()
            low = min(axis.get_ylim()[0], 95)
            axis.set_ylim(low, 100 + 0.06 * (100 - low))  # room for markers and weights at 100%
            write_weights(axis, [(point, getattr(point, field)) for point in points if point.mark])
            axis.set(title=fill(family.label, 40), xlabel="mean search length [% of A*'s]", ylabel=f"{what} [%]")
    legend_below(figure)
    yield Chart(
        "accuracy-against-length",
        "Optimal answers against search length",
        "To the right: shorter searches; upwards: more optimal answers. Search length is the mean over optimal answers "
        "on the tasks that have one, divided by that of non-deterministic A* on the same tasks. The dotted line is the "
        "shortest true search: it creates and closes the nodes of an optimal plan and nothing else. A lucky A* closes, "
        "among nodes whose f is the goal's, only those on its way. Bars: 95% intervals over test tasks.",
        figure,
        COLUMNS,
        tuple(rows),
    )


def draw_point(axis: Axes, point: Point, share: Estimate) -> None:
    """A marker with its intervals both ways."""
    x, y = point.length, share
    axis.errorbar(
        100 * (x.value or 0),
        100 * (y.value or 0),
        xerr=[[100 * _below(x)], [100 * _above(x)]],
        yerr=[[100 * _below(y)], [100 * _above(y)]],
        linestyle="none",
        elinewidth=1,
        capsize=2,
        label="weighted A* (beside it: the weight)" if point.mark else point.name,
        **point.style,
    )


def write_weights(axis: Axes, marked: list[tuple[Point, Estimate]]) -> None:
    """The weights beside their markers; those of markers that lie on each other together."""
    together: list[tuple[float, float, list[str]]] = []
    for point, share in marked:
        x, y = 100 * (point.length.value or 0), 100 * (share.value or 0)
        near = [names for at_x, at_y, names in together if abs(x - at_x) < 1.5 and abs(y - at_y) < 1.5]
        if near:
            near[0].append(point.mark)
        else:
            together.append((x, y, [point.mark]))
    for x, y, names in together:
        axis.annotate(", ".join(names), (x, y), (4, -10), textcoords="offset points", fontsize=7.5)


def _below(estimate: Estimate) -> float:
    return max((estimate.value or 0) - (estimate.low or 0), 0.0)


def _above(estimate: Estimate) -> float:
    return max((estimate.high or 0) - (estimate.value or 0), 0.0)


def _percent(estimate: Estimate) -> tuple[float | None, ...]:
    return tuple(None if each is None else 100 * each for each in (estimate.value, estimate.low, estimate.high))
