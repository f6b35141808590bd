"""Searches without some of the nodes that they closed in vain: still true, never longer, with the same plan."""

import random

import pytest

from searchformer.bootstrap.hindsight import without_some
from searchformer.domains import make_domain
from searchformer.evaluate.judge import OPTIMAL, Judge
from searchformer.search import Searcher
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


def shortened(text, share=1.0, seed=0):
    tokens = without_some(World(MAZE, PROBLEM), text.split(), share=share, chance=random.Random(seed))
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
    found = {tuple(closed(shortened(SEARCH, share=0.5, seed=seed))) for seed in range(40)}
    assert found == {(("0", "0"), ("1", "0"), ("0", "1"), ("0", "2"))}  # 2 0, which 1 0 created, goes first


def test_nothing_is_left_out_without_a_share():
    assert closed(shortened(SEARCH, share=0.0)) == closed(SEARCH)


def test_false_steps_are_corrected():
    false = SEARCH.replace("close 0 1 c1 c1", "close 2 2 c3 c2 close 0 1 c1 c1")  # a wall
    false = false.replace("create 1 1 c2 c2", "create 1 1 c7 c5").replace("close 2 0 c2 c4", "close 1 0 c1 c3")
    text = shortened(false, share=0.0)
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


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_searches_of_every_domain_stay_true_and_optimal(domain, share):
    judge = Judge(domain)
    for seed in range(12):
        task = random_task(domain, seed=seed)
        found = Searcher(domain).search(task.problem, seed=seed)
        _, trace, plan = write_text(domain, task.problem, found)
        answer, world = f"{trace} {plan}".split(), World(domain, task.problem)
        codes = codes_of(domain, without_some(world, answer, share=share, chance=random.Random(seed)))
        verdict = judge.judge(task.problem, codes, optimal_length=len(found.plan), finished=True)
        assert (verdict.verdict, verdict.trace_sound) == (OPTIMAL, True)
        assert verdict.closed <= found.closed
