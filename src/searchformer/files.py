"""Directories that one process works in at a time, and files that are either whole or absent.

A file is written beside its place, flushed, then renamed. `locked` keeps a second process out; `require_same` keeps a
run from being resumed with options that would change its result.
"""

import contextlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import filelock

from searchformer.digests import sealed, unsealed
from searchformer.errors import SearchformerError, cut, shown

MOST_JSON_BYTES = 1 << 28
"""A JSON file is read into memory whole; the manifest of 10^9 tasks takes a tenth of this."""
LOCK = ".lock"
"""Name of the lock file. It may stay behind: what counts is whether a process holds it."""


def temporary_beside(path: Path) -> Path:
    """A hidden name beside `path` that no other process has, not even in another container or on another machine."""
    return path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path that becomes `path` when the block succeeds, and vanishes when it fails."""
    temporary = temporary_beside(path)
    try:
        yield temporary
        with open(temporary, "rb+") as file:  # Windows flushes only what may be written to
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise SearchformerError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path`, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write `value` with the digest of its content as indented JSON to `path`, whole or not at all."""
    write_text(path, json.dumps(sealed(value), indent=1, ensure_ascii=False) + "\n")


def read_json(path: Path, *, what: str) -> dict[str, Any]:
    """The JSON object in `path`, its digest checked and left out; an error names `what` was expected there."""
    try:
        with open(path, "rb") as file:
            data = file.read(MOST_JSON_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise SearchformerError(_missing(path, what)) from None
    except OSError as error:
        raise SearchformerError(f"{path} is not a readable {what}: {error.strerror or error}") from error
    if len(data) > MOST_JSON_BYTES:
        raise SearchformerError(f"{path} is not a readable {what}: it has more than {MOST_JSON_BYTES:,} bytes")
    value = parse_json(data, where=f"{path} is not a readable {what}")
    return unsealed(value, where=str(path))


def _missing(path: Path, what: str) -> str:
    """Why there is no file at `path`, where `what` was expected."""
    directory = path.parent
    if directory.is_file():
        return f"{directory} is a file and holds no {what}"
    if not directory.exists():
        return f"there is no directory {directory}, so no {what}"
    owner = kind_of(directory)
    return f"{directory} holds {f'{owner} but ' if owner else ''}no {what}: {path.name} is missing"


def parse_json(data: str | bytes, *, where: str) -> dict[str, Any]:
    """The JSON object in a text; whatever is wrong with it becomes one line that begins with `where`."""
    try:
        text = data if isinstance(data, str) else data.decode("utf-8-sig")
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False).encode()  # lone surrogates are JSON, but not text
    except RecursionError:
        raise SearchformerError(f"{where}: its brackets are nested too deep") from None
    except UnicodeError:
        raise SearchformerError(f"{where}: it is not text in UTF-8") from None
    except ValueError as error:  # also numbers of thousands of digits
        raise SearchformerError(f"{where}: {cut(str(error))}") from None
    if not isinstance(value, dict):
        raise SearchformerError(f"{where}: expected a JSON object; found {shown(value)}")
    return value


def inside(directory: Path, name: str) -> Path:
    """The path of the file `name` of a directory; raises if the name leads anywhere else."""
    if not 0 < len(name) < 256 or name in (".", "..") or "/" in name or "\\" in name or "\0" in name:
        raise SearchformerError(f"{directory}: {shown(name)} is not the name of a file in this directory; refused")
    return directory / name


def make_directory(path: Path) -> Path:
    """Create `path` and its parents where they are missing."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SearchformerError(f"cannot create the directory {path}: {error.strerror or error}") from error
    return path


@contextlib.contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """Yield a temporary directory that becomes `path` when the block succeeds, and vanishes when it fails.

    A `path` that holds anything is refused before the block runs.
    """
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise SearchformerError(f"{path} is not empty; choose another directory")
    make_directory(path.parent)
    temporary = make_directory(temporary_beside(path))
    try:
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        raise SearchformerError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextlib.contextmanager
def locked(directory: Path, *, doing: str, name: str = LOCK, wait_seconds: float = 0.0) -> Iterator[None]:
    """Hold the directory's lock while the block runs; raises if another process is `doing` the same there.

    The lock ends with the process, however that ends. `wait_seconds` is how long to wait for it.
    """
    make_directory(directory)
    try:
        with filelock.FileLock(directory / name, timeout=wait_seconds, poll_interval=0.1):
            yield
    except filelock.Timeout:
        raise SearchformerError(f"another process is {doing} in {directory}; wait for it") from None


DATA_SET, TRAINING_RUN, ROLLOUTS = "a data set", "a training run", "rollouts"
BOOTSTRAP_RUN, RECIPE_RUN, REPORT = "a bootstrap run", "the run of a recipe", "a report"
MARKS = {
    "recipe.toml": RECIPE_RUN,
    "bootstrap.json": BOOTSTRAP_RUN,
    "options.json": BOOTSTRAP_RUN,
    "metrics.jsonl": TRAINING_RUN,
    "checkpoint": TRAINING_RUN,
    "model.safetensors": "a model",
    "tasks.parquet": ROLLOUTS,
    "manifest.json": DATA_SET,
    ".work": DATA_SET,
    "report.json": REPORT,
}
"""What tells whose a directory is; rollouts have a manifest too, so theirs comes first."""


def kind_of(directory: Path) -> str | None:
    """What a directory belongs to, if anything."""
    return next((owner for mark, owner in MARKS.items() if (directory / mark).exists()), None)


def require_kind(directory: Path, kind: str, *, advice: str = "choose another --out") -> None:
    """Raise if a directory that is to become `kind`, or to be read as such, belongs to something else."""
    found = kind_of(directory) or kind
    if found != kind:
        raise SearchformerError(f"{directory} holds {found}, not {kind}; {advice}")


def require_same(found: Mapping[str, Any], asked: Mapping[str, Any], *, where: Path, what: str) -> None:
    """Raise, naming what differs, unless what `where` holds (`what`) was made with the options asked for.

    Options that only `found` has do not matter; one that only `asked` has counts as None in `found`.
    """
    before, now = _flat(found), _flat(asked)
    different = [path for path in now if before.get(path) != now[path]]
    if different:
        changes = "; ".join(f"{path} was {shown(before.get(path))}, now {shown(now[path])}" for path in different[:3])
        more = f"; and {len(different) - 3} more" if len(different) > 3 else ""
        raise SearchformerError(
            f"{where} holds {what} with other options ({changes}{more}); choose another directory or the same options"
        )


def _flat(values: Any, path: str = "") -> dict[str, Any]:
    """Nested options by their paths: `train[1].steps`."""
    if isinstance(values, Mapping) and values:
        parts = [_flat(value, f"{path}.{key}" if path else str(key)) for key, value in values.items()]
    elif isinstance(values, list | tuple) and any(isinstance(value, Mapping) for value in values):
        parts = [{f"number of {path}": len(values)}, *(_flat(each, f"{path}[{i}]") for i, each in enumerate(values))]
    else:
        return {path: list(values) if isinstance(values, tuple) else values}
    return {name: value for part in parts for name, value in part.items()}
