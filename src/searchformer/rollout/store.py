"""A directory of rollouts: what was asked, the tasks, the answers in shards, and a manifest that is written last.

`config.json` comes first and says what was asked; `tasks.parquet` holds the tasks, so that judging needs nothing else;
each `rollouts-*.parquet` holds whole answers and is never changed; `manifest.json` means that every answer is there.
"""

import contextlib
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from searchformer import __version__
from searchformer.dataset.store import Dataset, file_digest
from searchformer.errors import SearchformerError
from searchformer.files import make_directory, read_json, replacing, write_json
from searchformer.rollout.requests import Answer, Prompt
from searchformer.tokens.vocabulary import Vocabulary

CONFIG, MANIFEST, TASKS = "config.json", "manifest.json", "tasks.parquet"
LOCK_SECONDS = 10.0
ANSWERS_PER_SHARD = 65536


def prepare(directory: Path, config: dict[str, Any], dataset: Dataset) -> None:
    """Set up a new directory, or check that an existing one is of the same rollouts."""
    make_directory(directory)
    if (directory / CONFIG).exists():
        _require_same(directory, read_json(directory / CONFIG, what="rollout directory"), config)
    else:
        write_json(directory / CONFIG, config)
    dataset.vocabulary.save(directory)
    if not (directory / TASKS).exists():
        table = select_tasks(dataset, config["split"], config["tasks"], skip=config["skip"])
        with replacing(directory / TASKS) as temporary:
            pq.write_table(table, temporary, compression="zstd")


def _require_same(directory: Path, found: dict[str, Any], asked: dict[str, Any]) -> None:
    """Raise, naming the first difference, unless both ask for the same answers; where files lie does not matter."""

    def comparable(config: dict[str, Any]) -> dict[str, Any]:
        same = {"skip": 0} | {key: value for key, value in config.items() if key != "package"}
        return same | {key: config.get(key, {}).get("digest") for key in ("model", "data")}

    found, asked = comparable(found), comparable(asked)
    for key in asked:
        if found.get(key) != asked[key]:
            raise SearchformerError(
                f"{directory} holds rollouts with {key} {found.get(key)!r}, asked for is {asked[key]!r}: "
                "choose another directory"
            )


def select_tasks(dataset: Dataset, split: str, count: int, *, skip: int = 0) -> pa.Table:
    """`count` tasks of a split by task id, behind the first `skip`: task_id, prompt, trace_length, plan.

    A task with several traces is there once.
    """
    ids = {task for batch in dataset.batches(split, ["task_id"]) for task in batch.column("task_id").to_pylist()}
    if skip + count > len(ids):
        behind = f" behind the first {skip}" if skip else ""
        raise SearchformerError(f"{dataset.directory} has {len(ids)} {split} tasks; asked for are {count}{behind}")
    chosen = pa.array(sorted(ids)[skip : skip + count])
    columns = ["task_id", "prompt", "trace_length", "plan"]
    parts = []
    for batch in dataset.batches(split, columns):
        table = pa.Table.from_batches([batch])
        parts.append(table.filter(pc.is_in(table["task_id"], chosen)))
    table = pa.concat_tables(parts).select(columns).sort_by("task_id")
    names = table["task_id"].to_pylist()
    return table.take([row for row, name in enumerate(names) if row == 0 or name != names[row - 1]])


def read_prompts(directory: Path) -> list[Prompt]:
    """The tasks of a directory, by task id."""
    table = pq.read_table(directory / TASKS, columns=["task_id", "prompt"])
    ids, prompts = table["task_id"].to_pylist(), table["prompt"].to_pylist()
    return [Prompt(task, np.array(prompt, np.int64)) for task, prompt in zip(ids, prompts, strict=True)]


@contextlib.contextmanager
def alone(directory: Path, rank: int) -> Iterator[Any]:
    """Hold the directory's lock for `rank`, so that nobody else samples its tasks; wait a little for dying workers.

    Yields a function to call once the answers on disk have been read: from then on own workers may join, by `together`.
    """
    import fcntl

    with open(directory / f".lock-{rank:05d}", "w", encoding="utf-8") as file:
        give_up = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() > give_up:
                    raise SearchformerError(
                        f"another process is writing rollouts to {directory}; wait for it"
                    ) from None
                time.sleep(0.1)
        yield lambda: fcntl.flock(file, fcntl.LOCK_SH)


@contextlib.contextmanager
def together(directory: Path, rank: int) -> Iterator[None]:
    """Hold the directory's lock for `rank` along with the process that started this one."""
    import fcntl

    with open(directory / f".lock-{rank:05d}", "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield


def remove_unfinished(directory: Path, rank: int) -> None:
    """Delete what a killed process of `rank` left half written; only with its lock held."""
    for path in directory.glob(f".rollouts-{rank:03d}-*.tmp"):
        path.unlink()


class Writer:
    """Collects answers and writes them as shards: whole answers, whole files."""

    def __init__(self, directory: Path, vocabulary: Vocabulary, *, name: str, save_seconds: float) -> None:
        self.directory, self.name, self.save_seconds = directory, name, save_seconds
        ids = pa.list_(pa.uint16() if vocabulary.dtype == np.uint16 else pa.uint32())
        kinds = {
            "task_id": pa.string(),
            "sample": pa.int32(),
            "tokens": ids,
            "finish": pa.string(),
            "log_probability": pa.float64(),
        }
        self.schema = pa.schema([pa.field(column, kind, nullable=False) for column, kind in kinds.items()])
        self.answers: list[Answer] = []
        self.saved = time.monotonic()

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *_: object) -> None:
        self.save()  # also when interrupted: what is finished is finished

    def add(self, answer: Answer) -> None:
        """Keep one answer; now and then a shard is written."""
        self.answers.append(answer)
        if time.monotonic() - self.saved > self.save_seconds or len(self.answers) >= ANSWERS_PER_SHARD:
            self.save()

    def save(self) -> None:
        """Write what has been collected as a new shard."""
        self.saved = time.monotonic()
        if not self.answers:
            return
        columns = {column: [getattr(answer, column) for answer in self.answers] for column in self.schema.names}
        taken = [int(path.stem.rpartition("-")[2]) for path in self.directory.glob(f"rollouts-{self.name}-*.parquet")]
        number = max(taken, default=-1) + 1
        with replacing(self.directory / f"rollouts-{self.name}-{number:05d}.parquet") as temporary:
            pq.write_table(pa.table(columns, schema=self.schema), temporary, compression="zstd")
        self.answers = []


def shard_files(directory: Path) -> list[Path]:
    """The files with answers, by name."""
    return sorted(directory.glob("rollouts-*.parquet"))


def finished_samples(directory: Path) -> dict[str, set[int]]:
    """Which samples of which tasks are on disk."""
    done: dict[str, set[int]] = {}
    for path in shard_files(directory):
        table = _read(path, ["task_id", "sample"])
        for task, sample in zip(table["task_id"].to_pylist(), table["sample"].to_pylist(), strict=True):
            done.setdefault(task, set()).add(sample)
    return done


def read_answers(directory: Path | str, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """The answers, a shard at a time."""
    for path in shard_files(Path(directory)):
        yield _read(path, columns)


def _read(path: Path, columns: Sequence[str] | None) -> pa.Table:
    try:
        return pq.read_table(path, columns=columns)
    except (OSError, pa.ArrowInvalid) as error:
        raise SearchformerError(f"{path} cannot be read: {error}; remove it and run the same command again") from error


def finish(directory: Path, config: dict[str, Any]) -> dict[str, Any] | None:
    """Write the manifest if every answer is there, once; returns it, or None while answers are missing."""
    seen: set[tuple[str, int]] = set()
    finishes: Counter[str] = Counter()
    rows = tokens = 0
    for table in read_answers(directory):
        seen.update(zip(table["task_id"].to_pylist(), table["sample"].to_pylist(), strict=True))
        finishes.update(table["finish"].to_pylist())
        rows += table.num_rows
        tokens += len(table["tokens"].combine_chunks().flatten())
    if len(seen) < config["tasks"] * config["samples"]:
        return None
    if rows > len(seen):
        raise SearchformerError(
            f"{directory} holds {rows - len(seen)} answers twice: were other ranks run twice at once?"
        )
    shards = [{"file": path.name, "digest": file_digest(path)} for path in shard_files(directory)]
    manifest = {
        "format": 1,
        "package": __version__,
        "answers": rows,
        "tokens": tokens,
        "finish": dict(sorted(finishes.items())),
        "shards": shards,
    }
    write_json(directory / MANIFEST, manifest)
    return manifest
