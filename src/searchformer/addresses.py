"""Directories in object stores: s3://bucket/name, gs://bucket/name, and whatever else `pyarrow.fs` opens.

A command works on a copy on this machine, below $SEARCHFORMER_CACHE (by default ~/.cache/searchformer). `read_copy`
brings it up to date; `working_copy` also sends back what the command made, when it ends, fails or is interrupted. The
manifest goes last: whoever finds one there finds everything that it names. If the manifest is to change, the old one is
taken away first. Plain paths are used as they are.
Try: `searchformer generate maze --tasks 1000 --out s3://bucket/mazes`.
"""

import contextlib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from searchformer.digests import file_digest
from searchformer.errors import SearchformerError, cut
from searchformer.files import make_directory, read_json, replacing, write_json
from searchformer.options import OptionsModel
from searchformer.seeding import digest

CACHE = "SEARCHFORMER_CACHE"
KNOWN = "{}.known.json"
"""Beside the copy: size and time of every file there, and the digest of what was fetched or sent."""
LAST = ("bootstrap.json", "stages.json", "metrics.json", "manifest.json")
"""Files that say that something is complete, in the order they are sent, after all others."""
KEPT_HERE = (".lock", ".flat")
"""Beginnings of names that concern this machine only."""
ADDRESS = re.compile(r"([a-z][a-z0-9+.-]+):/+(.+)")
"""A scheme has two letters at least, or C:/ would be one; `Path` makes one slash of two."""

Options = TypeVar("Options", bound=OptionsModel)


def address_of(path: Path | str) -> str | None:
    """The address, if it is one: `s3://bucket/name`."""
    found = ADDRESS.fullmatch(str(path))
    if found is None:
        return None
    return f"{found[1]}://{'/' if found[1] == 'file' else ''}{found[2]}"


def read_copy(path: Path) -> Path:
    """A directory on this machine with what `path` holds: itself, or an up-to-date copy of an address."""
    address = address_of(path)
    return path if address is None else _Place(address).fetch()


@contextlib.contextmanager
def working_copy(path: Path) -> Iterator[Path]:
    """A directory on this machine to work in; what was made is sent to the address when the block ends, however."""
    address = address_of(path)
    if address is None:
        yield path
        return
    place = _Place(address)
    here = place.fetch()
    try:
        yield here
    finally:
        place.send()


@contextlib.contextmanager
def at_hand(options: Options, *, reads: Sequence[str], writes: Sequence[str] = ()) -> Iterator[Options]:
    """The options with copies on this machine in place of addresses: those to read, and those to work in."""
    with contextlib.ExitStack() as stack:
        changes: dict[str, Any] = {}
        for name in (*reads, *writes):
            given = getattr(options, name)
            if given is not None and address_of(given):
                changes[name] = read_copy(given) if name in reads else stack.enter_context(working_copy(given))
        yield options.model_copy(update=changes)


class _Place:
    """An address and its copy."""

    def __init__(self, address: str) -> None:
        from pyarrow import ArrowException, fs

        self.fs, self.address = fs, address
        self.errors = (OSError, ArrowException)
        with self._explained("opened"):
            self.store, self.root = fs.FileSystem.from_uri(address)
        home = Path(os.environ.get(CACHE) or Path.home() / ".cache" / "searchformer")
        self.here = home / f"{Path(self.root).name}-{digest(address.encode())[:12]}"
        self.known = self.here.with_name(KNOWN.format(self.here.name))

    def fetch(self) -> Path:
        """Bring what is new there; returns the copy."""
        make_directory(self.here)
        known = self._known()
        with self._explained("read"):
            there = self._there()
            for name, state in there.items():
                if known.get(name, {}).get("there") != state or not self._is_as_known(name, known):
                    self._download(name)
                    known[name] = {"there": state, "digest": file_digest(self.here / name)}
        for name in known.keys() - there.keys():  # taken away there
            (self.here / name).unlink(missing_ok=True)
        write_json(self.known, {name: known[name] for name in there})
        return self.here

    def send(self) -> None:
        """Send what was made or changed here, the files that say that all is complete last."""
        known = self._known()
        files = {str(path.relative_to(self.here)): path for path in self.here.rglob("*") if self._is_sent(path)}
        changed = [name for name in files if known.get(name, {}).get("digest") != file_digest(files[name])]
        with self._explained("written"):
            for name in known.keys() - files.keys():
                self._delete(name)
            if any(Path(name).name not in LAST for name in changed):
                for name in changed:
                    if Path(name).name in LAST and name in known:
                        self._delete(name)
            for name in sorted(changed, key=_place_in_line):
                self._upload(name)
                known[name] = {"there": self._state(name), "digest": file_digest(files[name])}
        write_json(self.known, {name: known[name] for name in files if name in known})

    def _known(self) -> dict[str, Any]:
        try:
            return read_json(self.known, what="copy of a directory")
        except SearchformerError:
            return {}

    def _is_as_known(self, name: str, known: dict[str, Any]) -> bool:
        path = self.here / name
        return path.is_file() and file_digest(path) == known[name]["digest"]

    def _is_sent(self, path: Path) -> bool:
        inside = path.relative_to(self.here).parts
        return path.is_file() and path.suffix != ".tmp" and not any(part.startswith(KEPT_HERE) for part in inside)

    def _there(self) -> dict[str, list[int]]:
        """Names of the files there, with size and time."""
        found = self.store.get_file_info(self.fs.FileSelector(self.root, recursive=True, allow_not_found=True))
        files = [info for info in found if info.type == self.fs.FileType.File]
        names = {info.path[len(self.root) :].lstrip("/"): [info.size, info.mtime_ns] for info in files}
        for name in names:
            if ".." in Path(name).parts:
                raise SearchformerError(f"{self.address} holds a file that leaves its directory: {cut(name)}; refused")
        return names

    def _state(self, name: str) -> list[int]:
        info = self.store.get_file_info(f"{self.root}/{name}")
        if info.size != (self.here / name).stat().st_size:
            raise SearchformerError(f"{self.address}/{name} did not arrive whole; run the same command again")
        return [info.size, info.mtime_ns]

    def _download(self, name: str) -> None:
        make_directory((self.here / name).parent)
        with (
            replacing(self.here / name) as temporary,
            self.store.open_input_stream(f"{self.root}/{name}") as source,
            open(temporary, "wb") as target,
        ):
            shutil.copyfileobj(source, target, 1 << 22)

    def _upload(self, name: str) -> None:
        self.store.create_dir(str(Path(self.root, name).parent), recursive=True)
        with open(self.here / name, "rb") as source, self.store.open_output_stream(f"{self.root}/{name}") as target:
            shutil.copyfileobj(source, target, 1 << 22)

    def _delete(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.store.delete_file(f"{self.root}/{name}")

    @contextlib.contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except self.errors as error:
            raise SearchformerError(
                f"{self.address} cannot be {what}: {cut(str(error))}; the copy in {self._copy()} is kept"
            ) from error

    def _copy(self) -> str:
        return str(getattr(self, "here", "this machine"))


def _place_in_line(name: str) -> tuple[int, str]:
    """Files that say that something is complete come last, the one of the whole directory at the very end."""
    last = Path(name).name
    return (LAST.index(last) + 1 if last in LAST else 0) * 100 - len(Path(name).parts), name
