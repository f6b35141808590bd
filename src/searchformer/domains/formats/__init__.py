"""Files that people have: Sokoban `.xsb .txt .sok .slc` and Boxoban, MovingAI `.map` and `.scen`.

In: a path. Out: frozen records, whose `record()` is a line for `searchformer trace`. A malformed file is refused with
one line, `FILE:LINE:COLUMN: reason` (`FormatError`). Nothing is read without bound: see the limits in `source.py`.

Try: `python -c "from searchformer.domains.formats import read; print(*read('levels.xsb')[0].rows, sep='\\n')"`
"""

import re
from pathlib import Path

from searchformer.domains.formats.levels import Level
from searchformer.domains.formats.movingai import Cell, GridMap, GridTask, read_map, read_scenarios
from searchformer.domains.formats.slc import read_slc
from searchformer.domains.formats.source import FormatError, open_bytes
from searchformer.domains.formats.xsb import levels_from_text, read_text_levels, write_xsb

__all__ = [
    "FormatError",
    "GridMap",
    "GridTask",
    "Level",
    "levels_from_text",
    "read",
    "read_levels",
    "read_map",
    "read_scenarios",
    "write_xsb",
]

SUFFIXES = {".xsb": "text", ".sok": "text", ".slc": "slc", ".map": "map", ".scen": "scen"}
OPENINGS = {"slc": rb"<", "map": rb"type\s", "scen": rb"version\s"}


def read(
    path: Path | str,
    *,
    start: Cell | None = None,
    goal: Cell | None = None,
    skipped: list[FormatError] | None = None,
) -> list[Level] | list[GridTask]:
    """All tasks in a file of any known format. A `.map` holds no task of its own: give `start` and `goal` as (x, y).

    With a list `skipped`, levels that are none (two workers, unequal boxes and docks, an open border) go there.
    """
    kind = format_of(path)
    if kind == "scen":
        return read_scenarios(path)
    if kind == "map":
        grid = read_map(path)
        if start is None or goal is None:
            raise FormatError(str(path), 0, 0, "a map has no task of its own: give a start and a goal, or a .scen file")
        return [grid.task(start=start, goal=goal)]
    return read_levels(path, skipped)


def read_levels(path: Path | str, skipped: list[FormatError] | None = None) -> list[Level]:
    """All Sokoban levels in a `.xsb`, `.txt`, `.sok`, `.slc` or Boxoban file, in order; faulty ones as in `read`."""
    return read_slc(path, skipped) if format_of(path) == "slc" else read_text_levels(path, skipped)


def format_of(path: Path | str) -> str:
    """`text`, `slc`, `map` or `scen`: by the file's suffix, else by how it opens."""
    if known := SUFFIXES.get(Path(path).suffix.lower()):
        return known
    with open_bytes(path) as file:
        opening = file.read(1024).removeprefix(b"\xef\xbb\xbf").lstrip()
    return next((kind for kind, pattern in OPENINGS.items() if re.match(pattern, opening)), "text")
