"""The seam between scheduling and arithmetic: what an engine asks of a device.

A backend holds weights and a cache of blocks, and nothing else: which sequence is where, how far it got and what comes
next is the engine's knowledge, handed over in `DecoderRows`. Two backends exist: `cpu.py` (compiled kernels) and
`device.py` (PyTorch operations on any device). Each has three parts: `_embed` makes the decoder's input vector, the
blocks (`decoder.py`) take it to a hidden vector, and `_next_tokens` reads tokens off that.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from searchformer.rollout.requests import Sampling

BLOCK = 64
"""Positions of one cache block."""


@dataclass(frozen=True)
class DecoderRows:
    """The sequences of one batch, R rows; those of the same prompt stand together."""

    token: np.ndarray
    """int32 [R]: the last token, the decoder's next input."""
    position: np.ndarray
    """int32 [R]: its position, bos being 0; also the index of the token that will be drawn."""
    table: np.ndarray
    """int32 [R, T]: cache blocks of the sequence, in order; they reach at least `steps` positions further."""
    prompt_table: np.ndarray
    """int32 [R, P]: cache blocks with the prompt's keys and values."""
    prompt_length: np.ndarray
    """int32 [R]: positions of the prompt, bos and eos included."""
    key: np.ndarray
    """uint64 [R]: see `noise_key`."""
    state: np.ndarray
    """int32 [R]: the automaton's state."""
    forced: np.ndarray
    """int32 [R, steps]: tokens to take instead of drawing, -1 for none."""


class Backend(Protocol):
    """Weights and cache on one device."""

    steps: int
    """Tokens to draw between two looks at the result: 1 where looking is free, more where it stalls the device."""

    @property
    def block_bytes(self) -> int:
        """Memory of one cache block."""

    def reserve(self, blocks: int, *, positions: int) -> None:
        """Prepare for block numbers below `blocks` and responses of up to `positions` positions."""

    def encode(self, prompt: np.ndarray, blocks: np.ndarray) -> None:
        """Encode a prompt (ids incl. bos and eos); its cross-attention keys and values of all layers go to `blocks`."""

    def decode(self, rows: DecoderRows, sampling: Sampling, next_state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Draw `steps` tokens for each row. Returns tokens int32 and log-probabilities float32, both [R, steps].

        `next_state` is the automaton's table, with no rows when everything is allowed.
        """
