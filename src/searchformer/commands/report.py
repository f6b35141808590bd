"""`searchformer report`: figures, tables and one HTML page from result files."""

import json
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from searchformer.commands.options import Json


def run(
    run: Annotated[Path, Parameter(help="Directories to look for results in.")],
    /,
    *runs: Annotated[Path, Parameter(show=False)],
    out: Annotated[Path, Parameter(help="Directory for the report.")] = Path("report"),
    as_json: Json = False,
) -> None:
    """Write figures (PNG, PDF, CSV), tables (Markdown, CSV, LaTeX) and one self-contained report.html.

    Everything below each RUN is used: evaluations, bootstrap runs, training curves, data sets.
    """
    from searchformer.addresses import read_copy
    from searchformer.commands.progress import TerminalDisplay
    from searchformer.report.write import write_report

    display = TerminalDisplay()
    report = write_report([read_copy(each) for each in (run, *runs)], out=out, display=display)
    for line in (report.found, *report.left_out, *report.headlines):
        display.say(line)
    page = report.directory / "report.html"
    if as_json:
        found = {"headlines": report.headlines, "files": report.files, "left_out": report.left_out}
        print(json.dumps({"report": str(page), **found}))
    else:
        print(f"wrote {len(report.files)} files; open {page}")
