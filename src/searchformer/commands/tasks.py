"""Tasks that people bring, as commands go through them: one of a file, all of a file, or a random one.

A bad line of a file costs itself, is counted, and is told about at the end.
"""

import contextlib
import json
import os
import re
import sys
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from pydantic import Field

from searchformer.commands.options import domain_settings
from searchformer.errors import SearchformerError, shown
from searchformer.options import OptionsModel

if TYPE_CHECKING:
    from searchformer.search import Options
    from searchformer.solve import Task

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


class TaskOptions(OptionsModel):
    """Which task."""

    random: str | None = None
    """Draw a task instead: DOMAIN or DOMAIN:WxH, such as maze:6x6."""
    level: int = Field(default=1, ge=1)
    """Which task of the file, from 1."""
    domain: str | None = None
    """maze, sokoban, tiles, or a domain that another package registers; recognised from the file if left out."""
    start: str | None = None
    """Start on a .map, as X,Y."""
    goal: str | None = None
    """Goal on a .map, as X,Y."""
    seed: int | None = None
    """Decides everything random, such as the task; if left out, 0, or a new one with --random."""


def find_task(
    file: str | None, options: TaskOptions, settings: dict[str, str], *, limits: "Options"
) -> tuple[str, "Task", int]:
    """The task of a file or a random one, what to call it, and the seed. `settings` are words of the command line."""
    if (file is None) == (options.random is None):
        raise SearchformerError("expected a FILE or --random DOMAIN:WxH, and not both; --help explains them")
    seed = options.seed
    if seed is None:
        seed = int.from_bytes(os.urandom(4), "little") if options.random else 0
    if options.random:
        return *_drawn(options.random, settings, seed=seed, limits=limits), seed
    assert file is not None
    return *_read(file, options, settings), seed


def _drawn(random: str, given: dict[str, str], *, seed: int, limits: "Options") -> tuple[str, "Task"]:
    """A random task. Where a packaged model has the size asked for, its other settings are used too."""
    from searchformer.domains import make_domain
    from searchformer.pretrained import find_model
    from searchformer.solve import random_task

    match = re.fullmatch(r"(\w+)(?::(\d{1,4})x(\d{1,4}))?", random)
    if not match:
        raise SearchformerError(f"--random expects a domain and a size, such as maze:6x6; found {shown(random)}")
    name = match[1]
    size = {"width": int(match[2]), "height": int(match[3])} if match[2] else {}
    model = find_model(name, size)
    learned = model.settings if model and size.items() <= model.settings.items() else {}
    made = make_domain(name, {**learned, **size, **domain_settings(name, given)})
    return f"{random}, seed {seed}", random_task(made, seed=seed, options=limits)


def _read(file: str, options: TaskOptions, given: dict[str, str]) -> tuple[str, "Task"]:
    """The chosen task of a file."""
    from searchformer.domains import TaskError
    from searchformer.evaluate.judge import domain_of
    from searchformer.solve import make_task

    level = options.level
    if options.start or options.goal:
        from searchformer.domains.formats import format_of, read

        if format_of(file) != "map":
            raise SearchformerError(f"--start and --goal are for .map files; {file} has tasks of its own")
        found: list[tuple[str, Any]] = [
            (file, read(file, start=_cell(options.start), goal=_cell(options.goal))[level - 1].record())
        ]
    else:
        from searchformer.interop.tasks import read_tasks

        skipped: list[Any] = []
        found = list(islice(read_tasks(file, skipped=skipped), level - 1, level + 1))
        report_skipped(skipped)
    if not found:
        raise SearchformerError(f"{file} has no task {level}")
    place, record = found[0]
    if isinstance(record, SearchformerError):
        raise SearchformerError(f"{place}: {record}")
    try:
        name = options.domain or domain_of(record)
        task = make_task(record, name=name, settings=domain_settings(name, given))
    except TaskError as error:
        raise TaskError(f"{place}: {error}") from None
    return f"{place}{'; --level chooses another task' if level == 1 and len(found) > 1 else ''}", task


def _cell(text: str | None) -> tuple[int, int] | None:
    """`3,4` as a cell."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,6}),(\d{1,6})", text)
    if not match:
        raise SearchformerError(f"a cell is X,Y, such as 3,4; found {shown(text)}")
    return int(match[1]), int(match[2])
