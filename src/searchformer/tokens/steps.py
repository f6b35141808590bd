"""Sequences of ids cut into pieces, and back: what a step network reads and writes at one position.

A piece of a response is a step of the search or of the plan, its keyword first:

    create 3 4 c0 c5 close 3 4 c0 c5 ... plan 3 4 eos   ->   create 3 4 c0 c5 | close 3 4 c0 c5 | ... | plan 3 4 | eos

So a position decides what the next step is when it has read all steps before. The end of a piece shows in its own
tokens: two costs in a row, the number of tokens that steps of a plan have, eos, or a keyword that is not its first
token (where a step was shorter). A piece that fills all places ends there, too: every sequence of ids, legal or not,
can be cut and joined again. A prompt is cut before every word.

Arrays: B sequences, L ids, T pieces, P places of a piece; places that a piece does not fill hold NOTHING.
"""

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numba import njit

from searchformer.domains import KEYWORDS
from searchformer.errors import SearchformerError
from searchformer.tokens.vocabulary import BOS, EOS, Vocabulary

NOTHING = -1
NUMBER, WORD, COST, CLOSE, CREATE, PLAN, END = range(7)
"""Kinds of tokens. Words include bos; the keywords and eos each have a kind of their own, from KEYWORD on."""
KEYWORD, KINDS = CLOSE, END + 1
NONE = -1
"""In place of a number."""


@dataclass(frozen=True)
class Pieces:
    """Sequences as pieces."""

    ids: np.ndarray
    """int64 [B, T, P]."""
    counts: np.ndarray
    """int64 [B]: pieces of each sequence."""


@dataclass(frozen=True, eq=False)
class Cutter:
    """Cuts sequences of one vocabulary."""

    kinds: np.ndarray
    """uint8 [V]: the kind of every token."""
    places: int
    """Most tokens of a response's piece."""
    plan_places: int
    """Most tokens of a piece that begins with the keyword of a plan."""
    prompt_places: int
    """Most tokens of a prompt's piece."""

    def responses(self, ids: np.ndarray, lengths: np.ndarray) -> Pieces:
        """Cut what follows bos in responses [B, L], eos included, of `lengths` [B] with bos and eos."""
        begins, place = np.zeros((2, *ids[:, 1:].shape), dtype=np.int64)
        _walk(self.kinds[ids[:, 1:]], lengths - 1, self.places, self.plan_places, begins, place)
        return _pieces(ids[:, 1:], lengths - 1, begins.astype(bool), place, self.places)

    def ends(self, pieces: np.ndarray, place: int) -> np.ndarray:
        """Whether pieces [R, P] that are filled up to `place` are complete, bool [R]."""
        kinds = self.kinds[pieces[:, : place + 1]]
        first, last = kinds[:, 0], kinds[:, place]
        ended = (last == END) | (place + 1 >= np.where(first == PLAN, self.plan_places, self.places))
        if place == 0:
            return ended
        return ended | (last >= KEYWORD) | (last == COST) & (kinds[:, place - 1] == COST)

    def prompts(self, ids: np.ndarray, lengths: np.ndarray) -> Pieces:
        """Cut prompts [B, L] of `lengths` [B], bos and eos included, before their words."""
        at = np.arange(ids.shape[1])
        offset = at - np.maximum.accumulate(np.where(_begins_word(self.kinds[ids]), at, 0), axis=1)
        place = offset % self.prompt_places
        return _pieces(ids, lengths, place == 0, place, self.prompt_places)

    def first_inputs(self, prompts: np.ndarray) -> np.ndarray:
        """What the decoder reads first, int64 [B, P]: bos, and the first numbers of prompts [B, S, places].

        Those say where the search starts, so that its first step can be written relative to them.
        """
        is_number = (prompts >= 0) & (self.kinds[np.maximum(prompts, 0)] == NUMBER)
        piece = is_number.any(axis=2).argmax(axis=1)[:, None, None]
        ids, is_number = (np.take_along_axis(array, piece, axis=1)[:, 0] for array in (prompts, is_number))
        first = np.full((len(prompts), self.places), NOTHING, dtype=np.int64)
        first[:, 0] = BOS
        row, column = np.nonzero(is_number)
        place = is_number.cumsum(axis=1)[row, column]
        fits = place < self.places
        first[row[fits], place[fits]] = ids[row[fits], column[fits]]
        return first

    def first_kinds(self, pieces: np.ndarray) -> np.ndarray:
        """The kind of the first token of pieces [..., P], which is the keyword of a legal one, int64 [...]."""
        return self.kinds[np.maximum(pieces[..., 0], 0)].astype(np.int64)

    def states(self, pieces: np.ndarray) -> np.ndarray:
        """A number for the state that each piece [..., P] names, int64 [...]; 0 where it names none."""
        return self._identities(pieces, self.names_state)

    def nodes(self, pieces: np.ndarray) -> np.ndarray:
        """A number for the state and the costs that each piece names: all of it but the keyword."""
        return self._identities(pieces, self.names_node)

    def _identities(self, pieces: np.ndarray, counted: np.ndarray) -> np.ndarray:
        counts = (pieces >= 0) & counted[np.maximum(pieces, 0)]
        with np.errstate(over="ignore"):
            return (np.where(counts, pieces + 1, 0) * self.factors[: pieces.shape[-1]]).sum(axis=-1)

    def superseded_at(self, pieces: np.ndarray, costs: np.ndarray) -> np.ndarray:
        """For every piece of [B, T, P] the first later one that supersedes it, int64 [B, T]; T where there is none.

        A node is superseded when it is named again with the same costs, as closing it does, or created at a lower cost
        (`costs` [B, T, 2]). The same state at another cost is another node: where boxes on docks are not written,
        states of Sokoban read alike.
        """
        states, nodes, cost = self.states(pieces), self.nodes(pieces), costs[:, :, 0]
        creates = self.creates[np.maximum(pieces[:, :, 0], 0)]
        again = (nodes[:, :, None] == nodes[:, None, :]) & (nodes != 0)[:, :, None]
        better = (states[:, :, None] == states[:, None, :]) & (states != 0)[:, :, None] & creates[:, None, :]
        better &= cost[:, None, :] < cost[:, :, None]
        supersedes = np.triu(again | better, k=1)
        return np.pad(supersedes, ((0, 0), (0, 0), (0, 1)), constant_values=True).argmax(axis=2)

    def references(self, inputs: np.ndarray) -> np.ndarray:
        """For every input [B, T, P] the last one up to it that creates nothing: the node whose children are written."""
        creates = self.creates[np.maximum(inputs[:, :, 0], 0)]
        at = np.maximum.accumulate(np.where(creates, 0, np.arange(inputs.shape[1])), axis=1)
        return np.take_along_axis(inputs, at[:, :, None], axis=1)

    @cached_property
    def creates(self) -> np.ndarray:
        """Whether each token begins a step that creates a node, bool [V]."""
        return self.kinds == CREATE

    @cached_property
    def names_state(self) -> np.ndarray:
        """Whether each token helps to name a state, bool [V]."""
        return self.names_node & (self.kinds != COST)

    @cached_property
    def names_node(self) -> np.ndarray:
        """Whether each token helps to name a node, bool [V]."""
        return (self.kinds < KEYWORD) & (np.arange(len(self.kinds)) > EOS)

    @cached_property
    def factors(self) -> np.ndarray:
        """An odd 63-bit number for every place: sums of products with them do not coincide by chance."""
        generator = np.random.Generator(np.random.PCG64(0))
        return generator.integers(1 << 62, size=max(self.places, self.prompt_places)) * 2 + 1


def _begins_word(kinds: np.ndarray) -> np.ndarray:
    return (kinds == WORD) | (kinds >= KEYWORD)


@njit(cache=True)
def _walk(
    kinds_BL: np.ndarray,
    lengths_B: np.ndarray,
    places: int,
    plan_places: int,
    begins_BL: np.ndarray,
    place_BL: np.ndarray,
) -> None:
    """Where the pieces of responses begin, and the place of every token in its piece; see `Cutter.ends`."""
    for row in range(len(kinds_BL)):
        kinds, begin = kinds_BL[row], 0
        for at in range(lengths_B[row]):
            place = place_BL[row, at] = at - begin
            begins_BL[row, at] = place == 0
            is_full = place + 1 >= (plan_places if kinds[begin] == PLAN else places)
            is_second_cost = place > 0 and kinds[at] == COST and kinds[at - 1] == COST
            if is_full or is_second_cost or kinds[at] == END or (place > 0 and kinds[at] >= KEYWORD):
                begin = at + 1


def _pieces(ids: np.ndarray, lengths: np.ndarray, begins: np.ndarray, place: np.ndarray, places: int) -> Pieces:
    """Pieces of `places` of ids [B, L], given which of these begin one, and their places."""
    valid = np.arange(ids.shape[1]) < lengths[:, None]
    number = np.cumsum(begins & valid, axis=1) - 1
    counts = number.max(axis=1, initial=-1) + 1
    pieces = np.full((len(ids), int(counts.max(initial=0)), places), NOTHING, dtype=np.int64)
    row, column = np.nonzero(valid)
    pieces[row, number[row, column], place[row, column]] = ids[row, column]
    return Pieces(pieces, counts)


def join(pieces: np.ndarray) -> np.ndarray:
    """The ids of one sequence's pieces [T, P], one after the other."""
    return pieces[pieces != NOTHING]


def token_kinds(vocabulary: Vocabulary) -> np.ndarray:
    """The kind of every token, uint8 [V], by its text; raises where the vocabulary has no keywords."""
    missing = [word for word in KEYWORDS if word not in vocabulary.ids]
    if missing:
        raise SearchformerError(
            f"a step network needs the keywords {', '.join(KEYWORDS)}; the vocabulary lacks {', '.join(missing)}"
        )
    return np.array([_kind(token) for token in vocabulary.tokens], dtype=np.uint8)


def token_numbers(vocabulary: Vocabulary) -> np.ndarray:
    """The number that every token stands for, as a coordinate or as a cost, int32 [V]; NONE for words."""
    pairs = zip(vocabulary.tokens, token_kinds(vocabulary), strict=True)
    return np.array([int(text.removeprefix("c")) if kind in (NUMBER, COST) else NONE for text, kind in pairs], np.int32)


def _kind(token: str) -> int:
    if token == "eos":
        return END
    if token in KEYWORDS:
        return {"close": CLOSE, "create": CREATE, "plan": PLAN}[token]
    if token.isdigit():
        return NUMBER
    return COST if re.fullmatch(r"c\d+", token) else WORD


def longest_piece(kinds: np.ndarray, *, prompts: bool = False) -> int:
    """Tokens of the longest piece in whole sequences, one after the other, given the kinds of their tokens [L].

    Every sequence must begin with a keyword, a prompt with a word: there the last piece of the one before ends.
    """
    begins = np.flatnonzero(_begins_word(kinds) if prompts else kinds >= KEYWORD)
    longest = int(np.diff(np.append(begins, len(kinds))).max(initial=1))
    return longest if prompts else max(longest, 2)
