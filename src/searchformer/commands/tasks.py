"""Tasks that people bring: JSON lines from a file or stdin, any format of `domains/formats`, or a random one."""

import json
import os
import re
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from searchformer.commands.options import domain_settings
from searchformer.errors import SearchformerError
from searchformer.options import OptionsModel

if TYPE_CHECKING:
    from searchformer.search import Options
    from searchformer.solve import Task


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
        try:
            record = json.loads(line)
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            raise SearchformerError(f"{place}: expected a JSON object; {error}") from None
        if not isinstance(record, dict):
            raise SearchformerError(f"{place}: expected a JSON object; found {type(record).__name__}")
        yield place, record


class TaskOptions(OptionsModel):
    """Which task."""

    random: str | None = None
    """Draw a task instead: DOMAIN or DOMAIN:WxH, such as maze:6x6."""
    level: int = Field(default=1, ge=1)
    """Which task of the file, from 1."""
    domain: str | None = None
    """maze, sokoban, tiles, or a registered one; told from the file if left out."""
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
        raise SearchformerError(f"--random expects a domain and a size, such as maze:6x6; found {random!r}")
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
        from searchformer.domains.formats import read

        found = [(file, read(file, start=_cell(options.start), goal=_cell(options.goal))[level - 1].record())]
    else:
        found = list(islice(read_tasks(file), level - 1, level + 1))
    if not found:
        raise SearchformerError(f"{file} has no task {level}")
    place, record = found[0]
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
        raise SearchformerError(f"a cell is X,Y, such as 3,4; found {text!r}")
    return int(match[1]), int(match[2])
