"""From options to a complete data set: shards made by the workers of an engine, joined in order, without repeats.

While it is made, everything lies in `.work` inside the directory; at the end the shards are moved into place and the
manifest is written. If it is killed at any moment, the same call continues and ends with the same bytes.
Try: `searchformer generate maze --width 10 --height 10 --tasks 1000 --out d`.
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from searchformer.dataset.shards import (
    ROWS_PER_SHARD,
    GenerateOptions,
    ShardIndex,
    ShardMaker,
    index_path,
    too_narrow,
    work_file,
)
from searchformer.dataset.store import MANIFEST, SPLITS, WORK, Dataset, Manifest, finish
from searchformer.dataset.supply import ShardSupply, shard_crew
from searchformer.display import Display, Silent
from searchformer.engines.base import Engine
from searchformer.engines.local import LocalEngine
from searchformer.errors import SearchformerError
from searchformer.files import DATA_SET, LOCK, locked, make_directory, read_json, require_kind, require_same, write_json
from searchformer.tokens.vocabulary import Vocabulary


def generate(
    config: GenerateOptions,
    out: Path,
    *,
    workers: int | None = None,
    append: bool = False,
    display: Display | None = None,
    engine: Engine | None = None,
) -> Manifest:
    """Make the data set that `config` describes in `out`; with `append`, add `config.tasks` tasks to the one there."""
    require_kind(out, DATA_SET)
    if append and not any(path.exists() for path in (out / MANIFEST, out / WORK / "config.json")):
        raise SearchformerError(f"{out} holds no complete data set to append to; leave out --append")
    maker = ShardMaker(config)  # wrong settings show before anything is written
    config = config.model_copy(update={"settings": maker.domain.model_dump()})
    try:
        with locked(out, doing="generating"):
            if (total := _tasks_in_all(config, out, append=append)) is None:
                shutil.rmtree(out / WORK, ignore_errors=True)  # left if it was killed while tidying up
                return Dataset(out).manifest
            config = config.model_copy(update={"tasks": total})
            return _generate(config, out, maker.vocabulary, engine or LocalEngine(), workers, display or Silent())
    except OSError as error:
        raise SearchformerError(f"cannot make the data set in {out}: {error.strerror or error}") from error


def _generate(
    config: GenerateOptions, out: Path, vocabulary: Vocabulary, engine: Engine, workers: int | None, display: Display
) -> Manifest:
    work = out / WORK
    finished = _prepare_work(config, out, work)
    title = f"generate {config.domain}"
    with shard_crew(config, engine, workers) as crew, display.bar(title, unit="tasks") as update:
        supply = ShardSupply(config, work, crew, finished=finished, update=update)
        chosen = _choose_rows(config, supply)
        return _finish(config, out, supply, chosen, vocabulary)


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
            _index_of_finished(out, number, manifest).save(index_path(work, number))
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


@dataclass(frozen=True)
class _Chosen:
    """Which rows of the shards go into the data set."""

    lengths: list[int]
    """Rows of each shard."""
    repeats: dict[int, np.ndarray]
    """Rows that repeat a task of an earlier row, by shard."""
    tasks: int
    """Tasks in all."""

    def fresh(self, number: int) -> int:
        """Rows of a shard that are no repeats."""
        return self.lengths[number] - len(self.repeats.get(number, ()))

    @property
    def distinct(self) -> int:
        """Distinct tasks in all shards."""
        return sum(map(self.fresh, range(len(self.lengths))))

    def keep(self, number: int) -> np.ndarray:
        """The rows of a shard to keep, bool [rows]."""
        keep = np.ones(self.lengths[number], dtype=bool)
        keep[self.repeats.get(number, [])] = False
        if number == len(self.lengths) - 1:
            keep &= np.cumsum(keep) <= self.tasks - (self.distinct - self.fresh(number))
        return keep


def _choose_rows(config: GenerateOptions, supply: ShardSupply) -> _Chosen:
    """Have shards made until they hold enough distinct tasks: the first ones in the order of shards and rows.

    A shard is never made longer than needed, so that the result does not depend on how many are made at a time.
    """
    supply.make([(number, ROWS_PER_SHARD) for number in range(supply.finished)])
    lengths = [len(supply.index(number).is_test) for number in range(supply.finished)]
    chosen = _Chosen(lengths, {}, config.tasks)
    ended: set[int] = set()  # shards for which no more tasks were found
    while (missing := config.tasks - chosen.distinct) > 0:
        wanted = _next_shards(chosen.lengths, missing, supply.finished, ended)
        supply.make(wanted)
        made = {number: len(supply.index(number).is_test) for number, _ in wanted}
        ended |= {number for number, rows in wanted if made[number] < rows}
        lengths = [made.get(number, length) for number, length in enumerate(chosen.lengths)]
        lengths += [made[number] for number, _ in wanted if number >= len(lengths)]
        chosen = _Chosen(lengths, supply.repeats(len(lengths)), config.tasks)
        for number, _ in wanted:
            if not chosen.fresh(number) and (lengths[number] >= ROWS_PER_SHARD or number in ended):
                found = sum(chosen.fresh(earlier) for earlier in range(number))
                raise too_narrow(config, found, supply.index(number).rejected)
    return chosen


def _next_shards(lengths: list[int], missing: int, finished: int, ended: set[int]) -> list[tuple[int, int]]:
    """Which shards to make next, and with how many rows, for `missing` more distinct tasks.

    First the last one is made longer, unless it is full or has `ended`. Of new ones, a few at first, then eight times
    as many as there are: if there are not enough tasks, that shows before much is done in vain.
    """
    wanted, count = [], len(lengths)
    if count > finished and lengths[-1] < ROWS_PER_SHARD and count - 1 not in ended:
        rows = min(ROWS_PER_SHARD, lengths[-1] + missing)
        wanted.append((count - 1, rows))
        missing -= rows - lengths[-1]
    most = 1 if ended else 8 * max(count - finished, 1)
    for number in range(count, count + min(most, -(-missing // ROWS_PER_SHARD))):
        wanted.append((number, min(ROWS_PER_SHARD, missing)))
        missing -= wanted[-1][1]
    return wanted


# --- putting the data set together


def _finish(
    config: GenerateOptions, out: Path, supply: ShardSupply, chosen: _Chosen, vocabulary: Vocabulary
) -> Manifest:
    """Move the shards into place, without repeats, and write the manifest."""
    (out / MANIFEST).unlink(missing_ok=True)
    for leftover in out.glob(".*.tmp"):  # of a run that was killed here
        leftover.unlink()
    supply.move(_moves(out, supply, chosen))
    files = {f"{split}-{number:05d}.parquet": split for number in range(len(chosen.lengths)) for split in SPLITS}
    rejected = []
    for number in range(len(chosen.lengths)):
        counts = supply.index(number).rejected
        rejected.append({**counts, "duplicate": counts["duplicate"] + int((~chosen.keep(number)).sum())})
    described = supply.describe(out, files)
    stored = config.model_dump()
    manifest = finish(out, files, config=stored, vocabulary=vocabulary, rejected=rejected, described=described)
    (supply.work / "config.json").unlink()  # first: from here on there is nothing left to resume
    shutil.rmtree(supply.work)
    return manifest


def _moves(out: Path, supply: ShardSupply, chosen: _Chosen) -> Iterator[tuple[Path, Path, np.ndarray]]:
    """Files that are not in place yet: source, target, and which rows to keep, bool [rows]."""
    for number in range(supply.finished, len(chosen.lengths)):
        is_test, keep = supply.index(number).is_test, chosen.keep(number)
        for split, name in enumerate(SPLITS):
            source = work_file(supply.work, number, name)
            if source.exists():
                yield source, out / f"{name}-{number:05d}.parquet", keep[is_test == bool(split)]
