"""Archives of MongoDB's mongodump, the form of the paper's published data: read as a stream, without a server.

In: a file, gzip or plain. Out: a data set with the published split, vocabulary and ids. An archive is

    0x8199e26d  header  { a document per collection }*  0xffffffff
    { {db, collection, EOF, CRC}  { document of that collection }*  0xffffffff }*

Collections may be interleaved; each ends with a header that says EOF and gives the CRC-64 of all its documents, which
is checked. Memory does not grow with the file. Try: `searchformer import mongodump FILE --list`.
"""

import gzip
import io
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from searchformer.dataset.store import SPLITS, Manifest
from searchformer.display import Display, Silent
from searchformer.domains import Domain
from searchformer.errors import SearchformerError
from searchformer.extras import require
from searchformer.files import new_directory
from searchformer.interop import kernels
from searchformer.interop.published import domain_of_dataset
from searchformer.interop.sequences import DatasetWriter, SequenceParser
from searchformer.tokens.vocabulary import Vocabulary

MAGIC = 0x8199E26D.to_bytes(4, "little")
GZIP = b"\x1f\x8b"
CHUNK = 4 << 20
PIECE = 256 << 10
"""Bytes that are read at once; a chunk is made of them."""
LARGEST = (16 << 20) + (16 << 10)
"""Bytes of a document: MongoDB's limit, with its allowance for what it adds itself."""
MOST_COLLECTIONS = 100_000
VOCABULARY = "vocabulary"


class ArchiveError(SearchformerError):
    """A file is not a whole mongodump archive; says where."""


@dataclass
class Collection:
    """What has been read of a collection."""

    documents: int = 0
    bytes: int = 0
    crc: int = 0
    ended: bool = False


@dataclass(frozen=True)
class Run:
    """Whole documents of a collection, one after the other."""

    collection: str
    """Its name, without the database's."""
    data: bytes
    array: np.ndarray
    """The same bytes, uint8."""
    begin: int
    end: int
    documents: int
    offset: int
    """Of data[begin] in the archive, uncompressed."""


class Archive:
    """An archive, opened at its beginning. Offsets in errors are those of the uncompressed bytes."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.collections: dict[str, Collection] = {}
        self._data, self._at, self._base = b"", 0, 0
        self._fault: Exception | None = None
        try:
            self._raw = open(file, "rb")  # noqa: SIM115 - closed by `close`
            compressed = self._raw.read(2) == GZIP
            self._raw.seek(0)
        except OSError as error:
            raise SearchformerError(f"cannot read {file}: {error.strerror or error}") from error
        self._stream: Any = gzip.GzipFile(fileobj=self._raw) if compressed else self._raw

    def __enter__(self) -> "Archive":
        try:
            self._read_prelude()
        except BaseException:
            self._raw.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._raw.close()

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return os.fstat(self._raw.fileno()).st_size

    @property
    def position(self) -> int:
        """Bytes of the file that have been read."""
        return self._raw.tell()

    def runs(self, *, check: bool = True) -> Iterator[Run]:
        """All documents, in order. With `check`, CRCs are compared, and at the end that no collection was cut."""
        while self._fill(4):
            place = self._offset
            header = self._document()
            name, ends = self._namespace(header, place), header.get("EOF")
            if self.collections[name].ended:
                raise self.error(place, f"more of the collection {name!r} after its end")
            if ends:
                self._expect_terminator()
                self._end(name, header.get("CRC"), place, check=check)
            else:
                yield from self._segment(name, check=check)
        cut = [name for name, collection in self.collections.items() if not collection.ended]
        if cut:
            raise self.error(self._offset, f"the archive ends in the middle of the collection {cut[0]!r}")

    # --- the parts of an archive

    def _read_prelude(self) -> None:
        if not self._fill(4) or self._data[:4] != MAGIC:
            raise self.error(0, f"not a mongodump archive: expected {MAGIC.hex()}, found {self._data[:4].hex()!r}")
        self._at = 4
        self._document()  # versions of server and tool
        while not self._at_terminator():
            place = self._offset
            entry = self._document()
            name = f"{entry.get('db')}.{entry.get('collection')}"
            if not isinstance(entry.get("collection"), str) or len(self.collections) >= MOST_COLLECTIONS:
                raise self.error(place, "expected a document that names a collection")
            self.collections[name] = Collection()
        self._at += 4

    def _namespace(self, header: dict[str, Any], place: int) -> str:
        name = f"{header.get('db')}.{header.get('collection')}"
        if not isinstance(header.get("EOF"), bool):
            raise self.error(place, "expected the header of a collection's part: {db, collection, EOF, CRC}")
        if name not in self.collections:
            raise self.error(place, f"the collection {name!r:.80} is not in the archive's list")
        return name

    def _segment(self, name: str, *, check: bool) -> Iterator[Run]:
        """The documents up to the next terminator."""
        collection = self.collections[name]
        while True:
            array = np.frombuffer(self._data, dtype=np.uint8)
            end, documents, why = kernels.whole_documents(array, self._at, len(array), LARGEST)
            begin, self._at = self._at, end
            if documents:
                collection.documents += documents
                collection.bytes += end - begin
                if check:
                    collection.crc = kernels.crc64(array, begin, end, collection.crc)
                yield Run(name.partition(".")[2], self._data, array, begin, end, documents, self._base + begin)
            if why == kernels.TERMINATOR:
                self._at += 4
                return
            if why == kernels.TOO_LONG:
                raise self.error(self._offset, f"expected a document of {name!r}; found a length that none has")
            if not self._more():
                raise self.error(self._offset, f"the archive ends in the middle of the collection {name!r}")

    def _end(self, name: str, crc: Any, place: int, *, check: bool) -> None:
        collection = self.collections[name]
        collection.ended = True
        if check and (not isinstance(crc, int) or crc & 0xFFFFFFFFFFFFFFFF != collection.crc):
            raise self.error(place, f"the collection {name!r} is damaged: its CRC is not the one stored here")

    # --- bytes

    @property
    def _offset(self) -> int:
        return self._base + self._at

    def error(self, offset: int, reason: str) -> ArchiveError:
        """What is wrong, and at which byte."""
        unpacked = " of the unpacked archive" if self._stream is not self._raw else ""
        return ArchiveError(f"{self.file}: byte {offset:,}{unpacked}: {reason}")

    def _more(self) -> bool:
        """Read on; False at the end."""
        chunk = self._read()
        if not chunk and self._fault:
            raise self.error(self._base + len(self._data), f"the gzip file is cut or damaged: {self._fault}")
        self._base += self._at
        self._data, self._at = self._data[self._at :] + chunk, 0
        return bool(chunk)

    def _read(self) -> bytes:
        """The next bytes; a fault of gzip is kept until all before it has been used, so that its place is known."""
        parts, missing = [], CHUNK
        while missing and not self._fault:
            try:
                part = self._stream.read1(min(missing, PIECE))
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                self._fault = error
            except OSError as error:
                raise SearchformerError(f"cannot read {self.file}: {error.strerror or error}") from error
            else:
                parts.append(part)
                missing = missing - len(part) if part else 0
        return b"".join(parts)

    def _fill(self, count: int) -> bool:
        """Have `count` bytes at hand; False if the archive ends before any of them."""
        while len(self._data) - self._at < count:
            if not self._more():
                if len(self._data) > self._at:
                    raise self.error(self._offset, "the archive ends in the middle of a document")
                return False
        return True

    def _at_terminator(self) -> bool:
        if not self._fill(4):
            raise self.error(self._offset, "the archive ends in its list of collections")
        return self._data[self._at : self._at + 4] == b"\xff\xff\xff\xff"

    def _expect_terminator(self) -> None:
        if not self._fill(4) or not self._at_terminator():
            raise self.error(self._offset, "expected the end of a collection")
        self._at += 4

    def _document(self) -> dict[str, Any]:
        """The next document, decoded."""
        if not self._fill(4):
            raise self.error(self._offset, "the archive ends where a document should be")
        length = int.from_bytes(self._data[self._at : self._at + 4], "little", signed=True)
        if not kernels.LEAST_DOCUMENT <= length <= LARGEST:
            raise self.error(self._offset, f"expected a document; found the length {length}")
        self._fill(length)
        begin, self._at = self._at, self._at + length
        return decode(self._data[begin : self._at], partial(self.error, self._base + begin))


def decode(document: bytes, error: Callable[[str], SearchformerError]) -> dict[str, Any]:
    """A BSON document as a dict; `error` makes the exception from the reason."""
    bson = require("bson", extra="mongodb")
    try:
        return bson.decode(document)
    except Exception as wrong:  # BSONError, but also what damaged texts, dates and regular expressions raise
        raise error(f"not a BSON document: {' '.join(str(wrong).split())[:120]}") from None


# --- what an archive holds


@dataclass(frozen=True)
class Listed:
    """A collection of an archive."""

    name: str
    documents: int
    bytes: int


def list_archive(file: Path, *, display: Display | None = None) -> list[Listed]:
    """All collections, once every CRC has been found right."""
    with Archive(file) as archive, (display or Silent()).bar("read", unit="bytes") as update:
        for _ in archive.runs():
            update(archive.position, archive.size, "")
        return [Listed(name, each.documents, each.bytes) for name, each in archive.collections.items()]


def dataset_names(collections: Iterable[str]) -> list[str]:
    """The data sets among collections that are named with their database."""
    endings = tuple(f".seq.{split}" for split in SPLITS)
    return sorted({name.partition(".")[2].rsplit(".seq.", 1)[0] for name in collections if name.endswith(endings)})


def choose_name(names: list[str], asked: str | None, where: Any) -> str:
    """The data set asked for, or the only one."""
    if asked is not None and asked in names:
        return asked
    if asked is None and len(names) == 1:
        return names[0]
    if not names:
        raise SearchformerError(f"{where}: no data set of tokens here: expected a collection NAME.seq.train")
    what = "which data set? --name chooses" if asked is None else f"no data set {asked!r} here"
    raise SearchformerError(f"{where}: {what}; there are: {', '.join(names)}")


def import_archive(
    file: Path, out: Path, *, name: str | None = None, domain: Domain | None = None, display: Display | None = None
) -> Manifest:
    """Write the data set `name` of an archive to `out`; `domain` where the name does not tell it."""
    with Archive(file) as archive:
        name = choose_name(dataset_names(archive.collections), name, file)
    deterministic = False
    if domain is None:
        domain, deterministic = domain_of_dataset(name)
    config = {"deterministic": deterministic, "algorithm": "astar", "weight": 1.0, "published": {"name": name}}
    expected = Vocabulary.of(domain.token_list())
    try:
        return _import(file, out, name, domain, expected, config, display or Silent())
    except ArchiveError:  # perhaps because the archive has other tokens than its name promises: they may come last
        found = _find_vocabulary(file, name)
        if found == expected:
            raise
        return _import(file, out, name, domain, found, config, display or Silent())


def _import(
    file: Path, out: Path, name: str, domain: Domain, vocabulary: Vocabulary, config: dict[str, Any], display: Display
) -> Manifest:
    """Read the archive once, with a vocabulary that must turn out to be its own."""
    parser, splits, confirmed = SequenceParser(vocabulary), {f"{name}.seq.{split}": split for split in SPLITS}, False
    with new_directory(out) as directory, Archive(file) as archive, display.bar("import", unit="bytes") as update:
        writer = DatasetWriter(directory, domain, vocabulary)
        for run in archive.runs():
            if run.collection in splits:
                _add_run(writer, parser, splits[run.collection], run, archive)
            elif run.collection == VOCABULARY and (found := _vocabulary_in(run, name, archive)):
                if found != vocabulary:
                    raise archive.error(run.offset, "its vocabulary is not the one of its data set's name")
                confirmed = True
            done = min(archive.position, archive.size - 1)  # what was read last is not written yet
            update(done, archive.size, f"{sum(writer.rows.values()):,} tasks")
        update(archive.size, archive.size, f"{sum(writer.rows.values()):,} tasks")
        if not confirmed:
            raise SearchformerError(f"{file} has no vocabulary for {name!r}")
        return writer.finish(config)


def _add_run(writer: DatasetWriter, parser: SequenceParser, split: str, run: Run, archive: Archive) -> None:
    at = run.begin
    while at < run.end:
        rows, stopped = parser.parse(run.array, at, run.end)
        place = run.offset + at - run.begin
        if stopped == at:  # not as the kernel knows it: read it slowly
            length = int.from_bytes(run.data[at : at + 4], "little")
            try:
                rows = parser.parse_document(run.data[at : at + length])
            except SearchformerError as error:
                raise archive.error(place, str(error)) from None
            stopped = at + length
        try:
            writer.add(split, rows)
        except SearchformerError as error:
            raise archive.error(place, f"in the documents from here on: {error}") from None
        at = stopped


def _vocabulary_in(run: Run, name: str, archive: Archive) -> Vocabulary | None:
    """The tokens of data set `name`, if they are among these documents of the collection of vocabularies."""
    at = run.begin
    while at < run.end:
        length, place = int.from_bytes(run.data[at : at + 4], "little"), run.offset + at - run.begin
        found = decode(run.data[at : at + length], partial(archive.error, place))
        if found.get("_id") == name:
            return read_vocabulary(found, partial(archive.error, place))
        at += length
    return None


def _find_vocabulary(file: Path, name: str) -> Vocabulary:
    """The tokens of data set `name`, wherever in the archive they are."""
    with Archive(file) as archive:
        for run in archive.runs(check=False):
            if run.collection == VOCABULARY and (found := _vocabulary_in(run, name, archive)):
                return found
    raise SearchformerError(f"{file} has no vocabulary for {name!r}")


def read_vocabulary(document: Mapping[str, Any], error: Callable[[str], SearchformerError]) -> Vocabulary:
    """The vocabulary of a published document `{_id, vocabulary: [str]}`, in our order of ids."""
    tokens = document.get("vocabulary")
    if not isinstance(tokens, list) or not all(
        type(token) is str and token for token in tokens
    ):  # bson has other texts
        raise error("expected a vocabulary: a list of tokens")
    try:
        return Vocabulary.of(token for token in tokens if token not in ("bos", "eos"))
    except SearchformerError as wrong:
        raise error(str(wrong)) from None


# --- writing one: for tests and benchmarks, and to hand data on


class ArchiveWriter:
    """Writes an archive as mongodump does; collections may be added to in any order."""

    def __init__(
        self, stream: io.BufferedIOBase | Any, collections: list[str], *, database: str = "tokenSeqDB"
    ) -> None:
        self.bson, self.stream, self.database = require("bson", extra="mongodb"), stream, database
        self.crcs = dict.fromkeys(collections, 0)
        stream.write(MAGIC + self.bson.encode({"concurrent_collections": 4, "version": "0.1", "server_version": "6.0"}))
        for name in collections:
            entry = {"db": database, "collection": name, "metadata": "{}", "size": 0, "type": "collection"}
            stream.write(self.bson.encode(entry))
        stream.write(b"\xff\xff\xff\xff")

    def add(self, collection: str, documents: bytes) -> None:
        """A part of a collection: whole documents, encoded."""
        array = np.frombuffer(documents, dtype=np.uint8)
        self.crcs[collection] = kernels.crc64(array, 0, len(array), self.crcs[collection])
        self._header(collection, ends=False, crc=0)
        self.stream.write(documents)
        self.stream.write(b"\xff\xff\xff\xff")

    def end(self, collection: str) -> None:
        """Nothing more comes of this collection."""
        crc = self.crcs[collection]
        self._header(collection, ends=True, crc=crc - (1 << 64) if crc >> 63 else crc)
        self.stream.write(b"\xff\xff\xff\xff")

    def _header(self, collection: str, *, ends: bool, crc: int) -> None:
        header = {"db": self.database, "collection": collection, "EOF": ends, "CRC": self.bson.Int64(crc)}
        self.stream.write(self.bson.encode(header))
