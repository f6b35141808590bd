"""A file of tasks as commands go through it: a bad line costs itself, is counted, and is told about at the end."""

import contextlib
import json
import sys
from collections.abc import Iterator
from typing import Any

from searchformer.errors import SearchformerError
from searchformer.files import parse_json

MOST_NAMED = 10
"""Tasks left out that are named; the rest are counted."""


class TaskFile:
    """The tasks of a file; with `strict`, the first bad one ends the command."""

    def __init__(self, source: str, *, strict: bool = False) -> None:
        self.source, self.strict = source, strict
        self.lines = 0
        self.failed: list[SearchformerError] = []
        self.skipped: list[Any] = []

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Each good task with its place."""
        from searchformer.interop.tasks import read_tasks

        for place, record in read_tasks(self.source, skipped=None if self.strict else self.skipped):
            self.lines += 1
            if isinstance(record, SearchformerError):
                self._fail(place, record)
            else:
                yield place, record

    @contextlib.contextmanager
    def line(self, place: str) -> Iterator[None]:
        """What goes wrong in the block costs this task's line of output only: it says so."""
        try:
            yield
        except SearchformerError as error:
            self._fail(place, error)

    def _fail(self, place: str, error: SearchformerError) -> None:
        failure = SearchformerError(f"{place}: {error}")
        if self.strict:
            raise failure from None
        self.failed.append(failure)
        number = place.rpartition(":")[2]
        print(json.dumps({"line": int(number) if number.isdigit() else self.lines, "error": str(error)}))

    def finish(self) -> None:
        """Name the levels that were skipped; raises if a line failed."""
        report_skipped(self.skipped)
        if self.failed:
            more = f" (and {len(self.failed) - 1} more of {self.lines} failed)" if len(self.failed) > 1 else ""
            raise SearchformerError(f"{self.failed[0]}{more}")


def report_skipped(skipped: list[Any]) -> None:
    """Name on stderr the levels that were no levels."""
    report_left_out([f"the level at {fault}" for fault in skipped])


def report_left_out(lines: list[str]) -> None:
    """Name on stderr what was not used, and why."""
    for line in lines[:MOST_NAMED]:
        print(f"searchformer: skipped {line}", file=sys.stderr)
    if len(lines) > MOST_NAMED:
        print(f"searchformer: skipped {len(lines)} in all", file=sys.stderr)
