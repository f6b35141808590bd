"""Rotary positions: queries and keys of attention are turned by angles, so that they meet by how far apart they are.

In the published networks the angle is the position's. In a step network some heads turn by the numbers of a piece
instead (`ModelConfig.number_heads`), in attention to the prompt too: for them, a node and a wall beside it are as far
apart as they are in the grid, wherever that is. Their values are turned as well, so that what they read is relative,
too. A piece's numbers are taken two by two, as coordinates: the first of these heads turns by the first two, the second
by the next two, and so on; where a piece has fewer, by its first two. Part of each head is not turned.

Shape suffixes: B batch, L positions, P places of a piece, H heads, K width of a head, G heads that turn by numbers,
V symbols and none, F angles for one number.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from searchformer.model.config import ModelConfig

Turns = tuple[Tensor, Tensor]
"""Cosines and sines of angles that fit [B, L, H, K/2]."""

FASTEST, SLOWEST = 2.5, 0.5
"""Angles by which a difference of one in a number turns, in the first and in the last of the pairs that it turns."""


@dataclass(frozen=True)
class Rotation:
    """The turns of some sequences' positions."""

    own: Turns
    """For queries and keys of self-attention."""
    numbers: Turns | None
    """By numbers alone: for attention to a prompt, and for values; None where no head turns by numbers."""


def by_hand(x: Tensor) -> bool:
    """Whether to use what is written here for the CPU: not where torch.compile fuses the plain operations itself."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def rotate(x_BLHK: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Turn neighbouring pairs of the last axis."""
    pairs = x_BLHK.float().unflatten(-1, (-1, 2))
    if by_hand(x_BLHK):  # one pass over memory instead of seven
        turned = torch.view_as_complex(pairs.contiguous()) * torch.complex(cosines, sines)
        return torch.view_as_real(turned).flatten(-2).to(x_BLHK.dtype)
    even, odd = pairs.unbind(-1)
    turned = torch.stack((even * cosines - odd * sines, even * sines + odd * cosines), dim=-1)
    return turned.flatten(-2).to(x_BLHK.dtype)


def rotate_back(x_BLHK: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """The inverse of `rotate`."""
    return rotate(x_BLHK, cosines, -sines)


@lru_cache(maxsize=16)
def _rotary_table(positions: int, width: int, theta: float, device: torch.device) -> tuple[Tensor, Tensor]:
    frequencies = theta ** (-torch.arange(0, width, 2, dtype=torch.float32, device=device) / width)
    angles = torch.outer(torch.arange(positions, dtype=torch.float32, device=device), frequencies)
    return angles.cos(), angles.sin()


def rotary_table(positions: int, config: ModelConfig, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the angles of positions, each [positions, K/2]; computed once per power of two."""
    length = 1 << max(positions - 1, 255).bit_length()
    with torch.inference_mode(False):
        cosines, sines = _rotary_table(length, config.head_dim, config.rope_theta, device)
    return cosines[:positions], sines[:positions]


class NumberTable:
    """The turns of every symbol that is a number, and of none."""

    def __init__(self, coordinates: np.ndarray, config: ModelConfig, device: torch.device) -> None:
        """`coordinates` has the number of every symbol, -1 where it is none."""
        self.heads, self.still = config.number_heads, config.heads - config.number_heads
        self.is_number_V = torch.from_numpy(coordinates >= 0).to(device)
        self.width = config.head_dim // 2
        self.share = max(3 * self.width // 8, 1)
        slowing = torch.arange(self.share) / max(self.share - 1, 1)
        numbers = torch.from_numpy(np.append(np.maximum(coordinates, 0), 0)).float()
        angles_VF = torch.outer(numbers, FASTEST * (SLOWEST / FASTEST) ** slowing)
        self.cosines_VF, self.sines_VF = angles_VF.cos().to(device), angles_VF.sin().to(device)

    def turns(self, pieces_BLP: Tensor) -> Turns:
        """Of the heads that turn by numbers, [B, L, G, K/2]."""
        pairs_BLG2 = self._two_by_two(self._first_numbers(pieces_BLP, 2 * self.heads))
        rest = (0, self.width - 2 * self.share)
        cosines = functional.pad(self.cosines_VF[pairs_BLG2].flatten(-2), rest, value=1.0)
        return cosines, functional.pad(self.sines_VF[pairs_BLG2].flatten(-2), rest)

    def _first_numbers(self, pieces_BLP: Tensor, most: int) -> Tensor:
        """The symbols of each piece's first numbers, [B, L, most]."""
        none = len(self.is_number_V)
        is_number_BLP = (pieces_BLP >= 0) & self.is_number_V[pieces_BLP.clamp(min=0)]
        rank_BLP = torch.where(is_number_BLP, is_number_BLP.cumsum(-1) - 1, most).clamp(max=most)
        return pieces_BLP.new_full((*pieces_BLP.shape[:-1], most + 1), none).scatter(-1, rank_BLP, pieces_BLP)[..., :-1]

    def _two_by_two(self, numbers_BLN: Tensor) -> Tensor:
        """Numbers as pairs of symbols, [B, L, G, 2]: the first pair in place of those that a piece does not have."""
        found_BLG2 = numbers_BLN.unflatten(-1, (-1, 2))
        return torch.where(found_BLG2[..., 1:] != len(self.is_number_V), found_BLG2, found_BLG2[..., :1, :])

    def rotation(self, positions: Turns, pieces_BLP: Tensor) -> Rotation:
        """The turns of pieces, given those of their positions, which fit [B, L, 1, K/2]."""
        if not self.heads:
            return Rotation(positions, None)
        numbers, still = self.turns(pieces_BLP), (positions[0].new_ones(1), positions[1].new_zeros(1))

        def join(first: Tensor, last: Tensor) -> Tensor:
            return torch.cat([first.expand(*last.shape[:-2], self.still, self.width), last], dim=-2)

        own, beside = (tuple(map(join, first, numbers)) for first in (positions, still))
        return Rotation((own[0], own[1]), (beside[0], beside[1]))
