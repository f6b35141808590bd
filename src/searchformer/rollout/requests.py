"""What a sampler is asked and what it answers: prompts and sampling settings in, answers out. No torch is needed.

Shape suffixes: R rows, S states of an automaton, V symbols.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from searchformer.errors import SearchformerError
from searchformer.seeding import child_seed, digest
from searchformer.tokens.grammar import Automaton
from searchformer.tokens.symbols import Symbols
from searchformer.tokens.vocabulary import BOS, EOS, UnknownTokenError, Vocabulary

Finish = Literal["eos", "max_tokens"]
OTHER_KEY = (1 << 64) - 1
"""Turns a key into another one, for noise of its own."""


@dataclass(frozen=True)
class Prompt:
    """One task to answer."""

    task_id: str
    """Names the task; the noise of its answers is derived from it."""
    tokens: np.ndarray
    """int64 [length]: ids, without bos and eos."""
    samples: tuple[int, ...] | None = None
    """Which samples to draw; None for 0, 1, ... up to the number asked for."""


@dataclass(frozen=True)
class Answer:
    """One finished answer."""

    task_id: str
    prompt: int
    """Index of the prompt among those given."""
    sample: int
    tokens: np.ndarray
    """int32 [length]: ids without bos and eos, a forced prefix included."""
    finish: Finish
    """`eos`: the model ended it; `max_tokens`: it was cut."""
    log_probability: float
    """Sum over the sampled tokens, eos included, of the model's own log-probability (temperature 1, nothing cut)."""


@dataclass(frozen=True)
class Sampling:
    """How the next token is drawn."""

    temperature: float = 1.0
    """Divides the logits; 0 takes the most probable token."""
    top_k: int = 0
    """Only the k most probable tokens; 0 for all."""
    top_p: float = 1.0
    """Only the smallest set of most probable tokens that holds this share of the probability."""

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise SearchformerError(f"a temperature is 0 (greedy) or positive; found {self.temperature}")
        if self.top_k < 0:
            raise SearchformerError(f"top-k is 0 (all tokens) or positive; found {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise SearchformerError(f"top-p is above 0 and at most 1; found {self.top_p}")


@dataclass(frozen=True)
class Alphabet:
    """What is drawn: a model's symbols, and those of them that an automaton allows.

    Temperature, top-k and top-p take a symbol for one token. Where tokens share the symbol that was drawn, one of them
    is written, each as likely as the next; with an automaton, one that it allows.
    """

    symbols: Symbols
    next_state: np.ndarray
    """int32 [states, tokens]: the automaton's table; no states when everything is allowed."""
    allowed_SV: np.ndarray
    """bool: whether a token of the symbol may come next."""

    @classmethod
    def of(cls, symbols: Symbols, automaton: Automaton | None) -> "Alphabet":
        """The alphabet of a model for answers that an automaton restricts."""
        next_state = automaton.next_state if automaton else np.empty((0, len(symbols.of_token)), np.int32)
        return cls(symbols, next_state, symbols.with_any(next_state >= 0))

    def token(self, symbol: int, state: int, key: int, position: int) -> int:
        """The token to write at `position`, where `symbol` was drawn; the noise is that of the other key."""
        tokens = self.symbols.tokens(symbol)
        if len(self.next_state):
            tokens = tokens[self.next_state[state, tokens] >= 0]
        return int(tokens[int(uniform(key ^ OTHER_KEY, position) * len(tokens))])

    def write(
        self,
        symbol_R: np.ndarray,
        log_probability_R: np.ndarray,
        forced_R: np.ndarray,
        state_R: np.ndarray,
        key_R: np.ndarray,
        position_R: np.ndarray,
    ) -> np.ndarray:
        """The tokens to write for the symbols drawn, [R]; forced ones stay. Log-probabilities become the tokens'."""
        if self.symbols.count == len(self.symbols.of_token):
            return symbol_R
        drawn_R = np.flatnonzero(forced_R < 0)
        chosen_R, token_R = symbol_R[drawn_R], symbol_R.copy()
        token_R[drawn_R] = self.symbols.first_token[chosen_R]
        log_probability_R[drawn_R] -= self.symbols.log_sizes[chosen_R]
        for row in drawn_R[self.symbols.sizes[chosen_R] > 1]:
            token_R[row] = self.token(symbol_R[row], state_R[row], int(key_R[row]), int(position_R[row]))
        return token_R

    def after(self, state_R: Any, token_R: Any) -> Any:
        """The automaton's next states, of one row or several; where it allowed no such token, it begins again."""
        return self.next_state[state_R, token_R].clip(min=0) if len(self.next_state) else state_R


def noise_key(seed: int, task_id: str, sample: int) -> int:
    """64 bits from which all noise of one answer is derived, whatever batch, slot or worker it runs in."""
    return child_seed(seed, f"rollout/{task_id}", sample)


def uniform(key: int, position: int) -> float:
    """The number in [0, 1) that decides the token at `position` (0 for the first after bos): splitmix64."""
    mask = (1 << 64) - 1
    z = (key + (position + 1) * 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    z ^= z >> 31
    return (z >> 11) * 2.0**-53


def make_prompt(given: "Prompt | Sequence[str] | Sequence[int] | np.ndarray", vocabulary: Vocabulary) -> Prompt:
    """A prompt from tokens or ids (without bos and eos), named by its content; a `Prompt` is checked and returned."""
    if not isinstance(given, Prompt):
        words = len(given) > 0 and isinstance(given[0], str)
        ids = vocabulary.encode(given) if words else given  # type: ignore[arg-type]
        tokens = np.asarray(ids, dtype=np.int64)
        given = Prompt(digest(",".join(map(str, tokens)).encode()), tokens)
    check_ids(given.tokens, vocabulary, what=f"the prompt of task {given.task_id}")
    return given


def check_ids(ids: np.ndarray, vocabulary: Vocabulary, *, what: str) -> None:
    """Raise unless every id is a token other than bos and eos."""
    wrong = np.flatnonzero((ids < 0) | (ids >= len(vocabulary)) | (ids == BOS) | (ids == EOS))
    if len(wrong):
        raise UnknownTokenError(
            f"{what}: token {wrong[0]} has id {ids[wrong[0]]}; expected ids from 2 to {len(vocabulary) - 1}"
        )
