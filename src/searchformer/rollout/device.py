"""The backend for any device PyTorch knows: its own operations only, and no look at a result before the last step.

Blocks of the cache are gathered per layer and go through `scaled_dot_product_attention`. Shape suffixes: R rows,
K steps, D model width, H heads, E head width, L layers, N cache blocks, B positions of a block, T blocks of a
table, V vocabulary.
"""

import copy
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention, silu

from searchformer.errors import SearchformerError
from searchformer.model import Transformer
from searchformer.model.layers import DecoderBlock, rotary_table, rotate
from searchformer.rollout.backend import BLOCK, Rows
from searchformer.rollout.requests import Sampling

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class DeviceBackend:
    """See `backend.Backend`."""

    def __init__(self, model: Transformer, *, precision: str = "auto", steps: int = 16, compile: bool = False) -> None:
        if precision == "auto":
            precision = "bf16" if model.device.type == "cuda" and torch.cuda.is_bf16_supported() else "fp32"
        if precision not in DTYPES:
            raise SearchformerError(f"a precision here is one of auto, {', '.join(DTYPES)}; found {precision!r}")
        self.model, self.config, self.device, self.steps = model, model.config, model.device, steps
        self.dtype = DTYPES[precision]
        self.decoder = copy.deepcopy(model.decoder).requires_grad_(False)
        self.layers = cast(list[DecoderBlock], list(self.decoder.layers))
        for module in self.decoder.layers.modules():
            if isinstance(module, nn.Linear):
                module.to(self.dtype)
        self._cache = self._empty(0)
        self._forward = torch.compile(self._logits, dynamic=True) if compile else self._logits

    @property
    def block_bytes(self) -> int:
        """Keys and values of one block in all layers."""
        return 2 * self.config.layers * BLOCK * self.config.dim * self.dtype.itemsize

    def _empty(self, blocks: int) -> Tensor:
        """Keys and values, [2, L, N, B, H, E]."""
        shape = (2, self.config.layers, blocks, BLOCK, self.config.heads, self.config.head_dim)
        return torch.zeros(shape, dtype=self.dtype, device=self.device)

    def reserve(self, blocks: int, *, positions: int) -> None:
        """See `Backend`. Memory is taken as blocks come into use, twice as much each time, up to `blocks`."""
        self._most = blocks
        self._rotary = rotary_table(positions + self.steps, self.config, self.device)

    def _reach(self, block: int) -> None:
        """Make room for this block number."""
        have = self._cache.shape[2]
        if block >= have:
            grown = self._empty(min(max(2 * have, block + 1, 64), max(self._most, block + 1)))
            grown[:, :, :have] = self._cache
            self._cache = grown

    @torch.inference_mode()
    def encode(self, prompt: np.ndarray, blocks: np.ndarray) -> None:
        """See `Backend`."""
        self._reach(int(blocks.max()))
        features_SD = self.model.encode(torch.as_tensor(prompt, dtype=torch.int64, device=self.device)[None])[0]
        positions = torch.arange(len(prompt), device=self.device)
        block_S, at_S = torch.as_tensor(blocks, device=self.device).long()[positions // BLOCK], positions % BLOCK
        for layer, block in enumerate(self.layers):
            for part, linear in enumerate((block.attention_feat.wk, block.attention_feat.wv)):
                states_SHE = linear(features_SD.to(self.dtype)).unflatten(-1, (self.config.heads, -1))
                self._cache[part, layer, block_S, at_S] = states_SHE

    @torch.inference_mode()
    def decode(self, rows: Rows, sampling: Sampling, next_state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See `Backend`. Rows go to the device once, tokens come back once."""
        self._reach(int(rows.table.max()))
        token_R, position_R, table_RT, prompt_table_RT, prompt_length_R, key_R, state_R, forced_RK = (
            torch.as_tensor(array.astype(np.int64), device=self.device)
            for array in (
                rows.token,
                rows.position,
                rows.table,
                rows.prompt_table,
                rows.prompt_length,
                rows.key.view(np.int64),
                rows.state,
                rows.forced,
            )
        )
        next_state_SV = torch.as_tensor(next_state, device=self.device)
        tokens, log_probabilities = [], []
        for step in range(self.steps):
            logits_RV = self._forward(token_R, position_R, table_RT, prompt_table_RT, prompt_length_R)
            allowed_RV = next_state_SV[state_R] >= 0 if len(next_state) else None
            drawn_R = draw(logits_RV, allowed_RV, sampling, uniforms(key_R, position_R))
            forced_R = forced_RK[:, step]
            own_R = torch.log_softmax(logits_RV, -1).gather(1, drawn_R[:, None])[:, 0]
            token_R = torch.where(forced_R >= 0, forced_R, drawn_R)
            if len(next_state):  # what follows eos is thrown away, so any state will do there
                state_R = next_state_SV[state_R, token_R].long().clamp(min=0)
            position_R = position_R + 1
            tokens.append(token_R)
            log_probabilities.append(torch.where(forced_R >= 0, 0.0, own_R))
        rows.state[:] = state_R.cpu().numpy()
        return torch.stack(tokens, 1).int().cpu().numpy(), torch.stack(log_probabilities, 1).float().cpu().numpy()

    def _logits(
        self, token_R: Tensor, position_R: Tensor, table_RT: Tensor, prompt_table_RT: Tensor, prompt_length_R: Tensor
    ) -> Tensor:
        """Logits of the next token, float32 [R, V]; keys and values of this one join the cache."""
        turn = tuple(table[position_R][:, None] for table in self._rotary)
        here_R = table_RT.gather(1, (position_R // BLOCK)[:, None])[:, 0], position_R % BLOCK
        x_RD = self.decoder.embedding(token_R).float()
        for layer, block in enumerate(self.layers):
            own, cross, ffn = block.attention, block.attention_feat, block.feed_forward
            normed_RD = block.attention_norm(x_RD).to(self.dtype)
            query, key, value = (self._heads(linear(normed_RD)) for linear in (own.wq, own.wk, own.wv))
            self._cache[0, layer][here_R] = rotate(key, *turn)[:, 0]
            self._cache[1, layer][here_R] = value[:, 0]
            x_RD = x_RD + own.wo(self._attend(rotate(query, *turn), layer, table_RT, position_R + 1)).float()
            query = self._heads(cross.wq(block.attention_feat_norm(x_RD).to(self.dtype)))
            x_RD = x_RD + cross.wo(self._attend(query, layer, prompt_table_RT, prompt_length_R)).float()
            normed_RD = block.ffn_norm(x_RD).to(self.dtype)
            x_RD = x_RD + ffn.w2(silu(ffn.w1(normed_RD)) * ffn.w3(normed_RD)).float()
        return self.decoder.output(x_RD).float()

    def _heads(self, x_RD: Tensor) -> Tensor:
        """[R, 1, H, E]"""
        return x_RD.unflatten(-1, (self.config.heads, -1))[:, None]

    def _attend(self, query_R1HE: Tensor, layer: int, table_RT: Tensor, length_R: Tensor) -> Tensor:
        """Attention over the first `length_R` positions of each row's blocks, [R, D]."""
        keys, values = (self._cache[part, layer][table_RT].flatten(1, 2).transpose(1, 2) for part in (0, 1))
        mask = torch.arange(keys.shape[2], device=self.device) < length_R[:, None]
        mixed = scaled_dot_product_attention(query_R1HE.transpose(1, 2), keys, values, attn_mask=mask[:, None, None])
        return mixed[:, :, 0].flatten(1)


def uniforms(key_R: Tensor, position_R: Tensor) -> Tensor:
    """`requests.uniform` of each row, float64 [R]: splitmix64 in wrapping int64 arithmetic."""

    def signed(word: int) -> int:
        return word - (1 << 64) if word >> 63 else word

    def shifted(z: Tensor, bits: int) -> Tensor:
        return (z >> bits) & ((1 << (64 - bits)) - 1)

    z = key_R + (position_R + 1) * signed(0x9E3779B97F4A7C15)
    z = (z ^ shifted(z, 30)) * signed(0xBF58476D1CE4E5B9)
    z = (z ^ shifted(z, 27)) * signed(0x94D049BB133111EB)
    z = z ^ shifted(z, 31)
    return shifted(z, 11).double() * 2.0**-53


def draw(logits_RV: Tensor, allowed_RV: Tensor | None, sampling: Sampling, number_R: Tensor) -> Tensor:
    """`naive.choose` of each row, int64 [R]."""
    if allowed_RV is not None:
        logits_RV = logits_RV.masked_fill(~allowed_RV, -torch.inf)
    if sampling.temperature == 0:
        return logits_RV.argmax(-1)
    weights_RV = torch.softmax(logits_RV.double() / sampling.temperature, -1)
    if sampling.top_k:
        lowest_R1 = weights_RV.topk(min(sampling.top_k, weights_RV.shape[-1])).values[:, -1:]
        weights_RV = weights_RV.masked_fill(weights_RV < lowest_R1, 0)
    if sampling.top_p < 1:
        ordered_RV = weights_RV.sort(-1, descending=True).values
        enough_RV = ordered_RV.cumsum(-1) >= sampling.top_p * weights_RV.sum(-1, keepdim=True)
        last_R1 = enough_RV.to(torch.int8).argmax(-1, keepdim=True)
        weights_RV = weights_RV.masked_fill(weights_RV < ordered_RV.gather(1, last_R1), 0)
    cumulated_RV = weights_RV.cumsum(-1)
    target_R1 = number_R[:, None] * cumulated_RV[:, -1:]
    return torch.searchsorted(cumulated_RV, target_R1, right=True)[:, 0].clamp(max=weights_RV.shape[-1] - 1)
