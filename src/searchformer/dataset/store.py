"""A data set: a directory of Parquet shards, `vocabulary.json`, and `manifest.json`, which is written last.

Columns: `task_id` (hex), `prompt`, `trace`, `plan` (lists of ids, without bos and eos), and their lengths.
Any Parquet reader takes the shards as they are. Try: `searchformer inspect DIR`.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from searchformer import __version__
from searchformer.digests import file_digest, recorded, require_digest
from searchformer.errors import SearchformerError, cut, shown
from searchformer.files import DATA_SET, inside, read_json, require_kind, write_json
from searchformer.tokens.vocabulary import Vocabulary

MANIFEST, WORK = "manifest.json", ".work"
FORMAT = 2
"""Version of the manifest's layout."""
SPLITS = ("train", "test")
PARTS = ("prompt", "trace", "plan")


class Shard(BaseModel):
    """One Parquet file of a data set."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str
    """Name inside the data set's directory."""
    split: str
    """`train` or `test`."""
    rows: int
    """Number of tasks."""
    tokens: int
    """Sum of prompt, trace and plan tokens."""
    digest: str
    """BLAKE2b-128 of the file's bytes, as hex."""


class Manifest(BaseModel):
    """What a complete data set says of itself."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int = Field(default=FORMAT, le=FORMAT)
    """Version of this layout."""
    package: str
    """Version of searchformer that wrote it."""
    config: dict[str, Any]
    """How the data set was made; among others, `domain` and its `settings`."""
    vocabulary_digest: str
    """Digest of `vocabulary.json`."""
    rejected: list[dict[str, int]] = []
    """For every shard number, rejected candidates by reason."""
    longest: dict[str, int]
    """Longest prompt, trace and plan, in tokens."""
    shards: list[Shard]
    """All files, in order."""

    @model_validator(mode="before")
    @classmethod
    def _read_format_1(cls, stored: Any) -> Any:
        """Format 1 had domain and settings also outside of `config`, and the sums that `counts` computes."""
        if not isinstance(stored, dict):
            return stored
        stored = dict(stored)
        outside = {name: stored.pop(name) for name in ("domain", "settings") if name in stored}
        if outside and isinstance(stored.get("config"), dict):
            stored["config"] = outside | stored["config"]
        stored.pop("counts", None)
        return stored

    @field_validator("config")
    @classmethod
    def _names_a_domain(cls, config: dict[str, Any]) -> dict[str, Any]:
        if missing := {"domain", "settings"} - config.keys():
            raise ValueError(f"it lacks {' and '.join(sorted(missing))}")
        return config

    @property
    def domain(self) -> str:
        """Name of the domain in the registry."""
        return self.config["domain"]

    @property
    def settings(self) -> dict[str, Any]:
        """The domain's settings: sizes, number of walls, token format."""
        return self.config["settings"]

    @property
    def counts(self) -> dict[str, int]:
        """Tasks per split, and rejected candidates by reason under `rejected.*`."""
        tasks = {split: sum(shard.rows for shard in self.shards if shard.split == split) for split in SPLITS}
        reasons = dict.fromkeys(reason for shard in self.rejected for reason in shard)
        totals = {f"rejected.{reason}": sum(shard.get(reason, 0) for shard in self.rejected) for reason in reasons}
        return tasks | totals


def schema(vocabulary: Vocabulary, extra: Sequence[pa.Field] = ()) -> pa.Schema:
    """Columns of a shard."""
    kind = pa.uint16() if vocabulary.dtype == np.uint16 else pa.uint32()
    ids = pa.list_(pa.field("element", kind, nullable=False))
    fields = [pa.field("task_id", pa.string(), nullable=False)]
    fields += [pa.field(part, ids, nullable=False) for part in PARTS]
    fields += [pa.field(f"{part}_length", pa.int32(), nullable=False) for part in PARTS]
    return pa.schema([*fields, *extra])


def write_table(table: pa.Table, path: Path, *, writer: str) -> None:
    """Write a Parquet file, whole or not at all; its digest is noted in the list of `writer`."""
    with recorded(path, writer=writer) as temporary:
        pq.write_table(table, temporary, compression="zstd")


class Dataset:
    """A complete data set, opened for reading."""

    def __init__(self, directory: Path | str, *, verify: bool = False, trusted: bool = False) -> None:
        """A file's digest is compared when it is first read; with `verify`, all are now; if `trusted`, none ever."""
        self.trusted = trusted
        self.directory = Path(directory)
        require_kind(self.directory, DATA_SET, advice="give the directory of one")
        if not (self.directory / MANIFEST).exists() and (self.directory / WORK).exists():
            raise SearchformerError(f"{directory} holds an unfinished data set; run the command that makes it again")
        stored = read_json(self.directory / MANIFEST, what="complete data set")
        try:
            self.manifest = Manifest.model_validate(stored)
        except ValidationError as error:
            first = error.errors()[0]
            place = cut(".".join(map(str, first["loc"])))
            found = "" if first["type"] == "missing" else f"; found {shown(first['input'])}"
            raise SearchformerError(
                f"{self.directory / MANIFEST}: field {place}: {cut(first['msg'])}{found}"
            ) from error
        self.vocabulary = Vocabulary.load(self.directory)
        if self.vocabulary.digest != self.manifest.vocabulary_digest:
            raise SearchformerError(f"{self.directory}: vocabulary.json is not the one the manifest names; restore it")
        if verify:
            self.verify()

    def verify(self) -> None:
        """Raise, naming the file, unless every shard has the bytes that the manifest says."""
        for shard in self.manifest.shards:
            self.path_of(shard)

    def path_of(self, shard: Shard) -> Path:
        """Where a shard is; raises unless it has the bytes that the manifest says. All reading goes through this."""
        path = inside(self.directory, shard.file)
        if not self.trusted:
            require_digest(path, shard.digest, repair="make the data set again or restore the file")
        return path

    def shards(self, split: str) -> list[Shard]:
        """The files of one split, in order."""
        if split not in SPLITS:
            raise SearchformerError(f"a split is one of {', '.join(SPLITS)}; found {shown(split)}")
        return [shard for shard in self.manifest.shards if shard.split == split]

    def rows(self, split: str) -> int:
        """Number of tasks in a split."""
        return sum(shard.rows for shard in self.shards(split))

    def batches(self, split: str, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The split's rows, a row group at a time, so that memory does not grow with the data set."""
        for shard in self.shards(split):
            path = self.path_of(shard)
            try:
                with pq.ParquetFile(path) as file:
                    yield from file.iter_batches(batch_size=1024, columns=columns)
            except (OSError, pa.ArrowInvalid) as error:
                raise SearchformerError(f"{path} cannot be read: {cut(str(error))}; make the data set again") from error

    def task_ids(self, split: str) -> set[str]:
        """The split's tasks."""
        return {task for batch in self.batches(split, ["task_id"]) for task in batch.column("task_id").to_pylist()}

    def lengths(self, split: str) -> dict[str, np.ndarray]:
        """Tokens of each prompt, trace and plan, int32 [rows]; empty for a split without rows."""
        columns = {part: f"{part}_length" for part in PARTS}
        batches = list(self.batches(split, list(columns.values())))
        table = pa.Table.from_batches(batches) if batches else None
        return {part: table[column].to_numpy() for part, column in columns.items()} if table else {}

    def records(self, split: str, columns: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
        """The split's rows as dicts, in stored order: convenient, not fast."""
        for batch in self.batches(split, columns):
            yield from batch.to_pylist()


def describe_shard(directory: Path, file: str, split: str) -> tuple[Shard, dict[str, int]]:
    """The manifest's entry for a file, and its longest prompt, trace and plan."""
    path = directory / file
    table = pq.read_table(path, columns=[f"{part}_length" for part in PARTS])
    lengths = {part: table[f"{part}_length"].to_numpy() for part in PARTS}
    tokens = sum(int(each.sum()) for each in lengths.values())
    shard = Shard(file=file, split=split, rows=table.num_rows, tokens=tokens, digest=file_digest(path))
    return shard, {part: int(each.max(initial=0)) for part, each in lengths.items()}


def finish(
    directory: Path,
    files: Mapping[str, str],
    *,
    config: dict[str, Any],
    vocabulary: Vocabulary,
    rejected: Sequence[dict[str, int]] = (),
    described: Sequence[tuple[Shard, dict[str, int]]] | None = None,
) -> Manifest:
    """Declare the data set complete; `files` are its shards in order, each with its split.

    `described` is what `describe_shard` says of each, if it is known already.
    """
    vocabulary.save(directory)
    if described is None:
        described = [describe_shard(directory, file, split) for file, split in files.items()]
    longest = {part: max((lengths[part] for _, lengths in described), default=0) for part in PARTS}
    manifest = Manifest(
        package=__version__,
        config=config,
        vocabulary_digest=vocabulary.digest,
        rejected=list(rejected),
        longest=longest,
        shards=[shard for shard, _ in described],
    )
    write_json(directory / MANIFEST, manifest.model_dump())
    return manifest
