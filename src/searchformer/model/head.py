"""How a step network writes: a piece's tokens, left to right, from the decoder's hidden vector and the tokens so far.

Two distributions are mixed, with a gate for every place but the first, which is the keyword's. One comes from a small
network. The other copies: an attention over earlier pieces, of which those that disagree with the tokens written so far
are left out, keywords apart. (To close a node is to write again what was created.) Pieces that have been superseded,
because their node has come up again since, are left out too: the created ones that remain are the open nodes. Which
keyword copies from which (a close from a create, never from a close), and how much the costs of a source and all else
that is known of it count (a node of least f is closed, whichever it is), are few numbers of their own: soon learnt.

Numbers are read and written twice: as tokens, and relative to the number at the same place of a reference, the last
piece that creates nothing. (A child is one cell away from the node that was closed, and costs one more.)

Every token's probability is exact, so a loss or a log-probability means the same as for a token network. Shape suffixes
as in `inputs.py`, and D model width, V symbols (`tokens/symbols.py`), O offsets (`tokens/numbers.py`): a token here is
a symbol.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from searchformer.model.config import HEAD_BLOCKS, ModelConfig
from searchformer.model.inputs import Inputs, Sources
from searchformer.model.layers import Linear, RMSNorm
from searchformer.tokens.steps import KINDS
from searchformer.tokens.vicinity import Vicinity

LEAST_MASS = 1e-5
"""Copying counts for less where the earlier pieces that agree with what is written had less attention than this."""
BIAS_SCALE = 40.0
"""What is added to scores by keywords and costs is so many times the weights: it soon rules out what never happens."""
TINY = 1e-30


class StepEmbedding(nn.Module):
    """The sum over a position's places of a vector for (place, token); with one place, an ordinary embedding."""

    def __init__(self, config: ModelConfig, places: int) -> None:
        super().__init__()
        self.places, self.symbols = places, config.symbol_count
        rows = places * self.symbols + (places > 1)  # the last one is for places that hold nothing
        self.weight = nn.Parameter(torch.empty(rows, config.dim))

    def rows(self, ids_LP: Tensor) -> Tensor:
        """The row of every (place, token)."""
        first_P = torch.arange(self.places, device=ids_LP.device) * self.symbols
        return torch.where(ids_LP >= 0, ids_LP + first_P, self.places * self.symbols)

    def forward(self, ids_BLP: Tensor) -> Tensor:
        """Vectors [B, L, D] of pieces."""
        if self.places == 1:
            return functional.embedding(ids_BLP[..., 0].clamp(min=0), self.weight)  # padding may hold NOTHING
        rows_NP = self.rows(ids_BLP).flatten(0, -2)
        nothing = self.places * self.symbols
        vectors_ND = functional.embedding_bag(rows_NP, self.weight, mode="sum", padding_idx=nothing)
        return vectors_ND.unflatten(0, ids_BLP.shape[:-1])


class VicinityEmbedding(nn.Module):
    """The sum of a vector for everything that stands near the node at hand (`tokens/vicinity.py`)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(Vicinity.row_count(config.vicinity, config.number_heads), config.dim))

    def forward(self, rows_N: Tensor, begins_L: Tensor) -> Tensor:
        """Vectors [L, D] of positions; rows of each begin at `begins_L`."""
        return functional.embedding_bag(rows_N, self.weight, begins_L, mode="sum")


class _RunningSum(torch.autograd.Function):
    """x.cumsum(dim=1) of [N, P, D], which is several times as fast by hand, forward and backward."""

    @staticmethod
    def forward(ctx: Any, x_NPD: Tensor) -> Tensor:
        sums_NPD = x_NPD.clone()
        for place in range(1, x_NPD.shape[1]):
            sums_NPD[:, place] += sums_NPD[:, place - 1]
        return sums_NPD

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        sums_NPD = gradients[0].clone()
        for place in range(sums_NPD.shape[1] - 1, 0, -1):
            sums_NPD[:, place - 1] += sums_NPD[:, place]
        return sums_NPD


class HeadBlock(nn.Module):
    """x + w2(relu(w1(norm(x))) squared)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = RMSNorm(config.dim, eps=config.norm_eps)
        self.w1 = Linear(config.dim, 2 * config.dim)
        self.w2 = Linear(2 * config.dim, config.dim)

    def forward(self, x_ND: Tensor) -> Tensor:
        """The same shape as x."""
        return x_ND + self.w2(functional.relu(self.w1(self.norm(x_ND))).square())


class StepHead(nn.Module):
    """What comes behind the decoder's blocks in a step network, but for the output layer."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.dim, self.places = config.dim, config.places
        self.embedding = StepEmbedding(config, config.places)
        self.place = nn.Parameter(torch.empty(config.places, config.dim))
        self.offsets = 2 * config.near + 1
        self.near = nn.Parameter(torch.empty(config.places * self.offsets + 1, config.dim))
        self.near_output = Linear(config.dim, self.offsets)
        self.layers = nn.ModuleList(HeadBlock(config) for _ in range(HEAD_BLOCKS))
        self.copy_norm = RMSNorm(config.dim, eps=config.norm_eps)
        self.copy_query = Linear(config.dim, config.dim)
        self.copy_key = Linear(config.dim, config.dim)
        self.copy_gate = Linear(config.dim, config.places)
        self.copy_bias = nn.Parameter(torch.empty(KINDS, KINDS))
        self.copy_costs = nn.Parameter(torch.empty(KINDS, 2))
        self.copy_content = nn.Parameter(torch.empty(KINDS))

    # --- writing with a network

    def prefixes(self, hidden_BTD: Tensor, inputs: Inputs, beside_VO: Tensor) -> Tensor:
        """What the head knows before each token of given pieces, [B * T, P, D]; `beside_VO` as in `tokens.numbers`."""
        pieces_NP = inputs.pieces_BTP.flatten(0, 1)[:, :-1]
        rows_NP = self.embedding.rows(functional.pad(pieces_NP, (0, 1), value=-1))[:, :-1]
        assert inputs.references_BTP is not None
        places_P = torch.arange(self.places, device=hidden_BTD.device)
        near_NP = self.near_rows(inputs.pieces_BTP, inputs.references_BTP, places_P, beside_VO).flatten(0, 1)[:, :-1]
        earlier_NPD = functional.embedding(rows_NP, self.embedding.weight) + functional.embedding(near_NP, self.near)
        known_NPD = torch.cat([hidden_BTD.flatten(0, 1)[:, None], earlier_NPD], dim=1)
        return _RunningSum.apply(known_NPD) + self.place

    def refine(self, x_ND: Tensor) -> Tensor:
        """What the output layer makes logits of."""
        for block in self.layers:
            x_ND = block(x_ND)
        return x_ND

    def near_rows(self, ids_L: Tensor, references_L: Tensor, places_L: Tensor, beside_VO: Tensor) -> Tensor:
        """The row of `near` for tokens next to the reference's number at their place; the last one for all others."""
        is_it_LO = (beside_VO[references_L.clamp(min=0)] == ids_L[..., None]) & (references_L >= 0)[..., None]
        row_L = places_L * self.offsets + is_it_LO.to(torch.int8).argmax(dim=-1)
        return torch.where(is_it_LO.any(dim=-1), row_L, self.places * self.offsets)

    def add_near(self, logits_NV: Tensor, normed_ND: Tensor, references_N: Tensor, beside_VO: Tensor) -> Tensor:
        """Logits with what is said of the numbers next to the reference's."""
        count = logits_NV.shape[1]
        beside_NO = torch.where((references_N >= 0)[:, None], beside_VO[references_N.clamp(min=0)], count)
        near_NO = self.near_output(normed_ND).float()
        return functional.pad(logits_NV, (0, 1)).scatter_add(1, beside_NO, near_NO)[:, :count]

    # --- writing by copying

    def knowing_keyword(self, hidden_BTD: Tensor, pieces_BTP: Tensor) -> Tensor:
        """What is known when the keywords of given pieces are written: what to copy depends on them, [B, T, D]."""
        keywords_BT = pieces_BTP[:, :, 0].clamp(min=0)  # padding may hold NOTHING
        return hidden_BTD + functional.embedding(keywords_BT, self.embedding.weight)

    def attention(self, hidden_BTD: Tensor, known_BTD: Tensor, sources: Sources) -> Tensor:
        """How much each position looks at each earlier piece that has not been superseded, [B, T, T]."""
        queries_BTD, keys_BTD = self.copy_query(self.copy_norm(known_BTD)), self.copy_key(self.copy_norm(hidden_BTD))
        content_BT = (BIAS_SCALE / math.sqrt(self.dim)) * self.copy_content[sources.kinds_BT]
        scores_BTT = (queries_BTD * content_BT[:, :, None]) @ keys_BTD.mT + self.bias(sources)
        return torch.softmax(scores_BTT.masked_fill(sources.blocked_BTT, -math.inf), dim=-1)

    def bias(self, sources: Sources) -> Tensor:
        """What the keywords of the piece to write and of the source, and its costs, add to scores, [B, T, T]."""
        is_kind_BTK = functional.one_hot(sources.earlier_kinds_BT, KINDS).to(self.copy_bias)
        facts_BTN = torch.cat([is_kind_BTK, sources.costs_BT2], dim=-1)
        weights_KN = BIAS_SCALE * torch.cat([self.copy_bias, self.copy_costs], dim=-1)
        return functional.embedding(sources.kinds_BT, weights_KN) @ facts_BTN.mT

    def gates(self, known_LD: Tensor) -> Tensor:
        """How much copying counts at each place, [..., P]; not at all at the first, whose gate is never used."""
        return functional.pad(torch.sigmoid(self.copy_gate(self.copy_norm(known_LD))[..., 1:]), (1, 0))

    def copied(self, hidden_BTD: Tensor, inputs: Inputs) -> tuple[Tensor, Tensor]:
        """Share of copying in the mixture, and the part of it that falls to the token that is to be written.

        Both [B, T, P]: attention by the number of tokens that agree, summed from the end.
        """
        assert inputs.sources is not None
        known_BTD = self.knowing_keyword(hidden_BTD, inputs.pieces_BTP)
        attention_BTT = self.attention(hidden_BTD, known_BTD, inputs.sources)
        by_match = attention_BTT.new_zeros((*attention_BTT.shape[:2], 2 * self.places + 3))
        by_match = by_match.scatter_add(2, inputs.sources.matching_BTT, attention_BTT)[:, :, :-1]
        going_on, at_end = by_match.unflatten(-1, (2, -1)).flip(-1).cumsum(dim=-1).flip(-1).unbind(dim=-2)
        right_BTP = going_on[:, :, 1:] + at_end[:, :, 1:]
        agreeing_BTP = going_on[:, :, :-1] + at_end[:, :, 1:]
        gates_BTP = self.gates(known_BTD) / (agreeing_BTP + LEAST_MASS)
        return gates_BTP * agreeing_BTP, gates_BTP * right_BTP

    def losses(self, hidden_BTD: Tensor, inputs: Inputs, generated_N: Tensor) -> Tensor:
        """-log of each target's probability; `generated_N` is that of the network alone."""
        shares = (part.flatten() for part in self.copied(hidden_BTD, inputs))
        share_N, right_N = (part if inputs.places_N is None else part[inputs.places_N] for part in shares)
        by_network_N = torch.log1p(-share_N) - generated_N
        return -torch.logaddexp(torch.log(right_N.clamp(min=TINY)), by_network_N)

    def log_probabilities(self, hidden_BTD: Tensor, inputs: Inputs, generated_NV: Tensor) -> Tensor:
        """Log-probabilities of every token at every target, [N, V]; `generated_NV` are those of the network alone."""
        assert inputs.sources is not None
        sources, vocabulary = inputs.sources, generated_NV.shape[-1]
        known_BTD = self.knowing_keyword(hidden_BTD, inputs.pieces_BTP)
        attention_BTT = self.attention(hidden_BTD, known_BTD, sources)
        gates_BTP, copied = self.gates(known_BTD), []
        matching_BTT = sources.matching_BTT % (self.places + 1)
        for place in range(self.places):
            fits_BTT = (matching_BTT >= place) & (sources.matching_BTT < 2 * self.places + 2)
            earlier_BT = inputs.inputs_BTP[:, :, place]
            holds_BTV = functional.one_hot(earlier_BT.clamp(min=0), vocabulary) * (earlier_BT >= 0)[..., None]
            mass_BTV = (attention_BTT * fits_BTT) @ holds_BTV.to(attention_BTT)
            scale_BT1 = gates_BTP[:, :, place, None] / (mass_BTV.sum(-1, keepdim=True) + LEAST_MASS)
            copied.append(mass_BTV * scale_BT1)
        copied_NV = torch.stack(copied, dim=2).flatten(0, 2)
        copied_NV = copied_NV if inputs.places_N is None else copied_NV[inputs.places_N]
        share_N1 = copied_NV.sum(-1, keepdim=True)
        return torch.logaddexp(torch.log(copied_NV.clamp(min=TINY)), torch.log1p(-share_N1) + generated_NV)
