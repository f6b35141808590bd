"""Files that are either whole or absent: written beside their place, flushed, then renamed."""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from searchformer.errors import SearchformerError

LOCK = ".lock"
"""Stays behind; it is held, or not, by a process that works in its directory."""


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path that becomes `path` when the block succeeds, and vanishes when it fails."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with open(temporary, "rb") as file:
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


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON to `path`, whole or not at all."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def read_json(path: Path, *, what: str) -> Any:
    """The JSON value in `path`; an error names `what` was expected there."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SearchformerError(f"{path.parent} holds no {what}: {path.name} is missing") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise SearchformerError(f"{path} is not a readable {what}: {error}") from error


def make_directory(path: Path) -> Path:
    """Create `path` and its parents where they are missing."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SearchformerError(f"cannot create the directory {path}: {error.strerror or error}") from error
    return path


@contextlib.contextmanager
def alone(directory: Path, *, doing: str) -> Iterator[None]:
    """Hold the directory's lock while the block runs; raises if another process is `doing` the same there.

    The lock goes with the process, however it ends. Systems without POSIX locks do without.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    make_directory(directory)
    with open(directory / LOCK, "a", encoding="utf-8") as file:  # appending nothing leaves its time as it is
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise SearchformerError(f"another process is {doing} in {directory}; wait for it") from None
        yield
