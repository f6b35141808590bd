"""The documentation as the tests see it: the code blocks of each page, and what the page says about running them.

In: README.md, CONTRIBUTING.md, CHANGELOG.md and docs/. Out: blocks and links. A `text` block right after a command is
its output; `...` in it stands for anything. Comments right above a block say how it is tested:

    <!-- not run: it takes an hour -->          its commands are parsed, not run
    <!-- small: --tasks 200 --steps 10 -->      the test runs it with these values
    <!-- exit code 1 -->                        it fails, and the output is what it says on stderr

A block with a title, as in ```toml title="my.toml"```, is a file that later blocks of the page use.
Try: `python tests/documents.py`, which lists the blocks that are not run, and why.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).parent.parent
RECORDS = {"docs/log.md", "docs/results.md", "docs/records.md"}
"""Pages that say what was done, over hours or days, and when: their commands are neither run nor parsed."""
COMMANDS = {"sh", "python"}
SHOWN = {"text", "json", "toml", "yaml", "sql", "bibtex"}
"""Languages of blocks that are not run."""


@dataclass(frozen=True)
class Block:
    """A fenced code block."""

    page: str
    line: int
    language: str
    title: str | None
    text: str
    notes: tuple[str, ...]
    """The comments right above it."""
    output: str | None
    """The `text` block right after it."""

    def note(self, begin: str) -> str | None:
        """What the comment that begins like this goes on to say."""
        return next((note.removeprefix(begin).strip() for note in self.notes if note.startswith(begin)), None)

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def reason(self) -> str | None:
        """Why it is not run."""
        return self.note("not run:")

    @property
    def exit_code(self) -> int:
        return int(self.note("exit code") or 0)

    @cached_property
    def small(self) -> str:
        """The text with the values that the test uses; raises if an option is not there."""
        words, text = (self.note("small:") or "").split(), self.text
        for option, value in zip(words[::2], words[1::2], strict=True):
            text, found = re.subn(rf"(?<=\s){re.escape(option)}([ =])\S+", rf"{option}\g<1>{value}", text)
            assert found, f"{self.name}: no {option} to make smaller"
        return text

    @property
    def lines(self) -> list[str]:
        """The commands, continued lines joined."""
        return [line.strip() for line in self.small.replace("\\\n", " ").split("\n") if line.strip()]


def pages() -> list[str]:
    """All pages, relative to the repository."""
    found = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    found += sorted((ROOT / "docs").rglob("*.md"))
    return [path.relative_to(ROOT).as_posix() for path in found]


FENCE = re.compile(r"(?P<notes>(?:^<!--[^\n]*-->\n+)*)^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$", re.M | re.S)


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page, outputs with what they are the output of."""
    source, found = (ROOT / page).read_text(encoding="utf-8"), []
    matches = list(FENCE.finditer(source))
    for match, following in zip_longest(matches, matches[1:]):
        language, _, rest = match["info"].partition(" ")
        title = re.search(r'title="([^"]+)"', rest)
        after = following and following["info"] == "text" and not source[match.end() : following.start()].strip()
        found.append(
            Block(
                page=page,
                line=source.count("\n", 0, match.start("info")) + 1,
                language=language,
                title=title and title[1],
                text=match["text"],
                notes=tuple(re.findall(r"<!--\s*(.*?)\s*-->", match["notes"])),
                output=following["text"] if after and following and language in COMMANDS else None,
            )
        )
    return found


def commands_in(text: str) -> Iterator[list[str]]:
    """The words after every `searchformer` in a shell text."""
    for line in text.replace("\\\n", " ").split("\n"):
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words: list[str] | None = None
        for word in [*lexer, "|"]:
            if re.fullmatch(r"[|&;<>()]+", word):
                if words is not None:
                    yield words
                words = None
            elif word == "searchformer":
                words = []
            elif words is not None:
                words.append(word)


def inline_commands(page: str) -> list[str]:
    """Commands in the running text: `searchformer run --list`."""
    source = FENCE.sub("", (ROOT / page).read_text(encoding="utf-8"))
    found = (" ".join(code.split()) for code in re.findall(r"`([^`]+)`", source))
    return [code for code in found if code.startswith("searchformer ") and "..." not in code]


def links(page: str) -> list[str]:
    """Targets of the links and pictures of a page that are not on the web."""
    source = FENCE.sub("", (ROOT / page).read_text(encoding="utf-8"))
    source = re.sub(r"`[^`\n]*`|<!--.*?-->", "", source, flags=re.DOTALL)
    found = re.findall(r"\]\(([^)\s]+)\)", source) + re.findall(r'(?:src|srcset|href)="([^"]+)"', source)
    return [target for target in found if not re.match(r"https?:|mailto:", target)]


if __name__ == "__main__":
    unrun = [block for page in pages() if page not in RECORDS for block in blocks(page) if block.reason is not None]
    for block in unrun:
        print(f"{block.name}: {block.reason}")
    print(f"{len(unrun)} blocks are not run")
