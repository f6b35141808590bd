"""What a network is given: sequences of ids in, tensors of pieces of symbols out, for token and step networks alike.

Shape suffixes: B sequences, S prompt positions, T response positions, P places of a piece, N tokens to predict in all
sequences.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from searchformer.model.rotary import by_hand
from searchformer.tokens.numbers import Numbers
from searchformer.tokens.steps import NOTHING, Cutter
from searchformer.tokens.symbols import Symbols
from searchformer.tokens.vicinity import Vicinity


@dataclass(frozen=True)
class Sources:
    """What a step network may copy from: at position t the pieces up to t - 1, which stand at the inputs up to t."""

    matching_BTT: Tensor
    """int64: how many tokens of the piece to write (first T) agree with an earlier one (second T) before they differ,
    where first tokens, which are keywords, count as alike; P + 1 more where the earlier piece is at its end there, and
    2 P + 2 where there is nothing to copy at all."""
    blocked_BTT: Tensor
    """bool: the piece comes later, or its node has come up again since: not to be copied."""
    kinds_BT: Tensor
    """int64: the kind of the keyword of the piece to write."""
    earlier_kinds_BT: Tensor
    """int64: the kind of the keyword of each input."""
    costs_BT2: Tensor
    """float32: the costs of each input."""


@dataclass(frozen=True)
class Inputs:
    """A micro-batch on the device."""

    prompts_BSP: Tensor
    prompt_lengths_B: Tensor | None
    """None when all prompts are of the same length, so that attention needs no mask."""
    inputs_BTP: Tensor
    """What the decoder reads at each position: the piece before; at first `Cutter.first_inputs`."""
    pieces_BTP: Tensor
    """What it is to write there."""
    places_N: Tensor | None
    """Where in the flattened [B * T * P] the tokens to predict are; None when they are everywhere."""
    targets_N: Tensor
    shared_N: Tensor | None
    """ln of the number of tokens that share the target's symbol; None when none does."""
    weights_N: Tensor
    """1 / number of predicted tokens of the sequence: the weighted sum is the sum over sequences of their mean."""
    references_BTP: Tensor | None = None
    """The piece that numbers are written relative to (`Cutter.references`); None for token networks."""
    sources: Sources | None = None
    """None for token networks."""
    near_rows: tuple[Tensor, Tensor] | None = None
    """What stands near each position's node, `Vicinity.of_sequences`; None for networks that are not told."""


def make_inputs(
    prompts: np.ndarray,
    prompt_lengths: np.ndarray,
    responses: np.ndarray,
    response_lengths: np.ndarray,
    *,
    cutter: Cutter | None,
    numbers: Numbers | None,
    symbols: Symbols,
    vicinity: Vicinity | None,
    device: torch.device,
) -> Inputs:
    """Tensors of padded ids [B, L], bos and eos included; without a `cutter`, every token is a piece of its own."""
    prompts, responses = symbols.of_token[prompts], symbols.of_token[responses]

    def tensor(array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device, non_blocking=True)

    told: dict[str, Any] = {}
    if cutter is None:
        prompt_pieces, prompt_counts = prompts[:, :, None], prompt_lengths
        inputs, pieces = responses[:, :-1, None], responses[:, 1:, None]
        real = (np.arange(pieces.shape[1]) < (response_lengths - 1)[:, None])[:, :, None]
    else:
        assert numbers is not None
        cut = cutter.prompts(prompts, prompt_lengths)
        prompt_pieces, prompt_counts = cut.ids, cut.counts
        pieces = cutter.responses(responses, response_lengths).ids
        inputs, real = decoder_inputs(pieces, cutter.first_inputs(prompt_pieces)), pieces != NOTHING
        told = _told(prompt_pieces, inputs, pieces, cutter, numbers, vicinity, tensor)
    counts = response_lengths - 1
    targets = pieces[real]
    shared = symbols.log_sizes[targets]
    uneven = bool((prompt_counts != prompt_pieces.shape[1]).any())
    return Inputs(
        prompts_BSP=tensor(prompt_pieces),
        prompt_lengths_B=tensor(prompt_counts) if uneven else None,
        inputs_BTP=tensor(inputs),
        pieces_BTP=tensor(pieces),
        places_N=None if real.all() else tensor(np.flatnonzero(real)),
        targets_N=tensor(targets),
        shared_N=tensor(shared) if shared.any() else None,
        weights_N=tensor(np.repeat((1.0 / counts).astype(np.float32), counts)),
        **told,
    )


def _told(
    prompts: np.ndarray,
    inputs: np.ndarray,
    pieces: np.ndarray,
    cutter: Cutter,
    numbers: Numbers,
    vicinity: Vicinity | None,
    tensor: Callable[[np.ndarray], Tensor],
) -> dict[str, Any]:
    """What a step network is told beside its tokens: fields of `Inputs`."""
    references, costs = cutter.references(inputs), numbers.costs_of(inputs)
    superseded_at = np.ones(pieces.shape[:2], np.int64)  # bos is superseded by the first piece
    superseded_at[:, 1:] = cutter.superseded_at(pieces[:, :-1], costs[:, 1:]) + 1
    sources = make_sources(
        tensor(inputs),
        tensor(pieces),
        superseded_at_BT=tensor(superseded_at),
        kinds_BT=tensor(cutter.first_kinds(pieces)),
        earlier_kinds_BT=tensor(cutter.first_kinds(inputs)),
        costs_BT2=tensor(costs),
    )
    told: dict[str, Any] = {"references_BTP": tensor(references), "sources": sources}
    if vicinity is not None:
        facts = vicinity.things(prompts), inputs, references, costs[:, :, 0], superseded_at
        told["near_rows"] = tuple(map(tensor, vicinity.of_sequences(*facts)))
    return told


def decoder_inputs(pieces: np.ndarray, first: np.ndarray) -> np.ndarray:
    """What the decoder reads at position t: piece t - 1, at first `first` [B, P]."""
    return np.concatenate([first[:, None], pieces[:, :-1]], axis=1)


def make_sources(
    earlier_BTP: Tensor,
    pieces_BTP: Tensor,
    *,
    superseded_at_BT: Tensor,
    kinds_BT: Tensor,
    earlier_kinds_BT: Tensor,
    costs_BT2: Tensor,
) -> Sources:
    """How the pieces to write agree with earlier ones; `superseded_at_BT` says at which input a node comes again."""
    at_T = torch.arange(pieces_BTP.shape[1], device=pieces_BTP.device)
    later_TT = at_T[:, None] < at_T
    if by_hand(pieces_BTP):
        matching_BTT = torch.from_numpy(count_matching_by_hand(pieces_BTP.numpy(), earlier_BTP.numpy()))
    else:
        matching_BTT = count_matching(pieces_BTP, earlier_BTP)
    return Sources(
        matching_BTT=matching_BTT,
        blocked_BTT=later_TT | (at_T[None, :, None] >= superseded_at_BT[:, None, :]),
        kinds_BT=kinds_BT,
        earlier_kinds_BT=earlier_kinds_BT,
        costs_BT2=costs_BT2,
    )


def count_matching(pieces_BTP: Tensor, earlier_BTP: Tensor) -> Tensor:
    """`Sources.matching_BTT`."""
    length, places = pieces_BTP.shape[1:]
    at_T = torch.arange(length, device=pieces_BTP.device)
    matching_BTT = torch.ones((len(pieces_BTP), length, length), dtype=torch.int64, device=pieces_BTP.device)
    agrees_BTT = torch.ones_like(matching_BTT, dtype=torch.bool)
    for place in range(1, places):
        agrees_BTT &= pieces_BTP[:, :, None, place] == earlier_BTP[:, None, :, place]
        matching_BTT += agrees_BTT
    tokens_BT = (earlier_BTP != NOTHING).sum(dim=-1)
    matching_BTT += (places + 1) * (matching_BTT == tokens_BT[:, None, :])
    nothing_TT = (at_T[:, None] < at_T) | (at_T == 0)  # later ones, and bos is never copied
    return matching_BTT.masked_fill(nothing_TT, 2 * places + 2)


@njit(cache=True)
def count_matching_by_hand(pieces_BTP: np.ndarray, earlier_BTP: np.ndarray) -> np.ndarray:
    """The same on the CPU, where most pairs need only one look: they differ at once."""
    batch, length, places = pieces_BTP.shape
    matching_BTT = np.full((batch, length, length), 2 * places + 2)
    for b in range(batch):
        tokens_T = (earlier_BTP[b] != NOTHING).sum(axis=1)
        for t in range(length):
            for earlier in range(1, t + 1):
                count = 1
                while count < places and pieces_BTP[b, t, count] == earlier_BTP[b, earlier, count]:
                    count += 1
                matching_BTT[b, t, earlier] = count + (places + 1) * (count == tokens_T[earlier])
    return matching_BTT
