"""From options to a complete data set: shards made by workers, joined in order, without repeats.

While it is made, everything lies in `.work` inside the directory; at the end the shards are moved into place and the
manifest is written. If it is killed at any moment, the same call continues and ends with the same bytes.
Try: `searchformer generate maze --width 10 --height 10 --tasks 1000 --out d`.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from searchformer.dataset.shards import ROWS_PER_SHARD, GenerateOptions, ShardIndex, ShardMaker, too_narrow
from searchformer.dataset.store import MANIFEST, SPLITS, Dataset, Manifest, finish
from searchformer.dataset.supply import ShardSupply, started_workers
from searchformer.display import Display, Silent
from searchformer.errors import SearchformerError
from searchformer.files import LOCK, locked, make_directory, read_json, require_same, write_json

WORK = ".work"


def generate(
    config: GenerateOptions, out: Path, *, workers: int = 1, append: bool = False, display: Display | None = None
) -> Manifest:
    """Make the data set that `config` describes in `out`; with `append`, add `config.tasks` tasks to the one there."""
    maker = ShardMaker(config)  # wrong settings show before anything is written
    config = config.model_copy(update={"settings": maker.domain.model_dump()})
    try:
        with locked(out, doing="generating"):
            return _generate(config, out, maker, workers=workers, append=append, display=display or Silent())
    except OSError as error:
        raise SearchformerError(f"cannot make the data set in {out}: {error.strerror or error}") from error


def _generate(
    config: GenerateOptions, out: Path, maker: ShardMaker, *, workers: int, append: bool, display: Display
) -> Manifest:
    work = out / WORK
    tasks = _tasks_in_all(config, out, append=append)
    if tasks is None:
        shutil.rmtree(work, ignore_errors=True)  # left if it was killed while tidying up
        return Dataset(out).manifest
    config = config.model_copy(update={"tasks": tasks})
    finished = _prepare_work(config, out, work)
    title = f"generate {config.domain}"
    with started_workers(config, workers) as pool, display.bar(title, unit="tasks") as update:
        supply = ShardSupply(config, work, maker, workers=pool, finished=finished, update=update)
        chosen = _choose_rows(config, supply)
        return _finish(config, out, supply, chosen)


# --- what is there already


def _require_same(found: dict[str, Any], config: GenerateOptions, out: Path) -> None:
    defaults = {name: field.default for name, field in GenerateOptions.model_fields.items()}
    asked = config.model_dump(exclude={"tasks"})
    require_same(defaults | found, asked, where=out, what="a data set")  # older ones lack newer options


def _tasks_in_all(config: GenerateOptions, out: Path, *, append: bool) -> int | None:
    """How many tasks the data set is to have in the end; None if it has them already."""
    if (out / WORK / "config.json").exists():  # it was interrupted: a manifest would be that of the state before
        return _unfinished_tasks(config, out, append=append)
    if not (out / MANIFEST).exists():
        if append:
            raise SearchformerError(f"{out} holds no complete data set to append to; leave out --append")
        if any(path.name not in (WORK, LOCK) for path in out.iterdir()):
            raise SearchformerError(f"{out} is not empty and holds no data set; choose another directory")
        return config.tasks
    manifest = Dataset(out).manifest
    _require_same(manifest.config, config, out)
    if append:
        return manifest.config["tasks"] + config.tasks
    if manifest.config["tasks"] != config.tasks:
        raise SearchformerError(
            f"{out} holds a complete data set of {manifest.config['tasks']} tasks, asked for are {config.tasks}; "
            "add to it with --append, or choose another directory"
        )
    return None


def _unfinished_tasks(config: GenerateOptions, out: Path, *, append: bool) -> int:
    """How many tasks an interrupted run was to reach; raises unless the same is asked for again."""
    stored = read_json(out / WORK / "config.json", what="unfinished data set")
    _require_same(stored, config, out)
    asked = stored["appended"] if append else stored["tasks"]
    if asked != config.tasks or append != bool(stored["appended"]):
        begun = f"--append --tasks {stored['appended']}" if stored["appended"] else f"--tasks {stored['tasks']}"
        raise SearchformerError(f"{out} holds an unfinished data set begun with {begun}; finish it first")
    return stored["tasks"]


def _prepare_work(config: GenerateOptions, out: Path, work: Path) -> int:
    """Set up `.work`. Returns how many shards of an earlier, smaller data set stay as they are."""
    if (work / "config.json").exists():
        return int(read_json(work / "config.json", what="unfinished data set")["kept"])
    finished = appended = 0
    shutil.rmtree(work, ignore_errors=True)  # without a config.json it is what a killed run left
    make_directory(work)
    if (out / MANIFEST).exists():
        manifest = Dataset(out, verify=True).manifest
        appended = config.tasks - manifest.config["tasks"]
        # all but the last shard, which may be incomplete: it is made again, longer
        finished = max(int(shard.file.split("-")[1].split(".")[0]) for shard in manifest.shards)
        for number in range(finished):
            _index_of_finished(out, number, manifest).save(work / f"{number:05d}.npz")
    write_json(work / "config.json", config.model_dump() | {"kept": finished, "appended": appended})
    return finished


def _index_of_finished(out: Path, number: int, manifest: Manifest) -> ShardIndex:
    """The index of a shard that is in place. Repeats are out of it, and its order no longer matters."""
    fingerprints, flags = [], []
    for split, name in enumerate(SPLITS):
        identities = pq.read_table(out / f"{name}-{number:05d}.parquet", columns=["task_id"])["task_id"].to_pylist()
        fingerprints += [bytes.fromhex(identity[:16]) for identity in identities]
        flags += [bool(split)] * len(identities)
    values = np.frombuffer(b"".join(fingerprints), dtype=">u8")
    return ShardIndex(values, np.array(flags, dtype=bool), manifest.rejected[number])


# --- which rows to keep


_ChosenRows = tuple[ShardIndex, np.ndarray]
"""A shard, and which of its rows go into the data set, bool [rows]."""


class _SeenTasks:
    """Fingerprints of all tasks so far, 8 bytes each, in sorted runs that are merged when they are of similar size."""

    def __init__(self) -> None:
        self.runs: list[np.ndarray] = []

    def add(self, fingerprints: np.ndarray) -> np.ndarray:
        """Add these; which of them are new, bool [len(fingerprints)]."""
        values = fingerprints.astype(np.uint64)
        fresh = np.ones(len(values), dtype=bool)
        for run in self.runs:
            places = np.minimum(np.searchsorted(run, values), len(run) - 1)
            fresh &= run[places] != values
        self.runs.append(np.sort(values[fresh]))
        self.runs = [run for run in self.runs if len(run)]
        while len(self.runs) > 1 and len(self.runs[-2]) <= 2 * len(self.runs[-1]):
            self.runs[-2:] = [np.sort(np.concatenate(self.runs[-2:]))]
        return fresh


def _choose_rows(config: GenerateOptions, supply: ShardSupply) -> list[_ChosenRows]:
    """Take shards in order, leave out tasks that an earlier one has, until there are enough."""
    seen, chosen, total, number = _SeenTasks(), [], 0, 0
    while total < config.tasks:
        missing = config.tasks - total
        index = supply.index(number, min(ROWS_PER_SHARD, missing))
        fresh = seen.add(index.fingerprints)
        whole = len(index.is_test) >= ROWS_PER_SHARD or number < supply.finished
        while fresh.sum() < missing and not whole:
            # the last shard has repeats: make it longer, as far as it goes
            before = len(index.is_test)
            index = supply.index(number, min(ROWS_PER_SHARD, before + int(missing - fresh.sum())))
            added = seen.add(index.fingerprints[before:])
            fresh = np.concatenate([fresh, added])
            whole = len(index.is_test) >= ROWS_PER_SHARD or len(index.is_test) == before
        if not fresh.any():
            raise too_narrow(config, total, index.rejected)
        keep = fresh & (np.cumsum(fresh) <= missing)
        chosen.append((index, keep))
        total += int(keep.sum())
        number += 1
    return chosen


# --- putting the data set together


def _finish(config: GenerateOptions, out: Path, supply: ShardSupply, chosen: list[_ChosenRows]) -> Manifest:
    """Move the shards into place, without repeats, and write the manifest."""
    (out / MANIFEST).unlink(missing_ok=True)
    for leftover in out.glob(".*.tmp"):  # of a run that was killed here
        leftover.unlink()
    supply.move(_moves(out, supply, chosen))
    files = {f"{split}-{number:05d}.parquet": split for number in range(len(chosen)) for split in SPLITS}
    rejected = []
    for index, keep in chosen:
        repeats = index.rejected["duplicate"] + int((~keep).sum())
        rejected.append({**index.rejected, "duplicate": repeats})
    vocabulary = supply.maker.vocabulary
    manifest = finish(out, files, config=config.model_dump(), vocabulary=vocabulary, rejected=rejected)
    (supply.work / "config.json").unlink()  # first: from here on there is nothing left to resume
    shutil.rmtree(supply.work)
    return manifest


def _moves(out: Path, supply: ShardSupply, chosen: list[_ChosenRows]) -> Iterator[tuple[Path, Path, np.ndarray]]:
    """Files that are not in place yet: source, target, and which rows to keep, bool [rows]."""
    for number, (index, keep) in enumerate(chosen[supply.finished :], start=supply.finished):
        for split, name in enumerate(SPLITS):
            source = supply.work / f"{number:05d}.{name}.parquet"
            if source.exists():
                yield source, out / f"{name}-{number:05d}.parquet", keep[index.is_test == bool(split)]
