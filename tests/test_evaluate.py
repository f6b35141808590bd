"""Evaluating a directory of rollouts: every answer is judged, once, by the rules of the data that it belongs to."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from command import invoke
from rollout_directories import write_rollouts

from searchformer.commands.evaluate import print_metrics
from searchformer.dataset.store import write_table
from searchformer.domains import Domain, make_domain
from searchformer.errors import SearchformerError
from searchformer.evaluate import verdicts
from searchformer.evaluate.evaluation import ASTAR, ENTROPY_RUNS, PLAIN, evaluate
from searchformer.evaluate.judge import Judge
from searchformer.evaluate.metrics import IMITATION, NATS_DECIMALS
from searchformer.evaluate.verdicts import WRITER, verdicts_of
from searchformer.files import read_json, write_json
from searchformer.rollout.store import Rollouts
from searchformer.search import Options, Searcher
from searchformer.tokens.entropy import Yardstick
from searchformer.tokens.grammar import write_text
from searchformer.tokens.vocabulary import Vocabulary

DOMAIN = make_domain("maze", {"width": 3, "height": 3})
VOCABULARY = Vocabulary.of(DOMAIN.token_list())
PROBLEMS = {
    DOMAIN.task_id(problem): problem
    for problem in (
        DOMAIN.encode({"width": 3, "height": 3, "walls": [[1, 1]], "start": [0, 0], "goal": goal})
        for goal in ([2, 1], [2, 2])
    )
}


def written(task: str, **options: Any) -> tuple[str, str, str]:
    """Prompt, trace and plan of a deterministic search."""
    searcher = Searcher(DOMAIN, Options(deterministic=True, **options))
    return write_text(DOMAIN, PROBLEMS[task], searcher.search(PROBLEMS[task]))


def rollouts_of(directory: Path, answers: Callable[[str], list[str]], **config: Any) -> Rollouts:
    """Answers to both tasks, as texts."""
    prompts = {task: VOCABULARY.encode(written(task)[0].split()) for task in PROBLEMS}
    return write_rollouts(
        directory, DOMAIN, VOCABULARY, prompts, lambda task: [text.split() for text in answers(task)], **config
    )


def searched_and_not(task: str) -> list[str]:
    """A* with its plan, and the plan alone."""
    _, trace, plan = written(task)
    return [f"{trace} {plan}", plan]


def test_evaluating_scores_every_answer(tmp_path: Path) -> None:
    rollouts_of(tmp_path, searched_and_not, deterministic=True)
    metrics = evaluate(tmp_path, astar_runs=8)
    values = {name: entry["value"] for name, entry in metrics["metrics"].items()}
    assert values["any_optimal"] == values["pass_at_1"] == values["swc"] == 1.0
    assert values["exact_match"] == 0.5  # the plan alone is not what A* wrote
    assert pq.read_table(tmp_path / "verdicts.parquet")["trace_legal"].to_pylist() == [True, None, True, None]
    assert np.shape(pq.read_table(tmp_path / "astar.parquet")["lengths"].to_pylist()) == (2, 8)
    assert json.loads((tmp_path / "metrics.json").read_text())["tasks"] == 2


def test_a_lucky_astar_searches_less_than_astar_and_more_than_the_shortest_search(tmp_path: Path) -> None:
    open_mazes(tmp_path)
    found = evaluate(tmp_path, astar_runs=8)
    lucky = found["references"][-1]
    assert (lucky["algorithm"], lucky["optimal"]["value"]) == ("lucky", 1.0)
    table = pq.read_table(tmp_path / "astar.parquet")
    shortest = sum(table["shortest"].to_pylist()) / np.sum(np.mean(table["lengths"].to_pylist(), axis=1))
    assert shortest < lucky["length"]["value"] < 1.0


def test_a_missing_answer_is_an_error_and_not_a_smaller_denominator(tmp_path: Path) -> None:
    rollouts_of(tmp_path, lambda task: [written(task)[2]])
    config = read_json(tmp_path / "config.json", what="configuration")
    write_json(tmp_path / "config.json", config | {"samples": 2})
    with pytest.raises(SearchformerError, match="sample 1 has no verdict"):
        evaluate(tmp_path, astar_runs=2)
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(SearchformerError, match="complete directory of rollouts"):
        evaluate(tmp_path, astar_runs=2)


@pytest.mark.parametrize(("algorithm", "weight"), [("dijkstra", 1.0), ("weighted", 3.0), ("greedy", 1.0)])
def test_answers_are_compared_with_the_datas_algorithm(tmp_path: Path, algorithm: str, weight: float) -> None:
    def own(task: str) -> list[str]:
        return [" ".join(written(task, algorithm=algorithm, weight=weight)[1:])]

    rollouts_of(tmp_path / "own", own, deterministic=True, algorithm=algorithm, weight=weight)
    metrics = evaluate(tmp_path / "own", astar_runs=4)["metrics"]
    assert metrics["exact_match"]["value"] == 1.0
    assert pq.read_table(tmp_path / "own/verdicts.parquet")["trace_legal"].to_pylist() == [True, True]
    rollouts_of(tmp_path / "astar", own, deterministic=True)
    evaluate(tmp_path / "astar", astar_runs=4)
    lengths = [pq.read_table(tmp_path / name / "astar.parquet")["lengths"].to_pylist() for name in ("own", "astar")]
    assert lengths[0] == lengths[1]  # what A* itself takes, whatever the data's algorithm


def test_a_directory_that_names_no_algorithm_is_of_astar(tmp_path: Path) -> None:
    rollouts_of(tmp_path, searched_and_not, deterministic=True)
    config = read_json(tmp_path / "config.json", what="configuration")
    write_json(tmp_path / "config.json", {k: v for k, v in config.items() if k not in ("algorithm", "weight")})
    assert evaluate(tmp_path, astar_runs=2)["metrics"]["exact_match"]["value"] == 0.5


def test_verdicts_are_kept_and_belong_to_their_answers_and_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = []
    judge = Judge.judge
    monkeypatch.setattr(Judge, "judge", lambda *given, **more: judged.append(1) or judge(*given, **more))

    def count(rollouts: Rollouts, **rule: bool) -> int:
        before = len(judged)
        table = verdicts_of(rollouts, **rule)
        assert table.num_rows == 4
        return len(judged) - before

    rollouts = rollouts_of(tmp_path, searched_and_not)
    assert [count(rollouts), count(rollouts)] == [4, 0]
    assert [count(rollouts, paper=True), count(rollouts, paper=True), count(rollouts)] == [4, 0, 0]
    monkeypatch.setattr(verdicts, "__version__", "another")
    assert count(rollouts) == 4
    (tmp_path / "verdicts.parquet").write_bytes(b"half a file")
    assert count(rollouts) == 4
    manifest = read_json(tmp_path / "manifest.json", what="manifest")
    write_json(tmp_path / "manifest.json", manifest | {"tokens": 0})
    assert count(Rollouts.open(tmp_path)) == 4  # other answers


def test_a_directory_gives_its_prompts_and_answers_by_task(tmp_path: Path) -> None:
    rollouts = rollouts_of(tmp_path, searched_and_not)
    for task, problem in PROBLEMS.items():
        prompt, trace, plan = written(task)
        assert VOCABULARY.decode(rollouts.prompt(task)) == prompt.split()
        assert VOCABULARY.decode(rollouts.answer(task, 0)) == f"{trace} {plan}".split()
        assert VOCABULARY.decode(rollouts.answer(task, 1)) == plan.split()
        np.testing.assert_array_equal(rollouts.problems[task], problem)
    with pytest.raises(SearchformerError, match="lacks task nowhere"):
        rollouts.prompt("nowhere")
    with pytest.raises(SearchformerError, match="lacks answer 2 to task"):
        rollouts.answer(next(iter(PROBLEMS)), 2)


# --- the entropy of A*

# Of these searches of an open 3x3 maze, every run leaves the same to chance:
#   from (0, 0) to (1, 1): the order of two children; which of the two is closed; the order of its two children, one of
#     them the goal; whether the goal or the other child of the start is closed. Then the goal is alone. 4 ln 2
#   from (1, 0) to (1, 2): the order of three children, twice; only the one ahead is ever of least f. 2 ln 3!
OPEN = [
    DOMAIN.encode({"width": 3, "height": 3, "walls": [], "start": start, "goal": goal})
    for start, goal in (([0, 0], [1, 1]), ([1, 0], [1, 2]))
]
OPEN_NATS = [4 * math.log(2), 2 * math.log(6)]


def drawn_by_astar(
    directory: Path, domain: Domain, problems: list[np.ndarray], *, samples: int, factor: float = 1.0, **config: Any
) -> Rollouts:
    """Answers of a model that is A*: its searches, with their own probabilities; to the power of `factor`."""
    vocabulary = Vocabulary.of(domain.token_list())
    texts = {
        domain.task_id(problem): [
            write_text(domain, problem, Searcher(domain).search(problem, seed=seed)) for seed in range(samples)
        ]
        for problem in problems
    }

    def log_probability(tokens: list[str]) -> float:
        trace = vocabulary.encode(tokens[: tokens.index("plan")])
        return -factor * Yardstick(vocabulary).floor(trace).sum()

    return write_rollouts(
        directory,
        domain,
        vocabulary,
        {task: vocabulary.encode(found[0][0].split()) for task, found in texts.items()},
        lambda task: [f"{trace} {plan}".split() for _, trace, plan in texts[task]],
        log_probability=log_probability,
        **(PLAIN | config),
    )


def nats_of(directory: Path) -> list[float | None]:
    """answer_nats and astar_nats."""
    metrics = evaluate(directory, astar_runs=ENTROPY_RUNS)["metrics"]
    return [metrics[name]["value"] for name in IMITATION]


def open_mazes(directory: Path, **config: Any) -> Rollouts:
    return drawn_by_astar(directory, DOMAIN, OPEN, samples=3, **config)


def test_what_astar_leaves_to_chance_is_what_a_hand_counts(tmp_path: Path) -> None:
    open_mazes(tmp_path, factor=2.0)
    assert nats_of(tmp_path) == pytest.approx([2 * np.mean(OPEN_NATS), np.mean(OPEN_NATS)], abs=10**-NATS_DECIMALS)
    kept = pq.read_table(tmp_path / "astar.parquet")
    by_task = dict(zip(kept["task_id"].to_pylist(), kept["nats"].to_pylist(), strict=True))
    assert [by_task[DOMAIN.task_id(problem)] for problem in OPEN] == pytest.approx(OPEN_NATS)


def test_nats_are_shown_with_the_other_metrics(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    open_mazes(tmp_path)
    print_metrics(evaluate(tmp_path, astar_runs=2))
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if "nats" in line]
    assert [row[1] for row in rows] == list(IMITATION)
    assert [float(row[3]) for row in rows] == pytest.approx([np.mean(OPEN_NATS)] * 2, abs=10**-NATS_DECIMALS)


def test_a_perfect_imitator_has_the_entropy_of_astar(tmp_path: Path, draw_problems: Callable[..., Any]) -> None:
    domain = make_domain("maze", {"width": 5, "height": 5})
    problems = [problem for problem in draw_problems(domain, 60) if Searcher(domain).search(problem).solvable]
    drawn_by_astar(tmp_path, domain, problems, samples=16)
    metrics = evaluate(tmp_path, astar_runs=ENTROPY_RUNS)["metrics"]
    assert metrics["legal_traces"]["value"] == 1
    own, astar = (metrics[name] for name in IMITATION)
    assert own["value"] == pytest.approx(astar["value"], rel=0.02)
    assert astar["low"] < own["value"] < astar["high"]


@pytest.mark.parametrize(
    "config",
    [
        {"temperature": 0.7},
        {"top_k": 5},
        {"top_p": 0.95},
        {"prefix": "create"},
        {"constrain": True},
        {"deterministic": True},
        {"algorithm": "dijkstra"},
        {"algorithm": "weighted", "weight": 2.0},
    ],
    ids=str,
)
def test_nats_are_undefined_and_not_shown_where_nothing_imitates_astar(
    tmp_path: Path, config: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    open_mazes(tmp_path, **config)
    assert nats_of(tmp_path) == [None, None]
    print_metrics(read_json(tmp_path / "metrics.json", what="evaluation"))
    shown = capsys.readouterr().out
    assert "sound_traces" in shown
    assert "nats" not in shown


def test_plans_alone_and_answers_from_elsewhere_have_no_nats(tmp_path: Path) -> None:
    rollouts_of(tmp_path / "plans", lambda task: [written(task)[2]], **PLAIN)
    rollouts_of(tmp_path / "elsewhere", searched_and_not)  # nothing says how they were drawn
    assert nats_of(tmp_path / "plans") == nats_of(tmp_path / "elsewhere") == [None, None]


def test_what_an_older_version_kept_of_astar_is_made_again(tmp_path: Path) -> None:
    open_mazes(tmp_path)
    nats = nats_of(tmp_path)
    kept = pq.read_table(tmp_path / "astar.parquet")
    write_table(kept.drop_columns(["nats"]), tmp_path / "astar.parquet", writer=WRITER)
    assert nats_of(tmp_path) == nats
    again = pq.read_table(tmp_path / "astar.parquet")
    assert again.schema.names == ASTAR.names
    assert again.equals(kept)


def test_a_directory_of_another_kind_is_told_by_its_kind(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "config.json").write_text("{}")
    error = invoke("evaluate", tmp_path).exception
    assert str(error).startswith(f"{tmp_path} holds a training run, not rollouts; give a directory that ")
