"""Mazes: from start to goal in a grid with walls, one step up, down, left or right at a time (paper, section 3).

In: width, height. Out: tasks such as `start 0 2 goal 2 1 wall 2 0 ...`.
Try: `searchformer generate maze --tasks 5 --out d`.
"""

from typing import Any, ClassVar

import numpy as np
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from searchformer.domains.base import Domain, Group, Groups, Rules, Shapes, TaskError
from searchformer.domains.grid import LARGEST, LETTERS, LOW, SHIFT, pack, point, symmetries, unpack, whole_number
from searchformer.errors import shown
from searchformer.seeding import below

# problem = [width, height, start cell, goal cell, then 1 for a wall and 0 for a free cell, row by row]
WIDTH, HEIGHT, START, GOAL, GRID = 0, 1, 2, 3, 4
SMALLEST = 2  # of the settings, which begin with width and height too
WORD_START, WORD_GOAL, WORD_WALL = -1, -2, -3


def start(problem, state):
    state[0] = problem[START]


def successors(problem, state, children):
    width, height = problem[WIDTH], problem[HEIGHT]
    cell = state[0]
    x, y = cell >> SHIFT, cell & LOW
    index = GRID + y * width + x
    count = 0
    if y + 1 < height and problem[index + width] == 0:
        children[count, 0] = cell + 1
        count += 1
    if y > 0 and problem[index - width] == 0:
        children[count, 0] = cell - 1
        count += 1
    if x > 0 and problem[index - 1] == 0:
        children[count, 0] = cell - (1 << SHIFT)
        count += 1
    if x + 1 < width and problem[index + 1] == 0:
        children[count, 0] = cell + (1 << SHIFT)
        count += 1
    return count


def heuristic(problem, state):
    goal = problem[GOAL]
    return abs((state[0] >> SHIFT) - (goal >> SHIFT)) + abs((state[0] & LOW) - (goal & LOW))


def is_goal(problem, state):
    return state[0] == problem[GOAL]


def tie_rank(problem, state):
    return (state[0] >> SHIFT) + 100000 * (state[0] & LOW)


def state_index(problem, state):
    return (state[0] & LOW) * problem[WIDTH] + (state[0] >> SHIFT)


def write_prompt(problem, tokens):
    width, height = problem[WIDTH], problem[HEIGHT]
    tokens[0] = WORD_START
    tokens[1] = problem[START] >> SHIFT
    tokens[2] = problem[START] & LOW
    tokens[3] = WORD_GOAL
    tokens[4] = problem[GOAL] >> SHIFT
    tokens[5] = problem[GOAL] & LOW
    count = 6
    for y in range(height):
        for x in range(width):
            if problem[GRID + y * width + x] == 1:
                tokens[count] = WORD_WALL
                tokens[count + 1] = x
                tokens[count + 2] = y
                count += 3
    return count


def write_state(problem, state, tokens):
    tokens[0] = state[0] >> SHIFT
    tokens[1] = state[0] & LOW
    return 2


def sample_layout(settings, stream, problem):
    width, height, smallest = settings[WIDTH], settings[HEIGHT], settings[SMALLEST]
    problem[WIDTH], problem[HEIGHT] = width, height
    problem[GRID : GRID + width * height] = 0
    inner_width, inner_height = width, height
    if smallest > 0:
        inner_width, inner_height = _side(smallest, width, stream), _side(smallest, height, stream)
        for y in range(height):
            for x in range(width):
                if x >= inner_width or y >= inner_height:
                    problem[GRID + y * width + x] = 1
    cells = inner_width * inner_height
    tenth = cells // 10
    walls = 3 * tenth + below(stream, 2 * tenth + 1)
    while walls > 0:
        index = below(stream, cells)
        cell = GRID + index // inner_width * width + index % inner_width
        if problem[cell] == 0:
            problem[cell] = 1
            walls -= 1
    return True


def _side(smallest, largest, stream):
    """The larger of two draws: large mazes are harder to learn, so more of them are drawn."""
    choices = largest - smallest + 1
    return smallest + max(below(stream, choices), below(stream, choices))


def _free_cell(width, height, stream, problem):
    while True:
        index = below(stream, width * height)
        if problem[GRID + index] == 0:
            return (index % width) << SHIFT | index // width


def sample_task(settings, stream, problem):
    width, height = settings[WIDTH], settings[HEIGHT]
    problem[START] = _free_cell(width, height, stream, problem)
    problem[GOAL] = _free_cell(width, height, stream, problem)
    return True


def foresee(problem):
    """Nodes of the shortest plan, by flooding the maze from the start."""
    width, height = problem[WIDTH], problem[HEIGHT]
    edge = width + 2  # a border of walls saves the tests for the edge
    free = np.zeros(edge * (height + 2), dtype=np.uint8)
    for y in range(height):
        for x in range(width):
            free[(y + 1) * edge + x + 1] = 1 - problem[GRID + y * width + x]
    goal = ((problem[GOAL] & LOW) + 1) * edge + (problem[GOAL] >> SHIFT) + 1
    reached = np.empty(width * height + 1, dtype=np.int32)
    reached[0] = ((problem[START] & LOW) + 1) * edge + (problem[START] >> SHIFT) + 1
    free[reached[0]] = 0
    begin, end, nodes = 0, 1, 1
    while free[goal] and begin < end:
        nodes += 1
        for index in range(begin, end):
            for step in (edge, -edge, -1, 1):
                cell = reached[index] + step
                reached[end] = cell  # overwritten unless the cell is free
                end += int(free[cell])  # not uint8, which plain Python would keep and overflow
                free[cell] = 0
        begin = index + 1
    return 0 if free[goal] else nodes


def accepts(problem, plan_nodes):
    return plan_nodes >= max(problem[WIDTH], problem[HEIGHT])


def accepts_walled_in(problem, plan_nodes):
    """As `accepts`, for the part of the grid that has free cells."""
    width, height = problem[WIDTH], problem[HEIGHT]
    side = 0
    for y in range(height):
        for x in range(width):
            if problem[GRID + y * width + x] == 0:
                side = max(side, x + 1, y + 1)
    return plan_nodes >= side


RULES = Rules(
    start=start,
    successors=successors,
    heuristic=heuristic,
    is_goal=is_goal,
    tie_rank=tie_rank,
    state_index=state_index,
    write_prompt=write_prompt,
    write_state=write_state,
    write_plan=write_state,
    sample_layout=sample_layout,
    sample_task=sample_task,
    foresee=foresee,
    accepts=accepts,
)
WALLED_IN = RULES._replace(accepts=accepts_walled_in)


class Maze(Domain):
    """Shortest paths in a grid with walls."""

    name: ClassVar[str] = "maze"
    words: ClassVar[tuple[str, ...]] = ("start", "goal", "wall")
    marks: ClassVar[dict[str, str]] = {"S": "start", "G": "goal", "#": "wall"}
    shares_layouts: ClassVar[bool] = True

    width: int = Field(10, ge=2, le=LARGEST, description="cells from left to right")
    height: int = Field(10, ge=2, le=LARGEST, description="cells from top to bottom")
    smallest: int | None = Field(
        None, ge=2, le=LARGEST, description="draw each side from this up to the full size, and fill the rest with walls"
    )

    @model_validator(mode="after")
    def _smallest_fits(self) -> "Maze":
        if self.smallest is not None and self.smallest > min(self.width, self.height):
            raise ValueError(f"smallest is {self.smallest}, more than a side of {self.width} x {self.height} cells")
        return self

    @model_serializer(mode="wrap")
    def _without_what_is_not_set(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Data sets of one size describe themselves as they did before there were others."""
        settings = dump(self)
        return settings if self.smallest is not None else {k: v for k, v in settings.items() if k != "smallest"}

    @property
    def rules(self) -> Rules:
        return RULES if self.smallest is None else WALLED_IN

    @property
    def costs(self) -> int:
        return 1 + self.max_cost if self.max_cost else self.width * self.height

    def problem_size(self) -> int:
        return GRID + self.width * self.height

    def state_size(self, problem: np.ndarray) -> int:
        return 1

    def encode(self, record: dict[str, Any]) -> np.ndarray:
        for field in ("width", "height", "start", "goal", "walls"):
            if field not in record:
                raise TaskError(f"a maze needs width, height, start, goal and walls; {shown(field)} is missing")
        width = whole_number(record["width"], what="width", least=1, most=LARGEST)
        height = whole_number(record["height"], what="height", least=1, most=LARGEST)
        problem = np.zeros(GRID + width * height, dtype=np.int32)
        problem[WIDTH], problem[HEIGHT] = width, height
        if not isinstance(record["walls"], list):
            raise TaskError(f"walls must be a list of [x, y]; found {shown(record['walls'])}")
        for number, wall in enumerate(record["walls"]):
            x, y = point(wall, what=f"wall {number}", width=width, height=height)
            problem[GRID + y * width + x] = 1
        for index, field in ((START, "start"), (GOAL, "goal")):
            x, y = point(record[field], what=field, width=width, height=height)
            if problem[GRID + y * width + x]:
                raise TaskError(f"{field} [{x}, {y}] is a wall")
            problem[index] = pack(x, y)
        return problem

    def decode(self, problem: np.ndarray) -> dict[str, Any]:
        width, height = int(problem[WIDTH]), int(problem[HEIGHT])
        walls = np.flatnonzero(problem[GRID:]).tolist()
        return {
            "width": width,
            "height": height,
            "start": list(unpack(problem[START])),
            "goal": list(unpack(problem[GOAL])),
            "walls": [[index % width, index // width] for index in walls],
        }

    def build(self, groups: Groups) -> np.ndarray:
        found: dict[str | None, list[list[int]]] = {"start": [], "goal": [], "wall": []}
        for word, values in groups:
            found[word].append(list(values))
        size = {"width": self.width, "height": self.height}
        return self.encode(size | {"start": found["start"][0], "goal": found["goal"][0], "walls": found["wall"]})

    def fitted(self, problem: np.ndarray) -> np.ndarray:
        width, height = int(problem[WIDTH]), int(problem[HEIGHT])
        if self.smallest is None or width > self.width or height > self.height:
            return problem
        grid = np.ones((self.height, self.width), dtype=np.int32)
        grid[:height, :width] = problem[GRID:].reshape(height, width)
        return np.concatenate([[self.width, self.height], problem[START:GRID], grid.ravel()]).astype(np.int32)

    def layout(self, problem: np.ndarray) -> np.ndarray:
        return np.delete(problem, (START, GOAL), axis=-1)

    def symmetric(self, problem: np.ndarray) -> list[np.ndarray]:
        width, height = int(problem[WIDTH]), int(problem[HEIGHT])
        grid = problem[GRID:].reshape(height, width)
        images = []
        for new_width, new_height, move in symmetries(width, height):
            ends = [pack(*move(*unpack(problem[index]))) for index in (START, GOAL)]
            turned = np.zeros((new_height, new_width), dtype=np.int32)
            for y, x in zip(*np.nonzero(grid), strict=True):
                new_x, new_y = move(int(x), int(y))
                turned[new_y, new_x] = 1
            images.append(np.concatenate([[new_width, new_height, *ends], turned.ravel()]).astype(np.int32))
        return images

    def draw(self, problem: np.ndarray, state: np.ndarray | None = None) -> str:
        width, height = int(problem[WIDTH]), int(problem[HEIGHT])
        rows = [["#" if problem[GRID + y * width + x] else "." for x in range(width)] for y in range(height)]
        marks = [(problem[GOAL], "G"), (problem[START], "S")]
        if state is not None:
            marks.append((state[0], "o"))
        for cell, mark in marks:
            x, y = unpack(cell)
            rows[y][x] = mark
        return "\n".join(" ".join(row) for row in rows)

    def measure(self, problem: np.ndarray) -> dict[str, int]:
        return {"width": int(problem[WIDTH]), "height": int(problem[HEIGHT])}

    def moves(self, problem: np.ndarray, plan: np.ndarray) -> str:
        return "".join(LETTERS[step] for step in np.diff(plan[:, 0]).tolist())

    @property
    def shapes(self) -> Shapes:
        cell = (self.width, self.height)
        walls = Group("wall", cell, least=0, most=self.width * self.height)
        prompt = (Group("start", cell), Group("goal", cell), walls)
        return Shapes(prompt, state=(Group(None, cell),), plan=(Group(None, cell),))
