"""Tasks drawn with their plans, for a terminal."""

from collections.abc import Sequence

import numpy as np
from rich.text import Text

from searchformer.domains import Domain
from searchformer.search.world import World, as_array, cut_steps

ON_PLAN = "bold green"


def draw_plan(domain: Domain, problem: np.ndarray, plan: Sequence[str], *, width: int) -> Text:
    """A task with its plan: the plan's cells marked if the domain draws a grid of cells, else its states in a row."""
    steps = [step.state for step in cut_steps(plan)]
    caption = f"plan of {len(steps)} nodes"
    shape = domain.shapes.plan
    if len(shape) == 1 and len(shape[0].limits) == 2:
        cells = {(int(step[-2]), int(step[-1])) for step in steps}
        picture = _mark_cells(domain.draw(problem), cells, *shape[0].limits)
        if picture is not None:
            return Text.assemble(picture, "\n\n", f"{legend(domain, picture.plain, o='plan')}\n{caption}".lstrip())
    states = [domain.draw(problem, as_array(state)) for state in World(domain, problem).walk(steps)]
    below = f"{legend(domain, states[0])}\n{caption}".lstrip()
    return Text(f"{_side_by_side(states, width)}\n\n{below}")


def legend(domain: Domain, picture: str, **more: str) -> str:
    """What the characters of a drawing stand for, those that are in it: `S start, G goal, # wall, o plan`."""
    marks = {**domain.marks, **more}
    return ", ".join(f"{mark} {meaning}" for mark, meaning in marks.items() if mark in picture)


def _mark_cells(picture: str, cells: set[tuple[int, int]], width: int, height: int) -> Text | None:
    """The picture with `o` on the free cells (x, y); None if its rows and columns are not the grid's."""
    rows = picture.split("\n")
    stride = next((k for k in (1, 2) if all(len(row) == k * (width - 1) + 1 for row in rows)), 0)
    if len(rows) != height or not stride:
        return None
    marks = {mark for row in rows for mark in row[::stride]}
    free = " " if " " in marks else "."  # where floor is blank, a dot is something to see, such as a dock
    text = Text()
    for y, row in enumerate(rows):
        for at, mark in enumerate(row):
            on_plan = at % stride == 0 and (at // stride, y) in cells
            text.append("o" if on_plan and mark == free else mark, style=ON_PLAN if on_plan else "")
        text.append("\n" if y + 1 < height else "")
    return text


def _side_by_side(pictures: list[str], width: int) -> str:
    """Pictures next to each other, as many as fit into `width`, below that the next ones."""
    blocks = [picture.split("\n") for picture in pictures]
    wide, tall = max(len(row) for block in blocks for row in block), max(map(len, blocks))
    per_line = max(1, (width + 3) // (wide + 3))
    lines = []
    for first in range(0, len(blocks), per_line):
        group = blocks[first : first + per_line]
        rows = [[block[y] if y < len(block) else "" for block in group] for y in range(tall)]
        lines.append("\n".join("   ".join(cell.ljust(wide) for cell in row).rstrip() for row in rows))
    return "\n\n".join(lines)
