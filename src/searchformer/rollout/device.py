"""The backend for any device PyTorch knows: its own operations only, and no look at a result before the last step.

Blocks of the cache are gathered per layer and go through `scaled_dot_product_attention`. Shape suffixes: R rows,
K steps, D model width, H heads, E head width, L layers, N cache blocks, B positions of a block, T blocks of a
table, V symbols.
"""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from searchformer.errors import SearchformerError
from searchformer.model import Transformer
from searchformer.model.device import check_precision, widest_float
from searchformer.model.rotary import Rotation, rotary_table, rotate, rotate_back
from searchformer.rollout.backend import BLOCK, DecoderRows, Drawn
from searchformer.rollout.decoder import DecoderWeights, prompt_keys_and_values, run_blocks
from searchformer.rollout.requests import Alphabet, Sampling
from searchformer.rollout.stepwise import PieceWriter, Recent

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class DeviceBackend:
    """See `backend.Backend`."""

    def __init__(self, model: Transformer, *, precision: str, steps: int = 16, compile: bool = False) -> None:
        if precision not in DTYPES:
            raise SearchformerError(f"a precision here is one of auto, {', '.join(DTYPES)}; found {precision!r}")
        check_precision(precision, model.device)
        self.model, self.config, self.device, self.steps = model, model.config, model.device, steps
        self.dtype = DTYPES[precision]
        self.exact = np.float32 if widest_float(model.device) == torch.float32 else np.float64
        self.weights = DecoderWeights.of(model, products=self.dtype, prompt_products=self.dtype)
        self.cache = self._make_cache(0)
        self.recent = Recent(model)
        self.writer = PieceWriter(model) if model.config.unit == "step" else None
        if self.writer:
            self.steps = 1
        self.tokens_at_once = model.config.places if self.writer else steps
        self._forward = torch.compile(self._hidden, dynamic=True) if compile else self._hidden

    @property
    def block_bytes(self) -> int:
        """Keys and values of one block in all layers."""
        return 2 * self.config.layers * BLOCK * self.config.dim * self.dtype.itemsize

    def _make_cache(self, blocks: int) -> Tensor:
        """Keys and values, [2, L, N, B, H, E]."""
        shape = (2, self.config.layers, blocks, BLOCK, self.config.heads, self.config.head_dim)
        return torch.zeros(shape, dtype=self.dtype, device=self.device)

    def reserve(self, blocks: int, *, positions: int, slots: int) -> None:
        """See `Backend`. Memory is taken as blocks come into use, twice as much each time, up to `blocks`."""
        self.recent.reserve(slots)
        self._most = blocks
        self.rotary = rotary_table(positions + self.steps, self.config, self.device)

    def _grow_cache(self, block: int) -> None:
        """Make room for this block number."""
        have = self.cache.shape[2]
        if block >= have:
            grown = self._make_cache(min(max(2 * have, block + 1, 64), max(self._most, block + 1)))
            grown[:, :, :have] = self.cache
            self.cache = grown

    @torch.inference_mode()
    def encode(self, prompt: np.ndarray, blocks: np.ndarray) -> None:
        """See `Backend`."""
        self._grow_cache(int(blocks.max()))
        if self.writer:
            self.writer.read_prompt(prompt, int(blocks[0]))
        features = self.model.encode(torch.as_tensor(prompt, device=self.device)[None])
        positions = torch.arange(len(prompt), device=self.device)
        block_S, at_S = torch.as_tensor(blocks, device=self.device).long()[positions // BLOCK], positions % BLOCK
        for layer, block in enumerate(self.weights.blocks):
            for part, vectors_SD in enumerate(prompt_keys_and_values(features, block)):
                self.cache[part, layer, block_S, at_S] = vectors_SD.unflatten(-1, (self.config.heads, -1))

    @torch.inference_mode()
    def decode(self, rows: DecoderRows, sampling: Sampling, alphabet: Alphabet) -> Drawn:
        """See `Backend`. Rows go to the device once, tokens come back once, or once per token of a piece."""
        self._grow_cache(int(rows.table.max()))
        numbers = uniforms(rows.key, rows.written, self.tokens_at_once).astype(self.exact)
        number_RK = torch.as_tensor(numbers, device=self.device)
        allowed_SV = torch.as_tensor(alphabet.allowed_SV, device=self.device)
        if self.writer:
            return self._write_pieces(rows, sampling, alphabet, number_RK, allowed_SV)
        next_state_SV = torch.as_tensor(alphabet.next_state, device=self.device)
        token_R, position_R, table_RT, prompt_table_RT, prompt_length_R, state_R, forced_RK = self._on_device(
            rows.token, rows.position, rows.table, rows.prompt_table, rows.prompt_length, rows.state, rows.forced
        )
        slot_R = self._on_device(rows.slot)[0]
        tokens, log_probabilities = [], []
        for step in range(self.steps):
            x_RD = functional.embedding(token_R, self.weights.embedding)
            rotation = self._rotation(token_R[:, None], position_R)
            x_RD = self._forward(x_RD, rotation, slot_R, position_R, table_RT, prompt_table_RT, prompt_length_R)
            allowed_RV = allowed_SV[state_R] if len(allowed_SV) else None
            logits_RV = self._logits(x_RD)
            token_R, log_probability_R = take(logits_RV, allowed_RV, sampling, number_RK[:, step], forced_RK[:, step])
            if len(next_state_SV):  # what follows eos is thrown away, so any state will do there
                state_R = next_state_SV[state_R, token_R].long().clamp(min=0)
            position_R = position_R + 1
            tokens.append(token_R)
            log_probabilities.append(log_probability_R)
        rows.state[:] = state_R.cpu().numpy()
        counts = np.full(len(rows.token), self.steps)
        return Drawn(
            torch.stack(tokens, 1).int().cpu().numpy(), torch.stack(log_probabilities, 1).cpu().numpy(), counts
        )

    def _write_pieces(
        self, rows: DecoderRows, sampling: Sampling, alphabet: Alphabet, number_RK: Tensor, allowed_SV: Tensor
    ) -> Drawn:
        """One position of a step network, and the piece that it writes."""
        assert self.writer is not None

        def choose(logits_RV: Tensor, chosen: np.ndarray, place: int) -> tuple[np.ndarray, np.ndarray]:
            state, forced, position = rows.state[chosen], rows.forced[chosen, place], rows.written[chosen] + place
            state_R, forced_R, row_R = self._on_device(state, forced, chosen)
            allowed_RV = allowed_SV[state_R] if len(allowed_SV) else None
            drawn = take(logits_RV, allowed_RV, sampling, number_RK[row_R, place], forced_R)
            symbol, log_probability = (each.cpu().numpy() for each in drawn)
            token = alphabet.write(symbol, log_probability, forced, state, rows.key[chosen], position)
            rows.state[chosen] = alphabet.after(state, token)
            return token, log_probability

        inputs_R1P = self.writer.inputs(rows)
        x_RD = self.model.decoder.embedding(inputs_R1P)[:, 0]
        if self.model.decoder.vicinity is not None:
            x_RD = x_RD + self.model.decoder.vicinity(*self._on_device(*self.writer.near_rows(rows)))
        places = self._on_device(rows.slot, rows.position, rows.table, rows.prompt_table, rows.prompt_length)
        rotation = self._rotation(inputs_R1P[:, 0], places[1])
        hidden_RD = self._forward(x_RD, rotation, *places)
        return Drawn(*self.writer.write(hidden_RD, rows.slot, rows.position, choose))

    def _rotation(self, inputs_RP: Tensor, position_R: Tensor) -> Rotation:
        """The turns of each row's next position."""
        cosines, sines = (table[position_R][:, None, None] for table in self.rotary)
        return self.model.number_table.rotation((cosines, sines), inputs_RP[:, None])

    def _on_device(self, *arrays: np.ndarray) -> list[Tensor]:
        return [torch.as_tensor(array.astype(np.int64), device=self.device) for array in arrays]

    def _hidden(
        self,
        x_RD: Tensor,
        rotation: Rotation,
        slot_R: Tensor,
        position_R: Tensor,
        table_RT: Tensor,
        prompt_table_RT: Tensor,
        prompt_length_R: Tensor,
    ) -> Tensor:
        """The decoder's last hidden vectors, float32 [R, D]; keys and values of this position join the cache."""
        if self.config.shift:
            self.recent.begin(slot_R, position_R)
        arithmetic = _DeviceArithmetic(
            self, x_RD, rotation, slot_R, position_R, table_RT, prompt_table_RT, prompt_length_R
        )
        run_blocks(self.weights.blocks, arithmetic)
        return arithmetic.x_RD

    def _logits(self, x_RD: Tensor) -> Tensor:
        """Logits of the next tokens, [R, V]."""
        normed_RD = functional.rms_norm(x_RD, x_RD.shape[-1:], self.weights.output_norm, self.config.norm_eps)
        return normed_RD @ self.weights.output


class _DeviceArithmetic:
    """`decoder.Arithmetic` for one position of each row."""

    def __init__(
        self,
        backend: DeviceBackend,
        x_RD: Tensor,
        rotation: Rotation,
        slot_R: Tensor,
        position_R: Tensor,
        table_RT: Tensor,
        prompt_table_RT: Tensor,
        prompt_length_R: Tensor,
    ) -> None:
        self.backend, self.x_RD, self.slot_R, self.dtype = backend, x_RD, slot_R, backend.dtype
        self.own = table_RT, position_R + 1
        self.prompt = prompt_table_RT, prompt_length_R
        self.place = table_RT.gather(1, (position_R // BLOCK)[:, None])[:, 0], position_R % BLOCK
        self.turns, self.numbers = rotation.own, rotation.numbers

    def project(self, norm: Tensor, weight: Tensor) -> Tensor:
        """See `Arithmetic`."""
        return self._normed(norm).to(self.dtype) @ weight

    def project_mixed(self, layer: int, norm: Tensor, shift: Tensor, weight: Tensor) -> Tensor:
        """See `Arithmetic`."""
        return self.backend.recent.mix(layer, self._normed(norm), shift, self.slot_R).to(self.dtype) @ weight

    def _normed(self, norm: Tensor) -> Tensor:
        return functional.rms_norm(self.x_RD, norm.shape, norm, self.backend.config.norm_eps)

    def attend_to_own(self, layer: int, query_key_value: Tensor) -> Tensor:
        """See `Arithmetic`."""
        query, key, value = (self._heads(part) for part in query_key_value.chunk(3, dim=-1))
        keys, values = self.backend.cache[:, layer]
        value = rotate(value, *self.numbers) if self.numbers else value
        keys[self.place], values[self.place] = rotate(key, *self.turns)[:, 0], value[:, 0]
        return self._attend(layer, rotate(query, *self.turns), *self.own)

    def attend_to_prompt(self, layer: int, query: Tensor) -> Tensor:
        """See `Arithmetic`."""
        query_R1HE = self._heads(query)
        return self._attend(layer, rotate(query_R1HE, *self.numbers) if self.numbers else query_R1HE, *self.prompt)

    def gate(self, hidden: Tensor) -> Tensor:
        """See `Arithmetic`."""
        first, second = hidden.chunk(2, dim=-1)
        return functional.silu(first) * second

    def add(self, change: Tensor, weight: Tensor) -> None:
        """See `Arithmetic`."""
        self.x_RD = self.x_RD + (change @ weight).float()

    def _heads(self, x_RD: Tensor) -> Tensor:
        """[R, 1, H, E]"""
        return x_RD.unflatten(-1, (self.backend.config.heads, -1))[:, None]

    def _attend(self, layer: int, query_R1HE: Tensor, table_RT: Tensor, length_R: Tensor) -> Tensor:
        """Attention over the first `length_R` positions of each row's blocks, [R, D]."""
        keys, values = (part[table_RT].flatten(1, 2).transpose(1, 2) for part in self.backend.cache[:, layer])
        mask = torch.arange(keys.shape[2], device=keys.device) < length_R[:, None]
        query_RH1E = query_R1HE.transpose(1, 2)
        mixed = functional.scaled_dot_product_attention(query_RH1E, keys, values, attn_mask=mask[:, None, None])
        mixed_R1HE = mixed.transpose(1, 2)
        return (rotate_back(mixed_R1HE, *self.numbers) if self.numbers else mixed_R1HE).flatten(1)


def uniforms(key_R: np.ndarray, position_R: np.ndarray, steps: int) -> np.ndarray:
    """`requests.uniform` of each row's next `steps` positions, float64 [R, K]: splitmix64 in wrapping arithmetic."""
    position_RK = position_R.astype(np.uint64)[:, None] + np.arange(1, steps + 1, dtype=np.uint64)
    z: np.ndarray = key_R[:, None] + position_RK * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return (z >> np.uint64(11)) * 2.0**-53


def take(
    logits_RV: Tensor, allowed_RV: Tensor | None, sampling: Sampling, number_R: Tensor, forced_R: Tensor
) -> tuple[Tensor, Tensor]:
    """Tokens, drawn or forced (>= 0), and their log-probabilities; a forced one costs nothing."""
    drawn_R = draw(logits_RV, allowed_RV, sampling, number_R)
    own_R = torch.log_softmax(logits_RV, -1).gather(1, drawn_R[:, None])[:, 0]
    return torch.where(forced_R >= 0, forced_R, drawn_R), own_R.masked_fill(forced_R >= 0, 0.0)


def draw(logits_RV: Tensor, allowed_RV: Tensor | None, sampling: Sampling, number_R: Tensor) -> Tensor:
    """`naive.choose` of each row, int64 [R], computed in the precision of `number_R`."""
    if allowed_RV is not None:
        logits_RV = logits_RV.masked_fill(~allowed_RV, -torch.inf)
    if sampling.temperature == 0:
        return logits_RV.argmax(-1)
    weights_RV = torch.softmax(logits_RV.to(number_R.dtype) / sampling.temperature, -1)
    if sampling.top_k:
        lowest_R1 = weights_RV.topk(min(sampling.top_k, weights_RV.shape[-1])).values[:, -1:]
        weights_RV = weights_RV.masked_fill(weights_RV < lowest_R1, 0)
    if sampling.top_p < 1:
        ordered_RV = weights_RV.sort(-1, descending=True).values
        enough_RV = ordered_RV.cumsum(-1) >= sampling.top_p * weights_RV.sum(-1, keepdim=True)
        last_R1 = enough_RV.to(torch.int8).argmax(-1, keepdim=True)
        weights_RV = weights_RV.masked_fill(weights_RV < ordered_RV.gather(1, last_R1), 0)
    cumulated_RV = weights_RV.cumsum(-1)
    passed_RV = cumulated_RV <= number_R[:, None] * cumulated_RV[:, -1:]
    last_R = weights_RV.shape[-1] - 1 - (weights_RV.flip(-1) > 0).to(torch.int8).argmax(-1)
    return torch.minimum(passed_RV.sum(-1), last_R)
