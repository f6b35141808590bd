"""Which of a model's own answers replace the traces it was trained on.

In: a data set and a directory of rollouts of its training tasks. Out: a new data set, with the source of every trace.
An answer is a candidate if the strict judge calls its plan optimal and its trace is shorter than the one in the data
set. The rule says which candidates are taken; a new rule is a new entry of `RULES`.
"""

import heapq
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from searchformer import __version__
from searchformer.dataset.shards import ROWS_PER_SHARD, SplitWriter
from searchformer.dataset.store import MANIFEST, PARTS, Dataset, Manifest, Shard, file_digest, finish, schema
from searchformer.errors import SearchformerError
from searchformer.evaluate.evaluation import Rollouts
from searchformer.evaluate.judge import OPTIMAL, Judge
from searchformer.files import make_directory, replacing
from searchformer.records import Verdict
from searchformer.search.validate import codes_of

ORIGINAL = "original"


@dataclass(frozen=True)
class Rule:
    """How to choose among a task's candidates."""

    explanation: str
    admits: Callable[[Verdict], bool] = lambda verdict: True
    """Is this answer, whose plan is optimal, good enough to learn from?"""
    keep: int = 1
    """The shortest so many distinct ones are taken; the task's current trace stays if there is none."""


RULES = {
    "paper": Rule("the shortest trace that ends in an optimal plan"),
    "several": Rule("the four shortest different ones", keep=4),
    "sound": Rule(
        "the shortest that is a true search, legal but for the order of closing and children left out",
        lambda verdict: bool(verdict.trace_sound),
    ),
    "legal": Rule("the shortest that is also a legal execution of A*", lambda verdict: bool(verdict.trace_legal)),
}


def rule_named(name: str) -> Rule:
    """The rule of this name."""
    if name not in RULES:
        known = "; ".join(f"{key}: {rule.explanation}" for key, rule in RULES.items())
        raise SearchformerError(f"no selection rule is called {name!r}; there are {known}")
    return RULES[name]


@dataclass(frozen=True, order=True)
class Candidate:
    """An answer that may replace a trace; the shorter, then the earlier sample, the better."""

    length: int
    sample: int
    ids: tuple[int, ...]
    """The whole answer."""


@dataclass(frozen=True)
class Selection:
    """What a selection did."""

    tasks: int
    replaced: int
    """Tasks whose trace was replaced."""
    rows: int
    """Rows of the new training split."""
    tokens_before: int
    """Trace tokens of these tasks before."""
    tokens_after: int
    """Trace tokens of the new rows."""


def select(
    data: Dataset,
    rollouts: Rollouts,
    out: Path,
    *,
    rule: str,
    round_number: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Selection:
    """Write the data set of the next round to `out`: the rolled-out training tasks, and the test split as it is."""
    current = {row["task_id"]: row["trace_length"] for row in _lengths(data) if row["task_id"] in rollouts.problems}
    if len(current) != len(rollouts.problems):
        raise SearchformerError(f"{rollouts.directory} answers tasks that {data.directory} does not have for training")
    if rollouts.config["split"] != "train":
        raise SearchformerError(
            f"{rollouts.directory} answers {rollouts.config['split']} tasks; only training tasks may be used"
        )
    chosen = _choose(rollouts, current, rule_named(rule), progress)
    make_directory(out)
    columns = schema(data.vocabulary, [pa.field("source", pa.string(), nullable=False)])
    shards = list(_write_train(data, chosen, current, out, columns, f"round-{round_number}"))
    shards += _copy_test(data, out)
    data.vocabulary.save(out)
    _finish(data, out, shards, rule=rule, round_number=round_number)
    taken = [candidate.length for candidates in chosen.values() for candidate in candidates]
    kept = [length for task, length in current.items() if not chosen.get(task)]
    return Selection(
        tasks=len(current),
        replaced=len(current) - len(kept),
        rows=len(taken) + len(kept),
        tokens_before=sum(current.values()),
        tokens_after=sum(taken) + sum(kept),
    )


def _lengths(data: Dataset) -> Iterator[dict[str, Any]]:
    """Task ids with their shortest trace so far: a task may have several rows."""
    shortest: dict[str, int] = {}
    for batch in data.batches("train", ["task_id", "trace_length"]):
        for row in batch.to_pylist():
            known = shortest.get(row["task_id"])
            shortest[row["task_id"]] = row["trace_length"] if known is None else min(known, row["trace_length"])
    for task, length in shortest.items():
        yield {"task_id": task, "trace_length": length}


def _choose(
    rollouts: Rollouts, current: dict[str, int], rule: Rule, progress: Callable[[int, int], None]
) -> dict[str, list[Candidate]]:
    """The best candidates of each task, the shortest first."""
    judge = Judge(rollouts.domain)
    optimal = {task: judge.optimal_length(problem) for task, problem in rollouts.problems.items()}
    codes = codes_of(rollouts.domain, rollouts.vocabulary.tokens)
    total = len(current) * rollouts.config["samples"]
    best: dict[str, list[tuple[int, int, Candidate]]] = {}
    for done, (task, sample, ids, finished) in enumerate(rollouts.answers(), start=1):
        if done % 1000 == 0 or done == total:
            progress(done, total)
        answer = codes[ids]
        length = judge.validator.plan_begin(answer)
        if not 0 < length < current[task]:
            continue
        problem = rollouts.problems[task]
        verdict = judge.judge(problem, answer, optimal_length=optimal[task], finished=finished)
        if verdict.verdict != OPTIMAL or not rule.admits(verdict):
            continue
        heap = best.setdefault(task, [])
        candidate = Candidate(length, sample, tuple(ids.tolist()))
        if any(other.ids == candidate.ids for _, _, other in heap):
            continue
        heapq.heappush(heap, (-length, -sample, candidate))  # the longest on top, to be dropped first
        if len(heap) > rule.keep:
            heapq.heappop(heap)
    return {task: sorted(candidate for _, _, candidate in heap) for task, heap in best.items()}


def _write_train(
    data: Dataset,
    chosen: dict[str, list[Candidate]],
    current: dict[str, int],
    out: Path,
    columns: pa.Schema,
    source: str,
) -> Iterator[Shard]:
    """The training rows in stored order, each task's new rows in place of its old ones."""
    waiting: list[dict[str, Any]] = []
    number = 0
    written: set[str] = set()
    plan_word = data.vocabulary.ids["plan"]
    for row in data.records("train"):
        task = row["task_id"]
        if task not in current:
            continue
        if not chosen.get(task):
            waiting.append({"source": ORIGINAL, **row})
        elif task not in written:
            written.add(task)
            waiting += [_row(row, candidate, plan_word, source) for candidate in chosen[task]]
        while len(waiting) >= ROWS_PER_SHARD:
            yield _write(out / f"train-{number:05d}.parquet", "train", waiting[:ROWS_PER_SHARD], columns)
            waiting, number = waiting[ROWS_PER_SHARD:], number + 1
    if waiting:
        yield _write(out / f"train-{number:05d}.parquet", "train", waiting, columns)


def _row(row: dict[str, Any], candidate: Candidate, plan_word: int, source: str) -> dict[str, Any]:
    begin = candidate.ids.index(plan_word)
    trace, plan = list(candidate.ids[:begin]), list(candidate.ids[begin:])
    lengths = {"trace_length": len(trace), "plan_length": len(plan)}
    return {**row, "trace": trace, "plan": plan, **lengths, "source": source}


def _write(path: Path, split: str, rows: list[dict[str, Any]], columns: pa.Schema) -> Shard:
    with replacing(path) as temporary:
        writer = SplitWriter(temporary, columns)
        writer.write(pa.RecordBatch.from_pylist(rows, schema=columns))
        writer.close()
    tokens = sum(row[f"{part}_length"] for row in rows for part in PARTS)
    return Shard(file=path.name, split=split, rows=len(rows), tokens=tokens, digest=file_digest(path))


def _copy_test(data: Dataset, out: Path) -> list[Shard]:
    for shard in data.shards("test"):
        with replacing(out / shard.file) as temporary:
            shutil.copyfile(data.directory / shard.file, temporary)
    return data.shards("test")


def _finish(data: Dataset, out: Path, shards: list[Shard], *, rule: str, round_number: int) -> None:
    """The manifest: the original's configuration, and what was done to it."""
    old = data.manifest
    longest = dict.fromkeys(PARTS, 0)
    for shard in shards:
        table = pq.read_table(out / shard.file, columns=[f"{part}_length" for part in PARTS])
        for part in PARTS:
            values = table[f"{part}_length"].to_numpy()
            longest[part] = max(longest[part], int(np.max(values, initial=0)))
    made = {"rule": rule, "round": round_number, "from": file_digest(data.directory / MANIFEST)}
    manifest = Manifest(
        package=__version__,
        config={**old.config, "bootstrap": made},
        vocabulary_digest=old.vocabulary_digest,
        longest=longest,
        shards=shards,
    )
    finish(out, manifest)
