"""Training sequences in batches: length-bucketed, shuffled every epoch from a seed, read through memory maps.

In: a data set. Out: arrays padded to the longest of the batch. Compressed Parquet cannot be mapped, so a split is
unpacked once, as a stream, into flat files of ids beside the data set; later runs find them by the data set's digest.
What stays in memory is a few numbers per task, whatever the length of the traces.
"""

import contextlib
import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from searchformer.dataset.store import PARTS, Dataset
from searchformer.digests import file_digest, require_digest
from searchformer.errors import SearchformerError
from searchformer.files import inside, make_directory, read_json, temporary_beside, write_json
from searchformer.seeding import child_seed
from searchformer.tokens.steps import longest_piece
from searchformer.tokens.vocabulary import BOS, EOS

FLAT, DIGESTS = ".flat", "digests.json"
SEQUENCES_READ = 4096
"""Sequences in memory at a time while all of them are read."""
POOL_BATCHES, GROUP_BATCHES = 256, 8
"""Pools of 256 batches are sorted by response length; groups of 8 batches within a pool, by prompt length.

Sorted by response alone, 10x10-maze prompts are padded by 24%; sorted like this, prompts and responses together by
3.5%, and batches are still well mixed."""


@dataclass(frozen=True)
class Batch:
    """Sequences side by side, in order of length, padded on the right with eos. B sequences."""

    task_ids: tuple[str, ...]
    prompts: np.ndarray
    """Ids incl. bos and eos, int64 [B, longest prompt]."""
    prompt_lengths: np.ndarray
    """int64 [B]."""
    responses: np.ndarray
    """Ids incl. bos and eos, int64 [B, longest response]."""
    response_lengths: np.ndarray
    """int64 [B]."""
    plan_starts: np.ndarray
    """Position of the first plan token in each response, int64 [B]."""

    def __len__(self) -> int:
        return len(self.task_ids)

    def take(self, chosen: slice) -> "Batch":
        """Some of the sequences, padded only as far as they need."""
        prompts, responses = self.prompt_lengths[chosen], self.response_lengths[chosen]
        return Batch(
            task_ids=self.task_ids[chosen],
            prompts=self.prompts[chosen, : prompts.max()],
            prompt_lengths=prompts,
            responses=self.responses[chosen, : responses.max()],
            response_lengths=responses,
            plan_starts=self.plan_starts[chosen],
        )

    def microbatches(self, tokens: int) -> Iterator["Batch"]:
        """Runs of the sequences that hold at most `tokens` padded tokens each, or one sequence."""
        start = 0
        for end in range(1, len(self) + 1):
            full = end == len(self) or _padded_tokens(self, start, end + 1) > tokens
            if full:
                yield self.take(slice(start, end))
                start = end


def _padded_tokens(batch: Batch, start: int, end: int) -> int:
    widest = batch.prompt_lengths[start:end].max() + batch.response_lengths[start:end].max()
    return int(widest) * (end - start)


class Sequences:
    """The sequences of one split that training may use, in the order of their task ids."""

    def __init__(
        self,
        dataset: Dataset,
        split: str,
        *,
        plan_only: bool = False,
        max_trace_tokens: int | None = None,
        count: int | None = None,
        hold_out: int = 0,
        held_out: bool = False,
        cache: Path | None = None,
    ) -> None:
        """Keep traces of at most `max_trace_tokens`, and of those the first `count`: subsets are nested.

        The limit also holds when only plans are read, so that both kinds of model see the same tasks. The last
        `hold_out` that fit are left out; with `held_out`, only they are read. They are the same for every `count`.
        """
        directory = flatten(dataset, split, cache=cache)
        self.plan_only = plan_only
        self._offsets = np.load(directory / "offsets.npy", mmap_mode="r")
        self._ids = [_map(directory / f"{part}.ids", dataset.vocabulary.dtype) for part in PARTS]
        self._task_ids = np.load(directory / "task_ids.npy", mmap_mode="r")
        order = np.load(directory / "order.npy")
        lengths = np.diff(self._offsets, axis=1)
        if max_trace_tokens is not None:
            order = order[lengths[1, order] <= max_trace_tokens]
        if not len(order):
            raise SearchformerError(
                f"{dataset.directory}: of {dataset.rows(split)} tasks in the {split} split none has a trace of at most "
                f"{max_trace_tokens} tokens; raise --max-trace-tokens or make more tasks"
            )
        if hold_out >= len(order):
            raise SearchformerError(
                f"{dataset.directory}: {hold_out} sequences are to be held out, the {split} split has {len(order)}; "
                "lower --validation"
            )
        order = order[len(order) - hold_out :] if held_out else order[: len(order) - hold_out]
        if count is not None and count > len(order):
            beside = f" beside the {hold_out} for validation" if hold_out else ""
            raise SearchformerError(
                f"{dataset.directory}: {count} sequences asked for, the {split} split has {len(order)} that fit{beside}"
                "; lower --sequences, or make more tasks"
            )
        self._rows = order[:count]
        parts = lengths[2:] if plan_only else lengths[1:]
        self.response_lengths = parts[:, self._rows].sum(axis=0) + 2
        self.prompt_lengths = lengths[0, self._rows] + 2

    def __len__(self) -> int:
        return len(self._rows)

    def response(self, index: int) -> np.ndarray:
        """One response's ids, without bos and eos."""
        row = self._rows[index]
        return np.concatenate([self._part(part, row) for part in ((2,) if self.plan_only else (1, 2))])

    def batch(self, indices: np.ndarray) -> Batch:
        """These sequences (indices into the selection), in order of response length."""
        indices = indices[np.argsort(self.response_lengths[indices], kind="stable")]
        rows = self._rows[indices]
        prompts = _padded([self._part(0, row) for row in rows])
        responses = _padded([self.response(index) for index in indices])
        plans = self._offsets[2, rows + 1] - self._offsets[2, rows]
        return Batch(
            task_ids=tuple(task_id.decode() for task_id in self._task_ids[rows]),
            prompts=prompts,
            prompt_lengths=self.prompt_lengths[indices],
            responses=responses,
            response_lengths=self.response_lengths[indices],
            plan_starts=self.response_lengths[indices] - 1 - plans,
        )

    def bucketed(self, indices: np.ndarray, *, group: int) -> np.ndarray:
        """The indices in an order in which neighbours are of like length: by response, then by prompt in each group."""
        indices = indices[np.argsort(self.response_lengths[indices], kind="stable")]
        for start in range(0, len(indices), group):
            chosen = indices[start : start + group]
            indices[start : start + group] = chosen[np.argsort(self.prompt_lengths[chosen], kind="stable")]
        return indices

    def longest_pieces(self, kinds: np.ndarray) -> dict[str, int]:
        """Tokens of the longest pieces (`tokens/steps.py`), by the kinds of tokens, as fields of a shape."""
        prompts, traces, plans = range(len(PARTS))
        plan_places = max(longest_piece(kinds[ids]) for ids in self._whole_sequences(plans))
        prompt_places = max(longest_piece(kinds[ids], prompts=True) for ids in self._whole_sequences(prompts))
        written = [] if self.plan_only else [longest_piece(kinds[ids]) for ids in self._whole_sequences(traces)]
        places = max([plan_places, *written])
        return {"places": places, "plan_places": plan_places, "prompt_places": prompt_places}

    def highest_cost(self, costs: np.ndarray) -> int:
        """The highest cost in prompts and responses, by the cost of every token (-1: none)."""
        parts = [number for number, part in enumerate(PARTS) if not (self.plan_only and part == "trace")]
        return max(int(costs[ids].max(initial=-1)) for part in parts for ids in self._whole_sequences(part))

    def _whole_sequences(self, part: int) -> Iterator[np.ndarray]:
        """All ids of a part, some thousand sequences at a time: kinds of tasks may stand one behind the other."""
        offsets = self._offsets[part]
        for first in range(0, max(len(offsets) - 1, 1), SEQUENCES_READ):
            yield self._ids[part][offsets[first] : offsets[min(first + SEQUENCES_READ, len(offsets) - 1)]]

    def _part(self, part: int, row: int) -> np.ndarray:
        return self._ids[part][self._offsets[part, row] : self._offsets[part, row + 1]]


class Batches:
    """An endless, seeded stream of batches in which every batch has a number: the position to resume from."""

    def __init__(self, sequences: Sequences, *, batch_size: int, seed: int) -> None:
        """Fewer sequences than `batch_size` make one smaller batch per epoch."""
        self.sequences = sequences
        self.batch_size = min(batch_size, len(sequences))
        self.seed = seed
        self.per_epoch = len(sequences) // self.batch_size
        self._plan = lru_cache(maxsize=1)(self._plan_epoch)

    def __getitem__(self, position: int) -> Batch:
        """Batch number `position`, counted from 0 over all epochs."""
        epoch, index = divmod(position, self.per_epoch)
        return self.sequences.batch(self._plan(epoch)[index])

    def _plan_epoch(self, epoch: int) -> np.ndarray:
        """Indices of the sequences of every batch of an epoch, [per_epoch, batch_size].

        Shuffled; bucketed within pools; cut; the batches shuffled. What is left over after the last full batch, other
        ones in every epoch, are not used.
        """
        generator = np.random.default_rng(child_seed(self.seed, "batches", epoch))
        order = generator.permutation(len(self.sequences))[: self.per_epoch * self.batch_size]
        pool = POOL_BATCHES * self.batch_size
        for start in range(0, len(order), pool):
            order[start : start + pool] = self.sequences.bucketed(
                order[start : start + pool], group=GROUP_BATCHES * self.batch_size
            )
        return generator.permutation(order.reshape(self.per_epoch, self.batch_size), axis=0)


def flatten(dataset: Dataset, split: str, *, cache: Path | None = None) -> Path:
    """The directory of the split's flat files under `cache` or the data set; written if it is not there yet."""
    digests = [dataset.vocabulary.digest, *(shard.digest for shard in dataset.shards(split))]
    digest = hashlib.blake2b("\n".join(digests).encode(), digest_size=8).hexdigest()
    home = (cache or dataset.directory) / FLAT
    final = home / f"{split}-{digest}"
    if _is_whole(final):
        return final
    make_directory(home)
    temporary = temporary_beside(final)
    try:
        temporary.mkdir()
        _write_flat(dataset, split, temporary)
        write_json(temporary / DIGESTS, {path.name: file_digest(path) for path in sorted(temporary.iterdir())})
        _publish(temporary, final, shared=cache is not None)
    except OSError as error:
        raise SearchformerError(
            f"cannot unpack {dataset.directory} into {home}: {error.strerror or error}; name another place with --cache"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return final


def _is_whole(directory: Path) -> bool:
    """Whether unpacked files are there with the bytes that were written; damaged ones are removed."""
    if not directory.is_dir():
        return False
    try:
        for name, digest in read_json(directory / DIGESTS, what="unpacked data set").items():
            require_digest(inside(directory, name), digest, repair="")
    except SearchformerError:
        shutil.rmtree(directory, ignore_errors=True)
        return False
    return True


def _publish(temporary: Path, final: Path, *, shared: bool) -> None:
    """Move the finished directory into place, unless another process was first.

    What an earlier state of the data set left is removed, unless the place may be `shared` with other data sets.
    """
    try:
        temporary.rename(final)
    except OSError:
        if not final.is_dir():
            raise
    split = final.name.partition("-")[0]
    for other in final.parent.glob(f"{split}-*"):
        if other != final and not shared:
            shutil.rmtree(other, ignore_errors=True)


def _write_flat(dataset: Dataset, split: str, directory: Path) -> None:
    """Stream the split into `prompt.ids`, `trace.ids`, `plan.ids`, with offsets, task ids and their sorted order."""
    lengths: list[list[np.ndarray]] = [[] for _ in PARTS]
    task_ids: list[np.ndarray] = [np.empty(0, dtype="S32")]
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(open(directory / f"{part}.ids", "wb")) for part in PARTS]
        for batch in dataset.batches(split, columns=["task_id", *PARTS]):
            task_ids.append(np.array(batch.column("task_id").to_pylist(), dtype="S32"))
            for file, part, known in zip(files, PARTS, lengths, strict=True):
                column: pa.ListArray = batch.column(part)
                known.append(column.value_lengths().to_numpy().astype(np.int64))
                file.write(column.flatten().to_numpy().astype(dataset.vocabulary.dtype, copy=False).tobytes())
    names = np.concatenate(task_ids)
    np.save(directory / "offsets.npy", np.stack([_offsets(known) for known in lengths]))
    np.save(directory / "task_ids.npy", names)
    np.save(directory / "order.npy", np.argsort(names, kind="stable"))


def _offsets(lengths: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.concatenate([np.empty(0, dtype=np.int64), *lengths]))])


def _map(path: Path, dtype: np.dtype) -> np.ndarray:
    """The file's ids, mapped; an empty file cannot be."""
    return np.memmap(path, dtype=dtype, mode="r") if path.stat().st_size else np.empty(0, dtype=dtype)


def _padded(sequences: list[np.ndarray]) -> np.ndarray:
    """bos, ids, eos of each, padded with eos, int64 [B, longest]."""
    padded = np.full((len(sequences), max(map(len, sequences)) + 2), EOS, dtype=np.int64)
    padded[:, 0] = BOS
    for row, ids in zip(padded, sequences, strict=True):
        row[1 : 1 + len(ids)] = ids
    return padded
