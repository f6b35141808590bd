"""Sequences cut into pieces: every sequence comes back whole, and the vectorised cut is the obvious one."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from step_models import searches_of

from searchformer.domains import KEYWORDS
from searchformer.errors import SearchformerError
from searchformer.tokens.steps import (
    CLOSE,
    COST,
    CREATE,
    END,
    NOTHING,
    NUMBER,
    PLAN,
    WORD,
    Cutter,
    join,
    longest_piece,
    token_kinds,
)
from searchformer.tokens.vocabulary import EOS, Vocabulary

KINDS = st.lists(st.sampled_from([NUMBER, WORD, COST, CLOSE, CREATE, PLAN]), min_size=1, max_size=8).map(
    lambda kinds: np.array([WORD, END, *kinds], dtype=np.uint8)
)


@st.composite
def cuttings(draw):
    """A cutter of any vocabulary, and a padded batch of any ids with its lengths."""
    kinds = draw(KINDS)
    places = draw(st.integers(1, 6))
    cutter = Cutter(kinds, places, draw(st.integers(1, places)), draw(st.integers(1, 6)))
    lengths = np.array(draw(st.lists(st.integers(1, 25), min_size=1, max_size=4)))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    ids = generator.integers(len(kinds), size=(len(lengths), lengths.max() + draw(st.integers(0, 3))))
    return cutter, ids, lengths


def cut_response(cutter, ids):
    """Pieces of what follows the first id: their ends are found as they are written."""
    pieces, piece = [], []
    for token in ids[1:]:
        piece.append(token)
        if cutter.ends(np.array([piece]), len(piece) - 1)[0]:
            pieces.append(piece)
            piece = []
    return [*pieces, piece] if piece else pieces


def cut_prompt(cutter, ids):
    pieces = []
    for token in ids:
        begins = cutter.kinds[token] in (WORD, CLOSE, CREATE, PLAN, END)
        if not pieces or begins or len(pieces[-1]) == cutter.prompt_places:
            pieces.append([])
        pieces[-1].append(token)
    return pieces


def as_lists(cut, row):
    return [join(piece[None]).tolist() for piece in cut.ids[row, : cut.counts[row]]]


@given(cuttings())
@settings(max_examples=120, deadline=None)
def test_every_response_is_cut_as_the_obvious_loop_does_and_joined_again(cutting):
    cutter, ids, lengths = cutting
    cut = cutter.responses(ids, lengths)
    for row, length in enumerate(lengths):
        own = ids[row, :length].tolist()
        assert as_lists(cut, row) == cut_response(cutter, own)
        assert join(cut.ids[row]).tolist() == own[1:]
        assert (cut.ids[row, cut.counts[row] :] == NOTHING).all()


@given(cuttings())
@settings(max_examples=120, deadline=None)
def test_every_prompt_is_cut_as_the_obvious_loop_does_and_joined_again(cutting):
    cutter, ids, lengths = cutting
    cut = cutter.prompts(ids, lengths)
    for row, length in enumerate(lengths):
        own = ids[row, :length].tolist()
        assert as_lists(cut, row) == cut_prompt(cutter, own)
        assert join(cut.ids[row]).tolist() == own


@given(cuttings())
@settings(max_examples=100, deadline=None)
def test_numbers_of_states_and_nodes_are_equal_where_the_same_tokens_stand_at_the_same_places(cutting):
    cutter, ids, lengths = cutting
    pieces = cutter.responses(ids, lengths).ids.reshape(-1, cutter.places)

    def names(piece, kinds):
        named = [(place, token) for place, token in enumerate(piece.tolist()) if token > EOS]
        return tuple(pair for pair in named if cutter.kinds[pair[1]] in kinds)

    for identify, kinds in ((cutter.states, (NUMBER, WORD)), (cutter.nodes, (NUMBER, WORD, COST))):
        found, named = identify(pieces), [names(piece, kinds) for piece in pieces]
        assert [bool(identity) for identity in found] == [bool(each) for each in named]
        assert len(set(found.tolist())) == len(set(named))
        assert len(set(zip(found.tolist(), named, strict=True))) == len(set(named))


@given(cuttings())
@settings(max_examples=100, deadline=None)
def test_a_piece_is_superseded_where_an_obvious_loop_says_so(cutting):
    cutter, ids, lengths = cutting
    pieces = cutter.responses(ids, lengths).ids
    costs = np.random.default_rng(len(ids)).integers(3, size=(*pieces.shape[:2], 2)).astype(np.float32)

    def named(piece, kinds):
        return [(at, token) for at, token in enumerate(piece.tolist()) if token > EOS and cutter.kinds[token] in kinds]

    def supersedes(row, later, at):
        first, second = pieces[row, at], pieces[row, later]
        if (node := named(first, (NUMBER, WORD, COST))) and node == named(second, (NUMBER, WORD, COST)):
            return True
        state = named(first, (NUMBER, WORD))
        creates = second[0] >= 0 and cutter.kinds[second[0]] == CREATE
        return (
            bool(state)
            and state == named(second, (NUMBER, WORD))
            and creates
            and costs[row, later, 0] < costs[row, at, 0]
        )

    found, length = cutter.superseded_at(pieces, costs), pieces.shape[1]
    for row in range(len(pieces)):
        for at in range(length):
            later = [other for other in range(at + 1, length) if supersedes(row, other, at)]
            assert found[row, at] == (later[0] if later else length)


def test_legal_responses_have_one_piece_per_step_and_prompts_one_per_word(domain):
    searches = searches_of(domain)
    vocabulary, (places, plan_places, prompt_places) = searches.vocabulary, searches.places
    kinds = token_kinds(vocabulary)
    cutter = Cutter(kinds, places, plan_places, prompt_places)
    for prompt, response in zip(searches.prompts, searches.responses, strict=True):
        cut = cutter.responses(response[None], np.array([len(response)]))
        words = vocabulary.decode(response)
        assert cut.counts[0] == sum(word in (*KEYWORDS, "eos") for word in words)
        assert join(cut.ids[0]).tolist() == response[1:].tolist()
        assert all(vocabulary.decode(piece)[0] in (*KEYWORDS, "eos") for piece in as_lists(cut, 0))
        asked = cutter.prompts(prompt[None], np.array([len(prompt)]))
        assert asked.counts[0] == sum(kinds[token] in (WORD, END) for token in prompt)
        assert join(asked.ids[0]).tolist() == prompt.tolist()
    narrower = Cutter(kinds, places - 1, plan_places, prompt_places)
    assert pieces_of(narrower, searches.responses) > pieces_of(cutter, searches.responses)


def pieces_of(cutter, responses):
    return sum(int(cutter.responses(each[None], np.array([len(each)])).counts[0]) for each in responses)


def test_closing_a_node_and_creating_it_again_name_the_node_that_was_created(smallest):
    searches = searches_of(smallest, tasks=1)
    vocabulary, (response,) = searches.vocabulary, searches.responses
    cutter = Cutter(token_kinds(vocabulary), *searches.places)
    cut = cutter.responses(response[None], np.array([len(response)]))
    identities, by_node = cutter.nodes(cut.ids)[0], {}
    for piece, identity in zip(as_lists(cut, 0), identities, strict=True):
        if piece[0] in (vocabulary.ids["create"], vocabulary.ids["close"]):
            by_node.setdefault(tuple(piece[1:]), set()).add(identity)  # behind the keyword
    assert len(by_node) > 2
    assert all(len(found) == 1 for found in by_node.values())
    assert len(set.union(*by_node.values())) == len(by_node)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        (
            "create 0 1 c0 c0 close 0 1 c0 c0 plan 0 1 plan 1 1 eos",
            "create 0 1 c0 c0|close 0 1 c0 c0|plan 0 1|plan 1 1|eos",
        ),
        ("create 0 c0 c0 close 0 c0 c0 plan 0 1 eos", "create 0 c0 c0|close 0 c0 c0|plan 0 1|eos"),  # of any length
        ("create 0 1 1 0 c0 c0 close 1 eos", "create 0 1 1 0|c0 c0|close 1 eos"),  # longer than the places
        ("create 0 close plan 0 plan 1 1 eos", "create 0 close|plan 0 plan|1 1 eos"),  # too short
        ("0 create 0 c0 1 c0 c0 c0 c0 c0", "0 create|0 c0 1 c0 c0|c0 c0|c0"),
        ("eos create eos", "eos|create eos"),
    ],
)
def test_a_piece_ends_where_its_own_tokens_say_so(text, pieces):
    vocabulary = Vocabulary.of(["create", "close", "plan", "0", "1", "c0"])
    ids = vocabulary.encode(["bos", *text.split()]).astype(np.int64)
    cut = Cutter(token_kinds(vocabulary), 5, 3, 1).responses(ids[None], np.array([len(ids)]))
    assert [" ".join(vocabulary.decode(piece)) for piece in as_lists(cut, 0)] == pieces.split("|")


def test_tokens_are_of_the_kind_that_their_text_says():
    vocabulary = Vocabulary.of(["create", "close", "plan", "0", "12", "c0", "c117", "c", "cx", "wall", "create2"])
    kinds = dict(zip(vocabulary.tokens, token_kinds(vocabulary).tolist(), strict=True))
    expected = {
        CLOSE: "close",
        CREATE: "create",
        PLAN: "plan",
        END: "eos",
        NUMBER: "0 12",
        COST: "c0 c117",
        WORD: "bos c cx wall create2",
    }
    assert kinds == {token: kind for kind, tokens in expected.items() for token in tokens.split()}


def test_a_vocabulary_without_keywords_is_refused_in_one_line():
    with pytest.raises(SearchformerError, match="needs the keywords create, close, plan; the vocabulary lacks close"):
        token_kinds(Vocabulary.of(["create", "plan", "0"]))
    with pytest.raises(SearchformerError, match=r"lacks create, close, plan$"):
        token_kinds(Vocabulary.of("abc"))


@given(st.integers(0, 2**32 - 1), st.booleans())
@settings(max_examples=100, deadline=None)
def test_the_longest_piece_is_that_of_the_longest_step(seed, prompts):
    generator = np.random.default_rng(seed)
    begins = (CLOSE, CREATE, PLAN, END, *([WORD] if prompts else []))
    kinds = np.array([begins[-1], *generator.integers(7, size=generator.integers(0, 40))], dtype=np.uint8)
    starts = [at for at, kind in enumerate(kinds) if kind in begins] + [len(kinds)]
    longest = max(end - start for start, end in pairwise(starts))
    assert longest_piece(kinds, prompts=prompts) == (longest if prompts else max(longest, 2))


def test_the_longest_piece_of_nothing_leaves_room_for_one():
    empty = np.empty(0, dtype=np.uint8)
    assert (longest_piece(empty), longest_piece(empty, prompts=True)) == (2, 1)
