"""One HTML page with everything in it: opens from disk, needs no network and no scripts."""

import base64
import html
from collections.abc import Sequence
from pathlib import Path

from searchformer.report.charts import Chart
from searchformer.report.headline import headlines
from searchformer.report.results import Results
from searchformer.report.saving import explain_rules
from searchformer.report.tables import Table, to_html

STYLE = """
:root { color-scheme: light dark; --ink: #1c1e21; --soft: #5b6169; --paper: #ffffff; --sheet: #f6f7f9;
  --rule: #dfe2e6; --accent: #0072b2; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --soft: #a3aab3; --paper: #15181c; --sheet: #1d2126;
  --rule: #343a42; --accent: #6cb6e8; } figure img { filter: brightness(.93); } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); line-height: 1.55;
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 76rem; margin: 0 auto; padding: 2.5rem 1.25rem 5rem; }
h1 { font-size: 1.9rem; letter-spacing: -.015em; margin: 0 0 .3rem; line-height: 1.2; }
h2 { font-size: 1.3rem; margin: 3rem 0 .8rem; padding-bottom: .3rem; border-bottom: 1px solid var(--rule); }
h3 { font-size: 1.02rem; margin: 2.2rem 0 .4rem; }
p, li { max-width: 46rem; } p.lead { color: var(--soft); margin-top: 0; }
a { color: var(--accent); text-decoration: none; } a:hover { text-decoration: underline; }
nav { background: var(--sheet); border: 1px solid var(--rule); border-radius: 10px; padding: .9rem 1.2rem; }
nav ul { margin: 0; padding: 0; list-style: none; columns: 2 20rem; column-gap: 2rem; }
nav li { padding: .1rem 0; break-inside: avoid; }
.wide { overflow-x: auto; border: 1px solid var(--rule); border-radius: 10px; }
table { border-collapse: collapse; width: 100%; font-size: .84rem; font-variant-numeric: tabular-nums; }
th, td { padding: .45rem .7rem; text-align: left; white-space: nowrap; }
th { background: var(--sheet); color: var(--soft); font-weight: 600; white-space: normal; vertical-align: bottom;
  border-bottom: 1px solid var(--rule); min-width: 4rem; }
tbody tr + tr td { border-top: 1px solid var(--rule); } .number { text-align: right; } td small { color: var(--soft); }
figure { margin: 1rem 0 0; } figure img { display: block; max-width: 100%; height: auto; background: #fff;
  border: 1px solid var(--rule); border-radius: 10px; padding: .8rem; margin: 0 auto; }
.text { white-space: normal; min-width: 6rem; }
th:first-child, td:first-child { position: sticky; left: 0; min-width: 6.5rem; }
td:first-child { background: var(--paper); }
p.finding { font-size: 1.12rem; border-left: 3px solid var(--accent); padding-left: .9rem; margin: 1.1rem 0; }
.caption, .files { color: var(--soft); font-size: .88rem; margin: .6rem 0 0; } .files a { margin-right: .8rem; }
@media (max-width: 48rem) { figure { overflow-x: auto; }
  figure img { max-width: none; width: calc(var(--inches) * 5.2rem); padding: .4rem; }
  main { padding: 1.5rem 1rem 3rem; } h1 { font-size: 1.6rem; } }
@media print { nav { display: none; } figure, table { break-inside: avoid; } }
"""

GLOSSARY = {
    "Optimal (any-optimal-k)": "share of tasks with an optimal plan among k answers.",
    "Solved (any-feasible-k)": "share of tasks with a correct plan, optimal or not, among k answers.",
    "pass@k": "the same chance for k fresh answers, estimated without bias from all answers.",
    "SWC": "success weighted by cost: optimal length over the shortest correct plan's length; 0 for unsolved tasks.",
    "Average-on-optimal length": "trace tokens, averaged over a task's optimal answers, then over tasks that have one.",
    "ILR": "improved length ratio: A*'s trace length over the model's, 0 for unsolved tasks; above 1 beats A*. A* is "
    "the mean of many non-deterministic runs; the model is the mean over answers (published tables) or, where it says "
    "so, the shortest answer (the paper's text).",
    "A* mean / model mean": "ratio of average lengths over the tasks with an optimal answer.",
    "Share of the possible saving": "how far searches have come from A*'s length (0%) to that of the shortest true "
    "search (100%), which creates and closes the nodes of an optimal plan and nothing else.",
}


def found_line(results: Results) -> str:
    """What the report is made from, in one sentence."""
    answers = sum(one.stored["tasks"] * one.samples for one in results.evaluations)
    counts = {
        "evaluation": len(results.evaluations),
        "bootstrap run": len(results.chains),
        "training run": len(results.curves),
        "data set": len(results.datasets),
    }
    parts = [f"{count:,} {what}{'' if count == 1 else 's'}" for what, count in counts.items() if count]
    return f"Made from {', '.join(parts)}; {answers:,} judged answers."


def files_line(names: Sequence[str]) -> str:
    """Links to files beside the page."""
    links = "".join(f'<a href="{html.escape(name)}">{html.escape(Path(name).suffix[1:])}</a>' for name in names)
    return f'<p class="files">{links}</p>'


def table_section(table: Table, title: str) -> str:
    """A table with its caption and files; it scrolls where the screen is narrow."""
    files = [f"tables/{table.name}.{ending}" for ending in ("md", "csv", "tex")]
    return (
        f'<h3 id="{table.name}">{html.escape(title)}</h3>\n'
        f'<div class="wide" tabindex="0" role="region" aria-label="{html.escape(title)}">{to_html(table)}</div>\n'
        f'<p class="caption">{html.escape(table.caption)}</p>{files_line(files)}'
    )


def figure_section(chart: Chart, title: str, png: bytes) -> str:
    """A figure with its caption and files; the picture is part of the page."""
    files = [f"figures/{chart.name}.{ending}" for ending in ("png", "pdf", "csv")]
    picture = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    title, inches = html.escape(title), chart.figure.get_figwidth()
    return (
        f'<h3 id="{chart.name}">{title}</h3>\n<figure tabindex="0">'
        f'<img style="--inches: {inches:.2f}" alt="{title}" src="{picture}"></figure>\n'
        f'<p class="caption">{html.escape(chart.caption)}</p>{files_line(files)}'
    )


def page(
    results: Results, *, tables: Sequence[Table], charts: Sequence[Chart], figures: Path, left_out: Sequence[str]
) -> str:
    """The whole page, tables and figures numbered as they appear; `figures` holds the charts' PNG files."""
    titles = {table.name: f"Table {number}. {table.title}" for number, table in enumerate(tables, start=1)}
    titles |= {chart.name: f"Figure {number}. {chart.title}" for number, chart in enumerate(charts, start=1)}
    links = "\n".join(f'<li><a href="#{name}">{html.escape(title)}</a></li>' for name, title in titles.items())
    glossary = GLOSSARY | {f"Rule {name}": text for name, text in explain_rules(results.rules).items()}
    notes = [*left_out, *results.notes]
    sections = [
        f"<h1>Search results</h1>\n<p class='lead'>{html.escape(found_line(results))}</p>",
        *(f'<p class="finding">{html.escape(finding)}</p>' for finding in headlines(results)),
        f"<nav><ul>\n{links}\n</ul></nav>",
        "<h2>Tables</h2>" if tables else "",
        *(table_section(table, titles[table.name]) for table in tables),
        "<h2>Figures</h2>" if charts else "",
        *(figure_section(chart, titles[chart.name], (figures / f"{chart.name}.png").read_bytes()) for chart in charts),
        "<h2>How the numbers are defined</h2>\n<ul>",
        *(f"<li><b>{html.escape(name)}</b>: {html.escape(text)}</li>" for name, text in glossary.items()),
        "</ul>",
        "<h2>Left out</h2>\n<ul>" if notes else "",
        *(f"<li>{html.escape(note)}</li>" for note in notes),
        "</ul>" if notes else "",
    ]
    body = "\n".join(section for section in sections if section)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Search results</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )
