"""How well a search can be imitated at all: the exact entropy of non-deterministic A*, from the traces of a data set.

A* draws which of the open nodes of least f is closed, uniformly, and the order of the children it creates; everything
else follows. So the loss of a perfect imitator is ln(open nodes of least f) at every close and ln(k!) for every k
children. What a model loses beyond that, by kind of token, says what it has not learnt.
In: a response's ids, or a search itself. Out: nats. Where two states are written alike (Sokoban's paper format), the
text of a response decides, and may not tell which of them was closed; a search knows.
"""

import math
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from searchformer.records import Trace
from searchformer.tokens.steps import COST, KEYWORD, token_kinds
from searchformer.tokens.vocabulary import Vocabulary

FIELDS = ("closed", "children", "costs", "plan")
"""Kinds of tokens: the node that is closed; what is created, with the keywords; a created node's costs; the plan."""
CLOSED, CHILDREN, COSTS, PLAN = range(len(FIELDS))


class NotASearchError(Exception):
    """A trace is no execution of the search that it is measured by."""


def search_nats(found: Trace) -> float:
    """What a search of non-deterministic A* has decided by chance: minus the logarithm of its probability.

    `Yardstick.floor` is the same for its text, wherever that tells all states apart.
    """
    f = found.costs + found.estimates
    return float(_count_nats(zip(found.kinds.tolist(), found.nodes.tolist(), f.tolist(), strict=True)).sum())


@dataclass(frozen=True, eq=False)
class Yardstick:
    """Measures responses in one vocabulary, written by one search algorithm."""

    vocabulary: Vocabulary
    weight: float = 1.0
    """Of the heuristic in f."""
    deterministic: bool = False
    """Whether ties were broken by a rule: then nothing is left to chance."""

    @cached_property
    def _kinds(self) -> np.ndarray:
        return token_kinds(self.vocabulary)

    def fields(self, ids: np.ndarray, plan_start: int) -> np.ndarray:
        """The field of every token of a response without bos; its plan begins at `plan_start`."""
        kinds, at = self._kinds[ids], np.arange(len(ids))
        is_keyword = kinds >= KEYWORD
        keyword = ids[np.maximum(np.maximum.accumulate(np.where(is_keyword, at, -1)), 0)]
        found = np.full(len(ids), CHILDREN)
        found[kinds == COST] = COSTS
        found[(keyword == self.vocabulary.ids["close"]) & ~is_keyword] = CLOSED
        found[plan_start:] = PLAN
        return found

    def floor(self, trace: np.ndarray) -> np.ndarray:
        """Least nats of a trace, by field; raises NotASearchError."""
        return np.zeros(len(FIELDS)) if self.deterministic else _count_nats(self._steps(trace.tolist()))

    def _steps(self, ids: list[int]) -> list[tuple[bool, tuple[int, ...], float]]:
        """(whether it closes, state, f) of every step of a trace."""
        begins = [place for place, token in enumerate(ids) if self._kinds[token] >= KEYWORD]
        if begins[:1] != [0]:
            raise NotASearchError
        steps = []
        for begin, end in zip(begins, [*begins[1:], len(ids)], strict=True):
            *state, g, h = ids[begin + 1 : end] if end - begin > 3 else [-1, -1, -1]
            keyword = self.vocabulary.tokens[ids[begin]]
            if g not in self._costs or h not in self._costs or keyword not in ("create", "close"):
                raise NotASearchError
            steps.append((keyword == "close", tuple(state), self._costs[g] + self.weight * self._costs[h]))
        return steps

    @cached_property
    def _costs(self) -> dict[int, int]:
        tokens = enumerate(self.vocabulary.tokens)
        return {index: int(token[1:]) for index, token in tokens if self._kinds[index] == COST}


def _count_nats(steps: Iterable[tuple[bool, Hashable, float]]) -> np.ndarray:
    """Nats by field of steps (whether it closes, state, f); raises NotASearchError."""
    nats, frontier, created = np.zeros(len(FIELDS)), _Frontier(), 0
    for closes, state, f in steps:
        if closes:
            nats[CHILDREN] += math.lgamma(created + 1)
            created = 0
            nats[CLOSED] += math.log(frontier.close(state, f))
        else:
            frontier.add(state, f)
            created += 1
    return nats


class _Frontier:
    """Open nodes with their f."""

    def __init__(self) -> None:
        self.known: dict[Hashable, list[float]] = {}
        self.count: Counter[float] = Counter()

    def add(self, state: Hashable, f: float) -> None:
        """A node is created, or reached at a lower cost."""
        open_ = self.known.setdefault(state, [])
        worse = [each for each in open_ if each > f]
        if worse:
            self._remove(state, max(worse))
        open_.append(f)
        self.count[f] += 1

    def close(self, state: Hashable, f: float) -> int:
        """Close a node of least f; how many there were to choose from."""
        if f not in self.known.get(state, ()) or f != min(self.count):
            raise NotASearchError
        choices = self.count[f]
        self._remove(state, f)
        return choices

    def _remove(self, state: Hashable, f: float) -> None:
        self.known[state].remove(f)
        self.count[f] -= 1
        if not self.count[f]:
            del self.count[f]
