"""What a data set holds: its sequence lengths, and whether anything leaks from training to testing.

In: a complete data set. Out: frozen records for `searchformer inspect`. Shards are read as a stream, only the columns
needed; what stays in memory is a few numbers per task: lengths, and identities as 8-byte fingerprints.
"""

from collections.abc import Callable, Iterator

import numpy as np
from pydantic import BaseModel, ConfigDict

from searchformer.dataset.store import SPLITS, Dataset
from searchformer.domains import Domain, TaskError, make_domain
from searchformer.errors import SearchformerError
from searchformer.tokens.vocabulary import Vocabulary

LENGTHS = ("prompt", "trace", "plan", "response")
QUANTILES = ("min", "5%", "25%", "50%", "75%", "95%", "max", "mean")
FINGERPRINT = 16
"""Hex digits of a digest that are kept: 8 bytes. A million tasks give a false repeat in one of 37 million sets."""


class Leakage(BaseModel):
    """What training and test have in common. Of `tasks`, those `examined` were taken apart."""

    model_config = ConfigDict(frozen=True)

    tasks: dict[str, int]
    """Tasks by split."""
    examined: dict[str, int]
    """Tasks whose layouts and, for the test split, images under symmetry were compared."""
    layouts: dict[str, int]
    """Distinct layouts among the tasks examined."""
    shared_layouts: int
    """Layouts that both splits have: must be 0."""
    duplicates: dict[str, int]
    """Rows that repeat an earlier task of their split."""
    duplicates_across: int
    """Distinct tasks that both splits have."""
    symmetric: int
    """Test tasks examined that are a training task, rotated or reflected."""
    wrong_ids: int
    """Tasks examined whose prompt does not have the digest that `task_id` says."""

    @property
    def complete(self) -> bool:
        """Whether every task was examined."""
        return self.examined == self.tasks


def length_quantiles(dataset: Dataset, split: str) -> dict[str, dict[str, float]] | None:
    """Quantiles and mean of prompt, trace, plan and response length in tokens (without bos and eos); None if empty."""
    columns = [f"{part}_length" for part in LENGTHS[:3]]
    batches = [
        np.stack([batch.column(name).to_numpy() for name in columns]) for batch in dataset.batches(split, columns)
    ]
    if not batches:
        return None
    lengths = np.concatenate(batches, axis=1)
    rows = [*lengths, lengths[1] + lengths[2]]  # a response is a trace and a plan
    return {part: _quantiles(row) for part, row in zip(LENGTHS, rows, strict=True)}


def _quantiles(lengths: np.ndarray) -> dict[str, float]:
    points = np.quantile(lengths, [0, 0.05, 0.25, 0.5, 0.75, 0.95, 1])
    return dict(zip(QUANTILES, [*points.tolist(), float(lengths.mean())], strict=True))


def prompt_problem(domain: Domain, vocabulary: Vocabulary, prompt: list[int]) -> np.ndarray:
    """The problem that a stored prompt describes; raises TaskError."""
    return domain.parse_prompt(vocabulary.decode(prompt))


def audit_leakage(dataset: Dataset, *, limit: int, progress: Callable[[int], None] = lambda done: None) -> Leakage:
    """Compare the splits. At most `limit` tasks of each, the first ones, are taken apart; identities are all compared.

    A task's identity is the digest of its problem: an image of a test task is a training task if its digest is one's,
    so training tasks need not be turned.
    """
    domain, vocabulary = make_domain(dataset.manifest.domain, dataset.manifest.settings), dataset.vocabulary
    identities = {split: _identities(dataset, split) for split in SPLITS}
    training = np.unique(identities["train"])
    layouts: dict[str, np.ndarray] = {}
    examined = dict.fromkeys(SPLITS, 0)
    symmetric = wrong_ids = 0
    for split in SPLITS:
        found = []
        for task_id, prompt in _prompts(dataset, split, limit):
            problem = _problem(domain, vocabulary, prompt, f"{dataset.directory}: {split} task {task_id}")
            wrong_ids += domain.task_id(problem) != task_id
            found.append(_fingerprint(domain.layout_id(problem)))
            if split == "test":
                images = {_fingerprint(domain.task_id(image)) for image in domain.symmetric(problem)}
                symmetric += bool(_among(np.array(list(images), dtype=np.uint64), training).any())
            examined[split] += 1
            progress(sum(examined.values()))
        layouts[split] = np.unique(np.array(found, dtype=np.uint64))
    return Leakage(
        tasks={split: dataset.rows(split) for split in SPLITS},
        examined=examined,
        layouts={split: len(layouts[split]) for split in SPLITS},
        shared_layouts=int(_among(layouts["test"], layouts["train"]).sum()),
        duplicates={split: len(identities[split]) - len(np.unique(identities[split])) for split in SPLITS},
        duplicates_across=int(_among(np.unique(identities["test"]), training).sum()),
        symmetric=symmetric,
        wrong_ids=wrong_ids,
    )


def _fingerprint(digest: str) -> int:
    return int(digest[:FINGERPRINT], 16)


def _identities(dataset: Dataset, split: str) -> np.ndarray:
    """Fingerprints of a split's tasks, uint64 [rows]."""
    parts = [np.empty(0, dtype=np.uint64)]
    for batch in dataset.batches(split, ["task_id"]):
        prefixes = "".join(task_id[:FINGERPRINT] for task_id in batch.column("task_id").to_pylist())
        parts.append(np.frombuffer(bytes.fromhex(prefixes), dtype=">u8").astype(np.uint64))
    return np.concatenate(parts)


def _prompts(dataset: Dataset, split: str, limit: int) -> Iterator[tuple[str, list[int]]]:
    """Identity and prompt of the first `limit` tasks."""
    left = limit
    for batch in dataset.batches(split, ["task_id", "prompt"]):
        column = batch.column("prompt")
        offsets, values = column.offsets.to_numpy(), column.values.to_numpy()
        for row, task_id in enumerate(batch.column("task_id").to_pylist()[:left]):
            yield task_id, values[offsets[row] : offsets[row + 1]].tolist()
        left -= batch.num_rows
        if left <= 0:
            return


def _problem(domain: Domain, vocabulary: Vocabulary, prompt: list[int], place: str) -> np.ndarray:
    try:
        return prompt_problem(domain, vocabulary, prompt)
    except TaskError as error:
        raise SearchformerError(f"{place}: the prompt is not a task of {domain.name}: {error}") from error


def _among(values: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Which of `values` are in the sorted array `known`, bool [len(values)]."""
    if not len(known):
        return np.zeros(len(values), dtype=bool)
    places = np.minimum(np.searchsorted(known, values), len(known) - 1)
    return known[places] == values
