"""`searchformer inspect`: what a data set holds, and whether anything leaks from training to testing."""

import json
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from pydantic import Field
from rich import box
from rich.columns import Columns
from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from searchformer.commands.options import Flat, Json
from searchformer.commands.progress import TerminalDisplay
from searchformer.errors import SearchformerError
from searchformer.options import OptionsModel

if TYPE_CHECKING:
    from searchformer.dataset.audit import Leakage
    from searchformer.dataset.store import Dataset


class InspectOptions(OptionsModel):
    """How much of the data set is examined and drawn."""

    tasks: int = Field(default=3, ge=0)
    """Tasks to draw, with their plans."""
    audit_tasks: int = Field(default=20_000, ge=0)
    """Audit the layouts and symmetries of the first N tasks of each split."""
    verify: bool = True
    """Compare every shard with its digest."""


def run(
    directory: Annotated[Path, Parameter(help="A data set.")],
    /,
    *,
    options: Annotated[InspectOptions, Flat] = InspectOptions(),
    as_json: Json = False,
) -> None:
    """Show a data set: counts, length quantiles, vocabulary, leakage audit and drawings; verify its files."""
    from searchformer.addresses import read_copy
    from searchformer.dataset.audit import audit_leakage, length_quantiles
    from searchformer.dataset.store import SPLITS, Dataset

    dataset, verified = Dataset(read_copy(directory), verify=options.verify, trusted=not options.verify), options.verify
    lengths = {split: length_quantiles(dataset, split) for split in SPLITS}
    leakage = audit_leakage(dataset, limit=options.audit_tasks, display=TerminalDisplay())
    if as_json:
        print(json.dumps(_facts(dataset, lengths, leakage, verified=verified)))
    else:
        console = Console(highlight=False)
        for table in (_summary(dataset, verified=verified), _length_table(lengths), _audit_table(leakage)):
            console.print(table)
        if not leakage.complete:
            console.print(f"Layouts and symmetry: of the first {options.audit_tasks:,} tasks of each split.")
        _draw_tasks(console, dataset, options.tasks)
    if leakage.shared_layouts or leakage.duplicates_across or leakage.wrong_ids:
        raise SearchformerError(
            f"{directory}: training and test share {leakage.shared_layouts} layouts and {leakage.duplicates_across} "
            f"tasks, {leakage.wrong_ids} prompts do not match their task_id; all must be 0: make the data set again"
        )


# --- what is printed


def _rejected(dataset: "Dataset") -> dict[str, int]:
    counts = dataset.manifest.counts.items()
    return {key.removeprefix("rejected."): count for key, count in counts if key.startswith("rejected.")}


def _facts(dataset: "Dataset", lengths: dict[str, Any], leakage: "Leakage", *, verified: bool) -> dict[str, Any]:
    """Everything that was found, for `--json`."""
    from searchformer.dataset.audit import loss_floor

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
        "floor": loss_floor(dataset),
        "leakage": leakage.model_dump() | {"complete": leakage.complete},
    }


def _summary(dataset: "Dataset", *, verified: bool) -> Table:
    from searchformer.dataset.audit import loss_floor

    manifest, vocabulary = dataset.manifest, dataset.vocabulary
    table = Table(title=str(dataset.directory), title_justify="left", show_header=False, box=box.SIMPLE)
    tokens = sum(shard.tokens for shard in manifest.shards)
    rejected = ", ".join(f"{count:,} {reason}" for reason, count in _rejected(dataset).items() if count)
    state = "every digest verified" if verified else "digests not compared (--no-verify)"
    table.add_row("domain", f"{manifest.domain}: {_listed(manifest.settings)}")
    elsewhere = ("domain", "settings", "merged")
    table.add_row("made with", _listed({k: v for k, v in manifest.config.items() if k not in elsewhere}))
    for part in manifest.config.get("merged", ()):
        table.add_row("merged from", f"{_listed(part['settings'])}; seed {part.get('seed')}")
    table.add_row("tasks", f"{dataset.rows('train'):,} training, {dataset.rows('test'):,} test")
    table.add_row("rejected", rejected or "none")
    table.add_row("tokens", f"{tokens:,}")
    if (floor := loss_floor(dataset)) is not None:
        table.add_row("floor", f"{floor:.4f} nats per token: the loss of a perfect imitator")
    table.add_row("vocabulary", f"{len(vocabulary):,} tokens, digest {vocabulary.digest}")
    table.add_row("files", f"{len(manifest.shards)} shards, {state}; written by searchformer {manifest.package}")
    return table


def _listed(values: dict[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in values.items() if value is not None)


def _length_table(lengths: dict[str, Any]) -> Table:
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


def _audit_table(leakage: "Leakage") -> Table:
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


def _draw_tasks(console: Console, dataset: "Dataset", tasks: int) -> None:
    """The first tasks of the data set, with their plans: of the test split if it has any."""
    from searchformer.domains import make_domain
    from searchformer.search.drawing import draw_plan

    domain = make_domain(dataset.manifest.domain, dataset.manifest.settings)
    split = "test" if dataset.rows("test") else "train"
    columns = ["task_id", "prompt", "plan", "trace_length"]  # traces are long and not drawn
    panels = []
    for row in islice(dataset.records(split, columns), tasks):
        problem = domain.parse_prompt(dataset.vocabulary.decode(row["prompt"]))
        plan = dataset.vocabulary.decode(row["plan"])
        picture = draw_plan(domain, problem, plan, width=console.width - 8)
        title = f"{split} {row['task_id'][:8]}: {row['trace_length']:,} trace tokens"
        panels.append(Panel.fit(picture, title=title, padding=(0, 2)))
    console.print(Columns(panels))
