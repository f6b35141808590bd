"""Memory of reading training batches from a data set far larger than it. Last line: JSON.

A synthetic data set of long random traces is unpacked and read by a process of its own; its own (anonymous) memory is
sampled. Pages of the mapped files are the system's cache, which it takes back when it needs to; they are not counted.
Try: `python benchmarks/memory.py --gigabytes 0.2`
"""

import argparse
import json
import multiprocessing
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from searchformer.dataset.batches import Batches, Sequences
from searchformer.dataset.store import Dataset, finish, schema
from searchformer.tokens.vocabulary import Vocabulary

GROUPS, ROWS, TRACE = 8, 512, 9000
"""Row groups of a shard, rows of a row group, mean tokens of a trace."""


def write(directory: Path, gigabytes: float) -> None:
    """Random traces in shards as `searchformer generate` makes them, a row group at a time."""
    vocabulary = Vocabulary.of(f"t{index}" for index in range(1000))
    generator = np.random.default_rng(0)
    files = {}
    for index in range(max(1, round(gigabytes * 1e9 / (2 * GROUPS * ROWS * TRACE)))):
        path = directory / f"train-{index:05}.parquet"
        with pq.ParquetWriter(path, schema(vocabulary), compression="zstd") as writer:
            for group in range(GROUPS):
                writer.write_table(random_rows(vocabulary, (index * GROUPS + group) * ROWS, generator))
        files[path.name] = "train"
    finish(directory, files, config={"domain": "synthetic", "settings": {}}, vocabulary=vocabulary)


def random_rows(vocabulary: Vocabulary, first: int, generator: np.random.Generator) -> pa.Table:
    """A row group of tasks from number `first` on."""
    lengths = [np.full(ROWS, 100), generator.integers(TRACE // 2, TRACE * 3 // 2, ROWS), np.full(ROWS, 30)]
    columns = [pa.array([f"{first + row:032x}" for row in range(ROWS)])]
    for length in lengths:
        ids = generator.integers(2, len(vocabulary), int(length.sum()), dtype=np.uint16)
        columns.append(pa.ListArray.from_arrays(pa.array(np.append(0, length.cumsum()), pa.int32()), ids))
    columns += [pa.array(length, pa.int32()) for length in lengths]
    return pa.Table.from_arrays(columns, schema=schema(vocabulary))


def own_megabytes() -> float:
    """Anonymous memory of this process now."""
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("RssAnon"))) / 1024


def read(directory: Path, batches: int, queue: multiprocessing.Queue) -> None:
    """Unpack, read a share of the batches, report memory before, after unpacking, and the most while reading."""
    before = own_megabytes()
    sequences = Sequences(Dataset(directory), "train")
    unpacked = own_megabytes()
    stream = Batches(sequences, batch_size=16, seed=0)
    most, tokens = 0.0, 0
    for position in range(batches):
        tokens += int(stream[position].response_lengths.sum())
        most = max(most, own_megabytes())
    queue.put({"before": before, "after_unpacking": unpacked, "most_while_reading": most, "tokens_read": tokens})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=2.0, help="size of the unpacked data set")
    parser.add_argument("--batches", type=int, default=2000)
    arguments = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    found = {}
    for gigabytes in (arguments.gigabytes / 8, arguments.gigabytes):
        with tempfile.TemporaryDirectory() as place:
            write(Path(place), gigabytes)
            queue: multiprocessing.Queue = context.Queue()
            reader = context.Process(target=read, args=(Path(place), arguments.batches, queue))
            reader.start()
            found[f"{gigabytes:g}_gb"] = queue.get()
            reader.join()
        print(
            f"{gigabytes:g} GB: "
            + ", ".join(f"{name} {value:,.0f}" for name, value in found[f"{gigabytes:g}_gb"].items())
        )
    print(json.dumps(found))


if __name__ == "__main__":
    main()
