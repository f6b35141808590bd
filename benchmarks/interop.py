"""How fast an archive of published data becomes a data set, on one core, and in how much memory.

Run: `python benchmarks/interop.py [--gigabytes 1]`. An archive of mazes is written first, plain and with gzip; then it
is imported, and the parts of that are timed alone. The last line is JSON; the target is 100 MB of BSON a second.
"""

import argparse
import gzip
import json
import os
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import bson
import numpy as np

from searchformer.domains import make_domain
from searchformer.interop import kernels
from searchformer.interop.mongodump import Archive, ArchiveWriter, import_archive
from searchformer.interop.sequences import SequenceParser, task_ids
from searchformer.search import Options, Searcher
from searchformer.search.compiled import bind
from searchformer.seeding import new_stream
from searchformer.tokens.grammar import write_text
from searchformer.tokens.vocabulary import Vocabulary

REPEATS = 3
PART = 1 << 20


def documents(size: int, count: int) -> list[dict]:
    """Mazes with their searches, as published documents without their ids."""
    domain = make_domain("maze", {"width": size, "height": size})
    searcher, rules, found, index = Searcher(domain, Options(deterministic=True)), bind(domain.rules), [], 0
    while len(found) < count:
        problem, stream = np.zeros(domain.problem_size(), dtype=np.int32), new_stream(0, "bench", index)
        rules["sample_layout"](domain.sampling(), stream, problem)
        rules["sample_task"](domain.sampling(), stream, problem)
        index += 1
        trace = searcher.search(problem)
        if trace.solvable and rules["accepts"](problem, len(trace.plan)):
            prompt, steps, plan = write_text(domain, problem, trace)
            found.append({"prompt": prompt.split(), "reasoning": steps.split(), "plan": plan.split()})
    return found


def write_archive(path: Path, size: int, most_bytes: int) -> int:
    """An archive of at least so many bytes of sequences, its vocabulary last; returns how many bytes."""
    name, written, number = f"maze.{size}-by-{size}-deterministic.simple", 0, 0
    drawn = documents(size, 500)
    tokens = make_domain("maze", {"width": size, "height": size}).token_list()
    names = [f"{name}.seq.train", f"{name}.seq.test", "vocabulary"]
    with gzip.open(path, "wb", compresslevel=1) if path.suffix == ".gz" else open(path, "wb") as stream:
        writer = ArchiveWriter(stream, names)
        while written < most_bytes:
            part = bytearray()
            while len(part) < PART:
                number += 1
                part += bson.encode({"_id": bson.Int64(number), **drawn[number % len(drawn)]})
            writer.add(names[written // PART % 8 == 7], bytes(part))
            written += len(part)
        writer.add("vocabulary", bson.encode({"_id": name, "vocabulary": tokens}))
        for each in names:
            writer.end(each)
    return written


def timed(work: Callable[[], object], repeats: int = REPEATS) -> float:
    """Median seconds of processor time, after a warm-up."""
    seconds = []
    for repeat in range(repeats + 1):
        began = time.process_time()
        work()
        if repeat:
            seconds.append(time.process_time() - began)
    return statistics.median(seconds)


def parts_alone(path: Path, size: int) -> dict[str, float]:
    """MB of BSON a second that each part of the work does alone, on the first 64 MB."""
    domain = make_domain("maze", {"width": size, "height": size})
    vocabulary = Vocabulary.of(domain.token_list())
    parser, runs, total = SequenceParser(vocabulary), [], 0
    with Archive(path) as archive:
        for run in archive.runs():
            runs.append(run)
            total += run.end - run.begin
            if total > 64 << 20:
                break
    rows = [parser.parse(run.array, run.begin, run.end)[0] for run in runs]
    first = runs[0]
    cut = [first.data[first.begin : first.end]]
    work = {
        "crc": lambda: [kernels.crc64(run.array, run.begin, run.end) for run in runs],
        "parse": lambda: [parser.parse(run.array, run.begin, run.end) for run in runs],
        "task_ids": lambda: [task_ids(domain, vocabulary, each) for each in rows],
    }
    rates = {name: total / timed(function) / 1e6 for name, function in work.items()}
    rates["parse_by_pymongo"] = len(cut[0]) / timed(lambda: bson.decode_all(cut[0])) / 1e6
    return rates


def main() -> None:
    """Measure and print."""
    asked = argparse.ArgumentParser(description=main.__doc__)
    asked.add_argument("--gigabytes", type=float, default=1.0, help="size of the archive for the memory's peak")
    asked.add_argument("--size", type=int, default=20, help="mazes of so many cells a side")
    options = asked.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    import pyarrow as pa

    pa.set_cpu_count(1)
    result: dict[str, object] = {"size": options.size}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for suffix, most in ((".archive", 100 << 20), (".archive.gz", 100 << 20)):
            path = place / f"small{suffix}"
            written = write_archive(path, options.size, most)

            def once(path: Path = path) -> None:
                import_archive(path, place / "out")
                shutil.rmtree(place / "out")

            result[f"import{suffix}_mb_per_second"] = round(written / timed(once) / 1e6, 1)
        result["parts_mb_per_second"] = {
            k: round(v) for k, v in parts_alone(place / "small.archive", options.size).items()
        }
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        path = place / "large.archive"
        written = write_archive(path, options.size, int(options.gigabytes * (1 << 30)))
        began = time.process_time()
        import_archive(path, place / "large")
        result["large_gigabytes"] = round(written / (1 << 30), 2)
        result["large_mb_per_second"] = round(written / (time.process_time() - began) / 1e6, 1)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        result["peak_memory_mb_before_and_after_large"] = [before // 1024, after // 1024]
    for name, value in result.items():
        print(f"{name}: {value}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
