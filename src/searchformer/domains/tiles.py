"""The sliding-tile puzzle: slide tiles into the blank until 1, 2, 3, ... stand in order, the blank last."""

from typing import ClassVar

import numpy as np
from pydantic import Field

from searchformer.domains.base import Domain, Group, Groups, Rules, Shapes, TaskError
from searchformer.seeding import below

# problem = [width, height, tiles row by row, 0 for the blank]; state = [tiles row by row]


def successors(problem, state, children):
    width, height, blank, count = problem[0], problem[1], np.argmin(state), 0
    for step_x, step_y in ((0, -1), (0, 1), (-1, 0), (1, 0)):
        x, y = blank % width + step_x, blank // width + step_y
        if 0 <= x < width and 0 <= y < height:
            children[count] = state
            children[count, blank], children[count, y * width + x] = state[y * width + x], 0
            count += 1
    return count


def heuristic(problem, state):
    width, total = problem[0], 0
    for index in range(len(state)):
        home = state[index] - 1
        if home >= 0:
            total += abs(index % width - home % width) + abs(index // width - home // width)
    return total


def write_state(problem, state, tokens):
    tokens[: len(state)] = state
    return len(state)


def write_prompt(problem, tokens):
    tokens[0] = -1  # the first of the domain's words
    return 1 + write_state(problem, problem[2:], tokens[1:])


def sample_task(settings, stream, problem):
    problem[0], problem[1], cells = settings[0], settings[1], settings[0] * settings[1]
    problem[2:] = np.arange(1, cells + 1) % cells
    children = np.empty((4, cells), dtype=np.int32)
    for _ in range(settings[2]):
        problem[2:] = children[below(stream, successors(problem, problem[2:], children))]
    return heuristic(problem, problem[2:]) > 0


class Tiles(Domain):
    """Slide tiles into order. Tasks are drawn by random slides from the goal."""

    name: ClassVar[str] = "tiles"
    marks: ClassVar[dict[str, str]] = {".": "gap"}
    words: ClassVar[tuple[str, ...]] = ("tiles",)
    rules: ClassVar[Rules] = Rules(successors, heuristic, write_prompt, write_state, sample_task)
    width: int = Field(3, ge=2, le=16, description="tiles from left to right")
    height: int = Field(3, ge=2, le=16, description="tiles from top to bottom")
    slides: int = Field(30, ge=1, description="random slides from the goal to the start")
    max_cost: int | None = Field(127, ge=1, description="highest cost token")

    @property
    def shapes(self) -> Shapes:
        board = (self.width * self.height,) * (self.width * self.height)
        return Shapes(prompt=(Group("tiles", board),), state=(Group(None, board),), plan=(Group(None, board),))

    def build(self, groups: Groups) -> np.ndarray:
        tiles = groups[0][1]
        if sorted(tiles) != list(range(len(tiles))):
            raise TaskError(f"a puzzle has each of the numbers 0, 1, 2, ... once; found {tiles}")
        return np.array([self.width, self.height, *tiles], dtype=np.int32)

    def draw(self, problem: np.ndarray, state: np.ndarray | None = None) -> str:
        rows = (problem[2:] if state is None else state).reshape(problem[1], problem[0])
        return "\n".join(" ".join(f"{tile or '.':>2}" for tile in row) for row in rows)
