"""Runs a recipe, stage by stage, in a run directory: `recipe.toml` as resolved, then a folder per stage.

`stages.json` records what is complete and how long it took. What is complete is skipped, what is not is continued; the
time left is the estimate of `cost.py`, corrected by how long stages took here so far.
"""

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from queue import Queue
from typing import Any

from searchformer.bootstrap.options import BootstrapOptions
from searchformer.dataset.options import GenerateOptions
from searchformer.dataset.store import MANIFEST
from searchformer.display import Display, Silent, duration
from searchformer.engines.base import Engine
from searchformer.engines.local import LocalEngine
from searchformer.errors import Interrupted, SearchformerError
from searchformer.files import (
    RECIPE_RUN,
    locked,
    make_directory,
    read_json,
    require_kind,
    require_same,
    write_json,
    write_text,
)
from searchformer.model.config import SMALL_DIM, shape_of
from searchformer.recipes.cost import CPU, GPU, stage_cost
from searchformer.recipes.plan import AnswerRun, BootstrapRun, Merge, Stage, TrainRun, stages_of
from searchformer.recipes.recipe import DataSpec, Recipe, ReportSpec, load_recipe, result_fields, to_toml
from searchformer.rollout.options import AnswerOptions, RolloutOptions
from searchformer.train.launch import interrupt, launch, telling_the_saved_step, train_command
from searchformer.train.options import TrainingOptions, TrainOptions

RECIPE, STAGES = "recipe.toml", "stages.json"
TRUST_SECONDS = 30.0
"""The estimate weighs as much as this much measured time, so that a first, short stage changes it little."""


@dataclass(frozen=True)
class Outcome:
    """What a finished run leaves behind."""

    evaluations: tuple[tuple[str, Path], ...]
    """Names and directories of all scored answers, in order."""
    report: Path
    """The page."""
    ran: tuple[str, ...]
    """Keys of the stages that were run, the others being complete already."""


def run_recipe(
    recipe: Recipe,
    out: Path,
    *,
    command: str,
    workers: int | None = None,
    jobs: int | None = None,
    display: Display | None = None,
    engine: Engine | None = None,
) -> Outcome:
    """Run what is missing in `out`, `jobs` training runs side by side (by default as many as there are cores or GPUs).

    `command` is what the user can type to continue after a failure.
    """
    stages = stages_of(recipe)
    claim_directory(recipe, out)
    with locked(out, doing="running the recipe"):
        runner = RecipeRunner(recipe, out, stages, display or Silent(), workers, jobs, engine=engine)
        for number, stage in enumerate(stages, start=1):
            try:
                if stage.kind == "train":
                    runner.train_side_by_side()
                runner.run_unless_complete(number, stage)
            except KeyboardInterrupt as interrupt:
                raise Interrupted.within(f"stage {number} of {len(stages)}, {stage.key}", interrupt) from None
            except SearchformerError as error:
                raise SearchformerError(
                    f"stage {number} of {len(stages)}, {stage.key}: {error}; run `{command}` to continue"
                ) from error
        return Outcome(tuple(evaluations(stages, out)), out / "report" / "report.html", tuple(runner.ran))


def claim_directory(recipe: Recipe, out: Path) -> None:
    """Write the recipe into the run directory; raises if another one is there."""
    require_kind(out, RECIPE_RUN)
    make_directory(out)
    path = out / RECIPE
    if path.exists():
        found = result_fields(load_recipe(str(path)))
        require_same(found, result_fields(recipe), where=out, what=RECIPE_RUN)
    elif any(not entry.name.startswith(".") for entry in out.iterdir()):
        raise SearchformerError(f"{out} is not empty and holds no {RECIPE}; choose another --out")
    write_text(path, to_toml(recipe))


def evaluations(stages: list[Stage], out: Path) -> Iterator[tuple[str, Path]]:
    """Names and directories of all scored answers: of trained models, then of every round of the bootstraps.

    Round 0 is the trained model again; it is left out.
    """
    for stage in stages:
        if stage.kind == "rollout":
            yield stage.name, out / stage.key
        elif stage.kind == "bootstrap":
            for entry in read_json(out / stage.key / "bootstrap.json", what="bootstrap run")["rounds"]:
                folder = Path(entry["evaluation"])
                if entry["round"]:
                    yield f"{stage.name}, {folder.parent.name}", out / stage.key / folder


class RecipeRunner:
    """Runs stages, remembering in `stages.json` which are complete."""

    def __init__(
        self,
        recipe: Recipe,
        out: Path,
        stages: list[Stage],
        display: Display,
        workers: int | None,
        jobs: int | None = None,
        *,
        engine: Engine | None = None,
    ) -> None:
        self.recipe, self.out, self.stages, self.display = recipe, out, stages, display
        self.engine = engine or LocalEngine()
        self.workers = self.engine.worker_count(workers, default=os.cpu_count() or 1)
        self.jobs = jobs
        self.ran: list[str] = []
        path = out / STAGES
        self.records: dict[str, dict[str, Any]] = read_json(path, what="recipe's run") if path.exists() else {}

    def run_unless_complete(self, number: int, stage: Stage) -> None:
        """Run the stage unless it is complete."""
        title = f"stage {number} of {len(self.stages)}: {stage.kind} {stage.name}".strip()
        if self.is_complete(stage):
            self.display.say(f"{title}: complete")
            return
        left = duration(
            sum(self.time_left(later) for later in self.stages[number - 1 :] if not self.is_complete(later))
        )
        self.display.say(f"{title} (about {left} left in all)")
        directory = self.out / stage.key
        resumed = directory.exists()
        began = time.monotonic()
        self._run_stage(stage, directory)
        self._record(stage, time.monotonic() - began, resumed=resumed)

    def train_side_by_side(self) -> None:
        """Train all models that are still to be trained, if several fit side by side; the answers come after."""
        runs = [(stage, stage.work) for stage in self.stages if isinstance(stage.work, TrainRun)]
        missing = [(stage, run) for stage, run in runs if not self.is_complete(stage)]
        late = {stage.name for stage, _ in missing}
        waiting = [(stage, run) for stage, run in missing if run.begins_with not in late]
        if not waiting:
            return
        slots, places = places_for([run for _, run in waiting], self.device, self.jobs)
        if slots == 1:
            return
        self.display.say(f"training {len(waiting)} models, {slots} at a time; their output is in train/NAME.log")
        make_directory(self.out / "train")
        with ThreadPoolExecutor(slots) as pool:
            doing = {pool.submit(self._train_beside, stage, run, places): stage for stage, run in waiting}
            try:
                for future in as_completed(doing):
                    stage, seconds = doing[future], future.result()
                    self._record(stage, seconds / slots, resumed=True)
                    left = sum(not self.is_complete(other) for other, _ in waiting)
                    self.display.say(f"{stage.key}: trained in {duration(seconds)}, {left} to go")
            except BaseException:
                interrupt()
                pool.shutdown(cancel_futures=True)
                raise
        self.train_side_by_side()  # those that begin with the weights of these

    def _train_beside(self, stage: Stage, run: TrainRun, places: "Queue[dict[str, str]]") -> float:
        """Train one of several models, on its own GPU or share of the cores; the seconds it took."""
        place = places.get()
        began = time.monotonic()
        try:
            self._train(run, self.out / stage.key, log=self.out / f"{stage.key}.log", place=place)
        finally:
            places.put(place)
        return time.monotonic() - began

    def _record(self, stage: Stage, seconds: float, *, resumed: bool) -> None:
        self.ran.append(stage.key)
        self.records[stage.key] = {"seconds": round(seconds, 1), "resumed": resumed}
        write_json(self.out / STAGES, self.records)

    def is_complete(self, stage: Stage) -> bool:
        """Whether it was finished before, is still there, and nothing that it reads was made again."""
        if stage.key in self.ran:
            return True
        there = stage.key in self.records and (self.out / stage.key).is_dir()
        return there and not any(need in self.ran for need in stage.needs if need != stage.key)

    @cached_property
    def device(self) -> str:
        """The kind of device that models are trained and sampled on."""
        from searchformer.model.device import choose_device

        return choose_device(self.recipe.device).type

    @cached_property
    def estimates(self) -> dict[str, float]:
        """Seconds of each stage, by its key."""
        machine = GPU if self.device == "cuda" else CPU
        return {stage.key: stage_cost(stage, self.recipe, machine).seconds for stage in self.stages}

    def time_left(self, stage: Stage) -> float:
        """Seconds for the stage: estimated, and corrected by what its kind, or else all stages, took so far."""
        whole = [key for key, record in self.records.items() if not record["resumed"] and key in self.estimates]
        same = [key for key in whole if key.split("/")[0] == stage.kind]
        measured = sum(self.records[key]["seconds"] for key in same or whole)
        expected = sum(self.estimates[key] for key in same or whole)
        return self.estimates[stage.key] * (measured + TRUST_SECONDS) / (expected + TRUST_SECONDS)

    # --- one function per kind of stage

    def _run_stage(self, stage: Stage, directory: Path) -> None:
        work = stage.work
        if isinstance(work, DataSpec):
            self._generate(work, directory)
        elif isinstance(work, Merge):
            self._merge(work, directory)
        elif isinstance(work, TrainRun):
            self._train(work, directory)
        elif isinstance(work, AnswerRun):
            self._answer(work, directory)
        elif isinstance(work, BootstrapRun):
            self._bootstrap(work, directory)
        else:
            self._report(work, directory)

    def _generate(self, spec: DataSpec, directory: Path) -> None:
        from searchformer.dataset.generate import generate

        options = GenerateOptions(**spec.model_dump())
        generate(options, directory, workers=self.workers, display=self.display, engine=self.engine)

    def _merge(self, work: Merge, directory: Path) -> None:
        from searchformer.dataset.merge import merge

        if not (directory / MANIFEST).exists():
            merge([self.out / "data" / part for part in work.parts], directory)

    def _train(
        self, run: TrainRun, directory: Path, *, log: Path | None = None, place: dict[str, str] | None = None
    ) -> None:
        command = train_command(self.train_options(run), directory)
        with telling_the_saved_step(directory):
            done = launch(command, processes=run.spec.processes, log=log, place=place)
        if done:
            raise SearchformerError(f"training {run.slug} ended with exit code {done}, see {log or 'above'}")

    def train_options(self, run: TrainRun) -> TrainOptions:
        """The options of a training run in the run directory."""
        begins_with = self.out / "train" / run.begins_with / "model" if run.begins_with else None
        return TrainOptions(
            data=self.out / "data" / run.data,
            model=run.model,
            plan_only=run.plan_only,
            sequences=run.sequences,
            seed=run.seed,
            init_from=begins_with,
            device=self.recipe.device,
            **run.spec.model_dump(include=set(TrainingOptions.model_fields)),
        )

    def _answer(self, work: AnswerRun, directory: Path) -> None:
        from searchformer.evaluate.evaluation import evaluate
        from searchformer.rollout.dispatch import roll_out

        options = RolloutOptions(
            model=self.out / "train" / work.train.slug / "model",
            data=self.out / "data" / work.data,
            out=directory,
            device=self.device,
            workers=self.workers if self.device == "cpu" else None,
            **work.spec.model_dump(include=set(AnswerOptions.model_fields)),
        )
        roll_out(options, display=self.display, engine=self.engine)
        evaluate(directory, display=self.display, engine=self.engine)

    def _bootstrap(self, work: BootstrapRun, directory: Path) -> None:
        from searchformer.bootstrap.rounds import bootstrap

        asked = ((self.out / stage.key, stage.work) for stage in self.stages if isinstance(stage.work, AnswerRun))
        answers = (path for path, other in asked if (other.train, other.data) == (work.train, work.eval_data))
        options = BootstrapOptions(
            model=self.out / "train" / work.train.slug / "model",
            data=self.out / "data" / work.data,
            eval_data=self.out / "data" / work.eval_data,
            answers=next(answers, None),
            device=self.device,
            **work.options.model_dump(),
        )
        bootstrap(options, directory, display=self.display, engine=self.engine)

    def _report(self, spec: ReportSpec, directory: Path) -> None:
        from searchformer.report.write import write_report

        write_report([self.out, *map(Path, spec.also)], out=directory, display=self.display)


def places_for(runs: list[TrainRun], device: str, jobs: int | None) -> tuple[int, "Queue[dict[str, str]]"]:
    """How many of these runs to train at a time, and a place for each: a GPU of its own, or a share of the cores.

    Small models gain more from a second run beside them than from a second core for themselves.
    """
    processes = max(run.spec.processes for run in runs)
    places: Queue[dict[str, str]] = Queue()
    if device == "cuda":
        import torch

        named = os.environ.get("CUDA_VISIBLE_DEVICES")
        visible = named.split(",") if named else [str(number) for number in range(torch.cuda.device_count())]
        slots = min(jobs or len(visible) // processes, len(runs)) or 1
        for slot in range(slots):
            mine = visible[slot * processes % len(visible) :][:processes]
            places.put({"CUDA_VISIBLE_DEVICES": ",".join(mine)})
        return slots, places
    cores = os.cpu_count() or 1
    small = all(int(shape_of(run.model)["dim"]) <= SMALL_DIM for run in runs)
    slots = min(jobs or (cores // processes if small else 1), len(runs)) or 1
    for _ in range(slots):
        places.put({"OMP_NUM_THREADS": str(max(cores // slots, 1))})
    return slots, places
