"""Which models belong in one figure: the rounds of a bootstrap, or the searching models of one kind of task."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from searchformer.evaluate import metrics
from searchformer.report.charts import MissingInputError, slug
from searchformer.report.results import Chain, Evaluation, Results

MOST_MODELS = 6
"""Models side by side in one figure."""


@dataclass(frozen=True, eq=False)
class Family:
    """Models that belong in one figure: the rounds of a bootstrap, or the searching models of one kind of task."""

    label: str
    evaluations: tuple[Evaluation, ...]
    """One seed of each model."""
    note: str
    """Which seed, and what was left out."""


def chain_kinds(results: Results) -> dict[Any, list[Chain]]:
    """Chains that differ in their seed only, by what they share."""
    kinds: dict[Any, list[Chain]] = {}
    for chain in results.chains:
        if any(metrics.searched(one.scores, one.scores.optimal).any() for one in chain.evaluations):
            kind = (chain.start.task, chain.start.model, chain.start.sampling, chain_rule(chain))
            kinds.setdefault(kind, []).append(chain)
    return {kind: sorted(chains, key=lambda chain: chain.start.seed) for kind, chains in kinds.items()}


def chain_rule(chain: Chain) -> str:
    """The selection rule of a bootstrap; empty where it is not known."""
    return next((one.model.rule for one in chain.evaluations if one.model.rule), "")


def kind_label(chain: Chain) -> str:
    """What a chain is about: `maze 6×6, 15M, 10,000 sequences`."""
    model = chain.start.model
    sequences = f"{model.sequences:,} sequences" if model.sequences else ""
    rule = chain_rule(chain)
    chosen = f"rule {rule}" if rule else ""
    return ", ".join(part for part in (chain.start.task.label, model.size, sequences, chosen) if part)


def families(results: Results) -> list[Family]:
    """What figures of lengths show: each bootstrap; without any, the largest searching models of each task."""
    found = []
    for chains in chain_kinds(results).values():
        shown = fewer_rounds(chains[0].evaluations)
        note = f"Seed {chains[0].start.seed} of {len(chains)} seeds. " if len(chains) > 1 else ""
        note += "Some rounds are not drawn. " if len(shown) < len(chains[0].evaluations) else ""
        found.append(Family(kind_label(chains[0]), shown, note))
    if found:
        return found
    by_task: dict[Any, list[Evaluation]] = {}
    for group in results.groups:
        first = group.evaluations[0]
        if not group.task.deterministic and first.metric("average_on_optimal_length"):
            by_task.setdefault(group.task, []).append(first)
    for task, models in by_task.items():
        left_out = len(models) - MOST_MODELS
        note = f"{left_out} models with fewer parameters or training sequences are not drawn. " if left_out > 0 else ""
        found.append(Family(task.label, tuple(models[-MOST_MODELS:]), note))
    if not found:
        raise MissingInputError("needs an evaluation of a model that searches, with an optimal answer")
    return found


def fewer_rounds(evaluations: tuple[Evaluation, ...], *, most: int = MOST_MODELS) -> tuple[Evaluation, ...]:
    """At most `most` of a chain: its start, its last round, rounds between at even distances, a control."""
    if len(evaluations) <= most:
        return evaluations
    controls = [one for one in evaluations if one.model.control][-1:]
    rounds = [one for one in evaluations if not one.model.control]
    places = np.unique(np.linspace(0, len(rounds) - 1, most - len(controls)).round().astype(int))
    return (*(rounds[place] for place in places), *controls)


def model_label(one: Evaluation, family: Family) -> str:
    """A model's title, with whatever tells it from the others of its family."""
    models = [other.model for other in family.evaluations]
    label = one.model.label if len({model.size for model in models}) > 1 else one.model.title
    alike = sum((model.title, model.size) == (one.model.title, one.model.size) for model in models)
    return f"{label}, {one.model.sequences:,} sequences" if alike > 1 and one.model.sequences else label


def titled(title: str, family: Family, of: Sequence[Family]) -> str:
    """A chart's title; the family is part of it where there are several."""
    return title if len(of) == 1 else f"{title}: {family.label}"


def named(name: str, family: Family, of: Sequence[Family]) -> str:
    """A chart's name; the family is part of it where there are several."""
    return name if len(of) == 1 else f"{name}-{slug(family.label)}"
