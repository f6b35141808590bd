"""Numbers among the tokens: which symbols are coordinates or costs, and which of these are next to each other.

A step network reads and writes numbers relative to those of another piece: one further right, one more in cost.

Arrays: V tokens, Y symbols (`symbols.py`), O offsets from -near to near.
"""

from dataclasses import dataclass

import numpy as np

from searchformer.tokens.steps import COST, NONE, NUMBER
from searchformer.tokens.symbols import Symbols


@dataclass(frozen=True, eq=False)
class Numbers:
    """The numbers of a network's symbols."""

    coordinates: np.ndarray
    """int64 [Y]; NONE for symbols that are words or costs."""
    costs: np.ndarray
    """float32 [Y]; 0 for symbols that are no costs."""
    beside: np.ndarray
    """int64 [Y, O]: the symbol of the same kind whose number is so much larger; Y where there is none."""

    @classmethod
    def of(cls, kinds: np.ndarray, numbers: np.ndarray, symbols: Symbols, near: int) -> "Numbers":
        """From the kinds and numbers [V] of all tokens. A symbol that several tokens share is no number."""
        first = symbols.first_token
        kind, number = kinds[first], np.where(symbols.sizes > 1, NONE, numbers[first]).astype(np.int64)
        place = {(k, n): symbol for symbol, (k, n) in enumerate(zip(kind, number, strict=True)) if n != NONE}
        beside = np.full((len(first), 2 * near + 1), len(first))
        for (k, n), symbol in place.items():
            beside[symbol] = [place.get((k, n + offset), len(first)) for offset in range(-near, near + 1)]
        costs = np.where((kind == COST) & (number != NONE), number, 0).astype(np.float32)
        return cls(np.where(kind == NUMBER, number, NONE), costs, beside)

    def costs_of(self, pieces: np.ndarray) -> np.ndarray:
        """The costs in the last two places that pieces [..., P] fill, float32 [..., 2]; 0 where there is none."""
        last = (pieces >= 0).sum(axis=-1, keepdims=True) - [2, 1]
        symbols = np.take_along_axis(pieces, np.maximum(last, 0), axis=-1)
        return np.where((last >= 0) & (symbols >= 0), self.costs[np.maximum(symbols, 0)], np.float32(0.0))
