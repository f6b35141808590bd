"""Tasks drawn for the editor: the paper's random walls, perfect mazes, empty ones, and random Sokoban levels."""

from typing import Any

from searchformer.domains import make_domain
from searchformer.errors import SearchformerError
from searchformer.pretrained import find_model
from searchformer.search import Options
from searchformer.seeding import below, new_stream
from searchformer.solve import random_task
from searchformer.web.records import NewTask

MOST_NODES, CANDIDATES = 50_000, 200
"""Nodes that a search may close while a task is being drawn, and tasks that are tried."""


def new_task(asked: NewTask) -> dict[str, Any]:
    """The task in JSON."""
    wanted = asked.model_dump(include={"width", "height"} | ({"boxes"} if asked.domain == "sokoban" else set()))
    settings: dict[str, Any] = {name: value for name, value in wanted.items() if value is not None}
    model = find_model(asked.domain, settings)
    if model and settings.items() <= model.settings.items():  # draw what the model was trained for
        settings = model.settings
    domain: Any = make_domain(asked.domain, settings)
    if asked.domain == "maze" and asked.kind == "perfect":
        return perfect_maze(domain.width, domain.height, asked.seed)
    if asked.domain == "maze" and asked.kind == "empty":
        return empty_maze(domain.width, domain.height)
    limits = Options(max_expansions=MOST_NODES)
    task = random_task(domain, seed=asked.seed, options=limits, candidates=CANDIDATES)
    return task.domain.decode(task.problem)


def empty_maze(width: int, height: int) -> dict[str, Any]:
    """No walls; start and goal in opposite corners."""
    return {"width": width, "height": height, "start": [0, 0], "goal": [width - 1, height - 1], "walls": []}


def perfect_maze(width: int, height: int, seed: int) -> dict[str, Any]:
    """Exactly one way between any two free cells: a random depth-first walk digs rooms two cells apart.

    Start and goal are the room in the corner and the room that is the farthest from it.
    """
    if min(width, height) < 3:
        raise SearchformerError(f"a perfect maze has 3 or more cells on each side; found {width} x {height}")
    stream, free, path, farthest = new_stream(seed, "perfect maze"), {(0, 0)}, [(0, 0)], (0, (0, 0))
    while path:
        x, y = path[-1]
        around = [(x + dx, y + dy) for dx, dy in ((2, 0), (-2, 0), (0, 2), (0, -2))]
        rooms = [room for room in around if 0 <= room[0] < width and 0 <= room[1] < height and room not in free]
        if not rooms:
            path.pop()
            continue
        room = rooms[below(stream, len(rooms))]
        free |= {room, ((x + room[0]) // 2, (y + room[1]) // 2)}
        path.append(room)
        farthest = max(farthest, (len(path), room))
    walls = [[x, y] for y in range(height) for x in range(width) if (x, y) not in free]
    return {"width": width, "height": height, "start": [0, 0], "goal": list(farthest[1]), "walls": walls}
