"""From a configuration to a complete data set: shards made by workers, joined in order, without repeats.

While it is made, everything lies in `.work` inside the directory; at the end the shards are moved into place and the
manifest is written. Killed at any moment and started again, it goes on and ends with the same bytes.
Try: `searchformer generate maze --width 10 --height 10 --tasks 1000 --out d`.
"""

import contextlib
import multiprocessing
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from searchformer import __version__
from searchformer.dataset.shards import ROWS_PER_SHARD, GenerateConfig, ShardIndex, ShardMaker, copy_rows, too_narrow
from searchformer.dataset.store import MANIFEST, PARTS, SPLITS, Dataset, Manifest, Shard, file_digest, finish
from searchformer.errors import SearchformerError
from searchformer.files import LOCK, locked, make_directory, read_json, write_json
from searchformer.lifetime import end_with_parent

WORK = ".work"


@dataclass
class Progress:
    """How far a data set is; `report` is called after every change."""

    tasks: int
    accepted: int
    rejected: dict[str, int]
    report: Callable[["Progress"], None]


def generate(
    config: GenerateConfig,
    out: Path,
    *,
    workers: int = 1,
    append: bool = False,
    report: Callable[[Progress], None] = lambda progress: None,
) -> Manifest:
    """Make the data set `config` in `out`; with `append`, add `config.tasks` to the one there."""
    maker = ShardMaker(config)  # wrong settings show before anything is written
    config = config.model_copy(update={"settings": maker.domain.model_dump()})
    try:
        with locked(out, doing="generating"):
            return _generate(config, out, maker, workers=workers, append=append, report=report)
    except OSError as error:
        raise SearchformerError(f"cannot make the data set in {out}: {error.strerror or error}") from error


def _generate(
    config: GenerateConfig,
    out: Path,
    maker: ShardMaker,
    *,
    workers: int,
    append: bool,
    report: Callable[[Progress], None],
) -> Manifest:
    work = make_directory(out) / WORK
    complete = _existing(config, out, append=append)
    if isinstance(complete, Manifest):
        shutil.rmtree(work, ignore_errors=True)  # left if it was killed while tidying up
        return complete
    config = complete
    kept = _begin(config, out, work)
    progress = Progress(config.tasks, 0, {}, report)
    with _pool(config, workers) as pool:
        chosen = _collect(config, _Source(config, work, maker, pool, progress, kept))
        return _finish(config, out, work, maker, chosen, kept, pool)


# --- what is there already


def _comparable(config: GenerateConfig) -> dict[str, Any]:
    return config.model_dump(exclude={"tasks"})


def _require_same(found: dict[str, Any], config: GenerateConfig, out: Path) -> None:
    """Raise, naming the first field that differs, unless the data set in `out` has this configuration."""
    for field, asked in _comparable(config).items():
        if found.get(field) != asked:
            raise SearchformerError(
                f"{out} holds a data set made with {field} = {found.get(field)!r}, asked for is {asked!r}; "
                "choose another directory"
            )


def _existing(config: GenerateConfig, out: Path, *, append: bool) -> Manifest | GenerateConfig:
    """The manifest if there is nothing to do, or the configuration with the number of tasks to reach."""
    work = out / WORK
    if (work / "config.json").exists():  # it was interrupted: the manifest, if there is one, is the state before
        stored = read_json(work / "config.json", what="unfinished data set")
        _require_same(stored, config, out)
        asked = stored["appended"] if append else stored["tasks"]
        if asked != config.tasks or append != bool(stored["appended"]):
            begun = f"--append --tasks {stored['appended']}" if stored["appended"] else f"--tasks {stored['tasks']}"
            raise SearchformerError(f"{out} holds an unfinished data set begun with {begun}; finish it first")
        return config.model_copy(update={"tasks": stored["tasks"]})
    if not (out / MANIFEST).exists():
        if append:
            raise SearchformerError(f"{out} holds no complete data set to append to; leave out --append")
        if any(path.name not in (WORK, LOCK) for path in out.iterdir()):
            raise SearchformerError(f"{out} is not empty and holds no data set; choose another directory")
        return config
    manifest = Dataset(out).manifest
    _require_same(manifest.config, config, out)
    if append:
        return config.model_copy(update={"tasks": manifest.config["tasks"] + config.tasks})
    if manifest.config["tasks"] != config.tasks:
        raise SearchformerError(
            f"{out} holds a complete data set of {manifest.config['tasks']} tasks, asked for are {config.tasks}; "
            "add to it with --append, or choose another directory"
        )
    return manifest


def _begin(config: GenerateConfig, out: Path, work: Path) -> int:
    """Set up `.work`. Returns how many shards of an earlier, smaller data set stay as they are."""
    if (work / "config.json").exists():
        return int(read_json(work / "config.json", what="unfinished data set")["kept"])
    kept, appended = 0, 0
    shutil.rmtree(work, ignore_errors=True)  # without a config.json it is what a killed run left
    make_directory(work)
    if (out / MANIFEST).exists():
        manifest = Dataset(out, verify=True).manifest
        appended = config.tasks - manifest.config["tasks"]
        last = max(int(shard.file.split("-")[1].split(".")[0]) for shard in manifest.shards)
        kept = last  # the last shard may be a part of one: it is made again, longer
        for number in range(kept):
            _index_of_finished(out, number, manifest).save(work / f"{number:05d}.npz")
    state = _comparable(config) | {"tasks": config.tasks, "kept": kept, "appended": appended}
    write_json(work / "config.json", state)
    return kept


def _index_of_finished(out: Path, number: int, manifest: Manifest) -> ShardIndex:
    """The index of a shard that is in place. Repeats are out of it, and its order no longer matters."""
    fingerprints, flags = [], []
    for split, name in enumerate(SPLITS):
        identities = pq.read_table(out / f"{name}-{number:05d}.parquet", columns=["task_id"])["task_id"].to_pylist()
        fingerprints += [bytes.fromhex(identity[:16]) for identity in identities]
        flags += [bool(split)] * len(identities)
    values = np.frombuffer(b"".join(fingerprints), dtype=">u8")
    return ShardIndex(values, np.array(flags, dtype=bool), manifest.rejected[number])


# --- making shards


@contextlib.contextmanager
def _pool(config: GenerateConfig, workers: int) -> Iterator["_Pool | None"]:
    """Processes that make shards; none for one worker."""
    if workers < 1:
        raise SearchformerError(f"--workers must be 1 or more; found {workers}")
    if workers == 1:
        yield None
        return
    context = multiprocessing.get_context("spawn")
    messages = context.SimpleQueue()
    executor = ProcessPoolExecutor(workers, context, initializer=_start_worker, initargs=(config, messages))
    try:
        yield _Pool(executor, messages, workers)
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


@dataclass
class _Pool:
    executor: ProcessPoolExecutor
    messages: Any
    workers: int


_worker: dict[str, Any] = {}


def _start_worker(config: GenerateConfig, messages: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the coordinator, which lets the workers finish
    end_with_parent()
    _worker["maker"], _worker["messages"] = ShardMaker(config), messages


def _make_in_worker(work: Path, number: int, rows: int) -> ShardIndex:
    messages = _worker["messages"]
    return _worker["maker"].make(work, number, rows, lambda new, rejected: messages.put((number, new, rejected)))


class _Source:
    """Gives the indexes of shards 0, 1, 2, ...: those on disk as they are, the others made, several at a time."""

    def __init__(
        self, config: GenerateConfig, work: Path, maker: ShardMaker, pool: _Pool | None, progress: Progress, kept: int
    ) -> None:
        self.config, self.work, self.maker, self.pool, self.progress = config, work, maker, pool, progress
        self.kept = kept
        self.running: dict[int, Future[ShardIndex]] = {}
        self.counts: dict[int, tuple[int, dict[str, int]]] = {}
        self.planned = -(-config.tasks // ROWS_PER_SHARD)

    def rows(self, number: int) -> int:
        """Rows of a shard if no task repeats: the last of those planned is shorter."""
        left = self.config.tasks - number * ROWS_PER_SHARD
        return min(ROWS_PER_SHARD, left) if left > 0 else ROWS_PER_SHARD

    def index(self, number: int, rows: int) -> ShardIndex:
        """The index of shard `number`, with `rows` rows; fewer if it was begun shorter, or if no more can be found."""
        path = self.work / f"{number:05d}.npz"
        if path.exists():
            index = ShardIndex.load(path)
            if len(index.is_test) >= rows or number < self.kept:
                self._note(number, len(index.is_test), index.rejected)
                return index
        if self.pool is None:
            self.counts.pop(number, None)
            return self.maker.make(self.work, number, rows, lambda new, rejected: self._add(number, new, rejected))
        return self._from_pool(number, rows)

    def _from_pool(self, number: int, rows: int) -> ShardIndex:
        assert self.pool is not None
        ahead = range(number, max(number + 1, min(self.planned, number + 2 * self.pool.workers)))
        for other in ahead:
            wanted = rows if other == number else self.rows(other)
            if other not in self.running and (other == number or not (self.work / f"{other:05d}.npz").exists()):
                self.counts.pop(other, None)
                self.running[other] = self.pool.executor.submit(_make_in_worker, self.work, other, wanted)
        future = self.running[number]
        try:
            while not future.done():
                self._listen(0.1)
            self._listen(0.0)
            index = future.result()
        except BrokenProcessPool:
            raise SearchformerError("a worker process died; the same command goes on from here") from None
        del self.running[number]
        return index

    def _listen(self, seconds: float) -> None:
        """Take the workers' messages, for so long."""
        assert self.pool is not None
        end = time.monotonic() + seconds
        while True:
            if not self.pool.messages.empty():
                number, new, rejected = self.pool.messages.get()
                self._add(number, new, rejected)
            elif time.monotonic() >= end:
                return
            else:
                time.sleep(0.01)

    def _add(self, number: int, new: int, rejected: dict[str, int]) -> None:
        self._note(number, self.counts.get(number, (0, {}))[0] + new, rejected)

    def _note(self, number: int, rows: int, rejected: dict[str, int]) -> None:
        self.counts[number] = (rows, rejected)
        self.progress.accepted = min(sum(rows for rows, _ in self.counts.values()), self.progress.tasks)
        reasons = {reason for _, counts in self.counts.values() for reason in counts}
        self.progress.rejected = {
            reason: sum(counts.get(reason, 0) for _, counts in self.counts.values()) for reason in sorted(reasons)
        }
        self.progress.report(self.progress)


@dataclass(frozen=True)
class _Chosen:
    """The rows of a shard that go into the data set."""

    index: ShardIndex
    keep: np.ndarray
    """bool [rows]."""


class _Seen:
    """Fingerprints of all tasks so far, in sorted runs that are merged when they are of like size: 8 bytes a task."""

    def __init__(self) -> None:
        self.runs: list[np.ndarray] = []

    def new(self, fingerprints: np.ndarray) -> np.ndarray:
        """Which of these were not there; adds them."""
        values = fingerprints.astype(np.uint64)
        fresh = np.ones(len(values), dtype=bool)
        for run in self.runs:
            places = np.minimum(np.searchsorted(run, values), len(run) - 1)
            fresh &= run[places] != values
        self.runs.append(np.sort(values[fresh]))
        self.runs = [run for run in self.runs if len(run)]
        while len(self.runs) > 1 and len(self.runs[-2]) <= 2 * len(self.runs[-1]):
            self.runs[-2:] = [np.sort(np.concatenate(self.runs[-2:]))]
        return fresh


def _collect(config: GenerateConfig, source: _Source) -> list[_Chosen]:
    """Take shards in order, leave out tasks that an earlier one has, until there are enough."""
    seen, chosen, total, number = _Seen(), [], 0, 0
    while total < config.tasks:
        missing = config.tasks - total
        index = source.index(number, min(ROWS_PER_SHARD, missing))
        fresh = seen.new(index.fingerprints)
        whole = len(index.is_test) >= ROWS_PER_SHARD or number < source.kept
        while fresh.sum() < missing and not whole:
            # repeats in the last shard: make it longer, as far as it goes
            before = len(index.is_test)
            index = source.index(number, min(ROWS_PER_SHARD, before + int(missing - fresh.sum())))
            added = seen.new(index.fingerprints[before:])
            fresh = np.concatenate([fresh, added])
            whole = len(index.is_test) >= ROWS_PER_SHARD or len(index.is_test) == before
        if not fresh.any():
            raise too_narrow(config, total, index.rejected)
        keep = fresh & (np.cumsum(fresh) <= missing)
        chosen.append(_Chosen(index, keep))
        total += int(keep.sum())
        number += 1
    return chosen


# --- putting the data set together


def _finish(
    config: GenerateConfig,
    out: Path,
    work: Path,
    maker: ShardMaker,
    chosen: list[_Chosen],
    kept: int,
    pool: _Pool | None,
) -> Manifest:
    """Move the shards into place and write the manifest. Those with repeats are copied without them, side by side."""
    (out / MANIFEST).unlink(missing_ok=True)
    for leftover in out.glob(".*.tmp"):  # of a run that was killed here
        leftover.unlink()
    maker.vocabulary.save(out)
    shards: list[Shard] = []
    longest = dict.fromkeys(PARTS, 0)
    rejected: list[dict[str, int]] = []
    copying: list[Future[None]] = []
    for number, part in enumerate(chosen):
        for split, name in enumerate(SPLITS):
            source, target = work / f"{number:05d}.{name}.parquet", out / f"{name}-{number:05d}.parquet"
            keep = part.keep[part.index.is_test == bool(split)]
            if number < kept or not source.exists():
                continue
            if keep.all():
                source.replace(target)
            elif pool is None:
                _move_rows(source, target, maker, keep)
            else:
                copying.append(pool.executor.submit(_move_in_worker, source, target, keep))
    try:
        for copy in copying:
            copy.result()
    except BrokenProcessPool:
        raise SearchformerError("a worker process died; the same command goes on from here") from None
    for number, part in enumerate(chosen):
        shards += [_describe(out / f"{name}-{number:05d}.parquet", name, longest) for name in SPLITS]
        again = part.index.rejected["duplicate"] + int((~part.keep).sum())
        rejected.append({**part.index.rejected, "duplicate": again})
    totals = {f"rejected.{reason}": sum(counts[reason] for counts in rejected) for reason in rejected[0]}
    counts = {name: sum(shard.rows for shard in shards if shard.split == name) for name in SPLITS}
    manifest = Manifest(
        package=__version__,
        domain=config.domain,
        settings=config.settings,
        config=config.model_dump(),
        vocabulary_digest=maker.vocabulary.digest,
        counts=counts | totals,
        rejected=rejected,
        longest=longest,
        shards=shards,
    )
    finish(out, manifest)
    (work / "config.json").unlink()  # first: from here on there is nothing to go on with
    shutil.rmtree(work)
    return manifest


def _move_rows(source: Path, target: Path, maker: ShardMaker, keep: np.ndarray) -> None:
    copy_rows(source, target, maker.columns, keep)
    source.unlink()


def _move_in_worker(source: Path, target: Path, keep: np.ndarray) -> None:
    _move_rows(source, target, _worker["maker"], keep)


def _describe(path: Path, split: str, longest: dict[str, int]) -> Shard:
    """The manifest's entry of a file; notes the longest sequences."""
    lengths = pq.read_table(path, columns=[f"{part}_length" for part in PARTS])
    tokens = 0
    for part in PARTS:
        values = lengths[f"{part}_length"].to_numpy()
        longest[part] = max(longest[part], int(values.max(initial=0)))
        tokens += int(values.sum())
    return Shard(file=path.name, split=split, rows=lengths.num_rows, tokens=tokens, digest=file_digest(path))
