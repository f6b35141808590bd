"""A look inside a model at one place of an answer, as the browser draws it."""

import threading

import numpy as np

from searchformer.model.inside import look_inside
from searchformer.solve.planning import AnswerSampler
from searchformer.tokens.vocabulary import Vocabulary
from searchformer.web.models import ModelEntry
from searchformer.web.records import InsideView, Look, TokenProbability
from searchformer.web.sampler import Sampler
from searchformer.web.searches import named_cells

SHOWN_TOKENS = 5
DIGITS = 4
"""Of probabilities and weights: enough to draw, short to send."""
_ONE_LOOK = threading.Lock()
"""All viewers share one network, and what is watched in it belongs to one look at a time."""


def view_inside(sampler: Sampler, entry: ModelEntry, asked: AnswerSampler, tokens: list[str]) -> InsideView:
    """What the model does before it writes the token after `tokens`."""
    model, vocabulary = sampler.model(entry.directory)
    prompt = np.asarray(vocabulary.encode(asked.prompt), dtype=np.int64)
    answer = np.asarray(vocabulary.encode(tokens), dtype=np.int64)
    with _ONE_LOOK:
        found = look_inside(model, prompt, answer)
    best = np.argsort(-found.probabilities)[:SHOWN_TOKENS].tolist()
    likeliest = [(vocabulary.tokens[token], round(float(found.probabilities[token]), DIGITS)) for token in best]
    return InsideView(
        model=entry.name,
        unit=model.config.unit,
        layers=model.config.layers,
        heads=model.config.heads,
        next_tokens=[TokenProbability(token=token, probability=share) for token, share in likeliest],
        prompt=_looks(found.prompt_pieces, found.to_prompt, vocabulary),
        answer=_looks(found.answer_pieces, found.to_answer, vocabulary),
    )


def _looks(pieces: list[list[int]], weights_LHS: np.ndarray, vocabulary: Vocabulary) -> list[Look]:
    """Each position with its tokens, the cells that they name, and its weights by layer and head.

    In a token network `wall 3 4` is three positions; each of them gets the cell.
    """
    texts = [vocabulary.decode(piece) for piece in pieces]
    cells = [named_cells(text) for text in texts]
    if all(len(text) == 1 for text in texts):
        cells = _cells_of_numbers([text[0] for text in texts])
    weights = np.round(weights_LHS.transpose(2, 0, 1).astype(float), DIGITS).tolist()
    return [Look(tokens=text, cells=at, weights=each) for text, at, each in zip(texts, cells, weights, strict=True)]


def _cells_of_numbers(tokens: list[str]) -> list[list[list[int]]]:
    """For tokens one by one: the cell that a pair of numbers names, at both of them and at the word before."""
    cells: list[list[list[int]]] = [[] for _ in tokens]
    first = None
    for place, token in enumerate(tokens):
        if not token.isdecimal():
            first = None
        elif first is None:
            first = place
        else:
            word = first - 1 if first and not tokens[first - 1].isdecimal() else first
            for each in range(word, place + 1):
                cells[each] = [[int(tokens[first]), int(token)]]
            first = None
    return cells
