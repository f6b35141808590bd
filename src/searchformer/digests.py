"""Is this what was written? Digests of files and of JSON values, checked when they are read.

A JSON file carries the digest of its own content (`sealed`, `unsealed`). A Parquet file's digest is in the manifest of
its directory or, until there is one, in a list that its writer keeps beside it (`recorded`). Files without a digest,
those of older versions, are taken as they are.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from searchformer.errors import SearchformerError

DIGEST_BYTES = 16
SEAL = "content_digest"
"""Field of a JSON object that holds the digest of all other fields. It is the last one."""
RECORDS = ".digests-{}.json"
"""Digests of one writer's files, until a manifest names them."""

_verified: dict[tuple[Any, ...], str] = {}
"""Digests of files that this process has read, by place, size and time of the last change."""


def file_digest(path: Path) -> str:
    """BLAKE2b-128 of a file's bytes, as hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=DIGEST_BYTES)).hexdigest()


def require_digest(path: Path, expected: str, *, repair: str) -> None:
    """Raise, naming the file and how to `repair` it, unless its bytes have this digest. A file is read once a process.

    A file that was changed meanwhile has another size or time, and is read again.
    """
    try:
        state = os.stat(path)
        key = (os.path.abspath(path), state.st_size, state.st_mtime_ns, state.st_ino)
        found = _verified.get(key) or file_digest(path)
    except FileNotFoundError:
        raise SearchformerError(f"{path} is missing; {repair}") from None
    except OSError as error:
        raise SearchformerError(f"{path} cannot be read: {error.strerror or error}; {repair}") from error
    if found != expected:
        raise SearchformerError(
            f"{path} is truncated or altered: digest {found}, expected {str(expected)[:32]}; {repair}"
        )
    _verified[key] = found


def sealed(value: Mapping[str, Any]) -> dict[str, Any]:
    """The value, as JSON gives it back, with the digest of its content."""
    content = json.loads(json.dumps(value))
    return {**content, SEAL: _content_digest(content)}


def unsealed(value: dict[str, Any], *, where: str) -> dict[str, Any]:
    """The value without its digest; raises if the digest is not that of its content, or has lost its name."""
    name = SEAL if SEAL in value else next(reversed(value), SEAL)
    content = {key: entry for key, entry in value.items() if key != name}
    found = value.get(name)
    agrees = isinstance(found, str) and len(found) == 2 * DIGEST_BYTES and found == _content_digest(content)
    if name in value and agrees != (name == SEAL):
        raise SearchformerError(f"{where} was altered: its content is not what its {SEAL} says; restore the file")
    return content if agrees else value


def _content_digest(value: Mapping[str, Any]) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES).hexdigest()


# --- files that no manifest names yet


@contextlib.contextmanager
def recorded(path: Path, *, writer: str) -> Iterator[Path]:
    """Like `files.replacing`, and `writer` notes the new file's digest before the file is in place.

    If it is killed in between, the note is of a file that is not there, or of another one than before.
    """
    from searchformer.files import replacing, write_json

    with replacing(path) as temporary:
        yield temporary
        notes = path.with_name(RECORDS.format(writer))
        known = _read_notes(notes)
        write_json(notes, known | {path.name: file_digest(temporary)})


def require_recorded(*paths: Path, repair: str) -> None:
    """Raise unless files of one directory have the digests that were noted; without a note, one is taken as it is."""
    notes = sorted(paths[0].parent.glob(RECORDS.format("*"))) if paths else []
    expected = {name: digest for path in notes for name, digest in _read_notes(path).items()}
    for path in paths:
        if path.name in expected:
            require_digest(path, expected[path.name], repair=repair)


def _read_notes(path: Path) -> dict[str, str]:
    """Digests by file name; none if the list itself cannot be read: it only serves to check others."""
    from searchformer.files import read_json

    try:
        return read_json(path, what="list of digests")
    except SearchformerError:
        return {}
