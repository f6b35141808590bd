"""`searchformer trace`: tasks in, searches out."""

import json
from typing import Annotated

from cyclopts import Parameter
from pydantic import Field

from searchformer.commands.options import DomainName, Flat, Settings, domain_settings
from searchformer.dataset.options import SearchOptions


class TraceOptions(SearchOptions):
    """How each task is searched and what is printed."""

    max_gigabytes: float = Field(default=4.0, ge=0.001)
    """Give up a search that takes more memory than this."""
    record: bool = True
    """Print the trace as well as the plan."""
    strict: bool = False
    """Stop at the first bad task or level instead of continuing with the next."""


def run(
    domain: DomainName,
    file: Annotated[
        str, Parameter(help="Tasks: JSON lines (- for stdin), a level or map file, or other people's mazes.")
    ],
    /,
    *,
    options: Annotated[TraceOptions, Flat] = TraceOptions(),
    **settings: Settings,
) -> None:
    """Search each task; print it with `solvable`, `prompt`, `trace`, `plan`, `created` and `closed`, one line per task.

    A maze: {"width", "height", "start", "goal", "walls"}; a Sokoban level: {"level": [rows]}; other domains:
    {"prompt": "..."}. Settings such as --tokens-format full, or --width for tiles, are options too. A task that fails
    gives {"line", "error"} instead, and the exit code is 1 at the end.
    """
    from searchformer.commands.tasks import TaskFile
    from searchformer.domains import make_domain
    from searchformer.search import Options, Searcher
    from searchformer.tokens.grammar import write_text

    made = make_domain(domain, domain_settings(domain, settings))
    searcher = Searcher(made, Options(**options.model_dump(exclude={"seed", "record", "strict"})))
    tasks = TaskFile(file, strict=options.strict)
    for place, task in tasks:
        with tasks.line(place):
            problem = made.encode(task)
            found = searcher.search(problem, seed=options.seed, record=options.record)
            prompt, trace, plan = write_text(made, problem, found)
            shown = {"trace": trace} if options.record else {}
            outcome = {"solvable": found.solvable, "prompt": prompt, **shown, "plan": plan}
            print(json.dumps({**task, **outcome, "created": found.created, "closed": found.closed}))
    tasks.finish()
