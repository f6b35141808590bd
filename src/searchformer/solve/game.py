"""A task to play: moves in, the state on the way to the goal out, with undo, hints, and the optimum to compare with.

Any domain that calls its moves u, d, l and r can be played. Try: `searchformer play --random sokoban:7x7`.
"""

import numpy as np

from searchformer.domains.grid import unpack
from searchformer.errors import SearchformerError
from searchformer.search import Options, Searcher
from searchformer.search.world import State, World, as_array
from searchformer.solve.tasks import Task, make_task


class Game:
    """One task being played."""

    def __init__(self, task: Task, *, options: Options | None = None) -> None:
        self.task, self.world = task, World(task.domain, task.problem)
        self.options = options or Options(max_expansions=1_000_000)
        self.states = [self.world.start()]
        self.hints = 0
        if self._letter(self.world.start(), self.world.successors(self.world.start())[:1]) is None:
            raise SearchformerError(f"tasks of {task.domain.name} cannot be played: their moves have no names")

    @property
    def state(self) -> State:
        """Where the game stands."""
        return self.states[-1]

    @property
    def moves(self) -> int:
        """Moves made."""
        return len(self.states) - 1

    @property
    def solved(self) -> bool:
        """Whether the goal is reached."""
        return self.world.is_goal(self.state)

    def move(self, letter: str) -> bool:
        """Go u, d, l or r; False if that is not possible."""
        for child in self.world.successors(self.state):
            if (self._letter(self.state, [child]) or "").lower() == letter and not self.solved:
                self.states.append(child)
                return True
        return False

    def _letter(self, state: State, children: list[State]) -> str | None:
        """What the move to the first of some states is called."""
        if not children:
            return ""
        return self.task.domain.moves(self.task.problem, np.array([state, children[0]], dtype=np.int32))

    def undo(self) -> None:
        """Take the last move back."""
        if self.moves:
            self.states.pop()

    def restart(self) -> None:
        """Begin again."""
        self.states, self.hints = self.states[:1], 0

    def best_moves(self) -> str | None:
        """The moves of a shortest plan from here; None if there is none."""
        task = self._task_from_here()
        plan = Searcher(task.domain, self.options).search(task.problem, record=False).plan
        return task.domain.moves(task.problem, plan) if len(plan) else None

    def hint(self) -> str | None:
        """Make the next move of a shortest plan; returns it, or None if there is none."""
        best = None if self.solved else self.best_moves()
        if not best:
            return None
        self.hints += 1
        self.move(best[0].lower())
        return best[0]

    def picture(self) -> str:
        """The task as it stands."""
        return self.task.domain.draw(self.task.problem, as_array(self.state))

    def _task_from_here(self) -> Task:
        record = self.task.domain.decode(self.task.problem)
        if "start" in record:
            return make_task(record | {"start": list(unpack(self.state[0]))}, name=self.task.domain.name)
        return make_task({"level": self.picture().split("\n")}, name=self.task.domain.name)
