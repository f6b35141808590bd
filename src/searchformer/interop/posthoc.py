"""Searches for Posthoc, the path-finding visualiser: an answer's trace in, its YAML out.

In: a task, and a trace in our tokens, A*'s or a model's. Out: a search trace of Posthoc's format 1.4: an event per node
that is generated, updated, expanded or closed, with its cost, its f and its parent. JSON is YAML, so events are written
as JSON, one a line. Try: `searchformer export posthoc maze FILE --out search.trace.yaml`.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from searchformer.domains import Domain
from searchformer.domains.maze import GRID, Maze
from searchformer.errors import SearchformerError
from searchformer.files import write_text
from searchformer.records import Step
from searchformer.search.world import World, cut_steps

CELL = '{"$": "rect", "x": "${{ $.x }}", "y": "${{ $.y }}", "width": 1, "height": 1, "fill": "${{ color[$.type] }}"}'
"""How Posthoc is to draw a node: a cell in the colour of its event."""
HEADER = f"version: 1.4.0\nviews:\n  main:\n    - {CELL}\nevents:\n"


def write_posthoc(domain: Domain, problem: np.ndarray, tokens: Sequence[str], out: Path) -> int:
    """Write the trace in an answer's tokens; returns the number of events."""
    events = list(posthoc_events(domain, problem, tokens))
    if not any(event["type"] == "generating" for event in events):
        raise SearchformerError("the answer has no search to export: it holds no `create` step with costs")
    write_text(out, HEADER + "".join(f"  - {json.dumps(event)}\n" for event in events))
    return len(events)


def posthoc_events(domain: Domain, problem: np.ndarray, tokens: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The events of a trace, legal or not, then of the plan's goal."""
    steps = [step for step in cut_steps(tokens) if step.kind != "plan" and step.cost is not None]
    yield from _ends(domain, problem, cut_steps(tokens))
    parents: dict[str, str | None] = {}
    expanded: dict[str, Any] | None = None
    for step in steps:
        event = _event(step)
        name = event["id"]
        if step.kind == "create":
            event["type"] = "updating" if name in parents else "generating"
            parents[name] = expanded["id"] if expanded else None
        else:
            if expanded:
                yield expanded | {"type": "closing"}
            event["type"] = "expanding"
        event["pId"] = parents.get(name)
        yield event
        if step.kind == "close":
            expanded = event
    if expanded and any(step.kind == "plan" for step in cut_steps(tokens)):
        yield expanded | {"type": "end"}


def _event(step: Step) -> dict[str, Any]:
    """What is common to the events of a node."""
    assert step.cost is not None
    assert step.estimate is not None
    costs = {"g": step.cost, "h": step.estimate, "f": step.cost + step.estimate}
    return {"type": "", "id": " ".join(step.state), **_place(step.state), **costs}


def _place(state: Sequence[str]) -> dict[str, int]:
    """Where a state's first cell is: a maze's cell, Sokoban's worker."""
    numbers = [int(token) for token in state[:3] if token.isdecimal() and len(token) < 9]
    return dict(zip(("x", "y"), numbers, strict=False)) if len(numbers) == 2 else {}


def _ends(domain: Domain, problem: np.ndarray, steps: list[Step]) -> Iterator[dict[str, Any]]:
    """The start, and where the plan ends."""
    start = World(domain, problem).state_tokens(World(domain, problem).start())
    yield {"type": "source", "id": " ".join(start), **_place(start)}
    plan = [step for step in steps if step.kind == "plan"]
    if plan and _place(plan[-1].state):
        yield {"type": "destination", "id": "goal", **_place(plan[-1].state)}


def write_map(domain: Domain, problem: np.ndarray, out: Path) -> None:
    """A maze as a MovingAI map, which Posthoc draws below its search."""
    if not isinstance(domain, Maze):
        raise SearchformerError(f"a map is for mazes; this task is of {domain.name}")
    size = domain.measure(problem)
    grid = np.where(problem[GRID:].reshape(size["height"], size["width"]) == 1, "@", ".")
    rows = "\n".join("".join(row) for row in grid.tolist())
    write_text(out, f"type octile\nheight {size['height']}\nwidth {size['width']}\nmap\n{rows}\n")
