"""One data set made of several, so that a model learns tasks of different kinds at once.

In: data sets of one domain with one vocabulary, such as Sokoban with one box and with two. Out: a data set with all of
their tasks. Try: `searchformer merge DIR DIR --out DIR`.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from searchformer.dataset.store import MANIFEST, SPLITS, Dataset, Manifest, file_digest, finish
from searchformer.domains import Domain, TaskError, make_domain
from searchformer.errors import SearchformerError
from searchformer.files import DATA_SET, locked, make_directory, replacing, require_kind


def merge(sources: Sequence[Path], out: Path) -> Manifest:
    """Write the tasks of all `sources` to `out`; training tasks stay training tasks."""
    if len(sources) < 2:
        raise SearchformerError(f"two or more data sets can be merged; found {len(sources)}")
    parts = [Dataset(source, verify=True) for source in sources]
    first, settings = parts[0], _common_settings(parts)
    domain = make_domain(first.manifest.domain, settings)
    for part in parts:
        first.vocabulary.require_same(part.vocabulary, mine=str(first.directory), theirs=str(part.directory))
        _require_expressible(part, domain)
    _require_different(parts)
    require_kind(out, DATA_SET)
    make_directory(out)
    with locked(out, doing="merging"):
        if (out / MANIFEST).exists():
            raise SearchformerError(f"{out} already holds a data set; choose another --out")
        files = {}
        for split in SPLITS:
            shards = [(part, shard) for part in parts for shard in part.shards(split)]
            for number, (part, shard) in enumerate(shards):
                name = f"{split}-{number:05d}.parquet"
                with replacing(out / name) as temporary:
                    shutil.copyfile(part.directory / shard.file, temporary)
                files[name] = split
        merged = [{"from": file_digest(part.directory / MANIFEST), **part.manifest.config} for part in parts]
        config = {**_common_config(parts), "settings": settings, "merged": merged}
        return finish(out, files, config=config, vocabulary=first.vocabulary)


def _common_config(parts: list[Dataset]) -> dict[str, Any]:
    """What all data sets say alike of how they were made."""
    first, *others = (part.manifest.config for part in parts)
    return {key: value for key, value in first.items() if all(other.get(key) == value for other in others)}


def _common_settings(parts: list[Dataset]) -> dict[str, Any]:
    """The largest of each number that is set; anything else must agree, and so must the domain and the search."""
    for name in ("domain", "algorithm", "weight", "deterministic"):
        found = [part.manifest.config.get(name) for part in parts]
        if any(value != found[0] for value in found):
            listed = ", ".join(f"{part.directory}: {value}" for part, value in zip(parts, found, strict=True))
            raise SearchformerError(f"data sets of one {name} can be merged; found {listed}")
    settings: dict[str, Any] = {}
    for name in dict.fromkeys(name for part in parts for name in part.manifest.settings):
        values = [part.manifest.settings.get(name) for part in parts]
        numbers = [value for value in values if value is not None]
        if all(value == values[0] for value in values):
            settings[name] = values[0]
        elif all(isinstance(value, int) for value in numbers):
            settings[name] = max(numbers)
        else:
            raise SearchformerError(f"data sets of one {name} can be merged; found {', '.join(map(str, values))}")
    return settings


def _require_expressible(part: Dataset, domain: Domain) -> None:
    """Raise unless the domain reads the part's first prompts as the tasks that they are."""
    for split in SPLITS:
        batch = next(part.batches(split, ["task_id", "prompt"]), None)
        for row in batch.to_pylist()[:100] if batch is not None else ():
            try:
                read = domain.task_id(domain.parse_prompt(part.vocabulary.decode(row["prompt"])))
            except TaskError as error:
                read = str(error)
            if read != row["task_id"]:
                raise SearchformerError(
                    f"{part.directory}: its prompts mean other tasks beside larger ones, since they do not say their "
                    "size; for mazes of several sizes use `generate maze --smallest`"
                )


def _require_different(parts: list[Dataset]) -> None:
    """Raise if two of the data sets have a task in common."""
    seen: dict[str, Path] = {}
    for part in parts:
        tasks = part.task_ids("train") | part.task_ids("test")
        if shared := next((task for task in tasks if task in seen), None):
            raise SearchformerError(f"{part.directory} and {seen[shared]} have task {shared} in common")
        seen |= dict.fromkeys(tasks, part.directory)
