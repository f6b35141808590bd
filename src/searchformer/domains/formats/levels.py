"""A Sokoban level: rows as they stand in a file in, a checked, rectangular `Level` out.

Cells: `#` wall, space floor, `@` worker, `+` worker on dock, `$` box, `*` box on dock, `.` dock.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from searchformer.domains.formats.source import FormatError, describe
from searchformer.domains.grid import way_out

MAX_SIDE = 1000
"""Rows and columns of a level."""
MAX_CELLS = 1 << 24
"""Cells of all levels in a file: bounds what run lengths can expand to."""
CELLS = str.maketrans("-_pPbBo", "  @+$*.")
"""Other spellings of cells: `-` and `_` for floor, since mail may lose spaces; letters as in `.sok`."""
PLAIN_ROW = re.compile(r"[#@+$*. _pPbBo-]*")
RUN = re.compile(r"([0-9]*)([#@+$*. _pPbBo(-])")
TITLE_LENGTH = 200
"""Characters of a title; the rest is cut."""


@dataclass(frozen=True)
class Level:
    """A Sokoban level with one worker, as many docks as boxes, and a closed wall."""

    title: str
    """As the file gives it, or empty."""
    rows: tuple[str, ...]
    """All of the same width; cells outside the wall are spaces."""
    line: int
    """Where its first row stands in the file, from 1."""

    def record(self) -> dict[str, Any]:
        """The task as `searchformer trace sokoban` reads it."""
        return {"level": list(self.rows)}


@dataclass(frozen=True)
class Row:
    """A row of a level, and where it comes from."""

    line: int
    cells: str
    columns: Sequence[int]
    """Column in the file of each cell, from 1, and last the one behind the row."""

    def column(self, x: int) -> int:
        """Column in the file of cell x; behind the row's end for a padded cell."""
        return self.columns[min(x, len(self.cells))]


def expand(text: str, *, path: str, line: int, columns: Sequence[int] | None = None) -> list[Row]:
    """The rows that a line of a level stands for: `-` and `_` are floor, `3#` is `###`, `|` ends a row."""
    columns = range(1, len(text) + 2) if columns is None else columns
    if PLAIN_ROW.fullmatch(text):
        if len(text) > MAX_SIDE:
            raise FormatError(path, line, columns[MAX_SIDE], f"a row has at most {MAX_SIDE} cells; this one has more")
        return [Row(line, text.translate(CELLS), columns)]
    rows, start = list[Row](), 0
    for part in text.removesuffix("|").split("|"):
        if len(rows) == MAX_SIDE:
            raise FormatError(path, line, columns[start], f"a level has at most {MAX_SIDE} rows; this one has more")
        rows.append(_expand_row(part, path=path, line=line, columns=columns[start : start + len(part) + 1]))
        start += len(part) + 1
    return rows


def _expand_row(text: str, *, path: str, line: int, columns: Sequence[int]) -> Row:
    """One run-length coded row: `3#` repeats a cell, `3(#-)` a group, which may hold groups."""
    cells, places, at = "", list[int](), 0
    groups: list[tuple[str, list[int], int, int]] = []
    while at < len(text):
        run = RUN.match(text, at)
        if run and run[2] == "(":
            groups.append((cells, places, _run_length(run[1]), at))
            cells, places = "", []
        elif run:
            length = _run_length(run[1])
            _check_run(length, room=MAX_SIDE - len(cells), path=path, line=line, column=columns[at])
            cells, places = cells + run[2] * length, places + [columns[at]] * length
        elif text[at] == ")" and groups:
            before, places_before, length, opened = groups.pop()
            room = (MAX_SIDE - len(before)) // max(len(cells), 1)
            _check_run(length, room=room, path=path, line=line, column=columns[opened])
            cells, places = before + cells * length, places_before + places * length
        else:
            reason = "a run length without a cell" if text[at] in "0123456789" else describe(text[at])
            raise FormatError(path, line, columns[at], reason)
        at = run.end() if run else at + 1
    if groups:
        raise FormatError(path, line, columns[groups[-1][3]], "a group that is not closed in its row")
    return Row(line, cells.translate(CELLS), [*places, columns[at]])


def _run_length(digits: str) -> int:
    """The number, or one too large for any row, without computing numbers of any size."""
    return int(digits or 1) if len(digits) <= len(str(MAX_SIDE)) else MAX_SIDE + 1


def _check_run(length: int, *, room: int, path: str, line: int, column: int) -> None:
    if not 1 <= length <= room:
        reason = f"a row has at most {MAX_SIDE} cells; this one has more" if length else "a run of no cells"
        raise FormatError(path, line, column, reason)


class Collection:
    """The levels of one file, checked as they are added. With a list `skipped`, a faulty level goes there instead."""

    def __init__(self, path: str, skipped: list[FormatError] | None = None) -> None:
        self.path, self.skipped = path, skipped
        self.levels: list[Level] = []
        self.cells = 0

    def add(self, rows: list[Row], *, title: str) -> None:
        """Check the rows and keep the level, cut to its bounding box."""
        rows = _without_blank_edges(rows)
        left = min(len(row.cells) - len(row.cells.lstrip()) for row in rows if row.cells.strip())
        width = max(len(row.cells.rstrip()) for row in rows) - left
        self.cells += width * len(rows)
        if self.cells > MAX_CELLS:
            reason = f"a file has at most {MAX_CELLS} cells in all levels; this one has more"
            raise FormatError(self.path, rows[0].line, 1, reason)
        grid = tuple(row.cells[left : left + width].ljust(width) for row in rows)
        problem = _problem(grid)
        if problem:
            x, y, reason = problem
            fault = FormatError(self.path, rows[y].line, rows[y].column(left + x), reason)
            if self.skipped is None:
                raise fault
            self.skipped.append(fault)
            return
        self.levels.append(Level(tidy(title), grid, rows[0].line))

    def finish(self) -> list[Level]:
        """The levels, once all are read; raises if there are none."""
        if not self.levels:
            raise (self.skipped or [FormatError(self.path, 1, 1, "no Sokoban level in this file")])[0]
        return self.levels


def tidy(title: str) -> str:
    """The title as one line that every format can hold."""
    text = title.replace("\0", " ").encode("utf-8", "replace").decode()
    return " ".join(text.split())[:TITLE_LENGTH].strip()


def _without_blank_edges(rows: list[Row]) -> list[Row]:
    filled = [y for y, row in enumerate(rows) if row.cells.strip()]
    return rows[filled[0] : filled[-1] + 1]


def _problem(grid: tuple[str, ...]) -> tuple[int, int, str] | None:
    """Cell (x, y) and reason why this grid is no level; a fault of the level as a whole is put at its first cell."""
    text = "".join(grid)
    corner = len(grid[0]) - len(grid[0].lstrip())
    workers = [at for at, cell in enumerate(text) if cell in "@+"]
    boxes, docks = text.count("$") + text.count("*"), text.count(".") + text.count("*") + text.count("+")
    if not workers:
        return corner, 0, "no worker (@ or +) in this level"
    if len(workers) > 1:
        y, x = divmod(workers[1], len(grid[0]))
        return x, y, "a second worker in this level"
    if boxes != docks:
        return corner, 0, f"boxes and docks differ in number: {boxes} and {docks}"
    if not boxes:
        return corner, 0, "no boxes in this level"
    opening = way_out(grid, divmod(workers[0], len(grid[0]))[::-1])
    return (*opening, "open border: the worker can leave the level here") if opening else None
