"""How samplers run a step network: what it remembers of each sequence, and how it writes a piece token by token.

The decoder's blocks run once per piece, as for a token network; then the head (`model/head.py`) writes up to P tokens
for all rows together. Beside the cache of keys and values, a sequence needs its pieces so far, as it may copy from
them, and the last few inputs of every block, which are mixed into the next. All of that is indexed by slot.

Shape suffixes: R rows, T positions so far, P places, D model width, V symbols, K inputs that are remembered. Pieces are
remembered as symbols.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from searchformer.model import Transformer
from searchformer.model.head import BIAS_SCALE, LEAST_MASS, TINY
from searchformer.rollout.backend import DecoderRows
from searchformer.rollout.requests import Prompt
from searchformer.tokens.steps import NOTHING
from searchformer.tokens.vocabulary import BOS, EOS

Choose = Callable[[Tensor, np.ndarray, int], tuple[np.ndarray, np.ndarray]]
"""(log-probabilities [r, V], which rows these are [r], place) -> their tokens and log-probabilities, [r] each."""


class Recent:
    """The last K inputs of every block's self-attention, by slot."""

    def __init__(self, model: Transformer) -> None:
        self.layers, self.back, self.dim = model.config.layers, model.config.shift, model.config.dim
        self.device = model.device
        self.inputs = torch.zeros(self.layers, 0, self.back, self.dim, device=self.device)

    def reserve(self, slots: int) -> None:
        """Make room for these slots."""
        if slots > self.inputs.shape[1]:
            self.inputs = torch.zeros(self.layers, slots, self.back, self.dim, device=self.device)

    def begin(self, slot_R: Tensor, position_R: Tensor) -> None:
        """Forget what slots hold that begin a new sequence."""
        fresh = slot_R[position_R == 0]
        if len(fresh):
            self.inputs[:, fresh] = 0.0

    def mix(self, layer: int, x_RD: Tensor, weights_KD: Tensor, slot_R: Tensor) -> Tensor:
        """x plus the earlier inputs, weighted; x becomes the latest of them. See `layers.mix_with_earlier`."""
        earlier_RKD = self.inputs[layer, slot_R]
        self.inputs[layer, slot_R] = torch.cat([x_RD[:, None], earlier_RKD[:, :-1]], dim=1)
        return x_RD + (earlier_RKD * weights_KD).sum(dim=1)


class PieceWriter:
    """A step network's head with what it remembers of every slot's sequence."""

    def __init__(self, model: Transformer) -> None:
        assert model.cutter is not None
        assert model.decoder.head is not None
        self.decoder, self.head, self.cutter = model.decoder, model.decoder.head, model.cutter
        self.symbol_of_token, self.beside_VO = model.symbols.of_token, model.beside_VO
        self.places, self.dim, self.device = model.config.places, model.config.dim, model.device
        self.numbers, self.vicinity = model.numbers, model.vicinity
        self.prompts: dict[int, np.ndarray] = {}
        """The things of prompts, by the first of their blocks."""
        self.most_things = 0
        weights = self.head.copy_bias, self.head.copy_costs, self.head.copy_content
        self.copy_bias, self.copy_costs, self.copy_content = (BIAS_SCALE * each.detach().float() for each in weights)
        self._allocate(slots=0, positions=0, things=0)

    def _allocate(self, *, slots: int, positions: int, things: int) -> None:
        self.pieces = np.full((slots, positions, self.places), NOTHING, np.int64)
        """What each input position holds: position t has piece t - 1."""
        self.references = np.full((slots, self.places), NOTHING, np.int64)
        """The piece that numbers are written relative to, as it is now."""
        self.states, self.nodes = (np.zeros((slots, positions), np.int64) for _ in range(2))
        self.kinds = np.zeros((slots, positions), np.int64)
        self.costs = np.zeros((slots, positions, 2), np.float32)
        self.superseded = np.zeros((slots, positions), bool)
        self.things = np.full((slots, things, 3), NOTHING, np.int64)
        """What stands where in each slot's prompt."""
        self.keys = torch.zeros(slots, positions, self.dim, device=self.device)

    def _memory(self) -> list[Any]:
        """All that is indexed by slot."""
        facts = self.states, self.nodes, self.kinds, self.costs, self.superseded
        return [self.pieces, self.references, *facts, self.things, self.keys]

    def reserve(self, slots: int, positions: int) -> None:
        """Make room; what is remembered stays where there was room before."""
        old, (have_slots, have_positions), have_things = self._memory(), self.pieces.shape[:2], self.things.shape[1]
        things = self.most_things
        if slots <= have_slots and positions <= have_positions and things <= have_things:
            return
        positions = positions if positions <= have_positions else max(positions, 2 * have_positions, 64)
        room = {"slots": (slots, have_slots), "positions": (positions, have_positions), "things": (things, have_things)}
        self._allocate(**{name: max(sizes) for name, sizes in room.items()})
        for array, earlier in zip(self._memory(), old, strict=True):
            array[tuple(slice(length) for length in earlier.shape)] = earlier

    def read_prompt(self, pieces: np.ndarray, block: int) -> None:
        """Remember what stands where in a prompt's pieces [S, places]; its first block names it while it is in use."""
        if self.vicinity:
            self.prompts[block] = self.vicinity.things(pieces)
            self.most_things = max(self.most_things, len(pieces))

    def inputs(self, rows: DecoderRows) -> Tensor:
        """The decoder's next inputs, [R, 1, P]: the last piece, or the row's first."""
        self.start(rows)
        return torch.from_numpy(self.pieces[rows.slot, rows.position][:, None]).to(self.device)

    def near_rows(self, rows: DecoderRows) -> tuple[np.ndarray, np.ndarray]:
        """What stands near each row's node: see `Vicinity.of_slots`."""
        assert self.vicinity is not None
        memory = self.things, self.pieces, self.references, self.costs[:, :, 0], self.superseded
        return self.vicinity.of_slots(*memory, rows.slot, rows.position)

    def start(self, rows: DecoderRows) -> None:
        """Forget what slots hold that begin a new sequence."""
        self.reserve(int(rows.slot.max()) + 1, int(rows.position.max()) + 2)
        is_fresh = rows.position == 0
        fresh, first = rows.slot[is_fresh], rows.first[is_fresh]
        if not len(fresh):
            return
        if self.vicinity:
            self.things[fresh] = NOTHING
            for slot, block in zip(fresh, rows.prompt_table[is_fresh, 0], strict=True):
                things = self.prompts[int(block)]
                self.things[slot, : len(things)] = things
        self.states[fresh, 0], self.nodes[fresh, 0], self.superseded[fresh] = 0, 0, False
        self.kinds[fresh, 0], self.costs[fresh, 0] = self.cutter.kinds[BOS], 0
        self.pieces[fresh, 0] = self.references[fresh] = first

    def write(self, hidden_RD: Tensor, slot_R: np.ndarray, position_R: np.ndarray, choose: Choose) -> tuple:
        """Write a piece per row: tokens int32 and log-probabilities float32, both [R, P], and how many tokens, [R]."""
        rows, length = len(slot_R), int(position_R.max()) + 1
        tokens_RP, symbols_RP = (np.full((rows, self.places), NOTHING, np.int64) for _ in range(2))
        log_probability_RP = np.zeros((rows, self.places), np.float32)
        self.keys[slot_R, position_R] = self.head.copy_key(self.head.copy_norm(hidden_RD))
        attention_RT, gates_RP = hidden_RD.new_zeros(rows, length), hidden_RD.new_zeros(rows, self.places)
        earlier_RTP, reference_RP = (
            torch.from_numpy(array).to(self.device) for array in (self.pieces[slot_R, :length], self.references[slot_R])
        )
        known_RD, active = hidden_RD, np.arange(rows)
        for place in range(self.places):
            known_RD = known_RD + (self.head.place[place] - (self.head.place[place - 1] if place else 0))
            earlier_RT = earlier_RTP[:, :, place]
            own_RV = self.decoder.step_logits(known_RD, reference_RP[:, place], self.beside_VO).log_softmax(dim=-1)
            log_probability_RV = self._mixture(own_RV, attention_RT, earlier_RT, gates_RP[:, place])
            token_R, log_probability_R = choose(log_probability_RV, active, place)
            tokens_RP[active, place], log_probability_RP[active, place] = token_R, log_probability_R
            symbol_R = symbols_RP[active, place] = self.symbol_of_token[token_R]
            going = np.flatnonzero(~self.cutter.ends(symbols_RP[active], place))
            if not len(going):
                break
            active, kept = active[going], torch.from_numpy(going).to(self.device)
            written_R = torch.from_numpy(symbol_R[going]).to(self.device)
            written_RD = self.head.embedding.weight[place * self.head.embedding.symbols + written_R]
            near_R = self.head.near_rows(written_R, reference_RP[kept, place], torch.tensor(place), self.beside_VO)
            known_RD = known_RD[kept] + written_RD + self.head.near[near_R]
            earlier_RTP, reference_RP = earlier_RTP[kept], reference_RP[kept]
            if place == 0:
                kind_R = self.cutter.first_kinds(symbols_RP[active])
                attention_RT, gates_RP = self._look_back(
                    hidden_RD[kept] + written_RD, kind_R, slot_R[active], position_R[active], length
                )
            else:
                attention_RT = attention_RT[kept] * (earlier_RT[kept] == written_R[:, None])
                gates_RP = gates_RP[kept]
        self._remember(slot_R, position_R, symbols_RP)
        return tokens_RP.astype(np.int32), log_probability_RP, (tokens_RP != NOTHING).sum(axis=1)

    def _look_back(
        self, known_RD: Tensor, kind_R: np.ndarray, slot_R: np.ndarray, position_R: np.ndarray, length: int
    ) -> tuple[Tensor, Tensor]:
        """Attention to the inputs so far, [R, T], without that to bos; and the gates of copying, [R, P].

        `known_RD` is what is known when the keyword is written.
        """
        slots, positions = (torch.from_numpy(array.astype(np.int64)).to(self.device) for array in (slot_R, position_R))
        queries_RD = self.head.copy_query(self.head.copy_norm(known_RD))
        scores_RT = (self.keys[slots, :length] @ queries_RD[:, :, None])[:, :, 0]
        memory = (array[slot_R, :length] for array in (self.kinds, self.costs, self.superseded))
        kind_R1, kinds_RT, costs_RT2, superseded_RT = (
            torch.from_numpy(array).to(self.device) for array in (kind_R[:, None], *memory)
        )
        by_cost_RT = (costs_RT2 * self.copy_costs[kind_R1]).sum(-1)
        content_R1 = self.copy_content[kind_R1] / self.dim**0.5
        scores_RT = scores_RT * content_R1 + self.copy_bias[kind_R1, kinds_RT] + by_cost_RT
        hidden_RT = superseded_RT | (torch.arange(length, device=self.device) > positions[:, None])
        attention_RT = torch.softmax(scores_RT.masked_fill(hidden_RT, -torch.inf), dim=-1)
        attention_RT[:, 0] = 0.0
        return attention_RT, self.head.gates(known_RD)

    def _mixture(self, own_RV: Tensor, attention_RT: Tensor, earlier_RT: Tensor, gate_R: Tensor) -> Tensor:
        """Log-probabilities of the next token with copying, [R, V]: see `StepHead.log_probabilities`."""
        held_RT = attention_RT * (earlier_RT >= 0)
        mass_RV = torch.zeros_like(own_RV).scatter_add_(1, earlier_RT.clamp(min=0), held_RT)
        copied_RV = mass_RV * (gate_R / (held_RT.sum(-1) + LEAST_MASS))[:, None]
        share_R1 = copied_RV.sum(-1, keepdim=True)
        return torch.logaddexp(torch.log(copied_RV.clamp(min=TINY)), torch.log1p(-share_R1) + own_RV)

    def _remember(self, slot_R: np.ndarray, position_R: np.ndarray, pieces_RP: np.ndarray) -> None:
        """Note the pieces written; they supersede others as `Cutter.superseded_at` says."""
        at_R, creates_R = position_R + 1, self.cutter.creates[pieces_RP[:, 0]]
        state_R, node_R = self.cutter.states(pieces_RP), self.cutter.nodes(pieces_RP)
        costs_R2, length = self.numbers.costs_of(pieces_RP), int(at_R.max())
        states_RT, nodes_RT, costs_RT2 = (array[slot_R, :length] for array in (self.states, self.nodes, self.costs))
        again_RT = (nodes_RT == node_R[:, None]) & (node_R != 0)[:, None]
        better_RT = (states_RT == state_R[:, None]) & (creates_R & (state_R != 0))[:, None]
        better_RT &= costs_R2[:, :1] < costs_RT2[:, :, 0]
        self.superseded[slot_R, :length] |= (again_RT | better_RT) & (np.arange(length) < at_R[:, None])
        self.superseded[slot_R, at_R], self.superseded[slot_R, 0] = False, True
        self.pieces[slot_R, at_R], self.kinds[slot_R, at_R] = pieces_RP, self.cutter.first_kinds(pieces_RP)
        self.states[slot_R, at_R], self.nodes[slot_R, at_R], self.costs[slot_R, at_R] = state_R, node_R, costs_R2
        self.references[slot_R[~creates_R]] = pieces_RP[~creates_R]


def prompt_pieces(model: Transformer, prompt: Prompt) -> tuple[np.ndarray, np.ndarray]:
    """A prompt as the encoder reads it, bos and eos included, int64 [S, places], and what the decoder reads first."""
    symbols = model.symbols.of_token[[BOS, *prompt.tokens, EOS]]
    if model.cutter is None:
        return symbols[:, None], symbols[:1]
    pieces = model.cutter.prompts(symbols[None], np.array([len(symbols)])).ids
    return pieces[0], model.cutter.first_inputs(pieces)[0]
