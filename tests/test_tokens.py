"""Tokens: vocabularies and digests, prompts and responses that round-trip, parse errors by name, the automaton."""

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchformer.domains import TaskError, make_domain
from searchformer.errors import SearchformerError
from searchformer.files import read_json, write_json
from searchformer.search import Options, Searcher
from searchformer.tokens import grammar
from searchformer.tokens.grammar import (
    ParseError,
    automaton_for,
    build_automaton,
    parse_response,
    write_response,
    write_text,
)
from searchformer.tokens.vocabulary import EOS, UnknownTokenError, Vocabulary


def vocabulary_of(domain):
    return Vocabulary.of(domain.token_list())


def answers(domain, draw_problems, tasks, *, seed=0):
    """Solvable problems, each with a search of it and the tokens of its prompt, trace and plan."""
    astar = Searcher(domain, Options())
    for index, problem in enumerate(draw_problems(domain, 100 * tasks, seed=seed)):
        found = astar.search(problem, seed=index)
        if found.solvable:
            yield problem, found, [part.split() for part in write_text(domain, problem, found)]
            tasks -= 1
        if not tasks:
            return


def accepts(automaton, vocabulary, tokens):
    """Does the table lead from the first token to eos?"""
    state = automaton.start
    for token in [*tokens, "eos"]:
        state = automaton.next_state[state, vocabulary.ids[token]]
        if state < 0:
            return False
    return True


def parses(domain, vocabulary, tokens):
    try:
        parse_response(domain, vocabulary, tokens)
    except ParseError:
        return False
    return True


# Vocabularies


def test_ids_are_bos_eos_then_the_tokens_sorted_as_text():
    vocabulary = Vocabulary.of(["wall", "10", "9", "c1", "close"])
    assert vocabulary.tokens == ("bos", "eos", "10", "9", "c1", "close", "wall")
    assert vocabulary.encode(["wall", "bos", "9"]).tolist() == [6, 0, 3]
    assert vocabulary.decode([6, 0, 3]) == ["wall", "bos", "9"]


def test_the_published_vocabularies_come_out():
    maze = make_domain("maze", {"width": 10, "height": 10})
    numbers, costs = [str(n) for n in range(10)], [f"c{n}" for n in range(100)]
    words = ["start", "goal", "wall", "create", "close", "plan"]
    assert vocabulary_of(maze).tokens == ("bos", "eos", *sorted([*numbers, *costs, *words]))
    sokoban = make_domain("sokoban", {"max_cost": 39_999})
    assert len(vocabulary_of(sokoban)) == 2 + 7 + 40_000 + 7


def test_a_vocabulary_survives_saving_and_loading(tmp_path, domain):
    vocabulary = vocabulary_of(domain)
    vocabulary.save(tmp_path)
    assert Vocabulary.load(tmp_path) == vocabulary
    assert Vocabulary.load(tmp_path).digest == vocabulary.digest


@settings(deadline=None)
@given(st.lists(st.text("abc019", min_size=1), min_size=1, unique=True), st.data())
def test_the_digest_changes_with_the_tokens_and_their_order(tokens, data):
    other = data.draw(st.permutations(tokens))
    same = Vocabulary(("bos", "eos", *tokens)).digest == Vocabulary(("bos", "eos", *other)).digest
    assert same == (tokens == other)
    assert Vocabulary(("bos", "eos", *tokens, "new")).digest != Vocabulary(("bos", "eos", *tokens)).digest


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda stored: stored["tokens"].append("c9999"), "was altered"),
        (lambda stored: stored["tokens"].append("create"), "lists each token once"),
        (lambda stored: stored["tokens"].pop(0), "starts with 'bos', 'eos'"),
        (lambda stored: stored.pop("digest"), "needs the fields 'tokens' and 'digest'"),
    ],
)
def test_a_spoilt_vocabulary_is_refused(tmp_path, spoil, message):
    vocabulary_of(make_domain("maze")).save(tmp_path)
    stored = read_json(tmp_path / "vocabulary.json", what="vocabulary")
    spoil(stored)
    write_json(tmp_path / "vocabulary.json", stored)
    with pytest.raises(SearchformerError, match=message):
        Vocabulary.load(tmp_path)


def test_a_missing_vocabulary_is_named(tmp_path):
    with pytest.raises(SearchformerError, match=r"holds no vocabulary: vocabulary\.json is missing"):
        Vocabulary.load(tmp_path)


def test_an_unknown_token_is_named_with_its_place():
    with pytest.raises(UnknownTokenError, match="token 2 is 'jump'"):
        vocabulary_of(make_domain("maze")).encode(["create", "1", "jump"])


def test_vocabularies_that_differ_are_told_apart_by_their_first_difference():
    small, large = (vocabulary_of(make_domain("maze", {"width": n, "height": n})) for n in (4, 5))
    small.require_same(small, mine="the model", theirs="the data")
    with pytest.raises(SearchformerError, match=r"the model has a vocabulary of .*the data.*differ from id 6 on"):
        small.require_same(large, mine="the model", theirs="the data")


def test_ids_take_two_bytes_as_long_as_they_fit():
    assert Vocabulary(("bos", "eos", *map(str, range(65_534)))).dtype == np.uint16
    assert Vocabulary(("bos", "eos", *map(str, range(65_535)))).dtype == np.uint32


# Round trips


def test_responses_round_trip(domain, draw_problems, write):
    vocabulary, count = vocabulary_of(domain), 0
    for problem, found, (prompt, trace, plan) in answers(domain, draw_problems, 20):
        obvious = write(domain, problem, found)
        assert [obvious[part].split() for part in ("prompt", "trace", "plan")] == [prompt, trace, plan]
        parsed = parse_response(domain, vocabulary, [*trace, *plan, "eos"])
        assert write_response(parsed) == trace + plan
        assert [step.kind for step in parsed.steps] == ["close" if closes else "create" for closes in found.kinds]
        assert [step.cost for step in parsed.steps] == found.costs.tolist()
        assert [step.estimate for step in parsed.steps] == found.estimates.tolist()
        assert len(parsed.plan) == len(found.plan)
        assert parse_response(domain, vocabulary, plan).plan == parsed.plan
        assert vocabulary.decode(vocabulary.encode(trace)) == trace
        count += 1
    assert count == 20


def test_prompts_round_trip_to_the_same_problem(domain, draw_problems):
    for problem in draw_problems(domain, 60, seed=4):
        tokens = np.zeros(domain.prompt_room(problem), dtype=np.int32)
        length = domain.rules.write_prompt(problem, tokens)
        text = [domain.token_text(code) for code in tokens[:length].tolist()]
        again = domain.parse_prompt(text)
        assert np.array_equal(again, problem)
        assert domain.task_id(again) == domain.task_id(problem)
        assert set(text) <= set(domain.token_list())


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("", "token 0: expected 'start'; found the end"),
        ("start 0 0", "token 3: expected 'goal'; found the end"),
        ("start 0 0 goal 0", "token 5: expected a number from 0 to 3; found 'the end'"),
        ("start 0 0 goal 0 4", "token 5: expected a number from 0 to 3; found '4'"),
        ("start 0 0 goal 0 03", "token 5: expected a number"),
        ("start 0 0 goal 0 ²", "token 5: expected a number"),
        ("start 0 0 goal 1 1 wall 2 2 plan", "token 9: expected the end; found 'plan'"),
        ("start 0 0 goal 1 1 wall 0 0", "is a wall"),
    ],
)
def test_a_prompt_that_is_no_task_is_refused_with_the_place(prompt, message):
    maze = make_domain("maze", {"width": 4, "height": 4})
    with pytest.raises(TaskError, match=message):
        maze.parse_prompt(prompt.split())


# Parse errors


GOOD = "create 0 0 c0 c2 close 0 0 c0 c2 create 0 1 c1 c1 close 0 1 c1 c1 plan 0 0 plan 0 1"
MAZE = make_domain("maze", {"width": 4, "height": 2})


@pytest.mark.parametrize(
    ("response", "kind", "position"),
    [
        ("create 0 0 c0 jump", grammar.UNKNOWN, 4),
        ("create 0 0 c0 c99", grammar.UNKNOWN, 4),
        ("create 0 0 c0", grammar.TRUNCATED, 4),
        ("create 0", grammar.TRUNCATED, 2),
        ("create 0 0 c0 close 0 0 c0 c2", grammar.TRUNCATED, 4),
        ("create 0 0 c0 c2 plan 0", grammar.TRUNCATED, 7),
        ("create 0 0 c0 c2 plan 0 plan 0 1", grammar.TRUNCATED, 7),
        ("create 0 3 c0 c2 plan 0 0", grammar.OUT_OF_RANGE, 2),
        ("plan 3 2", grammar.OUT_OF_RANGE, 2),
        ("create c0 0 c0 c2", grammar.UNEXPECTED, 1),
        ("create 0 0 0 c0 c2", grammar.UNEXPECTED, 3),
        ("close 0 0 c0 c2 plan 0 0", grammar.UNEXPECTED, 0),
        ("create 0 0 c0 c2 wall 0 0", grammar.UNEXPECTED, 5),
        ("create 0 0 c0 c2 plan 0 0 create 0 1 c1 c1", grammar.UNEXPECTED, 8),
        ("bos create 0 0 c0 c2 plan 0 0", grammar.UNEXPECTED, 0),
        ("", grammar.NO_PLAN, 0),
        ("eos", grammar.NO_PLAN, 0),
        ("create 0 0 c0 c2 close 0 0 c0 c2", grammar.NO_PLAN, 10),
        ("create 0 0 c0 c2 close 0 0 c0 c2 eos", grammar.NO_PLAN, 10),
        (f"{GOOD} eos plan 0 0", grammar.AFTER_EOS, 27),
        (f"{GOOD} eos eos", grammar.AFTER_EOS, 27),
    ],
)
def test_parse_errors_have_a_name_and_a_position(response, kind, position):
    with pytest.raises(ParseError) as caught:
        parse_response(MAZE, vocabulary_of(MAZE), response.split())
    assert (caught.value.kind, caught.value.position) == (kind, position)
    assert str(caught.value).startswith(f"token {position}: {kind}: ")


def test_every_kind_of_parse_error_is_shown_above():
    cases = test_parse_errors_have_a_name_and_a_position.pytestmark[0].args[1]
    first = (grammar.UNKNOWN, grammar.TRUNCATED, grammar.OUT_OF_RANGE)
    assert {kind for _, kind, _ in cases} == {*first, grammar.UNEXPECTED, grammar.NO_PLAN, grammar.AFTER_EOS}


def test_parse_errors_travel_between_processes():
    error = ParseError(grammar.NO_PLAN, 7, "the response ends before its plan")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.kind, again.position) == (str(error), error.kind, 7)


# The automaton


@pytest.mark.parametrize("plan_only", [False, True])
def test_what_the_automaton_walks_parses(domain, plan_only):
    vocabulary, generator = vocabulary_of(domain), np.random.default_rng(1)
    automaton = build_automaton(domain, vocabulary, plan_only=plan_only)
    for _ in range(100):
        state, tokens = automaton.start, []
        while not tokens or tokens[-1] != "eos":
            allowed = np.flatnonzero(automaton.next_state[state] >= 0)
            words = [i for i in allowed if vocabulary.tokens[i] in ("plan", "eos")]
            token = int(generator.choice(words if words and len(tokens) > 60 else allowed))
            tokens.append(vocabulary.tokens[token])
            state = int(automaton.next_state[state, token])
        parsed = parse_response(domain, vocabulary, tokens)
        assert write_response(parsed) == tokens[:-1]
        assert bool(parsed.steps) != plan_only


def test_automaton_and_parser_agree_on_mutated_answers(domain, draw_problems):
    vocabulary, generator = vocabulary_of(domain), np.random.default_rng(2)
    whole, plans = (build_automaton(domain, vocabulary, plan_only=only) for only in (False, True))
    seen = set()
    for _, _, (_, trace, plan) in answers(domain, draw_problems, 12, seed=3):
        for _ in range(60):
            tokens = mutate(trace + plan, vocabulary, generator)
            expected = accepts(plans if tokens[:1] == ["plan"] else whole, vocabulary, tokens)
            assert parses(domain, vocabulary, tokens) == expected, tokens
            seen.add(expected)
    assert seen == {True, False}


def mutate(tokens, vocabulary, generator):
    """One token replaced, left out, put in or cut off; eos is not among the new ones."""
    place = int(generator.integers(len(tokens)))
    like = [token for token in vocabulary.tokens if token[0] == tokens[place][0] and token != "eos"]
    token = str(generator.choice(like if generator.random() < 0.5 else vocabulary.tokens[2:]))
    ways = [[*tokens[:place], token, *tokens[place + 1 :]], [*tokens[:place], *tokens[place + 1 :]]]
    ways += [[*tokens[:place], token, *tokens[place:]], tokens[:place], tokens[place:]]
    return ways[int(generator.integers(len(ways)))]


def test_every_state_of_the_automaton_is_reached_and_leads_on_to_the_end(domain):
    vocabulary = vocabulary_of(domain)
    for plan_only in (False, True):
        table = build_automaton(domain, vocabulary, plan_only=plan_only).next_state
        ends = {int(state) for state in table[:, EOS] if state >= 0}
        assert len(ends) == 1
        alive, grown = ends, True
        while grown:
            more = {state for state, row in enumerate(table) if alive & set(row.tolist())}
            alive, grown = alive | more, not more <= alive
        assert alive == set(range(len(table)))
        assert set(table[table >= 0].tolist()) | {0} == alive


def test_all_short_token_sequences_are_judged_alike_by_parser_and_automaton():
    tiny = make_domain("maze", {"width": 2, "height": 2, "max_cost": 1})
    vocabulary = vocabulary_of(tiny)
    whole, plans = (build_automaton(tiny, vocabulary, plan_only=only) for only in (False, True))
    tokens = [token for token in vocabulary.tokens if token != "eos"]
    accepted = 0
    for length in range(4):
        for sequence in itertools.product(tokens, repeat=length):
            expected = accepts(plans if sequence[:1] == ("plan",) else whole, vocabulary, sequence)
            assert parses(tiny, vocabulary, list(sequence)) == expected
            accepted += expected
    assert accepted == 4


def test_the_automaton_of_a_data_set_needs_its_tokens_in_the_vocabulary():
    settings = {"width": 4, "height": 4}
    automaton = automaton_for("maze", settings, vocabulary_of(make_domain("maze", settings)))
    assert automaton is automaton_for("maze", settings, vocabulary_of(make_domain("maze", settings)))
    with pytest.raises(SearchformerError, match=r"the vocabulary lacks .* tokens of sokoban, such as "):
        automaton_for("sokoban", {}, vocabulary_of(make_domain("maze", settings)))
