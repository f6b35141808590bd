"""What a task, a shard and a worker cost, from which docs/scale.md estimates large experiments.

Processor seconds, not time on the clock: they mean something on a machine that others use too. `--ray` adds three Ray
nodes on this machine. The last line is JSON. Try: `python benchmarks/scale.py --tasks 40000`.
"""

import argparse
import contextlib
import json
import os
import resource
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from searchformer.dataset.duplicates import repeats_in_range
from searchformer.dataset.generate import generate
from searchformer.dataset.options import GenerateOptions
from searchformer.dataset.shards import ShardIndex, index_path
from searchformer.engines.base import Engine
from searchformer.engines.local import LocalEngine

KINDS: dict[str, dict[str, Any]] = {
    "maze 10x10": {"domain": "maze", "settings": {"width": 10, "height": 10}},
    "maze 30x30": {"domain": "maze", "settings": {"width": 30, "height": 30}},
    "sokoban 7x7": {"domain": "sokoban", "settings": {"width": 7, "height": 7, "walls": 2, "boxes": 2}},
}


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


def weak_scaling(engine: Engine, workers: list[int], tasks: int) -> dict[int, dict[str, float]]:
    """As many tasks per worker, for more workers: time on the clock, and the driver's own processor seconds."""
    found = {}
    for count in workers:
        with tempfile.TemporaryDirectory() as directory:
            options = GenerateOptions(**KINDS["maze 10x10"], tasks=tasks * count)
            clock, mine = time.monotonic(), time.process_time()
            generate(options, Path(directory) / "data", workers=count, engine=engine)
            seconds = time.monotonic() - clock
            found[count] = {"seconds": round(seconds, 2), "driver_seconds": round(time.process_time() - mine, 2)}
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
    given = parser.parse_args()
    local = LocalEngine()
    results: dict[str, Any] = {"cores": os.cpu_count()}
    steps = {
        "per_task": partial(cost_of_tasks, given.tasks),
        "deduplication_of_4M_rows": partial(deduplication, 1 << 22, [1, 2, 4, 8]),
        "overhead_us_per_shard": lambda: {"local, 2 workers": overhead_per_shard(local, 2, given.shards)},
        "weak_scaling": partial(weak_scaling, local, [1, 2], given.tasks),
    }
    for name, step in steps.items():
        results[name] = step()
        print(name, results[name], flush=True)
    if given.ray:
        sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
        from ray_cluster import three_nodes

        from searchformer.engines.ray import RayEngine

        with three_nodes() as cluster, contextlib.suppress(KeyboardInterrupt):
            engine = RayEngine(cluster.address)
            results["weak_scaling_ray"] = weak_scaling(engine, [1, 2, 3], given.tasks)
            results["overhead_us_per_shard"]["ray, 3 nodes"] = overhead_per_shard(engine, 3, given.shards // 10)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
