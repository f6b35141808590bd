"""Example searches drawn side by side: A* and models on the same task, cells coloured by the order of closing.

In: the answers beside an evaluation, as `searchformer rollout` wrote them; A* is run again here.
Domains whose plan steps are cells of a grid are drawn: mazes, and Sokoban by the worker's cell.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from searchformer.domains.base import Domain, parse_groups
from searchformer.evaluate import metrics
from searchformer.report.charts import GREY, VERMILION, Chart, MissingInputError, panels
from searchformer.report.families import Family, families, model_label, named, titled
from searchformer.report.results import Evaluation, Results
from searchformer.rollout.store import Rollouts
from searchformer.search import Searcher
from searchformer.search.world import World, cut_steps
from searchformer.tokens.grammar import write_text

Cell = tuple[int, int]
DRAWABLE = ("maze", "sokoban")
QUANTILES = (0.4, 0.8)
"""Which tasks are drawn, by A*'s trace length."""
RUNS = 15
"""Runs of A*, of which the median one is drawn."""
NUMBERED_CELLS = 150
"""Boards with more cells than this get no numbers."""


@dataclass(frozen=True)
class Example:
    """A search, reduced to the cells that it names."""

    tokens: int
    """Trace length."""
    created: tuple[Cell, ...]
    closed: tuple[Cell, ...]
    """In order; a cell can come again."""
    plan: tuple[Cell, ...]


@dataclass(frozen=True)
class Board:
    """A task as it is drawn."""

    width: int
    height: int
    groups: tuple[tuple[str | None, Cell], ...]
    """The prompt: what is where."""

    def cells(self, word: str) -> list[Cell]:
        """Where the prompt puts this."""
        return [cell for name, cell in self.groups if name == word]


def drawable(one: Evaluation) -> bool:
    """Whether the answers of an evaluation are there, in a domain that can be drawn."""
    files = ("tasks.parquet", "vocabulary.json")
    there = all((one.directory / file).is_file() for file in files)
    return one.task.domain in DRAWABLE and there and any(one.directory.glob("rollouts-*.parquet"))


def example_searches(results: Results) -> Iterator[Chart]:
    """A* and models on the same tasks."""
    found = [(family, subjects(family)) for family in families(results)]
    found = [(family, models) for family, models in found if models]
    drawn = 0
    for family, models in found:
        tasks = example_tasks(models)
        if tasks:
            drawn += 1
            shown = [family for family, _ in found]
            title = titled("Example searches", family, shown)
            yield draw_examples(family, models, tasks, name=named("searches", family, shown), title=title)
    if not drawn:
        raise MissingInputError(
            "needs optimal answers to a maze or Sokoban task (rollouts-*.parquet, tasks.parquet and vocabulary.json "
            "beside an evaluation)"
        )


def subjects(family: Family) -> list[Evaluation]:
    """The models to draw: a bootstrap's start and its last round, or the last of other models."""
    usable = [one for one in family.evaluations if drawable(one) and not one.model.control]
    bootstrapped = [one for one in usable if one.model.round]
    return [*[one for one in usable if not one.model.round][-1:], *bootstrapped[-1:]]


def example_tasks(models: Sequence[Evaluation]) -> list[str]:
    """Tasks that all models answered with a searched-for optimal plan, at fixed quantiles of A*'s length."""
    shared = set.intersection(*(_answered(one) for one in models))
    scores = models[0].scores
    lengths = metrics.astar_length(scores)
    rows = [row for row in np.argsort(lengths, kind="stable") if scores.task_ids[row] in shared]
    chosen = dict.fromkeys(rows[int(quantile * len(rows))] for quantile in QUANTILES) if rows else {}
    return [scores.task_ids[row] for row in chosen]


def _answered(one: Evaluation) -> set[str]:
    """Tasks with an optimal answer that holds a search."""
    rows = np.flatnonzero(metrics.searched(one.scores, one.scores.optimal).any(axis=1))
    return {one.scores.task_ids[row] for row in rows}


def typical_sample(one: Evaluation, task_id: str) -> int:
    """The optimal answer of median trace length (the shorter of two, the first of equals): no best case."""
    row = one.scores.task_ids.index(task_id)
    samples = np.flatnonzero(metrics.searched(one.scores, one.scores.optimal)[row])
    ordered = samples[np.argsort(one.scores.trace_length[row, samples], kind="stable")]
    return int(ordered[(len(ordered) - 1) // 2])


# --- searches ---------------------------------------------------------------------------------------------------


def cell_of(tokens: Sequence[str]) -> Cell | None:
    """The first two numbers of a state's tokens; None if there are fewer."""
    numbers = [int(token) for token in tokens if token.isdigit()]
    return (numbers[0], numbers[1]) if len(numbers) >= 2 else None


def example_of(tokens: Sequence[str], *, trace_length: int) -> Example:
    """The search in an answer."""
    cells: dict[str, list[Cell]] = {"create": [], "close": [], "plan": []}
    for step in cut_steps(tokens):
        cell = cell_of(step.state)
        if cell is not None:
            cells[step.kind].append(cell)
    return Example(trace_length, tuple(cells["create"]), tuple(cells["close"]), tuple(cells["plan"]))


def model_examples(one: Evaluation, rollouts: Rollouts, tasks: Sequence[str]) -> dict[str, Example]:
    """The model's typical search for each task."""
    examples = {}
    for task in tasks:
        rollouts.prompt(task)  # raises if the task is not there
        sample = typical_sample(one, task)
        length = int(one.scores.trace_length[one.scores.task_ids.index(task), sample])
        examples[task] = example_of(rollouts.vocabulary.decode(rollouts.answer(task, sample)), trace_length=length)
    return examples


def astar_example(searcher: Searcher, problem: np.ndarray) -> Example:
    """The non-deterministic run of A* of median trace length, out of `RUNS`."""
    lengths = [searcher.trace_length(problem, seed=seed) for seed in range(RUNS)]
    seed = sorted(range(RUNS), key=lambda run: lengths[run])[RUNS // 2]
    _, trace, plan = write_text(searcher.domain, problem, searcher.search(problem, seed=seed))
    return example_of([*trace.split(), *plan.split()], trace_length=lengths[seed])


# --- drawing ----------------------------------------------------------------------------------------------------


def draw_examples(
    family: Family, models: Sequence[Evaluation], tasks: Sequence[str], *, name: str, title: str
) -> Chart:
    """A row per task; A* first, then the models."""
    first = models[0]
    rollouts = [Rollouts.open(one.directory) for one in models]
    domain, problems = rollouts[0].domain, rollouts[0].problems
    searched = [model_examples(one, answers, tasks) for one, answers in zip(models, rollouts, strict=True)]
    searcher = Searcher(domain)
    planners = ["A*", *(model_label(one, family) for one in models)]
    figure, axes = panels(len(tasks), len(planners), width=2.7, height=2.9)
    rows: list[tuple[Any, ...]] = []
    for line, task_id in zip(axes, tasks, strict=True):
        problem = problems[task_id]
        examples = [astar_example(searcher, problem), *(found[task_id] for found in searched)]
        board = make_board(domain, problem)
        scale = Normalize(1, max(2, *(len(example.closed) for example in examples)))
        for axis, planner, example in zip(line, planners, examples, strict=True):
            draw_board(axis, board)
            draw_search(axis, example, scale=scale)
            if board.width * board.height <= NUMBERED_CELLS:
                number_cells(axis, example, scale=scale, count=first.task.domain != "maze")
            axis.set_title(
                f"{fill(planner, 28)}\n{example.tokens:,} tokens, {len(example.closed):,} closed", fontsize=8
            )
            for event, cells in (("create", example.created), ("close", example.closed), ("plan", example.plan)):
                rows += [(family.label, task_id, planner, event, order, x, y) for order, (x, y) in enumerate(cells, 1)]
        ticks = MaxNLocator(6, steps=[1, 2, 5, 10], integer=True)
        bar = figure.colorbar(ScalarMappable(scale, "viridis"), ax=list(line), shrink=0.8, pad=0.01, ticks=ticks)
        bar.set_label("closed as number")
    return Chart(
        name,
        title,
        f"{family.note}The same test tasks searched by A* (the run of median length) and "
        "by models (the optimal answer of median length); tasks are those at fixed quantiles of A*'s length that "
        "all models answered optimally. Colour: when a cell was first closed; numbers: the order of closing (mazes) "
        "or how many states were closed with the worker there (Sokoban); hatched: created, never closed; line: the "
        "plan, from the dot to the star.",
        figure,
        ("family", "task_id", "planner", "event", "order", "x", "y"),
        tuple(rows),
    )


def make_board(domain: Domain, problem: np.ndarray) -> Board:
    """The board of a task."""
    groups = parse_groups(World(domain, problem).prompt_tokens(), domain.shapes.prompt)
    size = domain.measure(problem)
    return Board(size["width"], size["height"], tuple((word, (x, y)) for word, (x, y) in groups))


def draw_board(axis: Axes, board: Board) -> None:
    """Walls, docks and boxes; y grows downwards."""
    axis.set_xlim(-0.5, board.width - 0.5)
    axis.set_ylim(board.height - 0.5, -0.5)
    axis.set_aspect("equal")
    axis.grid(visible=False)
    axis.set_xticks([])
    axis.set_yticks([])
    for side in axis.spines.values():
        side.set_visible(True)
    for cell in board.cells("wall"):
        draw_square(axis, cell, facecolor="#4A4A4A", edgecolor="#4A4A4A", linewidth=0.3)
    for x, y in board.cells("dock"):
        axis.plot(x, y, marker="D", markersize=9, markerfacecolor="none", markeredgecolor=VERMILION, zorder=4)
    for cell in board.cells("box"):
        draw_square(axis, cell, side=0.76, facecolor="none", edgecolor=VERMILION, linewidth=2, zorder=4)


def draw_square(axis: Axes, cell: Cell, *, side: float = 1, **look: Any) -> None:
    """A square in the middle of a cell."""
    axis.add_patch(Rectangle((cell[0] - side / 2, cell[1] - side / 2), side, side, **look))


def first_closed(example: Example) -> dict[Cell, int]:
    """When each cell was closed first, from 1 on."""
    order: dict[Cell, int] = {}
    for number, cell in enumerate(example.closed, start=1):
        order.setdefault(cell, number)
    return order


def number_cells(axis: Axes, example: Example, *, scale: Normalize, count: bool) -> None:
    """Write into each closed cell when it was closed first, or how often."""
    times = Counter(example.closed)
    for (x, y), order in first_closed(example).items():
        ink = "black" if sum(colormaps["viridis"](scale(order))[:3]) > 1.5 else "white"
        number = times[(x, y)] if count else order
        axis.text(x - 0.44, y + 0.44, f"{number}", fontsize=5.5, color=ink, ha="left", va="bottom", zorder=6)


def draw_search(axis: Axes, example: Example, *, scale: Normalize) -> None:
    """Cells by the order in which they were first closed, and the plan on top."""
    closed = first_closed(example)
    for cell in set(example.created) - closed.keys():
        draw_square(axis, cell, facecolor="white", edgecolor=GREY, hatch="////", linewidth=0)
    for cell, order in closed.items():
        draw_square(axis, cell, facecolor=colormaps["viridis"](scale(order)), edgecolor="white", linewidth=0.5)
    if example.plan:
        x, y = np.array(example.plan).T
        axis.plot(x, y, color="white", linewidth=3.2, zorder=4.5, solid_capstyle="round")
        axis.plot(x, y, color="black", linewidth=1.5, zorder=4.6, solid_capstyle="round")
        axis.plot(x[0], y[0], "o", color="black", markersize=5, markeredgecolor="white", zorder=5)
        axis.plot(x[-1], y[-1], "*", color="black", markersize=9, markeredgecolor="white", zorder=5)
