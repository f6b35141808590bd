"""Which rows of a data set's shards repeat a task of an earlier row, found without a list of all tasks in one place.

Fingerprints of tasks are uniform numbers, so ranges of them (their leading bits) are equal parts. The rows of one range
can only repeat each other: every range is examined by itself, by any worker, in memory that is a part of the whole. A
shard's fingerprints are stored sorted, so that a range of them is read in one piece.
"""

from pathlib import Path

import numpy as np

from searchformer.dataset.shards import fingerprints_path, index_path

ROWS_PER_RANGE = 1 << 22
"""About so many rows are examined at a time: some 120 MB."""


def range_count(rows: int) -> int:
    """How many ranges, a power of two, the fingerprints of so many rows are divided into."""
    return 1 << max(0, (rows - 1) // ROWS_PER_RANGE).bit_length()


def repeats_in_range(work: Path, shards: int, number: int, ranges: int) -> dict[int, np.ndarray]:
    """Rows of shards 0 to `shards` - 1 that repeat an earlier row, among those of range `number` of so many.

    By shard, without shards that have none: int64 [repeats], in order.
    """
    width = (1 << 64) // ranges
    first, last = number * width, (number + 1) * width - 1
    parts = []
    for shard in range(shards):
        listed = np.load(fingerprints_path(index_path(work, shard)), mmap_mode="r")
        begin = np.searchsorted(listed["fingerprint"], np.uint64(first), side="left")
        end = np.searchsorted(listed["fingerprint"], np.uint64(last), side="right")
        part = np.empty(end - begin, dtype=[("fingerprint", "<u8"), ("shard", "<u4"), ("row", "<u4")])
        part["fingerprint"], part["row"] = listed["fingerprint"][begin:end], listed["row"][begin:end]
        part["shard"] = shard
        parts.append(part)
    rows = np.concatenate(parts)
    rows = rows[np.lexsort((rows["row"], rows["shard"], rows["fingerprint"]))]
    repeated = rows[1:][rows["fingerprint"][1:] == rows["fingerprint"][:-1]]
    return {
        int(shard): np.sort(repeated["row"][repeated["shard"] == shard]).astype(np.int64)
        for shard in np.unique(repeated["shard"])
    }
