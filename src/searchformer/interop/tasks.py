"""Tasks that people bring: JSON lines, level and map files, other people's mazes; and a data set made of them.

In: a file, or `-` for stdin. Out: records of our own form, each with its place, or what is wrong with it.
"""

import json
import sys
import warnings
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from searchformer.dataset.store import PARTS, Manifest
from searchformer.domains import Domain, TaskError
from searchformer.domains.formats import FormatError, read
from searchformer.domains.formats.source import MAX_FILE, open_bytes
from searchformer.errors import SearchformerError
from searchformer.files import new_directory
from searchformer.interop import mazes
from searchformer.interop.sequences import DatasetWriter, TokenRows
from searchformer.search import Options, Searcher
from searchformer.solve import Task, make_task
from searchformer.tokens.grammar import write_text
from searchformer.tokens.vocabulary import Vocabulary

MAX_RECORD = 64 << 20
"""Bytes of a line of JSON or of a table."""
SNIFFED = 1 << 16
"""Bytes at the beginning of a text in which a maze must show."""

Found = Iterator[tuple[str, dict[str, Any] | SearchformerError]]


def read_tasks(source: str, *, skipped: list[FormatError] | None = None) -> Found:
    """Each task with the place it came from, or its error; `-` is stdin.

    With a list `skipped`, levels of a collection that are none go there. A file that cannot be read at all raises.
    """
    path = Path(source)
    if source == "-":
        yield from _json_lines(sys.stdin.buffer, "stdin")
    elif path.suffix.lower() in (".jsonl", ".json", ".ndjson"):
        with open_bytes(path) as file:
            yield from _json_lines(file, source)
    elif path.suffix.lower() == ".csv":
        with open_bytes(path) as file:
            yield from mazes.read_csv(_text_lines(file, source), name=source)
    elif text := _maze_text(path):
        yield from mazes.read_text(text, name=source)
    else:
        for task in read(path, skipped=skipped):
            yield f"{source}:{task.line}", task.record()


def nth_task(source: str, number: int) -> dict[str, Any]:
    """The task with this number, from 1; raises if there is none, or if it is a bad one."""
    found = next(islice(read_tasks(source, skipped=[]), number - 1, number), None) if number > 0 else None
    if found is None:
        raise SearchformerError(f"{source} has no task {number}")
    place, record = found
    if isinstance(record, SearchformerError):
        raise SearchformerError(f"{place}: {record}")
    return record


def usable_tasks(source: str, *, domain: str) -> list[Task]:
    """The tasks of a file that are of the domain; warns of others and of faulty ones, raises if all are."""
    skipped: list[FormatError] = []
    found, left_out = list[Task](), list[str]()
    for place, record in read_tasks(source, skipped=skipped):
        try:
            if isinstance(record, SearchformerError):
                raise record
            found.append(make_task(record, name=domain))
        except SearchformerError as error:
            left_out.append(f"{place}: {error}")
    left_out += map(str, skipped)
    if not found:
        raise SearchformerError(f"{source} holds no tasks of {domain}{f'; {left_out[0]}' if left_out else ''}")
    if left_out:
        total = len(found) + len(left_out)
        warnings.warn(f"{len(left_out)} of {total} tasks cannot be used, such as {left_out[0]}", stacklevel=3)
    return found


def _maze_text(path: Path) -> str | None:
    """The text of a file that begins with mazes of language models; None if it is of another kind."""
    with open_bytes(path) as file:
        opening = file.read(SNIFFED).decode("utf-8", "replace")
        if not mazes.SIGNS.search(opening):
            return None
        rest = file.read(MAX_FILE)
        if len(rest) == MAX_FILE:
            raise FormatError(str(path), 0, 0, f"a file of mazes has at most {MAX_FILE} bytes; this one has more")
        file.seek(0)
        return file.read().decode("utf-8", "replace")


def _bounded_lines(file: BinaryIO, name: str) -> Iterator[bytes]:
    number = 0
    while line := file.readline(MAX_RECORD + 1):
        number += 1
        if len(line) > MAX_RECORD:
            raise FormatError(name, number, 1, f"a line has at most {MAX_RECORD} bytes; this one has more")
        yield line


def _text_lines(file: BinaryIO, name: str) -> Iterator[str]:
    for number, line in enumerate(_bounded_lines(file, name), start=1):
        if b"\0" in line:
            raise FormatError(name, number, line.index(b"\0") + 1, "null byte: not a text file in UTF-8")
        yield line.decode("utf-8-sig" if number == 1 else "utf-8", "replace")


def _json_lines(file: BinaryIO, name: str) -> Found:
    for number, line in enumerate(_bounded_lines(file, name), start=1):
        if line.strip():
            place = f"{name}:{number}"
            try:
                yield place, mazes.from_record(_json_object(line))
            except SearchformerError as error:
                yield place, error


def _json_object(line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise SearchformerError(f"expected a JSON object; {error}") from None
    if not isinstance(record, dict):
        raise SearchformerError(f"expected a JSON object; found {type(record).__name__}")
    return record


# --- a data set of them


def import_tasks(
    found: Iterable[tuple[str, dict[str, Any] | SearchformerError]],
    out: Path,
    domain: Domain,
    *,
    vocabulary: Vocabulary | None = None,
    split: str = "test",
    options: Options | None = None,
    config: dict[str, Any] | None = None,
) -> tuple[Manifest, list[str]]:
    """Search each task and write a data set to `out`; also returns a line per task that was left out, and why.

    All tasks are of `domain`'s size, because prompts do not say theirs. Repeated and unsolvable tasks are left out.
    `config` is kept in the manifest.
    """
    options, vocabulary = options or Options(deterministic=True), vocabulary or Vocabulary.of(domain.token_list())
    searcher, left_out, seen = Searcher(domain, options), list[str](), set[str]()
    how = {"deterministic": options.deterministic, "algorithm": options.algorithm, "weight": options.weight}
    with new_directory(out) as directory:
        writer = DatasetWriter(directory, domain, vocabulary, published=False)
        for place, record in found:
            try:
                if isinstance(record, SearchformerError):
                    raise record
                writer.add(split, _searched(domain, vocabulary, searcher, record, seen))
            except SearchformerError as error:
                left_out.append(str(error) if str(error).startswith(place) else f"{place}: {error}")
        if not seen:
            raise SearchformerError(f"no task could be used; {left_out[0] if left_out else 'the file has none'}")
        return writer.finish(how | (config or {})), left_out


def _searched(
    domain: Domain, vocabulary: Vocabulary, searcher: Searcher, record: dict[str, Any], seen: set[str]
) -> TokenRows:
    """A row for the task; raises SearchformerError if it cannot be one."""
    problem = domain.encode(record)
    size, own = domain.measure(problem), domain.model_dump()
    if any(own.get(name, value) != value for name, value in size.items()):
        wanted = {name: own.get(name) for name in size}
        raise TaskError(f"expected a task of {_listed(wanted)}; found one of {_listed(size)}")
    if (identity := domain.task_id(problem)) in seen:
        raise TaskError("an earlier task is the same")
    trace = searcher.search(problem)
    if not trace.solvable:
        raise TaskError("the task has no plan")
    texts = dict(zip(PARTS, write_text(domain, problem, trace), strict=True))
    row = {part: [vocabulary.encode(texts[part].split())] for part in PARTS}
    seen.add(identity)
    return TokenRows.of([0], row, vocabulary.dtype)


def _listed(size: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in size.items())
