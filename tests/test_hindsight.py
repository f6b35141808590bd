"""Searches without some of what they did in vain: still true, never longer, with the same plan."""

import random

import pytest

from searchformer.domains import make_domain
from searchformer.evaluate.judge import OPTIMAL, Judge
from searchformer.search import Searcher
from searchformer.search.hindsight import LUCKY, LeftOut, without_some
from searchformer.search.validate import codes_of
from searchformer.search.world import World, cut_steps
from searchformer.solve import random_task
from searchformer.tokens.grammar import write_text

MAZE = make_domain("maze", {"width": 3, "height": 3})
PROBLEM = MAZE.parse_prompt(["start", "0", "0", "goal", "0", "2", "wall", "2", "1", "wall", "2", "2"])
SEARCH = (
    "create 0 0 c0 c2 close 0 0 c0 c2 create 0 1 c1 c1 create 1 0 c1 c3 close 1 0 c1 c3 create 1 1 c2 c2 "
    "create 2 0 c2 c4 close 0 1 c1 c1 create 0 2 c2 c0 close 2 0 c2 c4 close 0 2 c2 c0 plan 0 0 plan 0 1 plan 0 2"
)


CLOSED = LeftOut(closed_below=1.0, closed_equal=1.0)
EVERYTHING = LeftOut(closed_below=1.0, closed_equal=1.0, created_equal=1.0, created_above=1.0)
SOME = LeftOut(closed_below=0.3, closed_equal=0.6, created_equal=0.5, created_above=0.5)


def shortened(text, left_out=CLOSED, seed=0):
    tokens = without_some(World(MAZE, PROBLEM), text.split(), left_out, chance=random.Random(seed))
    return tokens and " ".join(tokens)


def closed(text):
    return [step.state for step in cut_steps(text.split()) if step.kind == "close"]


def test_what_did_not_lead_to_the_goal_is_left_out_and_what_it_created_is_created_by_others():
    text = shortened(SEARCH)
    assert closed(text) == [("0", "0"), ("0", "1"), ("0", "2")]
    assert "create 1 1 c2 c2" in text[text.index("close 0 1") :]  # by 1 0 before
    assert "create 2 0" not in text
    assert text.endswith("plan 0 0 plan 0 1 plan 0 2")


def test_a_node_stays_if_one_stays_that_it_created():
    found = {tuple(closed(shortened(SEARCH, LeftOut(closed_equal=0.5), seed=seed))) for seed in range(40)}
    assert found == {(("0", "0"), ("1", "0"), ("0", "1"), ("0", "2"))}  # 2 0, which 1 0 created, goes first


def test_nothing_is_left_out_without_a_share():
    assert closed(shortened(SEARCH, LeftOut())) == closed(SEARCH)


def test_false_steps_are_corrected():
    false = SEARCH.replace("close 0 1 c1 c1", "close 2 2 c3 c2 close 0 1 c1 c1")  # a wall
    false = false.replace("create 1 1 c2 c2", "create 1 1 c7 c5").replace("close 2 0 c2 c4", "close 1 0 c1 c3")
    text = shortened(false, LeftOut())
    assert closed(text) == [("0", "0"), ("1", "0"), ("0", "1"), ("0", "2")]
    assert "create 1 1 c2 c2" in text
    assert "c7" not in text


@pytest.mark.parametrize(
    "answer",
    [
        "plan 0 0 plan 0 1 plan 0 2",
        SEARCH.replace("close 0 2 c2 c0 ", ""),
        SEARCH.replace("plan 0 1", "plan 0 1 plan 1 1 plan 0 1"),
    ],
)
def test_what_was_closed_must_lead_to_the_goal_in_as_many_moves_as_the_plan_has(answer):
    assert shortened(answer) is None


def test_children_that_are_never_closed_are_left_out_by_their_f():
    above = shortened(SEARCH, LeftOut(created_above=1.0))
    assert closed(above) == closed(SEARCH)
    assert "create 1 1" not in above  # f 4, the goal's is 2
    whole = shortened(SEARCH, EVERYTHING)
    assert [step.state for step in cut_steps(whole.split()) if step.kind == "create"] == closed(whole)


def verdicts_without(domain, left_out):
    """A*'s searches of some tasks, and the verdicts on them without some of what they did."""
    judge = Judge(domain)
    for seed in range(12):
        task = random_task(domain, seed=seed)
        found = Searcher(domain).search(task.problem, seed=seed)
        _, trace, plan = write_text(domain, task.problem, found)
        answer, world = f"{trace} {plan}".split(), World(domain, task.problem)
        codes = codes_of(domain, without_some(world, answer, left_out, chance=random.Random(seed)))
        yield found, judge.judge(task.problem, codes, optimal_length=len(found.plan), finished=True)


@pytest.mark.parametrize("left_out", [SOME, CLOSED, EVERYTHING])
def test_searches_of_every_domain_stay_true_and_optimal(domain, left_out):
    for found, verdict in verdicts_without(domain, left_out):
        assert (verdict.verdict, verdict.trace_sound) == (OPTIMAL, True)
        assert verdict.closed <= found.closed


def test_without_ties_closed_in_vain_a_search_is_still_a_legal_one_of_astar(domain):
    verdicts = list(verdicts_without(domain, LUCKY))
    assert all(verdict.trace_legal for _, verdict in verdicts)
    assert any(verdict.closed < found.closed for found, verdict in verdicts)
