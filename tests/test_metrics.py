"""The metrics, each against numbers worked out by hand."""

import math
from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchformer.errors import SearchformerError
from searchformer.evaluate import metrics
from searchformer.evaluate.metrics import IncompleteScoresError, Scores

# Three tasks, two answers each:
#   a: optimal (plan 4, trace 10), optimal (plan 4, trace 30); A* 40 and 60
#   b: feasible (plan 8, trace 50), invalid (trace 70);        optimal plan 6; A* 100 and 100
#   c: invalid, invalid;                                       optimal plan 5; A* 20 and 40
VERDICTS = {
    "task_id": ["a", "a", "b", "b", "c", "c"],
    "sample": [0, 1, 0, 1, 0, 1],
    "verdict": ["optimal", "optimal", "feasible", "invalid", "invalid", "invalid"],
    "plan_length": [4, 4, 8, -1, 3, -1],
    "optimal_length": [4, 4, 6, 6, 5, 5],
    "trace_length": [10, 30, 50, 70, 5, 0],
    "trace_legal": [True, False, True, False, False, None],
    "trace_sound": [True, True, True, False, False, None],
}
ASTAR = {
    "task_id": ["a", "b", "c"],
    "lengths": [[40, 60], [100, 100], [20, 40]],
    "shortest": [12, 60, 10],
    "nats": [2.5, 7.0, 4.0],
}
IMITATIONS = {  # in another order
    "task_id": ["c", "b", "a", "c", "b", "a"],
    "sample": [1, 0, 0, 0, 1, 1],
    "log_probability": [-1.0, -8.0, -2.0, -3.0, -6.0, -4.0],
}


def scores_of(
    verdicts: dict = VERDICTS,
    astar: dict = ASTAR,
    imitations: dict | None = IMITATIONS,
    *,
    task_ids: str = "abc",
    samples: int = 2,
) -> Scores:
    drawn = None if imitations is None else pa.table(imitations)
    asked = {"task_ids": list(task_ids), "samples": samples, "imitations": drawn}
    return Scores.from_tables(pa.table(verdicts), pa.table(astar), **asked)


def with_column(name: str, values: list) -> dict:
    return {**VERDICTS, name: values}


def without_row(index: int) -> dict:
    return {name: values[:index] + values[index + 1 :] for name, values in VERDICTS.items()}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("any_optimal", 1 / 3),
        ("any_feasible", 2 / 3),
        ("pass_at_1", 2 / 6),
        ("pass_at_1_feasible", 3 / 6),
        ("swc", (4 / 4 + 6 / 8 + 0) / 3),
        ("ilr_on_solved_mean", (50 / 20 + 100 / 50 + 0) / 3),
        ("ilr_on_optimal_mean", (50 / 20 + 0 + 0) / 3),
        ("ilr_on_solved_shortest", (50 / 10 + 100 / 50 + 0) / 3),
        ("ilr_on_optimal_shortest", (50 / 10 + 0 + 0) / 3),
        ("average_on_optimal_length", 20),
        ("astar_on_optimal_length", 50),
        ("shortest_search_length", 12),
        ("length_ratio_of_means", 50 / 20),
        ("share_of_possible_saving", (50 - 20) / (50 - 12)),
        ("legal_traces", 2 / 5),
        ("sound_traces", 3 / 5),
        ("answer_nats", (3 + 7 + 2) / 3),
        ("astar_nats", (2.5 + 7 + 4) / 3),
    ],
)
def test_each_metric_is_what_a_hand_computes(name: str, expected: float) -> None:
    assert metrics.METRICS[name](scores_of()).value == pytest.approx(expected)


def test_the_hand_computed_list_names_every_metric() -> None:
    named = next(m for m in test_each_metric_is_what_a_hand_computes.pytestmark if m.name == "parametrize").args[1]
    assert {name for name, _ in named} == set(metrics.METRICS)


def test_ratio_of_means_weighs_long_searches_more_than_a_mean_of_ratios_does() -> None:
    verdicts = with_column("verdict", ["optimal", "invalid", "optimal", "invalid", "invalid", "invalid"])
    scores = scores_of(verdicts)
    assert metrics.length_ratio_of_means(scores).value == pytest.approx((50 + 100) / (10 + 50))
    assert metrics.average_on_optimal_length(scores).value == pytest.approx((10 + 50) / 2)
    assert metrics.ilr_on_optimal_mean(scores).value == pytest.approx((50 / 10 + 100 / 50 + 0) / 3)


def test_exact_match_counts_answers_that_equal_the_reference() -> None:
    assert metrics.exact_match(np.array([[True], [False], [True], [True]])).value == 0.75
    scored = metrics.score(scores_of(with_column("exact", [True, False, False, False, True, True])))
    assert scored["metrics"]["exact_match"]["value"] == pytest.approx((1 / 2 + 0 + 1) / 3)


def test_without_exact_answers_there_is_no_exact_match() -> None:
    assert "exact_match" not in metrics.score(scores_of())["metrics"]


def test_any_of_first_k_looks_at_the_first_k_answers_in_order() -> None:
    hits = np.array([[False, True, False], [False, False, False], [True, False, False], [False, False, True]])
    assert metrics.any_of_first(hits).tolist() == [1 / 4, 2 / 4, 3 / 4]


def test_pass_at_k_by_hand() -> None:
    hits = np.array([[True, False, False, False], [True, True, False, False]])
    expected = [(1 / 4 + 2 / 4) / 2, (1 - 3 / 6 + 1 - 1 / 6) / 2, (1 - 1 / 4 + 1) / 2, 1.0]
    assert metrics.pass_at_k(hits) == pytest.approx(expected)


@given(st.lists(st.booleans(), min_size=1, max_size=7))
def test_pass_at_k_is_the_mean_over_all_choices_of_k_answers(row: list[bool]) -> None:
    estimated = metrics.pass_at_k(np.array([row]))
    for k in range(1, len(row) + 1):
        chosen = [any(choice) for choice in combinations(row, k)]
        assert estimated[k - 1] == pytest.approx(sum(chosen) / len(chosen))


def test_pass_at_k_stays_exact_for_64_answers() -> None:
    hits = np.arange(64)[None, :] < 3
    expected = [1 - math.comb(61, k) / math.comb(64, k) for k in range(1, 65)]
    assert metrics.pass_at_k(hits) == pytest.approx(expected, abs=1e-12)


def test_solution_only_answers_have_no_search_lengths() -> None:
    scored = metrics.score(scores_of({**VERDICTS, "trace_length": [0] * 6, "trace_legal": [None] * 6}))
    undefined = {"value": None, "low": None, "high": None, "standard_error": None}
    for name in ("ilr_on_solved_mean", "ilr_on_optimal_shortest", "average_on_optimal_length", "length_ratio_of_means"):
        assert scored["metrics"][name] == undefined
    assert scored["metrics"]["legal_traces"] == undefined
    assert scored["metrics"]["any_optimal"]["value"] == pytest.approx(1 / 3)


def test_nats_are_for_searches_whose_probability_is_known() -> None:
    def nats(*given: dict | None) -> list[float | None]:
        scored = metrics.score(scores_of(*given), resamples=10)["metrics"]
        return [scored[name]["value"] for name in metrics.IMITATION]

    older = {name: column for name, column in ASTAR.items() if name != "nats"}
    assert nats(VERDICTS, ASTAR, None) == [None, None]
    assert nats({**VERDICTS, "trace_length": [0] * 6}, ASTAR, IMITATIONS) == [None, None]
    assert nats(VERDICTS, older, IMITATIONS) == [4.0, None]


def test_a_model_that_searches_in_vain_has_an_ilr_of_zero() -> None:
    scored = metrics.score(scores_of(with_column("verdict", ["invalid"] * 6)))["metrics"]
    assert scored["ilr_on_solved_mean"]["value"] == 0
    assert scored["average_on_optimal_length"]["value"] is None


def test_an_answer_that_skips_its_search_does_not_shorten_the_mean() -> None:
    scores = scores_of(with_column("trace_length", [0, 30, 50, 70, 5, 0]))
    assert metrics.average_on_optimal_length(scores).value == 30
    assert metrics.ilr_on_optimal_shortest(scores).value == pytest.approx(50 / 30 / 3)


def test_rows_may_come_in_any_order() -> None:
    shuffled = pa.table(VERDICTS).take([4, 1, 0, 5, 3, 2])
    scores = Scores.from_tables(shuffled, pa.table(ASTAR).take([2, 0, 1]), task_ids=["a", "b", "c"], samples=2)
    assert metrics.score(scores) == metrics.score(scores_of(imitations=None))


@pytest.mark.parametrize(
    ("verdicts", "astar", "message"),
    [
        (without_row(3), ASTAR, "task b sample 1 has no verdict"),
        (with_column("sample", [0, 0, 0, 1, 0, 1]), ASTAR, "task a sample 0 has 2 verdicts"),
        (with_column("sample", [0, 2, 0, 1, 0, 1]), ASTAR, "names sample 2"),
        (with_column("task_id", ["a", "a", "b", "b", "c", "x"]), ASTAR, "names task x"),
        (with_column("verdict", ["optimal", "fine", *["invalid"] * 4]), ASTAR, "found 'fine'"),
        (with_column("optimal_length", [4, 4, 6, 7, 5, 5]), ASTAR, "task b has answers with different"),
        (with_column("trace_length", [1, None, 1, 1, 1, 1]), ASTAR, "must not hold nulls"),
        (VERDICTS, {"task_id": ["a", "b"], "lengths": [[1], [1]]}, "missing for 1 tasks, first c"),
        (VERDICTS, {**ASTAR, "lengths": [[1, 2], [1], [1, 2]]}, "same number of A\\* runs"),
        (VERDICTS, {"task_id": ["a", "b", "c"]}, "needs a column 'lengths'"),
    ],
)
def test_missing_or_odd_input_is_an_error_that_names_it(verdicts: dict, astar: dict, message: str) -> None:
    with pytest.raises(SearchformerError, match=message):
        scores_of(verdicts, astar)


def test_a_missing_task_is_an_error_and_not_a_smaller_denominator() -> None:
    with pytest.raises(IncompleteScoresError, match="task d sample 0 has no verdict"):
        scores_of(task_ids="abcd")


def test_a_subset_keeps_only_its_tasks() -> None:
    subset = scores_of().subset(np.array([True, False, True]))
    assert subset.task_ids == ("a", "c")
    assert metrics.any_feasible(subset).value == 0.5


def test_bootstrap_interval_of_a_share_is_near_the_normal_one() -> None:
    hits = np.arange(400) < 100
    (estimate,) = metrics.resample([metrics.Ratio(hits * 1.0, np.ones(400))], seed=1, resamples=4000)
    error = math.sqrt(0.25 * 0.75 / 400)
    assert estimate.value == 0.25
    assert estimate.standard_error == pytest.approx(error, rel=0.05)
    assert estimate.low == pytest.approx(0.25 - 1.96 * error, abs=0.005)
    assert estimate.high == pytest.approx(0.25 + 1.96 * error, abs=0.005)


def test_every_resample_draws_as_many_tasks_as_there_are() -> None:
    (drawn,) = metrics.task_resamples(17, resamples=50, seed=0)
    assert drawn.shape == (50, 17)
    assert set(drawn.sum(axis=1)) == {17}


def test_resampling_in_parts_draws_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    (whole,) = metrics.task_resamples(17, resamples=50, seed=0)
    monkeypatch.setattr(metrics, "DRAWS_AT_ONCE", 17 * 8)
    parts = list(metrics.task_resamples(17, resamples=50, seed=0))
    assert [len(part) for part in parts] == [8] * 6 + [2]
    assert np.concatenate(parts).tolist() == whole.tolist()


def test_a_metric_that_few_tasks_have_is_estimated_from_resamples_that_draw_them() -> None:
    weight = np.array([1.0, 0.0, 0.0, 0.0])
    (estimate,) = metrics.resample([metrics.Ratio(weight * 7, weight)], resamples=200)
    assert (estimate.value, estimate.low, estimate.high, estimate.standard_error) == (7, 7, 7, 0)


def test_intervals_depend_on_the_seed_alone() -> None:
    first, again, other = (metrics.score(scores_of(), seed=seed, resamples=101) for seed in (3, 3, 4))
    assert first == again
    assert first["metrics"]["swc"] != other["metrics"]["swc"]


def test_mean_and_standard_error_over_seeds() -> None:
    repeats = metrics.over_seeds([0.8, 0.9, 1.0])
    assert repeats.value == pytest.approx(0.9)
    assert repeats.error == pytest.approx(0.1 / math.sqrt(3))
    assert repeats.repeats == 3
    assert metrics.over_seeds([0.5]).error is None
    with pytest.raises(SearchformerError, match="at least one value"):
        metrics.over_seeds([])


def test_score_has_a_value_for_every_k() -> None:
    scored = metrics.score(scores_of())
    assert scored["any_optimal"] == pytest.approx([1 / 3, 1 / 3])
    assert scored["any_feasible"] == pytest.approx([2 / 3, 2 / 3])
    assert scored["pass_at_k"] == pytest.approx([1 / 3, 1 / 3])
    assert scored["pass_at_k_feasible"] == pytest.approx([1 / 2, 2 / 3])
    assert scored["astar_runs"] == 2


def test_answers_are_compared_task_by_task_on_the_tasks_that_both_have() -> None:
    worse = {**VERDICTS, "verdict": ["optimal", "invalid", "optimal", "optimal", "invalid", "invalid"]}
    above = metrics.pass_at_1_above(scores_of(), scores_of(worse))
    assert above.numerator.tolist() == [0.5, -1.0, 0.0]
    fewer = scores_of({name: values[2:] for name, values in worse.items()}, imitations=None, task_ids="bc")
    assert metrics.pass_at_1_above(scores_of(), fewer).numerator.tolist() == [-1.0, 0.0]
    assert metrics.pass_at_1_above(fewer, scores_of()).value == 0.5
