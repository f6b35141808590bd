"""The fast sampler: many prompts and samples in one batch; a finished sequence leaves at once, another takes its slot.

In: a model, prompts, settings. Out: answers in the order they finish, or all in order; the same ones as `naive.py`'s.
A prompt is encoded once, and its keys and values are shared by its samples. The cache is cut into blocks that sequences
take as they grow, under a budget; when it runs out, the youngest sequence gives its blocks back and starts again later,
with the same noise and so with the same tokens.

    engine = Engine(*load_model("runs/demo/train/model"))
    for answer in engine.sample([["start", "0", "0", "goal", "2", "2"]], samples=64, max_tokens=500): ...
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
import torch

from searchformer.errors import SearchformerError
from searchformer.model import Transformer
from searchformer.model.device import has_bf16
from searchformer.rollout.backend import BLOCK, Backend, DecoderRows
from searchformer.rollout.cpu import CpuBackend
from searchformer.rollout.device import DeviceBackend
from searchformer.rollout.requests import (
    Alphabet,
    Answer,
    Prompt,
    Sampling,
    check_ids,
    make_prompt,
    noise_key,
)
from searchformer.rollout.stepwise import prompt_pieces
from searchformer.tokens.grammar import Automaton
from searchformer.tokens.vocabulary import BOS, EOS, Vocabulary

DEFAULT_SLOTS = 256
DEFAULT_CACHE_GB = 4.0
DEFAULT_MAX_TOKENS = 4096


class Engine:
    """A model, ready to sample.

    `precision` is fp32 (the answers of `naive.py`, token for token), bf16 (half the cache; products in bf16 where the
    processor has them), int8 (a quarter of the cache, CPU only), or auto: bf16 on CPUs, and on GPUs that have it, else
    fp32. `slots` sequences run at a time; the cache takes up to `cache_gb` GB, and only what is needed of that.
    `threads` is for the CPU, `compile` for other devices.
    """

    def __init__(
        self,
        model: Transformer,
        vocabulary: Vocabulary,
        *,
        precision: str = "auto",
        slots: int = DEFAULT_SLOTS,
        cache_gb: float = DEFAULT_CACHE_GB,
        threads: int | None = None,
        compile: bool = False,
        backend: Backend | None = None,
    ) -> None:
        if slots < 1:
            raise SearchformerError(f"at least one slot is needed; found {slots}")
        self.model, self.vocabulary, self.slots = model.eval(), vocabulary, slots
        self.backend = backend or make_backend(model, precision=precision, threads=threads, compile=compile)
        self.blocks = int(cache_gb * 1e9) // self.backend.block_bytes
        self.cache_gb = cache_gb

    def sample(
        self,
        prompts: Iterable[Prompt | Sequence[str] | Sequence[int] | np.ndarray],
        *,
        samples: int = 64,
        seed: int = 0,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        max_tokens: int | np.ndarray | None = None,
        prefix: Sequence[int] | Sequence[str] | None = None,
        automaton: Automaton | None = None,
    ) -> Iterator[Answer]:
        """Answers in the order they finish.

        Prompts are token strings or ids, without bos and eos, or `Prompt`s; they are read as they are needed.
        `max_tokens` limits each answer; an array [prompts, samples] gives each its own limit. `prefix` is what every
        answer begins with. `automaton` allows only some tokens in each state.
        """
        if samples < 1:
            raise SearchformerError(f"at least one sample per task is needed; found {samples}")
        limit = np.asarray(min(DEFAULT_MAX_TOKENS, self.model.config.most_tokens) if max_tokens is None else max_tokens)
        self.check_limit(longest := int(limit.max()))
        sampling = Sampling(temperature, top_k, top_p)
        drawing = Drawing.of(
            sampling, self._prefix(prefix or ()), Alphabet.of(self.model.symbols, automaton), automaton
        )
        made = (make_prompt(prompt, self.vocabulary) for prompt in prompts)
        jobs = (
            self.job(index, prompt, sample, limit=int(limit if limit.ndim == 0 else limit[index, sample]), seed=seed)
            for index, prompt in enumerate(made)
            for sample in (range(samples) if prompt.samples is None else prompt.samples)
        )
        return Scheduler(self, ((job, drawing) for job in jobs), longest=longest).answers()

    def sample_all(
        self, prompts: Iterable[Prompt | Sequence[str] | Sequence[int] | np.ndarray], **settings: object
    ) -> list[Answer]:
        """All answers, by prompt and sample; settings as in `sample`."""
        answers = self.sample(prompts, **settings)  # type: ignore[arg-type]
        return sorted(answers, key=lambda answer: (answer.prompt, answer.sample))

    def _prefix(self, prefix: Sequence[int] | Sequence[str]) -> np.ndarray:
        words = len(prefix) > 0 and isinstance(prefix[0], str)
        ids = np.asarray(self.vocabulary.encode(prefix) if words else prefix, dtype=np.int32)  # type: ignore[arg-type]
        check_ids(ids, self.vocabulary, what="the forced prefix")
        return ids

    def check_limit(self, limit: int) -> None:
        """Raise unless the model can write so many tokens."""
        most = self.model.config.most_tokens
        if not 1 <= limit <= most:
            raise SearchformerError(f"max_tokens is from 1 to {most}, the model's limit; found {limit}")

    def job(self, index: int, prompt: Prompt, sample: int, *, limit: int, seed: int) -> "Job":
        """One answer to be made; what cannot be answered is an error."""
        (pieces, first), config = prompt_pieces(self.model, prompt), self.model.config
        if len(pieces) > config.positions:
            raise SearchformerError(
                f"the prompt of task {prompt.task_id} has {len(pieces)} {config.unit}s with bos and eos; "
                f"the model takes {config.positions}"
            )
        self._check_budget(len(pieces), limit)
        return Job(index, prompt, pieces, first, sample, limit, noise_key(seed, prompt.task_id, sample))

    def _check_budget(self, prompt_positions: int, limit: int) -> None:
        """Raise unless the cache can hold one sequence of `limit` tokens and its prompt.

        A step may be as short as one token.
        """
        positions = min(limit, self.model.config.positions)
        needed = _blocks(prompt_positions) + _blocks(positions + self.backend.steps)
        if needed > self.blocks:
            gigabytes = needed * self.backend.block_bytes / 1e9
            raise SearchformerError(
                f"a cache of {self.cache_gb:g} GB is too small for one sequence of {limit} tokens with its prompt of "
                f"{prompt_positions}: it needs {gigabytes:.4f} GB. Allow more, or fewer tokens"
            )


def make_backend(model: Transformer, *, precision: str, threads: int | None = None, compile: bool = False) -> Backend:
    """Compiled kernels for a model on the CPU, PyTorch's own elsewhere or when `compile` asks for it."""
    precision = choose_precision(precision, model.device, compile=compile)
    if model.device.type == "cpu" and not compile:
        return CpuBackend(model, precision=precision, threads=threads)
    return DeviceBackend(model, precision=precision, compile=compile)


def choose_precision(asked: str, device: torch.device, *, compile: bool = False) -> str:
    """The precision asked for; `auto` is bf16 with the CPU's kernels and on devices that have it, else fp32."""
    if asked != "auto":
        return asked
    return "bf16" if has_bf16(device) or (device.type == "cpu" and not compile) else "fp32"


def _blocks(positions: int) -> int:
    """Number of cache blocks that hold this many positions."""
    return -(-positions // BLOCK)


@dataclass(frozen=True, eq=False)
class Drawing:
    """How tokens are drawn. Sequences that share one are decoded in one batch."""

    sampling: Sampling
    prefix: np.ndarray
    """int32: what every answer begins with."""
    start: int
    """The automaton's first state."""
    alphabet: Alphabet
    """What is drawn from."""

    @classmethod
    def of(
        cls, sampling: Sampling, prefix: np.ndarray, alphabet: Alphabet, automaton: Automaton | None = None
    ) -> "Drawing":
        """`prefix` holds ids; the alphabet is that of the automaton."""
        return cls(sampling, prefix, automaton.start if automaton else 0, alphabet)

    def forced(self, places_RK: np.ndarray) -> np.ndarray:
        """The tokens to take at these places instead of drawing, -1 for none."""
        if not len(self.prefix):
            return np.full(places_RK.shape, -1, np.int32)
        inside_RK = places_RK < len(self.prefix)
        return np.where(inside_RK, self.prefix[np.where(inside_RK, places_RK, 0)], np.int32(-1))


@dataclass
class _Encoded:
    """A prompt in the cache, and how many running sequences read it."""

    blocks: np.ndarray
    length: int
    users: int = 0


@dataclass(frozen=True)
class Job:
    """One answer to be made."""

    prompt: int
    """Jobs with the same number have the same prompt."""
    task: Prompt
    pieces: np.ndarray
    """The prompt as the encoder reads it."""
    first: np.ndarray
    """What the decoder reads at first."""
    sample: int
    limit: int
    """Most tokens."""
    key: int
    """See `noise_key`."""


@dataclass
class _Sequence:
    """One answer being made, in a slot."""

    job: Job
    drawing: Drawing
    slot: int
    blocks: list[int] = field(default_factory=list)


class Scheduler:
    """The slots of an engine, and who holds which block. `queue` gives jobs whenever there is a slot for one.

    Arrays are indexed by slot; `order` lists the slots in use: those of one drawing, and within it of one prompt, stand
    side by side. When the queue ends, `answers` ends too; whoever fills the queue later calls `advance` (session.py).
    """

    def __init__(self, engine: Engine, queue: Iterator[tuple[Job, Drawing]], *, longest: int) -> None:
        """`longest` is the largest limit of any job."""
        self.engine, self.backend, self.queue = engine, engine.backend, queue
        self.restarts: deque[tuple[Job, Drawing]] = deque()
        self.running: dict[int, _Sequence] = {}  # by slot, oldest first
        self.encoded: dict[int, _Encoded] = {}
        self.free_blocks = list(range(engine.blocks - 1, -1, -1))
        self.free_slots = list(range(engine.slots - 1, -1, -1))
        self.crowded = False
        slots, longest = engine.slots, longest + self.backend.tokens_at_once
        positions = min(longest, engine.model.config.positions + self.backend.steps)
        self.tokens = np.empty((slots, longest + 1), np.int32)
        self.position, self.written, self.limit, self.state, self.prompt_length = (
            np.zeros(slots, np.int32) for _ in range(5)
        )
        self.first = np.zeros((slots, engine.model.config.places), np.int64)
        self.key, self.log_probability = np.zeros(slots, np.uint64), np.zeros(slots)
        self.table, self.prompt_table = np.zeros((slots, _blocks(positions)), np.int32), np.zeros((slots, 1), np.int32)
        self.order = np.empty(0, np.int64)
        self.batches: list[tuple[Drawing, np.ndarray]] = []
        self.backend.reserve(engine.blocks, positions=positions, slots=slots)

    def answers(self) -> Iterator[Answer]:
        """Step all running sequences until none is left."""
        while (finished := self.advance()) or self.running:
            yield from finished

    def advance(self) -> list[Answer]:
        """Start what can be started, and draw the next tokens of all running sequences; the answers finished by it."""
        self._admit()
        if not self.running:
            return []
        self._grow()
        finished = [answer for drawing, order in self.batches for answer in self._decode(drawing, order)]
        if finished:
            self.crowded = False
            self._sort()
        return finished

    def cancel(self, prompt: int) -> None:
        """Forget the jobs of a prompt that have left the queue."""
        self.restarts = deque(each for each in self.restarts if each[0].prompt != prompt)
        for sequence in [each for each in self.running.values() if each.job.prompt == prompt]:
            self._leave(sequence)
        self.crowded = False
        self._forget_unused_prompts()
        self._sort()

    def _admit(self) -> None:
        """Start jobs while there is a slot for them, and blocks beyond those that the running ones may need at once.

        After a restart nothing new starts until a sequence has finished: the cache is crowded.
        """
        changed = False
        while self.free_slots and not (self.crowded and self.running):
            asked = self.restarts.popleft() if self.restarts else next(self.queue, None)
            if asked is None:
                break
            if not self._has_room(asked[0]):
                self.restarts.appendleft(asked)
                break
            self._start(*asked)
            changed = True
        self._forget_unused_prompts()
        if changed:
            self._sort()

    def _has_room(self, job: Job) -> bool:
        """Whether there are blocks for `job` now; prompts that nobody reads any more give up theirs for it."""
        needed = 1 + (0 if job.prompt in self.encoded else _blocks(len(job.pieces))) + len(self.running)
        if len(self.free_blocks) < needed:
            self._forget_unused_prompts(keep=job.prompt)
        return not self.running or len(self.free_blocks) >= needed

    def _forget_unused_prompts(self, *, keep: int | None = None) -> None:
        """Free the blocks of prompts that no running sequence reads, except those of prompt `keep`."""
        for prompt in [index for index, encoded in self.encoded.items() if not encoded.users and index != keep]:
            self.free_blocks += self.encoded.pop(prompt).blocks.tolist()

    def _start(self, job: Job, drawing: Drawing) -> None:
        """Give `job` a slot."""
        encoded = self.encoded.get(job.prompt) or self._encode(job)
        encoded.users += 1
        slot = self.free_slots.pop()
        self.running[slot] = _Sequence(job, drawing, slot)
        if len(encoded.blocks) > self.prompt_table.shape[1]:
            wider = ((0, 0), (0, len(encoded.blocks) - self.prompt_table.shape[1]))
            self.prompt_table = np.pad(self.prompt_table, wider)
        self.prompt_table[slot, : len(encoded.blocks)], self.prompt_length[slot] = encoded.blocks, encoded.length
        self.tokens[slot, 0], self.position[slot], self.written[slot], self.limit[slot] = BOS, 0, 0, job.limit
        self.first[slot] = job.first
        self.key[slot], self.state[slot], self.log_probability[slot] = job.key, drawing.start, 0.0

    def _encode(self, job: Job) -> _Encoded:
        blocks = np.array([self.free_blocks.pop() for _ in range(_blocks(len(job.pieces)))], np.int32)
        self.backend.encode(job.pieces, blocks)
        self.encoded[job.prompt] = _Encoded(blocks, len(job.pieces))
        return self.encoded[job.prompt]

    def _sort(self) -> None:
        """Samples of one prompt side by side, so that its keys and values are read once for all of them."""
        drawings = {each.drawing: number for number, each in enumerate(self.running.values())}
        sequences = sorted(
            self.running.values(), key=lambda each: (drawings[each.drawing], each.job.prompt, each.job.sample)
        )
        self.order = np.array([sequence.slot for sequence in sequences], np.int64)
        self.batches = [
            (drawing, np.array([sequence.slot for sequence in group], np.int64))
            for drawing, group in groupby(sequences, key=lambda each: each.drawing)
        ]

    def _grow(self) -> None:
        """Blocks for the coming steps of every sequence; the youngest start again later when there are too few."""
        needed_R = -(-(self.position[self.order] + self.backend.steps) // BLOCK)
        for slot, needed in zip(self.order.tolist(), needed_R.tolist(), strict=True):
            while slot in self.running and len(blocks := self.running[slot].blocks) < needed:
                if self.free_blocks:
                    self.table[slot, len(blocks)] = self.free_blocks[-1]
                    blocks.append(self.free_blocks.pop())
                else:
                    self._restart_youngest()

    def _restart_youngest(self) -> None:
        youngest = next(reversed(self.running.values()))
        self.restarts.appendleft((youngest.job, youngest.drawing))
        self._leave(youngest)
        self._forget_unused_prompts()
        self.crowded = True
        self._sort()

    def _leave(self, sequence: _Sequence) -> None:
        """Free the slot and the blocks of a sequence; its prompt stays while others may read it."""
        del self.running[sequence.slot]
        self.free_slots.append(sequence.slot)
        self.free_blocks += sequence.blocks
        self.encoded[sequence.job.prompt].users -= 1

    def _decode(self, drawing: Drawing, order: np.ndarray) -> Iterator[Answer]:
        """Draw the next tokens of these slots' sequences, and hand out those that are finished."""
        position_R, written_R = self.position[order], self.written[order]
        steps, ahead_K = self.backend.steps, np.arange(self.backend.tokens_at_once)
        widest = int(position_R.max()) // BLOCK + 1 + (steps > 1)
        rows = DecoderRows(
            slot=order,
            token=self.tokens[order, written_R],
            first=self.first[order],
            position=position_R,
            written=written_R,
            table=self.table[order, : max(widest, 1)],
            prompt_table=self.prompt_table[order],
            prompt_length=self.prompt_length[order],
            key=self.key[order],
            state=self.state[order],
            forced=drawing.forced(written_R[:, None] + ahead_K),
        )
        drawn = self.backend.decode(rows, drawing.sampling, drawing.alphabet)
        self.tokens[order[:, None], written_R[:, None] + 1 + ahead_K] = drawn.tokens
        self.state[order] = rows.state
        ends_RK = drawn.tokens == EOS
        first_end_R = np.where(ends_RK.any(1), ends_RK.argmax(1), len(ahead_K))
        left_R = self.limit[order] - written_R
        counted_RK = ahead_K < np.minimum(np.minimum(first_end_R + 1, left_R), drawn.counts)[:, None]
        self.log_probability[order] += (drawn.log_probabilities * counted_RK).sum(1)
        self.position[order] += steps
        self.written[order] += drawn.counts.astype(np.int32)
        ended_R = first_end_R < np.minimum(left_R, drawn.counts)
        is_full_R = self.position[order] >= self.engine.model.config.positions
        finished_R = np.flatnonzero(ended_R | (left_R <= drawn.counts) | is_full_R)
        more_R = np.where(ended_R, first_end_R, np.minimum(left_R, drawn.counts))
        for row in finished_R:
            sequence = self.running[int(order[row])]
            length = int(written_R[row]) + int(more_R[row])
            self._leave(sequence)
            yield self._answer(sequence, length, ended=bool(ended_R[row]))

    def _answer(self, sequence: _Sequence, length: int, *, ended: bool) -> Answer:
        job, slot = sequence.job, sequence.slot
        return Answer(
            task_id=job.task.task_id,
            prompt=job.prompt,
            sample=job.sample,
            tokens=self.tokens[slot, 1 : 1 + length].copy(),
            finish="eos" if ended else "max_tokens",
            log_probability=float(self.log_probability[slot]),
        )
