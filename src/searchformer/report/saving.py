"""How much shorter than A*'s the searches of a bootstrap's models are, round by round.

Each round is measured on the test tasks that both the first model and the round's model answered with an optimal plan
that they searched for. In: bootstrap chains. Out: `Round`s, for the figure, the table and the headline.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from searchformer.bootstrap.rules import RULES
from searchformer.evaluate import metrics
from searchformer.evaluate.metrics import Measured, Ratio, Scores, over_seeds, resample
from searchformer.report.kinds import ModelKind
from searchformer.report.results import Chain, Evaluation


@dataclass(frozen=True, eq=False)
class Round:
    """The model of one round, over a bootstrap's seeds: search lengths of the model and of A* on the same tasks."""

    model: ModelKind
    label: str
    """`start`, `round 2` or `control 2`."""
    evaluations: tuple[Evaluation, ...]
    common: tuple[Scores, ...]
    """The scores of each evaluation on the tasks that are compared."""

    @property
    def tasks(self) -> int:
        """Tasks that are compared, over all seeds."""
        return sum(scores.tasks for scores in self.common)

    @cached_property
    def lengths(self) -> "RoundLengths":
        """Means with standard errors, over seeds, or over tasks where there is one seed."""
        tokens = [measured([measure(scores) for scores in self.common]) for measure in TOKENS]
        percents = [measured([measure(scores) for scores in self.common]) for measure in (shorter, possible)]
        model, astar = (one or Measured(0.0, None, 1) for one in tokens)
        saved, of_possible = (one and one.scaled(100) for one in percents)
        return RoundLengths(model, astar, saved or Measured(0.0, None, 1), of_possible)


@dataclass(frozen=True)
class RoundLengths:
    """Mean search length after one round, of the model and of A*, on the same tasks."""

    model: Measured
    astar: Measured
    shorter: Measured
    """By how much the model's mean is below A*'s, in percent."""
    possible: Measured | None
    """Share of the possible saving, in percent; None where the shortest searches are not known."""


def above_control(one: Round, rounds: Sequence[Round]) -> list[Ratio]:
    """How much more often a round's answers are optimal than those of its control, seed by seed; none without one."""
    controls = [each for each in rounds if each.model.control and each.model.round == one.model.round]
    if one.model.control or not controls:
        return []
    by_seed = {each.seed: each.scores for each in controls[0].evaluations}
    pairs = [(each.scores, by_seed[each.seed]) for each in one.evaluations if each.seed in by_seed]
    return [metrics.pass_at_1_above(*pair) for pair in pairs]


TOKENS = (metrics.average_on_optimal_length, metrics.astar_on_optimal_length)
possible = metrics.share_of_possible_saving


def shorter(scores: Scores) -> Ratio:
    """By how much the model's mean length is below A*'s, as a share of A*'s."""
    model, astar = (measure(scores) for measure in TOKENS)
    return Ratio(astar.numerator - model.numerator, astar.numerator)


def measured(ratios: Sequence[Ratio]) -> Measured | None:
    """A number with its standard error over seeds, or over tasks where there is one seed; None if it is undefined."""
    if len(ratios) == 1:
        (estimate,) = resample(ratios)
        return None if estimate.value is None else Measured(estimate.value, estimate.standard_error, 1)
    values = [value for ratio in ratios if (value := ratio.value) is not None]
    return over_seeds(values) if values else None


def optimal_in_both(start: Scores, after: Scores) -> np.ndarray:
    """Which tasks of `after` both answered with an optimal plan that they searched for, bool [tasks]."""
    rows = np.flatnonzero(metrics.searched(start, start.optimal).any(axis=1))
    at_start = {start.task_ids[row] for row in rows}
    also_asked = np.array([task_id in at_start for task_id in after.task_ids])
    return also_asked & metrics.searched(after, after.optimal).any(axis=1)


def common_scores(chain: Chain, one: Evaluation) -> Scores | None:
    """A model's scores on the tasks that it and the chain's start answered optimally; None without any."""
    rows = optimal_in_both(chain.start.scores, one.scores)
    return one.scores.subset(rows) if rows.any() else None


def rounds_of(chains: Sequence[Chain]) -> list[Round]:
    """The rounds of chains that differ in their seed only: the start, the rounds, the controls."""
    found = []
    start = chains[0].start.model
    for model in dict.fromkeys(one.model for chain in chains for one in chain.evaluations):
        pairs = [(chain, one) for chain in chains for one in chain.evaluations if one.model == model]
        known = [(one, scores) for chain, one in pairs if (scores := common_scores(chain, one))]
        if known:
            evaluations, common = zip(*known, strict=True)
            found.append(Round(model, round_label(model, start), evaluations, common))
    return found


def round_label(model: ModelKind, start: ModelKind) -> str:
    """`start`, `round 2` or `control 2`."""
    return "start" if model == start else f"{'control' if model.control else 'round'} {model.round}"


def explain_rules(rules: Sequence[str]) -> dict[str, str]:
    """Which answers each of these rules takes, for rules that this version knows; a rule is `NAME[, fresh tasks]`."""
    explained = {}
    for name, _, tasks in (rule.partition(", ") for rule in rules):
        if name in RULES:
            explained[name] = f"of a task's answers that are shorter than its trace, {RULES[name].explanation}."
        if tasks:
            explained[tasks] = "every round samples answers to training tasks that no earlier round has used."
    return explained
