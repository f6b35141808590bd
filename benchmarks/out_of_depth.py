"""A maze model on mazes that it was not trained for: fewer walls, perfect mazes, other sizes; by the same strict judge.

The paper's mazes have 30 to 50% walls. Here: as in training; mazes two cells smaller in the corner of the grid,
the rest walled in; 10 to 20% walls; perfect mazes (one way between any two cells, drawn by a random walk that backs
up). A model has no words for coordinates beyond its own size, so larger mazes cannot be asked at all.

Last line: JSON. Try: `python benchmarks/out_of_depth.py --model maze-10x10 --tasks 20 --samples 8`.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from searchformer.files import read_json
from searchformer.pretrained import resolve_model

Cell = tuple[int, int]
Maze = set[Cell]
"""The free cells."""
METRICS = ("pass_at_1", "any_optimal", "length_ratio_of_means", "sound_traces")


def random_walls(chance: random.Random, size: int, least: float, most: float) -> Maze:
    """A square of `size` with a share of walls between these."""
    cells = [(x, y) for x in range(size) for y in range(size)]
    walls = chance.sample(cells, round(chance.uniform(least, most) * len(cells)))
    return set(cells) - set(walls)


def perfect(chance: random.Random, size: int) -> Maze:
    """A maze of corridors without loops: rooms on even coordinates, joined by a walk that backs up when stuck."""
    free, path = {(0, 0)}, [(0, 0)]
    while path:
        x, y = path[-1]
        steps = [(x + 2 * dx, y + 2 * dy, x + dx, y + dy) for dx, dy in ((1, 0), (-1, 0), (0, 1), (0, -1))]
        fresh = [s for s in steps if 0 <= s[0] < size and 0 <= s[1] < size and s[:2] not in free]
        if not fresh:
            path.pop()
            continue
        x, y, between_x, between_y = chance.choice(fresh)
        free |= {(x, y), (between_x, between_y)}
        path.append((x, y))
    return free


def distance(free: Maze, start: Cell, goal: Cell) -> int | None:
    """Steps of the shortest way."""
    steps, queue = {start: 0}, deque([start])
    while queue:
        x, y = queue.popleft()
        for cell in ((x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)):
            if cell in free and cell not in steps:
                steps[cell] = steps[x, y] + 1
                queue.append(cell)
    return steps.get(goal)


def task(chance: random.Random, size: int, draw: Callable[[], Maze], least_nodes: int) -> dict[str, Any]:
    """A task in a grid of `size`, whose shortest plan has so many nodes at least, as the paper asks."""
    while True:
        free = draw()
        start, goal = chance.choice(sorted(free)), chance.choice(sorted(free))
        steps = distance(free, start, goal)
        if steps is not None and steps + 1 >= least_nodes:
            walls = [[x, y] for y in range(size) for x in range(size) if (x, y) not in free]
            return {"width": size, "height": size, "start": start, "goal": goal, "walls": walls}


def kinds(chance: random.Random, size: int) -> dict[str, tuple[Callable[[], Maze], int]]:
    """How mazes are drawn, and the fewest nodes of their plans."""
    return {
        "as in training": (lambda: random_walls(chance, size, 0.3, 0.5), size),
        "two cells smaller": (lambda: random_walls(chance, size - 2, 0.3, 0.5), size - 2),
        "10 to 20% walls": (lambda: random_walls(chance, size, 0.1, 0.2), size),
        "perfect mazes": (lambda: perfect(chance, size), size),
    }


def measure(model: Path, tasks: list[dict[str, Any]], samples: int, directory: Path) -> dict[str, Any]:
    """What `rollout` and `evaluate` say."""
    file = directory / "tasks.jsonl"
    file.write_text("".join(json.dumps(each) + "\n" for each in tasks))
    for words in (
        ["rollout", "--model", str(model), "--data", str(file), "--samples", str(samples), "--out", f"{directory}/out"],
        ["evaluate", f"{directory}/out"],
    ):
        subprocess.run([sys.executable, "-m", "searchformer", *words], check=True, stdout=subprocess.DEVNULL)
    metrics = read_json(directory / "out" / "metrics.json", what="evaluation")["metrics"]
    return {name: metrics.get(name) for name in METRICS}


def main() -> None:
    """Ask a model about every kind of maze."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--model", default="maze-10x10", help="a model of square mazes: packaged, or its directory")
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    model = resolve_model(asked.model)
    size = read_json(model / "config.json", what="model")["trained"]["settings"]["width"]
    chance, found = random.Random(asked.seed), {}
    for name, (draw, least_nodes) in kinds(chance, size).items():
        tasks = [task(chance, size, draw, least_nodes) for _ in range(asked.tasks)]
        with tempfile.TemporaryDirectory() as directory:
            found[name] = measure(model, tasks, asked.samples, Path(directory))
        known = ((key, each) for key, each in found[name].items() if each)
        shown = (f"{key} {each['value']:.4g} ({each['low']:.4g} to {each['high']:.4g})" for key, each in known)
        print(f"{name}: {', '.join(shown)}", flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
