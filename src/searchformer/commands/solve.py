"""`searchformer solve`: a task in, a verified plan out."""

import json
import os
import re
import sys
import time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from pydantic import Field
from rich.console import Console
from rich.live import Live
from rich.text import Text

from searchformer.commands.options import Flat, Json, Settings, domain_settings
from searchformer.commands.tasks import report_skipped
from searchformer.errors import SearchformerError, shown
from searchformer.options import OptionsModel

if TYPE_CHECKING:
    from searchformer.solve import Effort, Solution, Task

FRAME_SECONDS, ANIMATION_SECONDS = 0.15, 12.0
"""How long a frame is shown at most, and all frames together."""


class SolveOptions(OptionsModel):
    """Which task, and who plans."""

    random: str | None = None
    """Draw a task instead: DOMAIN or DOMAIN:WxH, such as maze:6x6."""
    level: int = Field(default=1, ge=1)
    """Which task of the file, from 1."""
    domain: str | None = None
    """maze, sokoban, tiles, or a registered one; told from the file if left out."""
    start: str | None = None
    """Start on a .map, as X,Y."""
    goal: str | None = None
    """Goal on a .map, as X,Y."""
    model: Path | None = None
    """A model directory, a training run, or the name of a packaged model; the packaged one that fits if left out."""
    samples: int = Field(default=16, ge=1)
    """Answers to sample from the model."""
    planner: Literal["model", "astar"] = "model"
    """model, or astar for A* alone."""
    seed: int | None = None
    """Decides the random task and the answers; if left out, 0, or a new one with --random."""
    animate: bool = False
    """Redraw the search step by step, on a terminal."""
    max_expansions: int = Field(default=10_000_000, ge=1)
    """A* gives up when it closes more nodes."""
    max_gigabytes: float = Field(default=4.0, ge=0.001)
    """A* gives up when it takes more memory."""


def run(
    file: Annotated[str | None, Parameter(help="JSON lines (- for stdin), or a level or map file.")] = None,
    /,
    *,
    options: Annotated[SolveOptions, Flat] = SolveOptions(),
    as_json: Json = False,
    **settings: Settings,
) -> None:
    """Plan one task with a model: sample answers, judge each by the domain's rules, show the best valid one.

    The plan is printed as moves (u d l r; capitals push a box) and drawn, beside what the model's search and A*'s took.
    A* plans where the model does not. Settings of the domain, such as --boxes 1, are options too.
    """
    from searchformer.pretrained import resolve_model
    from searchformer.search import Options
    from searchformer.solve import solve

    began = time.monotonic()
    if (file is None) == (options.random is None):
        raise SearchformerError("expected a FILE or --random DOMAIN:WxH, and not both; see searchformer solve --help")
    seed = options.seed
    if seed is None:
        seed = int.from_bytes(os.urandom(4), "little") if options.random else 0
    limits = Options(max_expansions=options.max_expansions, max_gigabytes=options.max_gigabytes)
    if options.random:
        title, task = _drawn(options.random, settings, seed=seed, options=limits)
    else:
        assert file is not None
        title, task = _read(file, options, settings)
    given = options.model and resolve_model(options.model)
    chosen, note = _model(given, task, options.planner)
    solution = solve(task, model=chosen, samples=options.samples, seed=seed, options=limits)
    notes = [*([note] if note else []), *solution.notes]
    for line in notes:
        print(f"searchformer: {line}", file=sys.stderr)
    seconds = time.monotonic() - began
    if options.animate:
        _animate(solution)
    if as_json:
        print(json.dumps(_record(solution, notes, model=chosen, seed=seed, seconds=seconds)))
    else:
        _show(solution, title, model=f"the model {options.model or (chosen and chosen.name)}")


# --- the task and the model


def _drawn(random: str, given: dict[str, str], *, seed: int, options: Any) -> tuple[str, "Task"]:
    """A random task. Where a packaged model has the size asked for, its other settings are used too."""
    from searchformer.domains import make_domain
    from searchformer.pretrained import find_model
    from searchformer.solve import random_task

    match = re.fullmatch(r"(\w+)(?::(\d{1,4})x(\d{1,4}))?", random)
    if not match:
        raise SearchformerError(f"--random expects a domain and a size, such as maze:6x6; found {shown(random)}")
    name = match[1]
    size = {"width": int(match[2]), "height": int(match[3])} if match[2] else {}
    model = find_model(name, size)
    learned = model.settings if model and size.items() <= model.settings.items() else {}
    made = make_domain(name, {**learned, **size, **domain_settings(name, given)})
    return f"{random}, seed {seed}", random_task(made, seed=seed, options=options)


def _read(file: str, options: SolveOptions, given: dict[str, str]) -> tuple[str, "Task"]:
    """The chosen task of a file."""
    from searchformer.domains import TaskError
    from searchformer.evaluate.judge import domain_of
    from searchformer.solve import make_task

    level = options.level
    if options.start or options.goal:
        from searchformer.domains.formats import read

        found: list[tuple[str, Any]] = [
            (file, read(file, start=_cell(options.start), goal=_cell(options.goal))[level - 1].record())
        ]
    else:
        from searchformer.interop.tasks import read_tasks

        skipped: list[Any] = []
        found = list(islice(read_tasks(file, skipped=skipped), level - 1, level + 1))
        report_skipped(skipped)
    if not found:
        raise SearchformerError(f"{file} has no task {level}")
    place, record = found[0]
    if isinstance(record, SearchformerError):
        raise SearchformerError(f"{place}: {record}")
    try:
        name = options.domain or domain_of(record)
        task = make_task(record, name=name, settings=domain_settings(name, given))
    except TaskError as error:
        raise TaskError(f"{place}: {error}") from None
    return f"{place}{'; --level chooses another task' if level == 1 and len(found) > 1 else ''}", task


def _cell(text: str | None) -> tuple[int, int] | None:
    """`3,4` as a cell."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,6}),(\d{1,6})", text)
    if not match:
        raise SearchformerError(f"a cell is X,Y, such as 3,4; found {shown(text)}")
    return int(match[1]), int(match[2])


def _model(given: Path | None, task: "Task", planner: str) -> tuple[Path | None, str | None]:
    """The model to ask, and what to say if there is none."""
    from searchformer.pretrained import find_model

    if planner == "astar" or given:
        return None if planner == "astar" else given, None
    domain = task.domain
    found = find_model(domain.name, domain.measure(task.problem))
    if found is None:
        return None, f"no model for {domain.name} is packaged: planned by A*; --model DIR uses one of your own"
    return found.directory, None


# --- what comes out


def _record(solution: "Solution", notes: list[str], *, model: Path | None, seed: int, seconds: float) -> dict[str, Any]:
    """The solution as a JSON object."""
    from searchformer.solve import plan_tokens

    domain, problem = solution.task.domain, solution.task.problem
    return {
        "domain": domain.name,
        "task": domain.decode(problem),
        "solvable": solution.solvable,
        "planner": solution.planner,
        "model": str(model) if model else None,
        "optimal": solution.optimal,
        "moves": domain.moves(problem, solution.plan) if solution.solvable else None,
        "plan": " ".join(plan_tokens(solution)),
        "plan_length": len(solution.plan),
        "search": vars(solution.effort),
        "model_mean": vars(solution.model) if solution.model else None,
        "astar": {**vars(solution.astar), "runs": solution.astar_runs},
        "answers": solution.answers,
        "notes": notes,
        "seed": seed,
        "seconds": round(seconds, 3),
    }


def _show(solution: "Solution", title: str, *, model: str) -> None:
    """The solution for people: drawing, moves, verdict, and what the searches took."""
    console = Console(highlight=False, soft_wrap=True)
    domain, problem = solution.task.domain, solution.task.problem
    console.print(f"{domain.name}: {title}", markup=False)
    if not solution.solvable:
        _draw(console, domain.draw(problem))
        console.print(f"unsolvable: no plan exists; A* closed all {solution.effort.closed:,} nodes that can be reached")
        return
    from searchformer.search.drawing import draw_plan
    from searchformer.solve import plan_tokens

    _draw(console, draw_plan(domain, problem, plan_tokens(solution), width=console.width))
    moves = domain.moves(problem, solution.plan)
    if moves is not None:
        console.print(f"moves   {moves or '(none: the start is the goal)'}", markup=False)
    for line in _lines(solution, model=model):
        console.print(line, markup=False)


def _draw(console: Console, picture: Any) -> None:
    """Print a picture, unless the terminal is too narrow for it."""
    wide = max(map(len, str(picture).split("\n")))
    if console.is_terminal and wide > console.width:
        console.print(f"(the drawing takes {wide} columns; --json has the task and the plan)")
    else:
        console.print("\n", picture, "\n", sep="")


def _lines(solution: "Solution", *, model: str) -> list[str]:
    """Verdict and efforts."""
    runs = f"mean of {solution.astar_runs} runs" if solution.astar_runs > 1 else "one run"
    answers, astar = solution.answers, f"{_effort(solution.astar)} by A* ({runs})"
    verdict = "optimal" if solution.optimal else "not optimal"
    by = model if solution.model else "A*"
    lines = [f"plan    {len(solution.plan) - 1} moves, {verdict}, by {by}"]
    if answers:
        kinds = ", ".join(f"{answers.get(kind, 0)} {kind}" for kind in ("optimal", "feasible", "invalid"))
        lines.append(f"answers {kinds}, of {sum(answers.values())}")
    if solution.model is None:
        return [*lines, f"search  {astar}"]
    valid = sum(answers.values()) - answers.get("invalid", 0)
    lines.append(f"search  {_effort(solution.effort)} by the model for this plan")
    lines.append(f"        {_effort(solution.model)} by the model (mean of {valid} valid answers)")
    return [*lines, f"        {astar}"]


def _effort(effort: "Effort") -> str:
    """The effort of a search, in words."""
    created, closed, tokens, steps = (
        f"{number:,.1f}".removesuffix(".0")
        for number in (effort.created, effort.closed, effort.tokens, effort.created + effort.closed)
    )
    if not effort.created:
        return "no search"
    return f"{steps} steps ({created} created, {closed} closed, {tokens} trace tokens)"


def _animate(solution: "Solution") -> None:
    """Redraw the search step by step on a terminal; elsewhere show nothing."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        return
    frames = frames_of(solution)
    pause = min(FRAME_SECONDS, ANIMATION_SECONDS / max(len(frames), 1))
    with Live(console=console, auto_refresh=False) as live:
        for frame in frames:
            live.update(Text(frame), refresh=True)
            time.sleep(pause)


def frames_of(solution: "Solution") -> list[str]:
    """A drawing per event. Where a state is one mark in the drawing, earlier ones stay: + is open, x is closed."""
    from searchformer.search.world import as_array
    from searchformer.solve import search_events

    domain, problem = solution.task.domain, solution.task.problem
    events, plain = list(search_events(solution)), domain.draw(problem)
    who = "the model" if solution.planner == "model" else "A*"
    marked, frames = list(plain), []
    for number, event in enumerate(events, start=1):
        drawn = plain if event.state is None else domain.draw(problem, as_array(event.state))
        changed = [at for at, (old, new) in enumerate(zip(plain, drawn, strict=True)) if old != new]
        if len(changed) == 1:
            drawn = "".join([*marked[: changed[0]], drawn[changed[0]], *marked[changed[0] + 1 :]])
            if plain[changed[0]] == ".":
                marked[changed[0]] = "x" if event.closes else "+"
        verb = "closes" if event.closes else "creates"
        unknown = ", a state it had not reached" if event.state is None else ""
        caption = f"step {number} of {len(events)}: {who} {verb} (g {event.cost}, h {event.estimate}){unknown}"
        frames.append(f"{drawn}\n\n{caption}")
    return frames
