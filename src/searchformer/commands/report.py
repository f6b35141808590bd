"""`searchformer report`: figures, tables and one HTML page from result files."""

import json
from pathlib import Path
from typing import Annotated

import typer


def run(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Directories to look for results in.")],
    out: Annotated[Path, typer.Option("--out", help="Directory for the report.")] = Path("report"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")] = False,
) -> None:
    """Figures (PNG, PDF, CSV), tables (Markdown, CSV, LaTeX) and one self-contained report.html from result files.

    Everything below each RUN is used: evaluations, bootstrap runs, training curves, data sets.
    """
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from searchformer.report.write import write_report

    messages = Console(stderr=True, highlight=False, soft_wrap=True)
    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TextColumn("figures"), TimeRemainingColumn())
    with Progress(*columns, console=messages, transient=True, disable=not messages.is_terminal) as progress:
        bar = progress.add_task("drawing", total=None)
        report = write_report(
            runs, out=out, on_figure=lambda done, total: progress.update(bar, completed=done, total=total)
        )
    messages.print(report.found, markup=False)
    for line in report.left_out:
        messages.print(line, markup=False)
    if as_json:
        page = str(report.directory / "report.html")
        typer.echo(json.dumps({"report": page, "files": report.files, "left_out": report.left_out}))
    else:
        typer.echo(f"wrote {len(report.files)} files; open {report.directory / 'report.html'}")
