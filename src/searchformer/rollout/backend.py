"""The seam between scheduling and arithmetic: what an engine asks of a device.

A backend holds weights and a cache of blocks, and nothing else: which sequence is where, how far it got and what comes
next is the engine's knowledge, handed over in `DecoderRows`. Two backends exist: `cpu.py` (compiled kernels) and
`device.py` (PyTorch operations on any device). Each has three parts: `_embed` makes the decoder's input vector, the
blocks (`decoder.py`) take it to a hidden vector, and `_next_tokens` reads tokens off that.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from searchformer.rollout.requests import Alphabet, Sampling

BLOCK = 64
"""Positions of one cache block."""


@dataclass(frozen=True)
class DecoderRows:
    """The sequences of one batch, R rows; those of the same prompt stand together."""

    slot: np.ndarray
    """int64 [R]: names the sequence as long as it runs."""
    token: np.ndarray
    """int32 [R]: the last token, a token network's next input."""
    first: np.ndarray
    """int64 [R, P]: what the decoder reads at position 0: bos, in a step network with the prompt's first numbers."""
    position: np.ndarray
    """int32 [R]: the decoder's next position, 0 for bos."""
    written: np.ndarray
    """int32 [R]: tokens written so far: the index of the one that will be drawn."""
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
    """int32 [R, tokens_at_once]: tokens to take instead of drawing, -1 for none."""


@dataclass(frozen=True)
class Drawn:
    """What `decode` drew for R rows."""

    tokens: np.ndarray
    """int32 [R, tokens_at_once]."""
    log_probabilities: np.ndarray
    """float32, the same shape."""
    counts: np.ndarray
    """int64 [R]: how many of them there are."""


class Backend(Protocol):
    """Weights and cache on one device."""

    steps: int
    """Positions to decode between two looks at the result: 1 where looking is free, more where it stalls the device."""
    tokens_at_once: int
    """The largest number of tokens drawn between two looks."""

    @property
    def block_bytes(self) -> int:
        """Memory of one cache block."""

    def reserve(self, blocks: int, *, positions: int, slots: int) -> None:
        """Prepare for so many blocks and slots, and for responses of up to `positions` positions."""

    def encode(self, prompt: np.ndarray, blocks: np.ndarray) -> None:
        """Encode a prompt's pieces [S, places]; its cross-attention keys and values of all layers go to `blocks`."""

    def decode(self, rows: DecoderRows, sampling: Sampling, alphabet: Alphabet) -> Drawn:
        """Decode `steps` positions of each row and draw what they say; `rows.state` moves on."""
