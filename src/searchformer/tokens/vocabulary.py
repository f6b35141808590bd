"""A vocabulary: tokens in id order, with a digest. It is data, stored with every data set and checkpoint.

In: the tokens a domain can write. Out: ids and back. `bos` is 0, `eos` is 1, the others follow sorted as text.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from searchformer.errors import SearchformerError, shown
from searchformer.files import read_json, write_json

BOS, EOS = 0, 1
FILE_NAME = "vocabulary.json"


class UnknownTokenError(SearchformerError):
    """A token is not in the vocabulary."""


@dataclass(frozen=True)
class Vocabulary:
    """Tokens in id order; `tokens[BOS] == "bos"`, `tokens[EOS] == "eos"`."""

    tokens: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.tokens[:2] != ("bos", "eos"):
            raise SearchformerError(f"a vocabulary starts with 'bos', 'eos'; found {shown(list(self.tokens[:2]))}")
        if len(set(self.tokens)) != len(self.tokens):
            raise SearchformerError("a vocabulary lists each token once; found duplicates")

    @classmethod
    def of(cls, tokens: Iterable[str]) -> "Vocabulary":
        """The vocabulary of these tokens (without bos and eos), in the canonical order."""
        return cls(("bos", "eos", *sorted(tokens)))

    @classmethod
    def load(cls, directory: Path) -> "Vocabulary":
        """Read `vocabulary.json` in `directory` and check its digest."""
        path = Path(directory) / FILE_NAME
        stored = read_json(path, what="vocabulary")
        try:
            tokens, digest = stored["tokens"], stored["digest"]
        except KeyError as error:
            raise SearchformerError(f"{path} needs the fields 'tokens' and 'digest': {error} is missing") from error
        if not isinstance(tokens, list):
            raise SearchformerError(f"{path}: 'tokens' is a list of texts; found {shown(tokens)}")
        wrong = next((token for token in tokens if not isinstance(token, str)), None)
        if wrong is not None or None in tokens:
            raise SearchformerError(f"{path}: a token is a text; found {shown(wrong)}")
        vocabulary = cls(tuple(tokens))
        if vocabulary.digest != digest:
            raise SearchformerError(f"{path} was altered: its digest is {vocabulary.digest}, it says {shown(digest)}")
        return vocabulary

    def save(self, directory: Path) -> None:
        """Write `vocabulary.json` into `directory`."""
        write_json(Path(directory) / FILE_NAME, {"digest": self.digest, "tokens": list(self.tokens)})

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def digest(self) -> str:
        """BLAKE2b-128 of the tokens in order, as hex."""
        return hashlib.blake2b("\n".join(self.tokens).encode(), digest_size=16).hexdigest()

    @cached_property
    def ids(self) -> dict[str, int]:
        """Token to id."""
        return {token: index for index, token in enumerate(self.tokens)}

    @property
    def dtype(self) -> np.dtype:
        """The narrowest of uint16 and uint32 that holds every id."""
        return np.dtype(np.uint16 if len(self) <= 1 << 16 else np.uint32)

    def encode(self, tokens: Sequence[str]) -> np.ndarray:
        """Ids of `tokens`, shape [len(tokens)]."""
        try:
            return np.array([self.ids[token] for token in tokens], dtype=self.dtype)
        except KeyError:
            position, token = next((i, t) for i, t in enumerate(tokens) if t not in self.ids)
            raise UnknownTokenError(f"token {position} is {shown(token)}, which the vocabulary does not have") from None

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Tokens of `ids`."""
        return [self.tokens[index] for index in ids]

    def require_same(self, other: "Vocabulary", *, mine: str, theirs: str) -> None:
        """Raise, naming both sides and the first difference, unless `other` is this vocabulary."""
        if self.tokens == other.tokens:
            return
        pairs = zip(self.tokens, other.tokens, strict=False)
        first = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(self), len(other)))
        raise SearchformerError(
            f"{mine} has a vocabulary of {len(self)} tokens ({self.digest[:8]}), {theirs} one of {len(other)} "
            f"({other.digest[:8]}); they differ from id {first} on. Use a data set and a model that belong together"
        )
