"""Judges and scores a directory of rollouts.

In: what `searchformer rollout` wrote. Out, beside it: `verdicts.parquet` (a row per answer), `astar.parquet` (what A*
itself takes, from repeated non-deterministic runs) and `metrics.json`. Try: `searchformer evaluate DIR`.
"""

from collections.abc import Generator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from searchformer.dataset.store import write_table
from searchformer.digests import require_recorded
from searchformer.display import Display
from searchformer.engines.base import Engine, results_in_order
from searchformer.engines.local import LocalEngine
from searchformer.errors import SearchformerError
from searchformer.evaluate.metrics import Scores, score
from searchformer.evaluate.verdicts import WRITER, verdicts_of
from searchformer.files import write_json
from searchformer.rollout.store import Rollouts
from searchformer.search import Searcher
from searchformer.seeding import child_seed

ASTAR_RUNS = 64
TASKS_AT_ONCE = 256


def evaluate(
    directory: Path,
    *,
    paper: bool = False,
    astar_runs: int = ASTAR_RUNS,
    display: Display | None = None,
    engine: Engine | None = None,
    workers: int | None = None,
) -> dict[str, Any]:
    """Judge every answer, score them, and write the results. With `paper`, into files named `-paper`."""
    rollouts = Rollouts.open(directory)
    verdicts = verdicts_of(rollouts, paper=paper, display=display, engine=engine, workers=workers)
    astar = _astar_lengths(rollouts, engine or LocalEngine(), workers, runs=astar_runs)
    scores = Scores.from_tables(verdicts, astar, task_ids=sorted(rollouts.problems), samples=rollouts.config["samples"])
    metrics = {"run": rollouts.config, "rule": "paper" if paper else "strict", **score(scores)}
    write_json(directory / f"metrics{'-paper' if paper else ''}.json", metrics)
    return metrics


def _astar_lengths(rollouts: Rollouts, engine: Engine, workers: int | None, *, runs: int) -> pa.Table:
    """Trace tokens of `runs` non-deterministic A* searches per task, whatever the data's algorithm.

    They are kept in `astar.parquet`.
    """
    path = rollouts.directory / "astar.parquet"
    tasks = sorted(rollouts.problems)
    stored = _read_astar(path)
    is_of_these = stored is not None and stored["task_id"].to_pylist() == tasks
    if stored is not None and is_of_these and all(len(row) == runs for row in stored["lengths"].to_pylist()):
        return stored
    items = [SomeTasks(tuple(tasks[first : first + TASKS_AT_ONCE])) for first in range(0, len(tasks), TASKS_AT_ONCE)]
    count = min(engine.worker_count(workers, default=1), max(len(items), 1))
    with engine.crew(partial(_AstarRuns, rollouts.directory, runs), workers=count) as crew:
        lengths = [row for part in results_in_order(crew, items) for row in part]
    table = pa.table({"task_id": tasks, "lengths": pa.array(lengths, type=pa.list_(pa.int32()))})
    write_table(table, path, writer=WRITER)
    return table


@dataclass(frozen=True)
class SomeTasks:
    """Tasks to be searched."""

    task_ids: tuple[str, ...]

    def __str__(self) -> str:
        return f"the search of task {self.task_ids[0]} and {len(self.task_ids) - 1} more"


class _AstarRuns:
    """What a worker does: searches tasks again and again."""

    def __init__(self, directory: Path, runs: int) -> None:
        self.rollouts, self.runs = Rollouts.open(directory), runs
        self.searcher = Searcher(self.rollouts.domain)

    def __call__(self, tasks: SomeTasks) -> Generator[None, None, list[list[int]]]:
        """Returns the lengths of each task's traces."""
        yield from ()
        seeds = [child_seed(run, "astar", 0) for run in range(self.runs)]
        problems = [self.rollouts.problems[task] for task in tasks.task_ids]
        return [[self.searcher.trace_length(problem, seed=seed) for seed in seeds] for problem in problems]


def _read_astar(path: Path) -> pa.Table | None:
    """What an earlier evaluation kept; None if it is missing or damaged."""
    try:
        require_recorded(path, repair="")
        return pq.read_table(path, columns=["task_id", "lengths"])
    except (OSError, pa.ArrowException, SearchformerError):
        return None
