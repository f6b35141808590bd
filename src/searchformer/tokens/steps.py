"""Sequences of ids cut into pieces, and back: what a step network reads and writes at one position.

A response is cut behind every keyword (create, close, plan) and behind eos:

    create 3 4 c0 c5 close 3 4 c0 c5 create ...   ->   create | 3 4 c0 c5 close | 3 4 c0 c5 create | ...

A piece thus ends with the keyword of the next step, so that nobody has to say how long a step is. A prompt is cut
before every word. A piece that fills all places ends there, too: every sequence of ids, legal or not, can be cut and
joined again. Arrays: B sequences, L ids, T pieces, P places of a piece; places that a piece does not fill hold NOTHING.
"""

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from searchformer.domains import KEYWORDS
from searchformer.errors import SearchformerError
from searchformer.tokens.vocabulary import EOS, Vocabulary

NOTHING = -1
NUMBER, WORD, COST, KEYWORD = range(4)
"""Kinds of tokens. Words include bos; keywords include eos."""


@dataclass(frozen=True)
class Pieces:
    """Sequences as pieces."""

    ids: np.ndarray
    """int64 [B, T, P]."""
    counts: np.ndarray
    """int64 [B]: pieces of each sequence."""
    keywords: np.ndarray
    """int64 [B, T]: the keyword that began the step which a piece belongs to; NOTHING for the first."""


@dataclass(frozen=True, eq=False)
class Cutter:
    """Cuts sequences of one vocabulary."""

    kinds: np.ndarray
    """uint8 [V]: the kind of every token."""
    places: int
    """Most tokens of a response's piece."""
    prompt_places: int
    """Most tokens of a prompt's piece."""

    def responses(self, ids: np.ndarray, lengths: np.ndarray) -> Pieces:
        """Cut what follows bos in responses [B, L], eos included, of `lengths` [B] with bos and eos."""
        ids, lengths = ids[:, 1:], lengths - 1
        ends = self.kinds[ids] == KEYWORD
        behind_end = np.zeros_like(ends)
        behind_end[:, 1:] = ends[:, :-1]
        pieces, counts, first = _cut(ids, lengths, behind_end, self.places)
        at = np.arange(ids.shape[1])
        last = np.maximum.accumulate(np.where(ends, at, -1), axis=1)
        before = np.pad(last, ((0, 0), (1, 0)), constant_values=-1)[:, :-1]
        where = np.take_along_axis(before, first, axis=1)
        keyword = np.take_along_axis(ids, np.maximum(where, 0), axis=1)
        unused = np.arange(first.shape[1]) >= counts[:, None]
        return Pieces(pieces, counts, np.where((where < 0) | unused, NOTHING, keyword))

    def prompts(self, ids: np.ndarray, lengths: np.ndarray) -> Pieces:
        """Cut prompts [B, L] of `lengths` [B], bos and eos included, before their words."""
        begins = (self.kinds[ids] == WORD) | (self.kinds[ids] == KEYWORD)
        pieces, counts, first = _cut(ids, lengths, begins, self.prompt_places)
        return Pieces(pieces, counts, np.full(first.shape, NOTHING))

    def identities(self, pieces: np.ndarray) -> np.ndarray:
        """A number for the state that each piece [..., P] names, int64 [...]; 0 where it names none.

        Costs and keywords are left out: equal numbers mean that a step speaks of the same node again.
        """
        named = (pieces >= 0) & self.names_state[np.maximum(pieces, 0)]
        with np.errstate(over="ignore"):
            return (np.where(named, pieces + 1, 0) * self.factors[: pieces.shape[-1]]).sum(axis=-1)

    @cached_property
    def names_state(self) -> np.ndarray:
        """Whether each token helps to name a state, bool [V]."""
        return (self.kinds != COST) & (self.kinds != KEYWORD) & (np.arange(len(self.kinds)) > EOS)

    @cached_property
    def factors(self) -> np.ndarray:
        """An odd 63-bit number for every place: sums of products with them do not coincide by chance."""
        generator = np.random.Generator(np.random.PCG64(0))
        return generator.integers(1 << 62, size=max(self.places, self.prompt_places)) * 2 + 1


def _cut(
    ids: np.ndarray, lengths: np.ndarray, begins: np.ndarray, places: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pieces [B, T, places] that begin where `begins` [B, L] says, their counts [B], and where each begins, [B, T]."""
    at = np.arange(ids.shape[1])
    valid = at < lengths[:, None]
    offset = at - np.maximum.accumulate(np.where(begins, at, 0), axis=1)
    begins = (offset % places == 0) & valid
    number = np.cumsum(begins, axis=1) - 1
    counts = begins.sum(axis=1)
    pieces = np.full((len(ids), int(counts.max(initial=0)), places), NOTHING, dtype=np.int64)
    row, column = np.nonzero(valid)
    pieces[row, number[row, column], offset[row, column] % places] = ids[row, column]
    first = np.zeros(pieces.shape[:2], dtype=np.int64)
    row, column = np.nonzero(begins)
    first[row, number[row, column]] = column
    return pieces, counts, first


def join(pieces: np.ndarray) -> np.ndarray:
    """The ids of one sequence's pieces [T, P], one after the other."""
    return pieces[pieces != NOTHING]


def next_alike(identities: np.ndarray) -> np.ndarray:
    """For every piece of [B, T] the next one of its row with the same identity, int64; T where there is none."""
    rows, length = identities.shape
    order = np.argsort(identities, axis=1, kind="stable")
    ordered = np.take_along_axis(identities, order, axis=1)
    follows = np.full((rows, length), length, dtype=np.int64)
    follows[:, :-1] = np.where((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != 0), order[:, 1:], length)
    found = np.empty_like(follows)
    np.put_along_axis(found, order, follows, axis=1)
    return found


def token_kinds(vocabulary: Vocabulary) -> np.ndarray:
    """The kind of every token, uint8 [V], by its text; raises where the vocabulary has no keywords."""
    missing = [word for word in KEYWORDS if word not in vocabulary.ids]
    if missing:
        raise SearchformerError(
            f"a step network needs the keywords {', '.join(KEYWORDS)}; the vocabulary lacks {', '.join(missing)}"
        )
    return np.array([_kind(token) for token in vocabulary.tokens], dtype=np.uint8)


def _kind(token: str) -> int:
    if token in KEYWORDS or token == "eos":
        return KEYWORD
    if token.isdigit():
        return NUMBER
    return COST if re.fullmatch(r"c\d+", token) else WORD


def longest_piece(kinds: np.ndarray, *, prompts: bool = False) -> int:
    """Tokens of the longest piece in whole sequences, one after the other, given the kinds of their tokens [L].

    Every sequence must begin with a keyword, a prompt with a word: there the last piece of the one before ends.
    """
    ends = (kinds == WORD) | (kinds == KEYWORD) if prompts else kinds == KEYWORD
    places = np.append(np.flatnonzero(ends), len(kinds))
    longest = int(np.diff(places).max(initial=1))
    return longest if prompts else max(longest, 2)
