"""What a data set holds: its sequence lengths, how well it can be learnt, whether anything leaks into the test split.

In: a complete data set. Out: frozen records for `searchformer inspect`. Shards are read as a stream, only the columns
needed; what stays in memory is a few numbers per task: lengths, and ids as 8-byte fingerprints.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count, islice

import numpy as np
from pydantic import BaseModel, ConfigDict

from searchformer.dataset.store import PARTS, SPLITS, Dataset
from searchformer.display import Display, Silent
from searchformer.domains import TaskError, make_domain
from searchformer.errors import SearchformerError
from searchformer.tokens.entropy import NotASearchError, Yardstick

LENGTHS = ("prompt", "trace", "plan", "response")
QUANTILES = ("min", "5%", "25%", "50%", "75%", "95%", "max", "mean")
FINGERPRINT = 16
"""Hex digits of a digest that are kept: 8 bytes. A million tasks give a false repeat in one of 37 million sets."""


class Leakage(BaseModel):
    """What training and test have in common; layouts and symmetries are those of the tasks `examined`."""

    model_config = ConfigDict(frozen=True)

    tasks: dict[str, int]
    """Tasks by split."""
    examined: dict[str, int]
    """Tasks whose layouts were compared and, for the test split, also their rotations and reflections."""
    layouts: dict[str, int]
    """Distinct layouts among the tasks examined."""
    shared_layouts: int
    """Layouts that both splits have: must be 0."""
    duplicates: dict[str, int]
    """Rows that repeat an earlier task of their split."""
    duplicates_across: int
    """Distinct tasks that both splits have."""
    symmetric: int
    """Test tasks examined that are a training task rotated or reflected."""
    wrong_ids: int
    """Tasks examined whose prompt does not match their `task_id`."""

    @property
    def complete(self) -> bool:
        """Whether every task was examined."""
        return self.examined == self.tasks


def length_quantiles(dataset: Dataset, split: str) -> dict[str, dict[str, float]] | None:
    """Quantiles and mean of prompt, trace, plan and response length in tokens (without bos and eos); None if empty."""
    lengths = dataset.lengths(split)
    if not lengths:
        return None
    lengths["response"] = lengths["trace"] + lengths["plan"]
    return {part: _quantiles(lengths[part]) for part in LENGTHS}


def _quantiles(lengths: np.ndarray) -> dict[str, float]:
    points = np.quantile(lengths, [0, 0.05, 0.25, 0.5, 0.75, 0.95, 1])
    return dict(zip(QUANTILES, [*points.tolist(), float(lengths.mean())], strict=True))


def audit_leakage(dataset: Dataset, *, limit: int, display: Display | None = None) -> Leakage:
    """Compare the splits by all task ids, and by the layouts and symmetries of the first `limit` tasks of each.

    A task's id is the digest of its problem: an image of a test task is a training task if its digest is one's, so
    training tasks need not be rotated and reflected.
    """
    ids = {split: _task_fingerprints(dataset, split) for split in SPLITS}
    total = sum(min(limit, dataset.rows(split)) for split in SPLITS)
    with (display or Silent()).bar("inspect", unit="tasks") as update:
        done = count(1)
        train, test = (_examine(dataset, split, limit, lambda: update(next(done), total, "")) for split in SPLITS)
    return Leakage(
        tasks={split: dataset.rows(split) for split in SPLITS},
        examined={"train": train.tasks, "test": test.tasks},
        layouts={"train": len(train.layouts), "test": len(test.layouts)},
        shared_layouts=len(train.layouts & test.layouts),
        duplicates={split: len(ids[split]) - len(np.unique(ids[split])) for split in SPLITS},
        duplicates_across=int(np.isin(np.unique(ids["test"]), ids["train"]).sum()),
        symmetric=_tasks_with_image_among(test.images, ids["train"]),
        wrong_ids=train.wrong_ids + test.wrong_ids,
    )


@dataclass
class _Examined:
    """What the tasks of a split were found to be."""

    tasks: int = 0
    layouts: set[int] = field(default_factory=set)
    """Fingerprints of layouts."""
    images: list[set[int]] = field(default_factory=list)
    """For each task of the test split, fingerprints of the task rotated and reflected."""
    wrong_ids: int = 0


def _examine(dataset: Dataset, split: str, limit: int, tick: Callable[[], None]) -> _Examined:
    """Rebuild the first `limit` tasks of a split from their prompts; calls `tick` after each."""
    domain, examined = make_domain(dataset.manifest.domain, dataset.manifest.settings), _Examined()
    for row in islice(dataset.records(split, ["task_id", "prompt"]), limit):
        task_id = row["task_id"]
        try:
            problem = domain.parse_prompt(dataset.vocabulary.decode(row["prompt"]))
        except TaskError as error:
            place = f"{dataset.directory}: {split} task {task_id}"
            raise SearchformerError(f"{place}: the prompt is not a task of {domain.name}: {error}") from error
        examined.tasks += 1
        examined.wrong_ids += domain.task_id(problem) != task_id
        examined.layouts.add(_fingerprint(domain.layout_id(problem)))
        if split == "test":
            examined.images.append({_fingerprint(domain.task_id(image)) for image in domain.symmetric(problem)})
        tick()
    return examined


def _tasks_with_image_among(images: list[set[int]], ids: np.ndarray) -> int:
    """How many tasks have one of their images among `ids`, fingerprints uint64 [tasks]."""
    task_of = np.repeat(np.arange(len(images)), [len(each) for each in images])
    fingerprints = np.array([image for each in images for image in each], dtype=np.uint64)
    return len(np.unique(task_of[np.isin(fingerprints, ids)]))


def _fingerprint(digest: str) -> int:
    return int(digest[:FINGERPRINT], 16)


def _task_fingerprints(dataset: Dataset, split: str) -> np.ndarray:
    """Fingerprints of a split's task ids, uint64 [rows]."""
    parts = [np.empty(0, dtype=np.uint64)]
    for batch in dataset.batches(split, ["task_id"]):
        prefixes = "".join(task_id[:FINGERPRINT] for task_id in batch.column("task_id").to_pylist())
        parts.append(np.frombuffer(bytes.fromhex(prefixes), dtype=">u8").astype(np.uint64))
    return np.concatenate(parts)


def yardstick_for(dataset: Dataset) -> Yardstick | None:
    """What the data set's traces can be measured by; None where it is not known which nodes tie."""
    config = dataset.manifest.config
    algorithm = config.get("algorithm", "astar")
    if algorithm == "greedy" or "close" not in dataset.vocabulary.ids:
        return None
    weight = float(config.get("weight", 1.0)) if algorithm == "weighted" else 1.0
    return Yardstick(dataset.vocabulary, weight=weight, deterministic=bool(config.get("deterministic")))


def loss_floor(dataset: Dataset, *, tasks: int = 256) -> float | None:
    """The loss per token of a perfect imitator on the first training tasks; None if their traces cannot be measured."""
    yardstick, floors = yardstick_for(dataset), []
    if yardstick is None:
        return None
    for row in islice(dataset.records("train", list(PARTS)), tasks):
        try:
            nats = yardstick.floor(np.array(row["trace"]))
        except NotASearchError:
            continue
        floors.append(nats.sum() / (len(row["trace"]) + len(row["plan"]) + 1))
    return float(np.mean(floors)) if floors else None
