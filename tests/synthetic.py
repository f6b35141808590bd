"""Small made-up data sets for tests of what reads them: any split, any lengths, no domain needed."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from searchformer.dataset.store import Dataset, finish, schema
from searchformer.tokens.vocabulary import Vocabulary

LETTERS = Vocabulary.of("abcdefgh")
Row = tuple[str, list[int], list[int], list[int]]


def task_id(index: int) -> str:
    return hashlib.blake2b(str(index).encode(), digest_size=16).hexdigest()


def letter_tasks(count: int, *, seed: int = 0, longest: int = 9) -> list[Row]:
    """Prompt: some letters. Trace: the same letters sorted. Plan: the first two of the trace."""
    generator = np.random.default_rng(seed)
    prompts = [generator.integers(2, len(LETTERS), generator.integers(2, longest + 1)) for _ in range(count)]
    rows = [(p.tolist(), sorted(p.tolist())) for p in prompts]
    return [(task_id(1000 * seed + i), p, trace, trace[:2]) for i, (p, trace) in enumerate(rows)]


def write_dataset(
    directory: Path, *, train: Iterable[Row], test: Iterable[Row] = (), vocabulary: Vocabulary = LETTERS
) -> Dataset:
    """A complete data set of one shard per split."""
    directory.mkdir(parents=True, exist_ok=True)
    files = {}
    for split, rows in (("train", list(train)), ("test", list(test))):
        columns = [[row[0] for row in rows]]
        columns += [[row[part] for row in rows] for part in (1, 2, 3)]
        columns += [[len(row[part]) for row in rows] for part in (1, 2, 3)]
        path = directory / f"{split}-00000.parquet"
        fields = schema(vocabulary)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, fields, strict=True)]
        pq.write_table(pa.Table.from_arrays(arrays, schema=fields), path, compression="zstd")
        files[path.name] = split
    config = {"domain": "letters", "settings": {"longest": 9}, "deterministic": True}
    finish(directory, files, config=config, vocabulary=vocabulary)
    return Dataset(directory)
