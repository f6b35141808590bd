"""`searchformer inspect`: what a data set holds, and whether anything leaks from training to testing."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import numpy as np
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from searchformer.dataset.audit import Leakage
    from searchformer.dataset.store import Dataset
    from searchformer.domains import Domain

ON_PLAN = "bold green"


def run(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A data set.")],
    tasks: Annotated[int, typer.Option(min=0, help="Tasks to draw, with their plans.")] = 3,
    audit_tasks: Annotated[int, typer.Option(min=0, help="Tasks of each split to take apart in the audit.")] = 20_000,
    verify: Annotated[bool, typer.Option("--verify/--no-verify", help="Compare every shard with its digest.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")] = False,
) -> None:
    """Counts, length quantiles, vocabulary, leakage audit and drawings of a data set; its files are verified."""
    from rich.console import Console

    from searchformer.commands.progress import Lines
    from searchformer.dataset.audit import audit_leakage, length_quantiles
    from searchformer.dataset.store import SPLITS, Dataset
    from searchformer.errors import SearchformerError

    dataset = Dataset(directory, verify=verify)
    lengths = {split: length_quantiles(dataset, split) for split in SPLITS}
    leakage = audit_leakage(dataset, limit=audit_tasks, display=Lines())
    if as_json:
        typer.echo(json.dumps(_facts(dataset, lengths, leakage, verified=verify)))
    else:
        console = Console(highlight=False)
        for table in (_summary(dataset, verified=verify), _length_table(lengths), _audit_table(leakage)):
            console.print(table)
        if not leakage.complete:
            console.print(f"Layouts and symmetry: of the first {audit_tasks:,} tasks of each split (--audit-tasks).")
        _draw_tasks(console, dataset, tasks)
    if leakage.shared_layouts or leakage.duplicates_across or leakage.wrong_ids:
        raise SearchformerError(
            f"{directory}: training and test share {leakage.shared_layouts} layouts and {leakage.duplicates_across} "
            f"tasks, {leakage.wrong_ids} prompts do not match their task_id; all must be 0: make the data set again"
        )


# --- what is said


def _rejected(dataset: "Dataset") -> dict[str, int]:
    counts = dataset.manifest.counts.items()
    return {key.removeprefix("rejected."): count for key, count in counts if key.startswith("rejected.")}


def _facts(dataset: "Dataset", lengths: dict[str, Any], leakage: "Leakage", *, verified: bool) -> dict[str, Any]:
    """Everything that is known, for `--json`."""
    manifest = dataset.manifest
    return {
        "directory": str(dataset.directory),
        "package": manifest.package,
        "domain": manifest.domain,
        "settings": manifest.settings,
        "config": manifest.config,
        "shards": [shard.model_dump() for shard in manifest.shards],
        "verified": verified,
        "vocabulary": {"tokens": len(dataset.vocabulary), "digest": dataset.vocabulary.digest},
        "counts": leakage.tasks,
        "rejected": _rejected(dataset),
        "lengths": lengths,
        "leakage": leakage.model_dump() | {"complete": leakage.complete},
    }


def _summary(dataset: "Dataset", *, verified: bool) -> "Table":
    from rich import box
    from rich.table import Table

    manifest, vocabulary = dataset.manifest, dataset.vocabulary
    table = Table(title=str(dataset.directory), title_justify="left", show_header=False, box=box.SIMPLE)
    tokens = sum(shard.tokens for shard in manifest.shards)
    rejected = ", ".join(f"{count:,} {reason}" for reason, count in _rejected(dataset).items() if count)
    state = "every digest verified" if verified else "digests not compared (--no-verify)"
    table.add_row("domain", f"{manifest.domain}: {_listed(manifest.settings)}")
    table.add_row("made with", _listed({k: v for k, v in manifest.config.items() if k not in ("domain", "settings")}))
    table.add_row("tasks", f"{dataset.rows('train'):,} training, {dataset.rows('test'):,} test")
    table.add_row("rejected", rejected or "none")
    table.add_row("tokens", f"{tokens:,}")
    table.add_row("vocabulary", f"{len(vocabulary):,} tokens, digest {vocabulary.digest}")
    table.add_row("files", f"{len(manifest.shards)} shards, {state}; written by searchformer {manifest.package}")
    return table


def _listed(values: dict[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in values.items() if value is not None)


def _length_table(lengths: dict[str, Any]) -> "Table":
    from rich import box
    from rich.table import Table

    from searchformer.dataset.audit import LENGTHS, QUANTILES

    title = "Lengths in tokens (response = trace + plan; without bos and eos)"
    table = Table("", "", title=title, title_justify="left", box=box.SIMPLE, padding=(0, 0, 0, 1))
    for name in QUANTILES:
        table.add_column(name, justify="right", no_wrap=True)
    for part in LENGTHS:
        for split, known in lengths.items():
            values = [f"{known[part][name]:,.0f}" for name in QUANTILES] if known else ["-"] * len(QUANTILES)
            table.add_row(part, split, *values)
    return table


def _audit_table(leakage: "Leakage") -> "Table":
    from rich import box
    from rich.table import Table

    table = Table("", "train", "test", "both", title="Leakage audit", title_justify="left", box=box.SIMPLE)
    for column in table.columns[1:]:
        column.justify = "right"

    def row(name: str, counts: dict[str, int] | None, both: int | None) -> None:
        splits = [f"{counts[split]:,}" for split in ("train", "test")] if counts else ["", ""]
        table.add_row(name, *splits, "" if both is None else f"{both:,}")

    row("tasks", leakage.tasks, None)
    row("tasks examined", leakage.examined, None)
    row("layouts (in both: must be 0)", leakage.layouts, leakage.shared_layouts)
    row("repeated tasks (in both: must be 0)", leakage.duplicates, leakage.duplicates_across)
    row("test tasks like a training one, turned or mirrored", None, leakage.symmetric)
    row("prompts that do not match task_id (must be 0)", None, leakage.wrong_ids)
    return table


# --- drawings


def _draw_tasks(console: "Console", dataset: "Dataset", tasks: int) -> None:
    """The first tasks of the data set, with their plans: of the test split if it has any."""
    from itertools import islice

    from rich.columns import Columns
    from rich.panel import Panel

    from searchformer.dataset.audit import prompt_problem
    from searchformer.domains import make_domain

    domain = make_domain(dataset.manifest.domain, dataset.manifest.settings)
    split = "test" if dataset.rows("test") else "train"
    columns = ["task_id", "prompt", "plan", "trace_length"]  # traces are long and not drawn
    rows = (row for batch in dataset.batches(split, columns) for row in batch.to_pylist())
    panels = []
    for row in islice(rows, tasks):
        problem = prompt_problem(domain, dataset.vocabulary, row["prompt"])
        plan = " ".join(dataset.vocabulary.decode(row["plan"]))
        picture = draw_plan(domain, problem, plan, width=console.width - 8)
        title = f"{split} {row['task_id'][:8]}: {row['trace_length']:,} trace tokens"
        panels.append(Panel.fit(picture, title=title, padding=(0, 2)))
    console.print(Columns(panels))


def draw_plan(domain: "Domain", problem: "np.ndarray", plan: str, *, width: int) -> "Text":
    """A task with its plan: the plan's cells marked if the domain draws a grid of cells, else its states in a row."""
    from rich.text import Text

    steps = plan.split("plan ")[1:]
    caption = f"plan of {len(steps)} nodes"
    shape = domain.shapes.plan
    if len(shape) == 1 and len(shape[0].limits) == 2:
        cells = [tuple(map(int, step.split()[-2:])) for step in steps]
        picture = _mark_cells(domain.draw(problem), cells, *shape[0].limits)
        if picture is not None:
            return Text.assemble(picture, "\n\n", caption)
    states = [domain.draw(problem, state) for state in _states(domain, problem, steps)]
    return Text("\n\n".join([_side_by_side(states, width), caption]))


def _mark_cells(picture: str, cells: list[tuple[int, ...]], width: int, height: int) -> "Text | None":
    """The picture with `o` on the free cells (x, y); None if its rows and columns are not the grid's."""
    from rich.text import Text

    rows = picture.split("\n")
    stride = next((k for k in (1, 2) if all(len(row) == k * (width - 1) + 1 for row in rows)), 0)
    if len(rows) != height or not stride:
        return None
    marks = {mark for row in rows for mark in row[::stride]}
    free = " " if " " in marks else "."  # where floor is blank, a dot is something to see, such as a dock
    text = Text()
    for y, row in enumerate(rows):
        for at, mark in enumerate(row):
            on_plan = at % stride == 0 and (at // stride, y) in cells
            text.append("o" if on_plan and mark == free else mark, style=ON_PLAN if on_plan else "")
        text.append("\n" if y + 1 < height else "")
    return text


def _states(domain: "Domain", problem: "np.ndarray", steps: list[str]) -> list["np.ndarray"]:
    """The states that a plan's steps name, by the domain's moves."""
    import numpy as np

    from searchformer.search.compiled import bind

    rules = bind(domain.rules)
    size, tokens = domain.state_size(problem), np.zeros(domain.state_room(problem), dtype=np.int32)

    def text(state: np.ndarray) -> str:
        return " ".join(map(domain.token_text, tokens[: rules["write_plan"](problem, state, tokens)].tolist()))

    state = np.zeros(size, dtype=np.int32)
    rules["start"](problem, state)
    states = [state]
    for step in steps[1:]:
        children = np.zeros((domain.max_children, size), dtype=np.int32)
        count = rules["successors"](problem, states[-1], children)
        states += [child for child in children[:count] if text(child) == step.strip()][:1]
    return states


def _side_by_side(pictures: list[str], width: int) -> str:
    """Pictures next to each other, as many as fit into `width`, below that the next ones."""
    blocks = [picture.split("\n") for picture in pictures]
    wide, tall = max(len(row) for block in blocks for row in block), max(map(len, blocks))
    per_line = max(1, (width + 3) // (wide + 3))
    lines = []
    for first in range(0, len(blocks), per_line):
        group = blocks[first : first + per_line]
        rows = [[block[y] if y < len(block) else "" for block in group] for y in range(tall)]
        lines.append("\n".join("   ".join(cell.ljust(wide) for cell in row).rstrip() for row in rows))
    return "\n\n".join(lines)
