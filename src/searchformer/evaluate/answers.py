"""Answers as people and language models write them: a plan as our tokens, as moves, or as coordinates.

In: a task and a text, such as `plan 0 0 plan 1 0`, `rrdd`, `right, down`, `(0, 0) -> (1, 0)`, `[[0, 0], [1, 0]]`; or
a list of tokens, moves or pairs of coordinates.
Out: the answer as our tokens, for the judge; a move that cannot be made becomes a step that the judge refuses.
"""

import json
import re
from typing import Any

import numpy as np

from searchformer.domains import KEYWORDS, Domain
from searchformer.errors import SearchformerError
from searchformer.search.world import World

LETTERS = re.compile(r"[udlr\s,;]*[udlr][udlr\s,;]*", re.IGNORECASE)
WORDS = re.compile(r"(?:\s*\b(?:up|down|left|right)\b[\s,;>→-]*)+", re.IGNORECASE)
COORDINATES = re.compile(r"[\s\[\](),;>→-]*\d{1,4}[\d\s\[\](),;>→-]*")
NEGATIVE = re.compile(r"[\[(,;]\s*-\s*\d")
"""A minus in front of a number, and not the dash between two pairs."""


def answer_text(answer: Any) -> str:
    """An answer of a JSON file as text; a list may hold tokens, moves, or coordinates."""
    if isinstance(answer, list):
        return " ".join(answer) if all(isinstance(each, str) for each in answer) else json.dumps(answer)
    if not isinstance(answer, str):
        raise SearchformerError(f'expected "answer", a text or list of tokens, moves or coordinates; found {answer!r}')
    return answer


def answer_tokens(domain: Domain, problem: np.ndarray, text: str) -> list[str]:
    """The answer as tokens. What is none of the known forms is returned as it stands, for the judge to refuse."""
    tokens = text.split()
    shape = domain.shapes.plan
    in_cells = len(shape) == 1 and shape[0].word is None and len(shape[0].limits) == 2
    if any(token in KEYWORDS for token in tokens) or not in_cells:
        return tokens
    if LETTERS.fullmatch(text):
        return _walked(domain, problem, "".join(re.findall(r"[udlr]", text.lower())))
    if WORDS.fullmatch(text):
        return _walked(domain, problem, "".join(word[0] for word in re.findall(r"[a-z]+", text.lower())))
    if COORDINATES.fullmatch(text) and not NEGATIVE.search(text):
        numbers = [str(int(number)) for number in re.findall(r"\d+", text)]
        pairs = zip(numbers[::2], numbers[1::2], strict=False)
        return [token for x, y in pairs for token in ("plan", x, y)] if len(numbers) % 2 == 0 else tokens
    return tokens


def _walked(domain: Domain, problem: np.ndarray, letters: str) -> list[str]:
    """The plan of moves from the start. A blocked move stays where it is, which is no legal step."""
    world = World(domain, problem)
    state = world.start()
    tokens = ["plan", *world.plan_tokens(state)]
    for letter in letters:
        for child in world.successors(state):
            moved = domain.moves(problem, np.array([state, child], dtype=np.int32))
            if moved is not None and moved.lower() == letter:
                state = child
                break
        tokens += ["plan", *world.plan_tokens(state)]
    return tokens
