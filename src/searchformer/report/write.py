"""A report as files: figures, tables, one page, and `report.json`, which lists them.

In: run directories. Out: a directory. Try: `searchformer report runs/NAME --out report`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from searchformer.display import Display, Silent
from searchformer.errors import SearchformerError
from searchformer.files import REPORT, make_directory, read_json, require_kind, write_json, write_text
from searchformer.report.charts import Chart, save
from searchformer.report.figures import draw_all
from searchformer.report.headline import headlines
from searchformer.report.html import found_line, page
from searchformer.report.results import load_results
from searchformer.report.tables import Table, all_tables, to_csv, to_latex, to_markdown

LIST = "report.json"
PAGE = "report.html"
WRITERS: dict[str, Callable[[Table], str]] = {"md": to_markdown, "csv": to_csv, "tex": to_latex}


@dataclass(frozen=True)
class Report:
    """What was written."""

    directory: Path
    found: str
    """What the report is made from."""
    headlines: tuple[str, ...]
    """What was found, with its interval."""
    files: tuple[str, ...]
    """Names inside the directory."""
    charts: tuple[Chart, ...]
    tables: tuple[Table, ...]
    left_out: tuple[str, ...]
    """One line per figure or result that is not in the report."""


def write_report(runs: Sequence[Path], *, out: Path, display: Display | None = None) -> Report:
    """Write a report on everything found below `runs` into `out`; files of an earlier report there are removed."""
    require_kind(out, REPORT)
    results = load_results(runs)
    drawn = draw_all(results)
    tables = all_tables(results)
    remove_earlier(out)
    figures, table_directory = make_directory(out / "figures"), make_directory(out / "tables")
    files = []
    with (display or Silent()).bar("report", unit="figures") as update:
        for done, chart in enumerate(drawn.charts, start=1):
            files += save(chart, figures)
            update(done, len(drawn.charts), "")
    for table in tables:
        for ending, written in WRITERS.items():
            files.append(table_directory / f"{table.name}.{ending}")
            write_text(files[-1], written(table))
    whole = page(results, tables=tables, charts=drawn.charts, figures=figures, left_out=drawn.left_out)
    write_text(out / PAGE, whole)
    names = (PAGE, *sorted(str(path.relative_to(out)) for path in files))
    left_out = (*drawn.left_out, *results.notes)
    found, findings = found_line(results), tuple(headlines(results))
    write_json(out / LIST, {"found": found, "headlines": findings, "files": names, "left_out": left_out})
    return Report(out, found, findings, names, drawn.charts, tuple(tables), left_out)


def remove_earlier(out: Path) -> None:
    """Remove the files that an earlier report left in `out`, so that no figure of other runs stays behind."""
    if not (out / LIST).exists():
        return
    listed = read_json(out / LIST, what="report")
    for name in listed.get("files", []):
        path = out / name
        if not path.resolve().is_relative_to(out.resolve()):
            raise SearchformerError(
                f"{out / LIST} lists {name}, which is outside of {out}; remove the list and try again"
            )
        path.unlink(missing_ok=True)
    (out / LIST).unlink()
