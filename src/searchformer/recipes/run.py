"""Runs a recipe, stage by stage, in a run directory: `recipe.toml` as resolved, then a folder per stage.

`stages.json` notes what is complete and how long it took. What is complete is skipped, what is not is gone on with;
how long is left is the estimate of `cost.py`, corrected by how long stages took here so far.
"""

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import Any

from searchformer.display import Display
from searchformer.errors import SearchformerError
from searchformer.files import locked, make_directory, read_json, write_json, write_text
from searchformer.model.config import shape_of
from searchformer.recipes.cost import CPU, GPU, duration, stage_cost
from searchformer.recipes.plan import AnswerRun, BootstrapRun, Stage, TrainRun, stages_of
from searchformer.recipes.recipe import DataSpec, Recipe, ReportSpec, first_difference, load_recipe, to_toml
from searchformer.train.launch import launch, train_command

RECIPE, STAGES = "recipe.toml", "stages.json"
TRUST_SECONDS = 30.0
"""The estimates count as much as so many seconds of measured time, so that a first, short stage decides little."""
SMALL_DIM = 128
"""Networks up to this width do not fill several cores."""


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
    display: Display,
    workers: int | None = None,
    jobs: int | None = None,
    command: str,
) -> Outcome:
    """Run what is missing in `out`, `jobs` training runs side by side (by default as many as there are cores or GPUs).

    `command` is what the user can type to go on after a failure.
    """
    stages = stages_of(recipe)
    settle(recipe, out)
    with locked(out, doing="running the recipe"):
        run = _Run(recipe, out, stages, display, workers or os.cpu_count() or 1, jobs)
        for number, stage in enumerate(stages, start=1):
            try:
                if stage.kind == "train":
                    run.train_together()
                run.bring_up(number, stage)
            except SearchformerError as error:
                raise SearchformerError(
                    f"stage {number} of {len(stages)}, {stage.key}: {error}; what is done is kept, `{command}` goes on"
                ) from error
        return Outcome(tuple(evaluations(stages, out)), out / "report" / "report.html", tuple(run.ran))


def settle(recipe: Recipe, out: Path) -> None:
    """Write the recipe into the run directory; raises if another one is there."""
    make_directory(out)
    path = out / RECIPE
    if path.exists():
        if difference := first_difference(load_recipe(str(path)), recipe):
            raise SearchformerError(f"{out} holds a run of another recipe: {difference}; choose another --out")
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
            listed = read_json(out / stage.key / "bootstrap.json", what="bootstrap run")["rounds"]
            for entry in listed:
                folder = Path(entry["evaluation"])
                if entry["round"] == 0:
                    continue
                yield f"{stage.name}, {folder.parent.name}", out / stage.key / folder


class _Run:
    """A run while it goes on."""

    def __init__(
        self, recipe: Recipe, out: Path, stages: list[Stage], display: Display, workers: int, jobs: int | None = None
    ) -> None:
        self.recipe, self.out, self.stages, self.display, self.workers = recipe, out, stages, display, workers
        self.jobs = jobs
        self.ran: list[str] = []
        path = out / STAGES
        self.records: dict[str, dict[str, Any]] = read_json(path, what="recipe's run") if path.exists() else {}
        self.device = ""
        self.estimates: dict[str, float] = {}

    def bring_up(self, number: int, stage: Stage) -> None:
        """Run the stage unless it is complete."""
        title = f"stage {number} of {len(self.stages)}: {stage.kind} {stage.name}".strip()
        if self.is_complete(stage):
            self.display.say(f"{title}: complete")
            return
        if not self.ran:
            self._estimate()
        left = duration(
            sum(self.time_left(later) for later in self.stages[number - 1 :] if not self.is_complete(later))
        )
        self.display.say(f"{title} (about {left} left in all)")
        directory = self.out / stage.key
        resumed = directory.exists()
        began = time.monotonic()
        self._run(stage, directory)
        self._note(stage, time.monotonic() - began, resumed=resumed)

    def train_together(self) -> None:
        """Train all models that are still to be trained, if several fit side by side; the answers come after."""
        runs = [(stage, stage.work) for stage in self.stages if isinstance(stage.work, TrainRun)]
        missing = [(stage, run) for stage, run in runs if not self.is_complete(stage)]
        late = {stage.name for stage, _ in missing}
        waiting = [(stage, run) for stage, run in missing if run.begins_with not in late]
        if not waiting:
            return
        if not self.ran:
            self._estimate()
        slots, places = side_by_side([run for _, run in waiting], self.device, self.jobs)
        if slots == 1:
            return
        self.display.say(f"training {len(waiting)} models, {slots} at a time; what they say is in train/NAME.log")
        make_directory(self.out / "train")
        with ThreadPoolExecutor(slots) as pool:
            doing = {pool.submit(self._train_beside, stage, run, places): stage for stage, run in waiting}
            try:
                for future in as_completed(doing):
                    stage, seconds = doing[future], future.result()
                    self._note(stage, seconds / slots, resumed=True)
                    left = sum(not self.is_complete(other) for other, _ in waiting)
                    self.display.say(f"{stage.key}: trained in {duration(seconds)}, {left} to go")
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        self.train_together()  # those that begin with the weights of these

    def _train_beside(self, stage: Stage, run: TrainRun, places: "Queue[dict[str, str]]") -> float:
        """Train one of several models on a place of its own; the seconds it took."""
        place = places.get()
        began = time.monotonic()
        try:
            self._train(run, self.out / stage.key, log=self.out / f"{stage.key}.log", place=place)
        finally:
            places.put(place)
        return time.monotonic() - began

    def _note(self, stage: Stage, seconds: float, *, resumed: bool) -> None:
        self.ran.append(stage.key)
        self.records[stage.key] = {"seconds": round(seconds, 1), "resumed": resumed}
        write_json(self.out / STAGES, self.records)

    def is_complete(self, stage: Stage) -> bool:
        """Whether it was finished before, is still there, and nothing it reads was made anew."""
        if stage.key in self.ran:
            return True
        there = stage.key in self.records and (self.out / stage.key).is_dir()
        return there and not any(need in self.ran for need in stage.needs if need != stage.key)

    def _estimate(self) -> None:
        from searchformer.model.device import choose_device

        self.device = choose_device(self.recipe.device).type
        machine = GPU if self.device == "cuda" else CPU
        self.estimates = {stage.key: stage_cost(stage, self.recipe, machine).seconds for stage in self.stages}

    def time_left(self, stage: Stage) -> float:
        """Seconds for the stage: estimated, and corrected by what its kind, or else all stages, took so far."""
        whole = [key for key, record in self.records.items() if not record["resumed"] and key in self.estimates]
        same = [key for key in whole if key.split("/")[0] == stage.kind]
        measured = sum(self.records[key]["seconds"] for key in same or whole)
        expected = sum(self.estimates[key] for key in same or whole)
        return self.estimates[stage.key] * (measured + TRUST_SECONDS) / (expected + TRUST_SECONDS)

    # --- one function per kind of stage

    def _run(self, stage: Stage, directory: Path) -> None:
        work = stage.work
        if isinstance(work, DataSpec):
            self._generate(work, directory)
        elif isinstance(work, TrainRun):
            self._train(work, directory)
        elif isinstance(work, AnswerRun):
            self._answer(work, directory)
        elif isinstance(work, BootstrapRun):
            self._bootstrap(work, directory)
        else:
            self._report(work, directory)

    def _generate(self, spec: DataSpec, directory: Path) -> None:
        from searchformer.dataset.generate import Progress, generate
        from searchformer.dataset.shards import GenerateConfig

        with self.display.bar("generate", unit="tasks") as update:

            def show(progress: Progress) -> None:
                update(progress.accepted, progress.tasks, "")

            generate(GenerateConfig(**spec.model_dump()), directory, workers=self.workers, report=show)

    def _train(
        self, run: TrainRun, directory: Path, *, log: Path | None = None, place: dict[str, str] | None = None
    ) -> None:
        where = {"data": self.out / "data" / run.data, "out": directory, "device": self.recipe.device}
        if run.begins_with:
            where["init_from"] = self.out / "train" / run.begins_with / "model"
        command = train_command(where | train_options(run), processes=run.spec.processes)
        done = launch(command, log=log, place=place)
        if done:
            raise SearchformerError(f"training {run.slug} ended with exit code {done}, see {log or 'above'}")

    def _answer(self, work: AnswerRun, directory: Path) -> None:
        from searchformer.evaluate.evaluation import evaluate
        from searchformer.rollout import RolloutOptions, roll_out

        options = RolloutOptions(
            model=self.out / "train" / work.train.slug / "model",
            data=self.out / "data" / work.train.data,
            out=directory,
            split="test",
            device=self.device,
            workers=self.workers if self.device == "cpu" else None,
            **work.spec.model_dump(),
        )
        roll_out(options, display=self.display)
        evaluate(directory, display=self.display)

    def _bootstrap(self, work: BootstrapRun, directory: Path) -> None:
        from searchformer.bootstrap.rounds import BootstrapOptions, bootstrap

        fields = work.spec.model_dump(exclude={"name", "train", "rule"}, exclude_none=True)
        options = BootstrapOptions(
            model=self.out / "train" / work.train.slug / "model",
            data=self.out / "data" / work.train.data,
            rule=work.rule,
            device=self.device,
            **fields,
        )
        bootstrap(options, directory, display=self.display)

    def _report(self, spec: ReportSpec, directory: Path) -> None:
        from searchformer.report.write import write_report

        runs = [self.out, *(Path(name) for name in spec.also)]
        with self.display.bar("report", unit="figures") as update:
            write_report(runs, out=directory, on_figure=lambda done, total: update(done, total, ""))


# --- training


def train_options(run: TrainRun) -> dict[str, Any]:
    """What `searchformer train` is told, besides where things are."""
    shared = run.spec.model_dump(
        exclude={"name", "data", "model", "plan_only", "sequences", "seed", "init_from", "processes"}
    )
    return {"model": run.model, "plan_only": run.plan_only, "sequences": run.sequences, "seed": run.seed, **shared}


def side_by_side(runs: list[TrainRun], device: str, jobs: int | None) -> tuple[int, "Queue[dict[str, str]]"]:
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
