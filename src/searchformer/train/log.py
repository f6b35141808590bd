"""What a run says of itself while it trains: `metrics.jsonl` always, TensorBoard and trackio when asked for."""

import importlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from searchformer.errors import SearchformerError
from searchformer.files import write_text

FILE_NAME = "metrics.jsonl"
Record = dict[str, Any]
Listener = Callable[[Record], None]


class MetricsLog:
    """One JSON object per line, flushed line by line; lines of steps that will be done again are dropped on resume."""

    def __init__(self, directory: Path, *, resume_step: int) -> None:
        self.path = directory / FILE_NAME
        kept = [record for record in read_metrics(directory) if record["step"] <= resume_step]
        write_text(self.path, "".join(json.dumps(record) + "\n" for record in kept))

    def __call__(self, record: Record) -> None:
        """Append one record."""
        try:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
        except OSError as error:
            raise SearchformerError(f"cannot write {self.path}: {error.strerror or error}") from error


def read_metrics(directory: Path) -> list[Record]:
    """The records of a run so far; a last line cut short by a kill is left out."""
    path = directory / FILE_NAME
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    return [json.loads(line) for line in lines]


def make_trackers(names: Sequence[str], directory: Path) -> list[Listener]:
    """Listeners that pass the numbers on to `tensorboard` or `trackio`."""
    known = {"tensorboard": _tensorboard, "trackio": _trackio}
    for name in names:
        if name not in known:
            raise SearchformerError(f"a tracker is one of {', '.join(known)}; found {name!r}")
    return [known[name](directory) for name in names]


def _numbers(record: Record) -> dict[str, float]:
    skipped = ("step", "kind", "split")
    return {f"{record['kind']}/{name}": value for name, value in record.items() if name not in skipped}


def _tensorboard(directory: Path) -> Listener:
    module = _require("torch.utils.tensorboard", "tensorboard")
    writer = module.SummaryWriter(log_dir=os.fspath(directory / "tensorboard"))

    def listen(record: Record) -> None:
        for name, value in _numbers(record).items():
            writer.add_scalar(name, value, record["step"])

    return listen


def _trackio(directory: Path) -> Listener:
    module = _require("trackio", "trackio")
    module.init(project="searchformer", name=directory.name)
    return lambda record: module.log(_numbers(record), step=record["step"])


def _require(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise SearchformerError(
            f"{package} is not installed; install it with `pip install 'searchformer[tracking]'`"
        ) from None
