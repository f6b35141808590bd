"""Other people's mazes as tasks of ours: Maze-Hard tables, AlphaMaze's tokens, reasoning-gym's questions.

In: texts. Out: records for `searchformer trace maze`, with `answer` where the text gives a solution.

- Maze-Hard (recursive-reasoning models): a CSV with the columns `q` and `a`, mazes as one line of `#`, space, `S`, `G`;
  the answer marks a path with `o`.
- AlphaMaze: `<|0-0|><|up_left_wall|><|origin|><|0-1|>...`, walls between cells; the answer is `<|up|><|left|>...`. A
  maze of C x R cells becomes one of (2C - 1) x (2R - 1), in which every move is two steps: shortest stays shortest.
- reasoning-gym: a question with a drawing in any four characters; the answer is the number of moves, `claimed_moves`.
"""

import csv
import math
import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from searchformer.domains import TaskError
from searchformer.domains.formats.source import FormatError
from searchformer.domains.grid import LARGEST, Point

MAZE_COLUMNS = (("q", "a"), ("question", "answer"))
"""Names of the columns for maze and solution in Maze-Hard tables."""
CELL = re.compile(r"<\|(\d{1,4})-(\d{1,4})\|>\s*<\|([a-z_]{1,40}?)_?wall\|>\s*<\|(origin|target|blank)\|>")
MOVE = re.compile(r"<\|(up|down|left|right)\|>")
MOVES = re.compile(r"(?:<\|(?:up|down|left|right)\|>\s*)+")
SIDES = ("up", "down", "left", "right")
QUESTION = re.compile(
    r"Navigate from '(?P<start>.)' \(start\) to '(?P<goal>.)' \(goal\):\s*```\n(?P<grid>.{1,1000000}?)\n```\s*"
    r"Legend: '(?P<wall>.)' = Wall, '(?P<path>.)' = Passage",
    re.DOTALL,
)
SIGNS = re.compile(r"<\|0-0\|>|Navigate from '")
"""What a text with mazes of the last two kinds contains."""


def from_record(record: dict[str, Any]) -> dict[str, Any]:
    """A record of other people's data sets as one of ours; a record that is none of these is returned as it is."""
    texts = [value for value in record.values() if isinstance(value, str)]
    if "walls" in record or "level" in record:
        return record
    if isinstance(record.get("question"), str) and QUESTION.search(record["question"]):
        return question_maze(record["question"], record.get("answer"))
    for maze, answer in MAZE_COLUMNS:
        if isinstance(record.get(maze), str) and set(record[maze]) <= set("# SG"):
            return grid_maze(record[maze], record.get(answer)) | _rest(record, maze, answer)
    if any("<|0-0|>" in text for text in texts):
        return token_maze("\n".join(texts))
    return record


def _rest(record: dict[str, Any], *used: str) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key not in used and isinstance(value, str | int | float)}


def read_csv(lines: Iterable[str], *, name: str) -> Iterator[tuple[str, dict[str, Any] | TaskError]]:
    """The mazes of a Maze-Hard table, each with its place; a row that is none gives its error."""
    try:
        table = csv.reader(lines, strict=True)
        header = next(table, [])
        columns = next((pair for pair in MAZE_COLUMNS if set(pair) <= set(header)), None)
        if columns is None:
            raise FormatError(name, 1, 1, f"expected the columns source,q,a,rating; found {','.join(header)[:80]!r}")
        for row in table:
            if row:
                place = f"{name}:{table.line_num}"
                record = dict(zip(header, row, strict=False))
                try:
                    if len(row) != len(header):
                        raise TaskError(f"a row has {len(header)} fields; this one has {len(row)}")
                    found = grid_maze(*(record[column] for column in columns)) | _rest(record, *columns)
                    yield place, found
                except TaskError as error:
                    yield place, error
    except csv.Error as error:
        raise FormatError(name, table.line_num, 1, f"not a table of comma-separated values: {error}") from None


def read_text(text: str, *, name: str) -> Iterator[tuple[str, dict[str, Any] | TaskError]]:
    """The mazes of a text in AlphaMaze's tokens or of reasoning-gym's questions, each with its place."""
    begins = [match.start() for match in SIGNS.finditer(text)]
    for number, begin in enumerate(begins):
        part = text[begin : begins[number + 1] if number + 1 < len(begins) else len(text)]
        place = f"{name}:{text.count(chr(10), 0, begin) + 1}"
        try:
            yield place, question_maze(part, None) if part.startswith("N") else token_maze(part)
        except TaskError as error:
            yield place, error


# --- Maze-Hard


def grid_maze(maze: str, solution: Any = None) -> dict[str, Any]:
    """A maze in one line of `#`, space, `S`, `G`, and its solution with `o` on the path."""
    side = math.isqrt(len(maze))
    if side * side != len(maze) or not 2 <= side <= LARGEST:
        raise TaskError(f"expected a square maze of {LARGEST} cells a side at most; found {len(maze)} characters")
    rows = [maze[first : first + side] for first in range(0, len(maze), side)]
    task = rows_maze(rows, start="S", goal="G", wall="#", free=" ")
    if isinstance(solution, str) and solution:
        task["answer"] = " ".join(f"plan {x} {y}" for x, y in marked_path(task, maze, solution))
    return task


def rows_maze(rows: list[str], *, start: str, goal: str, wall: str, free: str) -> dict[str, Any]:
    """A task from a drawing."""
    places: dict[str, list[list[int]]] = {start: [], goal: [], wall: [], free: []}
    for y, row in enumerate(rows):
        if len(row) != len(rows[0]):
            raise TaskError(f"row {y} has {len(row)} cells, row 0 has {len(rows[0])}")
        for x, mark in enumerate(row):
            if mark not in places:
                raise TaskError(f"row {y}, column {x}: expected one of {''.join(places)!r}; found {mark!r}")
            places[mark].append([x, y])
    if len(places[start]) != 1 or len(places[goal]) != 1:
        raise TaskError(
            f"a maze has one start {start!r} and one goal {goal!r}; found {len(places[start])}, {len(places[goal])}"
        )
    size = {"width": len(rows[0]), "height": len(rows)}
    return size | {"start": places[start][0], "goal": places[goal][0], "walls": places[wall]}


def marked_path(task: dict[str, Any], maze: str, solution: str) -> list[Point]:
    """The cells from start to goal that a solution marks with `o`; raises TaskError where they are not one path.

    A marked path that touches itself is read with the short cut, and its other marks are then too many.
    """
    width = task["width"]
    if len(solution) != len(maze) or any(
        b not in (a, "o") or (b == "o" != a and a != " ") for a, b in _pairs(maze, solution)
    ):
        raise TaskError("the answer is not the maze with a path of 'o' on free cells")
    marked = {divmod(at, width)[::-1] for at, mark in enumerate(solution) if mark == "o"}
    (start_x, start_y), (goal_x, goal_y) = task["start"], task["goal"]
    start, goal = (start_x, start_y), (goal_x, goal_y)
    before: dict[Point, Point | None] = {start: None}
    frontier = deque([start])
    while frontier and goal not in before:
        x, y = frontier.popleft()
        for cell in ((x, y + 1), (x, y - 1), (x - 1, y), (x + 1, y)):
            if cell not in before and (cell in marked or cell == goal):
                before[cell] = (x, y)
                frontier.append(cell)
    path: list[Point] = []
    last: Point | None = goal if goal in before else None
    while last is not None:
        path.append(last)
        last = before[last]
    if not path:
        raise TaskError("the answer's marks do not lead from the start to the goal")
    if len(path) - 2 != len(marked):
        raise TaskError(f"the answer marks {len(marked)} cells, of which {len(path) - 2} are on a path to the goal")
    return path[::-1]


def _pairs(maze: str, solution: str) -> Iterable[tuple[str, str]]:
    return zip(maze, solution, strict=True)


# --- AlphaMaze


def token_maze(text: str) -> dict[str, Any]:
    """A maze in AlphaMaze's tokens, and the last moves behind it as the answer."""
    cells: dict[Point, tuple[set[str], str]] = {}
    end = 0
    for match in CELL.finditer(text):
        y, x = int(match[1]), int(match[2])
        if (x, y) in cells:
            break  # the text speaks of the maze's cells again
        sides = set(match[3].split("_")) - {"no", ""}
        if not sides <= set(SIDES):
            raise TaskError(f"cell {y}-{x}: expected walls up, down, left, right; found {match[3]!r}")
        cells[x, y], end = (sides, match[4]), match.end()
    columns, rows = 1 + max((x for x, _ in cells), default=-1), 1 + max((y for _, y in cells), default=-1)
    if not cells or len(cells) != columns * rows or 2 * max(columns, rows) > LARGEST:
        raise TaskError(
            f"expected every cell of a maze once, as <|row-column|>; found {len(cells)} of {columns * rows}"
        )
    ends = {kind: [cell for cell, (_, mark) in cells.items() if mark == kind] for kind in ("origin", "target")}
    if any(len(found) != 1 for found in ends.values()):
        raise TaskError(f"a maze has one origin and one target; found {', '.join(str(len(f)) for f in ends.values())}")
    width, height = 2 * columns - 1, 2 * rows - 1
    walls = [[x, y] for y in range(height) for x in range(width) if _closed(cells, x, y)]
    (start,), (goal,) = ends["origin"], ends["target"]
    task = {"width": width, "height": height, "start": [2 * start[0], 2 * start[1]]}
    task |= {"goal": [2 * goal[0], 2 * goal[1]], "walls": walls}
    if found := list(MOVES.finditer(text, end)):
        task["answer"] = "".join(2 * move[0] for move in MOVE.findall(found[-1][0]))
    return task


def _closed(cells: dict[Point, tuple[set[str], str]], x: int, y: int) -> bool:
    """Whether (x, y) between or at the cells is closed: posts always, passages if either side has a wall there."""
    if x % 2 and y % 2:
        return True
    if x % 2:
        return "right" in cells[x // 2, y // 2][0] or "left" in cells[x // 2 + 1, y // 2][0]
    if y % 2:
        return "down" in cells[x // 2, y // 2][0] or "up" in cells[x // 2, y // 2 + 1][0]
    return False


# --- reasoning-gym


def question_maze(question: str, answer: Any) -> dict[str, Any]:
    """A maze of reasoning-gym, with the number of moves that its answer claims, or with a plan as answer."""
    match = QUESTION.search(question)
    if match is None:
        raise TaskError("expected a question of reasoning-gym's mazes: Navigate from 'S' (start) to 'G' (goal): ...")
    marks = {"start": match["start"], "goal": match["goal"], "wall": match["wall"], "free": match["path"]}
    if len(set(marks.values())) != 4:
        raise TaskError(f"the four characters must differ; found {''.join(marks.values())!r}")
    task = rows_maze(match["grid"].split("\n"), **marks)
    if isinstance(answer, str) and re.fullmatch(r"\s*\d{1,9}\s*", answer):
        task["claimed_moves"] = int(answer)
    elif isinstance(answer, str):
        task["answer"] = answer
    return task
