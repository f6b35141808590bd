"""The entropy of A*'s traces: against the probability of a search taken apart by hand, and as a floor of the loss."""

import math

import numpy as np
import pytest

from searchformer.domains import make_domain
from searchformer.search import Options, Searcher
from searchformer.tokens.entropy import CHILDREN, COSTS, FIELDS, PLAN, NotASearchError, Yardstick, search_nats
from searchformer.tokens.grammar import write_text
from searchformer.tokens.vocabulary import Vocabulary

MAZE = {"width": 3, "height": 3, "start": [1, 1], "goal": [2, 2], "walls": []}


@pytest.fixture
def maze():
    domain = make_domain("maze", {"width": 3, "height": 3})
    return domain, domain.encode(MAZE), Vocabulary.of(domain.token_list())


def trace_of(domain, problem, vocabulary, seed, **options):
    found = Searcher(domain, Options(**options)).search(problem, seed=seed)
    _, trace, plan = write_text(domain, problem, found)
    return vocabulary.encode(trace.split()), vocabulary.encode(plan.split())


def test_a_search_counted_by_hand(maze):
    """From the middle: four children in any order, then those of one of them."""
    domain, problem, vocabulary = maze
    trace, _ = trace_of(domain, problem, vocabulary, seed=0)
    nats = Yardstick(vocabulary).floor(trace)
    text = " ".join(vocabulary.decode(trace))
    assert text.startswith("create 1 1 c0 c2 close 1 1 c0 c2 create")
    after = text.split("close")[2]
    children = after.count("create")
    assert nats[CHILDREN] == pytest.approx(math.log(24) + math.lgamma(children + 1))


def test_it_is_the_surprise_of_the_search_itself(maze):
    """exp(-floor) is a trace's probability: those of all different traces sum to one."""
    domain, problem, vocabulary = maze
    traces = {trace_of(domain, problem, vocabulary, seed)[0].tobytes() for seed in range(20_000)}
    found = [np.frombuffer(trace, vocabulary.dtype) for trace in traces]
    chances = [math.exp(-Yardstick(vocabulary).floor(trace).sum()) for trace in found]
    assert sum(chances) == pytest.approx(1.0, abs=0.02)  # the rarest may not have come up


def test_deterministic_searches_leave_nothing_to_chance(maze):
    trace, _ = trace_of(*maze, seed=0, deterministic=True)
    assert Yardstick(maze[2], deterministic=True).floor(trace).sum() == 0


def test_every_domain_can_be_measured(domain, draw_problems):
    vocabulary, seen = Vocabulary.of(domain.token_list()), 0
    for problem in draw_problems(domain, 20):
        found = Searcher(domain).search(problem)
        if found.solvable:
            trace, plan = (vocabulary.encode(text.split()) for text in write_text(domain, problem, found)[1:])
            yardstick = Yardstick(vocabulary)
            assert yardstick.floor(trace).sum() == pytest.approx(search_nats(found))
            fields = yardstick.fields(np.concatenate([trace, plan]), len(trace))
            counts = np.bincount(fields, minlength=len(FIELDS))
            assert counts[PLAN] == len(plan)
            assert counts[COSTS] == 2 * found.created
            seen += 1
    assert seen


def test_a_search_is_measured_where_its_text_is_ambiguous(draw_problems):
    """Sokoban's paper format leaves out boxes on docks, so a state with a box on either dock reads the same."""
    domain = make_domain("sokoban", {"width": 7, "height": 7, "walls": 2, "boxes": 2})
    searcher, yardstick = Searcher(domain), Yardstick(Vocabulary.of(domain.token_list()))
    refused = 0
    for problem in draw_problems(domain, 12):
        found = searcher.search(problem)
        assert search_nats(found) >= 0
        trace = yardstick.vocabulary.encode(write_text(domain, problem, found)[1].split())
        try:
            yardstick.floor(trace)
        except NotASearchError:
            refused += 1
    assert refused


@pytest.mark.parametrize(
    "text", ["0 0 c0 c2", "create 0 0 c0", "close 0 0 c0 c2", "plan 0 0 c0 c1", "create 0 0 c0 c1 close"]
)
def test_what_is_no_search_is_not_measured(maze, text):
    vocabulary = maze[2]
    with pytest.raises(NotASearchError):
        Yardstick(vocabulary).floor(vocabulary.encode(text.split()))


def test_a_node_not_of_least_f_is_not_astars(maze):
    vocabulary = maze[2]
    text = "create 0 0 c0 c4 close 0 0 c0 c4 create 0 1 c1 c3 create 1 0 c1 c5 close 1 0 c1 c5"
    with pytest.raises(NotASearchError):
        Yardstick(vocabulary).floor(vocabulary.encode(text.split()))
