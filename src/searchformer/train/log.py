"""Where a run's numbers go while it trains: always to `metrics.jsonl`, to TensorBoard and trackio if asked for."""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from searchformer.digests import sealed, unsealed
from searchformer.errors import SearchformerError, shown
from searchformer.extras import require
from searchformer.files import parse_json, write_text

FILE_NAME = "metrics.jsonl"
Record = dict[str, Any]
Listener = Callable[[Record], None]


class MetricsLog:
    """One JSON object per line, flushed line by line; lines of steps that will be done again are dropped on resume."""

    def __init__(self, directory: Path, *, resume_step: int) -> None:
        self.path = directory / FILE_NAME
        kept = [record for record in read_metrics(directory) if record["step"] <= resume_step]
        write_text(self.path, "".join(_line(record) for record in kept))

    def __call__(self, record: Record) -> None:
        """Append one record."""
        try:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(_line(record))
        except OSError as error:
            raise SearchformerError(f"cannot write {self.path}: {error.strerror or error}") from error


def read_metrics(directory: Path) -> list[Record]:
    """The records of a run so far; a last line cut short by a kill is left out."""
    path = directory / FILE_NAME
    if not path.exists():
        return []
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise SearchformerError(f"{path} cannot be read: {error.strerror or error}") from error
    records = []
    for number, line in enumerate(lines, start=1):
        place = f"{path}, line {number}"
        try:
            parsed = parse_json(line, where=f"{place} is not JSON") if line else {}
            record = unsealed(parsed, where=place) or None
        except SearchformerError:
            if number < len(lines) or not _is_cut_short(line):
                raise
            break
        if record is not None and not (isinstance(record.get("step"), int) and "kind" in record):
            raise SearchformerError(f"{place}: expected a record with its step and kind; found {shown(record)}")
        records += [record] if record else []
    return records


def _is_cut_short(line: bytes) -> bool:
    """Whether a line that is not JSON may be the beginning of some, rather than a whole object with damage behind."""
    try:
        json.JSONDecoder().raw_decode(line.decode("utf-8", "replace"))
    except ValueError:
        return True
    except RecursionError:  # brackets nested deeper than any record's
        return False
    return False


def _line(record: Record) -> str:
    return json.dumps(sealed(record)) + "\n"


@dataclass(frozen=True)
class Tracker:
    """A listener that passes numbers on to a service, and is closed at the end."""

    log: Callable[[dict[str, float], int], None]
    close: Callable[[], None]

    def __call__(self, record: Record) -> None:
        """Pass a record's numbers on."""
        skipped = ("step", "kind", "split")
        numbers = {f"{record['kind']}/{name}": value for name, value in record.items() if name not in skipped}
        self.log(numbers, record["step"])


def make_trackers(names: Sequence[str], directory: Path) -> list[Tracker]:
    """Listeners that pass the numbers on to `tensorboard` or `trackio`."""
    makers = {"tensorboard": _tensorboard, "trackio": _trackio}
    for name in names:
        if name not in makers:
            raise SearchformerError(f"a tracker is one of {', '.join(makers)}; found {shown(name)}")
    return [makers[name](directory) for name in names]


def _tensorboard(directory: Path) -> Tracker:
    require("tensorboard", extra="tracking")
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(log_dir=os.fspath(directory / "tensorboard"))

    def log(numbers: dict[str, float], step: int) -> None:
        for name, value in numbers.items():
            writer.add_scalar(name, value, step)

    return Tracker(log, writer.close)


def _trackio(directory: Path) -> Tracker:
    """Logs to a local database; `trackio show --project searchformer` draws it."""
    module = require("trackio", extra="tracking")
    with contextlib.redirect_stdout(sys.stderr):  # stdout is for the command's own result
        module.init(project="searchformer", name=directory.name)

    def finish() -> None:
        with contextlib.redirect_stdout(sys.stderr):
            module.finish()

    return Tracker(lambda numbers, step: module.log(numbers, step=step), finish)
