"""The stages of a recipe, in the order they are run: data sets, training runs with their answers, bootstraps, report.

Lists in a `[[train]]` or `[[bootstrap]]` entry become their cartesian product. A stage's key, `train/SLUG`, is also
its folder in the run directory.
"""

import re
from collections import Counter
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import product

from searchformer.bootstrap.options import RoundsOptions
from searchformer.errors import SearchformerError, cut, shown
from searchformer.recipes.recipe import (
    FROM_EVALUATION,
    FROM_TRAINING,
    BootstrapSpec,
    DataSpec,
    EvaluationSpec,
    Recipe,
    ReportSpec,
    TrainSpec,
)


@dataclass(frozen=True)
class TrainRun:
    """One combination of a `[[train]]` entry's lists."""

    slug: str
    """Its name, and that of its folder."""
    data: str
    model: str
    plan_only: bool
    sequences: int | None
    seed: int
    spec: TrainSpec
    """What all runs of the entry share."""
    begins_with: str | None = None
    """The run whose weights it begins with."""


@dataclass(frozen=True)
class AnswerRun:
    """Answers of a training run's model to test tasks, judged and scored."""

    train: TrainRun
    data: str
    """Whose test tasks."""
    spec: EvaluationSpec


@dataclass(frozen=True)
class Merge:
    """Data sets that become one."""

    parts: tuple[str, ...]


@dataclass(frozen=True)
class BootstrapRun:
    """One training run bootstrapped with one rule."""

    slug: str
    train: TrainRun
    data: str
    """Whose training tasks are answered."""
    eval_data: str
    """Whose test tasks are answered."""
    options: RoundsOptions
    """The entry's, and where it leaves some out those of the training run and the evaluation."""


@dataclass(frozen=True)
class Stage:
    """One step of the experiment."""

    kind: str
    """data, train, rollout, bootstrap or report."""
    name: str
    """Within its kind."""
    work: DataSpec | Merge | TrainRun | AnswerRun | BootstrapRun | ReportSpec
    needs: tuple[str, ...] = ()
    """Keys of the stages whose results it reads."""

    @property
    def key(self) -> str:
        """Its folder below the run directory."""
        return f"{self.kind}/{self.name}" if self.name else self.kind


def stages_of(recipe: Recipe) -> list[Stage]:
    """All stages; raises if two have the same name, or a bootstrap names no training run."""
    runs = train_runs(recipe)
    stages = [Stage("data", name, spec) for name, spec in recipe.data.items()]
    for name, parts in recipe.merge.items():
        stages.append(Stage("data", name, Merge(parts), tuple(f"data/{part}" for part in parts)))
    for run in runs:
        before = (f"train/{run.begins_with}",) if run.begins_with else ()
        stages.append(Stage("train", run.slug, run, (f"data/{run.data}", *before)))
        for data in (recipe.evaluation.data or (run.data,)) if run.spec.answers else ():
            name = f"{run.slug}-on-{data}" if len(recipe.evaluation.data or ()) > 1 else run.slug
            answers = AnswerRun(run, data, recipe.evaluation)
            stages.append(Stage("rollout", name, answers, (f"data/{data}", f"train/{run.slug}")))
    for boot in bootstrap_runs(recipe, runs):
        needs = dict.fromkeys((f"data/{boot.data}", f"data/{boot.eval_data}", f"train/{boot.train.slug}"))
        stages.append(Stage("bootstrap", boot.slug, boot, tuple(needs)))
    stages.append(Stage("report", "", recipe.report, tuple(stage.key for stage in stages)))
    repeated = [key for key, count in Counter(stage.key for stage in stages).items() if count > 1]
    if repeated:
        kind, _, name = repeated[0].partition("/")
        raise SearchformerError(f"{kind}: two runs are called {shown(name)}; give their entries different names")
    return stages


def train_runs(recipe: Recipe) -> list[TrainRun]:
    """Every combination of every `[[train]]` entry. Names leave out what all runs share, but never the variant."""
    runs = [run for entry in recipe.train for run in _combinations(entry)]
    telling = [
        field for field in ("data", "model", "sequences", "seed") if len({getattr(run, field) for run in runs}) > 1
    ]
    named: list[TrainRun] = []
    for run in runs:
        named.append(replace(run, slug=_slug(run, telling), begins_with=_beginning(run, named, recipe)))
    return named


def _beginning(run: TrainRun, above: list[TrainRun], recipe: Recipe) -> str | None:
    """The run above that this one begins with; where several fit, the one of the same data, sequences and seed."""
    if run.spec.init_from is None:
        return None
    path, name = f"train[{recipe.train.index(run.spec)}].init_from", run.spec.init_from
    fitting = [
        other for other in above if (other.spec.name, other.model, other.plan_only) == (name, run.model, run.plan_only)
    ]
    for field in ("data", "sequences", "seed"):
        if len(fitting) > 1:
            fitting = [other for other in fitting if getattr(other, field) == getattr(run, field)]
    if len(fitting) != 1:
        variant = "solution-only" if run.plan_only else "search-augmented"
        raise SearchformerError(
            f"{path}: expected one {variant} run of {cut(run.model)} in an entry above called {shown(name)}; "
            f"found {len(fitting)}"
        )
    return fitting[0].slug


def _combinations(entry: TrainSpec) -> list[TrainRun]:
    lists = (entry.data, entry.model, entry.sequences or (None,), entry.plan_only, entry.seed)
    return [
        TrainRun("", data, model, plan_only, sequences, seed, entry)
        for data, model, sequences, plan_only, seed in product(*lists)
    ]


def _slug(run: TrainRun, telling: list[str]) -> str:
    parts = {
        "name": run.spec.name,
        "data": run.data,
        "model": short_model(run.model),
        "variant": "plan" if run.plan_only else "search",
        "sequences": str(run.sequences or "all"),
        "seed": f"seed{run.seed}",
    }
    return "-".join(text for part, text in parts.items() if text and part in ("name", "variant", *telling))


def short_model(model: str) -> str:
    """`15M` as it is, `dim=64,layers=3` as `d64l3`."""
    return "".join(f"{name[0]}{value}" for name, value in re.findall(r"(\w+)=(\w+)", model)) or model


def bootstrap_runs(recipe: Recipe, runs: list[TrainRun]) -> list[BootstrapRun]:
    """Every bootstrap: its training runs times its rules."""
    found = []
    for index, entry in enumerate(recipe.bootstrap):
        for run in _named(entry, runs, path=f"bootstrap[{index}].train"):
            for rule in entry.rule:
                parts = [entry.name, run.slug, rule if len(entry.rule) > 1 else ""]
                options = _complete_options(entry, run, recipe.evaluation, rule=rule)
                data, eval_data = entry.data or run.data, (recipe.evaluation.data or (run.data,))[0]
                found.append(BootstrapRun("-".join(part for part in parts if part), run, data, eval_data, options))
    return found


def _named(entry: BootstrapSpec, runs: list[TrainRun], *, path: str) -> list[TrainRun]:
    """The runs that search and that the entry names."""
    chosen: list[TrainRun] = []
    for name in entry.train:
        matching = [run for run in runs if run.spec.name == name or fnmatchcase(run.slug, name)]
        searching = [run for run in matching if not run.plan_only]
        if not matching:
            there = ", ".join(run.slug for run in runs) or "none"
            raise SearchformerError(f"{path}: no training run {shown(name)}; there are {cut(there)}")
        if not searching:
            raise SearchformerError(
                f"{path}: {shown(name)} names solution-only runs only, which have no traces to shorten"
            )
        chosen += [run for run in searching if run not in chosen]
    return chosen


def _complete_options(entry: BootstrapSpec, run: TrainRun, evaluation: EvaluationSpec, *, rule: str) -> RoundsOptions:
    """The entry's options, with the training run's and the evaluation's for those that it leaves out."""
    options = {"tasks": run.sequences} | {name: getattr(run.spec, name) for name in FROM_TRAINING} | {"seed": run.seed}
    options |= {name: getattr(evaluation, there) for name, there in FROM_EVALUATION.items()}
    options |= entry.model_dump(include=set(RoundsOptions.model_fields), exclude_none=True) | {"rule": rule}
    return RoundsOptions(**options)
