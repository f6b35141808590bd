"""Bounded reading with positions: a file in, numbered lines out, and the error that names file, line and column."""

import contextlib
import io
import os
import re
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import BinaryIO, TextIO

from searchformer.errors import SearchformerError

MAX_FILE = 8 << 20
"""Bytes of a file; the largest published collections and maps have a few million."""
MAX_LINES = 1 << 20
"""Lines of a file."""
MAX_LINE = 1 << 16
"""Characters of a line."""
BAD_BYTE = re.compile("[\udc80-\udcff]")
"""How Python's `surrogateescape` shows a byte that is not UTF-8."""

Lines = Iterable[tuple[int, str]]
"""Line numbers, from 1, with the lines' text, without line ends."""


class FormatError(SearchformerError):
    """A file is not in its format. Lines and columns count from 1; line 0 stands for the file as a whole."""

    def __init__(self, path: str, line: int, column: int, reason: str) -> None:
        super().__init__(path, line, column, reason)
        self.path, self.line, self.column, self.reason = path, line, column, reason

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}:{self.column}" if self.line else self.path
        return f"{place}: {self.reason}"


@contextlib.contextmanager
def open_bytes(path: Path | str) -> Iterator[BinaryIO]:
    """The file's bytes; whatever the operating system refuses becomes a FormatError."""
    if "\0" in str(path):
        raise FormatError(repr(str(path)), 0, 0, "cannot be read: a null byte in its name")
    try:
        with open(path, "rb") as file:
            yield file
    except OSError as error:
        raise FormatError(str(path), 0, 0, f"cannot be read: {error.strerror or error}") from error


@contextlib.contextmanager
def open_lines(path: Path | str) -> Iterator[Lines]:
    """The file's lines as text, a byte order mark dropped; bytes that are not UTF-8 show as BAD_BYTE."""
    with open_bytes(path) as file, io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape") as stream:
        yield numbered(stream, path=str(path), size=os.fstat(file.fileno()).st_size)


def numbered(stream: TextIO, *, path: str, size: int = 0) -> Lines:
    """The stream's lines, refused where one or all of them are too long; never more than a line in memory.

    `size` is the file's, so that one that is too large is refused at its first line; 0 where it is not known.
    """
    total = size
    for line in count(1):
        text = stream.readline(MAX_LINE + 2)
        if not text:
            return
        total += 0 if size else len(text)
        if len(text.rstrip("\n")) > MAX_LINE:
            raise FormatError(path, line, MAX_LINE + 1, f"a line has at most {MAX_LINE} characters; this one has more")
        if total > MAX_FILE or line > MAX_LINES:
            limits = f"{MAX_FILE} bytes and {MAX_LINES} lines"
            raise FormatError(path, line, 1, f"a file has at most {limits}; this one has more")
        if "\0" in text:
            raise FormatError(path, line, text.index("\0") + 1, "null byte: not a text file in UTF-8")
        yield line, text.rstrip("\n")


def describe(character: str) -> str:
    """What to call a character that should not be there."""
    if BAD_BYTE.match(character):
        return f"byte 0x{ord(character) & 0xFF:02X} is not UTF-8; save the file as UTF-8"
    if character == "\t":
        return "tab; align with spaces"
    return f"unknown character {character!r}"
