"""Run directories in the browser: the models of a run, its test tasks, and the stored answers to replay.

Reads what the stages wrote, and writes nothing.
"""

import threading
from collections.abc import Callable
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from searchformer.errors import SearchformerError
from searchformer.report.results import Evaluation, load_results
from searchformer.rollout.store import Rollouts
from searchformer.solve import Task
from searchformer.web.models import runs_by_name
from searchformer.web.records import (
    MAX_SIDE,
    EvaluationView,
    RunDetail,
    RunView,
    Search,
    SearchRequest,
    StoredAnswer,
    StoredAnswers,
    StoredTask,
    TaskDetail,
)
from searchformer.web.searches import Searches

MOST_TASKS = 400
"""Tasks of a run that are listed."""
REPORT = Path("report/report.html")


class Run:
    """One run directory."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name, self.directory = name, directory
        self._rollouts = lru_cache(maxsize=16)(Rollouts.open)

    @property
    def report(self) -> Path | None:
        """The run's page, if it has one."""
        path = self.directory / REPORT
        return path if path.is_file() else None

    @cached_property
    def evaluations(self) -> dict[str, Evaluation]:
        """The judged models of mazes and Sokoban, by name."""
        found = load_results([self.directory]).evaluations
        drawable = [each for each in found if each.run["domain"] in ("maze", "sokoban")]
        return {each.name: each for each in sorted(drawable, key=lambda each: (each.model.control, each.model.round))}

    def view(self) -> RunView:
        """What the browser lists."""
        return RunView(name=self.name, has_report=self.report is not None)

    def detail(self) -> RunDetail:
        """The run's models, and the tasks that they answered; those of all of them and with long plans first."""
        counts: dict[str, int] = {}
        optimal: dict[str, int] = {}
        for one in self.evaluations.values():
            for task, length in zip(one.scores.task_ids, one.scores.optimal_length.tolist(), strict=True):
                counts[task] = counts.get(task, 0) + 1
                optimal[task] = int(np.max(length))
        order = sorted(counts, key=lambda task: (-counts[task], -optimal[task], task))[:MOST_TASKS]
        return RunDetail(
            **self.view().model_dump(),
            evaluations=[self._evaluation(one) for one in self.evaluations.values()],
            tasks=[StoredTask(task_id=t, evaluations=counts[t], optimal_length=optimal[t]) for t in order],
        )

    def _evaluation(self, one: Evaluation) -> EvaluationView:
        def value(metric: str) -> float | None:
            found = one.metric(metric)
            return found["value"] if found else None

        return EvaluationView(
            name=one.name,
            label=one.model.label,
            tasks=one.stored["tasks"],
            samples=one.samples,
            optimal=value("pass_at_1"),
            length_ratio=value("length_ratio_of_means"),
        )

    def task(self, task_id: str, searches: Searches, name_of: Callable[[str | None], str | None]) -> TaskDetail:
        """A task with everyone's answers; `name_of` gives the name of the model with a digest."""
        owners = [one for one in self.evaluations.values() if task_id in one.scores.task_ids]
        if not owners:
            raise LookupError(f"the run {self.name} has no test task {task_id!r}")
        task = self._task(owners[0], task_id)
        record: Any = task.domain.decode(task.problem)
        astar = searches.run(task, SearchRequest(task=record))
        answers = [self._answers(one, task_id, name_of(one.run.get("model", {}).get("digest"))) for one in owners]
        return TaskDetail(task=record, astar=astar, evaluations=answers)

    def _task(self, one: Evaluation, task_id: str) -> Task:
        rollouts = self._rollouts(one.directory)
        if task_id not in rollouts.problems:
            raise LookupError(f"{one.name} has no task {task_id!r}")
        problem = rollouts.problems[task_id]
        size = rollouts.domain.measure(problem)
        if max(size["width"], size["height"]) > MAX_SIDE:
            raise SearchformerError(f"this task is too large to be drawn: at most {MAX_SIDE} cells on each side")
        return Task(rollouts.domain.sized(problem), problem)

    def _answers(self, one: Evaluation, task_id: str, model: str | None) -> StoredAnswers:
        rows = one.verdicts.filter(pc.field("task_id") == task_id)
        columns = ("sample", "verdict", "trace_length", "plan_length")
        found = zip(*(rows[name].to_pylist() for name in columns), strict=True)
        answers = [
            StoredAnswer(sample=sample, verdict=verdict, trace_tokens=trace, plan_length=plan)
            for sample, verdict, trace, plan in sorted(found)
        ]
        return StoredAnswers(evaluation=one.name, label=one.model.label, model=model, answers=answers)

    def answer(
        self, evaluation: str, task_id: str, sample: int, searches: Searches, *, of: Task | None = None
    ) -> Search:
        """One stored answer, judged again; with `of`, it has to be an answer to that task."""
        if evaluation not in self.evaluations:
            raise LookupError(f"the run {self.name} has no evaluation {evaluation!r}")
        one = self.evaluations[evaluation]
        if not 0 <= sample < one.samples:
            raise LookupError(f"{evaluation} has answers 0 to {one.samples - 1}; found {sample}")
        task, rollouts = self._task(one, task_id), self._rollouts(one.directory)
        if of is not None and not np.array_equal(of.as_domain(task.domain).problem, task.problem):
            raise SearchformerError(f"the stored answer is to another task than the one that is shown: {task_id}")
        tokens = rollouts.vocabulary.decode(rollouts.answer(task_id, sample).tolist())
        rows = one.verdicts.filter((pc.field("task_id") == task_id) & (pc.field("sample") == sample))
        finished = rows["reason"].to_pylist() != ["no eos"]
        return searches.judged(task, tokens, finished=finished, who=one.model.label, sample=sample)


class Runs:
    """The runs that were given to the server."""

    def __init__(self, directories: list[Path] | tuple[Path, ...]) -> None:
        self.directories = runs_by_name(directories)
        self._runs = {name: Run(name, directory) for name, directory in self.directories.items()}
        self.lock = threading.Lock()
        """Held while a run is read: its tables are read once and kept."""

    def views(self) -> list[RunView]:
        """All runs."""
        return [run.view() for run in self._runs.values()]

    def run(self, name: str) -> Run:
        """A run by name; raises LookupError."""
        if name not in self._runs:
            raise LookupError(f"there is no run {name!r}; start the server with --run DIRECTORY")
        return self._runs[name]
