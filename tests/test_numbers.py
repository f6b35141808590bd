"""Numbers in step networks: what is next to what, by which angles heads turn, and that only differences count."""

import numpy as np
import pytest
import torch

from searchformer.model import ModelConfig
from searchformer.model.layers import Attention
from searchformer.model.rotary import NumberTable, rotate, rotate_back
from searchformer.tokens.numbers import Numbers
from searchformer.tokens.steps import NONE, NOTHING, Cutter, token_kinds, token_numbers
from searchformer.tokens.symbols import Symbols, costs_of, symbols_for
from searchformer.tokens.vocabulary import Vocabulary

WORDS = Vocabulary.of(
    [*map(str, range(20)), *(f"c{cost}" for cost in range(9)), "create", "close", "plan", "wall", "c"]
)
CONFIG = ModelConfig(
    vocabulary=len(WORDS), unit="step", dim=48, layers=1, heads=3, ffn=8, number_heads=2, near=2, places=8
)


def numbers_of(symbols: Symbols | None = None, near: int = 2) -> Numbers:
    symbols = symbols or Symbols(np.arange(len(WORDS)))
    return Numbers.of(token_kinds(WORDS), token_numbers(WORDS), symbols, near)


def pieces_of(*texts: str) -> torch.Tensor:
    """Pieces [1, L, P] of a sequence."""
    rows = [WORDS.encode(text.split()).tolist() for text in texts]
    return torch.tensor([[row + [NOTHING] * (8 - len(row)) for row in rows]])


def table(config: ModelConfig = CONFIG) -> NumberTable:
    return NumberTable(numbers_of().coordinates, config, torch.device("cpu"))


# --- which numbers are next to each other


def test_numbers_and_costs_are_next_to_those_of_their_own_kind_only():
    beside, ids = numbers_of().beside, WORDS.ids
    assert beside[ids["10"]].tolist() == [ids[text] for text in ("8", "9", "10", "11", "12")]
    assert beside[ids["c0"]].tolist() == [len(WORDS)] * 2 + [ids[text] for text in ("c0", "c1", "c2")]
    assert beside[ids["19"]].tolist()[3:] == [len(WORDS)] * 2
    for word in ("create", "wall", "c", "bos", "eos"):
        assert (beside[ids[word]] == len(WORDS)).all()


def test_coordinates_are_numbers_but_not_costs_or_words():
    coordinates = numbers_of().coordinates
    expected = [int(text) if text.isdigit() else NONE for text in WORDS.tokens]
    assert coordinates.tolist() == expected


def test_a_symbol_that_several_costs_share_is_next_to_nothing():
    symbols = symbols_for(costs_of(WORDS), 4)
    shared = symbols.of_token[WORDS.ids["c8"]]
    found = numbers_of(symbols)
    assert symbols.sizes[shared] > 1
    assert (found.beside[shared] == symbols.count).all()
    last = symbols.of_token[WORDS.ids["c5"]]
    assert found.beside[last].tolist()[3:] == [symbols.count] * 2


def test_the_reference_is_the_last_piece_that_creates_nothing():
    cutter = Cutter(token_kinds(WORDS), 8, 3, 3)
    texts = [
        "bos",
        "create 1 2 c0 c5",
        "close 1 2 c0 c5",
        "create 1 3 c1 c4",
        "create 2 2 c1 c4",
        "plan 1 2",
        "plan 1 3",
    ]
    references = cutter.references(pieces_of(*texts).numpy())
    assert [references[0, t].tolist() for t in range(7)] == [
        pieces_of(texts[at])[0, 0].tolist() for at in (0, 0, 2, 2, 2, 5, 6)
    ]


# --- turning by numbers


def test_heads_take_the_numbers_of_a_piece_two_by_two_and_the_first_two_where_there_are_fewer():
    none = len(WORDS)
    pieces = pieces_of("create 1 2 wall 3 4 c1 c2", "wall 5 6", "wall 7", "eos")
    ids = {text: WORDS.ids[text] for text in map(str, range(8))}
    found = table()
    assert found._two_by_two(found._first_numbers(pieces, 4))[0].tolist() == [
        [[ids["1"], ids["2"]], [ids["3"], ids["4"]]],
        [[ids["5"], ids["6"]], [ids["5"], ids["6"]]],
        [[ids["7"], none], [ids["7"], none]],
        [[none, none], [none, none]],
    ]


def test_turning_back_undoes_turning():
    x = torch.randn(1, 2, 2, 16)
    turns = table().turns(pieces_of("wall 3 4", "close 11 0 c0 c1"))
    assert torch.allclose(rotate_back(rotate(x, *turns), *turns), x, atol=1e-6)
    assert not torch.allclose(rotate(x, *turns), x, atol=1e-1)


@pytest.mark.parametrize("moved", [(1, 0), (0, 7), (9, 4)])
def test_heads_that_turn_by_numbers_see_where_things_are_from_here_and_not_where_they_are(moved):
    """A node and walls, all moved by the same amount: such heads read the same."""

    def read(dx: int, dy: int) -> torch.Tensor:
        attention = Attention(CONFIG)
        for name, weight in sorted(attention.named_parameters()):
            torch.nn.init.normal_(weight, std=0.4, generator=torch.Generator().manual_seed(len(name)))
        torch.nn.init.eye_(attention.wo.weight)
        here = pieces_of(f"close {2 + dx} {3 + dy} c0 c1")
        walls = pieces_of(*(f"wall {x + dx} {y + dy}" for x, y in ((1, 3), (2, 2), (6, 0))))
        vectors = torch.randn(1, 4, 48, generator=torch.Generator().manual_seed(7))
        still = torch.ones(1), torch.zeros(1)
        rotations = [table().rotation(still, pieces) for pieces in (here, walls)]
        return attention.to_prompt(vectors[:, :1], vectors[:, 1:], *rotations, None)

    with torch.inference_mode():
        assert torch.allclose(read(0, 0), read(*moved), atol=1e-5)
