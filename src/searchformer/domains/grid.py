"""Cells of a grid: packed coordinates, and the eight symmetries of the square."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from searchformer.domains.base import TaskError
from searchformer.errors import shown

# A cell is x << 16 | y: comparing cells compares (x, y), and no division is needed to take one apart.
SHIFT = 16
LOW = (1 << SHIFT) - 1
LARGEST = 4096
"""Longest side of a grid, in cells."""

LETTERS = {1: "d", -1: "u", -(1 << SHIFT): "l", 1 << SHIFT: "r"}
"""What to call the step from a cell to its neighbour; y grows downwards."""

Point = tuple[int, int]


def pack(x: int, y: int) -> int:
    """The cell at (x, y)."""
    return x << SHIFT | y


def unpack(cell: int) -> Point:
    """(x, y) of a cell."""
    return int(cell) >> SHIFT, int(cell) & LOW


def symmetries(width: int, height: int) -> Iterator[tuple[int, int, Callable[[int, int], Point]]]:
    """The eight rotations and reflections: new width, new height, and where (x, y) goes."""
    last_x, last_y = width - 1, height - 1
    for flip_x in (False, True):
        for flip_y in (False, True):
            for swap in (False, True):

                def move(x: int, y: int, fx: bool = flip_x, fy: bool = flip_y, s: bool = swap) -> Point:
                    x, y = (last_x - x if fx else x), (last_y - y if fy else y)
                    return (y, x) if s else (x, y)

                yield (height, width, move) if swap else (width, height, move)


def way_out(rows: Sequence[str], worker: Point) -> Point | None:
    """The cell at the rows' edge nearest to the worker that no wall keeps it from; None if the wall is closed."""
    width, text = len(rows[0]), "".join(rows)
    reached, frontier = bytearray(len(text)), deque([worker[1] * width + worker[0]])
    reached[frontier[0]] = True
    while frontier:
        y, x = divmod(at := frontier.popleft(), width)
        if x in (0, width - 1) or y in (0, len(rows) - 1):
            return x, y
        for neighbour in (at + width, at - width, at - 1, at + 1):
            if text[neighbour] != "#" and not reached[neighbour]:
                reached[neighbour] = True
                frontier.append(neighbour)
    return None


def whole_number(value: Any, *, what: str, least: int, most: int) -> int:
    """`value` as an integer within limits; raises TaskError otherwise."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise TaskError(f"{what} must be a whole number from {least} to {most}; found {shown(value)}")
    return value


def point(value: Any, *, what: str, width: int, height: int) -> Point:
    """`value` as a cell [x, y] of the grid; raises TaskError otherwise."""
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise TaskError(f"{what} must be a pair [x, y]; found {shown(value)}")
    return (
        whole_number(value[0], what=f"{what}'s x", least=0, most=width - 1),
        whole_number(value[1], what=f"{what}'s y", least=0, most=height - 1),
    )
