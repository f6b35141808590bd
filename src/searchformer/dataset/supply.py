"""Shards 0, 1, 2, ... of a data set, made by the workers of an engine.

A shard that is on disk already is taken as it is, so that work done before an interruption is not repeated.
"""

import contextlib
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from searchformer.dataset.duplicates import range_count, repeats_in_range
from searchformer.dataset.shards import ROWS_PER_SHARD, GenerateOptions, ShardIndex, ShardMaker, index_path, move_rows
from searchformer.dataset.store import Shard, describe_shard
from searchformer.display import Update
from searchformer.engines.base import Crew, Engine, results_in_order
from searchformer.errors import SearchformerError

ROWS = "rows"


@dataclass(frozen=True)
class MakeShard:
    """Make one shard."""

    work: Path
    number: int
    rows: int

    def __str__(self) -> str:
        return f"shard {self.number}"

    def run(self, maker: ShardMaker) -> Generator[Any, None, None]:
        """Yields new rows and rejections."""
        yield from maker.make(self.work, self.number, self.rows)


@dataclass(frozen=True)
class FindRepeats:
    """Find the rows that repeat earlier ones, in one range of fingerprints."""

    work: Path
    shards: int
    number: int
    ranges: int

    def __str__(self) -> str:
        return f"range {self.number} of {self.ranges} of the task ids"

    def run(self, maker: ShardMaker) -> Generator[Any, None, dict[int, np.ndarray]]:
        """Returns rows by shard."""
        yield from ()
        return repeats_in_range(self.work, self.shards, self.number, self.ranges)


@dataclass(frozen=True)
class MoveRows:
    """Move one file into place without some of its rows."""

    source: Path
    target: Path
    keep: np.ndarray

    def __str__(self) -> str:
        return f"the file {self.target.name}"

    def run(self, maker: ShardMaker) -> Generator[Any, None, None]:
        """Copies the rows to keep."""
        yield from ()
        move_rows(self.source, self.target, maker.columns, self.keep)


@dataclass(frozen=True)
class DescribeShard:
    """Read what the manifest says of one file."""

    directory: Path
    file: str
    split: str

    def __str__(self) -> str:
        return f"the file {self.file}"

    def run(self, maker: ShardMaker) -> Generator[Any, None, tuple[Shard, dict[str, int]]]:
        """Returns its entry, and its longest parts."""
        yield from ()
        return describe_shard(self.directory, self.file, self.split)


class _ShardJob:
    """What a worker does: any of the above, with one warm maker of shards."""

    def __init__(self, config: GenerateOptions) -> None:
        self.maker = ShardMaker(config)

    def __call__(self, item: MakeShard | FindRepeats | MoveRows | DescribeShard) -> Generator[Any, None, Any]:
        return item.run(self.maker)


class ShardSupply:
    """Has shards made, and shows how many tasks there are."""

    def __init__(self, config: GenerateOptions, work: Path, crew: Crew, *, finished: int, update: Update) -> None:
        """The first `finished` shards are those of an earlier, smaller data set, and are in place already."""
        self.config, self.work, self.crew = config, work, crew
        self.finished, self.update = finished, update
        self._shown: dict[int, Counter[str]] = {}
        """Rows and rejections of each shard that are counted in `_totals`."""
        self._totals: Counter[str] = Counter()

    def make(self, wanted: Sequence[tuple[int, int]]) -> None:
        """Make the shards (number, rows) that are not on disk with as many rows."""
        missing = []
        for number, rows in wanted:
            index = self._on_disk(number)
            if index is not None and (len(index.is_test) >= rows or number < self.finished):
                self._count(number, len(index.is_test), index.rejected)
            else:
                missing.append(MakeShard(self.work, number, rows))
        results_in_order(self.crew, missing, told=lambda told: self._count(missing[told.index].number, *told.message))

    def index(self, number: int) -> ShardIndex:
        """The index of a shard that was made."""
        return ShardIndex.load(index_path(self.work, number))

    def repeats(self, shards: int) -> dict[int, np.ndarray]:
        """Rows of the first so many shards that repeat a task of an earlier row, by shard."""
        ranges = range_count(shards * ROWS_PER_SHARD)
        items = [FindRepeats(self.work, shards, number, ranges) for number in range(ranges)]
        found: dict[int, list[np.ndarray]] = {}
        for part in results_in_order(self.crew, items):
            for shard, rows in part.items():
                found.setdefault(shard, []).append(rows)
        return {shard: np.concatenate(rows) for shard, rows in found.items()}

    def move(self, moves: Iterable[tuple[Path, Path, np.ndarray]]) -> None:
        """Move files (source, target, which rows to keep [rows]); those that lose rows are copied by the workers."""
        copies = []
        for source, target, keep in moves:
            if keep.all():
                source.replace(target)
            else:
                copies.append(MoveRows(source, target, keep))
        results_in_order(self.crew, copies)

    def describe(self, directory: Path, files: Mapping[str, str]) -> list[tuple[Shard, dict[str, int]]]:
        """What the manifest says of the files (names and splits)."""
        return results_in_order(self.crew, [DescribeShard(directory, file, split) for file, split in files.items()])

    def _on_disk(self, number: int) -> ShardIndex | None:
        """A shard that was made before; None if there is none, or if it is damaged."""
        if not index_path(self.work, number).exists():
            return None
        try:
            return self.index(number)
        except SearchformerError:
            if number < self.finished:
                raise
            return None

    def _count(self, number: int, rows: int, rejected: dict[str, int]) -> None:
        """Replace what a shard counts for, and show the sums."""
        counts = Counter({ROWS: rows, **rejected})
        self._totals.subtract(self._shown.get(number, {}))
        self._totals.update(counts)
        self._shown[number] = counts
        listed = ", ".join(
            f"{count:,} {name}" for name, count in sorted(self._totals.items()) if count and name != ROWS
        )
        found = min(self._totals[ROWS], self.config.tasks)
        self.update(found, self.config.tasks, f"rejected: {listed}" if listed else "")


@contextlib.contextmanager
def shard_crew(config: GenerateOptions, engine: Engine, workers: int | None) -> Iterator[Crew]:
    """The workers that make shards."""
    count = engine.worker_count(workers, default=1)
    with engine.crew(partial(_ShardJob, config), workers=count) as crew:
        yield crew
