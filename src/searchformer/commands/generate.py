"""`searchformer generate`: sample tasks, run A*, store a data set of traces."""

import json
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from pydantic import Field

from searchformer.commands.options import DomainName, Flat, Json, Settings, domain_settings
from searchformer.dataset.options import GenerateOptions, TaskOptions
from searchformer.engines.options import EngineOptions, make_engine
from searchformer.options import OptionsModel


class WorkOptions(OptionsModel):
    """How many processes make it, and whether it adds to an existing data set."""

    workers: int | None = Field(default=None, ge=1)
    """Processes, 1 if left out; on Ray, actors, one per processor if left out. Any number gives the same result."""
    append: bool = False
    """Add --tasks more tasks to the data set in --out."""


def run(
    domain: DomainName,
    /,
    *,
    options: Annotated[TaskOptions, Flat] = TaskOptions(),
    out: Annotated[Path, Parameter(help="Directory for the data set.")],
    work: Annotated[WorkOptions, Flat] = WorkOptions(),
    where: Annotated[EngineOptions, Flat] = EngineOptions(),
    as_json: Json = False,
    **settings: Settings,
) -> None:
    """Sample tasks, run A*, and store a data set of prompts, traces and plans.

    The domain's own settings are options too: --width, --height; for sokoban also --walls, --boxes, --tokens-format;
    for tiles --slides. If it is interrupted, run the same command again to continue.
    """
    from searchformer.addresses import working_copy
    from searchformer.commands.progress import TerminalDisplay
    from searchformer.dataset.generate import generate
    from searchformer.domains import domain_class
    from searchformer.errors import SearchformerError

    whole = GenerateOptions(domain=domain, settings=domain_settings(domain, settings), **options.model_dump())
    if whole.start_goal_pairs > 1 and not domain_class(domain).shares_layouts:
        raise SearchformerError(f"--start-goal-pairs is for domains with shared layouts, such as maze; found {domain}")
    with working_copy(out) as here:
        manifest = generate(whole, here, display=TerminalDisplay(), engine=make_engine(where), **work.model_dump())
    counts = manifest.counts
    if as_json:
        print(json.dumps({"out": str(out), "counts": counts, "longest": manifest.longest}))
    else:
        print(f"{out}: {counts['train']:,} training and {counts['test']:,} test tasks")
