"""One shard of a data set: its share of tasks, sampled, searched, split by content, and written as Parquet.

Shard k's rows depend on the configuration and k only, and a shorter shard is the beginning of a longer one; so any
number of workers, before or after a crash, write the same bytes.
"""

import hashlib
import json
import zipfile
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from searchformer.dataset.options import GenerateOptions
from searchformer.dataset.store import PARTS, SPLITS, schema
from searchformer.digests import file_digest, require_digest
from searchformer.domains import make_domain
from searchformer.errors import SearchformerError
from searchformer.files import replacing
from searchformer.search import Options, Sampler, Searcher
from searchformer.search.searcher import AcceptedTasks
from searchformer.tokens.vocabulary import Vocabulary

ROWS_PER_SHARD = 8192
ROWS_PER_GROUP = 1024
PATIENCE = 200_000
"""So many candidates in a row without a new task mean that the settings are too narrow."""


@dataclass(frozen=True)
class ShardIndex:
    """What the coordinator needs to know about a shard's rows, in the order they were drawn."""

    fingerprints: np.ndarray
    """uint64 [rows]: the first 8 bytes of task_id. Equal ones count as equal tasks: at worst, one task is left out."""
    is_test: np.ndarray
    """bool [rows]."""
    rejected: dict[str, int]
    """Candidates rejected, by reason."""
    digests: dict[str, str] = field(default_factory=dict)
    """Digests of the shard's files, by split; of shards that are in place already, the manifest has them."""

    def save(self, path: Path) -> None:
        """Write to `path`, whole or not at all; the fingerprints, sorted, go into a file of their own before."""
        order = np.argsort(self.fingerprints, kind="stable")
        listed = np.empty(len(order), dtype=FINGERPRINTS)
        listed["fingerprint"], listed["row"] = self.fingerprints[order], order
        with replacing(fingerprints_path(path)) as temporary, open(temporary, "wb") as file:
            np.save(file, listed)
        listed_digest = file_digest(fingerprints_path(path))
        facts = {"rejected": self.rejected, "digests": self.digests, "fingerprints": listed_digest}
        with replacing(path) as temporary, open(temporary, "wb") as file:
            np.savez(file, is_test=self.is_test, facts=np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8))

    @classmethod
    def load(cls, path: Path) -> "ShardIndex":
        """Read what `save` wrote; raises if it is damaged, or the shard's files are."""
        try:
            with np.load(path) as stored:
                facts, is_test = json.loads(stored["facts"].tobytes()), stored["is_test"]
            if "fingerprints" in facts:  # older versions did not note it
                require_digest(fingerprints_path(path), facts["fingerprints"], repair="it is made again")
            listed = np.load(fingerprints_path(path))
            fingerprints = np.empty(len(is_test), dtype=np.uint64)
            fingerprints[listed["row"]] = listed["fingerprint"]
        except (OSError, ValueError, KeyError, IndexError, EOFError, zipfile.BadZipFile) as error:
            raise SearchformerError(f"{path} cannot be read: {error}") from error
        for split, digest in facts["digests"].items():
            file = work_file(path.parent, int(path.stem), split)
            if file.exists():  # else it is in its place already
                require_digest(file, digest, repair="it is made again")
        return cls(fingerprints, is_test, facts["rejected"], facts["digests"])


FINGERPRINTS = np.dtype([("fingerprint", "<u8"), ("row", "<u4")])
"""A task's fingerprint and its row; sorted by fingerprint, so that a range of them lies in one piece."""


def index_path(work: Path, number: int) -> Path:
    """Where the index of shard `number` is."""
    return work / f"{number:05d}.npz"


def fingerprints_path(index: Path) -> Path:
    """Where the fingerprints of the shard with this index are."""
    return index.with_suffix(".npy")


def work_file(work: Path, number: int, split: str) -> Path:
    """Where the rows of one split of shard `number` are, until they are moved into place."""
    return work / f"{number:05d}.{split}.parquet"


class SplitWriter:
    """A Parquet file of one split. Row groups have a fixed number of rows, however the rows arrive."""

    def __init__(self, path: Path, columns: pa.Schema) -> None:
        self.columns = columns
        self.writer = pq.ParquetWriter(
            path,
            columns,
            compression="zstd",
            compression_level=1,
            use_dictionary=False,
            column_encoding={f"{part}.list.element": "BYTE_STREAM_SPLIT" for part in PARTS},  # half the size and time
            write_statistics=False,
            # by default Arrow takes a thousand values at a time and pages beyond the cache: 1.4 times the time
            write_batch_size=1 << 16,
            data_page_size=1 << 18,
        )
        self.waiting: list[pa.RecordBatch] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        self.waiting.append(batch)
        if sum(part.num_rows for part in self.waiting) >= ROWS_PER_GROUP:
            table = pa.Table.from_batches(self.waiting, self.columns)
            whole = table.num_rows - table.num_rows % ROWS_PER_GROUP
            self.writer.write_table(table.slice(0, whole), row_group_size=ROWS_PER_GROUP)
            self.waiting = table.slice(whole).combine_chunks().to_batches()

    def close(self) -> None:
        """Write what is left and end the file."""
        table = pa.Table.from_batches(self.waiting, self.columns)
        if table.num_rows:
            self.writer.write_table(table, row_group_size=ROWS_PER_GROUP)
        self.writer.close()


Progress = Generator[tuple[int, dict[str, int]], None, None]
"""Yields rows and rejections so far."""


class ShardMaker:
    """Makes shards of one configuration, with warm kernels and memory."""

    def __init__(self, config: GenerateOptions) -> None:
        self.config, self.domain = config, make_domain(config.domain, config.settings)
        self.vocabulary = Vocabulary.of(self.domain.token_list())
        self.ids = self.vocabulary.encode(self.domain.token_list())
        how = config.model_dump(include={"deterministic", "algorithm", "weight", "max_expansions"})
        self.searcher = Searcher(self.domain, Options(**how))
        self.columns = schema(self.vocabulary)

    def make(self, directory: Path, shard: int, rows: int) -> Progress:
        """Write the shard's files and, last, its index."""
        index_path(directory, shard).unlink(missing_ok=True)  # of a shorter shard, or a damaged one
        paths = [work_file(directory, shard, split) for split in SPLITS]
        with replacing(paths[0]) as train, replacing(paths[1]) as test:
            writers = [SplitWriter(train, self.columns), SplitWriter(test, self.columns)]
            index = yield from self._fill(writers, shard, rows)
            for writer in writers:
                writer.close()
        digests = {split: file_digest(path) for split, path in zip(SPLITS, paths, strict=True)}
        replace(index, digests=digests).save(index_path(directory, shard))

    def _fill(
        self, writers: list[SplitWriter], shard: int, rows: int
    ) -> Generator[tuple[int, dict[str, int]], None, ShardIndex]:
        config = self.config
        limits = {"pairs": config.start_goal_pairs, "max_trace_tokens": config.max_trace_tokens or (1 << 31) - 1}
        sampler = Sampler(self.searcher, self.ids, seed=config.seed, part=shard, **limits)
        seen: set[bytes] = set()
        fingerprints: list[bytes] = []
        flags: list[bool] = []
        duplicates, last_success = 0, 0
        while len(flags) < rows:
            batch = sampler.draw(rows - len(flags), candidates=20_000)
            digests, is_test = self._identify(batch)
            new = _add_new(seen, digests)
            duplicates += len(new) - int(new.sum())
            for split, writer in enumerate(writers):
                writer.write(self._table(batch, digests, keep=new & (is_test == split)))
            fingerprints += [digest[:8] for digest, keep in zip(digests, new, strict=True) if keep]
            flags += is_test[new].tolist()
            if new.any():
                last_success = sampler.candidates()
            elif sampler.candidates() - last_success >= PATIENCE:
                break
            yield len(flags), {**sampler.rejected(), "duplicate": duplicates}
        rejected = {**sampler.rejected(), "duplicate": duplicates}
        return ShardIndex(np.frombuffer(b"".join(fingerprints), dtype=">u8"), np.array(flags, dtype=bool), rejected)

    def _identify(self, batch: AcceptedTasks) -> tuple[list[bytes], np.ndarray]:
        """Digests of the rows' tasks, and which belong to the test split: both by content alone."""
        name = self.domain.name.encode()
        problems = batch.problems.astype("<i4", copy=False)
        layouts = np.ascontiguousarray(self.domain.layout(problems))
        limit = round(self.config.test_fraction * 2**64)
        digests = [hashlib.blake2b(name + row.tobytes(), digest_size=16).digest() for row in problems]
        is_test = [
            int.from_bytes(hashlib.blake2b(name + row.tobytes(), digest_size=16).digest()[:8], "big") < limit
            for row in layouts
        ]
        return digests, np.array(is_test, dtype=bool)

    def _table(self, batch: AcceptedTasks, digests: list[bytes], *, keep: np.ndarray) -> pa.RecordBatch:
        """The rows that `keep` [rows] names, copied."""
        lengths = {part: np.diff(batch.ends[part]) for part in PARTS}
        arrays = [pa.array([digests[row].hex() for row in np.flatnonzero(keep)], type=pa.string())]
        # runs of rows are copied whole: many times faster than Arrow's filter on lists, or a mask over tokens
        edges = np.flatnonzero(np.diff(np.concatenate([[False], keep, [False]]))).reshape(-1, 2)
        for part in PARTS:
            ends, values = batch.ends[part], batch.parts[part]
            runs = [values[ends[first] : ends[last]] for first, last in edges]
            copied = np.concatenate(runs) if runs else values[:0]
            new_ends = np.concatenate([[0], np.cumsum(lengths[part][keep])]).astype(np.int32)
            arrays.append(pa.ListArray.from_arrays(new_ends, copied, type=self.columns.field(part).type))
        arrays += [pa.array(lengths[part][keep], type=pa.int32()) for part in PARTS]
        return pa.RecordBatch.from_arrays(arrays, schema=self.columns)


def _add_new(seen: set[bytes], digests: list[bytes]) -> np.ndarray:
    """Which of `digests` were not in `seen`, bool [len(digests)]; adds them."""
    new = []
    for digest in digests:
        new.append(digest not in seen)
        seen.add(digest)
    return np.array(new, dtype=np.bool_)


def move_rows(source: Path, target: Path, columns: pa.Schema, keep: np.ndarray) -> None:
    """Write the rows of `source` that `keep` [rows] names to `target`, as a ShardMaker would have; remove `source`.

    Done before, and killed then, there is no source left.
    """
    if not source.exists():
        return
    with replacing(target) as temporary, pq.ParquetFile(source) as file:
        writer = SplitWriter(temporary, columns)
        first = 0
        for batch in file.iter_batches(batch_size=ROWS_PER_GROUP):
            writer.write(batch.filter(pa.array(keep[first : first + batch.num_rows])))
            first += batch.num_rows
        writer.close()
    source.unlink()


def too_narrow(config: GenerateOptions, found: int, rejected: dict[str, int]) -> SearchformerError:
    """The error for settings that do not give as many distinct tasks."""
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in rejected.items() if count)
    return SearchformerError(
        f"found {found:,} distinct tasks of the {config.tasks:,} asked for, then a whole shard without a new one "
        f"(rejected: {reasons or 'none'}); ask for fewer, or for larger {config.domain} tasks"
    )
