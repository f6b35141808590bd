"""`searchformer solve`: a task in, a verified plan out."""

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from pydantic import Field
from rich.console import Console
from rich.live import Live
from rich.text import Text

from searchformer.commands.options import Flat, Json, Settings
from searchformer.commands.tasks import TaskOptions, find_task

if TYPE_CHECKING:
    from searchformer.solve import Effort, Solution, Task

FRAME_SECONDS, ANIMATION_SECONDS = 0.15, 12.0
"""How long a frame is shown at most, and all frames together."""


class SolveOptions(TaskOptions):
    """Which task, and who plans."""

    model: Path | None = None
    """A model directory, a run that has made one, or a packaged model; if left out, the packaged one that fits."""
    samples: int = Field(default=16, ge=1)
    """Answers to sample from the model."""
    planner: Literal["model", "astar"] = "model"
    """model, or astar for A* alone."""
    animate: bool = False
    """Replay the search step by step, on a terminal."""
    max_expansions: int = Field(default=10_000_000, ge=1)
    """A* gives up when it closes more nodes than this."""
    max_gigabytes: float = Field(default=4.0, ge=0.001)
    """A* gives up when it takes more memory than this."""


def run(
    file: Annotated[str | None, Parameter(help="JSON lines (- for stdin), or a level or map file.")] = None,
    /,
    *,
    options: Annotated[SolveOptions, Flat] = SolveOptions(),
    as_json: Json = False,
    **settings: Settings,
) -> None:
    """Plan one task with a model: sample answers, judge each by the domain's rules, show the best valid one.

    The plan is printed as moves (u d l r; capitals push a box) and drawn, with the lengths of the model's search and of
    A*'s. If no answer is valid, A*'s plan is shown. Settings of the domain, such as --boxes 1, are options too.
    """
    from searchformer.pretrained import resolve_model
    from searchformer.search import Options
    from searchformer.solve import solve

    began = time.monotonic()
    limits = Options(max_expansions=options.max_expansions, max_gigabytes=options.max_gigabytes)
    title, task, seed = find_task(file, options, settings, limits=limits)
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
    from searchformer.search.drawing import draw_plan, legend

    console = Console(highlight=False, soft_wrap=True)
    domain, problem = solution.task.domain, solution.task.problem
    console.print(f"{domain.name}: {title}", markup=False)
    if not solution.solvable:
        picture = domain.draw(problem)
        _draw(console, f"{picture}\n\n{legend(domain, picture)}".rstrip())
        console.print(f"unsolvable: no plan exists; A* closed all {solution.effort.closed:,} nodes that can be reached")
        return
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
    moves = len(solution.plan) - 1
    lines = [f"plan    {moves} move{'' if moves == 1 else 's'}, {verdict}, by {by}"]
    if answers:
        kinds = ", ".join(f"{answers.get(kind, 0)} {kind}" for kind in ("optimal", "feasible", "invalid"))
        lines.append(f"answers {kinds}, of {sum(answers.values())}")
    if solution.model is None:
        return [*lines, f"search  {astar}"]
    valid = sum(answers.values()) - answers.get("invalid", 0)
    mean = f"mean of {valid} valid answers" if valid > 1 else "its only valid answer"
    lines.append(f"search  {_effort(solution.effort)} by the model for this plan")
    lines.append(f"        {_effort(solution.model)} by the model ({mean})")
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
    wide = max((len(row) for row in frames[-1].split("\n")), default=0) if frames else 0
    if wide > console.width:
        console.print(f"(the animation takes {wide} columns)")
        return
    pause = min(FRAME_SECONDS, ANIMATION_SECONDS / max(len(frames), 1))
    with Live(console=console, auto_refresh=False) as live:
        for frame in frames:
            live.update(Text(frame), refresh=True)
            time.sleep(pause)


def frames_of(solution: "Solution") -> list[str]:
    """A drawing per event. Where a state is one mark in the drawing, earlier ones stay: + is open, x is closed."""
    from searchformer.search.drawing import legend
    from searchformer.search.world import as_array
    from searchformer.solve import search_events

    domain, problem = solution.task.domain, solution.task.problem
    events, plain = list(search_events(solution)), domain.draw(problem)
    who = "the model" if solution.planner == "model" else "A*"
    marked, drawings, captions = list(plain), [], []
    for number, event in enumerate(events, start=1):
        drawn = plain if event.state is None else domain.draw(problem, as_array(event.state))
        changed = [at for at, (old, new) in enumerate(zip(plain, drawn, strict=True)) if old != new]
        if len(changed) == 1:
            drawn = "".join([*marked[: changed[0]], drawn[changed[0]], *marked[changed[0] + 1 :]])
            if plain[changed[0]] == ".":
                marked[changed[0]] = "x" if event.closes else "+"
        verb = "closes" if event.closes else "creates"
        unknown = ", never reached" if event.state is None else ""
        drawings.append(drawn)
        captions.append(f"step {number} of {len(events)}: {who} {verb} (g {event.cost}, h {event.estimate}){unknown}")
    marks = legend(domain, "".join([plain, *drawings]))  # boxes reach their docks on the way
    if marks and "." in plain and "." not in domain.marks:
        marks += ", o now, + open, x closed"
    return [f"{drawn}\n\n{marks}\n{caption}" for drawn, caption in zip(drawings, captions, strict=True)]
