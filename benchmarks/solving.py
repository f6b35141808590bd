"""The packaged models as `searchformer solve --random` uses them: how often they plan optimally, how much they search.

Random tasks of a kind, one after the other from a seed; for each, 16 answers of the model and A*'s mean search.
Counted: tasks whose best answer is an optimal plan (by the model, never by A* in its stead). Compared: mean tokens of
the model's best search and of its valid ones against A*'s mean.

Last line: JSON. Try: `python benchmarks/solving.py --tries 20 --only maze-10x10`.
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from searchformer.domains import make_domain
from searchformer.pretrained import find_model
from searchformer.solve import Task, random_task, solve


@dataclass(frozen=True)
class Kind:
    """Random tasks whose A* search takes at most so many tokens."""

    domain: str
    settings: dict[str, int]
    most_tokens: int | None = None


KINDS = {
    "maze-10x10": Kind("maze", {"width": 10, "height": 10}),
    "maze-7x9": Kind("maze", {"width": 7, "height": 9}),
    "sokoban-3000": Kind("sokoban", {"width": 7, "height": 7, "walls": 2, "boxes": 2}, 3000),
    "sokoban-10000": Kind("sokoban", {"width": 7, "height": 7, "walls": 2, "boxes": 2}, 10_000),
}


def tasks(kind: Kind, seed: int) -> Iterator[Task]:
    """Random tasks of the kind, for ever."""
    domain = make_domain(kind.domain, kind.settings)
    while True:
        task = random_task(domain, seed=seed)
        seed += 1
        if kind.most_tokens is None or solve(task).astar.tokens <= kind.most_tokens:
            yield task


def measure(name: str, *, tries: int, seed: int) -> dict[str, Any]:
    """Numbers of one kind of task."""
    kind = KINDS[name]
    optimal, best, mean, astar, seconds = 0, [], [], [], []
    for number, task in enumerate(tasks(kind, seed)):
        if number == tries:
            break
        began, model = time.process_time(), find_model(kind.domain, task.domain.measure(task.problem))
        assert model is not None
        found = solve(task, model=model.directory, seed=number)
        seconds.append(time.process_time() - began)
        if found.planner == "model":
            optimal += bool(found.optimal)
            best.append(found.effort.tokens)
            mean.append(found.model.tokens)
            astar.append(found.astar.tokens)
    numbers = {
        "tries": tries,
        "optimal": optimal,
        "best_search": statistics.mean(best),
        "mean_search": statistics.mean(mean),
        "astar": statistics.mean(astar),
        "cpu_seconds": statistics.median(seconds),
    }
    print(name, ", ".join(f"{key} {value:.6g}" for key, value in numbers.items()), flush=True)
    return numbers


def main() -> None:
    """Measure every kind, or those asked for."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--tries", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="append", choices=KINDS)
    asked = parser.parse_args()
    print(json.dumps({name: measure(name, tries=asked.tries, seed=asked.seed) for name in asked.only or KINDS}))


if __name__ == "__main__":
    main()
