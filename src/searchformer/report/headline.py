"""What a report has found, in a sentence or a few: the finding with its interval.

In: `Results`. Out: a sentence per bootstrap; without any, one per kind of task that was answered.
"""

from collections.abc import Callable, Sequence

from searchformer.evaluate import metrics
from searchformer.evaluate.metrics import Ratio, Scores, over_seeds, resample
from searchformer.report.families import chain_kinds, kind_label
from searchformer.report.results import Group, Results
from searchformer.report.saving import Round, above_control, possible, rounds_of, shorter

MOST = 4
"""Sentences at the head of a report."""


def headlines(results: Results) -> list[str]:
    """The findings, at most `MOST`; nothing where no answers were judged."""
    found = [bootstrap_headline(kind_label(c[0]), rounds_of(c)) for c in chain_kinds(results).values()]
    if not found:
        best: dict[str, Group] = {}
        for group in results.groups:
            best[group.task.label] = max(best.get(group.task.label, group), group, key=_optimal_per_answer)
        found = [answers_headline(group) for group in best.values()]
    left_out = len(found) - MOST
    return found if left_out <= 0 else [*found[:MOST], f"{left_out} more are in the tables below."]


def bootstrap_headline(label: str, rounds: Sequence[Round]) -> str:
    """By how much searches became shorter than A*'s, at what share of optimal answers, and where both began."""
    start = rounds[0]
    last = [one for one in rounds if not one.model.control][-1]
    controls = [one for one in rounds if one.model.control][-1:]
    number = last.model.round - start.model.round
    after = f"after {number} bootstrapping round{'' if number == 1 else 's'}" if number else "before bootstrapping"
    saved = f"{after}, searches are {compared(last)}"
    if last.lengths.possible:
        saved += f"; that is {with_interval([possible(scores) for scores in last.common])} of the possible saving"
    right = with_interval([metrics.pass_at_1(one.scores) for one in last.evaluations])
    others = [("the model that it started from", start)] if number else []
    others += [("the control", one) for one in controls]
    beside = "; ".join(
        f"{what}: {compared(one, interval=False)}, {_percent_right(one)} optimal" for what, one in others
    )
    if ratios := above_control(last, rounds):
        right += f" of answers are optimal, task by task {with_interval(ratios, unit=' points')} against the control's"
    else:
        right += " of answers are optimal"
    return f"{label}: {saved}. {right}." + (f" For comparison, {beside}." if beside else "")


def _percent_right(one: Round) -> str:
    """The share of answers that are optimal, over seeds: `97.6%`."""
    return f"{100 * over_seeds([metrics.pass_at_1(part.scores).value or 0.0 for part in one.evaluations]).value:.1f}%"


def compared(one: Round, *, interval: bool = True) -> str:
    """`7.6% shorter than A*'s (95% interval 6.4% to 8.9%)`."""
    longer = one.lengths.shorter.value < 0
    word = "longer" if longer else "shorter"
    if not interval:
        return f"{abs(one.lengths.shorter.value):.1f}% {word}"
    ratios = [shorter(scores) for scores in one.common]
    if longer:
        ratios = [Ratio(-ratio.numerator, ratio.weight) for ratio in ratios]
    return f"{with_interval(ratios, then=f' {word} than A*’s')}"


def answers_headline(group: Group) -> str:
    """How often the best model of a kind of task answers optimally."""

    def share(metric: Callable[[Scores], Ratio]) -> str:
        return with_interval([metric(one.scores) for one in group.evaluations])

    sequences = f", {group.model.sequences:,} training sequences" if group.model.sequences else ""
    text = f"{group.task.label}: {group.model.long_label}{sequences}: {share(metrics.pass_at_1)} of answers are optimal"
    if group.samples > 1:
        text += f"; {share(metrics.any_optimal)} of tasks have an optimal plan among {group.samples} answers"
    return f"{text}."


def _optimal_per_answer(group: Group) -> float:
    return over_seeds([metrics.pass_at_1(one.scores).value or 0.0 for one in group.evaluations]).value


def with_interval(ratios: Sequence[Ratio], *, then: str = "", unit: str = "%") -> str:
    """Shares in percent, or in points: one with its interval over test tasks, several with their standard error."""
    if len(ratios) > 1:
        mean = over_seeds([ratio.value or 0.0 for ratio in ratios]).scaled(100)
        return f"{mean.value:.1f}{unit}{then} (± {mean.error or 0:.1f}{unit}, standard error over {mean.repeats} seeds)"
    (share,) = resample(ratios)
    low, high = 100 * (share.low or 0), 100 * (share.high or 0)
    interval = f"(95% interval {low:.1f}{unit} to {high:.1f}{unit})"
    return f"{100 * (share.value or 0):.1f}{unit}{then} {interval}".replace("-", "−")
