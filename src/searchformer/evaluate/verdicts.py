"""What the judge says of every answer in a directory of rollouts: computed once, then kept beside the answers.

In: `Rollouts`. Out: a table with a row per answer, also in `verdicts.parquet` (`verdicts-paper.parquet` for the paper's
rule). The file's metadata says which answers, rule, algorithm and package version it belongs to; if any of them is
another now, the answers are judged again.
"""

import json
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from searchformer import __version__
from searchformer.dataset.store import write_table
from searchformer.digests import require_recorded
from searchformer.display import Display, Silent, Update
from searchformer.engines.base import Engine, Told, results_in_order
from searchformer.engines.local import LocalEngine
from searchformer.errors import SearchformerError
from searchformer.evaluate.judge import Judge
from searchformer.records import Verdict
from searchformer.rollout.store import Rollouts, shard_files
from searchformer.search import Options, Searcher
from searchformer.search.validate import codes_of
from searchformer.tokens.grammar import write_text

WRITER = "evaluate"
"""Notes the digests of the files that an evaluation keeps."""
ORIGIN = b"searchformer"
"""Key of the metadata that says what the verdicts belong to."""
ARROW = {str: pa.string(), int: pa.int32(), bool: pa.bool_(), float: pa.float64()}
FIELDS = {name: (get_args(kind) or (kind,))[0] for name, kind in get_type_hints(Verdict).items()}
COLUMNS = pa.schema([(name, ARROW[kind]) for name, kind in {"task_id": str, "sample": int, **FIELDS}.items()])


def verdicts_of(
    rollouts: Rollouts,
    *,
    paper: bool = False,
    display: Display | None = None,
    engine: Engine | None = None,
    workers: int | None = None,
) -> pa.Table:
    """A row per answer with `Verdict`'s fields, and for deterministic data `exact`: is it the data's own answer?"""
    path = rollouts.directory / f"verdicts{'-paper' if paper else ''}.parquet"
    origin = _origin(rollouts, paper=paper)
    stored = _read_stored(path, origin)
    if stored is not None:
        return stored
    with (display or Silent()).bar("judge", unit="answers") as update:
        table = _judge_all(rollouts, engine or LocalEngine(), workers, paper=paper, update=update)
    table = table.replace_schema_metadata({ORIGIN: origin})
    write_table(table, path, writer=WRITER)
    return table


def _origin(rollouts: Rollouts, *, paper: bool) -> bytes:
    """What the verdicts depend on."""
    facts = {
        "manifest": rollouts.digest,
        "rule": "paper" if paper else "strict",
        "algorithm": rollouts.config["algorithm"],
        "weight": rollouts.config["weight"],
        "package": __version__,
    }
    return json.dumps(facts).encode()


def _read_stored(path: Path, origin: bytes) -> pa.Table | None:
    """The verdicts in `path` if they have this origin; a file that is missing or damaged is made again."""
    try:
        require_recorded(path, repair="")
        table = pq.read_table(path)
    except (OSError, pa.ArrowException, SearchformerError):
        return None
    return table if (table.schema.metadata or {}).get(ORIGIN) == origin else None


def _judge_all(rollouts: Rollouts, engine: Engine, workers: int | None, *, paper: bool, update: Update) -> pa.Table:
    """Judge file after file of answers, side by side; the table has the files' order."""
    items = [AnswerFile(path.name) for path in shard_files(rollouts.directory)]
    count = min(engine.worker_count(workers, default=1), max(len(items), 1))
    total, judged = rollouts.config["tasks"] * rollouts.config["samples"], Counter[int]()

    def tell(told: Told) -> None:
        judged[told.index] = told.message
        update(judged.total(), total, "")

    with engine.crew(partial(_FileJudge, rollouts.directory, paper), workers=count) as crew:
        tables = results_in_order(crew, items, told=tell)
    return pa.concat_tables(tables).combine_chunks() if tables else pa.table({}, schema=COLUMNS)


@dataclass(frozen=True)
class AnswerFile:
    """A file of answers to be judged."""

    name: str

    def __str__(self) -> str:
        return f"the file {self.name}"


class _FileJudge:
    """What a worker does: judges the answers of a file."""

    def __init__(self, directory: Path, paper: bool) -> None:
        self.rollouts = rollouts = Rollouts.open(directory)
        config = rollouts.config
        self.judge = Judge(rollouts.domain, paper=paper, algorithm=config["algorithm"], weight=config["weight"])
        self.optimal = {task: self.judge.optimal_length(problem) for task, problem in rollouts.problems.items()}
        self.reference = _reference_answers(rollouts) if config["deterministic"] else None
        self.codes = codes_of(rollouts.domain, rollouts.vocabulary.tokens)

    def __call__(self, item: AnswerFile) -> Generator[int, None, pa.Table]:
        """Yields how many are judged, returns the verdicts."""
        problems = self.rollouts.problems
        columns: dict[str, list[Any]] = {name: [] for name in COLUMNS.names}
        exact: list[bool] = []
        for task, sample, ids, finished in self.rollouts.answers(item.name):
            verdict = self.judge.judge(
                problems[task], self.codes[ids], optimal_length=self.optimal[task], finished=finished
            )
            for name, value in {"task_id": task, "sample": sample, **vars(verdict)}.items():
                columns[name].append(value)
            if self.reference is not None:
                exact.append(finished and np.array_equal(ids, self.reference[task]))
            if len(columns["sample"]) % 500 == 0:
                yield len(columns["sample"])
        yield len(columns["sample"])
        table = pa.table(columns, schema=COLUMNS)
        return table if self.reference is None else table.append_column("exact", pa.array(exact, type=pa.bool_()))


def _reference_answers(rollouts: Rollouts) -> dict[str, np.ndarray]:
    """What the data's own deterministic search answers, as ids; the plan alone for models that do not search."""
    config, domain = rollouts.config, rollouts.domain
    options = Options(deterministic=True, algorithm=config["algorithm"], weight=config["weight"])
    searcher, answers = Searcher(domain, options), {}
    plan_only = config["model"].get("trained", {}).get("variant") == "solution-only"
    for task, problem in rollouts.problems.items():
        _, trace, plan = write_text(domain, problem, searcher.search(problem))
        answers[task] = rollouts.vocabulary.encode((plan if plan_only else f"{trace} {plan}").split())
    return answers
