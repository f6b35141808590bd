"""Judges and scores a directory of rollouts.

In: what `searchformer rollout` wrote. Out, beside it: `verdicts.parquet` (a row per answer), `astar.parquet` (what A*
itself takes, from repeated non-deterministic runs) and `metrics.json`. Try: `searchformer evaluate DIR`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from searchformer.domains import Domain, make_domain
from searchformer.errors import SearchformerError
from searchformer.evaluate.judge import Judge
from searchformer.evaluate.metrics import Scores, score
from searchformer.files import read_json, replacing, write_json
from searchformer.records import Verdict
from searchformer.search import Options, Searcher
from searchformer.search.validate import codes_of
from searchformer.seeding import child_seed
from searchformer.tokens.grammar import write_text
from searchformer.tokens.vocabulary import Vocabulary

ASTAR_RUNS = 64
VERDICT_COLUMNS = pa.schema(
    [
        ("task_id", pa.string()),
        ("sample", pa.int32()),
        ("verdict", pa.string()),
        ("reason", pa.string()),
        ("plan_length", pa.int32()),
        ("optimal_length", pa.int32()),
        ("trace_length", pa.int32()),
        ("created", pa.int32()),
        ("closed", pa.int32()),
        ("trace_legal", pa.bool_()),
        ("trace_sound", pa.bool_()),
        ("violation", pa.string()),
        ("violation_position", pa.int32()),
        ("legal_share", pa.float64()),
        ("cost_errors", pa.int32()),
        ("estimate_errors", pa.int32()),
    ]
)


@dataclass(frozen=True)
class Rollouts:
    """A complete directory of rollouts."""

    directory: Path
    config: dict[str, Any]
    vocabulary: Vocabulary
    domain: Domain
    problems: dict[str, np.ndarray]
    """Task id to problem."""

    @classmethod
    def open(cls, directory: Path) -> "Rollouts":
        """Read the tasks; raises if answers are missing."""
        config = read_json(directory / "config.json", what="directory of rollouts")
        read_json(directory / "manifest.json", what="complete directory of rollouts (run the same rollout again)")
        vocabulary = Vocabulary.load(directory)
        domain = make_domain(config["domain"], config["settings"])
        tasks = pq.read_table(directory / "tasks.parquet", columns=["task_id", "prompt"]).to_pylist()
        problems = {task["task_id"]: domain.parse_prompt(vocabulary.decode(task["prompt"])) for task in tasks}
        return cls(directory, config, vocabulary, domain, problems)

    def answers(self) -> Iterator[tuple[str, int, np.ndarray, bool]]:
        """Task id, sample, ids and whether it ended with eos, of every answer."""
        for path in sorted(self.directory.glob("rollouts-*.parquet")):
            table = pq.read_table(path).combine_chunks()
            tokens = (
                table["tokens"].chunk(0) if table.num_rows else pa.array([], type=table.schema.field("tokens").type)
            )
            flat, ends = tokens.values.to_numpy(), tokens.offsets.to_numpy()
            names, samples = table["task_id"].to_pylist(), table["sample"].to_pylist()
            finished = table["finish"].to_pylist()
            for row in range(table.num_rows):
                ids = flat[ends[row] : ends[row + 1]]
                yield names[row], samples[row], ids, finished[row] == "eos"


def evaluate(
    directory: Path,
    *,
    paper: bool = False,
    astar_runs: int = ASTAR_RUNS,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Judge every answer, score them, and write the results. With `paper`, into files named `-paper`."""
    rollouts = Rollouts.open(directory)
    suffix = "-paper" if paper else ""
    verdicts = _judge_all(rollouts, paper=paper, progress=progress)
    with replacing(directory / f"verdicts{suffix}.parquet") as temporary:
        pq.write_table(verdicts, temporary, compression="zstd")
    astar = _astar_lengths(rollouts, runs=astar_runs)
    scores = Scores.from_tables(verdicts, astar, task_ids=sorted(rollouts.problems), samples=rollouts.config["samples"])
    metrics = {"run": rollouts.config, "rule": "paper" if paper else "strict", **score(scores)}
    write_json(directory / f"metrics{suffix}.json", metrics)
    return metrics


def _judge_all(rollouts: Rollouts, *, paper: bool, progress: Callable[[int, int], None]) -> pa.Table:
    domain, vocabulary = rollouts.domain, rollouts.vocabulary
    judge = Judge(domain, paper=paper)
    optimal = {task: judge.optimal_length(problem) for task, problem in rollouts.problems.items()}
    expected = _expected_answers(rollouts) if rollouts.config["deterministic"] else None
    codes = codes_of(domain, vocabulary.tokens)
    total = rollouts.config["tasks"] * rollouts.config["samples"]
    columns: dict[str, list[Any]] = {name: [] for name in VERDICT_COLUMNS.names}
    exact: list[bool] = []
    for done, (task, sample, ids, finished) in enumerate(rollouts.answers(), start=1):
        if task not in rollouts.problems:
            raise SearchformerError(
                f"{rollouts.directory}: an answer to task {task}, which tasks.parquet does not have"
            )
        verdict = judge.judge(rollouts.problems[task], codes[ids], optimal_length=optimal[task], finished=finished)
        _append(columns, task, sample, verdict)
        if expected is not None:
            exact.append(finished and np.array_equal(ids, expected[task]))
        if done % 500 == 0 or done == total:
            progress(done, total)
    table = pa.table(columns, schema=VERDICT_COLUMNS)
    return table if expected is None else table.append_column("exact", pa.array(exact, type=pa.bool_()))


def _append(columns: dict[str, list[Any]], task: str, sample: int, verdict: Verdict) -> None:
    columns["task_id"].append(task)
    columns["sample"].append(sample)
    for name, value in vars(verdict).items():
        columns[name].append(value)


def _expected_answers(rollouts: Rollouts) -> dict[str, np.ndarray]:
    """What deterministic A* answers, as ids: trace and plan, or the plan alone for models that do not search."""
    searcher = Searcher(rollouts.domain, Options(deterministic=True))
    trained = rollouts.config["model"].get("trained", {})
    answers = {}
    for task, problem in rollouts.problems.items():
        _, trace, plan = write_text(rollouts.domain, problem, searcher.search(problem))
        text = plan if trained.get("variant") == "solution-only" else f"{trace} {plan}"
        answers[task] = rollouts.vocabulary.encode(text.split())
    return answers


def _astar_lengths(rollouts: Rollouts, *, runs: int) -> pa.Table:
    """Trace tokens of `runs` non-deterministic searches per task; kept in `astar.parquet`."""
    path = rollouts.directory / "astar.parquet"
    tasks = sorted(rollouts.problems)
    if path.exists():
        stored = pq.read_table(path)
        if stored["task_id"].to_pylist() == tasks and all(len(row) == runs for row in stored["lengths"].to_pylist()):
            return stored
    searcher = Searcher(rollouts.domain)
    lengths = [
        [searcher.trace_length(rollouts.problems[task], seed=child_seed(run, "astar", 0)) for run in range(runs)]
        for task in tasks
    ]
    table = pa.table({"task_id": tasks, "lengths": pa.array(lengths, type=pa.list_(pa.int32()))})
    with replacing(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")
    return table
