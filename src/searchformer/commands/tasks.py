"""Tasks that people bring: JSON lines from a file or stdin, or any format that `domains/formats` reads."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from searchformer.errors import SearchformerError
from searchformer.files import parse_json


def read_tasks(source: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each task with the place it came from, for error messages. `-` is stdin."""
    path = Path(source)
    if source == "-":
        yield from _lines(sys.stdin.buffer, "stdin")
    elif path.suffix.lower() in (".jsonl", ".json", ".ndjson"):
        try:
            with open(path, "rb") as file:
                yield from _lines(file, source)
        except OSError as error:
            raise SearchformerError(f"cannot read {source}: {error.strerror}") from None
    else:
        from searchformer.domains.formats import read

        for task in read(path):
            yield f"{source}:{task.line}", task.record()


def _lines(file: Any, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(file, start=1):
        if not line.strip():
            continue
        place = f"{name}:{number}"
        yield place, parse_json(line, where=place)
