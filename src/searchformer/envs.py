"""Mazes and Sokoban as Gymnasium environments: `gymnasium.make("searchformer.envs:searchformer/Maze-v0")`.

An action is a move: 0 up, 1 down, 2 left, 3 right; one that is blocked changes nothing. Every step costs 1, so that the
best return is minus the length of a shortest plan. An observation is the grid, a number per cell (`SYMBOLS`). Tasks are
drawn as `searchformer generate` draws them, or taken from a data set or a file. Needs the extra `gym`.
"""

from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces

from searchformer.dataset.store import MANIFEST, Dataset
from searchformer.domains import make_domain
from searchformer.errors import SearchformerError
from searchformer.interop.tasks import usable_tasks
from searchformer.search import Searcher
from searchformer.search.world import World, as_array
from searchformer.solve import Task, make_task, random_task

ACTIONS = "udlr"
WALL = "#"
MAX_STEPS = 500
PIXELS = 16
"""Pixels of a cell's side in `rgb_array`."""


class PlanningEnv(gymnasium.Env[np.ndarray, np.int64]):
    """A task of one domain: reset draws it, step moves."""

    metadata = {"render_modes": ["ansi", "rgb_array"], "render_fps": 8}  # noqa: RUF012 - as in gymnasium's own
    domain_name: ClassVar[str]
    SYMBOLS: ClassVar[str]
    """What the numbers of an observation stand for, as `Domain.draw` draws it."""
    COLOURS: ClassVar[tuple[tuple[int, int, int], ...]]

    def __init__(
        self,
        tasks: str | Path | None = None,
        *,
        split: str = "train",
        max_steps: int = MAX_STEPS,
        render_mode: str | None = None,
        **settings: Any,
    ) -> None:
        """`tasks` is a data set (of which `split` is used) or a file of tasks; without it, tasks are drawn at random.

        `settings` are the domain's: width, height, boxes. An episode is cut after `max_steps`.
        """
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise SearchformerError(f"render_mode is ansi or rgb_array; found {render_mode!r}")
        self.render_mode, self.max_steps = render_mode, max_steps
        self.domain = make_domain(self.domain_name, settings)
        self.tasks = self._read(Path(tasks), split) if tasks is not None else []
        sizes = [task.domain.measure(task.problem) for task in self.tasks] or [self.domain.model_dump()]
        self.shape = max(size["height"] for size in sizes), max(size["width"] for size in sizes)
        self.observation_space = spaces.Box(0, len(self.SYMBOLS) - 1, self.shape, np.uint8)
        self.action_space = spaces.Discrete(len(ACTIONS))
        self._codes = np.zeros(128, dtype=np.uint8)
        for code, symbol in enumerate(self.SYMBOLS):
            self._codes[ord(symbol)] = code
        self.task: Task | None = None

    def _read(self, path: Path, split: str) -> list[Task]:
        """The tasks of a data set or file; faulty ones are left out, with a warning."""
        if not (path / MANIFEST).exists():
            return usable_tasks(str(path), domain=self.domain_name)
        dataset = Dataset(path)
        self.domain = make_domain(dataset.manifest.domain, dataset.manifest.settings)
        rows = dataset.records(split, ["prompt"])
        problems = [self.domain.parse_prompt(dataset.vocabulary.decode(row["prompt"])) for row in rows]
        found = [Task(self.domain, problem) for problem in problems]
        if not found or found[0].domain.name != self.domain_name:
            raise SearchformerError(f"{path} holds no tasks of {self.domain_name}")
        return found

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin a task: a drawn one, or the one with the number or JSON object in `options["task"]`."""
        super().reset(seed=seed)
        asked = (options or {}).get("task")
        if isinstance(asked, dict):
            self.task = make_task(asked, name=self.domain_name)
        elif self.tasks:
            number = int(self.np_random.integers(len(self.tasks))) if asked is None else int(asked)
            self.task = self.tasks[number]
        else:
            self.task = random_task(self.domain, seed=int(self.np_random.integers(1 << 31)))
        size = self.task.domain.measure(self.task.problem)
        if size["height"] > self.shape[0] or size["width"] > self.shape[1]:
            raise SearchformerError(f"a task of this environment has at most {self.shape[1]} x {self.shape[0]} cells")
        self.world = World(self.task.domain, self.task.problem)
        self.state, self.steps = self.world.start(), 0
        return self._observe(), {"task": self.task.domain.decode(self.task.problem)}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Make a move."""
        assert self.task is not None, "call reset first"
        before = self.state
        for child in self.world.successors(self.state):
            moved = self.task.domain.moves(self.task.problem, np.array([self.state, child], dtype=np.int32))
            if moved is not None and moved.lower() == ACTIONS[int(action)]:
                self.state = child
                break
        self.steps += 1
        solved = self.world.is_goal(self.state)
        cut = self.steps >= self.max_steps and not solved
        return self._observe(), -1.0, solved, cut, {"blocked": self.state == before}

    def _drawing(self) -> str:
        assert self.task is not None, "call reset first"
        return self.task.domain.draw(self.task.problem, as_array(self.state))

    def _observe(self) -> np.ndarray:
        """The grid as numbers, with walls where the task is smaller than the largest one."""
        grid = np.full(self.shape, self.SYMBOLS.index(WALL), dtype=np.uint8)
        stride = 2 if self.domain_name == "maze" else 1  # mazes are drawn with spaces between cells
        for y, row in enumerate(self._drawing().split("\n")):
            cells = np.frombuffer(row[::stride].encode(), dtype=np.uint8)
            grid[y, : len(cells)] = self._codes[cells]
        return grid

    def render(self) -> Any:
        """The grid as text, or as an image, uint8 [height, width, 3]."""
        if self.render_mode == "ansi":
            return self._drawing()
        if self.render_mode == "rgb_array":
            image = np.array(self.COLOURS, dtype=np.uint8)[self._observe()]
            return image.repeat(PIXELS, axis=0).repeat(PIXELS, axis=1)
        return None

    def best_actions(self) -> list[int]:
        """The moves of a shortest plan from the task's start, by A*; none if there is no plan."""
        assert self.task is not None, "call reset first"
        found = Searcher(self.task.domain).search(self.task.problem, record=False)
        moves = self.task.domain.moves(self.task.problem, found.plan) if found.solvable else ""
        return [ACTIONS.index(letter) for letter in (moves or "").lower()]


class MazeEnv(PlanningEnv):
    """From start to goal in a grid with walls."""

    domain_name = "maze"
    SYMBOLS = ".#GoS"
    COLOURS = ((240, 240, 240), (40, 40, 48), (46, 160, 67), (31, 111, 235), (200, 215, 240))


class SokobanEnv(PlanningEnv):
    """Push every box onto a dock."""

    domain_name = "sokoban"
    SYMBOLS = " #.@+$*"
    COLOURS = (
        (240, 240, 240),
        (40, 40, 48),
        (250, 200, 90),
        (31, 111, 235),
        (90, 150, 235),
        (150, 95, 50),
        (46, 160, 67),
    )


for _name, _class in (("Maze", MazeEnv), ("Sokoban", SokobanEnv)):
    gymnasium.register(f"searchformer/{_name}-v0", entry_point=_class)
