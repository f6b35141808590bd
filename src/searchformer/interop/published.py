"""What the paper's published files are called, and which of our domains and sizes those names mean.

In: names such as `maze:10x10`, `maze.10-by-10-deterministic.simple`, `enc-s`. Out: domains, vocabularies, sizes.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from searchformer.domains import Domain, make_domain
from searchformer.errors import SearchformerError
from searchformer.files import read_json
from searchformer.tokens.vocabulary import FILE_NAME, Vocabulary

SIZES = {"s": "15M", "m-s": "46M", "l": "175M", "xl-2": "747M"}
"""The published networks' names and ours."""
SOKOBAN_COSTS = 40_000
"""Cost tokens of the published Sokoban vocabulary."""
MAZE_NAME = re.compile(r"maze\.(\d{1,4})-by-(\d{1,4})-(non)?deterministic\b")
SOKOBAN_NAME = re.compile(r"sokoban\.(\d{1,4})-by-(\d{1,4})-walls-(\d{1,3})-boxes-(\d{1,3})\b")


@dataclass(frozen=True)
class Language:
    """A vocabulary, and the domain that it is for, where that is known."""

    vocabulary: Vocabulary
    domain: str | None
    settings: dict[str, Any]

    @classmethod
    def of(cls, domain: Domain) -> "Language":
        """The tokens that a domain writes."""
        return cls(Vocabulary.of(domain.token_list()), domain.name, domain.model_dump())

    def facts(self) -> dict[str, Any]:
        """The domain as a model's `config.json` names it; nothing if it is not known."""
        return {"domain": self.domain, "settings": self.settings} if self.domain else {}


def parse_domain(text: str) -> Domain:
    """`maze:10x10` or `sokoban` (7x7, as published, unless it says `sokoban:9x9`) as the published data's domain."""
    match = re.fullmatch(r"(maze|sokoban)(?::(\d{1,4})x(\d{1,4}))?", text)
    if not match or (match[1] == "maze" and not match[2]):
        raise SearchformerError(f"expected maze:WxH, such as maze:10x10, or sokoban; found {text!r}")
    size = {"width": int(match[2]), "height": int(match[3])} if match[2] else {}
    return make_domain(match[1], size | ({"max_cost": SOKOBAN_COSTS - 1} if match[1] == "sokoban" else {}))


def domain_of_dataset(name: str, *, advice: str = "say it with --domain maze:WxH") -> tuple[Domain, bool]:
    """The domain of a published data set by its name, and whether its searches are deterministic."""
    if match := MAZE_NAME.match(name):
        return make_domain("maze", {"width": int(match[1]), "height": int(match[2])}), match[3] is None
    if match := SOKOBAN_NAME.match(name):
        numbers = dict(zip(("width", "height", "walls", "boxes"), map(int, match.groups()), strict=True))
        return make_domain("sokoban", numbers | {"max_cost": SOKOBAN_COSTS - 1}), False
    raise SearchformerError(
        f"the name {name!r} does not say which tasks these are: expected maze.W-by-H-[non]deterministic... or "
        f"sokoban.W-by-H-walls-N-boxes-N...; {advice}"
    )


def read_language(text: str) -> Language:
    """`maze:10x10`, `sokoban`, a `vocabulary.json`, or the directory of a data set or model that has one."""
    path = Path(text)
    if path.is_file() and path.name == FILE_NAME:
        path = path.parent
    if not path.is_dir():
        return Language.of(parse_domain(text))
    vocabulary = Vocabulary.load(path)
    for name, part in (("manifest.json", "config"), ("config.json", "trained")):
        if (path / name).is_file():
            known = read_json(path / name, what="data set or model").get(part, {})
            return Language(vocabulary, known.get("domain"), known.get("settings", {}))
    return Language(vocabulary, None, {})
