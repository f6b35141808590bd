"""Which of a model's own answers replace the traces it was trained on.

In: a data set and a directory of rollouts of its training tasks. Out: a new data set, with the source of every trace.
An answer is a candidate if the strict judge calls its plan optimal and its trace is shorter than the one in the data
set. The rule says which candidates are taken (`rules.py`).
"""

import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from searchformer.bootstrap.rules import Rule, rule_named
from searchformer.dataset.shards import ROWS_PER_SHARD, SplitWriter
from searchformer.dataset.store import MANIFEST, Dataset, finish, schema
from searchformer.digests import file_digest
from searchformer.display import Display
from searchformer.errors import SearchformerError
from searchformer.evaluate.judge import FEASIBLE, OPTIMAL
from searchformer.evaluate.verdicts import verdicts_of
from searchformer.files import make_directory, replacing
from searchformer.rollout.store import Rollouts
from searchformer.search.hindsight import LeftOut, without_some
from searchformer.search.world import World
from searchformer.seeding import child_seed

ORIGINAL = "original"


@dataclass(frozen=True, order=True)
class Candidate:
    """An answer that may replace a trace; a shorter one is better, then one with a lower sample number."""

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
    display: Display | None = None,
    verdicts: pa.Table | None = None,
) -> Selection:
    """Write the data set of the next round to `out`: the rolled-out training tasks, and the test split as it is.

    `verdicts` are those of the answers, if they are known already.
    """
    current = {task: length for task, length in _shortest_lengths(data).items() if task in rollouts.prompts}
    if len(current) != len(rollouts.prompts):
        raise SearchformerError(f"{rollouts.directory} answers tasks that {data.directory} does not have for training")
    if rollouts.config["split"] != "train":
        raise SearchformerError(
            f"{rollouts.directory} answers {rollouts.config['split']} tasks; only training tasks may be used"
        )
    verdicts = verdicts_of(rollouts, display=display) if verdicts is None else verdicts
    chosen = _choose(rollouts, current, rule_named(rule), verdicts)
    make_directory(out)
    columns = schema(data.vocabulary, [pa.field("source", pa.string(), nullable=False)])
    files = dict.fromkeys(_write_train(data, chosen, current, out, columns, f"round-{round_number}"), "train")
    for shard in data.shards("test"):
        with replacing(out / shard.file) as temporary:
            shutil.copyfile(data.path_of(shard), temporary)
        files[shard.file] = "test"
    made = {"rule": rule, "round": round_number, "from": file_digest(data.directory / MANIFEST)}
    finish(out, files, config={**data.manifest.config, "bootstrap": made}, vocabulary=data.vocabulary)
    taken = [candidate.length for candidates in chosen.values() for candidate in candidates]
    kept = [length for task, length in current.items() if not chosen.get(task)]
    return Selection(
        tasks=len(current),
        replaced=len(current) - len(kept),
        rows=len(taken) + len(kept),
        tokens_before=sum(current.values()),
        tokens_after=sum(taken) + sum(kept),
    )


def _shortest_lengths(data: Dataset) -> dict[str, int]:
    """The length of each task's shortest trace so far: a task may have several rows."""
    shortest: dict[str, int] = {}
    for batch in data.batches("train", ["task_id", "trace_length"]):
        for task, length in zip(*(batch[name].to_pylist() for name in ("task_id", "trace_length")), strict=True):
            shortest[task] = min(length, shortest.get(task, length))
    return shortest


def _choose(rollouts: Rollouts, current: dict[str, int], rule: Rule, verdicts: pa.Table) -> dict[str, list[Candidate]]:
    """The best candidates of each task, best first."""
    admitted, plan_word = _admitted(verdicts, rule), rollouts.vocabulary.ids["plan"]
    misled = _misled_tasks(verdicts) if rule.left_out else set()
    shorten = _Hindsight(rollouts, rule.left_out, misled) if rule.left_out else None
    best: dict[str, list[Candidate]] = {}
    for task, sample, answer, _ in rollouts.answers():
        if (task, sample) not in admitted:
            continue
        ids: list[int] | None = answer.tolist()
        if shorten:
            ids = shorten(task, sample, answer.tolist())
        if ids is not None and 0 < ids.index(plan_word) < current[task]:
            candidates = [*best.get(task, []), Candidate(ids.index(plan_word), sample, tuple(ids))]
            best[task] = _different(candidates, longest_first=task in misled)[: rule.keep]
    return best


class _Hindsight:
    """Shortens the answers of one directory; answers to the same task come one after the other."""

    def __init__(self, rollouts: Rollouts, left_out: LeftOut, misled: set[str]) -> None:
        self.vocabulary, self.left_out, self.misled = rollouts.vocabulary, left_out, misled
        self.world = lru_cache(maxsize=16)(lambda task: World(rollouts.domain, rollouts.problems[task]))

    def __call__(self, task: str, sample: int, ids: list[int]) -> list[int] | None:
        """The ids of a shorter answer, if it makes one."""
        chance = random.Random(child_seed(sample, f"hindsight {task}"))  # noqa: S311
        left_out = LeftOut() if task in self.misled else self.left_out
        tokens = without_some(self.world(task), self.vocabulary.decode(ids), left_out, chance=chance)
        return None if tokens is None else self.vocabulary.encode(tokens).tolist()


def _admitted(verdicts: pa.Table, rule: Rule) -> set[tuple[str, int]]:
    """The answers that may be taken, by task and sample."""
    admitted = pc.equal(verdicts["verdict"], OPTIMAL)
    if rule.requires:
        admitted = pc.and_(admitted, pc.fill_null(verdicts[rule.requires], False))
    return set(zip(*(verdicts.filter(admitted)[name].to_pylist() for name in ("task_id", "sample")), strict=True))


def _misled_tasks(verdicts: pa.Table) -> set[str]:
    """Tasks of which a true search ended in a plan that is not optimal: more of it would have been needed."""
    misled = pc.and_(pc.equal(verdicts["verdict"], FEASIBLE), pc.fill_null(verdicts["trace_sound"], False))
    return set(verdicts.filter(misled)["task_id"].to_pylist())


def _different(candidates: list[Candidate], *, longest_first: bool = False) -> list[Candidate]:
    """The candidates, best first, each text once."""
    by_text: dict[tuple[int, ...], Candidate] = {}
    for candidate in sorted(candidates, reverse=longest_first):
        by_text.setdefault(candidate.ids, candidate)
    return list(by_text.values())


def _write_train(
    data: Dataset,
    chosen: dict[str, list[Candidate]],
    current: dict[str, int],
    out: Path,
    columns: pa.Schema,
    source: str,
) -> Iterator[str]:
    """Write the training rows in stored order, each task's new rows in place of its old ones; the files' names."""
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
            yield _write(out / f"train-{number:05d}.parquet", waiting[:ROWS_PER_SHARD], columns)
            waiting, number = waiting[ROWS_PER_SHARD:], number + 1
    if waiting:
        yield _write(out / f"train-{number:05d}.parquet", waiting, columns)


def _row(row: dict[str, Any], candidate: Candidate, plan_word: int, source: str) -> dict[str, Any]:
    begin = candidate.ids.index(plan_word)
    trace, plan = list(candidate.ids[:begin]), list(candidate.ids[begin:])
    lengths = {"trace_length": len(trace), "plan_length": len(plan)}
    return {**row, "trace": trace, "plan": plan, **lengths, "source": source}


def _write(path: Path, rows: list[dict[str, Any]], columns: pa.Schema) -> str:
    with replacing(path) as temporary:
        writer = SplitWriter(temporary, columns)
        writer.write(pa.RecordBatch.from_pylist(rows, schema=columns))
        writer.close()
    return path.name
