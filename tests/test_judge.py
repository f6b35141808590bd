"""The judge: every verdict and reason, both rules, the command line and the Python call."""

import json

import numpy as np
import pytest
from command import invoke

import searchformer
from searchformer.domains import make_domain
from searchformer.errors import SearchformerError
from searchformer.evaluate.judge import Judge
from searchformer.search import Options, Searcher
from searchformer.search.validate import codes_of
from searchformer.tokens.grammar import write_text

MAZE = {"width": 3, "height": 3, "start": [0, 0], "goal": [2, 0], "walls": [[1, 0]]}
# S # G
# . . .
# . . .
OPTIMAL = "plan 0 0 plan 0 1 plan 1 1 plan 2 1 plan 2 0"
DETOUR = "plan 0 0 plan 0 1 plan 0 2 plan 1 2 plan 1 1 plan 2 1 plan 2 0"
LEVEL = {"level": ["######", "#    #", "# $. #", "#    #", "#@   #", "######"]}


@pytest.fixture(scope="module")
def maze_judge() -> Judge:
    return Judge(make_domain("maze", {"width": 3, "height": 3}))


@pytest.fixture(scope="module")
def sokoban_judges() -> tuple[Judge, Judge]:
    domain = make_domain("sokoban", {"width": 6, "height": 6, "boxes": 1})
    return Judge(domain), Judge(domain, paper=True)


@pytest.mark.parametrize(
    ("answer", "verdict", "reason"),
    [
        (OPTIMAL, "optimal", None),
        (DETOUR, "feasible", None),
        ("", "invalid", "no plan"),
        ("create 0 0 c0 c2", "invalid", "no plan"),
        ("plan 0 1 plan 1 1 plan 2 1 plan 2 0", "invalid", "wrong start"),
        ("plan 0 0 plan 1 0 plan 2 0", "invalid", "illegal move at step 1"),  # through the wall
        ("plan 0 0 plan 0 1 plan 2 1 plan 2 0", "invalid", "illegal move at step 2"),  # a jump
        ("plan 0 0 plan 0 0 plan 0 1", "invalid", "illegal move at step 1"),  # standing still
        ("plan 0 0 plan 0 1 plan 1 1", "invalid", "not solved"),
        (OPTIMAL + " plan 2 1", "invalid", "not solved"),  # walks on past the goal
        ("plan 0 0 plan 0", "invalid", "parse error at token 5"),
        ("plan 0 0 plan 0 1 1", "invalid", "parse error at token 6"),
        ("plan 0 0 wall 0 1", "invalid", "parse error at token 3"),
        ("plan 0 0 plan 0 c1", "invalid", "parse error at token 5"),
        ("plan 0 0 banana", "invalid", "parse error at token 3"),
        ("0 0 plan 0 0", "invalid", "parse error at token 0"),
        ("create 0 0 c0 plan 0 0", "invalid", "parse error at token 4"),
        (OPTIMAL + " create 0 0 c0 c2", "invalid", "parse error at token 15"),
        ("plan 0 7 plan 0 1", "invalid", "wrong start"),
        (f"create goal wall 7 7 c0 c1 {OPTIMAL}", "invalid", "parse error at token 1"),
        (f"create 0 0 c0 c2 c3 {OPTIMAL}", "invalid", "parse error at token 5"),
        (f"create 1 2 c9 c9 {OPTIMAL}", "optimal", None),  # a search that is wrong, but well formed
    ],
)
def test_a_plan_is_judged_by_the_rules_of_the_maze(
    maze_judge: Judge, answer: str, verdict: str, reason: str | None
) -> None:
    found = maze_judge.judge_text(maze_judge.domain.encode(MAZE), answer)
    assert (found.verdict, found.reason) == (verdict, reason)
    assert found.optimal_length == 5
    assert found.plan_length == (answer.split().count("plan") or -1)


def test_an_answer_that_never_ended_is_invalid(maze_judge: Judge) -> None:
    from searchformer.search.validate import codes_of

    problem, codes = maze_judge.domain.encode(MAZE), codes_of(maze_judge.domain, OPTIMAL.split())
    assert maze_judge.judge(problem, codes, optimal_length=5, finished=False).reason == "no eos"


def test_a_plan_for_an_unsolvable_task_is_never_valid(maze_judge: Judge) -> None:
    walled = {**MAZE, "walls": [[1, 0], [1, 1], [1, 2]]}
    found = maze_judge.judge_text(maze_judge.domain.encode(walled), OPTIMAL)
    assert (found.verdict, found.optimal_length) == ("invalid", -1)


def test_the_trace_is_judged_apart_from_the_plan(maze_judge: Judge) -> None:
    problem = maze_judge.domain.encode(MAZE)
    searcher = Searcher(maze_judge.domain)
    _, trace, plan = write_text(maze_judge.domain, problem, searcher.search(problem))
    legal = maze_judge.judge_text(problem, f"{trace} {plan}")
    assert (legal.verdict, legal.trace_legal, legal.legal_share) == ("optimal", True, 1.0)
    wrong = trace.replace("close 0 0 c0 c2", "close 0 0 c1 c2", 1)
    found = maze_judge.judge_text(problem, f"{wrong} {plan}")
    assert (found.verdict, found.trace_legal, found.violation) == ("optimal", False, "wrong cost")
    assert found.cost_errors == 1
    assert 0 < found.legal_share < 1
    assert maze_judge.judge_text(problem, plan).trace_legal is None


def test_a_plan_can_be_judged_without_the_trace(maze_judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = maze_judge.domain.encode(MAZE)
    _, trace, plan = write_text(maze_judge.domain, problem, Searcher(maze_judge.domain).search(problem))
    codes = codes_of(maze_judge.domain, f"{trace} {plan}".split())
    whole = maze_judge.judge(problem, codes, optimal_length=5)
    assert whole.trace_legal

    def compile_nothing(*_: object) -> None:
        raise AssertionError("the trace was replayed")

    monkeypatch.setattr(maze_judge.validator, "trace", compile_nothing)
    half = maze_judge.judge(problem, codes, optimal_length=5, judge_trace=False)
    assert half.trace_legal is None
    for name in ("verdict", "plan_length", "trace_length", "created", "closed"):
        assert getattr(half, name) == getattr(whole, name)


def test_pushing_is_legal_and_walking_through_boxes_is_not(sokoban_judges: tuple[Judge, Judge]) -> None:
    strict, _ = sokoban_judges
    problem = strict.domain.encode(LEVEL)
    push = "plan 1 4 plan 1 3 plan 1 2 plan 2 2"
    assert strict.judge_text(problem, push).verdict == "optimal"
    stuck = {"level": ["######", "#    #", "#@$# #", "#  . #", "#    #", "######"]}
    found = strict.judge_text(strict.domain.encode(stuck), "plan 1 2 plan 2 2")
    assert found.reason == "illegal move at step 1"


def test_the_papers_rule_forgives_what_the_strict_one_does_not(sokoban_judges: tuple[Judge, Judge]) -> None:
    strict, paper = sokoban_judges
    problem = strict.domain.encode(LEVEL)
    wrong_start = "plan 2 4 plan 2 3 plan 2 2 plan 3 2"  # the right moves, from somewhere else
    assert strict.judge_text(problem, wrong_start).reason == "wrong start"
    assert paper.judge_text(problem, wrong_start).verdict == "optimal"
    into_the_wall = "plan 1 4 plan 0 4 plan 0 3 plan 0 2 plan 1 2"  # the first step is blocked and forgiven
    assert strict.judge_text(problem, into_the_wall).reason == "illegal move at step 1"
    assert paper.judge_text(problem, into_the_wall).verdict == "feasible"
    assert paper.judge_text(problem, "plan 1 4 plan 3 4").verdict == "invalid"


@pytest.mark.parametrize("answer", ["foo plan 1 4 plan 1", "plan", "plan 1 4 plan box", "plan 1 4 5", "foo", ""])
def test_the_papers_rule_takes_any_answer(sokoban_judges: tuple[Judge, Judge], answer: str) -> None:
    _, paper = sokoban_judges
    found = paper.judge_text(paper.domain.encode(LEVEL), answer)
    assert found.verdict == "invalid"
    assert found.reason.startswith("parse error at token" if "plan" in answer else "no plan")


def test_the_papers_rule_looks_at_nothing_but_the_plan(sokoban_judges: tuple[Judge, Judge]) -> None:
    strict, paper = sokoban_judges
    problem, answer = strict.domain.encode(LEVEL), "foo create plan 1 4 plan 1 3 plan 1 2 plan 2 2"
    assert strict.judge_text(problem, answer).reason == "parse error at token 0"
    assert paper.judge_text(problem, answer).verdict == "optimal"


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
def test_the_papers_rule_judges_plans_without_positions_strictly(steps: int) -> None:
    judge = Judge(make_domain("tiles", {"width": 2, "height": 2}), paper=True)
    problem = np.array([2, 2, 0, 2, 1, 3], dtype=np.int32)
    plan = ["plan 0 2 1 3", "plan 1 2 0 3", "plan 1 2 3 0", "plan 1 2 0 3"][:steps]
    assert judge.judge_text(problem, " ".join(plan)).verdict == ("optimal" if steps == 3 else "invalid")


@pytest.mark.parametrize(("algorithm", "weight"), [("dijkstra", 1.0), ("weighted", 3.0), ("greedy", 1.0)])
def test_traces_are_held_against_the_datas_own_algorithm(algorithm: str, weight: float) -> None:
    domain = make_domain("maze", {"width": 9, "height": 9})
    walls = [[x, 4] for x in range(1, 9)] + [[4, 3], [4, 2]]
    problem = domain.encode({"width": 9, "height": 9, "start": [4, 0], "goal": [4, 8], "walls": walls})
    found = Searcher(domain, Options(algorithm=algorithm, weight=weight)).search(problem, seed=1)
    _, trace, plan = write_text(domain, problem, found)
    verdict = Judge(domain, algorithm=algorithm, weight=weight).judge_text(problem, f"{trace} {plan}")
    assert (verdict.trace_legal, verdict.violation) == (True, None)
    assert verdict.optimal_length == Judge(domain).optimal_length(problem)
    assert not Judge(domain).judge_text(problem, f"{trace} {plan}").trace_legal


def test_a_task_may_be_larger_than_the_settings_say() -> None:
    judge = Judge(make_domain("sokoban", {"boxes": 1, "tokens_format": "full"}))
    problem = judge.domain.encode({"level": ["#########", "#@$ .   #", "# $ .   #", "#       #", "#########"]})
    _, trace, plan = write_text(judge.domain, problem, Searcher(judge.domain).search(problem))
    verdict = judge.judge_text(problem, f"{trace} {plan}")
    assert (verdict.verdict, verdict.trace_legal) == ("optimal", True)


def test_judging_from_python_needs_only_the_task_and_the_answer() -> None:
    assert searchformer.judge(MAZE, OPTIMAL).verdict == "optimal"
    assert searchformer.judge(LEVEL, "plan 1 4 plan 1 3 plan 1 2 plan 2 2").verdict == "optimal"
    with pytest.raises(SearchformerError, match="names its"):
        searchformer.judge({}, OPTIMAL)


def test_levels_with_a_box_on_a_dock_are_judged_as_they_are_solved(tmp_path) -> None:
    level = {"level": ["######", "#@$ .#", "#  * #", "#    #", "######"]}
    assert searchformer.judge(level, "rr").verdict == "optimal"
    path = tmp_path / "answers.jsonl"
    path.write_text("\n".join(json.dumps({**task, "answer": "rr"}) for task in (level, {**LEVEL})))
    verdicts = [json.loads(line).get("verdict") for line in invoke("judge", "sokoban", path).stdout.splitlines()]
    assert verdicts[0] == "optimal"
    assert verdicts[1] in ("optimal", "feasible", "invalid")


def test_the_command_prints_a_verdict_per_line(tmp_path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text("\n".join(json.dumps({**MAZE, "answer": answer}) for answer in (OPTIMAL, DETOUR, "plan 1 1")))
    lines = [json.loads(line) for line in invoke("judge", "maze", path).stdout.splitlines()]
    assert [line["verdict"] for line in lines] == ["optimal", "feasible", "invalid"]
    assert lines[0] == {
        "verdict": "optimal",
        "reason": None,
        "plan_length": 5,
        "optimal_length": 5,
        "trace_legal": None,
        "trace_sound": None,
        "violation": None,
    }
