"""Sokoban: push every box onto a dock (paper, section 3). Each of the worker's steps costs 1.

In: size, number of walls and boxes. Out: tasks such as `worker 3 2 box 2 3 ... dock 3 3 ... wall 0 0 ...`. Two token
formats: `paper` leaves out boxes on docks, as the published data does, so it cannot express a level that starts with
one; `full` lists every box and dock. Try: `searchformer generate sokoban --tasks 5 --out d`.
"""

from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from searchformer.domains.base import DEAD_END, Domain, Group, Groups, Rules, Shapes, TaskError
from searchformer.domains.grid import LARGEST, LETTERS, LOW, SHIFT, pack, symmetries, unpack, way_out
from searchformer.seeding import below

# problem = [width, height, boxes, worker cell, box cells in order, dock cells in order, then flags column by column]
# state = [worker cell, box cells in order]
WIDTH, HEIGHT, BOXES, WORKER, FIRST_BOX = 0, 1, 2, 3, 4
WALL, STUCK, DOCK = 1, 2, 4
WORD_WORKER, WORD_BOX, WORD_DOCK, WORD_WALL = -1, -2, -3, -4
DOWN, UP, LEFT, RIGHT = 1, -1, -(1 << SHIFT), 1 << SHIFT
FLOOR, CHARACTERS = " ", "#@+$*. -_"


def flag(problem, cell):
    """WALL, STUCK (a box here can never move) and DOCK bits of a cell."""
    return problem[FIRST_BOX + 2 * problem[BOXES] + (cell >> SHIFT) * problem[HEIGHT] + (cell & LOW)]


def start(problem, state):
    for index in range(problem[BOXES] + 1):
        state[index] = problem[WORKER + index]


def _box_at(state, cell):
    """Index into `state` of the box on `cell`, or 0."""
    for index in range(1, len(state)):
        if state[index] == cell:
            return index
    return 0


def successors(problem, state, children):
    boxes = len(state) - 1
    count = 0
    for step in (DOWN, UP, LEFT, RIGHT):
        target = state[0] + step
        if flag(problem, target) & WALL:
            continue
        pushed = _box_at(state, target)
        if pushed > 0:
            beyond = target + step
            if flag(problem, beyond) & WALL or _box_at(state, beyond) > 0:
                continue
        children[count, 0] = target
        for index in range(1, boxes + 1):
            children[count, index] = state[index]
        if pushed > 0:
            place, box = pushed, target + step
            while place < boxes and state[place + 1] < box:
                children[count, place] = state[place + 1]
                place += 1
            while place > 1 and state[place - 1] > box:
                children[count, place] = state[place - 1]
                place -= 1
            children[count, place] = box
        count += 1
    return count


def heuristic(problem, state):
    boxes = len(state) - 1
    total = 0
    for index in range(1, boxes + 1):
        box = state[index]
        bits = flag(problem, box)
        if bits & DOCK:
            continue
        if bits & STUCK:
            return DEAD_END
        nearest = 1 << 30
        for other in range(FIRST_BOX + boxes, FIRST_BOX + 2 * boxes):
            dock = problem[other]
            distance = abs((box >> SHIFT) - (dock >> SHIFT)) + abs((box & LOW) - (dock & LOW))
            if distance < nearest and _box_at(state, dock) == 0:
                nearest = distance
        total += nearest
    return total


def is_goal(problem, state):
    for index in range(1, len(state)):
        if not flag(problem, state[index]) & DOCK:
            return False
    return True


def tie_rank(problem, state):
    return (state[0] >> SHIFT) + 100000 * (state[0] & LOW)


def _write_cell(word, cell, tokens, count):
    tokens[count] = word
    tokens[count + 1] = cell >> SHIFT
    tokens[count + 2] = cell & LOW
    return count + 3


def _write_walls(problem, tokens, count):
    for x in range(problem[WIDTH]):
        for y in range(problem[HEIGHT]):
            cell = x << SHIFT | y
            if flag(problem, cell) & WALL:
                count = _write_cell(WORD_WALL, cell, tokens, count)
    return count


def write_prompt(problem, tokens):
    boxes = problem[BOXES]
    count = _write_cell(WORD_WORKER, problem[WORKER], tokens, 0)
    for index in range(FIRST_BOX, FIRST_BOX + boxes):
        if not flag(problem, problem[index]) & DOCK:
            count = _write_cell(WORD_BOX, problem[index], tokens, count)
    for index in range(FIRST_BOX + boxes, FIRST_BOX + 2 * boxes):
        covered = False
        for other in range(FIRST_BOX, FIRST_BOX + boxes):
            covered = covered or problem[other] == problem[index]
        if not covered:
            count = _write_cell(WORD_DOCK, problem[index], tokens, count)
    return _write_walls(problem, tokens, count)


def write_prompt_full(problem, tokens):
    boxes = problem[BOXES]
    count = _write_cell(WORD_WORKER, problem[WORKER], tokens, 0)
    for index in range(FIRST_BOX, FIRST_BOX + 2 * boxes):
        count = _write_cell(WORD_BOX if index < FIRST_BOX + boxes else WORD_DOCK, problem[index], tokens, count)
    return _write_walls(problem, tokens, count)


def write_state(problem, state, tokens):
    count = _write_cell(WORD_WORKER, state[0], tokens, 0)
    for index in range(1, len(state)):
        if not flag(problem, state[index]) & DOCK:
            count = _write_cell(WORD_BOX, state[index], tokens, count)
    return count


def write_state_full(problem, state, tokens):
    count = _write_cell(WORD_WORKER, state[0], tokens, 0)
    for index in range(1, len(state)):
        count = _write_cell(WORD_BOX, state[index], tokens, count)
    return count


def write_plan(problem, state, tokens):
    tokens[0] = state[0] >> SHIFT
    tokens[1] = state[0] & LOW
    return 2


def mark_stuck(problem):
    """Set STUCK where walls alone keep a box from ever moving: neither both sides nor above and below are free."""
    width, height = problem[WIDTH], problem[HEIGHT]
    grid = FIRST_BOX + 2 * problem[BOXES]
    for x in range(width):
        for y in range(height):
            index = grid + x * height + y
            beside = 0 < x < width - 1 and not (problem[index - height] | problem[index + height]) & WALL
            above = 0 < y < height - 1 and not (problem[index - 1] | problem[index + 1]) & WALL
            if not beside and not above:
                problem[index] |= STUCK


def sample_layout(settings, stream, problem):
    width, height, walls, boxes = settings[0], settings[1], settings[2], settings[3]
    problem[WIDTH], problem[HEIGHT], problem[BOXES] = width, height, boxes
    grid = FIRST_BOX + 2 * boxes
    for x in range(width):
        for y in range(height):
            border = x == 0 or y == 0 or x == width - 1 or y == height - 1
            problem[grid + x * height + y] = WALL if border else 0
    while walls > 0:
        index = grid + (1 + below(stream, width - 2)) * height + 1 + below(stream, height - 2)
        if problem[index] == 0:
            problem[index] = WALL
            walls -= 1
    mark_stuck(problem)
    return True


def _place(stream, problem, first, count, margin):
    """Draw `count` cells that are free and `margin` or more from the edge into problem[first:], in order."""
    width, height = problem[WIDTH], problem[HEIGHT]
    for index in range(first, first + count):
        for _ in range(1000):
            x = margin + below(stream, width - 2 * margin)
            y = margin + below(stream, height - 2 * margin)
            cell = x << SHIFT | y
            taken = flag(problem, cell) & WALL != 0
            for other in range(WORKER, FIRST_BOX + 2 * problem[BOXES]):
                taken = taken or problem[other] == cell
            if not taken:
                break
        if taken:
            return False
        problem[index] = cell
        other = index
        while other > first and problem[other] < problem[other - 1]:
            problem[other], problem[other - 1] = problem[other - 1], problem[other]
            other -= 1
    return True


def sample_task(settings, stream, problem):
    boxes = settings[3]
    grid = FIRST_BOX + 2 * boxes
    problem[WORKER:grid] = -1
    for index in range(grid, grid + settings[0] * settings[1]):
        problem[index] &= WALL | STUCK
    placed = _place(stream, problem, FIRST_BOX, boxes, 2)
    placed = placed and _place(stream, problem, WORKER, 1, 1)
    placed = placed and _place(stream, problem, FIRST_BOX + boxes, boxes, 1)
    if placed:
        for index in range(FIRST_BOX + boxes, grid):
            problem[grid + (problem[index] >> SHIFT) * settings[1] + (problem[index] & LOW)] |= DOCK
    return placed


PAPER_RULES = Rules(
    start=start,
    successors=successors,
    heuristic=heuristic,
    is_goal=is_goal,
    tie_rank=tie_rank,
    write_prompt=write_prompt,
    write_state=write_state,
    write_plan=write_plan,
    sample_layout=sample_layout,
    sample_task=sample_task,
)
FULL_RULES = PAPER_RULES._replace(write_prompt=write_prompt_full, write_state=write_state_full)


class Sokoban(Domain):
    """Push every box onto a dock, in as few of the worker's steps as possible."""

    name: ClassVar[str] = "sokoban"
    marks: ClassVar[dict[str, str]] = {
        **{"@": "worker", "$": "box", ".": "dock"},
        **{"+": "worker on a dock", "*": "box on a dock", "#": "wall"},
    }
    words: ClassVar[tuple[str, ...]] = ("worker", "box", "dock", "wall")

    width: int = Field(7, ge=5, le=LARGEST, description="cells from left to right, border included")
    height: int = Field(7, ge=5, le=LARGEST, description="cells from top to bottom, border included")
    walls: int = Field(2, ge=0, description="walls inside the border")
    boxes: int = Field(2, ge=1, description="boxes, and as many docks")
    tokens_format: Literal["paper", "full"] = Field(
        "paper", description="paper leaves out boxes on docks; full lists all boxes and docks"
    )

    @model_validator(mode="after")
    def _there_is_room(self) -> "Sokoban":
        inside, middle = (self.width - 2) * (self.height - 2), (self.width - 4) * (self.height - 4)
        if self.walls + 2 * self.boxes + 1 > inside or self.boxes > middle:
            raise ValueError(
                f"{self.walls} walls, {self.boxes} boxes, a worker and {self.boxes} docks do not fit into "
                f"{self.width} x {self.height} cells (boxes keep two cells from the border)"
            )
        return self

    @property
    def rules(self) -> Rules:
        return PAPER_RULES if self.tokens_format == "paper" else FULL_RULES

    @property
    def costs(self) -> int:
        return 1 + (self.max_cost or self.width * self.height * (self.boxes + 1))

    def problem_size(self) -> int:
        return FIRST_BOX + 2 * self.boxes + self.width * self.height

    def state_size(self, problem: np.ndarray) -> int:
        return 1 + int(problem[BOXES])

    def encode(self, record: dict[str, Any]) -> np.ndarray:
        rows = _checked_rows(record)
        width, height = len(rows[0]), len(rows)
        cells = [(x, y, rows[y][x]) for x in range(width) for y in range(height)]
        workers = [pack(x, y) for x, y, mark in cells if mark in "@+"]
        boxes = [pack(x, y) for x, y, mark in cells if mark in "$*"]
        docks = [pack(x, y) for x, y, mark in cells if mark in ".+*"]
        if len(workers) != 1:
            raise TaskError(f"a level has one worker (@ or +); found {len(workers)}")
        if len(boxes) != len(docks):
            raise TaskError(f"a level has as many boxes as docks; found {len(boxes)} boxes and {len(docks)} docks")
        if self.tokens_format == "paper" and set(docks) & {*boxes, *workers}:
            raise TaskError(
                "the paper's tokens cannot express a box or the worker on a dock at the start (* or +); "
                "use --tokens-format full"
            )
        if opening := way_out(rows, unpack(workers[0])):
            raise TaskError(
                f"the level is open at column {opening[0]}, row {opening[1]}: walls must enclose the worker"
            )
        flags = [WALL if mark == "#" else DOCK if mark in ".+*" else 0 for _, _, mark in cells]
        problem = np.array([width, height, len(boxes), *workers, *boxes, *docks, *flags], dtype=np.int32)
        mark_stuck(problem)
        return problem

    def decode(self, problem: np.ndarray) -> dict[str, Any]:
        return {"level": self.draw(problem).split("\n")}

    def build(self, groups: Groups) -> np.ndarray:
        rows = [[FLOOR] * self.width for _ in range(self.height)]
        marks = {"worker": "@", "box": "$", "dock": ".", "wall": "#"}
        for word, (x, y) in groups:
            mark = {"@.": "+", "$.": "*"}.get(rows[y][x] + marks[word or ""], marks[word or ""])
            if rows[y][x] != FLOOR and mark not in "+*":
                raise TaskError(f"two things at column {x}, row {y}: {rows[y][x]!r} and {mark!r}")
            rows[y][x] = mark
        return self.encode({"level": ["".join(row) for row in rows]})

    def symmetric(self, problem: np.ndarray) -> list[np.ndarray]:
        rows = self.decode(problem)["level"]
        images = []
        for width, height, move in symmetries(len(rows[0]), len(rows)):
            turned = [[FLOOR] * width for _ in range(height)]
            for y, row in enumerate(rows):
                for x, mark in enumerate(row):
                    new_x, new_y = move(x, y)
                    turned[new_y][new_x] = mark
            images.append(self.encode({"level": ["".join(row) for row in turned]}))
        return images

    def draw(self, problem: np.ndarray, state: np.ndarray | None = None) -> str:
        boxes = int(problem[BOXES])
        cells = problem[WORKER : FIRST_BOX + boxes] if state is None else state
        rows = []
        for y in range(problem[HEIGHT]):
            row = ""
            for x in range(problem[WIDTH]):
                bits, cell = flag(problem, pack(x, y)), pack(x, y)
                mark = "#" if bits & WALL else "@" if cell == cells[0] else "$" if cell in cells[1:] else FLOOR
                row += {"@": "+", "$": "*", FLOOR: "."}[mark] if bits & DOCK else mark
            rows.append(row)
        return "\n".join(rows)

    def measure(self, problem: np.ndarray) -> dict[str, int]:
        return {"width": int(problem[WIDTH]), "height": int(problem[HEIGHT]), "boxes": int(problem[BOXES])}

    def moves(self, problem: np.ndarray, plan: np.ndarray) -> str:
        """Letters as in a maze, capitals for pushes."""
        letters = [LETTERS[step] for step in np.diff(plan[:, 0]).tolist()]
        pushes = (plan[1:, 1:] != plan[:-1, 1:]).any(axis=1).tolist()
        return "".join(letter.upper() if push else letter for letter, push in zip(letters, pushes, strict=True))

    @property
    def shapes(self) -> Shapes:
        cell = (self.width, self.height)
        least = self.boxes if self.tokens_format == "full" else 0
        worker, box = Group("worker", cell), Group("box", cell, least=least, most=self.boxes)
        dock = Group("dock", cell, least=least, most=self.boxes)
        walls = Group("wall", cell, least=0, most=self.width * self.height)
        return Shapes(prompt=(worker, box, dock, walls), state=(worker, box), plan=(Group(None, cell),))


def _checked_rows(record: dict[str, Any]) -> list[str]:
    """The level's rows, padded to a rectangle, floor written as a space."""
    rows = record.get("level")
    if not isinstance(rows, list) or not rows or not all(isinstance(row, str) for row in rows):
        raise TaskError('a Sokoban task needs "level": a list of rows of text')
    width = max(map(len, rows))
    if not 0 < width <= LARGEST or len(rows) > LARGEST:
        raise TaskError(f"a level has 1 to {LARGEST} rows and columns; found {len(rows)} rows, {width} columns")
    for y, row in enumerate(rows):
        for x, mark in enumerate(row):
            if mark not in CHARACTERS:
                raise TaskError(f"row {y}, column {x}: expected one of {CHARACTERS!r}; found {mark!r}")
    return [row.replace("-", FLOOR).replace("_", FLOOR).ljust(width) for row in rows]
