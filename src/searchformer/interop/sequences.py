"""Token sequences from outside become rows of a data set: BSON documents in, ids out, task ids computed.

A published document is `{_id: int64, prompt: [str], reasoning: [str], plan: [str]}`. `SequenceParser.parse` reads runs
of them by a compiled kernel; what does not look just so goes to `parse_document`, which is slow, takes pymongo's own
word for what BSON is, and says what is wrong.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from searchformer.dataset.shards import ROWS_PER_SHARD, SplitWriter
from searchformer.dataset.store import PARTS, SPLITS, Manifest, finish, schema
from searchformer.domains import Domain, TaskError
from searchformer.domains.grid import SHIFT
from searchformer.domains.maze import GOAL, GRID, HEIGHT, START, WIDTH, Maze
from searchformer.errors import SearchformerError
from searchformer.extras import require
from searchformer.files import replacing
from searchformer.interop import kernels
from searchformer.tokens.vocabulary import Vocabulary

FIELDS = {"prompt": "prompt", "reasoning": "trace", "plan": "plan"}
"""Fields of a published document and our columns."""
PUBLISHED_ID = "published_id"
"""The column that keeps a document's `_id`; `task_id` is computed from the task, as in every data set."""


@dataclass(frozen=True)
class TokenRows:
    """Tasks as ids. R rows; row r of a part is parts[part][ends[part][r] : ends[part][r + 1]]."""

    published_ids: np.ndarray
    """int64 [R]."""
    parts: dict[str, np.ndarray]
    ends: dict[str, np.ndarray]
    """int32 [R + 1], for each part."""

    @classmethod
    def of(cls, published_ids: Sequence[int], rows: Mapping[str, Sequence[np.ndarray]], kind: np.dtype) -> "TokenRows":
        """From a list of ids per row and part."""
        ends = {part: np.cumsum([0, *map(len, rows[part])]).astype(np.int32) for part in PARTS}
        parts = {part: np.concatenate([np.empty(0, kind), *rows[part]]).astype(kind) for part in PARTS}
        return cls(np.array(published_ids, dtype=np.int64), parts, ends)

    def __len__(self) -> int:
        return len(self.published_ids)

    def row(self, part: str, number: int) -> np.ndarray:
        """The ids of one part of one row."""
        return self.parts[part][self.ends[part][number] : self.ends[part][number + 1]]


class SequenceParser:
    """Reads documents of one vocabulary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.table = kernels.token_table([token.encode() for token in vocabulary.tokens])
        self._room = 0

    def parse(self, data: np.ndarray, begin: int, end: int) -> tuple[TokenRows, int]:
        """Rows of the whole documents in data[begin:end], uint8, and where it stopped: at `end`, or at a document
        that the kernel does not take."""
        room = (end - begin) // kernels.LEAST_ELEMENT + 1
        if room > self._room:
            self._room = room
            self._parts = np.empty((3, room), dtype=self.vocabulary.dtype)
            self._ends = np.empty((3, (end - begin) // kernels.LEAST_DOCUMENT + 2), dtype=np.int32)
            self._ids = np.empty(self._ends.shape[1], dtype=np.int64)
        if self.table is None:
            return TokenRows.of([], {part: [] for part in PARTS}, self.vocabulary.dtype), begin
        rows, at = kernels.parse_documents(data, begin, end, *self.table, self._ids, self._parts, self._ends)
        ends = {part: self._ends[number, : rows + 1].copy() for number, part in enumerate(PARTS)}
        parts = {part: self._parts[number, : ends[part][-1]].copy() for number, part in enumerate(PARTS)}
        return TokenRows(self._ids[:rows].copy(), parts, ends), at

    def parse_document(self, document: bytes) -> TokenRows:
        """One row, by pymongo's BSON reader; raises SearchformerError."""
        bson = require("bson", extra="mongodb")
        try:
            found = bson.decode(document)
        except bson.errors.BSONError as error:
            raise SearchformerError(f"not a BSON document: {error}") from None
        return self.from_record(found)

    def from_record(self, found: Mapping[str, Any]) -> TokenRows:
        """One row, from a decoded document; raises SearchformerError."""
        identity = found.get("_id")
        if isinstance(identity, bool) or not isinstance(identity, int) or not -(2**63) <= identity < 2**63:
            raise SearchformerError(f"expected _id, a whole number of 64 bits; found {identity!r:.60}")
        rows = {}
        for field, part in FIELDS.items():
            tokens = found.get(field)
            if not isinstance(tokens, list) or not all(type(token) is str for token in tokens):
                raise SearchformerError(
                    f"document {identity}: expected {field}, a list of tokens; found {tokens!r:.60}"
                )
            try:
                rows[part] = [self.vocabulary.encode(tokens)]
            except SearchformerError as error:
                raise SearchformerError(f"document {identity}: {field}: {error}") from None
        return TokenRows.of([identity], rows, self.vocabulary.dtype)


# --- which tasks these are


def task_ids(domain: Domain, vocabulary: Vocabulary, rows: TokenRows) -> list[str]:
    """Every row's `task_id`, from its prompt; raises SearchformerError where a prompt is not a task of the domain."""
    problems = _maze_problems(domain, vocabulary, rows) if isinstance(domain, Maze) else [None] * len(rows)
    found = []
    for number, problem in enumerate(problems):
        if problem is None:
            try:
                problem = domain.parse_prompt(vocabulary.decode(rows.row("prompt", number).tolist()))
            except TaskError as error:
                place = f"document {rows.published_ids[number]}"
                raise SearchformerError(f"{place}: its prompt is not a task of {domain.name}: {error}") from None
        found.append(domain.task_id(problem))
    return found


def _maze_problems(domain: Maze, vocabulary: Vocabulary, rows: TokenRows) -> list[np.ndarray | None]:
    """The problems of mazes, many at a time; None for a prompt that is not written as ours are: see `parse_prompt`."""
    width, height = domain.width, domain.height
    words = {word: vocabulary.ids.get(word, -1) for word in domain.words}
    numbers = np.full(len(vocabulary), -1)
    for number in range(max(width, height)):
        if str(number) in vocabulary.ids:
            numbers[vocabulary.ids[str(number)]] = number
    ends, ids = rows.ends["prompt"].astype(np.int64), rows.parts["prompt"]
    lengths = np.diff(ends)
    regular = (lengths >= 6) & (lengths % 3 == 0)
    groups = np.where(regular, lengths // 3, 0)
    of_row = np.repeat(np.arange(len(rows)), groups)
    inside = np.arange(len(of_row)) - np.repeat(np.cumsum(groups) - groups, groups)  # number of a group in its row
    first = ends[of_row] + 3 * inside
    word, x, y = ids[first], numbers[ids[first + 1]], numbers[ids[first + 2]]
    expected = np.select([inside == 0, inside == 1], [words["start"], words["goal"]], words["wall"])
    good = (word == expected) & (x >= 0) & (x < width) & (y >= 0) & (y < height)
    regular[of_row[~good]] = False
    keep = good & regular[of_row]
    of_row, inside, x, y = of_row[keep], inside[keep], x[keep], y[keep]
    problems = np.zeros((len(rows), domain.problem_size()), dtype=np.int32)
    problems[:, WIDTH], problems[:, HEIGHT] = width, height
    wall = inside > 1
    problems[of_row[wall], GRID + y[wall] * width + x[wall]] = 1
    for place, field in ((0, START), (1, GOAL)):
        at = inside == place
        problems[of_row[at], field] = x[at] << SHIFT | y[at]
        on_wall = problems[of_row[at], GRID + y[at] * width + x[at]] == 1
        regular[of_row[at][on_wall]] = False
    return [problem if fine else None for problem, fine in zip(problems, regular, strict=True)]


# --- writing


class DatasetWriter:
    """Writes rows as they come into shards of a directory; memory does not grow with their number."""

    def __init__(self, directory: Path, domain: Domain, vocabulary: Vocabulary, *, published: bool = True) -> None:
        self.directory, self.domain, self.vocabulary = directory, domain, vocabulary
        self.extra = [pa.field(PUBLISHED_ID, pa.int64(), nullable=False)] if published else []
        self.columns = schema(vocabulary, self.extra)
        self.files: dict[str, str] = {}
        self.rows = dict.fromkeys(SPLITS, 0)
        self._open: dict[str, tuple[SplitWriter, int]] = {}

    def add(self, split: str, rows: TokenRows) -> None:
        """Add rows to a split."""
        begin = 0
        names = task_ids(self.domain, self.vocabulary, rows)
        while begin < len(rows):
            writer, room = self._writer(split)
            end = min(begin + room, len(rows))
            writer.write(self._batch(rows, names, begin, end))
            self._open[split] = writer, room - (end - begin)
            self.rows[split] += end - begin
            begin = end

    def _writer(self, split: str) -> tuple[SplitWriter, int]:
        """The split's open file and how many rows it still takes."""
        if split in self._open and self._open[split][1] == 0:
            self._open.pop(split)[0].close()
        if split not in self._open:
            name = self._next_name(split)
            self.files[name] = split
            self._open[split] = SplitWriter(self.directory / name, self.columns), ROWS_PER_SHARD
        return self._open[split]

    # --- a whole shard at a time, for what can be interrupted

    def existing(self, split: str) -> Path | None:
        """The split's next shard, if it is on disk already."""
        path = self.directory / self._next_name(split)
        return path if path.exists() else None

    def keep(self, split: str, path: Path, rows: int) -> None:
        """Count a shard that is on disk."""
        self.files[path.name] = split
        self.rows[split] += rows

    def write_shard(self, split: str, rows: Sequence[TokenRows]) -> None:
        """Write the split's next shard, whole or not at all."""
        path = self.directory / self._next_name(split)
        with replacing(path) as temporary:
            writer = SplitWriter(temporary, self.columns)
            for each in rows:
                writer.write(self._batch(each, task_ids(self.domain, self.vocabulary, each), 0, len(each)))
            writer.close()
        self.keep(split, path, sum(map(len, rows)))

    def is_full(self, split: str) -> bool:
        """Whether the split's last shard takes no more rows."""
        return self.rows[split] % ROWS_PER_SHARD == 0

    def _next_name(self, split: str) -> str:
        return f"{split}-{sum(each == split for each in self.files.values()):05d}.parquet"

    def _batch(self, rows: TokenRows, names: list[str], begin: int, end: int) -> pa.RecordBatch:
        arrays = [pa.array(names[begin:end], type=pa.string())]
        lengths = []
        for part in PARTS:
            ends = rows.ends[part][begin : end + 1]
            values = rows.parts[part][ends[0] : ends[-1]]
            arrays.append(pa.ListArray.from_arrays(ends - ends[0], values, type=self.columns.field(part).type))
            lengths.append(pa.array(np.diff(ends), type=pa.int32()))
        own = [pa.array(rows.published_ids[begin:end], type=pa.int64())] if self.extra else []
        return pa.RecordBatch.from_arrays([*arrays, *lengths, *own], schema=self.columns)

    def finish(self, config: dict[str, Any]) -> Manifest:
        """Close the files and declare the data set complete."""
        for split in SPLITS:
            if split not in self.files.values():
                self._writer(split)  # a split without rows has an empty file, as in every data set
            if split in self._open:
                self._open.pop(split)[0].close()
        whole = {"domain": self.domain.name, "settings": self.domain.model_dump(), "tasks": sum(self.rows.values())}
        files = dict(sorted(self.files.items(), key=lambda item: (item[0].split("-")[1], item[1] != "train")))
        return finish(self.directory, files, config=whole | config, vocabulary=self.vocabulary)
