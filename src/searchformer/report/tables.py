"""Tables of results, written as Markdown, CSV, LaTeX and HTML.

In: `Results`. Out: `Table` records; the first is the paper's Sokoban table, for any set of runs. A cell is text, a
whole number, nothing, or `Measured`: a number with its standard error.
"""

import csv
import html
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from searchformer.evaluate.metrics import Measured, over_seeds
from searchformer.report.families import chain_kinds, chain_rule
from searchformer.report.results import Group, Results
from searchformer.report.saving import above_control, explain_rules, measured, rounds_of

DASH = "–"


Cell = Measured | str | int | None


@dataclass(frozen=True)
class Column:
    """A column: its key in CSV, its title elsewhere, and how many decimals its numbers have."""

    key: str
    title: str
    digits: int = 0
    text: bool = False
    """Whether it is aligned as text."""


@dataclass(frozen=True)
class Table:
    """Rows under columns; the caption says how to read them."""

    name: str
    title: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]


def measure(group: Group, metric: str, *, scale: float = 1.0) -> Measured | None:
    """A metric over a group's seeds: mean and standard error; None where no seed has it.

    With a single seed the standard error is the one over resampled test tasks.
    """
    found = [metric_ for one in group.evaluations if (metric_ := one.metric(metric))]
    values = [metric_["value"] for metric_ in found if metric_["value"] is not None]
    if not values:
        return None
    measured = over_seeds(values)
    error = found[0].get("standard_error") if len(values) == 1 else measured.error
    return replace(measured, error=error).scaled(scale)


def parameters(group: Group) -> str:
    """Trainable parameters in words, or the named size, or nothing."""
    count = group.evaluations[0].trained.get("parameters")
    if not count:
        return group.model.size or DASH
    return f"{count / 1e6:.1f}M" if count >= 1e6 else f"{count / 1e3:.0f}k"


IDENTITY = (
    Column("model", "Model", text=True),  # first: it stays in sight where a table scrolls
    Column("task", "Task", text=True),
    Column("params", "Params.", text=True),
    Column("rule", "Rule", text=True),
    Column("sequences", "Training sequences"),
    Column("seeds", "Seeds"),
)

PERFORMANCE = (
    (Column("exact_match", "Exact match (%)", 1), 100.0),
    (Column("any_feasible", "Solved (%)", 1), 100.0),
    (Column("any_optimal", "Optimal (%)", 1), 100.0),
    (Column("swc", "SWC (↑)", 3), 1.0),
    (Column("ilr_on_solved_mean", "ILR (solved, ↑)", 3), 1.0),
    (Column("ilr_on_optimal_mean", "ILR (optimal, ↑)", 3), 1.0),
    (Column("share_of_possible_saving", "Possible saving (%)", 1), 100.0),
)

SEARCH = (
    (Column("pass_at_1", "Optimal per answer (%)", 1), 100.0),
    (Column("average_on_optimal_length", "Average-on-optimal length (tokens)", 1), 1.0),
    (Column("astar_on_optimal_length", "A* on the same tasks (tokens)", 1), 1.0),
    (Column("shortest_search_length", "Shortest true search (tokens)", 1), 1.0),
    (Column("length_ratio_of_means", "A* mean / model mean (↑)", 3), 1.0),
    (Column("share_of_possible_saving", "Share of the possible saving (%)", 1), 100.0),
    (Column("ilr_on_solved_shortest", "ILR of shortest (solved)", 3), 1.0),
    (Column("ilr_on_optimal_shortest", "ILR of shortest (optimal)", 3), 1.0),
    (Column("legal_traces", "Legal A* traces (%)", 1), 100.0),
    (Column("sound_traces", "Sound traces (%)", 1), 100.0),
    (Column("answer_nats", "Entropy of answers (nats)", 1), 1.0),
    (Column("astar_nats", "Entropy of A* (nats)", 1), 1.0),
)

ERRORS = (
    "± is the standard error over training seeds; for a single seed, over resampled test tasks. Params. counts "
    "trainable parameters."
)


def identity(group: Group) -> tuple[Cell, ...]:
    """The cells that say what a row is about."""
    model = group.model
    return model.label, group.task.label, parameters(group), model.rule or None, model.sequences, len(group.evaluations)


def metric_table(
    groups: Sequence[Group], columns: Sequence[tuple[Column, float]], *, name: str, title: str, caption: str
) -> Table:
    """A row per group, a column per metric; a metric that no group has gets no column."""
    metrics = [(*identity(group), *(measure(group, c.key, scale=scale) for c, scale in columns)) for group in groups]
    return without_empty_columns(
        Table(name, title, f"{caption} {ERRORS}", (*IDENTITY, *(column for column, _ in columns)), tuple(metrics))
    )


def without_empty_columns(table: Table) -> Table:
    """The table without columns that have no cell."""
    kept = [place for place in range(len(table.columns)) if any(row[place] is not None for row in table.rows)]
    rows = tuple(tuple(row[place] for place in kept) for row in table.rows)
    return replace(table, columns=tuple(table.columns[place] for place in kept), rows=rows)


def performance_table(results: Results) -> Table:
    """The paper's Sokoban table, for all evaluations."""
    samples = sorted({group.samples for group in results.groups})
    answers = " or ".join(map(str, samples))
    caption = (
        f"Solved and Optimal: share of test tasks with at least one correct or optimal plan among {answers} "
        "answers. SWC: optimal length over the length of the shortest correct plan, averaged over all tasks. "
        "ILR: mean length of A*'s traces over the mean length of the model's traces that end in a correct (or "
        "optimal) plan, averaged over all tasks, as in the published tables. Possible saving: how far searches with "
        "an optimal plan are from A*'s (0%) to the shortest true search (100%), which creates and closes the nodes of "
        "an optimal plan and nothing else."
    )
    return metric_table(results.groups, PERFORMANCE, name="performance", title="Test performance", caption=caption)


def search_table(results: Results) -> Table:
    """Lengths and legality of searches, for evaluations of models that search."""
    groups = [group for group in results.groups if measure(group, "average_on_optimal_length")]
    caption = (
        "Average-on-optimal length: mean trace tokens over a task's optimal answers, averaged over the tasks "
        "that have one; A* on the same tasks: mean of its non-deterministic runs. ILR of shortest takes each "
        "task's shortest trace, as the paper's text defines it; it exceeds one even for a model that only "
        "imitates A*. Entropy: what is left to chance per task; a perfect imitator has that of A*."
    )
    return metric_table(groups, SEARCH, name="search-length", title="Length of searches", caption=caption)


ROUNDS = (
    Column("round", "Round", text=True),
    Column("task", "Task", text=True),
    Column("shorter", "Shorter than A* (%)", 1),
    Column("share_of_possible_saving", "Share of the possible saving (%)", 1),
    Column("pass_at_1", "Optimal per answer (%)", 1),
    Column("pass_at_1_above_control", "Above the control (points)", 1),
    Column("model_tokens", "Search length (tokens)", 1),
    Column("astar_tokens", "A* on the same tasks (tokens)", 1),
    Column("tasks", "Tasks compared"),
    Column("rule", "Rule", text=True),
    Column("size", "Size", text=True),
    Column("sequences", "Training sequences"),
    Column("seeds", "Seeds"),
)


def bootstrap_table(results: Results) -> Table:
    """Each bootstrap round by round, against A* on the same tasks."""
    rows: list[tuple[Cell, ...]] = []
    for chains in chain_kinds(results).values():
        start, rule = chains[0].start, chain_rule(chains[0])
        rounds = rounds_of(chains)
        for one in rounds:
            group = Group(start.task, one.model, start.samples, one.evaluations)
            optimal, lengths = measure(group, "pass_at_1", scale=100), one.lengths
            above = measured(ratios) if (ratios := above_control(one, rounds)) else None
            right = optimal, above and above.scaled(100)
            found = (lengths.shorter, lengths.possible, *right, lengths.model, lengths.astar, one.tasks)
            kind = (rule or None, start.model.size or None, start.model.sequences, len(one.common))
            rows.append((one.label, start.task.label, *found, *kind))
    explained = " ".join(f"Rule {name}: {text}" for name, text in explain_rules(results.rules).items())
    caption = (
        "Start: the model that bootstrapping began with; control: the same fine-tuning on the original traces. Lengths "
        "are compared on the test tasks that both the start and the round's model answered with an optimal plan. The "
        "possible saving reaches from A*'s length to that of the shortest true search, which creates and closes the "
        "nodes of an optimal plan and nothing else. Above the control: how much more often single answers are optimal, "
        f"task by task. {explained} ± is the standard error over training seeds; for a single seed, over resampled "
        "test tasks."
    )
    title = "Bootstrapping rounds"
    return without_empty_columns(Table("bootstrapping", title, caption.replace("  ", " "), ROUNDS, tuple(rows)))


def data_table(results: Results) -> Table:
    """Counts and lengths of data sets."""
    statistics: dict[str, Callable[[np.ndarray], float]] = {
        "mean": lambda lengths: float(lengths.mean()),
        "median": lambda lengths: float(np.median(lengths)),
        "90%": lambda lengths: float(np.quantile(lengths, 0.9)),
        "longest": lambda lengths: float(lengths.max()),
    }
    columns = [
        Column("data_set", "Data set", text=True),
        Column("task", "Task", text=True),
        Column("split", "Split", text=True),
        Column("tasks", "Tasks"),
    ]
    for part in ("trace", "plan"):
        columns += [Column(f"{part}_{name}", f"{part.capitalize()} {name}", 1) for name in statistics]
    rows: list[tuple[Cell, ...]] = []
    for data in results.datasets:
        for split, lengths in data.lengths.items():
            numbers = [Measured(f(lengths[part]), None, 1) for part in ("trace", "plan") for f in statistics.values()]
            rows.append((data.name, data.task.label, split, len(lengths["plan"]), *numbers))
    return Table("data-sets", "Data sets", "Lengths in tokens, without bos and eos.", tuple(columns), tuple(rows))


def all_tables(results: Results) -> list[Table]:
    """Every table that has a row."""
    tables = (performance_table, bootstrap_table, search_table, data_table)
    return [table for make in tables if (table := make(results)).rows]


# --- writing ----------------------------------------------------------------------------------------------------


def written(cell: Cell, column: Column, *, plus_minus: str = " ± ") -> str:
    """A cell as text, with its error where it has one."""
    if cell is None:
        return DASH
    if isinstance(cell, Measured):
        value = f"{cell.value:,.{column.digits}f}"
        return value if cell.error is None else f"{value}{plus_minus}{cell.error:,.{column.digits}f}"
    return f"{cell:,}" if isinstance(cell, int) else cell


def to_markdown(table: Table) -> str:
    """GitHub's tables."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    rows = [[written(cell, column) for cell, column in zip(row, table.columns, strict=True)] for row in table.rows]
    head = [line([column.title for column in table.columns])]
    head.append(line([":---" if column.text else "---:" for column in table.columns]))
    return "\n".join([f"**{table.title}.** {table.caption}", "", *head, *map(line, rows), ""])


def to_csv(table: Table) -> str:
    """Numbers in full, each standard error in a column of its own."""
    measured = [any(isinstance(row[i], Measured) for row in table.rows) for i in range(len(table.columns))]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    head = [[c.key, f"{c.key}_standard_error"] if m else [c.key] for c, m in zip(table.columns, measured, strict=True)]
    writer.writerow([name for names in head for name in names])
    for row in table.rows:
        cells: list[str | int | float | None] = []
        for cell, is_measured in zip(row, measured, strict=True):
            if isinstance(cell, Measured):
                cells += [cell.value, cell.error]
            else:
                cells += [cell, None] if is_measured else [cell]
        writer.writerow(cells)
    return out.getvalue()


TEX = str.maketrans(
    {
        **{character: f"\\{character}" for character in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "×": r"$\times$",
        "↑": r"$\uparrow$",
        DASH: "--",
        "±": r"$\pm$",
        "*": r"$^*$",
    }
)


def to_latex(table: Table) -> str:
    """A table environment that needs no package."""
    alignment = "".join("l" if column.text else "r" for column in table.columns)
    error = r" {\scriptsize $\pm$ "

    def tex(cell: Cell, column: Column) -> str:
        if isinstance(cell, Measured) and cell.error is not None:
            return written(cell, column, plus_minus=error) + "}"
        return written(cell, column).translate(TEX)

    body = [
        "    " + " & ".join(tex(cell, column) for cell, column in zip(row, table.columns, strict=True)) + r" \\"
        for row in table.rows
    ]
    head = " & ".join(column.title.translate(TEX) for column in table.columns)
    caption = f"\\textbf{{{table.title.translate(TEX)}.}} {table.caption.translate(TEX)}"
    return "\n".join(
        [
            r"\begin{table}",
            f"  \\caption{{{caption}}}",
            f"  \\label{{tab:{table.name}}}",
            r"  \centering",
            f"  \\begin{{tabular}}{{{alignment}}}",
            r"    \hline",
            f"    {head} \\\\",
            r"    \hline",
            *body,
            r"    \hline",
            r"  \end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def to_html(table: Table) -> str:
    """A `<table>`; errors are set smaller."""
    kinds = ["text" if column.text else "number" for column in table.columns]

    def cell_html(cell: Cell, column: Column) -> str:
        value, _, error = written(cell, column).partition(" ± ")
        return html.escape(value) + (f" <small>± {html.escape(error)}</small>" if error else "")

    head = "".join(f'<th class="{k}">{html.escape(c.title)}</th>' for c, k in zip(table.columns, kinds, strict=True))
    body = "\n".join(
        "<tr>"
        + "".join(
            f'<td class="{kind}">{cell_html(cell, column)}</td>'
            for cell, column, kind in zip(row, table.columns, kinds, strict=True)
        )
        + "</tr>"
        for row in table.rows
    )
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
