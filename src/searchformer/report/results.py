"""Result files of any number of runs, found and read.

In: run directories. Out: `Results`: evaluations, bootstrap chains, training curves and data sets found anywhere below
them. Only the files that the other stages write are read; scores are computed again from the verdicts.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from searchformer.dataset.store import SPLITS, Dataset
from searchformer.digests import require_recorded
from searchformer.errors import SearchformerError, cut
from searchformer.evaluate.metrics import Scores
from searchformer.files import read_json
from searchformer.report.kinds import ModelKind, TaskKind, size_order
from searchformer.train.log import read_metrics

EVALUATION_FILES = ("metrics.json", "verdicts.parquet", "astar.parquet")


@dataclass(frozen=True, eq=False)
class Evaluation:
    """One judged and scored directory of rollouts."""

    directory: Path
    name: str
    """Where it was found, from the run directory on."""
    stored: dict[str, Any]
    """metrics.json."""
    task: TaskKind
    model: ModelKind

    @property
    def run(self) -> dict[str, Any]:
        """The rollout's configuration."""
        return self.stored["run"]

    @property
    def trained(self) -> dict[str, Any]:
        """What the model says of its training; empty for models from elsewhere."""
        return self.run.get("model", {}).get("trained") or {}

    @property
    def seed(self) -> int:
        """The training seed, 0 where it is not known."""
        return self.trained.get("seed") or 0

    @property
    def samples(self) -> int:
        """Answers per task."""
        return self.stored["samples"]

    @property
    def sampling(self) -> tuple[Any, ...]:
        """How answers were drawn: evaluations that differ in it are not repeats of each other."""
        names = ("split", "tasks", "samples", "temperature", "top_k", "top_p", "max_tokens")
        return tuple(self.run.get(name) for name in names)

    def metric(self, name: str) -> dict[str, float | None] | None:
        """A metric of metrics.json (value, low, high, standard_error); None where it is undefined."""
        found = self.stored["metrics"].get(name)
        return found if found and found.get("value") is not None else None

    @cached_property
    def verdicts(self) -> pa.Table:
        """verdicts.parquet."""
        return read_table(self.directory / "verdicts.parquet")

    @cached_property
    def scores(self) -> Scores:
        """All verdicts as arrays; raises if tasks or answers are missing."""
        astar = read_table(self.directory / "astar.parquet")
        task_ids = astar.column("task_id").to_pylist()
        if len(task_ids) != self.stored["tasks"]:
            raise SearchformerError(
                f"{self.directory}: metrics.json counts {self.stored['tasks']} tasks, astar.parquet holds "
                f"{len(task_ids)}; run `searchformer evaluate` again"
            )
        try:
            return Scores.from_tables(self.verdicts, astar, task_ids=task_ids, samples=self.samples)
        except SearchformerError as error:
            raise SearchformerError(f"{self.directory}: {error}") from error

    @cached_property
    def violations(self) -> Counter[str]:
        """How many judged traces are `legal`, and how many are not or `undecided`, by the first violation's kind."""
        legal = self.verdicts.column("trace_legal").to_pylist()
        kinds = self.verdicts.column("violation").to_pylist()
        judged = [(fine, kind) for fine, kind in zip(legal, kinds, strict=True) if fine is not None or kind]
        return Counter("legal" if fine else (kind or "unnamed").split(":")[0] for fine, kind in judged)


@dataclass(frozen=True, eq=False)
class Chain:
    """The evaluations of one bootstrap: the model it started from, each round's, and the controls."""

    name: str
    evaluations: tuple[Evaluation, ...]
    """Sorted by round, controls last."""

    @property
    def start(self) -> Evaluation:
        """The evaluation that others are compared with."""
        return self.evaluations[0]


@dataclass(frozen=True, eq=False)
class Curve:
    """A training run's metrics.jsonl."""

    name: str
    rows: tuple[dict[str, Any], ...]
    fine_tuned: bool = False
    """Whether it began with the weights of another model."""

    def points(self, kind: str, column: str, **where: Any) -> np.ndarray:
        """(step, value) of the rows of this kind that have the column, float [rows, 2]."""
        chosen = [row for row in self.rows if row.get("kind") == kind and row.get(column) is not None]
        chosen = [row for row in chosen if all(row.get(name) == value for name, value in where.items())]
        return np.array([(row["step"], row[column]) for row in chosen], dtype=float).reshape(-1, 2)


@dataclass(frozen=True, eq=False)
class DataLengths:
    """Sequence lengths of a data set."""

    name: str
    task: TaskKind
    lengths: dict[str, dict[str, np.ndarray]]
    """Split to part (prompt, trace, plan) to tokens per task, int [rows]."""


@dataclass(frozen=True, eq=False)
class Results:
    """All that was found."""

    evaluations: tuple[Evaluation, ...] = ()
    chains: tuple[Chain, ...] = ()
    curves: tuple[Curve, ...] = ()
    datasets: tuple[DataLengths, ...] = ()
    notes: tuple[str, ...] = ()
    """What was left out, and why."""

    @cached_property
    def groups(self) -> tuple["Group", ...]:
        """The evaluations, those that differ in the training seed only together."""
        return tuple(grouped(self.evaluations))

    @cached_property
    def rules(self) -> tuple[str, ...]:
        """The selection rules of all bootstraps, in alphabetical order."""
        return tuple(sorted({one.model.rule for chain in self.chains for one in chain.evaluations} - {""}))

    def label(self, model: ModelKind) -> str:
        """A model's label in figures; the selection rule is part of it where there are several."""
        return model.long_label if len(self.rules) > 1 else model.label


@dataclass(frozen=True, eq=False)
class Group:
    """Evaluations that differ in the training seed only."""

    task: TaskKind
    model: ModelKind
    samples: int
    evaluations: tuple[Evaluation, ...]
    """Sorted by seed."""


def grouped(evaluations: Iterable[Evaluation]) -> Iterator[Group]:
    """Evaluations as groups of repeats, in the order of tables: task, size, variant, round, sequences."""
    groups: dict[Any, list[Evaluation]] = {}
    for evaluation in evaluations:
        groups.setdefault((evaluation.task, evaluation.model, evaluation.sampling), []).append(evaluation)
    for members in sorted(groups.values(), key=lambda members: table_order(members[0])):
        first = members[0]
        yield Group(
            first.task, first.model, first.samples, tuple(sorted(members, key=lambda one: (one.seed, one.name)))
        )


def table_order(evaluation: Evaluation) -> tuple[Any, ...]:
    """The order in which evaluations are listed: as in the paper's table, small and plain first."""
    task, model = evaluation.task, evaluation.model
    kind = (task.domain, not task.deterministic, task.cells, str(task.settings))
    shape = (size_order(model.size), model.searches, model.variant)
    return (*kind, *shape, model.control, model.rule, model.round, model.sequences or 0, str(evaluation.sampling))


# --- reading ----------------------------------------------------------------------------------------------------


def read_table(path: Path) -> pa.Table:
    """A Parquet file, or an error that names it."""
    repair = "run `searchformer evaluate` again"
    require_recorded(path, repair=repair)
    try:
        return pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise SearchformerError(f"{path} cannot be read: {cut(str(error))}; {repair}") from error


def load_results(runs: Sequence[Path]) -> Results:
    """Everything below the run directories; raises if one does not exist or all are empty of results."""
    evaluations: dict[Path, Evaluation] = {}
    curves, datasets, bootstraps, notes = [], [], {}, []
    for directory, name, files in _walk(runs):
        if "metrics.json" in files:
            if missing := [file for file in EVALUATION_FILES if file not in files]:
                notes.append(f"{name}: metrics.json without {', '.join(missing)}, left out")
            else:
                evaluations[directory.resolve()] = load_evaluation(directory, name)
        if "metrics.jsonl" in files:
            config = read_json(directory / "config.json", what="training run") if "config.json" in files else {}
            curves.append(Curve(name, tuple(read_metrics(directory)), fine_tuned=bool(config.get("init_from"))))
        manifest = read_json(directory / "manifest.json", what="manifest") if "manifest.json" in files else {}
        if {"shards", "config", "vocabulary_digest"} <= manifest.keys():  # rollouts have a manifest too
            datasets.append(load_lengths(directory, name))
        if "bootstrap.json" in files:
            bootstraps[directory] = name
    listed = [load_chain(directory, name, evaluations) for directory, name in bootstraps.items()]
    in_chains = {one.directory for chain in listed for one in chain.evaluations}
    unlisted = [one for one in evaluations.values() if one.directory not in in_chains]
    chains = [*(chain for chain in listed if chain.evaluations), *inferred_chains(unlisted)]
    kept, repeated = without_repeats(evaluations.values())
    results = Results(kept, tuple(chains), tuple(curves), tuple(datasets), (*notes, *repeated))
    if not (results.evaluations or results.curves or results.datasets):
        raise SearchformerError(f"no results below {', '.join(map(str, runs))}: run train, rollout and evaluate first")
    return results


def _walk(runs: Sequence[Path]) -> Iterator[tuple[Path, str, set[str]]]:
    """Every directory below the runs once, in order, with the name it has in reports and its files."""
    seen: set[Path] = set()
    for run in runs:
        if not run.is_dir():
            raise SearchformerError(f"{run} is not a directory; give the run directories to report on")
        for folder, children, files in os.walk(run):
            children[:] = sorted(child for child in children if not child.startswith("."))
            directory = Path(folder)
            if (resolved := directory.resolve()) in seen:
                continue
            seen.add(resolved)
            inside, run_name = directory.relative_to(run), run.resolve().name
            alone = len(runs) == 1 and inside != Path()
            yield directory, str(inside if alone else run_name / inside), set(files)


def load_evaluation(directory: Path, name: str) -> Evaluation:
    """The evaluation in a rollout directory."""
    path = directory / "metrics.json"
    stored = read_json(path, what="evaluation")
    try:
        run = stored["run"]
        task = TaskKind.of(run["domain"], run["settings"], deterministic=bool(run["deterministic"]))
        stored["tasks"], stored["samples"], stored["metrics"]
    except (KeyError, TypeError) as error:
        raise SearchformerError(
            f"{path} is not an evaluation: it lacks {error}; run `searchformer evaluate`"
        ) from error
    trained = run.get("model", {}).get("trained") or {}
    model = ModelKind(
        size=short_size(trained),
        variant=trained.get("variant") or name,
        sequences=trained.get("sequences"),
        round=trained.get("bootstrap_round") or 0,
        control=bool(trained.get("control")),
    )
    return Evaluation(directory, name, stored, task, model)


def short_size(trained: dict[str, Any]) -> str:
    """The model's named size; a custom shape is named by its number of parameters, which fits into a legend."""
    size, parameters = trained.get("size") or "", trained.get("parameters")
    return f"{parameters / 1e6:.2g}M" if "=" in size and parameters else size


def load_chain(directory: Path, name: str, evaluations: dict[Path, Evaluation]) -> Chain:
    """The evaluations that a bootstrap.json lists, which also says which round each belongs to.

    Rounds are counted on from those of the model that the bootstrap started from. The rounds are also noted in
    `evaluations`, so that tables and figures agree.
    """
    stored = read_json(directory / "bootstrap.json", what="bootstrap run")
    found = []
    earlier_rounds = 0
    for entry in sorted(stored.get("rounds", []), key=lambda entry: entry["round"]):
        place = (directory / str(entry.get("evaluation"))).resolve()
        if place not in evaluations:
            continue
        if entry["round"] == 0:
            earlier_rounds = evaluations[place].model.round
        control = bool(entry.get("control"))
        rule = str(stored.get("rule") or "") if entry["round"] and not control else ""
        model = replace(evaluations[place].model, round=earlier_rounds + entry["round"], control=control, rule=rule)
        evaluations[place] = replace(evaluations[place], model=model)
        found.append(evaluations[place])
    return Chain(name, tuple(sorted(found, key=lambda one: (one.model.control, one.model.round))))


def inferred_chains(evaluations: Iterable[Evaluation]) -> list[Chain]:
    """Chains by what models say of their training, for those that no bootstrap.json lists."""
    chains: dict[Any, list[Evaluation]] = {}
    for one in evaluations:
        start = replace(one.model, round=0, control=False)
        chains.setdefault((one.task, start, one.sampling, one.seed), []).append(one)
    rounds = [sorted(chain, key=lambda one: (one.model.control, one.model.round)) for chain in chains.values()]
    return [Chain(chain[0].name, tuple(chain)) for chain in rounds if any(one.model.round for one in chain)]


def without_repeats(evaluations: Iterable[Evaluation]) -> tuple[tuple[Evaluation, ...], list[str]]:
    """Each model's evaluation once, and notes on those left out: answers of one model are not repeats of training."""
    kept: dict[Any, Evaluation] = {}
    notes = []
    for one in evaluations:
        digest = one.run.get("model", {}).get("digest") or one.name
        first = kept.setdefault((one.task, one.model, one.sampling, digest), one)
        if first is not one:
            notes.append(f"{one.name}: the same model as {first.name}, counted once in tables and means")
    return tuple(kept.values()), notes


def load_lengths(directory: Path, name: str) -> DataLengths:
    """The length columns of a data set; nothing else of it is read."""
    dataset = Dataset(directory)
    lengths = {split: found for split in SPLITS if (found := dataset.lengths(split))}
    manifest = dataset.manifest
    deterministic = bool(manifest.config.get("deterministic"))
    task = TaskKind.of(manifest.domain, manifest.settings, deterministic=deterministic)
    return DataLengths(name, task, lengths)
