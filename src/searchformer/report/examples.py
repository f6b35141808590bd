"""Example searches drawn side by side: A* and models on the same task, cells coloured by the order of closing.

In: rollouts beside an evaluation (`rollouts-*.parquet`, `tasks.parquet`, `vocabulary.json`); A* is run again here.
Domains whose plan steps are cells of a grid are drawn: mazes, and Sokoban by the worker's cell.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.patches import Rectangle

from searchformer.domains.base import make_domain
from searchformer.errors import SearchformerError
from searchformer.evaluate import metrics
from searchformer.records import Trace
from searchformer.report.charts import GREY, VERMILION, Chart, MissingInputError, panels
from searchformer.report.families import Family, families, model_label, named
from searchformer.report.results import Evaluation, Results, read_table
from searchformer.search import Searcher
from searchformer.tokens.vocabulary import Vocabulary

Cell = tuple[int, int]
DRAWABLE = ("maze", "sokoban")
QUANTILES = (0.4, 0.8)
"""Which tasks are drawn, by A*'s trace length."""
RUNS = 15
"""Runs of A*, of which the median one is drawn."""
TOKEN_ROOM = 256
"""More tokens than a drawable state has."""
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
    """Whether the answers of an evaluation are at hand, in a domain that can be drawn."""
    files = ("tasks.parquet", "vocabulary.json")
    at_hand = all((one.directory / file).is_file() for file in files)
    return one.task.domain in DRAWABLE and at_hand and bool(rollout_files(one.directory))


def rollout_files(directory: Path) -> list[Path]:
    """The files that hold answers."""
    return sorted(directory.glob("rollouts-*.parquet"))


def example_searches(results: Results) -> Iterator[Chart]:
    """Figure 12: A* and models on the same tasks."""
    found = [(family, subjects(family)) for family in families(results)]
    found = [(family, models) for family, models in found if models]
    drawn = 0
    for family, models in found:
        tasks = example_tasks(models)
        if tasks:
            drawn += 1
            yield draw_examples(family, models, tasks, name=named("12-searches", family, [f for f, _ in found]))
    if not drawn:
        raise MissingInputError(
            "needs optimal answers to a maze or Sokoban task (rollouts-*.parquet, tasks.parquet and vocabulary.json "
            "beside an evaluation)"
        )


def subjects(family: Family) -> list[Evaluation]:
    """The models to draw: a bootstrap's start and its last step, or the last of other models."""
    usable = [one for one in family.evaluations if drawable(one) and not one.model.control]
    stepped = [one for one in usable if one.model.round]
    return [*[one for one in usable if not one.model.round][-1:], *stepped[-1:]]


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


# --- tokens -----------------------------------------------------------------------------------------------------


def prompt_groups(tokens: Sequence[str]) -> list[tuple[str | None, tuple[int, ...]]]:
    """A prompt as words, each with the numbers that follow it."""
    groups: list[tuple[str | None, tuple[int, ...]]] = []
    for token in tokens:
        if token.isdigit():
            word, numbers = groups[-1]
            groups[-1] = (word, (*numbers, int(token)))
        else:
            groups.append((token, ()))
    return groups


def example_of(tokens: Sequence[str], *, trace_length: int) -> Example:
    """The search in an answer: after each create, close and plan, the first two numbers are a cell."""
    cells: dict[str, list[Cell]] = {"create": [], "close": [], "plan": []}
    starts = [place for place, token in enumerate(tokens) if token in cells]
    for start, end in zip(starts, [*starts[1:], len(tokens)], strict=True):
        numbers = [int(token) for token in tokens[start + 1 : end] if token.isdigit()]
        if len(numbers) >= 2:
            cells[tokens[start]].append((numbers[0], numbers[1]))
    return Example(trace_length, tuple(cells["create"]), tuple(cells["close"]), tuple(cells["plan"]))


def read_prompt(one: Evaluation, task_id: str) -> list[str]:
    """A task's prompt tokens."""
    tasks = read_table(one.directory / "tasks.parquet")
    prompts = dict(zip(tasks.column("task_id").to_pylist(), tasks.column("prompt").to_pylist(), strict=True))
    if task_id not in prompts:
        raise SearchformerError(f"{one.directory / 'tasks.parquet'} lacks task {task_id}; make the rollouts again")
    return Vocabulary.load(one.directory).decode(prompts[task_id])


def read_answer(one: Evaluation, task_id: str, sample: int) -> list[str]:
    """An answer's tokens."""
    wanted = [("task_id", "==", task_id), ("sample", "==", sample)]
    for path in rollout_files(one.directory):
        try:
            tokens = pq.read_table(path, columns=["tokens"], filters=wanted).column("tokens")
        except (OSError, pa.ArrowInvalid) as error:
            raise SearchformerError(f"{path} cannot be read: {error}") from error
        if len(tokens):
            return Vocabulary.load(one.directory).decode(tokens[0].as_py())
    raise SearchformerError(f"{one.directory} lacks answer {sample} to task {task_id}; make the rollouts again")


def model_example(one: Evaluation, task_id: str) -> Example:
    """The model's typical search for a task."""
    sample = typical_sample(one, task_id)
    length = int(one.scores.trace_length[one.scores.task_ids.index(task_id), sample])
    return example_of(read_answer(one, task_id, sample), trace_length=length)


def astar_example(searcher: Searcher, problem: np.ndarray) -> Example:
    """The non-deterministic run of A* of median trace length, out of `RUNS`."""
    buffer = np.zeros(TOKEN_ROOM, dtype=np.int32)
    rules = searcher.domain.rules

    def tokens(trace: Trace) -> int:
        state_tokens = [rules.write_state(problem, state, buffer) for state in trace.states]
        return sum(1 + state_tokens[node] + 2 for node in trace.nodes)

    def cell(state: np.ndarray) -> Cell:
        rules.write_plan(problem, state, buffer)
        return int(buffer[0]), int(buffer[1])

    runs = [(tokens(trace), trace) for trace in (searcher.search(problem, seed=seed) for seed in range(RUNS))]
    length, trace = sorted(runs, key=lambda run: run[0])[RUNS // 2]
    closed = [cell(trace.states[node]) for node in trace.nodes[trace.kinds]]
    created = [cell(trace.states[node]) for node in trace.nodes[~trace.kinds]]
    return Example(length, tuple(created), tuple(closed), tuple(map(cell, trace.plan)))


# --- drawing ----------------------------------------------------------------------------------------------------


def draw_examples(family: Family, models: Sequence[Evaluation], tasks: Sequence[str], *, name: str) -> Chart:
    """A row per task; A* first, then the models."""
    first = models[0]
    domain = make_domain(first.run["domain"], first.run["settings"])
    searcher = Searcher(domain)
    planners = ["A*", *(model_label(one, family) for one in models)]
    figure, axes = panels(len(tasks), len(planners), width=2.7, height=2.9)
    rows: list[tuple[Any, ...]] = []
    for line, task_id in zip(axes, tasks, strict=True):
        groups = prompt_groups(read_prompt(first, task_id))
        examples = [astar_example(searcher, domain.build(groups))]
        examples += [model_example(one, task_id) for one in models]
        board = make_board(groups, dict(first.task.settings))
        scale = Normalize(1, max(2, *(len(example.closed) for example in examples)))
        for axis, planner, example in zip(line, planners, examples, strict=True):
            draw_board(axis, board)
            draw_search(axis, example, scale=scale)
            if board.width * board.height <= NUMBERED_CELLS:
                number_cells(axis, example, scale=scale, count=first.task.domain != "maze")
            axis.set_title(f"{planner}\n{example.tokens:,} tokens, {len(example.closed):,} closed", fontsize=8)
            for event, cells in (("create", example.created), ("close", example.closed), ("plan", example.plan)):
                rows += [(family.label, task_id, planner, event, order, x, y) for order, (x, y) in enumerate(cells, 1)]
        bar = figure.colorbar(ScalarMappable(scale, "viridis"), ax=list(line), shrink=0.8, pad=0.01)
        bar.set_label("closed as number")
    return Chart(
        name,
        f"Example searches: {family.label}",
        f"{family.note}The same test tasks searched by A* (the run of median length) and "
        "by models (the optimal answer of median length); tasks are those at fixed quantiles of A*'s length that "
        "all models answered optimally. Colour: when a cell was first closed; numbers: the order of closing (mazes) "
        "or how many states were closed with the worker there (Sokoban); hatched: created, never closed; line: the "
        "plan, from the dot to the star.",
        figure,
        ("family", "task_id", "planner", "event", "order", "x", "y"),
        tuple(rows),
    )


def make_board(groups: Sequence[tuple[str | None, tuple[int, ...]]], settings: dict[str, Any]) -> Board:
    """The board that a prompt describes."""
    placed = tuple((word, (numbers[0], numbers[1])) for word, numbers in groups if len(numbers) == 2)
    widest = 1 + max(x for _, (x, _) in placed)
    tallest = 1 + max(y for _, (_, y) in placed)
    return Board(max(settings.get("width", 0), widest), max(settings.get("height", 0), tallest), placed)


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
    for x, y in board.cells("wall"):
        axis.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor="#4A4A4A", edgecolor="#4A4A4A", linewidth=0.3))
    for x, y in board.cells("dock"):
        axis.plot(x, y, marker="D", markersize=9, markerfacecolor="none", markeredgecolor=VERMILION, zorder=4)
    for x, y in board.cells("box"):
        frame: dict[str, Any] = {"facecolor": "none", "edgecolor": VERMILION, "linewidth": 2, "zorder": 4}
        axis.add_patch(Rectangle((x - 0.38, y - 0.38), 0.76, 0.76, **frame))


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
    for x, y in set(example.created) - closed.keys():
        axis.add_patch(
            Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor="white", edgecolor=GREY, hatch="////", linewidth=0)
        )
    for (x, y), order in closed.items():
        shade = colormaps["viridis"](scale(order))
        axis.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=shade, edgecolor="white", linewidth=0.5))
    if example.plan:
        x, y = np.array(example.plan).T
        axis.plot(x, y, color="white", linewidth=3.2, zorder=4.5, solid_capstyle="round")
        axis.plot(x, y, color="black", linewidth=1.5, zorder=4.6, solid_capstyle="round")
        axis.plot(x[0], y[0], "o", color="black", markersize=5, markeredgecolor="white", zorder=5)
        axis.plot(x[-1], y[-1], "*", color="black", markersize=9, markeredgecolor="white", zorder=5)
