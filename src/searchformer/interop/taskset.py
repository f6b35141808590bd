"""Planning tasks as a taskset of `verifiers`, with our judge's four parts as rewards. Needs the extra `verifiers`.

Installed, it has the id `searchformer-taskset`; its settings are those of `PlanningQuestions`.
"""

import asyncio
import threading
from collections.abc import Iterable
from typing import Any

import verifiers.v1 as vf

from searchformer.interop.verifier import (
    PLAN_WEIGHTS,
    SEARCH_WEIGHTS,
    PlanningQuestions,
    RewardParts,
    reward_parts,
)


class PlanningData(vf.TaskData):
    """A question, with the task that it is about."""

    domain: str
    record: dict[str, Any]
    """The task in JSON."""
    search: bool = False
    """Whether the answer is to show its search."""
    optimal_moves: int | None = None


class PlanningTask(vf.Task[PlanningData]):
    """Scores a reply by replaying its plan and its search."""

    @vf.reward
    async def planning(self, trace: vf.Trace) -> float:
        """The weighted sum of the parts."""
        weights = SEARCH_WEIGHTS if self.data.search else PLAN_WEIGHTS
        return (await self._parts(trace)).weighted(weights)

    @vf.metric
    async def parts(self, trace: vf.Trace) -> dict[str, float]:
        """Plan optimal, plan valid, trace sound, search length."""
        return vars(await self._parts(trace))

    async def _parts(self, trace: vf.Trace) -> RewardParts:
        return await asyncio.to_thread(_score, trace.last_reply, self.data)  # meanwhile other rollouts go on


def _score(reply: str, data: PlanningData) -> RewardParts:
    with _ONE_AT_A_TIME:  # the judge's memory is not for several threads
        return reward_parts(reply, data.record, domain=data.domain)


_ONE_AT_A_TIME = threading.Lock()


class PlanningConfig(vf.TasksetConfig):
    """Which tasks."""

    domain: str = "maze"
    """maze or sokoban."""
    width: int = 6
    height: int = 6
    size: int = 100
    """Number of tasks."""
    seed: int = 0
    search: bool = False
    """Ask for the search, too."""
    tasks: str | None = None
    """A file of tasks, in place of random ones."""


class PlanningTaskset(vf.Taskset[PlanningTask, PlanningConfig]):
    """Random mazes or Sokoban levels, or those of a file."""

    def load(self) -> Iterable[PlanningTask]:
        """One task after the other."""
        config = self.config
        size = {"width": config.width, "height": config.height}
        questions = PlanningQuestions(
            config.domain, size=config.size, seed=config.seed, settings=size, tasks=config.tasks, search=config.search
        )
        for entry in questions:
            known = entry["metadata"]
            data = PlanningData(
                prompt=entry["question"],
                domain=config.domain,
                record=known["task"],
                search=config.search,
                optimal_moves=known["optimal_moves"],
            )
            yield PlanningTask(data, config.task)
