"""A step network's head on the CPU: `stepwise.PieceWriter` with compiled kernels and products of one thread."""

from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from searchformer.model import Transformer
from searchformer.model.head import HeadBlock
from searchformer.rollout import kernels, step_kernels
from searchformer.rollout.backend import DecoderRows
from searchformer.rollout.products import product
from searchformer.rollout.stepwise import Choose, PieceWriter
from searchformer.tokens.steps import NOTHING


class CpuPieceWriter(PieceWriter):
    """See `PieceWriter`. All rows are computed until the last of them has ended its piece."""

    def __init__(self, model: Transformer) -> None:
        super().__init__(model)
        head, (norm, output) = self.head, cast(tuple[nn.RMSNorm, nn.Linear], tuple(self.decoder.output))
        self.eps = model.config.norm_eps
        with torch.no_grad():
            self.key_weights = _matrix(head.copy_key.weight)
            self.look_weights = _matrix(torch.cat([head.copy_query.weight, head.copy_gate.weight]))
            self.copy_norm = head.copy_norm.weight.float().numpy()
            blocks = (cast(HeadBlock, block) for block in head.layers)
            self.blocks = [
                (block.norm.weight.float().numpy(), _matrix(block.w1.weight), _matrix(block.w2.weight))
                for block in blocks
            ]
            self.output_norm = norm.weight.float().numpy()
            self.output = _matrix(torch.cat([output.weight, head.near_output.weight]))
            self.place_PD = head.place.float().numpy()
            self.table_ND = head.embedding.weight.float().numpy()
            self.input_table_ND = self.decoder.embedding.weight.float().numpy()
            self.near_ND = head.near.float().numpy()
            if self.decoder.vicinity is not None:
                self.vicinity_ND = self.decoder.vicinity.weight.float().numpy()
        self.beside = model.numbers.beside
        self.symbols = head.embedding.symbols

    def embed(self, rows: DecoderRows, x_RD: np.ndarray) -> np.ndarray:
        """The decoder's next inputs [R, P]; their vectors, and of what stands near, go to `x_RD`."""
        self.start(rows)
        pieces_RP = self.pieces[rows.slot, rows.position]
        step_kernels.embed_pieces(pieces_RP, self.symbols, self.input_table_ND, x_RD)
        if self.vicinity:
            step_kernels.add_rows(*self.near_rows(rows), self.vicinity_ND, x_RD)
        return pieces_RP

    def write(self, hidden_RD: Tensor, slot_R: np.ndarray, position_R: np.ndarray, choose: Choose) -> tuple:
        """See `PieceWriter`."""
        rows, length = len(slot_R), int(position_R.max()) + 1
        hidden, where = hidden_RD.numpy(), (slot_R, position_R)
        normed_RD, empty = torch.empty_like(hidden_RD), np.empty((0, self.dim), np.float32)
        kernels.add_and_norm(hidden, empty, self.copy_norm, self.eps, normed_RD.numpy())
        self.keys.numpy()[where] = product(normed_RD, self.key_weights).numpy()
        gate_RP, attention_RT = np.zeros((rows, self.places), np.float32), np.empty((rows, length), np.float32)
        sources = attention_RT, np.empty((rows, length), np.int32), np.zeros(rows, np.int64)
        tokens_RP, symbols_RP = (np.full((rows, self.places), NOTHING, np.int64) for _ in range(2))
        log_probability_RP = np.zeros((rows, self.places), np.float32)
        known_RD, is_writing_R = hidden + self.place_PD[0], np.ones(rows, bool)
        for place in range(self.places):
            logits_RV = self._logits(known_RD, normed_RD, slot_R, place)
            step_kernels.mix_copies(logits_RV.numpy(), *sources, gate_RP, self.pieces, slot_R, place)
            writing = np.flatnonzero(is_writing_R)
            chosen_RV = logits_RV if len(writing) == rows else logits_RV[torch.from_numpy(writing)]
            token_R, log_probability_R = choose(chosen_RV, writing, place)
            tokens_RP[writing, place], log_probability_RP[writing, place] = token_R, log_probability_R
            symbols_RP[writing, place] = self.symbol_of_token[token_R]
            is_writing_R[writing] = ~self.cutter.ends(symbols_RP[writing], place)
            if not is_writing_R.any():
                break
            step_kernels.write_symbol(
                symbols_RP[:, place],
                is_writing_R,
                place,
                self.symbols,
                self.table_ND,
                self.place_PD,
                self.near_ND,
                self.beside,
                self.references,
                self.pieces,
                slot_R,
                known_RD,
                *sources[1:],
            )
            if place == 0:
                known = hidden + self.table_ND[symbols_RP[:, 0]]
                self._look(known, self.cutter.first_kinds(symbols_RP), *where, sources, gate_RP)
        self._remember(slot_R, position_R, symbols_RP)
        return tokens_RP.astype(np.int32), log_probability_RP, (tokens_RP != NOTHING).sum(axis=1)

    def _look(
        self,
        known_RD: np.ndarray,
        kind_R: np.ndarray,
        slot_R: np.ndarray,
        position_R: np.ndarray,
        sources: tuple[np.ndarray, np.ndarray, np.ndarray],
        gate_RP: np.ndarray,
    ) -> None:
        """`PieceWriter._look_back`; sources and gates are filled in."""
        normed_RD, empty = torch.empty(known_RD.shape), np.empty((0, self.dim), np.float32)
        kernels.add_and_norm(known_RD, empty, self.copy_norm, self.eps, normed_RD.numpy())
        looks = product(normed_RD, self.look_weights).numpy()
        gate_RP[:, 1:] = 1.0 / (1.0 + np.exp(-looks[:, self.dim + 1 :]))
        memory = self.keys.numpy(), self.kinds, self.costs, self.superseded
        weights = self.copy_bias.numpy(), self.copy_costs.numpy(), self.copy_content.numpy()
        step_kernels.look_back(looks, kind_R, *memory, *weights, slot_R, position_R, *sources)

    def _remember(self, slot_R: np.ndarray, position_R: np.ndarray, pieces_RP: np.ndarray) -> None:
        """See `PieceWriter`."""
        cutter = self.cutter
        memory = self.pieces, self.references, self.states, self.nodes, self.kinds, self.costs, self.superseded
        known = cutter.kinds, self.numbers.costs, cutter.names_state, cutter.names_node, cutter.creates, cutter.factors
        step_kernels.remember(pieces_RP, *known, slot_R, position_R, *memory)

    def _logits(self, known_RD: np.ndarray, normed_RD: Tensor, slot_R: np.ndarray, place: int) -> Tensor:
        """The network's own logits; `normed_RD` is memory."""
        x_RD, change = known_RD.copy(), np.empty((0, self.dim), np.float32)
        for norm, first, second in self.blocks:
            kernels.add_and_norm(x_RD, change, norm, self.eps, normed_RD.numpy())
            inner_RF = product(normed_RD, first).relu_().square_()
            change = product(inner_RF, second).numpy()
        kernels.add_and_norm(x_RD, change, self.output_norm, self.eps, normed_RD.numpy())
        logits_RV = torch.empty(len(x_RD), self.symbols)
        outputs = product(normed_RD, self.output).numpy()
        step_kernels.add_near(outputs, self.beside, self.references, slot_R, place, logits_RV.numpy())
        return logits_RV


def _matrix(weight: Tensor) -> Tensor:
    return weight.detach().float().t().contiguous()
