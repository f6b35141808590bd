"""MovingAI's grids: a `.map` in, a `GridMap` out; a `.scen` with its map beside it in, one `GridTask` per line out.

y grows downwards, as in the file. `.`, `G` and `S` can be entered; `@`, `O`, `T` and `W` cannot. The scenarios' optimal
lengths allow diagonal moves, which we do not make, so they are checked for form and not kept.
"""

import os.path
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PureWindowsPath
from typing import Any

from searchformer.domains.formats.source import MAX_LINE, FormatError, Lines, describe, open_lines

PASSABLE = ".GS"
HEADER = re.compile(r"(type|height|width)[ \t]+([^ \t]+)")
SIZE = re.compile(r"[1-9][0-9]{0,4}")
WHOLE = re.compile(r"[0-9]{1,9}")
NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{0,30})?")
UNKNOWN = re.compile(r"[^.GS@OTW]")
FIELDS = ("bucket", "map", "width", "height", "start x", "start y", "goal x", "goal y", "optimal length")

Cell = tuple[int, int]
"""x, y from 0."""


@dataclass(frozen=True)
class GridMap:
    """A grid of cells that can be entered or not."""

    path: str
    """Where it was read."""
    rows: tuple[str, ...]
    """In the file's own characters, all of the same width."""

    @property
    def width(self) -> int:
        return len(self.rows[0])

    @property
    def height(self) -> int:
        return len(self.rows)

    @cached_property
    def walls(self) -> tuple[Cell, ...]:
        """Cells that cannot be entered, ordered by x + y * width."""
        return tuple((x, y) for y, row in enumerate(self.rows) for x, cell in enumerate(row) if cell not in PASSABLE)

    def task(self, *, start: Cell, goal: Cell) -> "GridTask":
        """The task to go from `start` to `goal`, both cells that can be entered."""
        for name, cell in (("start", start), ("goal", goal)):
            if problem := self.problem(cell):
                raise FormatError(self.path, 0, 0, f"{name} {problem}")
        return GridTask(self, start, goal, 0)

    def problem(self, cell: Cell) -> str:
        """Why a task cannot start or end in `cell`; empty if it can."""
        x, y = cell
        if not (0 <= x < self.width and 0 <= y < self.height):
            return f"({x}, {y}) is outside of the map, which is {self.width}x{self.height}"
        return "" if self.rows[y][x] in PASSABLE else f"({x}, {y}) cannot be entered: it is {self.rows[y][x]!r}"


@dataclass(frozen=True)
class GridTask:
    """A start and a goal on a map. Tasks of one file share the map."""

    map: GridMap
    start: Cell
    goal: Cell
    line: int
    """Where it stands in the `.scen` file, from 1; 0 if it comes from elsewhere."""

    def record(self) -> dict[str, Any]:
        """The task as `searchformer trace maze` reads it."""
        return {
            "width": self.map.width,
            "height": self.map.height,
            "start": list(self.start),
            "goal": list(self.goal),
            "walls": [list(wall) for wall in self.map.walls],
        }


def read_map(path: Path | str) -> GridMap:
    """The grid in a `.map` file."""
    name = str(path)
    with open_lines(path) as lines:
        stream = iter(lines)
        width, height, line = _read_header(stream, name)
        rows = list[str]()
        for line, raw in stream:
            row = raw.rstrip()
            if len(rows) < height:
                _check_row(row, width=width, path=name, line=line)
                rows.append(row)
            elif row:
                raise FormatError(name, line, 1, f"the map ends after {height} rows, but here is another")
    if len(rows) < height:
        raise FormatError(name, line + 1, 1, f"the file ends after {len(rows)} of {height} rows")
    return GridMap(name, tuple(rows))


def _read_header(lines: Lines, path: str) -> tuple[int, int, int]:
    """Width, height, and the number of the line that says `map`."""
    found: dict[str, str] = {}
    line = 0
    for line, raw in lines:
        text = raw.rstrip()
        if text == "map":
            if missing := {"type", "height", "width"} - found.keys():
                raise FormatError(path, line, 1, f"the header does not give {' and '.join(sorted(missing))}")
            return int(found["width"]), int(found["height"]), line
        entry = HEADER.fullmatch(text)
        if not entry or entry[1] in found:
            raise FormatError(path, line, 1, "expected 'type octile', 'height N' and 'width N', once each, then 'map'")
        if entry[1] != "type" and not (SIZE.fullmatch(entry[2]) and int(entry[2]) <= MAX_LINE):
            raise FormatError(path, line, entry.start(2) + 1, f"{entry[1]} is a number from 1 to {MAX_LINE}")
        found[entry[1]] = entry[2]
    raise FormatError(path, line + 1, 1, "the file ends in the header, before 'map'" if line else "empty file")


def _check_row(row: str, *, width: int, path: str, line: int) -> None:
    if unknown := UNKNOWN.search(row):
        reason = f"{describe(unknown[0])}: an octile map has . G S (free) and @ O T W (blocked) only"
        raise FormatError(path, line, unknown.start() + 1, reason)
    if len(row) != width:
        raise FormatError(path, line, min(len(row), width) + 1, f"a row has {width} cells; this one has {len(row)}")


def read_scenarios(path: Path | str) -> list[GridTask]:
    """The tasks in a `.scen` file, in order; each map is looked for beside it, by the last part of its name."""
    name, maps, tasks = str(path), dict[str, GridMap](), list[GridTask]()
    with open_lines(path) as lines:
        stream = iter(lines)
        line, first = next(stream, (0, ""))
        if not line:
            raise FormatError(name, 1, 1, "empty file")
        if not re.fullmatch(r"version[ \t]+1(\.0*)?", first.rstrip()):
            raise FormatError(name, 1, 1, "expected 'version 1'")
        for line, raw in stream:
            if raw.strip():
                tasks.append(_scenario(raw.rstrip(), path=Path(path), line=line, maps=maps))
    if not tasks:
        raise FormatError(name, line + 1, 1, "no scenario in this file")
    return tasks


def _scenario(text: str, *, path: Path, line: int, maps: dict[str, GridMap]) -> GridTask:
    fields = list(re.finditer(r"[^\t]+" if "\t" in text else r"[^ ]+", text))
    if len(fields) != len(FIELDS):
        reason = f"a scenario has {len(FIELDS)} fields ({', '.join(FIELDS)}); this one has {len(fields)}"
        raise FormatError(str(path), line, len(text) + 1, reason)
    for name, field in zip(FIELDS, fields, strict=True):
        _check_field(name, field, path=str(path), line=line)
    map_name, width, height = fields[1][0], int(fields[2][0]), int(fields[3][0])
    if map_name not in maps:
        maps[map_name] = read_map(_map_beside(path, map_name, line=line, column=fields[1].start() + 1))
    grid = maps[map_name]
    if (width, height) != (grid.width, grid.height):
        reason = f"the map is {grid.width}x{grid.height}, not {width}x{height}; scaled maps are not read"
        raise FormatError(str(path), line, fields[2].start() + 1, reason)
    start, goal = (int(fields[4][0]), int(fields[5][0])), (int(fields[6][0]), int(fields[7][0]))
    for name, cell, field in (("start", start, fields[4]), ("goal", goal, fields[6])):
        if problem := grid.problem(cell):
            raise FormatError(str(path), line, field.start() + 1, f"{name} {problem}")
    return GridTask(grid, start, goal, line)


def _check_field(name: str, field: re.Match[str], *, path: str, line: int) -> None:
    pattern = {"map": None, "optimal length": NUMBER}.get(name, WHOLE)
    if pattern and not pattern.fullmatch(field[0]):
        raise FormatError(path, line, field.start() + 1, f"expected a number for {name}, found {field[0][:40]!r}")


def _map_beside(path: Path, name: str, *, line: int, column: int) -> Path:
    """The map's path: names in scenarios carry folders of the author's machine, with either kind of slash."""
    base = PureWindowsPath(name).name
    beside = path.parent / base
    if not os.path.isfile(beside):
        raise FormatError(str(path), line, column, f"the map {name[:80]!r} is not beside this file; put it there")
    return beside
