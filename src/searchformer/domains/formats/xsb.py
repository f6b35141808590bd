"""Sokoban as text: `.xsb`, `.txt`, `.sok` and Boxoban in, `.xsb` out.

A level is a run of lines made of cells; what stands between levels is titles, comments and solutions. A title stands
directly above its level (Boxoban), directly below it (Microban), on its own further above (`.sok`), or behind `Title:`.
"""

import io
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from searchformer.domains.formats.levels import MAX_SIDE, Collection, Level, Row, expand, tidy
from searchformer.domains.formats.source import BAD_BYTE, FormatError, Lines, describe, numbered, open_lines
from searchformer.files import write_text

CODED_ROW = re.compile(r"(?:[0-9]*[#@+$*. _pPbBo|(-]|\))+")
COMMENT = re.compile(r"(?:;|::)[;:\s]*")
KEY = re.compile(
    r";?\s*(title|author|comments?(?:-end)?|collection|set|copyright|e-?mail|web ?site|homepage|url|date[\w ]*|id)\s*:",
    re.IGNORECASE,
)
SOLUTION = re.compile(r"(?:solution|snapshot)\b", re.IGNORECASE)


def read_text_levels(path: Path | str, skipped: list[FormatError] | None = None) -> list[Level]:
    """All levels in a text file, in order; faulty ones go to `skipped` if it is given."""
    with open_lines(path) as lines:
        return _parse(lines, path=str(path), skipped=skipped)


def levels_from_text(text: str, *, name: str = "<text>") -> list[Level]:
    """All levels in `text`, in order; errors call it `name`."""
    return _parse(numbered(io.StringIO(text, newline=None), path=name), path=name)


def write_xsb(levels: Iterable[Level], path: Path | str) -> None:
    """Write the levels, each with its title below it, whole or not at all; the same levels are read back."""
    write_text(Path(path), "\n".join(_level_text(level) for level in levels))


def _level_text(level: Level) -> str:
    """A row without a cell is written as `-`, because an empty line would end the level."""
    lines = [row.rstrip() or "-" for row in level.rows]
    if title := tidy(level.title):
        lines.append(f"Title: {title}")
    return "".join(f"{line}\n" for line in lines)


@dataclass
class Board:
    """A level whose title may still follow."""

    rows: list[Row]
    named: str
    above: str
    loose: str

    def title(self, gap: "Gap") -> str:
        """The best title, given what stands below."""
        return self.named or gap.named_below or self.above or gap.below or self.loose


class Gap:
    """What stands between two levels, one line at a time: which title belongs to which of them."""

    def __init__(self, *, after_board: bool) -> None:
        self.touches_last = after_board
        self.in_solution = False
        self.named_below = self.below = ""
        self.named = self.above = self.loose = ""

    def add(self, text: str) -> None:
        """Take in a line that is no row."""
        if not text:
            self.end_block()
        elif self.in_solution or SOLUTION.match(text):
            self.in_solution = True
        elif key := KEY.match(text):
            self._add_key(key[1].lower(), text[key.end() :].strip())
        elif re.search(r"\w", text):
            self._add_text(COMMENT.sub("", text, count=1).strip("' "), comment=bool(COMMENT.match(text)))

    def end_block(self) -> None:
        """An empty line: what was read since the last one is not directly above the next level."""
        self.named_below = self.named_below or self.named
        self.named = self.above = ""
        self.touches_last = self.in_solution = False

    def split_for_next(self, *, titles_above: bool) -> None:
        """Another level follows. Without an empty line between the two, the text is all of one of them."""
        if self.touches_last and titles_above:
            self.named, self.named_below, self.below = self.named_below, "", ""
        elif self.touches_last:
            self.above = ""

    def _add_key(self, key: str, value: str) -> None:
        if key == "title" and self.touches_last:
            self.named_below = self.named_below or value
        elif key == "title":
            self.named = value

    def _add_text(self, text: str, *, comment: bool) -> None:
        self.above = text
        if self.touches_last:
            self.below = self.below or text
        elif not comment:
            self.loose = text


class Parser:
    """Rows and other lines in, levels out; holds one level and one gap at a time."""

    def __init__(self, path: str, skipped: list[FormatError] | None) -> None:
        self.path = path
        self.collection = Collection(path, skipped)
        self.run: list[tuple[int, str]] = []
        self.board: Board | None = None
        self.gap = Gap(after_board=False)
        self.titles_above = False

    def end_run(self) -> None:
        """The rows collected so far are a level, or, if a single one without a worker, decoration."""
        lines, self.run = self.run, []
        if not lines:
            return
        if len(lines) == 1 and not set(lines[0][1]) & set("@+pP|"):
            self.gap.add(lines[0][1].strip())
            return
        rows = self._expand(lines)
        if self.board is None:
            self.titles_above = bool(self.gap.above or self.gap.named)
        self.gap.split_for_next(titles_above=self.titles_above)
        self.end_board()
        self.board = Board(rows, self.gap.named, self.gap.above, self.gap.loose)
        self.gap = Gap(after_board=True)

    def _expand(self, lines: list[tuple[int, str]]) -> list[Row]:
        rows: list[Row] = []
        for line, text in lines:
            rows += expand(text, path=self.path, line=line)
            if len(rows) > MAX_SIDE:
                raise FormatError(self.path, line, 1, f"a level has at most {MAX_SIDE} rows; this one has more")
        return rows

    def end_board(self) -> None:
        """The level before the gap has all its titles."""
        if self.board is not None:
            self.collection.add(self.board.rows, title=self.board.title(self.gap))

    def add_row(self, line: int, text: str) -> None:
        """Take in a line that is a row, or meant to be one."""
        if len(self.run) == MAX_SIDE:
            raise FormatError(self.path, line, 1, f"a level has at most {MAX_SIDE} rows; this one has more")
        self.run.append((line, text))


def _parse(lines: Lines, *, path: str, skipped: list[FormatError] | None = None) -> list[Level]:
    parser, bad_byte, empty = Parser(path, skipped), None, True
    for line, raw in lines:
        text = raw.rstrip()
        empty = empty and not text
        if _is_row(text, inside=bool(parser.run)):
            parser.add_row(line, text)
            continue
        parser.end_run()
        if found := BAD_BYTE.search(text):
            bad_byte = bad_byte or (line, found)
            text = BAD_BYTE.sub(_as_windows_1252, text)
        parser.gap.add(text.strip())
    parser.end_run()
    parser.gap.end_block()
    parser.end_board()
    if not (parser.collection.levels or skipped) and bad_byte:
        raise FormatError(path, bad_byte[0], bad_byte[1].start() + 1, describe(bad_byte[1][0]))
    if empty:
        raise FormatError(path, 1, 1, "empty file")
    return parser.collection.finish()


def _is_row(text: str, *, inside: bool) -> bool:
    """Whether a line is a row, or more a row than text, so that an unknown character in it is an error."""
    bare = text.strip()
    if not bare or COMMENT.match(bare) or KEY.match(bare):
        return False
    if not CODED_ROW.fullmatch(bare):
        cells, other = len(re.findall(r"[#@+$*.]", bare)), len(re.findall(r"[^#@+$*.\s_|-]", bare))
        return "#" in bare and (cells > other or bare[0] == bare[-1] == "#")
    if "#" in bare:
        return True
    if not bare.strip("-_| "):
        return inside
    return not re.search(r"[0-9A-Za-z()]", bare)  # without a wall, "1." and "Bob" are titles


def _as_windows_1252(byte: re.Match[str]) -> str:
    """Authors' names in old collections are in Windows-1252; harmless outside of rows."""
    return bytes([ord(byte[0]) & 0xFF]).decode("cp1252", "replace")
