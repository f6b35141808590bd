"""The CPU backend: PyTorch's matrix products, compiled kernels for the rest, rows split over threads.

Each thread runs its rows through the whole step with products of one thread: faster than products that are split.
Shape suffixes as in `kernels.py`.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import cast

import llvmlite.binding  # type: ignore[import-untyped]
import numpy as np
import torch
from torch import Tensor, nn

from searchformer.errors import SearchformerError
from searchformer.model import Transformer
from searchformer.model.layers import DecoderBlock, rotary_table
from searchformer.rollout import kernels
from searchformer.rollout.backend import BLOCK, Rows
from searchformer.rollout.requests import Sampling

PRECISIONS = ("auto", "fp32", "bf16", "int8")


def has_native_bf16() -> bool:
    """Whether this CPU multiplies bfloat16 matrices itself; without that such products are slower than float32."""
    features = llvmlite.binding.get_host_cpu_features()
    return any(features.get(name, False) for name in ("avx512bf16", "amx-bf16", "bf16"))


@dataclass(frozen=True)
class _Layer:
    """One decoder block; weights are [in, out], those with the same input joined."""

    attention_norm: np.ndarray
    mix: Tensor
    attention_out: Tensor
    cross_norm: np.ndarray
    cross_query: Tensor
    cross_keys: Tensor
    cross_values: Tensor
    cross_out: Tensor
    ffn_norm: np.ndarray
    ffn_in: Tensor
    ffn_out: Tensor


class _Workspace:
    """Activations of one thread for up to `rows` rows, each as a tensor for products and as an array for kernels."""

    def __init__(self, rows: int, *, dim: int, ffn: int, vocabulary: int, dtype: torch.dtype) -> None:
        self.rows, self.count = rows, -1
        shapes = {"normed": dim, "mixed": 3 * dim, "change": dim, "cross": dim, "hidden": 2 * ffn, "gated": ffn}
        self.tensors = {name: torch.empty(rows, width, dtype=dtype) for name, width in shapes.items()}
        exact = {"x": dim, "query": dim, "last": dim, "logits": vocabulary}
        self.tensors |= {name: torch.empty(rows, width) for name, width in exact.items()}

    def first(self, count: int) -> tuple[dict[str, Tensor], dict[str, np.ndarray]]:
        """Views of the first `count` rows; made anew only when `count` changes."""
        if count != self.count:
            self.count = count
            self.tensor_views = {name: tensor[:count] for name, tensor in self.tensors.items()}
            self.array_views = {name: _array(tensor) for name, tensor in self.tensor_views.items()}
        return self.tensor_views, self.array_views


def _array(tensor: Tensor) -> np.ndarray:
    """The same memory as a NumPy array; bfloat16 shows as uint16."""
    return (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()


class CpuBackend:
    """See `backend.Backend`."""

    steps = 1

    def __init__(self, model: Transformer, *, precision: str = "auto", threads: int | None = None) -> None:
        if precision not in PRECISIONS:
            raise SearchformerError(f"a precision is one of {', '.join(PRECISIONS)}; found {precision!r}")
        native = has_native_bf16()
        self.precision = "bf16" if precision == "auto" else precision
        self.threads = threads or torch.get_num_threads()
        self.model, self.config = model, model.config
        self._products = torch.bfloat16 if native and self.precision != "fp32" else torch.float32
        self._layers = [self._layer(index) for index in range(self.config.layers)]
        with torch.no_grad():
            self._embedding = model.decoder.embedding.weight.float().numpy()
            norm, output = cast(tuple[nn.RMSNorm, nn.Linear], tuple(model.decoder.output))
            self._output_norm = norm.weight.float().numpy()
            self._output = output.weight.float().t().contiguous()
        self._workspaces: list[_Workspace] = []
        self._pool: ThreadPoolExecutor | None = None
        self._allocate(0)

    def _layer(self, index: int) -> _Layer:
        block = cast(DecoderBlock, self.model.decoder.layers[index])
        own, cross, ffn = block.attention, block.attention_feat, block.feed_forward

        def joined(*weights: Tensor, dtype: torch.dtype = self._products) -> Tensor:
            return torch.cat(weights).detach().t().to(dtype).contiguous()

        def norm(weight: Tensor) -> np.ndarray:
            return weight.detach().float().numpy()

        return _Layer(
            attention_norm=norm(block.attention_norm.weight),
            mix=joined(own.wq.weight, own.wk.weight, own.wv.weight),
            attention_out=joined(own.wo.weight),
            cross_norm=norm(block.attention_feat_norm.weight),
            cross_query=joined(cross.wq.weight),
            cross_keys=joined(cross.wk.weight, dtype=torch.float32),
            cross_values=joined(cross.wv.weight, dtype=torch.float32),
            cross_out=joined(cross.wo.weight),
            ffn_norm=norm(block.ffn_norm.weight),
            ffn_in=joined(ffn.w1.weight, ffn.w3.weight),
            ffn_out=joined(ffn.w2.weight),
        )

    @property
    def block_bytes(self) -> int:
        """Keys, values and scales of one block in all layers."""
        return sum(array[:1].nbytes if len(array) else 0 for array in self._arrays(1))

    def _arrays(self, blocks: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Uninitialised keys, values and scales; the system gives memory to a block when it is first written."""
        shape, width = (blocks, self.config.layers, self.config.heads), self.config.head_dim
        dtype, share = {"fp32": (np.float32, 1), "bf16": (np.uint32, 2), "int8": (np.int8, 1)}[self.precision]
        keys = np.empty((*shape, width // share, BLOCK), dtype)
        values = np.empty_like(keys)
        return keys, values, np.empty((*shape, 2, BLOCK if self.precision == "int8" else 0), np.float32)

    def _allocate(self, blocks: int) -> None:
        self._keys, self._values, self._scales = self._arrays(blocks)

    def reserve(self, blocks: int, *, positions: int) -> None:
        """See `Backend`. The cache is address space until it is used, so it is taken at once."""
        if blocks > len(self._keys):
            self._allocate(blocks)
        cosines, sines = rotary_table(positions, self.config, torch.device("cpu"))
        self._cosines, self._sines = cosines.numpy(), sines.numpy()
        self._scores = np.empty(
            (self.threads, (max(positions, self.config.positions) // BLOCK + 2) * BLOCK), np.float32
        )

    @torch.inference_mode()
    def encode(self, prompt: np.ndarray, blocks: np.ndarray) -> None:
        """See `Backend`."""
        features_SD = self.model.encode(torch.from_numpy(prompt.astype(np.int64))[None])[0].float()
        for index, layer in enumerate(self._layers):
            keys, values = features_SD @ layer.cross_keys, features_SD @ layer.cross_values
            cache = (self._keys, self._values, self._scales)
            kernels.store_prompt(keys.numpy(), values.numpy(), *cache, index, blocks)

    def decode(self, rows: Rows, sampling: Sampling, next_state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See `Backend`."""
        count = len(rows.token)
        self._make_room(-(-count // self.threads))
        if self._pool is None:
            tokens, log_probabilities = self._decode_part(0, rows, sampling, next_state)
            return tokens[:, None], log_probabilities[:, None]
        bounds = np.linspace(0, count, min(self.threads, count) + 1).astype(int)
        parts = [_slice(rows, first, last) for first, last in pairwise(bounds)]
        jobs = [self._pool.submit(self._decode_part, i, part, sampling, next_state) for i, part in enumerate(parts)]
        results = [job.result() for job in jobs]
        tokens, log_probabilities = (np.concatenate(columns) for columns in zip(*results, strict=True))
        return tokens[:, None], log_probabilities[:, None]

    def _make_room(self, rows: int) -> None:
        """Workspaces for so many rows per thread, and the threads."""
        if self.threads > 1 and self._pool is None:
            everywhere = torch.get_num_threads()
            self._pool = ThreadPoolExecutor(self.threads, "decode", torch.set_num_threads, (1,))
            list(self._pool.map(lambda _: None, range(self.threads)))
            torch.set_num_threads(everywhere)  # for new threads; those of the pool keep theirs
        if not self._workspaces or rows > self._workspaces[0].rows:
            shape = {"dim": self.config.dim, "ffn": self.config.ffn, "vocabulary": self.config.vocabulary}
            self._workspaces = [_Workspace(rows, **shape, dtype=self._products) for _ in range(self.threads)]

    @torch.inference_mode()
    def _decode_part(
        self, thread: int, rows: Rows, sampling: Sampling, next_state: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """One step of some rows: their next tokens and log-probabilities."""
        count, eps, scores = len(rows.token), self.config.norm_eps, self._scores[thread]
        t, a = self._workspaces[thread].first(count)
        x, query = a["x"], a["query"]
        cache = (self._keys, self._values, self._scales)
        length, change = rows.position + np.int32(1), a["change"][:0]
        kernels.embed(rows.token, self._embedding, x)
        for index, layer in enumerate(self._layers):
            kernels.add_and_norm(x, change, layer.attention_norm, eps, a["normed"])
            torch.mm(t["normed"], layer.mix, out=t["mixed"])
            kernels.rotate_and_store(
                a["mixed"], self._cosines, self._sines, rows.position, *cache, index, rows.table, query
            )
            kernels.attend(query, *cache, index, rows.table, length, True, scores, a["normed"])
            torch.mm(t["normed"], layer.attention_out, out=t["change"])
            change = a["change"]
            kernels.add_and_norm(x, change, layer.cross_norm, eps, a["normed"])
            torch.mm(t["normed"], layer.cross_query, out=t["cross"])
            kernels.attend(a["cross"], *cache, index, rows.prompt_table, rows.prompt_length, False, scores, a["normed"])
            torch.mm(t["normed"], layer.cross_out, out=t["change"])
            kernels.add_and_norm(x, change, layer.ffn_norm, eps, a["normed"])
            torch.mm(t["normed"], layer.ffn_in, out=t["hidden"])
            kernels.gate(a["hidden"], a["gated"])
            torch.mm(t["gated"], layer.ffn_out, out=t["change"])
        kernels.add_and_norm(x, change, self._output_norm, eps, a["last"])
        torch.mm(t["last"], self._output, out=t["logits"])
        token, log_probability = np.empty(count, np.int32), np.empty(count, np.float32)
        kernels.sample(
            a["logits"],
            float(sampling.temperature),
            sampling.top_k,
            float(sampling.top_p),
            rows.key,
            rows.position,
            np.ascontiguousarray(rows.forced[:, 0]),
            next_state,
            rows.state,
            token,
            log_probability,
        )
        return token, log_probability


def _slice(rows: Rows, first: int, last: int) -> Rows:
    """Some of the rows, without copying."""
    return replace(rows, **{field.name: getattr(rows, field.name)[first:last] for field in fields(rows)})
