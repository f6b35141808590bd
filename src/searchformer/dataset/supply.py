"""Shards 0, 1, 2, ... of a data set, made by this process or by several workers ahead of time.

A shard that is on disk already is taken as it is, so that work done before an interruption is not repeated.
"""

import contextlib
import multiprocessing
import signal
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from searchformer.dataset.shards import ROWS_PER_SHARD, GenerateOptions, ShardIndex, ShardMaker, move_rows
from searchformer.display import Update
from searchformer.errors import SearchformerError
from searchformer.lifetime import end_with_parent


@dataclass(frozen=True)
class Workers:
    """Processes that make shards, and the queue on which they tell how far they are."""

    executor: ProcessPoolExecutor
    messages: Any
    count: int


@contextlib.contextmanager
def started_workers(config: GenerateOptions, count: int) -> Iterator[Workers | None]:
    """Start the workers; with a `count` of 1 there are none, as this process does the work."""
    if count < 1:
        raise SearchformerError(f"--workers must be 1 or more; found {count}")
    if count == 1:
        yield None
        return
    context = multiprocessing.get_context("spawn")
    messages = context.SimpleQueue()
    executor = ProcessPoolExecutor(count, context, initializer=_start_worker, initargs=(config, messages))
    try:
        yield Workers(executor, messages, count)
    except BrokenProcessPool:
        raise SearchformerError("a worker process died; run the same command again to continue") from None
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


_worker: dict[str, Any] = {}
"""In a worker: its `maker` of shards and the queue `messages`."""


def _start_worker(config: GenerateOptions, messages: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the coordinator, which lets the workers finish
    end_with_parent()
    _worker["maker"], _worker["messages"] = ShardMaker(config), messages


def _make_in_worker(work: Path, number: int, rows: int) -> ShardIndex:
    messages = _worker["messages"]
    return _worker["maker"].make(work, number, rows, lambda new, rejected: messages.put((number, new, rejected)))


class ShardSupply:
    """Gives the indexes of shards in any order, and shows how many tasks there are."""

    def __init__(
        self,
        config: GenerateOptions,
        work: Path,
        maker: ShardMaker,
        *,
        workers: Workers | None,
        finished: int,
        update: Update,
    ) -> None:
        """The first `finished` shards are those of an earlier, smaller data set, and are in place already."""
        self.config, self.work, self.maker = config, work, maker
        self.workers, self.finished, self.update = workers, finished, update
        self._running: dict[int, Future[ShardIndex]] = {}
        self._rows: dict[int, int] = {}
        self._rejected: dict[int, dict[str, int]] = {}

    def index(self, number: int, rows: int) -> ShardIndex:
        """The index of shard `number`, with `rows` rows; fewer if it was finished shorter, or if no more are found."""
        path = self._index_path(number)
        if path.exists():
            index = ShardIndex.load(path)
            if len(index.is_test) >= rows or number < self.finished:
                self._rows[number] = 0
                self._count(number, len(index.is_test), index.rejected)
                return index
        if self.workers is not None:
            return self._from_workers(self.workers, number, rows)
        self._rows[number] = 0
        return self.maker.make(self.work, number, rows, lambda new, rejected: self._count(number, new, rejected))

    def move(self, moves: Iterable[tuple[Path, Path, np.ndarray]]) -> None:
        """Move files (source, target, which rows to keep [rows]); those that lose rows are copied, side by side."""
        copies, columns = [], self.maker.columns
        for source, target, keep in moves:
            if keep.all():
                source.replace(target)
            elif self.workers is None:
                move_rows(source, target, columns, keep)
            else:
                copies.append(self.workers.executor.submit(move_rows, source, target, columns, keep))
        for copy in copies:
            copy.result()

    def _index_path(self, number: int) -> Path:
        return self.work / f"{number:05d}.npz"

    def _from_workers(self, workers: Workers, number: int, rows: int) -> ShardIndex:
        planned = -(-self.config.tasks // ROWS_PER_SHARD)
        for ahead in range(number, max(number + 1, min(planned, number + 2 * workers.count))):
            if ahead in self._running or (ahead != number and self._index_path(ahead).exists()):
                continue
            wanted = rows if ahead == number else min(ROWS_PER_SHARD, self.config.tasks - ahead * ROWS_PER_SHARD)
            self._rows[ahead] = 0
            self._running[ahead] = workers.executor.submit(_make_in_worker, self.work, ahead, wanted)
        future = self._running[number]
        while not future.done():
            self._read_messages(workers, seconds=0.1)
        self._read_messages(workers, seconds=0.0)
        del self._running[number]
        return future.result()

    def _read_messages(self, workers: Workers, *, seconds: float) -> None:
        """Handle the workers' messages for this long."""
        end = time.monotonic() + seconds
        while True:
            if not workers.messages.empty():
                self._count(*workers.messages.get())
            elif time.monotonic() >= end:
                return
            else:
                time.sleep(0.01)

    def _count(self, number: int, new: int, rejected: dict[str, int]) -> None:
        """Add a shard's new rows, replace its rejections, and show the sums."""
        self._rows[number] = self._rows.get(number, 0) + new
        self._rejected[number] = rejected
        reasons = sorted({reason for counts in self._rejected.values() for reason in counts})
        totals = {reason: sum(counts.get(reason, 0) for counts in self._rejected.values()) for reason in reasons}
        listed = ", ".join(f"{count:,} {reason}" for reason, count in totals.items() if count)
        found = min(sum(self._rows.values()), self.config.tasks)
        self.update(found, self.config.tasks, f"rejected: {listed}" if listed else "")
