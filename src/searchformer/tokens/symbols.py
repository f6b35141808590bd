"""The symbols that a step network tells apart: one for each token, but a single one for all costs that data never use.

A vocabulary may hold tens of thousands of costs of which a data set uses sixty. A table with a row for each of them, at
each place of a step, would be large and slow, and would learn nothing about the others. So ids become symbols where
they enter a network, and the probability of a symbol is that of its tokens together, each as likely as the next.
Arrays: V tokens, Y symbols. Where nothing is shared, symbols are ids.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from searchformer.tokens.steps import COST, NONE, token_kinds, token_numbers
from searchformer.tokens.vocabulary import Vocabulary

ROOM = 1.25
"""Costs up to this many times the highest of the data have a symbol of their own, too: other tasks may need them."""


@dataclass(frozen=True, eq=False)
class Symbols:
    """Which symbol stands for each token."""

    of_token: np.ndarray
    """int64 [V]; symbols are numbered from 0."""

    @classmethod
    def sharing(cls, shared: np.ndarray) -> "Symbols":
        """The last symbol for all tokens that are `shared`, bool [V], where they are several; else one for each."""
        own = ~shared if shared.sum() > 1 else np.ones_like(shared)
        return cls(np.where(own, np.cumsum(own) - 1, own.sum()))

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.sizes)

    @cached_property
    def sizes(self) -> np.ndarray:
        """Tokens of each symbol, int64 [Y]."""
        return np.bincount(self.of_token)

    @cached_property
    def log_sizes(self) -> np.ndarray:
        """What a token's log-probability is below its symbol's, float32 [Y]."""
        return np.log(self.sizes).astype(np.float32)

    @property
    def shared(self) -> np.ndarray:
        """Whether each token shares its symbol with others, bool [V]."""
        return self.sizes[self.of_token] > 1

    @cached_property
    def first_token(self) -> np.ndarray:
        """The first token of each symbol, int64 [Y]; mostly the only one."""
        return np.unique(self.of_token, return_index=True)[1]

    def tokens(self, symbol: int) -> np.ndarray:
        """All tokens of a symbol, in order."""
        return np.flatnonzero(self.of_token == symbol)

    def with_any(self, tokens: np.ndarray) -> np.ndarray:
        """Which symbols have a token among `tokens`, bool [..., V]; bool [..., Y]."""
        found = np.take(tokens, self.first_token, axis=-1)
        for symbol in np.flatnonzero(self.sizes > 1):
            found[..., symbol] = tokens[..., self.of_token == symbol].any(axis=-1)
        return found


def costs_of(vocabulary: Vocabulary) -> np.ndarray:
    """The cost that each token stands for, int32 [V]; -1 for tokens that are none."""
    return np.where(token_kinds(vocabulary) == COST, token_numbers(vocabulary), NONE)


def symbols_for(costs: np.ndarray, highest: int) -> Symbols:
    """The symbols of a network for data whose `highest` cost is this one (-1: none); `costs` are the vocabulary's."""
    return Symbols.sharing(costs > max(ROOM * highest, -1))
