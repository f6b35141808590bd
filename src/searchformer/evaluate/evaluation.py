"""Judges and scores a directory of rollouts.

In: what `searchformer rollout` wrote. Out, beside it: `verdicts.parquet` (a row per answer), `astar.parquet` (how long
A* itself searches and how much it leaves to chance, from repeated non-deterministic runs) and `metrics.json`. Try:
`searchformer evaluate DIR`.
"""

import random
from collections.abc import Generator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from searchformer.dataset.store import write_table
from searchformer.digests import require_recorded
from searchformer.display import Display
from searchformer.domains import Domain
from searchformer.engines.base import Engine, results_in_order
from searchformer.engines.local import LocalEngine
from searchformer.errors import SearchformerError
from searchformer.evaluate.metrics import Ratio, Scores, resample, score
from searchformer.evaluate.verdicts import WRITER, verdicts_of
from searchformer.files import write_json
from searchformer.rollout.store import Rollouts, read_answers
from searchformer.search import Options, Searcher
from searchformer.search.hindsight import LUCKY, without_some
from searchformer.search.shortest import shortest_search_length
from searchformer.search.world import World
from searchformer.seeding import child_seed
from searchformer.tokens.entropy import search_nats
from searchformer.tokens.grammar import write_text

ASTAR_RUNS = 64
ENTROPY_RUNS = 8
"""The first of A*'s runs per task, which its entropy is averaged over."""
ASTAR = pa.schema(
    [
        ("task_id", pa.string()),
        ("lengths", pa.list_(pa.int32())),
        ("shortest", pa.int32()),
        ("nats", pa.float64()),
    ]
)
"""Columns of `astar.parquet`."""
WEIGHTS = (1.5, 2.0, 4.0)
"""Of the heuristic in weighted A*."""
REFERENCE_RUNS = 8
"""Of other searches per task, whose lengths are averaged."""
TASKS_AT_ONCE = 256
PLAIN = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "prefix": "", "constrain": False}
"""Options of answers drawn from the model's own distribution, whose mean log-probability is minus its entropy."""
IMITABLE = {"algorithm": "astar", "deterministic": False}
"""The data whose entropy is in `astar.parquet`."""


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
    scores = Scores.from_tables(
        verdicts,
        astar,
        task_ids=sorted(rollouts.problems),
        samples=rollouts.config["samples"],
        imitations=_imitations(rollouts),
    )
    metrics = {"run": rollouts.config, "rule": "paper" if paper else "strict", **score(scores)}
    metrics["references"] = _references(rollouts, scores)
    write_json(directory / f"metrics{'-paper' if paper else ''}.json", metrics)
    return metrics


def _astar_lengths(rollouts: Rollouts, engine: Engine, workers: int | None, *, runs: int) -> pa.Table:
    """For every task, trace tokens of `runs` non-deterministic A* searches, whatever the data's algorithm, and of the
    shortest true search, and the searches' entropy. They are kept in `astar.parquet`.
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
        rows = [row for part in results_in_order(crew, items) for row in part]
    table = pa.Table.from_pylist(rows, schema=ASTAR)
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
        self.rollouts, self.seeds = Rollouts.open(directory), [child_seed(run, "astar", 0) for run in range(runs)]
        self.searcher = Searcher(self.rollouts.domain)

    def __call__(self, tasks: SomeTasks) -> Generator[None, None, list[dict[str, Any]]]:
        """Returns the rows of these tasks."""
        yield from ()
        return [self._row(task) for task in tasks.task_ids]

    def _row(self, task: str) -> dict[str, Any]:
        problem = self.rollouts.problems[task]
        nodes = len(self.searcher.search(problem, record=False).plan)
        shortest = shortest_search_length(self.rollouts.domain, problem, plan_nodes=nodes)
        lengths = [self.searcher.trace_length(problem, seed=seed) for seed in self.seeds]
        nats = [search_nats(self.searcher.search(problem, seed=seed)) for seed in self.seeds[:ENTROPY_RUNS]]
        return {"task_id": task, "lengths": lengths, "shortest": shortest, "nats": float(np.mean(nats))}


def _read_astar(path: Path) -> pa.Table | None:
    """What an earlier evaluation kept; None if it is missing or damaged."""
    try:
        require_recorded(path, repair="")
        return pq.read_table(path, columns=ASTAR.names)
    except (OSError, pa.ArrowException, SearchformerError):
        return None


def _imitations(rollouts: Rollouts) -> pa.Table | None:
    """The log-probability of every answer, if that is to be compared with the entropy of A*'s searches."""
    if any(rollouts.config.get(name) != value for name, value in (PLAIN | IMITABLE).items()):
        return None
    tables = list(read_answers(rollouts.directory, ["task_id", "sample", "log_probability"]))
    return pa.concat_tables(tables) if tables else None


def _references(rollouts: Rollouts, scores: Scores) -> list[dict[str, Any]]:
    """What weighted A* and a lucky A* take, as a share of A*'s search, and how often their plan is optimal."""
    tasks = sorted(rollouts.problems)
    astar = scores.astar_lengths.mean(axis=1)
    found = []
    for weight in WEIGHTS:
        searcher = Searcher(rollouts.domain, Options(algorithm="weighted", weight=weight))
        lengths, optimal = np.zeros(len(tasks)), np.zeros(len(tasks))
        for row, task in enumerate(tasks):
            seeds = [child_seed(run, "weighted", 0) for run in range(REFERENCE_RUNS)]
            plans = [len(searcher.search(rollouts.problems[task], seed=seed, record=False).plan) for seed in seeds]
            optimal[row] = np.mean(np.array(plans) == scores.optimal_length[row])
            lengths[row] = np.mean([searcher.trace_length(rollouts.problems[task], seed=seed) for seed in seeds])
        share, ratio = resample([Ratio(optimal, np.ones(len(tasks))), Ratio(lengths, astar)])
        found.append({"algorithm": "weighted", "weight": weight, "optimal": vars(share), "length": vars(ratio)})
    lucky = np.array([_lucky_length(rollouts.domain, rollouts.problems[task]) for task in tasks])
    share, ratio = resample([Ratio(np.ones(len(tasks)), np.ones(len(tasks))), Ratio(lucky, astar)])
    return [*found, {"algorithm": "lucky", "weight": 1.0, "optimal": vars(share), "length": vars(ratio)}]


def _lucky_length(domain: Domain, problem: np.ndarray) -> float:
    """The mean trace length of an A* that closes, among nodes with the goal's f, only those on its way to the goal."""
    searcher, world, lengths = Searcher(domain), World(domain, problem), []
    for run in range(REFERENCE_RUNS):
        seed = child_seed(run, "lucky", 0)
        _, trace, plan = write_text(domain, problem, searcher.search(problem, seed=seed))
        answer = f"{trace} {plan}".split()
        lucky = without_some(world, answer, LUCKY, chance=random.Random(seed))  # noqa: S311
        lengths.append((lucky or answer).index("plan"))
    return float(np.mean(lengths))
