"""Kill a stage with -9 at random moments, start it again until it ends, and compare with one that was left alone.

The test suite does it a few times; `python tests/crash_stages.py 20 SEED [STAGE ...]` does it 20 times per stage, at
moments drawn from SEED, and prints a line of counts for each; then, where a stage has workers, it kills 20 of those. A
stage runs in a forked process, so that the time goes into the stage and not into loading libraries; training runs of
`bootstrap` and `run` are processes of their own.
"""

import contextlib
import hashlib
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from searchformer.bootstrap.options import BootstrapOptions
from searchformer.bootstrap.rounds import bootstrap
from searchformer.dataset.generate import generate
from searchformer.dataset.options import GenerateOptions
from searchformer.display import Silent, Update
from searchformer.evaluate.evaluation import evaluate
from searchformer.files import read_json
from searchformer.model.tensors import load_tensors
from searchformer.recipes.recipe import make_recipe
from searchformer.recipes.run import run_recipe
from searchformer.rollout import RolloutOptions, roll_out, store
from searchformer.train import train
from searchformer.train.log import read_metrics
from searchformer.train.options import TrainOptions

MAZE = {"width": 4, "height": 4}
SHAPE = "dim=16,layers=1,heads=2,ffn=32"
LEARNING = {"steps": 40, "batch_size": 8, "precision": "fp32", "save_every": 7, "eval_every": 20, "log_every": 5}


@dataclass(frozen=True)
class Inputs:
    """What the stages begin with, made once."""

    directory: Path

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def model(self) -> Path:
        return self.directory / "trained" / "model"

    def answers(self, out: Path, *, workers: int = 1, **how: Any) -> None:
        options = {"tasks": 12, "samples": 6, "precision": "fp32", "save_seconds": 0.02, "max_tokens": 200, "slots": 4}
        roll_out(RolloutOptions(model=self.model, data=self.data, out=out, workers=workers, **options), **how)

    def prepare(self) -> "Inputs":
        def make() -> None:
            generate(GenerateOptions(domain="maze", settings=MAZE, tasks=400, test_fraction=0.3), self.data)
            train(TrainOptions(data=self.data, model=SHAPE, **LEARNING), self.directory / "trained")

        assert in_child(make) == 0
        return self


def make_data(inputs: Inputs, out: Path, **how: Any) -> None:
    generate(GenerateOptions(domain="maze", settings={"width": 6, "height": 6}, tasks=30_000), out, **how)


def make_model(inputs: Inputs, out: Path) -> None:
    train(TrainOptions(data=inputs.data, model=SHAPE, **LEARNING | {"steps": 150}), out)


def make_answers(inputs: Inputs, out: Path, **how: Any) -> None:
    inputs.answers(out, **how)


def make_scores(inputs: Inputs, out: Path, **how: Any) -> None:
    if not (out / "manifest.json").exists():
        inputs.answers(out)
    evaluate(out, **how)


def make_rounds(inputs: Inputs, out: Path) -> None:
    more = {"rounds": 1, "samples": 2, "tasks": 20, "eval_tasks": 5, "eval_samples": 2, "steps": 10, "batch_size": 8}
    bootstrap(BootstrapOptions(model=inputs.model, data=inputs.data, precision="fp32", **more), out)


def make_run(inputs: Inputs, out: Path) -> None:
    learning = {key: value for key, value in LEARNING.items() if key != "log_every"}
    recipe = make_recipe(
        {
            "title": "crash",
            "data": {"maze": {"domain": "maze", "settings": MAZE, "tasks": 300}},
            "train": [{"data": "maze", "model": SHAPE, **learning, "steps": 20}],
            "evaluation": {"tasks": 5, "samples": 2, "precision": "fp32"},
        }
    )
    run_recipe(recipe, out, command="run", workers=1, jobs=1)


def bytes_of(out: Path) -> Any:
    """Every file, hidden ones too."""
    return {str(path.relative_to(out)): _digest(path) for path in out.rglob("*") if path.is_file()}


def weights_of(out: Path) -> Any:
    losses = [(one["step"], one["loss"]) for one in read_metrics(out) if one["kind"] == "train"]
    state, header = load_tensors(out / "checkpoint" / "state.safetensors", repair="")
    tensors = {name: hashlib.blake2b(tensor.numpy().tobytes()).hexdigest() for name, tensor in state.items()}
    return _digest(out / "model" / "model.safetensors"), (tensors, header), losses


def answers_of(out: Path) -> Any:
    rows = [row for table in store.read_answers(out) for row in table.to_pylist()]
    return sorted((row["task_id"], row["sample"], tuple(row["tokens"])) for row in rows)


def scores_of(out: Path) -> Any:
    return read_json(out / "metrics.json", what="evaluation")["metrics"], answers_of(out)


def rounds_of(out: Path) -> Any:
    folders = ("round-0", "round-1")
    return [scores_of(out / name / "rollout") for name in folders], weights_of(out / "round-1" / "train")


def run_of(out: Path) -> Any:
    trained = next(path for path in (out / "train").iterdir() if path.is_dir())
    return weights_of(trained), [scores_of(path) for path in sorted((out / "rollout").iterdir())]


STAGES: dict[str, tuple[Callable[..., None], Callable[[Path], Any]]] = {
    "generate": (make_data, bytes_of),
    "train": (make_model, weights_of),
    "rollout": (make_answers, answers_of),
    "evaluate": (make_scores, scores_of),
    "bootstrap": (make_rounds, rounds_of),
    "run": (make_run, run_of),
}
WITH_WORKERS = {"generate": 30_000, "rollout": 72, "evaluate": 72}
"""Stages that divide their work among processes, and how many tasks or answers they count."""


def _digest(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes()).hexdigest()


def in_child(work: Callable[[], Any], *, kill_after: float | None = None) -> int:
    """Run `work` in a forked process with its own group, which is killed after so many seconds; its exit code."""
    child = os.fork()
    if child == 0:
        os.setsid()
        code = 1
        try:
            work()
            code = 0
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(code)
    if kill_after is not None:
        end = time.monotonic() + kill_after
        while time.monotonic() < end:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.005)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(ProcessLookupError):  # training runs of a killed one end by themselves, soon
        while os.killpg(child, 0) is None:
            time.sleep(0.02)
    return os.waitstatus_to_exitcode(status)


def survive(stage: str, inputs: Inputs, directory: Path, *, moments: int, seed: int) -> dict[str, int]:
    """Kill the stage at `moments` moments, up to three times a run; counts kills, ends that came first, and runs."""
    make, read = STAGES[stage]
    chance = random.Random(f"{stage} {seed}")
    began = time.monotonic()
    assert in_child(lambda: make(inputs, directory / "whole")) == 0
    seconds, expected = time.monotonic() - began, read(directory / "whole")
    counts = {"kills": 0, "too late": 0, "runs": 0}
    while counts["kills"] < moments:
        out = directory / f"killed-{counts['runs']}"
        for _ in range(min(3, moments - counts["kills"])):
            code = in_child(lambda out=out: make(inputs, out), kill_after=chance.uniform(0, seconds))
            assert code in (0, -9), f"{stage}: exit code {code} after {counts} (seed {seed})"
            counts["kills" if code else "too late"] += 1
            seconds *= 1 if code else 0.8  # it is faster than it was at first
        assert in_child(lambda out=out: make(inputs, out)) == 0, f"{stage}: not resumed after {counts} (seed {seed})"
        assert read(out) == expected, f"{stage}: another result after {counts} (seed {seed})"
        counts["runs"] += 1
    return counts


class Killing(Silent):
    """Kills one of this process's workers at each of the moments, which are numbers of tasks or answers done."""

    def __init__(self, moments: list[int], chance: random.Random) -> None:
        self.moments, self.chance, self.kills = sorted(moments), chance, 0

    @contextlib.contextmanager
    def bar(self, title: str, *, unit: str) -> Iterator[Update]:
        def update(done: int, total: int, note: str) -> None:
            workers = sorted(multiprocessing.active_children(), key=lambda worker: worker.name)
            if self.moments and done >= self.moments[0] and workers:
                self.moments.pop(0)
                self.chance.choice(workers).kill()
                self.kills += 1

        yield update


def survive_without_workers(stage: str, inputs: Inputs, directory: Path, *, moments: int, seed: int) -> dict[str, int]:
    """Kill `moments` of the stage's workers, one or two a run: it ends all the same. Counts kills and runs."""
    make, read = STAGES[stage]
    chance = random.Random(f"workers of {stage} {seed}")
    make(inputs, directory / "alone")
    expected, counts = read(directory / "alone"), {"kills": 0, "runs": 0}
    while counts["kills"] < moments:
        drawn = [chance.randrange(1, WITH_WORKERS[stage] // 2) for _ in range(min(2, moments - counts["kills"]))]
        out, killing = directory / f"killed-{counts['runs']}", Killing(drawn, chance)
        make(inputs, out, workers=2, display=killing)
        assert killing.kills > 0, f"{stage}: no worker was there to kill (seed {seed})"
        assert read(out) == expected, f"{stage}: another result after {counts} (seed {seed})"
        counts = {"kills": counts["kills"] + killing.kills, "runs": counts["runs"] + 1}
    return counts


def say(name: str, counts: dict[str, int], seed: int) -> None:
    print(f"{name}:", ", ".join(f"{count} {what}" for what, count in counts.items()), f"seed {seed}", flush=True)


if __name__ == "__main__":
    moments = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    with tempfile.TemporaryDirectory() as name:
        inputs = Inputs(Path(name)).prepare()
        for stage in sys.argv[3:] or STAGES:
            say(stage, survive(stage, inputs, Path(name) / stage, moments=moments, seed=seed), seed)
            if stage in WITH_WORKERS:
                team = Path(name) / f"workers of {stage}"
                say(team.name, survive_without_workers(stage, inputs, team, moments=moments, seed=seed), seed)
