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
    from searchformer.commands.progress import Lines
    from searchformer.report.write import write_report

    display = Lines()
    report = write_report(runs, out=out, display=display)
    for line in (report.found, *report.left_out):
        display.say(line)
    if as_json:
        page = str(report.directory / "report.html")
        typer.echo(json.dumps({"report": page, "files": report.files, "left_out": report.left_out}))
    else:
        typer.echo(f"wrote {len(report.files)} files; open {report.directory / 'report.html'}")
