"""Sokoban as XML, `.slc`: SokobanLevels > LevelCollection > Level (Id) > L, one row each.

Read as a stream with the standard library's expat. A document type may be named, as some files do, and is never loaded;
one that declares anything (entities that expand, files to include) is refused.
"""

import io
from pathlib import Path
from typing import BinaryIO
from xml.parsers import expat

from searchformer.domains.formats.levels import MAX_SIDE, Collection, Level, Row, expand
from searchformer.domains.formats.source import MAX_FILE, MAX_LINE, FormatError, open_bytes

CHUNK = 1 << 16
MAX_DEPTH = 16
"""Elements within elements; the format itself needs four."""


def read_slc(path: Path | str, skipped: list[FormatError] | None = None) -> list[Level]:
    """All levels in an `.slc` file, in order; faulty ones go to `skipped` if it is given."""
    with open_bytes(path) as file:
        return _read(file, str(path), skipped)


def levels_from_slc(data: bytes, *, name: str = "<text>") -> list[Level]:
    """All levels in the bytes of an `.slc` file; errors call it `name`."""
    return _read(io.BytesIO(data), name)


def _read(file: BinaryIO, path: str, skipped: list[FormatError] | None = None) -> list[Level]:
    reader, size = Reader(path, skipped), 0
    while chunk := file.read(CHUNK):
        size += len(chunk)
        if size > MAX_FILE:
            raise reader.error(f"a file has at most {MAX_FILE} bytes; this one has more")
        reader.feed(chunk, final=False)
    if not size:
        raise FormatError(path, 1, 1, "empty file")
    reader.feed(b"", final=True)
    return reader.collection.finish()


class Reader:
    """Bytes of XML in, levels out; holds one level at a time."""

    def __init__(self, path: str, skipped: list[FormatError] | None = None) -> None:
        self.path = path
        self.collection = Collection(path, skipped)
        self.title = ""
        self.depth = 0
        self.rows: list[Row] | None = None
        self.text: str | None = None
        self.line, self.columns = 1, list[int]()
        self.parser = expat.ParserCreate()
        self.parser.StartDoctypeDeclHandler = self._doctype
        self.parser.EntityDeclHandler = self._entity
        self.parser.SkippedEntityHandler = self._entity
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters

    def feed(self, chunk: bytes, *, final: bool) -> None:
        """Take in the next bytes; XML that is not well-formed is a FormatError."""
        try:
            self.parser.Parse(chunk, final)
        except expat.ExpatError as error:
            reason = f"not well-formed XML: {expat.ErrorString(error.code)}"
            raise FormatError(self.path, error.lineno, error.offset + 1, reason) from error
        except (LookupError, ValueError) as error:  # what Python's codecs say of a declared encoding
            raise self.error(f"not readable in its declared encoding: {error}") from error

    def error(self, reason: str) -> FormatError:
        """An error at the place where the parser is."""
        return FormatError(self.path, self.parser.CurrentLineNumber, self.parser.CurrentColumnNumber + 1, reason)

    def _doctype(self, name: str, system: str | None, public: str | None, has_internal_subset: bool) -> None:
        if has_internal_subset:
            raise self.error("declarations in the document type are refused")

    def _entity(self, name: str, *declaration: object) -> None:
        raise self.error(f"entity {name!r} is refused: only XML's own are read")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.error(f"more than {MAX_DEPTH} elements within each other")
        if self.text is not None:
            raise self.error(f"<{name}> inside of a row")
        if name == "Level" and self.rows is not None:
            raise self.error("<Level> inside of a level")
        if name == "Level":
            self.title, self.rows = attributes.get("Id", ""), []
        elif name == "L" and self.rows is not None:
            self.text, self.columns = "", []

    def _characters(self, data: str) -> None:
        if self.text is None:
            return
        if not self.text:
            self.line = self.parser.CurrentLineNumber
        column = self.parser.CurrentColumnNumber + 1
        self.columns += range(column, column + len(data))
        self.text += data
        if len(self.text) > MAX_LINE:
            reason = f"a row has at most {MAX_LINE} characters; this one has more"
            raise FormatError(self.path, self.line, self.columns[MAX_LINE], reason)

    def _end(self, name: str) -> None:
        self.depth -= 1
        if name == "L" and self.text is not None and self.rows is not None:
            self._end_row(self.text.rstrip(), self.rows)
            self.text = None
        elif name == "Level" and self.rows is not None:
            if not any(row.cells.strip() for row in self.rows):
                raise self.error("a level without rows")
            self.collection.add(self.rows, title=self.title)
            self.rows = None

    def _end_row(self, text: str, rows: list[Row]) -> None:
        line = self.line if self.columns else self.parser.CurrentLineNumber
        columns = [*self.columns[: len(text)], self.columns[len(text) - 1] + 1 if text else 1]
        rows += expand(text, path=self.path, line=line, columns=columns)
        if len(rows) > MAX_SIDE:
            raise self.error(f"a level has at most {MAX_SIDE} rows; this one has more")
