"""A directory of answers, and the only code that knows its files. No torch is needed to read one.

    config.json             what was asked, written first
    vocabulary.json
    tasks.parquet           task_id, prompt: judging needs nothing else
    rollouts-*.parquet      whole answers (task_id, sample, tokens, finish, log_probability); never changed once written
    manifest.json           written last: every answer is there

Try: `Rollouts.open(directory).answers()`.
"""

import contextlib
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from searchformer import __version__
from searchformer.dataset.store import Dataset, write_table
from searchformer.digests import RECORDS, file_digest, require_digest, require_recorded
from searchformer.domains import Domain, make_domain
from searchformer.errors import SearchformerError, cut, shown
from searchformer.files import inside, locked, make_directory, read_json, require_same, write_json
from searchformer.lifetime import held_back
from searchformer.rollout.requests import Answer, Prompt
from searchformer.tokens.vocabulary import Vocabulary

CONFIG, MANIFEST, TASKS = "config.json", "manifest.json", "tasks.parquet"
OLDER = {"skip": 0, "algorithm": "astar", "weight": 1.0}
"""Values of directories that were written before config.json had these fields."""
NOT_COMPARED = {"package", "device", "algorithm", "weight"}
"""Fields of config.json that are not compared when a rollout is resumed; the last two are the data set's own."""
REQUIRED = {"domain": str, "settings": dict, "split": str, "tasks": int, "samples": int, "model": dict}
"""Fields of config.json that reading answers needs, with their types."""
REPAIR = "remove it and run the same rollout again"
WAIT_SECONDS = 10.0
ANSWERS_PER_SHARD = 65536


# --- reading


@dataclass(frozen=True)
class Rollouts:
    """A complete directory of answers, opened for reading."""

    directory: Path
    config: dict[str, Any]
    """What was asked; see `dispatch.describe`."""
    vocabulary: Vocabulary
    domain: Domain
    prompts: dict[str, np.ndarray]
    """Task id to the prompt's ids, without bos and eos."""

    @classmethod
    def open(cls, directory: Path | str) -> "Rollouts":
        """Read the tasks; raises if answers are missing."""
        directory = Path(directory)
        config = read_config(directory)
        read_manifest(directory)
        domain = make_domain(config["domain"], config["settings"])
        prompts = {prompt.task_id: prompt.tokens for prompt in read_prompts(directory)}
        return cls(directory, config, Vocabulary.load(directory), domain, prompts)

    @cached_property
    def problems(self) -> dict[str, np.ndarray]:
        """Task id to problem."""
        return {task: self.domain.parse_prompt(self.vocabulary.decode(ids)) for task, ids in self.prompts.items()}

    @cached_property
    def digest(self) -> str:
        """Identifies the answers: the manifest names every file with its own digest."""
        return file_digest(self.directory / MANIFEST)

    def prompt(self, task_id: str) -> np.ndarray:
        """The ids of a task's prompt."""
        if task_id not in self.prompts:
            raise SearchformerError(f"{self.directory / TASKS} lacks task {task_id}; make the rollouts again")
        return self.prompts[task_id]

    def answer(self, task_id: str, sample: int) -> np.ndarray:
        """The ids of one answer."""
        wanted = (pc.field("task_id") == task_id) & (pc.field("sample") == sample)
        for path in verify_shards(self.directory):
            for ids in _read(path, ["tokens"], filters=wanted)["tokens"].to_pylist():
                return np.array(ids, self.vocabulary.dtype)
        raise SearchformerError(f"{self.directory} lacks answer {sample} to task {task_id}; make the rollouts again")

    def answers(self, file: str | None = None) -> Iterator[tuple[str, int, np.ndarray, bool]]:
        """Task id, sample, ids and whether the model ended it, of every answer; or of those in one file."""
        columns = ["task_id", "sample", "tokens", "finish"]
        for table in (_read(path, columns) for path in verify_shards(self.directory, file=file)):
            ends = np.cumsum([0, *pc.list_value_length(table["tokens"]).to_pylist()])
            ids = table["tokens"].combine_chunks().flatten().to_numpy()
            names, samples, finishes = (table[name].to_pylist() for name in ("task_id", "sample", "finish"))
            for row, task in enumerate(names):
                if task not in self.prompts:
                    raise SearchformerError(f"{self.directory}: an answer to task {task}, which {TASKS} does not have")
                yield task, samples[row], ids[ends[row] : ends[row + 1]], finishes[row] == "eos"


def read_config(directory: Path) -> dict[str, Any]:
    """What a directory of answers was made with, as if today's version had written it."""
    found = OLDER | read_json(directory / CONFIG, what="directory of rollouts")
    for name, kind in REQUIRED.items():
        if not isinstance(found.get(name), kind):
            raise SearchformerError(
                f"{directory / CONFIG}: {name} should be a {kind.__name__}; found {shown(found.get(name))}; "
                "restore the file, or make the rollouts again"
            )
    if found.get("precision") == "auto":  # what `auto` chose was not written down; it was bf16 wherever it ran
        found["precision"] = "bf16"
    return found


class AnswerFile(BaseModel):
    """One file of answers."""

    model_config = ConfigDict(frozen=True)

    file: str
    """Name inside the directory."""
    digest: str
    """BLAKE2b-128 of the file's bytes, as hex."""


class Manifest(BaseModel):
    """What a complete directory of answers says of itself."""

    model_config = ConfigDict(frozen=True)

    format: int = Field(default=1, le=1)
    """Version of this layout."""
    package: str = ""
    """Version of searchformer that wrote it."""
    answers: int
    """Number of answers."""
    tokens: int = 0
    """Tokens of all answers together."""
    finish: dict[str, int] = {}
    """Answers by how they ended."""
    tasks_digest: str | None = None
    """Digest of tasks.parquet; directories of older versions have none."""
    shards: list[AnswerFile]
    """All files of answers."""


def read_manifest(directory: Path) -> Manifest:
    """The manifest of a complete directory."""
    stored = read_json(directory / MANIFEST, what="complete directory of rollouts (run the same rollout again)")
    try:
        return Manifest.model_validate(stored)
    except ValidationError as error:
        first = error.errors()[0]
        place = cut(".".join(map(str, first["loc"])))
        raise SearchformerError(f"{directory / MANIFEST}: field {place}: {cut(first['msg'])}; {REPAIR}") from error


def is_begun(directory: Path) -> bool:
    """Whether the directory holds rollouts, complete or not."""
    return (directory / CONFIG).exists()


def read_prompts(directory: Path) -> list[Prompt]:
    """The tasks of a directory, by task id."""
    path = directory / TASKS
    if (directory / MANIFEST).exists() and (digest := read_manifest(directory).tasks_digest):
        require_digest(path, digest, repair="restore the file, or make the rollouts again")
    require_recorded(path, repair="restore the file, or make the rollouts again")
    table = _read(path, ["task_id", "prompt"])
    ids, prompts = table["task_id"].to_pylist(), table["prompt"].to_pylist()
    return [Prompt(task, np.array(prompt, np.int64)) for task, prompt in zip(ids, prompts, strict=True)]


def shard_files(directory: Path) -> list[Path]:
    """The files with answers, by name; those that the manifest names, if there is one."""
    if not (directory / MANIFEST).exists():
        return sorted(directory.glob("rollouts-*.parquet"))
    return [inside(directory, shard.file) for shard in read_manifest(directory).shards]


def verify_shards(directory: Path, *, name: str | None = None, file: str | None = None) -> list[Path]:
    """The files with answers, those of one share, or one; raises, naming the file, unless it is as it was written."""
    prefix = file or (f"rollouts-{name}-" if name else "rollouts-")
    files = [path for path in shard_files(directory) if path.name.startswith(prefix)]
    if (directory / MANIFEST).exists():
        digests = {shard.file: shard.digest for shard in read_manifest(directory).shards}
        for path in files:
            require_digest(path, digests[path.name], repair=REPAIR)
    require_recorded(*files, repair=REPAIR)
    return files


def read_answers(
    directory: Path | str, columns: Sequence[str] | None = None, *, name: str | None = None
) -> Iterator[pa.Table]:
    """The answers as tables, a file at a time; only those of the share `name`, if one is given."""
    for path in verify_shards(Path(directory), name=name):
        yield _read(path, columns)


def finished_samples(directory: Path, *, name: str | None = None) -> dict[str, set[int]]:
    """Which samples of which tasks are on disk; only those of the share `name`, if one is given."""
    done: dict[str, set[int]] = {}
    for table in read_answers(directory, ["task_id", "sample"], name=name):
        for task, sample in zip(table["task_id"].to_pylist(), table["sample"].to_pylist(), strict=True):
            done.setdefault(task, set()).add(sample)
    return done


def _read(path: Path, columns: Sequence[str] | None, *, filters: Any = None) -> pa.Table:
    try:
        return pq.read_table(path, columns=columns, filters=filters)
    except (OSError, pa.ArrowException) as error:
        raise SearchformerError(f"{path} cannot be read: {cut(str(error))}; {REPAIR}") from error


# --- writing


def prepare(directory: Path, config: dict[str, Any], dataset: Dataset) -> None:
    """Set up a new directory, or check that an existing one is of the same rollouts."""
    if (directory / MANIFEST).exists() and not are_complete(directory):
        (directory / MANIFEST).unlink()  # someone removed a file of answers: they are sampled again
    new = not (directory / TASKS).exists()
    tasks = select_tasks(dataset, config["split"], config["tasks"], skip=config["skip"]) if new else None
    begin(directory, config, dataset.vocabulary)
    if tasks is not None:
        write_tasks(directory, tasks)


def begin(directory: Path, config: dict[str, Any], vocabulary: Vocabulary) -> None:
    """Write the configuration of a new directory, or check that an existing one has the same."""
    make_directory(directory)
    if is_begun(directory):
        found, asked = _comparable(read_config(directory)), _comparable(config)
        require_same(found, asked, where=directory, what="rollouts")
    else:
        write_json(directory / CONFIG, config)
    vocabulary.save(directory)


def are_same(config: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two directories with these configurations hold the same answers."""
    return _comparable(config) == _comparable(other)


def are_complete(directory: Path) -> bool:
    """Whether no answer is missing."""
    return (directory / MANIFEST).exists() and all(path.exists() for path in shard_files(directory))


def write_tasks(directory: Path, tasks: pa.Table) -> None:
    """Write the tasks to answer, by task id: columns task_id and prompt."""
    write_table(tasks, directory / TASKS, writer="tasks")


def _comparable(config: dict[str, Any]) -> dict[str, Any]:
    """What must be the same when a rollout is resumed; models and data sets are known by content, not by place."""
    fields = {key: value for key, value in config.items() if key not in NOT_COMPARED}
    return fields | {key: config.get(key, {}).get("digest") for key in ("model", "data")}


def select_tasks(dataset: Dataset, split: str, count: int, *, skip: int = 0) -> pa.Table:
    """`count` tasks of a split by task id, after the first `skip`: task_id and prompt.

    A task with several traces is there once.
    """
    ids = dataset.task_ids(split)
    if skip + count > len(ids):
        after = f" after the first {skip}" if skip else ""
        raise SearchformerError(f"{dataset.directory} has {len(ids)} {split} tasks; asked for are {count}{after}")
    chosen = pa.array(sorted(ids)[skip : skip + count])
    columns = ["task_id", "prompt"]
    tables = (pa.Table.from_batches([batch]) for batch in dataset.batches(split, columns))
    parts = [table.filter(pc.is_in(table["task_id"], chosen)) for table in tables]
    table = pa.concat_tables(parts).select(columns).sort_by("task_id")
    names = table["task_id"].to_pylist()
    return table.take([row for row, name in enumerate(names) if row == 0 or name != names[row - 1]])


@contextlib.contextmanager
def rank_locked(directory: Path, rank: int) -> Iterator[None]:
    """Keep other processes from sampling the tasks of `rank`, and wait for workers that a killed one left behind."""
    doing = "writing rollouts"
    with locked(directory, doing=doing, name=f".lock-{rank:05d}"):
        for path in sorted(directory.glob(f".lock-{rank:05d}-*")):
            with locked(directory, doing=doing, name=path.name, wait_seconds=WAIT_SECONDS):
                pass
        for kind in ("rollouts", ".digests"):  # half written by a killed process
            for path in directory.glob(f".{kind}-{rank:03d}-*.tmp"):
                path.unlink()
        yield


def share_locked(directory: Path, rank: int, share: int) -> contextlib.AbstractContextManager[None]:
    """What a worker holds while it writes a share of `rank`, so that others can wait for it to end."""
    name = f".lock-{rank:05d}-{share:03d}"
    return locked(directory, doing="writing rollouts", name=name, wait_seconds=WAIT_SECONDS)


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
        """Keep one answer; a shard is written every `save_seconds`."""
        self.answers.append(answer)
        if time.monotonic() - self.saved > self.save_seconds or len(self.answers) >= ANSWERS_PER_SHARD:
            self.save()

    def save(self) -> None:
        """Write what has been collected as a new shard; Ctrl-C waits, or answers would be written twice."""
        self.saved = time.monotonic()
        if not self.answers:
            return
        with held_back():
            self._write()

    def _write(self) -> None:
        columns = {column: [getattr(answer, column) for answer in self.answers] for column in self.schema.names}
        taken = [int(path.stem.rpartition("-")[2]) for path in self.directory.glob(f"rollouts-{self.name}-*.parquet")]
        number = max(taken, default=-1) + 1
        table = pa.table(columns, schema=self.schema)
        write_table(table, self.directory / f"rollouts-{self.name}-{number:05d}.parquet", writer=self.name)
        self.answers = []


def finish(directory: Path, config: dict[str, Any]) -> Manifest | None:
    """Write the manifest if every answer is there; returns it, or None while answers are missing."""
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
            f"{directory} holds {rows - len(seen)} answers twice: did two runs with the same rank write to it?"
        )
    manifest = Manifest(
        package=__version__,
        answers=rows,
        tokens=tokens,
        finish=dict(sorted(finishes.items())),
        tasks_digest=file_digest(directory / TASKS),
        shards=[AnswerFile(file=path.name, digest=file_digest(path)) for path in shard_files(directory)],
    )
    write_json(directory / MANIFEST, manifest.model_dump())
    for notes in directory.glob(RECORDS.format("[0-9]*")):  # the manifest has these digests now
        notes.unlink()
    return manifest
