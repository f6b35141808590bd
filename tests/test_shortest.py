"""The shortest true search: against every optimal plan written out, and as a metric."""

import itertools

import numpy as np
import pytest

from searchformer.evaluate.metrics import Scores, share_of_possible_saving, shortest_search_length
from searchformer.search import Searcher
from searchformer.search.shortest import shortest_search_length as shortest_of
from searchformer.search.validate import Validator, codes_of
from searchformer.search.world import World


def optimal_plans(world, state, left):
    """All plans of exactly `left` nodes from `state` on."""
    if left == 1:
        return [[state]] if world.is_goal(state) else []
    return [[state, *rest] for child in world.successors(state) for rest in optimal_plans(world, child, left - 1)]


def written(world, plan):
    """A search that creates and closes the plan's nodes in order."""
    steps = []
    for cost, state in enumerate(plan):
        text = [*world.state_tokens(state), f"c{cost}", f"c{world.estimate(state)}"]
        steps += ["create", *text, "close", *text]
    return steps


def test_it_is_the_shortest_of_all_optimal_plans_written_out(domain, draw_problems):
    searcher, seen = Searcher(domain), 0
    for problem in draw_problems(domain, 60):
        nodes = len(searcher.search(problem).plan)
        if not 1 <= nodes <= 7:
            continue
        world = World(domain, problem)
        traces = [written(world, plan) for plan in optimal_plans(world, world.start(), nodes)]
        assert shortest_of(domain, problem, plan_nodes=nodes) == min(map(len, traces))
        seen += 1
    assert seen >= 3


def test_such_a_search_is_sound(smallest, draw_problems):
    searcher, validator = Searcher(smallest), Validator(smallest)
    solvable = (p for p in draw_problems(smallest, 40) if 2 <= len(searcher.search(p).plan) <= 6)
    for problem in itertools.islice(solvable, 5):
        world = World(smallest, problem)
        plan = optimal_plans(world, world.start(), len(searcher.search(problem).plan))[0]
        tokens = written(world, plan)
        tokens += [token for state in plan for token in ("plan", *world.plan_tokens(state))]
        assert validator.trace(problem, codes_of(smallest, tokens)).sound


def scores(trace_length, shortest):
    ones = np.ones((1, 2), bool)
    return Scores(
        task_ids=("a",),
        correct=ones,
        optimal=ones,
        plan_length=np.full((1, 2), 3),
        trace_length=np.array([trace_length]),
        trace_judged=ones,
        trace_legal=ones,
        trace_sound=ones,
        optimal_length=np.array([3]),
        astar_lengths=np.array([[90, 110]]),
        shortest_searches=shortest,
    )


@pytest.mark.parametrize(("lengths", "share"), [((100, 100), 0.0), ((20, 20), 1.0), ((50, 70), 0.5)])
def test_share_of_the_possible_saving(lengths, share):
    assert share_of_possible_saving(scores(lengths, np.array([20]))).value == pytest.approx(share)
    assert shortest_search_length(scores(lengths, np.array([20]))).value == 20


def test_it_is_undefined_where_the_limit_is_not_known():
    assert share_of_possible_saving(scores((50, 50), None)).value is None
