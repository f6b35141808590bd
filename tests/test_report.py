"""The report, from result files to figures, tables and a page."""

import csv
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command import invoke
from report_runs import (
    MAZE_8,
    SOKOBAN_7,
    write_answers,
    write_bootstrap,
    write_data_set,
    write_evaluation,
    write_experiment,
    write_training,
)

from searchformer.domains import make_domain
from searchformer.errors import SearchformerError
from searchformer.evaluate import metrics
from searchformer.evaluate.metrics import Estimate, Measured
from searchformer.files import read_json, write_json
from searchformer.report.charts import colour, grid, slug, thousands
from searchformer.report.diagnostics import smoothed
from searchformer.report.examples import example_of, make_board, typical_sample
from searchformer.report.families import fewer_rounds
from searchformer.report.headline import headlines
from searchformer.report.kinds import ModelKind, TaskKind, size_order
from searchformer.report.lengths import scatter
from searchformer.report.performance import pass_at_k
from searchformer.report.results import Results, load_results
from searchformer.report.rounds import bootstrap_rounds
from searchformer.report.saving import optimal_in_both, rounds_of
from searchformer.report.tables import Column, Table, all_tables, to_csv, to_html, to_latex, to_markdown
from searchformer.report.tradeoff import CERTAIN, Point, write_weights
from searchformer.report.write import Report, write_report

FIGURE_NAMES = (
    *("accuracy-against-length", "training-sequences", "task-size", "bootstrap-length", "length-histograms"),
    *("length-boxes", "length-scatter", "sequence-lengths", "training-curves", "fine-tuning-curves"),
    *("trace-validity", "pass-at-k", "searches"),
)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """A report on an experiment that has everything."""
    root = tmp_path_factory.mktemp("report")
    write_experiment(root / "runs")
    return write_report([root / "runs"], out=root / "out")


def rows_of(report: Report, name: str) -> list[dict[str, str]]:
    with open(report.directory / "figures" / f"{name}.csv", newline="") as file:
        return list(csv.DictReader(file))


# --- the whole --------------------------------------------------------------------------------------------------


def test_every_figure_is_drawn_when_all_results_are_there(report: Report) -> None:
    assert report.left_out == ()
    kinds = {figure for figure in FIGURE_NAMES for chart in report.charts if chart.name.startswith(figure)}
    assert kinds == set(FIGURE_NAMES)
    for chart in report.charts:
        for ending in ("png", "pdf", "csv"):
            assert (report.directory / "figures" / f"{chart.name}.{ending}").stat().st_size > 100
        assert chart.rows
        assert all(len(row) == len(chart.columns) for row in chart.rows)


def test_nothing_sticks_out_of_a_figure(report: Report) -> None:
    for chart in report.charts:
        box = chart.figure.get_tightbbox()
        width, height = chart.figure.get_size_inches()
        assert box.x0 > -0.01, chart.name
        assert box.y0 > -0.01, chart.name
        assert box.x1 < width + 0.01, chart.name
        assert box.y1 < height + 0.01, chart.name


def test_legends_do_not_cover_axes(report: Report) -> None:
    for chart in report.charts:
        axes = [axis.get_tightbbox() for axis in chart.figure.axes]
        for legend in chart.figure.legends:
            assert not any(legend.get_window_extent().overlaps(box) for box in axes), chart.name


def test_every_plotted_axis_has_a_label(report: Report) -> None:
    for chart in report.charts:
        axes = [axis for axis in chart.figure.axes if axis.get_xticks().size]
        assert all(axis.get_xlabel() for axis in axes if axis.get_subplotspec().is_last_row()), chart.name


class Links(HTMLParser):
    """Collects what a page refers to, and checks that tags close."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.references: list[str] = []
        self.ids: set[str] = set()
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in ("meta", "img"):
            self.open.append(tag)
        for name, value in attributes:
            if name in ("href", "src"):
                self.references.append(value or "")
            if name == "id":
                self.ids.add(value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_needs_nothing_but_itself_and_links_to_files_that_exist(report: Report) -> None:
    text = (report.directory / "report.html").read_text(encoding="utf-8")
    page = Links()
    page.feed(text)
    assert page.open == []
    assert not page.tags & {"script", "link", "iframe"}
    assert "url(" not in text
    for reference in page.references:
        if reference.startswith("#"):
            assert reference[1:] in page.ids
        elif not reference.startswith("data:image/png;base64,"):
            assert (report.directory / reference).is_file()
    assert re.findall(r">Figure (\d+)\.[^<]*</h3>", text) == [str(n + 1) for n in range(len(report.charts))]
    assert re.findall(r">Table (\d+)\.[^<]*</h3>", text) == [str(n + 1) for n in range(len(report.tables))]
    assert len(re.findall('class="finding"', text)) == len(report.headlines) > 0
    pictures = [reference for reference in page.references if reference.startswith("data:")]
    assert len(pictures) == len(report.charts)


def test_the_same_results_give_the_same_bytes(tmp_path: Path) -> None:
    write_training(tmp_path / "run" / "training", steps=100)
    write_evaluation(tmp_path / "run" / "rollout", variant="solution-only")
    first, second = (write_report([tmp_path / "run"], out=tmp_path / name) for name in ("a", "b"))
    assert first.files == second.files
    for name in (*first.files, "report.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name


def test_missing_input_leaves_figures_out_with_a_line_each(tmp_path: Path) -> None:
    write_data_set(tmp_path / "run" / "data")
    report = write_report([tmp_path / "run"], out=tmp_path / "out")
    assert [chart.name for chart in report.charts] == ["sequence-lengths"]
    assert len(report.left_out) == 11
    assert "No figure of training curves: needs a training run's metrics.jsonl below the runs" in report.left_out
    page = (tmp_path / "out" / "report.html").read_text()
    assert "No figure of training curves" in page
    assert "Figure 1. Sequence lengths" in page


def test_a_second_report_leaves_no_figure_of_the_first_behind(tmp_path: Path) -> None:
    write_data_set(tmp_path / "data")
    write_training(tmp_path / "training")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("kept")
    write_report([tmp_path / "data"], out=tmp_path / "out")
    write_report([tmp_path / "training"], out=tmp_path / "out")
    pictures = [path.name for path in (tmp_path / "out" / "figures").glob("*.png")]
    assert pictures == ["training-curves.png"]
    assert (tmp_path / "out" / "mine.txt").read_text() == "kept"


def test_a_tampered_list_of_files_removes_nothing_outside(tmp_path: Path) -> None:
    write_data_set(tmp_path / "data")
    (tmp_path / "out").mkdir()
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "out" / "report.json").write_text(json.dumps({"files": ["../precious"]}))
    with pytest.raises(SearchformerError, match="outside of"):
        write_report([tmp_path / "data"], out=tmp_path / "out")
    assert (tmp_path / "precious").exists()


def test_the_report_never_imports_torch() -> None:
    code = "import sys, searchformer.report.write, searchformer.commands.report; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_command_writes_a_report_and_prints_json(tmp_path: Path) -> None:
    write_data_set(tmp_path / "run" / "data")
    result = invoke("report", tmp_path / "run", "--out", tmp_path / "out", "--json")
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout.splitlines()[-1])
    assert Path(printed["report"]).is_file()
    assert "figures/sequence-lengths.png" in printed["files"]


# --- reading ----------------------------------------------------------------------------------------------------


def test_runs_that_differ_in_seed_only_are_one_row(tmp_path: Path) -> None:
    for seed in range(3):
        write_evaluation(tmp_path / f"seed-{seed}", seed=seed)
    write_evaluation(tmp_path / "other", sequences=99)
    results = load_results([tmp_path])
    assert [len(group.evaluations) for group in results.groups] == [1, 3]


def test_table_cells_are_mean_and_standard_error_over_seeds(tmp_path: Path) -> None:
    for seed, skill in enumerate((0.2, 0.3, 0.4)):
        write_evaluation(tmp_path / f"seed-{seed}", seed=seed, skill=skill, samples=2)
    results = load_results([tmp_path])
    table = all_tables(results)[0]
    place = [column.key for column in table.columns].index("any_optimal")
    values = [100 * metrics.any_optimal(one.scores).value for one in results.evaluations]
    cell = table.rows[0][place]
    assert isinstance(cell, Measured)
    assert cell.value == pytest.approx(np.mean(values))
    assert cell.error == pytest.approx(np.std(values, ddof=1) / np.sqrt(3))
    assert cell.repeats == 3


def test_a_single_seed_is_given_the_standard_error_over_tasks(tmp_path: Path) -> None:
    write_evaluation(tmp_path / "run")
    table = all_tables(load_results([tmp_path]))[0]
    stored = json.loads((tmp_path / "run" / "metrics.json").read_text())["metrics"]["swc"]
    cell = table.rows[0][[column.key for column in table.columns].index("swc")]
    assert isinstance(cell, Measured)
    assert (cell.value, cell.error) == (stored["value"], stored["standard_error"])


def test_solution_only_models_have_dashes_for_search_lengths(tmp_path: Path) -> None:
    write_evaluation(tmp_path / "a", variant="solution-only")
    write_evaluation(tmp_path / "b")
    performance, search = all_tables(load_results([tmp_path]))[:2]
    place = [column.key for column in performance.columns].index("ilr_on_optimal_mean")
    assert [row[place] is None for row in performance.rows] == [True, False]
    assert [row[0] for row in search.rows] == ["15M search-augmented"]


def test_entropies_are_beside_search_lengths_where_evaluations_have_them(tmp_path: Path) -> None:
    for name, seed in (("older", 0), ("now", 1)):
        write_evaluation(tmp_path / name, seed=seed, size="15M" if name == "now" else "46M")
        stored = read_json(tmp_path / name / "metrics.json", what="evaluation")
        for metric, value in (("answer_nats", 12.5), ("astar_nats", 11.0)):
            del stored["metrics"][metric]
            if name == "now":
                stored["metrics"][metric] = {"value": value, "low": 9.0, "high": 14.0, "standard_error": 0.5}
        write_json(tmp_path / name / "metrics.json", stored)
    search = all_tables(load_results([tmp_path]))[1]
    assert [column.title for column in search.columns[-2:]] == ["Entropy of answers (nats)", "Entropy of A* (nats)"]
    assert [row[-2:] for row in search.rows] == [(Measured(12.5, 0.5, 1), Measured(11.0, 0.5, 1)), (None, None)]
    (tmp_path / "now" / "metrics.json").unlink()
    assert not any("Entropy" in column.title for column in all_tables(load_results([tmp_path]))[1].columns)


def test_one_model_evaluated_twice_counts_once_and_is_noted(tmp_path: Path) -> None:
    for name in ("first", "second"):
        write_evaluation(tmp_path / name)
        stored = read_json(tmp_path / name / "metrics.json", what="evaluation")
        stored["run"]["model"]["digest"] = "same"
        write_json(tmp_path / name / "metrics.json", stored)
    results = load_results([tmp_path])
    assert len(results.evaluations) == 1
    assert results.notes == ("second: the same model as first, counted once in tables and means",)


def test_the_same_directory_given_twice_is_read_once(tmp_path: Path) -> None:
    write_evaluation(tmp_path / "run")
    assert len(load_results([tmp_path, tmp_path / "run"]).evaluations) == 1


def test_models_that_say_nothing_of_their_training_are_named_by_their_place(tmp_path: Path) -> None:
    write_evaluation(tmp_path / "theirs", trained={})
    (group,) = load_results([tmp_path]).groups
    assert group.model.label == "theirs"


def test_bootstrap_files_name_rounds_controls_and_rule(tmp_path: Path) -> None:
    write_bootstrap(tmp_path, rounds=2, rule="shortest-legal", tasks=10)
    results = load_results([tmp_path])
    (chain,) = results.chains
    names = [one.model.name for one in chain.evaluations]
    rounds = ["Searchformer, round 1 (shortest-legal)", "Searchformer, round 2 (shortest-legal)"]
    assert names == ["search-augmented", *rounds, "control, round 2"]
    assert len(results.groups) == 4


def test_a_bootstrap_of_a_bootstrapped_model_counts_on(tmp_path: Path) -> None:
    write_bootstrap(tmp_path, rounds=2, earlier_rounds=2, tasks=10)
    (chain,) = load_results([tmp_path]).chains
    names = [one.model.name for one in chain.evaluations]
    rounds = [f"Searchformer, round {number}" for number in (2, 3, 4)]
    assert names == [*rounds, "control, round 4"]
    (chart,) = bootstrap_rounds(load_results([tmp_path]))
    ticks = [tick.get_text() for tick in chart.figure.axes[0].get_xticklabels()]
    assert ticks == ["start", "round 3", "round 4", "control 4"]


def test_pass_at_k_shows_every_round_and_the_control(tmp_path: Path) -> None:
    """Bootstrapped models are trained on another number of sequences than the model that they come from."""
    write_bootstrap(tmp_path / "bootstrap", rounds=2, tasks=10, samples=2, sequences=800)
    write_evaluation(tmp_path / "more", tasks=10, samples=2, sequences=1000)
    write_evaluation(tmp_path / "less", tasks=10, samples=2, sequences=500)
    (chart,) = pass_at_k(load_results([tmp_path]))
    drawn = {(row[2], row[3]) for row in chart.rows}
    tuned = {("Searchformer, round 1", 800), ("Searchformer, round 2", 800), ("control, round 2", 800)}
    assert drawn == {("search-augmented", 1000), *tuned}


def test_undecided_traces_are_counted_as_such(tmp_path: Path) -> None:
    write_evaluation(tmp_path / "run", tasks=3, samples=1)
    verdicts = pq.read_table(tmp_path / "run" / "verdicts.parquet").to_pydict()
    verdicts |= {"trace_legal": [True, None, None], "violation": [None, "undecided", None]}
    pq.write_table(pa.table(verdicts), tmp_path / "run" / "verdicts.parquet")
    (one,) = load_results([tmp_path]).evaluations
    assert one.violations == {"legal": 1, "undecided": 1}


def test_rounds_are_known_without_a_bootstrap_file(tmp_path: Path) -> None:
    for round_ in range(3):
        write_evaluation(tmp_path / f"round-{round_}", round_=round_)
    write_evaluation(tmp_path / "plain", settings=MAZE_8)
    (chain,) = load_results([tmp_path]).chains
    assert [one.model.round for one in chain.evaluations] == [0, 1, 2]


def test_metrics_without_verdicts_are_left_out_with_a_note(tmp_path: Path) -> None:
    write_evaluation(tmp_path / "whole")
    write_evaluation(tmp_path / "part")
    (tmp_path / "part" / "verdicts.parquet").unlink()
    results = load_results([tmp_path])
    assert len(results.evaluations) == 1
    assert results.notes == ("part: metrics.json without verdicts.parquet, left out",)


def drop_a_verdict(directory: Path) -> None:
    table = pq.read_table(directory / "verdicts.parquet")
    pq.write_table(table.slice(1), directory / "verdicts.parquet")


def drop_a_task(directory: Path) -> None:
    table = pq.read_table(directory / "astar.parquet")
    pq.write_table(table.slice(1), directory / "astar.parquet")


def garble(directory: Path) -> None:
    (directory / "verdicts.parquet").write_bytes(b"not parquet")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (drop_a_verdict, "need one verdict each"),
        (drop_a_task, "metrics.json counts 60 tasks, astar.parquet holds 59"),
        (garble, "verdicts.parquet cannot be read"),
    ],
)
def test_damaged_evaluations_are_errors(tmp_path: Path, damage: Callable[[Path], None], message: str) -> None:
    write_evaluation(tmp_path / "run")
    damage(tmp_path / "run")
    with pytest.raises(SearchformerError, match=message):
        write_report([tmp_path], out=tmp_path / "out")


def test_an_evaluation_that_lacks_a_field_is_an_error_that_names_it(tmp_path: Path) -> None:
    write_evaluation(tmp_path / "run")
    stored = read_json(tmp_path / "run" / "metrics.json", what="evaluation")
    del stored["run"]["domain"]
    write_json(tmp_path / "run" / "metrics.json", stored)
    with pytest.raises(SearchformerError, match="it lacks 'domain'"):
        load_results([tmp_path])


def test_a_last_line_cut_short_is_not_a_row_and_other_bad_lines_are_errors(tmp_path: Path) -> None:
    write_training(tmp_path / "run", steps=100)
    path = tmp_path / "run" / "metrics.jsonl"
    whole = path.read_text()
    path.write_text(whole + '{"step": 110, "ki')
    (curve,) = load_results([tmp_path]).curves
    assert len(curve.rows) == whole.count("\n")
    path.write_text("garbage\n" + whole)
    with pytest.raises(SearchformerError, match="line 1 is not JSON"):
        load_results([tmp_path])


def test_directories_without_results_are_errors(tmp_path: Path) -> None:
    with pytest.raises(SearchformerError, match="no results below"):
        load_results([tmp_path])
    with pytest.raises(SearchformerError, match="is not a directory"):
        load_results([tmp_path / "nothing"])


def test_kinds_of_tasks_in_words() -> None:
    sokoban = TaskKind.of("sokoban", SOKOBAN_7, deterministic=False)
    assert sokoban.label == "sokoban 7×7, 2 walls, 2 boxes"
    assert TaskKind.of("maze", MAZE_8, deterministic=True).label == "maze 8×8, deterministic"
    assert TaskKind.of("maze", {**MAZE_8, "smallest": 4}, deterministic=False).label == "maze 4×4 to 8×8"
    one_box = {"width": 5, "height": 6, "walls": 0, "boxes": 1, "max_cost": 99, "tokens_format": "paper"}
    assert TaskKind.of("sokoban", one_box, deterministic=False).label == "sokoban 5×6, 1 box"
    assert TaskKind.of("towers", {"disks": 3, "max_cost": None}, deterministic=False).label == "towers 3 disks"


# --- what is drawn ----------------------------------------------------------------------------------------------


def test_training_sequences_are_drawn_with_the_criterion_of_their_data(report: Report) -> None:
    rows = rows_of(report, "training-sequences")
    criteria = {row["task"]: row["metric"] for row in rows}
    assert criteria == {"maze 6×6": "any_optimal", "maze 6×6, deterministic": "exact_match"}
    assert {(row["size"], row["seeds"]) for row in rows} == {("15M", "3"), ("46M", "1")}


def test_bootstrap_rounds_compare_tasks_that_start_and_round_both_answered(tmp_path: Path) -> None:
    write_bootstrap(tmp_path, rounds=1, tasks=30, samples=1)
    (chain,) = load_results([tmp_path]).chains
    start, after = (one.scores for one in chain.evaluations[:2])
    rows = optimal_in_both(start, after)
    assert rows.tolist() == (start.optimal[:, 0] & after.optimal[:, 0]).tolist()
    assert 0 < rows.sum() < after.optimal.sum()
    one = rounds_of([chain])[1]
    assert (one.label, one.tasks) == ("round 1", rows.sum())
    model, astar = after.trace_length[rows, 0].mean(), after.astar_lengths[rows].mean()
    assert one.lengths.model.value == pytest.approx(model)
    assert one.lengths.astar.value == pytest.approx(astar)
    assert one.lengths.shorter.value == pytest.approx(100 * (1 - model / astar))
    assert one.lengths.possible is not None
    least = after.shortest_searches[rows].mean()
    assert one.lengths.possible.value == pytest.approx(100 * (astar - model) / (astar - least))


def test_every_round_of_a_bootstrap_has_its_share_of_the_possible_saving(tmp_path: Path) -> None:
    write_bootstrap(tmp_path, rounds=2, tasks=30, samples=2, rule="paper, fresh tasks")
    results = load_results([tmp_path])
    table = next(table for table in all_tables(results) if table.name == "bootstrapping")
    cells = [dict(zip((column.key for column in table.columns), row, strict=True)) for row in table.rows]
    assert [row["round"] for row in cells] == ["start", "round 1", "round 2", "control 2"]
    assert {row["rule"] for row in cells} == {"paper, fresh tasks"}
    savings = [row["share_of_possible_saving"].value for row in cells]
    assert savings[0] < savings[1] < savings[2] > savings[3]
    assert "Rule paper: of a task's answers that are shorter than its trace, the shortest trace" in table.caption
    assert "Rule fresh tasks: every round samples" in table.caption


def test_the_headline_of_a_bootstrap_says_what_was_found_with_its_interval(tmp_path: Path) -> None:
    write_bootstrap(tmp_path / "run", rounds=2, tasks=40, samples=2, rule="paper")
    results = load_results([tmp_path])
    (sentence,) = headlines(results)
    (chain,) = results.chains
    lengths = rounds_of([chain])[2].lengths
    found = re.search(r"searches are ([\d.]+)% shorter than A\*’s \(95% interval ([\d.]+)% to ([\d.]+)%\)", sentence)
    assert found, sentence
    value, low, high = map(float, found.groups())
    assert value == pytest.approx(lengths.shorter.value, abs=0.05)
    assert low < value < high
    assert lengths.possible is not None
    assert f"{lengths.possible.value:.1f}% (95% interval" in sentence
    assert sentence.startswith("maze 6×6, 15M, 10,000 sequences, rule paper: after 2 bootstrapping rounds, ")
    right = 100 * (metrics.pass_at_1(rounds_of([chain])[2].evaluations[0].scores).value or 0)
    assert f" {right:.1f}% (95% interval" in sentence
    assert re.search(r"the control: [\d.]+% (shorter|longer), [\d.]+% optimal\.$", sentence)
    last, control = (
        next(one for one in rounds_of([chain]) if one.label == label) for label in ("round 2", "control 2")
    )
    right, in_control = (one.evaluations[0].scores.optimal.mean() for one in (last, control))
    assert f"task by task {100 * (right - in_control):.1f} points (95% interval".replace("-", "−") in sentence


def test_without_a_bootstrap_the_headline_is_about_the_best_model(tmp_path: Path) -> None:
    for seed, skill in enumerate((0.5, 0.7)):
        write_evaluation(tmp_path / f"good-{seed}", skill=skill, seed=seed, tasks=20)
    write_evaluation(tmp_path / "bad", skill=0.1, sequences=10, tasks=20)
    (sentence,) = headlines(load_results([tmp_path]))
    assert sentence.startswith("maze 6×6: 15M search-augmented, 10,000 training sequences: ")
    assert "standard error over 2 seeds) of answers are optimal" in sentence


def test_longer_searches_are_called_longer(tmp_path: Path) -> None:
    for round_, stretch in enumerate((1.0, 1.3)):
        write_evaluation(tmp_path / f"round-{round_}", round_=round_, shorter=stretch, tasks=20)
    (sentence,) = headlines(load_results([tmp_path]))
    assert re.search(r"searches are [\d.]+% longer than A\*’s \(95% interval [\d.]+% to", sentence)


def test_shorter_traces_show_as_such_by_round_and_the_control_does_not(report: Report) -> None:
    rows = [row for row in rows_of(report, "bootstrap-length") if row["run"].startswith("sokoban")]
    shorter = [float(row["shorter_percent"]) for row in rows]
    assert [row["model"] for row in rows][-1] == "control, round 2"
    assert shorter == pytest.approx([0, 11, 22, 0], abs=2)


def test_long_chains_keep_start_last_round_and_a_control(tmp_path: Path) -> None:
    write_bootstrap(tmp_path, rounds=9, tasks=5, samples=1)
    (chain,) = load_results([tmp_path]).chains
    kept = fewer_rounds(chain.evaluations)
    assert [(one.model.round, one.model.control) for one in kept] == [
        *((round_, False) for round_ in (0, 2, 4, 7, 9)),
        (9, True),
    ]


def test_violations_are_counted_by_kind(report: Report) -> None:
    rows = rows_of(report, "trace-validity")
    by_model: dict[tuple[str, str, str], float] = {}
    for row in rows:
        key = (row["task"], row["model"], row["sequences"])
        by_model[key] = by_model.get(key, 0) + float(row["percent"])
    assert by_model
    assert all(total == pytest.approx(100) for total in by_model.values())
    assert not any("solution-only" in model for _, model, _ in by_model)


def test_pass_at_k_curves_end_where_any_of_all_answers_does(report: Report) -> None:
    rows = [row for row in rows_of(report, "pass-at-k") if row["curve"] == "pass_at_k" and row["k"] == "8"]
    table = next(table for table in report.tables if table.name == "performance")
    keys = [column.key for column in table.columns]
    optimal = {}
    for row in table.rows:
        cells = dict(zip(keys, row, strict=True))
        optimal[(cells["task"], cells["model"], cells["sequences"])] = cells["any_optimal"].value
    for row in rows:
        key = (row["task"], f"{row['size']} {row['model']}", int(row["sequences"]))
        assert float(row["percent"]) == pytest.approx(optimal[key])


def test_quartiles_of_data_sets_are_those_of_their_columns(report: Report, tmp_path: Path) -> None:
    row = next(row for row in rows_of(report, "sequence-lengths") if row["parts"] == "trace+plan")
    table = pq.read_table(report.directory.parent / "runs" / row["data_set"] / f"{row['split']}-00000.parquet")
    lengths = table["trace_length"].to_numpy() + table["plan_length"].to_numpy()
    assert float(row["median"]) == np.median(lengths)
    assert float(row["most"]) == lengths.max()


def test_example_searches_show_astar_and_models_on_the_same_tasks(report: Report) -> None:
    rows = rows_of(report, "searches")
    planners = {row["planner"] for row in rows}
    assert planners == {"A*", "search-augmented", "Searchformer, round 2"}
    tasks = {row["task_id"] for row in rows}
    assert len(tasks) == 2
    for task in tasks:
        plans = {
            planner: [(row["x"], row["y"]) for row in rows if (row["task_id"], row["planner"], row["event"]) == key]
            for planner in planners
            for key in [(task, planner, "plan")]
        }
        ends = {(plan[0], plan[-1], len(plan)) for plan in plans.values()}
        assert len(ends) == 1


def test_example_searches_take_the_answer_of_median_length(tmp_path: Path) -> None:
    write_evaluation(tmp_path / "run", samples=5, skill=1.0, tasks=4)
    (one,) = load_results([tmp_path]).evaluations
    for row, task_id in enumerate(one.scores.task_ids):
        lengths = one.scores.trace_length[row]
        assert lengths[typical_sample(one, task_id)] == np.median(lengths)


def test_missing_answers_are_an_error_that_names_the_directory(tmp_path: Path) -> None:
    write_answers(tmp_path / "run")
    write_json(tmp_path / "run" / "manifest.json", {"answers": 0, "shards": []})
    with pytest.raises(SearchformerError, match="lacks answer 0 to task"):
        write_report([tmp_path / "run"], out=tmp_path / "out")


def test_prompts_and_answers_are_read_as_cells() -> None:
    sokoban = make_domain("sokoban", {"width": 5, "height": 6, "boxes": 1})
    board = make_board(sokoban, sokoban.encode({"level": ["#####", "#   #", "# . #", "# $ #", "# @ #", "#####"]}))
    assert (board.width, board.height, len(board.cells("wall"))) == (5, 6, 18)
    assert [board.cells(word) for word in ("worker", "box", "dock")] == [[(2, 4)], [(2, 3)], [(2, 2)]]
    answer = "create worker 2 3 box 2 4 c0 c3 close worker 2 3 box 2 4 c0 c3 create worker plan 2 3 plan 2 4"
    example = example_of(answer.split(), trace_length=18)
    assert (example.created, example.closed, example.plan) == (((2, 3),), ((2, 3),), ((2, 3), (2, 4)))


@pytest.mark.parametrize(("skill", "kinds"), [(1.0, 1), (0.8, 3)])
def test_scatter_plots_have_no_panels_that_must_stay_empty(tmp_path: Path, skill: float, kinds: int) -> None:
    for round_ in (0, 1):
        write_evaluation(tmp_path / str(round_), skill=skill, round_=round_)
    (chart,) = scatter(load_results([tmp_path]))
    assert len(chart.figure.axes) == 2 * kinds
    assert len({row[2] for row in chart.rows}) == kinds


def test_weights_of_markers_on_each_other_are_written_once() -> None:
    _, axes = grid(1)
    marked = []
    for weight, length in (("1.5", 0.9), ("2", 0.905), ("3", 0.7)):
        exact = Estimate(length, length, length, 0.0)
        marked.append((Point(f"weighted A*, {weight}", exact, CERTAIN, CERTAIN, {}, mark=weight), CERTAIN))
    write_weights(axes[0], marked)
    assert [text.get_text() for text in axes[0].texts] == ["1.5, 2", "3"]


def test_rounds_and_controls_have_colours_of_their_own() -> None:
    models = [ModelKind("15M", "any", 10, round_, control) for round_ in (1, 2) for control in (True, False)]
    assert len({colour(model) for model in models}) == 4


def test_fine_tuning_has_a_figure_and_steps_of_its_own(report: Report) -> None:
    steps = {}
    for name in ("training-curves", "fine-tuning-curves"):
        chart = next(chart for chart in report.charts if chart.name == name)
        steps[name] = {(row[0].split("/")[0], row[4]) for row in chart.rows if row[1] == "train"}
    assert {run for run, _ in steps["training-curves"]} == {"maze-6"}
    assert {run for run, _ in steps["fine-tuning-curves"]} == {"sokoban"}
    assert max(step for _, step in steps["training-curves"]) == 2000
    assert max(step for _, step in steps["fine-tuning-curves"]) == 300


def test_a_running_mean_keeps_constants_and_length() -> None:
    points = np.column_stack([np.arange(400.0), np.full(400, 3.0)])
    assert smoothed(points) == pytest.approx(points)
    assert len(smoothed(points[:5])) == 5


@pytest.mark.parametrize(("panels", "columns"), [(1, 1), (2, 2), (3, 3), (4, 2), (5, 3), (6, 3), (8, 2), (9, 3)])
def test_panels_leave_few_places_empty(panels: int, columns: int) -> None:
    _, axes = grid(panels)
    assert len(axes) == panels
    assert axes[0].get_subplotspec().get_gridspec().ncols == columns


def test_words_for_numbers_and_file_names() -> None:
    assert [thousands(count) for count in (500, 50_000, 1_500_000)] == ["500", "50k", "1.5M"]
    assert slug("maze 6×6, 15M") == "maze-6x6-15m"
    assert sorted(["175M", "15M", "800k", "1.5B"], key=size_order) == ["800k", "15M", "175M", "1.5B"]


# --- tables as text ---------------------------------------------------------------------------------------------

TABLE = Table(
    "a-table",
    "A table",
    "50% of A* ± error.",
    (Column("model", "Model & size", text=True), Column("tasks", "Tasks"), Column("swc", "SWC (↑)", 2)),
    (("a|b_c 6×6 <i>", 1234, Measured(0.5, 0.125, 3)), ("d", None, Measured(1.0, None, 1)), ("e", 1, None)),
)


def test_markdown_escapes_bars_and_aligns_numbers() -> None:
    lines = to_markdown(TABLE).splitlines()
    assert lines[2:] == [
        "| Model & size | Tasks | SWC (↑) |",
        "| :--- | ---: | ---: |",
        "| a\\|b_c 6×6 <i> | 1,234 | 0.50 ± 0.12 |",
        "| d | – | 1.00 |",
        "| e | 1 | – |",
    ]


def test_csv_has_full_numbers_and_errors_of_their_own() -> None:
    assert to_csv(TABLE).splitlines() == [
        "model,tasks,swc,swc_standard_error",
        "a|b_c 6×6 <i>,1234,0.5,0.125",
        "d,,1.0,",
        "e,1,,",
    ]


def test_latex_escapes_what_latex_would_read() -> None:
    text = to_latex(TABLE)
    assert r"Model \& size & Tasks & SWC ($\uparrow$) \\" in text
    assert r"a|b\_c 6$\times$6 <i> & 1,234 & 0.50 {\scriptsize $\pm$ 0.12} \\" in text
    assert r"50\% of A$^*$ $\pm$ error." in text
    assert not re.search(r"[^\\][%&_#]", text.replace(" & ", " "))


def test_html_escapes_and_sets_errors_small() -> None:
    text = to_html(TABLE)
    assert "a|b_c 6×6 &lt;i&gt;" in text
    assert '<td class="number">0.50 <small>± 0.12</small></td>' in text


def test_no_metric_is_no_column(tmp_path: Path) -> None:
    write_evaluation(tmp_path / "a", variant="solution-only")
    (table,) = all_tables(load_results([tmp_path]))
    assert "exact_match" not in [column.key for column in table.columns]


def test_an_empty_set_of_results_has_no_tables() -> None:
    assert all_tables(Results()) == []


def test_replacing_a_model_kind_changes_the_group(tmp_path: Path) -> None:
    write_evaluation(tmp_path / "a")
    (one,) = load_results([tmp_path]).evaluations
    other = replace(one, model=replace(one.model, control=True))
    assert len(Results((one, other)).groups) == 2
