"""What a task, an answer, a trained token, a shard and a worker cost: docs/scale.md estimates experiments from these.

Processor seconds, not time on the clock: they mean something on a machine that others use too. `--ray` adds three Ray
nodes on this machine. The last line is JSON. Try: `python benchmarks/scale.py --only tasks`.
"""

import argparse
import contextlib
import json
import os
import resource
import shutil
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from searchformer.dataset.batches import Sequences
from searchformer.dataset.duplicates import repeats_in_range
from searchformer.dataset.generate import generate
from searchformer.dataset.options import GenerateOptions
from searchformer.dataset.shards import ShardIndex, index_path
from searchformer.dataset.store import Dataset
from searchformer.dataset.supply import MakeShard
from searchformer.engines.base import Crew, Engine, MakeJob
from searchformer.engines.local import LocalEngine

KINDS: dict[str, dict[str, Any]] = {
    "maze 10x10": {"domain": "maze", "settings": {"width": 10, "height": 10}},
    "maze 30x30": {"domain": "maze", "settings": {"width": 30, "height": 30}},
    "sokoban 7x7": {"domain": "sokoban", "settings": {"width": 7, "height": 7, "walls": 2, "boxes": 2}},
}
MODELS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "maze 10x10": ("maze-10x10", 32, {}),
    "sokoban 7x7": ("sokoban-7x7", 16, {"max_trace_tokens": 3000}),
}
"""Packaged models, all of size step-medium, with the batch and the limit of traces that they were trained with."""
SAMPLES = 16


class Nothing:
    """A job that costs nothing: what remains is the engine."""

    def __call__(self, item: int) -> Iterator[int]:
        yield item
        return item


def processor_seconds() -> float:
    """Of this process and of those that it started and that have ended."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(getattr(resource.getrusage(kind), field) for kind in kinds for field in ("ru_utime", "ru_stime"))


def cost_of_tasks(tasks: int) -> dict[str, dict[str, float]]:
    """Processor seconds, bytes and tokens per task, one process, once warm."""
    found = {}
    for name, options in KINDS.items():
        with tempfile.TemporaryDirectory() as directory:
            generate(GenerateOptions(**options, tasks=200), Path(directory) / "warm")
            count = tasks if "10x10" in name else tasks // 8
            began = processor_seconds()
            manifest = generate(GenerateOptions(**options, tasks=count), Path(directory) / "data")
            seconds = processor_seconds() - began
            size = sum(path.stat().st_size for path in (Path(directory) / "data").glob("*.parquet"))
            tokens = sum(shard.tokens for shard in manifest.shards)
            each = {"processor_us": 1e6 * seconds / count, "bytes": size / count, "tokens": tokens / count}
            found[name] = {key: round(value, 1) for key, value in each.items()}
    return found


def cost_of_models() -> dict[str, dict[str, float]]:
    """Processor time per answer and per token, sampled (packaged models) and trained (networks of their size)."""
    found = {}
    for name, (model, batch, more) in MODELS.items():
        with tempfile.TemporaryDirectory() as place:
            data = Path(place) / "data"
            generate(GenerateOptions(**KINDS[name], tasks=300, test_fraction=0.4, **more), data)
            rows = 6 * batch
            seconds = extra_seconds(partial(learn, data, batch, rows, Path(place)), rows, 3 * rows)
            tokens = 2 * int((Sequences(Dataset(data), "train", count=rows).response_lengths - 1).sum())
            found[name] = {"trained_us_per_token": round(1e6 * seconds / tokens, 2)}
            few, many = 20, 100
            seconds = extra_seconds(partial(answer, data, model, Path(place)), few, many)
            answers = SAMPLES * (many - few)
            lengths = [sum(map(len, answers_in(Path(place) / f"answers-{count}"))) for count in (few, many)]
            found[name] |= {
                "ms_per_answer": round(1e3 * seconds / answers, 2),
                "tokens_per_answer": round((lengths[1] - lengths[0]) / answers),
                "sampled_us_per_token": round(1e6 * seconds / (lengths[1] - lengths[0]), 2),
            }
    return found


def extra_seconds(run: Callable[[int], None], few: int, many: int) -> float:
    """Processor seconds of `many` less those of `few`, once warm: what loading and compiling take is left out."""
    run(few)
    seconds = []
    for count in (few, many):
        began = processor_seconds()
        run(count)
        seconds.append(processor_seconds() - began)
    return seconds[1] - seconds[0]


def learn(data: Path, batch: int, rows: int, place: Path, sequences: int) -> None:
    """Train on so many sequences, which are those of `rows` once or several times."""
    from searchformer.train import TrainOptions, train  # loads torch, which workers that make tasks do without

    learning = {"optimiser": "muon", "precision": "fp32", "batch_size": batch, "steps": sequences // batch}
    with tempfile.TemporaryDirectory(dir=place) as out:
        train(TrainOptions(data=data, model="step-medium", sequences=rows, eval_tasks=1, **learning), Path(out))


def answer(data: Path, model: str, place: Path, tasks: int) -> None:
    """Sample answers to so many test tasks, in one process."""
    from searchformer.pretrained import resolve_model
    from searchformer.rollout import RolloutOptions, roll_out

    out = place / f"answers-{tasks}"
    shutil.rmtree(out, ignore_errors=True)
    options = {"tasks": tasks, "samples": SAMPLES, "workers": 1}
    roll_out(RolloutOptions(model=resolve_model(model), data=data, out=out, **options))


def answers_in(directory: Path) -> list[Any]:
    """The tokens of every answer."""
    from searchformer.rollout import store

    return [tokens for table in store.read_answers(directory) for tokens in table.column("tokens").to_pylist()]


class Metered:
    """A job that makes shards, and a file with the processor seconds of its process until and since it was warm."""

    def __init__(self, make: MakeJob, directory: Path) -> None:
        began = time.process_time()
        self.job, self.file = make(), directory / str(os.getpid())
        with tempfile.TemporaryDirectory() as place:
            list(self.job(MakeShard(Path(place), 0, 100)))  # kernels are loaded when they are first called
        self.ready = time.process_time()
        self.making = self.ready - began

    def __call__(self, item: Any) -> Generator[Any, None, Any]:
        result = yield from self.job(item)
        work = time.process_time() - self.ready
        self.file.write_text(json.dumps({"work": work, "making": self.making, "start": self.ready}))
        return result


@dataclass(frozen=True)
class MeteredEngine:
    """An engine whose workers say what they cost."""

    engine: Engine
    directory: Path
    gpus: int = 0

    def worker_count(self, asked: int | None, *, default: int) -> int:
        """As the engine has it."""
        return self.engine.worker_count(asked, default=default)

    def crew(self, make: MakeJob, *, workers: int, gpu: bool = False) -> AbstractContextManager[Crew]:
        """The engine's, with metered jobs."""
        return self.engine.crew(partial(Metered, make, self.directory), workers=workers, gpu=gpu)


def weak_scaling(engine: Engine, workers: list[int], tasks: int) -> dict[int, dict[str, float]]:
    """As many tasks per worker, for more workers: processor time of the workers and of the driver per task.

    Efficiency is the workers' cost of a task with the first number of them by that with this one. Starting a worker is
    told apart, as it does not grow with the data set, and so is the driver, which on Ray asks how far workers are twice
    a second: on a busy machine its cost grows with the time on the clock.
    """
    found: dict[int, dict[str, float]] = {}
    for count in workers:
        with tempfile.TemporaryDirectory() as directory:
            meters = Path(directory) / "meters"
            meters.mkdir()
            options = GenerateOptions(**KINDS["maze 10x10"], tasks=tasks * count)
            clock, mine = time.monotonic(), time.process_time()
            generate(options, Path(directory) / "data", workers=count, engine=MeteredEngine(engine, meters))
            driver, clock = time.process_time() - mine, time.monotonic() - clock
            meter = {int(path.name): json.loads(path.read_text()) for path in meters.iterdir()}
            if own := meter.get(os.getpid()):  # one worker is the driver itself
                driver -= own["making"] + own["work"]
            work = sum(one["work"] for one in meter.values())
            each = {"worker_us": 1e6 * work / options.tasks, "driver_us": 1e6 * driver / options.tasks}
            starts = [one["start"] for process, one in meter.items() if process != os.getpid()]
            found[count] = {name: round(value, 2) for name, value in each.items()} | {
                "workers_that_worked": len(meter),
                "start_seconds_of_a_worker": round(sum(starts) / len(starts), 2) if starts else 0.0,
                "clock_seconds": round(clock, 1),
            }
            found[count]["efficiency"] = round(found[workers[0]]["worker_us"] / found[count]["worker_us"], 3)
    return found


def overhead_per_shard(engine: Engine, workers: int, shards: int) -> float:
    """The driver's processor microseconds for an item that costs nothing."""
    with engine.crew(Nothing, workers=workers) as crew:
        list(crew.map(range(workers)))  # started
        began = time.process_time()
        list(crew.map(range(shards)))
        return round(1e6 * (time.process_time() - began) / shards, 1)


def deduplication(rows: int, ranges: list[int], *, shards: int = 64) -> dict[int, dict[str, float]]:
    """Processor seconds and memory of examining one range, for more and more ranges of the same rows."""
    found, generator = {}, np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as directory:
        for shard in range(shards):
            fingerprints = generator.integers(0, 1 << 64, rows // shards, dtype=np.uint64)
            index = ShardIndex(fingerprints, np.zeros(len(fingerprints), dtype=bool), {"duplicate": 0})
            index.save(index_path(Path(directory), shard))
        for count in ranges:
            tracemalloc.start()
            began = time.process_time()
            repeats_in_range(Path(directory), shards, 0, count)
            seconds = time.process_time() - began
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            found[count] = {"seconds": round(seconds, 3), "megabytes": round(peak / 1e6, 1)}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=40_000)
    parser.add_argument("--shards", type=int, default=10_000)
    parser.add_argument("--ray", action="store_true", help="also three Ray nodes on this machine")
    parser.add_argument("--only", nargs="+", choices=["tasks", "models", "repeats", "shards", "scaling"])
    given = parser.parse_args()
    local, results = LocalEngine(), {"cores": os.cpu_count()}
    steps = {
        "tasks": partial(cost_of_tasks, given.tasks),
        "models": cost_of_models,
        "repeats": partial(deduplication, 1 << 22, [1, 2, 4, 8]),
        "shards": partial(overhead_per_shard, local, 2, given.shards),
        "scaling": partial(weak_scaling, local, [1, 2], given.tasks),
    }
    chosen = given.only or list(steps)
    with contextlib.ExitStack() as stack:
        if given.ray:
            ray = stack.enter_context(ray_engine())
            steps["shards on Ray"] = partial(overhead_per_shard, ray, 3, given.shards // 10)
            steps["scaling on Ray"] = partial(weak_scaling, ray, [1, 2, 3], given.tasks)
        for name, step in steps.items():
            if name.split()[0] in chosen:
                results[name] = step()
                print(name, results[name], flush=True)
    print(json.dumps(results))


@contextlib.contextmanager
def ray_engine() -> Iterator[Engine]:
    """Three Ray nodes on this machine."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    from ray_cluster import three_nodes

    from searchformer.engines.ray import RayEngine

    with three_nodes() as cluster:
        yield RayEngine(cluster.address)


if __name__ == "__main__":
    main()
