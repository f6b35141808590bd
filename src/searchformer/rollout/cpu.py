"""The CPU backend: PyTorch's matrix products, compiled kernels for the rest, rows split over threads.

Each thread runs its rows through the whole step with products of one thread: faster than products that are split.
Shape suffixes and the cache's layout are those of `kernels.py`.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from searchformer.errors import SearchformerError
from searchformer.model import ModelConfig, Transformer
from searchformer.model.device import has_bf16
from searchformer.model.rotary import Turns, rotary_table
from searchformer.rollout import kernels, step_kernels
from searchformer.rollout.backend import BLOCK, DecoderRows, Drawn
from searchformer.rollout.cpu_steps import CpuPieceWriter
from searchformer.rollout.decoder import DecoderWeights, prompt_keys_and_values, run_blocks
from searchformer.rollout.products import product
from searchformer.rollout.requests import Alphabet, Sampling
from searchformer.rollout.stepwise import Recent

PRECISIONS = ("fp32", "bf16", "int8")


class _Buffer(NamedTuple):
    """The same memory as a tensor for products and as an array for kernels; bfloat16 shows there as uint16."""

    tensor: Tensor
    array: np.ndarray

    @classmethod
    def of(cls, tensor: Tensor) -> "_Buffer":
        return cls(tensor, (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy())


class CpuBackend:
    """See `backend.Backend`."""

    steps = 1

    def __init__(self, model: Transformer, *, precision: str, threads: int | None = None) -> None:
        if precision not in PRECISIONS:
            raise SearchformerError(f"a precision is one of auto, {', '.join(PRECISIONS)}; found {precision!r}")
        self.precision, self.threads = precision, threads or torch.get_num_threads()
        self.model, self.config = model, model.config
        self.products = torch.bfloat16 if precision != "fp32" and has_bf16(model.device) else torch.float32
        self.weights = DecoderWeights.of(model, products=self.products, prompt_products=torch.float32)
        self.recent = Recent(model)
        self.writer = CpuPieceWriter(model) if model.config.unit == "step" else None
        self.tokens_at_once = model.config.places
        self._arithmetics: list[_CpuArithmetic] = []
        self._pool: ThreadPoolExecutor | None = None
        self.cache = self._make_cache(0)

    @property
    def block_bytes(self) -> int:
        """Keys, values and scales of one block in all layers."""
        return sum(array.nbytes for array in self._make_cache(1))

    def _make_cache(self, blocks: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Uninitialised keys, values and scales; the system gives memory to a block when it is first written."""
        shape, width = (blocks, self.config.layers, self.config.heads), self.config.head_dim
        dtype, share = {"fp32": (np.float32, 1), "bf16": (np.uint32, 2), "int8": (np.int8, 1)}[self.precision]
        keys = np.empty((*shape, width // share, BLOCK), dtype)
        values = np.empty_like(keys)
        return keys, values, np.empty((*shape, 2, BLOCK if self.precision == "int8" else 0), np.float32)

    def reserve(self, blocks: int, *, positions: int, slots: int) -> None:
        """See `Backend`. The cache is address space until it is used, so it is taken at once."""
        self.recent.reserve(slots)
        if blocks > len(self.cache[0]):
            self.cache = self._make_cache(blocks)
        cosines, sines = rotary_table(positions, self.config, torch.device("cpu"))
        self.rotary = cosines.numpy(), sines.numpy()
        self.longest = (max(positions, self.config.positions) // BLOCK + 2) * BLOCK
        self._arithmetics = []

    @torch.inference_mode()
    def encode(self, prompt: np.ndarray, blocks: np.ndarray) -> None:
        """See `Backend`."""
        if self.writer:
            self.writer.read_prompt(prompt, int(blocks[0]))
        features = self.model.encode(torch.from_numpy(prompt)[None])
        for layer, block in enumerate(self.weights.blocks):
            keys_SD, values_SD = prompt_keys_and_values(features, block)
            kernels.store_prompt(keys_SD.numpy(), values_SD.numpy(), *self.cache, layer, blocks)

    def decode(self, rows: DecoderRows, sampling: Sampling, alphabet: Alphabet) -> Drawn:
        """See `Backend`."""
        count = len(rows.token)
        self._make_room(-(-count // self.threads))
        if self.writer:
            self.writer.reserve(int(rows.slot.max()) + 1, int(rows.position.max()) + 2)
        if self._pool is None:
            return self._decode_part(0, rows, sampling, alphabet)
        bounds = np.linspace(0, count, min(self.threads, count) + 1).astype(int)
        parts = [_slice(rows, first, last) for first, last in pairwise(bounds)]
        jobs = [self._pool.submit(self._decode_part, i, part, sampling, alphabet) for i, part in enumerate(parts)]
        results = [job.result() for job in jobs]
        columns = zip(*((each.tokens, each.log_probabilities, each.counts) for each in results), strict=True)
        return Drawn(*map(np.concatenate, columns))

    def _make_room(self, rows: int) -> None:
        """Memory for this number of rows per thread, and the threads."""
        if self.threads > 1 and self._pool is None:
            everywhere = torch.get_num_threads()
            self._pool = ThreadPoolExecutor(self.threads, "decode", torch.set_num_threads, (1,))
            list(self._pool.map(lambda _: None, range(self.threads)))
            torch.set_num_threads(everywhere)  # for new threads; those of the pool keep theirs
        if not self._arithmetics or rows > self._arithmetics[0].capacity:
            self._arithmetics = [_CpuArithmetic(self, rows) for _ in range(self.threads)]

    @torch.inference_mode()
    def _decode_part(self, thread: int, rows: DecoderRows, sampling: Sampling, alphabet: Alphabet) -> Drawn:
        """One position of some rows, and what is drawn there."""
        arithmetic = self._arithmetics[thread]
        arithmetic.begin(rows)
        self._embed(rows, arithmetic)
        run_blocks(self.weights.blocks, arithmetic)
        return self._next_tokens(arithmetic, rows, sampling, alphabet)

    def _embed(self, rows: DecoderRows, arithmetic: "_CpuArithmetic") -> None:
        """The decoder's input: the embedding of each row's last token or piece, whose numbers turn some heads."""
        if self.writer is None:
            kernels.embed(rows.token, self.weights.embedding.numpy(), arithmetic.x)
        else:
            pieces_RP = self.writer.embed(rows, arithmetic.x)
            arithmetic.turn_by(self.model.number_table.turns(torch.from_numpy(pieces_RP)))

    def _next_tokens(
        self, arithmetic: "_CpuArithmetic", rows: DecoderRows, sampling: Sampling, alphabet: Alphabet
    ) -> Drawn:
        """What the decoder's last hidden vectors say."""

        def choose(logits_RV: Tensor, chosen: np.ndarray, place: int) -> tuple[np.ndarray, np.ndarray]:
            symbol, log_probability = np.empty(len(chosen), np.int32), np.empty(len(chosen), np.float32)
            key, position, forced = rows.key[chosen], rows.written[chosen] + np.int32(place), rows.forced[chosen, place]
            state = rows.state[chosen]
            kernels.sample(
                logits_RV.numpy(),
                float(sampling.temperature),
                sampling.top_k,
                float(sampling.top_p),
                key,
                position,
                forced,
                alphabet.allowed_SV,
                state,
                symbol,
                log_probability,
            )
            token = alphabet.write(symbol, log_probability, forced, state, key, position)
            rows.state[chosen] = alphabet.after(state, token)
            return token, log_probability

        if self.writer:
            return Drawn(*self.writer.write(arithmetic.hidden(), rows.slot, rows.position, choose))
        everyone = np.arange(len(rows.token))
        token, log_probability = choose(arithmetic.logits(self.weights.output_norm, self.weights.output), everyone, 0)
        return Drawn(token[:, None], log_probability[:, None], np.ones(len(token), np.int64))


class _CpuArithmetic:
    """`decoder.Arithmetic` for the rows of one thread, with memory for `capacity` of them.

    What a sublayer adds to x waits in `change` until x is next read: kernels add and normalise in one go.
    """

    def __init__(self, backend: CpuBackend, capacity: int) -> None:
        self.capacity, self.count = capacity, -1
        self.backend, self.eps = backend, backend.config.norm_eps
        self.buffers = _buffers(backend.config, capacity, backend.products)
        self.scores = np.empty(backend.longest, np.float32)
        nothing = np.empty((0, 0, 0), np.float32)
        self.turns = nothing, nothing

    def begin(self, rows: DecoderRows) -> None:
        """Turn to these rows; views of the buffers are made again only when the number of rows changes."""
        self.rows, self.length = rows, rows.position + np.int32(1)
        self.slots = torch.from_numpy(rows.slot)
        if self.backend.config.shift:
            self.backend.recent.begin(self.slots, torch.from_numpy(rows.position))
        if len(rows.token) != self.count:
            self.count = len(rows.token)
            self.views = {name: _Buffer.of(tensor[: self.count]) for name, tensor in self.buffers.items()}
            self.x, self.normed = self.views["x"].array, self.views["normed"]
        self.change = self.views["change"].array[:0]  # no change yet

    def turn_by(self, turns: Turns) -> None:
        """Take these turns [R, G, E/2] for the heads that turn by numbers; a token network has none."""
        self.turns = turns[0].numpy(), turns[1].numpy()

    def project(self, norm: Tensor, weight: Tensor) -> _Buffer:
        """See `Arithmetic`."""
        kernels.add_and_norm(self.x, self.change, norm.numpy(), self.eps, self.normed.array)
        out = self.views[f"projected {weight.shape[1]}"]
        product(self.normed.tensor, weight, out=out.tensor)
        return out

    def project_mixed(self, layer: int, norm: Tensor, shift: Tensor, weight: Tensor) -> _Buffer:
        """See `Arithmetic`."""
        exact, mixed = self.views["last"].array, self.views["query"]  # both free until attention begins
        kernels.add_and_norm(self.x, self.change, norm.numpy(), self.eps, exact)
        recent = self.backend.recent.inputs[layer].numpy()
        step_kernels.mix_recent(exact, shift.numpy(), recent, self.rows.slot, mixed.array)
        out = self.views[f"projected {weight.shape[1]}"]
        product(mixed.tensor.to(weight.dtype), weight, out=out.tensor)
        return out

    def attend_to_own(self, layer: int, query_key_value: _Buffer) -> _Buffer:
        """See `Arithmetic`."""
        rows, cache, query = self.rows, self.backend.cache, self.views["query"].array
        kernels.rotate_and_store(
            query_key_value.array, *self.backend.rotary, *self.turns, rows.position, *cache, layer, rows.table, query
        )
        kernels.attend(query, *cache, layer, rows.table, self.length, True, self.scores, self.normed.array)
        self._turn(self.normed, -1.0)
        return self.normed

    def attend_to_prompt(self, layer: int, query: _Buffer) -> _Buffer:
        """See `Arithmetic`."""
        rows, cache, out, exact = self.rows, self.backend.cache, self.normed, self.views["query"]
        exact.tensor.copy_(query.tensor)  # in float32, as in `attend_to_own`: one kernel to compile instead of two
        self._turn(exact, 1.0)
        kernels.attend(exact.array, *cache, layer, rows.prompt_table, rows.prompt_length, False, self.scores, out.array)
        self._turn(out, -1.0)
        return out

    def _turn(self, x: _Buffer, direction: float) -> None:
        if self.turns[0].size:
            kernels.turn_by_numbers(x.array, *self.turns, direction)

    def gate(self, hidden: _Buffer) -> _Buffer:
        """See `Arithmetic`."""
        kernels.gate(hidden.array, self.views["gated"].array)
        return self.views["gated"]

    def add(self, change: _Buffer, weight: Tensor) -> None:
        """See `Arithmetic`."""
        out = self.views["change"]
        product(change.tensor, weight, out=out.tensor)
        self.change = out.array

    def hidden(self) -> Tensor:
        """x with the last change, float32 [R, D]."""
        return self.views["x"].tensor + self.views["change"].tensor.float()

    def logits(self, norm: Tensor, weight: Tensor) -> Tensor:
        """RMSNorm(x) @ weight in float32, whatever the precision of the blocks."""
        last, logits = self.views["last"], self.views["logits"]
        kernels.add_and_norm(self.x, self.change, norm.numpy(), self.eps, last.array)
        return product(last.tensor, weight, out=logits.tensor)


def _buffers(config: ModelConfig, rows: int, products: torch.dtype) -> dict[str, Tensor]:
    """A thread's activations: those that products read or write in their precision, the others in float32."""
    dim, ffn = config.dim, config.ffn
    widths = {"normed": dim, "change": dim, "gated": ffn}
    widths |= {f"projected {width}": width for width in (3 * dim, dim, 2 * ffn)}
    exact = {"x": dim, "query": dim, "last": dim, "logits": config.symbol_count}
    buffers = {name: torch.empty(rows, width, dtype=products) for name, width in widths.items()}
    return buffers | {name: torch.empty(rows, width) for name, width in exact.items()}


def _slice(rows: DecoderRows, first: int, last: int) -> DecoderRows:
    """Some of the rows, without copying."""
    return replace(rows, **{field.name: getattr(rows, field.name)[first:last] for field in fields(rows)})
