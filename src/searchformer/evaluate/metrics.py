"""The paper's criteria (appendix "Evaluation criteria") as pure functions of verdicts.

In: `Scores`, arrays over tasks and samples, made from a table of verdicts by `Scores.from_tables`, which refuses
missing tasks or answers: a smaller denominator is never silent. Out: numbers with confidence intervals; `score`
puts them all into the dict that `searchformer evaluate DIR` writes as `metrics.json`.

Notation in the docstrings: n tasks, m answers per task; for task i, `l_i*` is the optimal plan's length in nodes
and `t_i*` the mean trace length of A*'s non-deterministic runs. A trace length counts trace tokens only: no bos,
no plan.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from searchformer.errors import SearchformerError

VERDICTS = ("optimal", "feasible", "invalid")
NATS_DECIMALS = 2
"""Of log-probabilities: their last bits differ from batch to batch, and the same answers must give the same scores."""
DRAWS_AT_ONCE = 1 << 22
"""Numbers held at a time while tasks are resampled."""


class IncompleteScoresError(SearchformerError):
    """Tasks or answers are missing, repeated or unexpected."""


@dataclass(frozen=True, eq=False)
class Scores:
    """Every answer's verdict, as a struct of arrays."""

    task_ids: tuple[str, ...]
    """The n tasks, in the order of the arrays' first axis."""
    correct: np.ndarray
    """bool [n, m]: the plan is legal and solves the task (optimal or not)."""
    optimal: np.ndarray
    """bool [n, m]: correct, and no plan is shorter."""
    plan_length: np.ndarray
    """int [n, m]: nodes of the plan; -1 where there is none."""
    trace_length: np.ndarray
    """int [n, m]: trace tokens; 0 where there is no search."""
    trace_judged: np.ndarray
    """bool [n, m]: there was a trace, and whether it is legal was decided."""
    trace_legal: np.ndarray
    """bool [n, m]: the trace is a legal execution of the data's algorithm."""
    trace_sound: np.ndarray
    """bool [n, m]: it is one but for the order of closing and children left out."""
    optimal_length: np.ndarray
    """int [n]: nodes of an optimal plan."""
    astar_lengths: np.ndarray
    """int [n, runs]: trace tokens of non-deterministic A* runs."""
    shortest_searches: np.ndarray | None = None
    """int [n]: trace tokens of the shortest true search; None where an older version evaluated."""
    astar_entropies: np.ndarray | None = None
    """float [n]: nats that non-deterministic A* leaves to chance; None where an older version evaluated."""
    answer_surprises: np.ndarray | None = None
    """float [n, m]: nats, minus the log-probability of the answer; None unless answers were drawn from the model's own
    distribution, of a model of non-deterministic A*."""
    exact: np.ndarray | None = None
    """bool [n, m]: the answer is that of the data's deterministic search; None for non-deterministic data."""

    def __post_init__(self) -> None:
        n, m = self.correct.shape
        shapes = {
            **dict.fromkeys(("correct", "optimal", "plan_length", "trace_length"), (n, m)),
            **dict.fromkeys(("trace_judged", "trace_legal", "trace_sound"), (n, m)),
            "optimal_length": (n,),
            "astar_lengths": (n, self.astar_lengths.shape[-1]),
        }
        shapes |= {"shortest_searches": (n,)} if self.shortest_searches is not None else {}
        shapes |= {"astar_entropies": (n,)} if self.astar_entropies is not None else {}
        shapes |= {"answer_surprises": (n, m)} if self.answer_surprises is not None else {}
        shapes |= {"exact": (n, m)} if self.exact is not None else {}
        for name, shape in shapes.items():
            if (found := getattr(self, name).shape) != shape:
                raise IncompleteScoresError(f"{name} must have shape {list(shape)}; found {list(found)}")
        if n == 0 or m == 0 or len(self.task_ids) != n:
            raise IncompleteScoresError(f"scores need a task id per task; found {len(self.task_ids)} ids for {n} tasks")
        if np.any(self.optimal & ~self.correct):
            raise IncompleteScoresError("an optimal answer must also be correct")

    @property
    def tasks(self) -> int:
        """n."""
        return self.correct.shape[0]

    @property
    def samples(self) -> int:
        """m."""
        return self.correct.shape[1]

    @classmethod
    def from_tables(
        cls,
        verdicts: pa.Table,
        astar: pa.Table,
        *,
        task_ids: Sequence[str],
        samples: int,
        imitations: pa.Table | None = None,
    ) -> "Scores":
        """Scores from `verdicts.parquet` and `astar.parquet`, whose rows may come in any order.

        `task_ids` and `samples` say what was asked of the model: one answer each, no more and no fewer.
        A bool column `exact` is taken where the verdicts have one (deterministic data). `imitations` are the answers'
        `task_id`, `sample` and `log_probability`, where these can be compared with the entropy of A*.
        """
        place = _places(verdicts, task_ids=task_ids, samples=samples)
        kind = np.array(_column(verdicts, "verdict").to_pylist(), dtype=object)
        if unknown := set(kind) - set(VERDICTS):
            raise SearchformerError(
                f"a verdict is one of {', '.join(VERDICTS)}; found {sorted(map(str, unknown))[0]!r}"
            )

        def grid(values: np.ndarray, place: np.ndarray = place) -> np.ndarray:
            placed = np.empty(len(values), dtype=values.dtype)
            placed[place] = values
            return placed.reshape(len(task_ids), samples)

        surprises = None
        if imitations is not None:
            own_place = _places(imitations, task_ids=task_ids, samples=samples)
            surprises = grid(-_numbers(imitations, "log_probability").round(NATS_DECIMALS), own_place)

        legal = _column(verdicts, "trace_legal").cast(pa.bool_())
        optimal_length = grid(_integers(verdicts, "optimal_length"))
        if np.any(uneven := (optimal_length != optimal_length[:, :1]).any(1)):
            raise SearchformerError(f"task {task_ids[int(uneven.argmax())]} has answers with different optimal lengths")
        return cls(
            task_ids=tuple(task_ids),
            correct=grid(kind != "invalid"),
            optimal=grid(kind == "optimal"),
            plan_length=grid(_integers(verdicts, "plan_length")),
            trace_length=grid(_integers(verdicts, "trace_length")),
            trace_judged=grid(legal.is_valid().to_numpy()),
            trace_legal=grid(legal.fill_null(False).to_numpy()),
            trace_sound=grid(_column(verdicts, "trace_sound").cast(pa.bool_()).fill_null(False).to_numpy()),
            optimal_length=optimal_length[:, 0],
            astar_lengths=_astar_lengths(astar, task_ids=task_ids),
            shortest_searches=_of_each_task(astar, "shortest", task_ids=task_ids),
            astar_entropies=_of_each_task(astar, "nats", task_ids=task_ids),
            answer_surprises=surprises,
            exact=grid(_column(verdicts, "exact").to_numpy()) if "exact" in verdicts.column_names else None,
        )

    def subset(self, rows: np.ndarray) -> "Scores":
        """The scores of these tasks only; `rows` is a bool or index array over tasks."""
        ids = np.array(self.task_ids, dtype=object)[rows]
        arrays = {field.name: getattr(self, field.name) for field in fields(self)[1:]}
        chosen: dict[str, Any] = {name: None if array is None else array[rows] for name, array in arrays.items()}
        return Scores(tuple(ids), **chosen)


def _column(table: pa.Table, name: str) -> pa.ChunkedArray:
    """A column by name, or an error that names it."""
    if name not in table.column_names:
        raise SearchformerError(f"the table needs a column {name!r}; it has {', '.join(table.column_names)}")
    return table.column(name)


def _numbers(table: pa.Table, name: str) -> np.ndarray:
    """A column of numbers without nulls."""
    column = _column(table, name)
    if column.null_count:
        raise SearchformerError(f"column {name!r} must not hold nulls; found {column.null_count}")
    return column.to_numpy()


def _integers(table: pa.Table, name: str) -> np.ndarray:
    """An integer column without nulls, as int64."""
    return _numbers(table, name).astype(np.int64)


def _places(verdicts: pa.Table, *, task_ids: Sequence[str], samples: int) -> np.ndarray:
    """For each row its place task * samples + sample, shape [n * m]; a bijection, or an error that names the gap."""
    row_of = {task_id: row for row, task_id in enumerate(task_ids)}
    if len(row_of) != len(task_ids):
        raise IncompleteScoresError("a task id was asked for twice")
    named = _column(verdicts, "task_id").to_pylist()
    if strangers := [task_id for task_id in named if task_id not in row_of]:
        raise IncompleteScoresError(f"a verdict names task {strangers[0]}, which was not asked")
    sample = _integers(verdicts, "sample")
    if np.any(outside := (sample < 0) | (sample >= samples)):
        raise IncompleteScoresError(f"a verdict names sample {sample[outside][0]}; samples go from 0 to {samples - 1}")
    place = np.array([row_of[task_id] for task_id in named], dtype=np.int64) * samples + sample
    count = np.bincount(place, minlength=len(task_ids) * samples)
    if np.any(count != 1):
        first = int((count != 1).argmax())
        what = "no verdict" if count[first] == 0 else f"{count[first]} verdicts"
        raise IncompleteScoresError(
            f"{len(task_ids)} tasks x {samples} samples need one verdict each; "
            f"task {task_ids[first // samples]} sample {first % samples} has {what}"
        )
    return place


def _astar_lengths(astar: pa.Table, *, task_ids: Sequence[str]) -> np.ndarray:
    """Trace lengths of A*'s runs, int [n, runs], in the order of `task_ids`."""
    lengths = dict(zip(_column(astar, "task_id").to_pylist(), _column(astar, "lengths").to_pylist(), strict=True))
    if missing := [task_id for task_id in task_ids if task_id not in lengths]:
        raise IncompleteScoresError(f"A* reference lengths are missing for {len(missing)} tasks, first {missing[0]}")
    runs = {len(lengths[task_id]) for task_id in task_ids}
    if len(runs) != 1 or 0 in runs:
        raise IncompleteScoresError(f"every task needs the same number of A* runs, at least one; found {sorted(runs)}")
    return np.array([lengths[task_id] for task_id in task_ids], dtype=np.int64)


def _of_each_task(astar: pa.Table, name: str, *, task_ids: Sequence[str]) -> np.ndarray | None:
    """A column with a number per task, [n], in the order of `task_ids`; None if it is missing."""
    if name not in astar.column_names:
        return None
    found = dict(zip(astar["task_id"].to_pylist(), _numbers(astar, name).tolist(), strict=True))
    return np.array([found[task_id] for task_id in task_ids])


@dataclass(frozen=True, eq=False)
class Ratio:
    """A metric as a ratio of sums over tasks, so that resampling tasks is a matrix product.

    A plain mean over tasks has weight one everywhere; a mean over some tasks has weight zero at the others.
    """

    numerator: np.ndarray
    """float [n]."""
    weight: np.ndarray
    """float [n]."""

    @property
    def value(self) -> float | None:
        """sum(numerator) / sum(weight), or None where nothing was weighed."""
        total = float(self.weight.sum())
        return float(self.numerator.sum()) / total if total else None


def _mean(per_task: ArrayLike) -> Ratio:
    """The mean over all tasks."""
    numerator = np.asarray(per_task, dtype=float)
    return Ratio(numerator, np.ones_like(numerator))


def _undefined(scores: Scores) -> Ratio:
    """Nothing to weigh."""
    return Ratio(np.zeros(scores.tasks), np.zeros(scores.tasks))


# --- plans ------------------------------------------------------------------------------------------------------


def exact_match(exact: np.ndarray) -> Ratio:
    """(1/n) sum_i (1/m) sum_j [answer j of task i equals A*'s trace and plan token for token]; exact is bool [n, m].

    The paper's criterion for models of deterministic A*, where m = 1.
    """
    return _mean(exact.mean(axis=1))


def any_of_first(hits: np.ndarray) -> np.ndarray:
    """For k = 1..m: (1/n) sum_i [any of the first k answers of task i is a hit]; hits bool [n, m] -> float [m].

    With hits = optimal and k = m = 64 this is the paper's any-optimal-64.
    """
    return np.logical_or.accumulate(hits, axis=1).mean(axis=0)


def pass_at_k(hits: np.ndarray) -> np.ndarray:
    """For k = 1..m: (1/n) sum_i (1 - C(m - c_i, k) / C(m, k)), c_i = hits of task i; hits bool [n, m] -> float [m].

    The unbiased estimate of the chance that k fresh answers hold a hit: it averages over all choices of k answers,
    where `any_of_first` looks at one. They agree at k = m.
    """
    m = hits.shape[1]
    misses = m - hits.sum(axis=1, keepdims=True)
    drawn = np.arange(m)
    chance_all_miss = np.cumprod(np.maximum(misses - drawn, 0) / (m - drawn), axis=1)
    return (1 - chance_all_miss).mean(axis=0)


def any_optimal(scores: Scores) -> Ratio:
    """(1/n) sum_i [some answer of task i is optimal]: any-optimal-m, "Optimal" in the paper's Sokoban table."""
    return _mean(scores.optimal.any(axis=1))


def any_feasible(scores: Scores) -> Ratio:
    """(1/n) sum_i [some answer of task i is correct]: any-feasible-m, "Solved" in the paper's Sokoban table."""
    return _mean(scores.correct.any(axis=1))


def pass_at_1(scores: Scores) -> Ratio:
    """(1/(n m)) sum_ij [answer j of task i is optimal]: the chance that one answer is optimal."""
    return _mean(scores.optimal.mean(axis=1))


def pass_at_1_above(scores: Scores, other: Scores) -> Ratio:
    """How much more often answers are optimal than `other`'s, on the tasks that both answered: pass@1 less pass@1.

    Task by task, so that its interval is far narrower than those of the two shares: hard tasks are hard for both.
    """
    at = {task_id: row for row, task_id in enumerate(other.task_ids)}
    rows = [(row, at[task_id]) for row, task_id in enumerate(scores.task_ids) if task_id in at]
    mine, theirs = (share.mean(axis=1) for share in (scores.optimal, other.optimal))
    return _mean([mine[row] - theirs[there] for row, there in rows])


def pass_at_1_feasible(scores: Scores) -> Ratio:
    """(1/(n m)) sum_ij [answer j of task i is correct]: the chance that one answer is correct."""
    return _mean(scores.correct.mean(axis=1))


def swc(scores: Scores) -> Ratio:
    """(1/n) sum_i c_i l_i* / max(l_i, l_i*), Success Weighted by Cost.

    l_i is the length of the shortest correct plan among the m answers; c_i = 1 if there is one, else 0. Lengths count
    nodes (moves + 1) where the paper says cost: defined for a task that starts solved, and a hair above the ratio of
    moves elsewhere.
    """
    solved = scores.correct.any(axis=1)
    far = np.iinfo(np.int64).max
    shortest = np.where(scores.correct, scores.plan_length, far).min(axis=1)
    return _mean(solved * scores.optimal_length / np.maximum(shortest, scores.optimal_length))


# --- lengths of searches ----------------------------------------------------------------------------------------


def searched(scores: Scores, hits: np.ndarray) -> np.ndarray:
    """The hits that came with a search, bool [n, m].

    An answer without a trace has no search length. Leaving it out keeps a model that skips the search from
    scoring an infinite ratio, and leaves the length metrics undefined for solution-only models.
    """
    return hits & (scores.trace_length > 0)


def mean_length(scores: Scores, hits: np.ndarray) -> np.ndarray:
    """t_i: the mean trace length over the hits of task i that searched, float [n]; nan where there is none."""
    counted = searched(scores, hits)
    total = np.where(counted, scores.trace_length, 0).sum(axis=1)
    count = counted.sum(axis=1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def shortest_length(scores: Scores, hits: np.ndarray) -> np.ndarray:
    """The shortest trace among the hits of task i that searched, float [n]; nan where there is none."""
    shortest = np.where(searched(scores, hits), scores.trace_length, np.inf).min(axis=1)
    return np.where(np.isinf(shortest), np.nan, shortest)


def astar_length(scores: Scores) -> np.ndarray:
    """t_i*: the mean trace length over A*'s runs, float [n]."""
    return scores.astar_lengths.mean(axis=1)


def average_on_optimal_length(scores: Scores) -> Ratio:
    """(1/|O|) sum_{i in O} t_i, where O are the tasks with an optimal answer and t_i is the mean trace length over
    the optimal answers of task i."""
    lengths = mean_length(scores, scores.optimal)
    return Ratio(np.nan_to_num(lengths), ~np.isnan(lengths) * 1.0)


def astar_on_optimal_length(scores: Scores) -> Ratio:
    """(1/|O|) sum_{i in O} t_i*: A*'s mean length on the very tasks that `average_on_optimal_length` averages."""
    counted = ~np.isnan(mean_length(scores, scores.optimal))
    return Ratio(counted * astar_length(scores), counted * 1.0)


def length_ratio_of_means(scores: Scores) -> Ratio:
    """sum_{i in O} t_i* / sum_{i in O} t_i: A*'s mean length over the model's, on tasks with an optimal answer.

    Above one, the model searches less than A*. Means on both sides: unlike the shortest of m answers against one
    run of A*, it does not flatter a model that merely varies. 1 - 1/ratio is by how much traces are shorter.
    """
    lengths = mean_length(scores, scores.optimal)
    return Ratio(~np.isnan(lengths) * astar_length(scores), np.nan_to_num(lengths))


def shortest_search_length(scores: Scores) -> Ratio:
    """(1/|O|) sum_{i in O} s_i: the shortest true search, on the very tasks of `average_on_optimal_length`; s_i creates
    and closes the nodes of an optimal plan and nothing else."""
    if scores.shortest_searches is None:
        return _undefined(scores)
    counted = ~np.isnan(mean_length(scores, scores.optimal))
    return Ratio(counted * scores.shortest_searches, counted * 1.0)


def share_of_possible_saving(scores: Scores) -> Ratio:
    """sum_{i in O} (t_i* - t_i) / sum_{i in O} (t_i* - s_i): 0 searches as much as A*, 1 only along the plan."""
    if scores.shortest_searches is None:
        return _undefined(scores)
    lengths, astar = mean_length(scores, scores.optimal), astar_length(scores)
    counted = ~np.isnan(lengths)
    saved = counted * (astar - np.nan_to_num(lengths))
    return Ratio(saved, counted * (astar - scores.shortest_searches))


def _ilr(scores: Scores, lengths: np.ndarray) -> Ratio:
    """(1/n) sum_i c_i t_i* / t_i with t_i = lengths and c_i = 0 where that is nan; undefined if no answer searched."""
    known = ~np.isnan(lengths)
    ratios = np.where(known, astar_length(scores) / np.where(known, lengths, 1.0), 0.0)
    return Ratio(ratios, np.full(len(ratios), float(scores.trace_length.any())))


def ilr_on_solved_mean(scores: Scores) -> Ratio:
    """(1/n) sum_i c_i t_i* / t_i as in the published tables: t_i is the MEAN trace length over the correct answers of
    task i, c_i = 1 if there is one; tasks without one count as 0."""
    return _ilr(scores, mean_length(scores, scores.correct))


def ilr_on_optimal_mean(scores: Scores) -> Ratio:
    """(1/n) sum_i c_i t_i* / t_i as in the published tables: t_i is the MEAN trace length over the optimal answers of
    task i, c_i = 1 if there is one; tasks without one count as 0."""
    return _ilr(scores, mean_length(scores, scores.optimal))


def ilr_on_solved_shortest(scores: Scores) -> Ratio:
    """(1/n) sum_i c_i t_i* / t_i as in the paper's text: t_i is the SHORTEST trace among the correct answers of task
    i, c_i = 1 if there is one. Grows with m even for a model that does no better than A*."""
    return _ilr(scores, shortest_length(scores, scores.correct))


def ilr_on_optimal_shortest(scores: Scores) -> Ratio:
    """(1/n) sum_i c_i t_i* / t_i as in the paper's text: t_i is the SHORTEST trace among the optimal answers of task
    i, c_i = 1 if there is one. Grows with m even for a model that does no better than A*."""
    return _ilr(scores, shortest_length(scores, scores.optimal))


def _share_of_traces(scores: Scores, chosen: np.ndarray) -> Ratio:
    return Ratio((scores.trace_judged & chosen).sum(axis=1), scores.trace_judged.sum(axis=1) * 1.0)


def legal_traces(scores: Scores) -> Ratio:
    """Legal traces / judged traces, over all answers that hold a trace."""
    return _share_of_traces(scores, scores.trace_legal)


def sound_traces(scores: Scores) -> Ratio:
    """Sound traces / judged traces, over all answers that hold a trace."""
    return _share_of_traces(scores, scores.trace_sound)


# --- imitation --------------------------------------------------------------------------------------------------


def answer_nats(scores: Scores) -> Ratio:
    """(1/(n m)) sum_ij -ln p(answer j of task i): how much the model leaves to chance, its own entropy.

    p is the model's probability of the whole answer, eos included; of an answer that was cut, as far as it goes. A
    perfect imitator of non-deterministic A* has answer_nats = astar_nats, but for the chance of what was drawn. With
    more, it hesitates where A* does not; with fewer, it rules out some of what A* may do.
    """
    surprises = scores.answer_surprises
    return _undefined(scores) if surprises is None or not scores.trace_length.any() else _mean(surprises.mean(axis=1))


def astar_nats(scores: Scores) -> Ratio:
    """(1/n) sum_i H_i, where H_i is the entropy of A*'s searches of task i: the mean, over non-deterministic runs, of
    ln(open nodes of least f) summed over the closed nodes and ln(k!) summed over the k children created at a time.

    Undefined where `answer_nats` is: there is nothing to compare it with.
    """
    entropies = scores.astar_entropies
    return _undefined(scores) if entropies is None or answer_nats(scores).value is None else _mean(entropies)


_PLANS = (any_optimal, any_feasible, pass_at_1, pass_at_1_feasible, swc)
_RATIOS = (ilr_on_solved_mean, ilr_on_optimal_mean, ilr_on_solved_shortest, ilr_on_optimal_shortest)
_LENGTHS = (
    *(average_on_optimal_length, astar_on_optimal_length, shortest_search_length),
    *(length_ratio_of_means, share_of_possible_saving),
)
_TRACES, _NATS = (legal_traces, sound_traces), (answer_nats, astar_nats)
METRICS: dict[str, Callable[[Scores], Ratio]] = {
    metric.__name__: metric for metric in (*_PLANS, *_RATIOS, *_LENGTHS, *_TRACES, *_NATS)
}
"""Every metric that needs nothing but `Scores`, by the name it has in metrics.json."""
IMITATION = tuple(metric.__name__ for metric in _NATS)
"""Metrics of models of non-deterministic A* only, and of answers drawn from their own distribution."""


# --- uncertainty ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Estimate:
    """A number and how far to trust it."""

    value: float | None
    """None where the metric is undefined: no answer to measure."""
    low: float | None
    """Lower end of the confidence interval."""
    high: float | None
    """Upper end of the confidence interval."""
    standard_error: float | None
    """Standard deviation of the estimate."""


def task_resamples(tasks: int, *, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """How often each task is drawn in each resample of n tasks with replacement, in parts of shape [some, n].

    In parts, so that memory does not grow with resamples x tasks; the draws are the same whatever the parts.
    """
    generator = np.random.Generator(np.random.PCG64(seed))
    chances = np.full(tasks, 1 / tasks)
    at_once = max(1, DRAWS_AT_ONCE // tasks)
    for begin in range(0, resamples, at_once):
        size = min(at_once, resamples - begin)
        yield generator.multinomial(tasks, chances, size=size).astype(float)


def resample(
    ratios: Sequence[Ratio], *, seed: int = 0, resamples: int = 2000, confidence: float = 0.95
) -> list[Estimate]:
    """The percentile bootstrap over tasks: each metric's value, interval and standard error, from the same resamples.

    A resample that weighs nothing (no task with an optimal answer was drawn) has no value and is left out.
    """
    columns = np.column_stack([array for ratio in ratios for array in (ratio.numerator, ratio.weight)])
    drawn = task_resamples(len(columns), resamples=resamples, seed=seed)
    sums = np.concatenate([part @ columns for part in drawn])
    return [
        _estimate(ratio, sums[:, 2 * index], sums[:, 2 * index + 1], confidence=confidence)
        for index, ratio in enumerate(ratios)
    ]


def _estimate(ratio: Ratio, numerators: np.ndarray, weights: np.ndarray, *, confidence: float) -> Estimate:
    """An estimate from a ratio and its two sums in each resample, float [resamples] each."""
    if (value := ratio.value) is None:
        return Estimate(None, None, None, None)
    values = numerators[weights > 0] / weights[weights > 0]
    tail = (1 - confidence) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return Estimate(value, float(low), float(high), float(values.std(ddof=1)))


@dataclass(frozen=True)
class Measured:
    """A number with its standard error."""

    value: float
    error: float | None
    repeats: int
    """Training seeds behind it. With one, the error comes from resampling its test tasks."""

    def scaled(self, factor: float) -> "Measured":
        """The same in another unit."""
        return Measured(self.value * factor, None if self.error is None else self.error * factor, self.repeats)


def over_seeds(values: Sequence[float]) -> Measured:
    """Mean and standard error of the mean (the paper's SEM): sqrt(sum (v - mean)^2 / (r - 1)) / sqrt(r)."""
    if not values:
        raise SearchformerError("a mean over seeds needs at least one value")
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else None
    return Measured(float(np.mean(values)), error, len(values))


def score(scores: Scores, *, seed: int = 0, resamples: int = 2000, confidence: float = 0.95) -> dict[str, Any]:
    """All of the above, ready for metrics.json; lists hold one value per k = 1..m."""
    ratios = {name: metric(scores) for name, metric in METRICS.items()}
    if scores.exact is not None:
        ratios = {"exact_match": exact_match(scores.exact), **ratios}
    estimates = resample(list(ratios.values()), seed=seed, resamples=resamples, confidence=confidence)
    return {
        "tasks": scores.tasks,
        "samples": scores.samples,
        "astar_runs": scores.astar_lengths.shape[1],
        "intervals": {"over": "tasks", "confidence": confidence, "resamples": resamples, "seed": seed},
        "metrics": {name: vars(estimate) for name, estimate in zip(ratios, estimates, strict=True)},
        "any_optimal": any_of_first(scores.optimal).tolist(),
        "any_feasible": any_of_first(scores.correct).tolist(),
        "pass_at_k": pass_at_k(scores.optimal).tolist(),
        "pass_at_k_feasible": pass_at_k(scores.correct).tolist(),
    }
