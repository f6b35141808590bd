"""Recipes: fields and errors, products of lists, estimates, a whole experiment in small, interrupted and resumed."""

import json
import shutil
import tomllib
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from synthetic import letter_tasks, write_dataset

from searchformer import cli
from searchformer.dataset.generate import generate
from searchformer.dataset.options import GenerateOptions
from searchformer.dataset.store import Dataset, file_digest
from searchformer.display import duration
from searchformer.domains import domain_names
from searchformer.errors import Interrupted, SearchformerError
from searchformer.files import locked
from searchformer.model import make_config
from searchformer.recipes import run as running
from searchformer.recipes.cost import (
    CPU,
    GPU,
    SAMPLED_TASKS,
    count,
    parameters,
    rate,
    sizes_of,
    stage_cost,
)
from searchformer.recipes.plan import bootstrap_runs, stages_of, train_runs
from searchformer.recipes.recipe import DataSpec, load_recipe, make_recipe, result_fields, shipped_names, to_toml
from searchformer.recipes.run import Outcome, RecipeRunner, run_recipe
from searchformer.tokens.steps import Cutter, token_kinds
from searchformer.train.launch import launch, train_command

SMALL = "dim=16,layers=2,heads=2,ffn=24"
MICRO = """
title = "a whole experiment in seconds"

[data.maze]
domain = "maze"
settings = { width = 4, height = 4 }
tasks = 80
test_fraction = 0.2

[[train]]
name = "tiny"
data = "maze"
model = "dim=16,layers=2,heads=2,ffn=24"
sequences = 40
steps = 20
batch_size = 4
lr = 1e-3
eval_every = 0
save_every = 10
precision = "fp32"

[evaluation]
tasks = 4
samples = 2
max_tokens = 120

[[bootstrap]]
train = "tiny"
rounds = 1
samples = 2
tasks = 4
steps = 5
"""


@pytest.fixture(autouse=True, scope="module")
def one_core():
    """Threads that wait for each other make small products slow on a busy machine; here and in launched processes."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setattr("os.cpu_count", lambda: 1)
        yield
    torch.set_num_threads(threads)


class Heard:
    """A display that remembers."""

    def __init__(self):
        self.lines = []

    def say(self, line):
        self.lines.append(line)

    def bar(self, title, *, unit):
        from contextlib import nullcontext

        return nullcontext(lambda done, total, note: None)


def values(**changes):
    found = tomllib.loads(MICRO)
    return found | changes


def micro(tmp_path, *changes):
    path = tmp_path / "micro.toml"
    path.write_text(MICRO)
    return load_recipe(str(path), changes)


def start(recipe, out) -> tuple[Outcome, list[str]]:
    display = Heard()
    outcome = run_recipe(recipe, out, display=display, workers=1, command="searchformer run micro")
    return outcome, display.lines


# --- shipped recipes


@pytest.mark.parametrize("name", shipped_names())
def test_every_shipped_recipe_validates_and_can_be_planned(name, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["searchformer", "run", name, "--dry-run", "--json"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0
    stages = json.loads(capsys.readouterr().out)["stages"]
    kinds = [stage["stage"].split("/")[0] for stage in stages]
    assert 0 < kinds.count("train") <= kinds.count("rollout")
    assert kinds[-1] == "report"
    assert all(stage["cpu_seconds"] > 0 and stage["gpu_seconds"] > 0 for stage in stages)


@pytest.mark.parametrize("name", shipped_names())
def test_a_recipe_written_as_resolved_is_the_same_recipe(name):
    recipe = load_recipe(name)
    assert make_recipe(tomllib.loads(to_toml(recipe))) == recipe


def test_the_papers_hyper_parameters_are_those_of_its_appendix():
    for name in ("maze-det", "maze-nondet", "sokoban", "searchformer"):
        for run in train_runs(load_recipe(name)):
            steps, batch = (80_000, 64) if "sokoban" in run.data else (400_000, 16)
            assert (run.spec.steps, run.spec.batch_size, run.spec.warmup) == (steps, batch, 2000)
            assert run.spec.lr == {"15M": 2.5e-4, "46M": 7.5e-5, "175M": 5e-5, "747M": 5e-5}[run.model]


def test_the_list_explains_every_shipped_recipe_and_says_that_times_are_estimates(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["searchformer", "run", "--list"])
    with pytest.raises(SystemExit):
        cli.main()
    text = capsys.readouterr().out
    assert all(name in text and load_recipe(name).title in text for name in shipped_names())
    assert "estimates" in text


def test_quickstart_is_estimated_to_take_less_than_five_minutes_on_two_cores():
    recipe = load_recipe("quickstart")
    assert sum(stage_cost(stage, recipe, CPU).seconds for stage in stages_of(recipe)) < 300


def test_quickstart_trains_step_networks():
    assert {make_config(run.model, vocabulary=100).unit for run in train_runs(load_recipe("quickstart"))} == {"step"}


# --- fields


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("train.steps=0", "train[0].steps: input should be greater than or equal to 1; found 0"),
        ("train.steps=many", "train[0].steps: input should be a valid integer; found 'many'"),
        ("train.stepz=3", "train[0].stepz: no such field"),
        ("train[0].seed=-1", "train[0].seed: input should be greater than or equal to 0; found -1"),
        ("train.seed=[0, -1]", "train[0].seed[1]: input should be greater than or equal to 0"),
        ("train.model=16M", "train[0].model: unknown model size '16M'"),
        ("train.data=forest", "train[0].data: no data set 'forest'; there are maze"),
        ("train.sequences=81", "train[0].sequences: 81 asked for, data.maze has 80 tasks"),
        ("data.maze.domain=chess", "data.maze.domain: "),
        ("data.maze.settings.width=1", "data.maze.settings: "),
        ("data.maze.tasks=x", "data.maze.tasks: input should be a valid integer"),
        ("bootstrap.rule=1", "bootstrap[0].rule: input should be a valid string"),
        ("bootstrap.rule=best", "bootstrap[0].rule: no selection rule is called 'best'; there are paper"),
        ("evaluation.top_p=2.0", "evaluation.top_p: input should be less than or equal to 1"),
        ("evaluation.temperature=inf", "evaluation.temperature: input should be a finite number"),
        ("title=[1]", "title: input should be a valid string"),
    ],
)
def test_an_error_names_the_field(tmp_path, change, message):
    with pytest.raises(SearchformerError) as error:
        micro(tmp_path, change)
    assert f"micro.toml: {message}" in str(error.value)


def test_a_missing_field_is_named():
    with pytest.raises(SearchformerError, match=r"train\[0\]\.model: this field is missing"):
        make_recipe(values(train=[{"data": "maze"}]))


def test_start_goal_pairs_are_refused_where_layouts_are_not_shared():
    data = {"level": {"domain": "sokoban", "tasks": 5, "start_goal_pairs": 3}}
    with pytest.raises(SearchformerError, match=r"data\.level\.start_goal_pairs: sokoban tasks do not share layouts"):
        make_recipe({"title": "t", "data": data})


def test_an_unknown_recipe_is_answered_with_those_there_are():
    with pytest.raises(SearchformerError, match=r"no recipe 'quickstar': neither a file nor one of quickstart, "):
        load_recipe("quickstar")


def test_a_file_that_is_not_toml_is_named(tmp_path):
    (tmp_path / "bad.toml").write_text("title = ")
    with pytest.raises(SearchformerError, match=r"bad\.toml is not TOML"):
        load_recipe(str(tmp_path / "bad.toml"))


def test_set_changes_all_entries_or_one_and_reads_toml_values(tmp_path):
    recipe = load_recipe(
        "maze-det", ["train.steps=7", "train[1].model=1M", "train.seed=[3, 4]", "evaluation.top_p=0.5"]
    )
    assert [entry.steps for entry in recipe.train] == [7, 7, 7]
    assert [entry.model for entry in recipe.train] == [("15M",), ("1M",), ("175M",)]
    assert recipe.train[2].seed == (3, 4)
    assert recipe.evaluation.top_p == 0.5
    assert micro(tmp_path, "data.maze.settings.height=3").data["maze"].settings == {"width": 4, "height": 3}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("train.steps", "expected a.b=c"),
        ("=3", "expected a.b=c"),
        ("train[2].steps=3", "the recipe has entries 0 to 0 there"),
        ("title.short=3", "'short' would be inside of a plain value"),
    ],
)
def test_a_wrong_set_says_what_is_wrong_with_it(tmp_path, change, message):
    with pytest.raises(SearchformerError) as error:
        micro(tmp_path, change)
    assert str(error.value).startswith(f"--set '{change}': ")
    assert message in str(error.value)


def test_awkward_text_survives_being_written(tmp_path):
    title = 'quotes " and \\ and \x7f and \n new lines and 🎲'
    recipe = make_recipe(values(title=title))
    assert make_recipe(tomllib.loads(to_toml(recipe))).title == title


# --- products


def test_lists_become_their_cartesian_product_with_names_that_tell_runs_apart():
    lists = {"sequences": [10, 20], "seed": [0, 1], "plan_only": [False, True]}
    recipe = make_recipe(values(train=[values()["train"][0] | lists]))
    slugs = [run.slug for run in train_runs(recipe)]
    assert len(slugs) == len(set(slugs)) == 8
    assert "tiny-search-10-seed0" in slugs
    assert "tiny-plan-20-seed1" in slugs


def test_names_leave_out_what_all_runs_share(tmp_path):
    assert [run.slug for run in train_runs(micro(tmp_path))] == ["tiny-search"]


def test_two_runs_of_one_name_are_refused():
    entry = values()["train"][0]
    with pytest.raises(SearchformerError, match="train: two runs are called 'tiny-search'"):
        stages_of(make_recipe(values(train=[entry, entry | {"steps": 9}])))


def test_runs_may_begin_with_the_weights_of_others():
    lists = {"seed": [0, 1], "plan_only": [False, True]}
    first = values()["train"][0] | lists
    recipe = make_recipe(values(train=[first, first | {"name": "longer", "init_from": "tiny"}]))
    beginnings = {run.slug: run.begins_with for run in train_runs(recipe)}
    assert beginnings["tiny-plan-seed1"] is None
    assert beginnings["longer-plan-seed1"] == "tiny-plan-seed1"
    assert "train/tiny-plan-seed1" in next(s.needs for s in stages_of(recipe) if s.key == "train/longer-plan-seed1")
    for wrong in ({"init_from": "other"}, {"seed": 2, "init_from": "tiny"}, {"init_from": "longer"}):
        entries = [first, first | {"name": "longer"} | wrong]
        with pytest.raises(SearchformerError, match=r"train\[1\].init_from: expected one .* run .*; found 0"):
            train_runs(make_recipe(values(train=entries)))


def test_bootstraps_take_every_searching_run_that_they_name_once_per_rule():
    train = [values()["train"][0] | {"seed": [0, 1], "plan_only": [False, True]}]
    entry = values()["bootstrap"][0] | {"train": ["tiny", "*-seed1"], "rule": ["paper", "sound"]}
    recipe = make_recipe(values(train=train, bootstrap=[entry]))
    slugs = [run.slug for run in bootstrap_runs(recipe, train_runs(recipe))]
    expected = [
        "tiny-search-seed0-paper",
        "tiny-search-seed0-sound",
        "tiny-search-seed1-paper",
        "tiny-search-seed1-sound",
    ]
    assert slugs == expected


def test_bootstraps_take_over_what_the_training_run_and_the_evaluation_say(tmp_path):
    recipe = micro(tmp_path)
    (run,) = bootstrap_runs(recipe, train_runs(recipe))
    assert (run.options.lr, run.options.batch_size, run.options.seed) == (1e-3, 4, 0)
    assert (run.options.eval_tasks, run.options.eval_samples, run.options.tasks) == (4, 2, 4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["bootstrap.train=tony"], r"bootstrap\[0\]\.train: no training run 'tony'; there are tiny-search"),
        (["train.plan_only=true"], r"bootstrap\[0\]\.train: 'tiny' names solution-only runs only"),
    ],
)
def test_a_bootstrap_of_nothing_is_refused(tmp_path, changes, message):
    with pytest.raises(SearchformerError, match=message):
        stages_of(micro(tmp_path, *changes))


# --- estimates


def test_lengths_are_those_of_sampled_tasks():
    lengths = sizes_of(DataSpec(domain="maze", settings={"width": 10, "height": 10}, tasks=1)).tokens
    assert 270 < lengths.trace + lengths.plan < 350  # 312 where the published code was measured
    short = sizes_of(DataSpec(domain="maze", settings={"width": 10, "height": 10}, tasks=1, max_trace_tokens=200))
    assert 100 <= short.tokens.trace < 200


@pytest.mark.parametrize("name", sorted(domain_names()))
def test_pieces_are_counted_as_the_cutter_cuts_them(tmp_path, name):
    from searchformer.dataset.batches import Sequences

    spec = DataSpec(domain=name, tasks=1, max_trace_tokens=2000)
    sizes = sizes_of(spec)
    generate(GenerateOptions(domain=name, tasks=SAMPLED_TASKS, test_fraction=0, max_trace_tokens=2000), tmp_path / "d")
    dataset = Dataset(tmp_path / "d")
    sequences, kinds = Sequences(dataset, "train"), token_kinds(dataset.vocabulary)
    batch = sequences.batch(np.arange(len(sequences)))
    cutter = Cutter(kinds, **sequences.longest_pieces(kinds))
    assert cutter.places == max(sizes.places["trace"], sizes.places["plan"])
    assert (cutter.plan_places, cutter.prompt_places) == (sizes.places["plan"], sizes.places["prompt"])
    responses = cutter.responses(batch.responses, batch.response_lengths).counts
    prompts = cutter.prompts(batch.prompts, batch.prompt_lengths).counts
    per_token = (responses.sum() - len(batch)) / (batch.response_lengths.sum() - 2 * len(batch))  # eos has its own
    assert sizes.pieces.response(plan_only=False) / sizes.tokens.response(plan_only=False) == pytest.approx(
        per_token, rel=0.02
    )
    assert sizes.pieces.prompt == pytest.approx(prompts.mean() - 2, rel=0.1)  # bos and eos have their own


def test_settings_that_admit_no_task_are_said_to_be_too_narrow(tmp_path):
    recipe = micro(tmp_path, "data.maze.max_trace_tokens=1")
    with pytest.raises(SearchformerError, match=r"data\.maze: no task fits"):
        stage_cost(stages_of(recipe)[0], recipe, CPU)


def test_rates_lie_between_the_measured_ones():
    table = ((64, 1e9), (256, 4e9))
    assert rate(table, 64) == pytest.approx(1e9)
    assert rate(table, 128) == pytest.approx(2e9)
    assert rate(table, 1024) == pytest.approx(4e9)


@pytest.mark.parametrize("kind", ["", ",shift=2", ",unit=step,shift=3"])
def test_parameters_are_counted_as_the_network_counts_them(kind):
    from searchformer.model import Transformer

    config = make_config(f"dim=16,layers=2,heads=2,ffn=24{kind}", vocabulary=30)
    if config.unit == "step":
        config = config.model_copy(update={"places": 6, "plan_places": 3, "prompt_places": 3})
    assert parameters(config) == Transformer(config, device="meta").parameter_count


def test_a_step_network_is_estimated_to_cost_less_than_a_token_network_of_its_width(tmp_path):
    for machine in (CPU, GPU):
        tokens, steps = (
            [stage_cost(stage, recipe, machine).seconds for stage in stages_of(recipe)]
            for recipe in (
                micro(tmp_path, f"train.model=dim=64,layers=2,heads=2,ffn=192{kind}", "train.steps=1000")
                for kind in ("", ",unit=step,shift=3")
            )
        )
        assert steps[1] < tokens[1]


def test_twice_the_steps_take_about_twice_the_time(tmp_path):
    for machine in (CPU, GPU):
        once, twice = (
            stage_cost(stages_of(recipe)[1], recipe, machine).seconds - machine.start_seconds
            for recipe in (micro(tmp_path), micro(tmp_path, "train.steps=40"))
        )
        assert twice == pytest.approx(2 * once)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "1 s"),
        (75, "75 s"),
        (240, "4 min"),
        (7200, "2.0 hours"),
        (86400 * 10, "10 days"),
        (86400 * 730, "2.0 years"),
    ],
)
def test_durations_are_as_coarse_as_estimates(seconds, text):
    assert duration(seconds) == text


def test_counts_are_short():
    assert [count(number) for number in (12, 1234, 12_345_678, 3e9)] == ["12", "1.2k", "12.3M", "3.0G"]


# --- running


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Path, Outcome, list[str]]:
    """The micro recipe, run to the end: its directory, outcome and what was said."""
    directory = tmp_path_factory.mktemp("recipes")
    outcome, lines = start(micro(directory), directory / "run")
    return directory, outcome, lines


def test_a_recipe_runs_from_generate_to_report(finished):
    directory, outcome, lines = finished
    out = directory / "run"
    assert outcome.ran == ("data/maze", "train/tiny-search", "rollout/tiny-search", "bootstrap/tiny-search", "report")
    assert lines[0].startswith("stage 1 of 5: data maze (about ")
    assert outcome.report == out / "report/report.html"
    assert outcome.report.exists()
    assert [name for name, _ in outcome.evaluations] == [
        "tiny-search",
        "tiny-search, round-1",
    ]
    assert all((path / "metrics.json").exists() for _, path in outcome.evaluations)
    assert result_fields(load_recipe(str(out / "recipe.toml"))) == result_fields(micro(directory))


def test_a_second_run_skips_everything(finished):
    directory, _, _ = finished
    outcome, lines = start(micro(directory), directory / "run")
    assert outcome.ran == ()
    assert [line.rpartition(": ")[2] for line in lines] == ["complete"] * 5


def test_the_command_prints_a_row_for_every_run_and_where_the_report_is(finished, monkeypatch, capsys):
    directory, _, _ = finished
    monkeypatch.setattr(
        "sys.argv", ["searchformer", "run", str(directory / "micro.toml"), "--out", str(directory / "run")]
    )
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert "4 test tasks, 2 answers each" in text
    assert "tiny-search, round-1" in text
    assert "model length" in text  # the last column
    assert str(directory / "run" / "report" / "report.html") in text


def test_another_recipe_in_the_same_directory_is_refused_and_the_field_named(finished):
    directory, _, _ = finished
    with pytest.raises(SearchformerError, match=r"with other options \(train\[0\]\.lr was 0\.001, now 0\.1\)"):
        start(micro(directory, "train.lr=0.1"), directory / "run")
    with pytest.raises(SearchformerError, match=r"with other options \(bootstrap was "):
        start(micro(directory, "bootstrap=[]"), directory / "run")


def test_what_does_not_decide_results_may_change(finished):
    directory, _, _ = finished
    outcome, _ = start(micro(directory, "title=other", "train.processes=2", "device=cpu"), directory / "run")
    assert outcome.ran == ()


def test_time_left_follows_what_stages_took_so_far(finished):
    directory, _, _ = finished
    recipe = micro(directory)
    stages = stages_of(recipe)
    run = RecipeRunner(recipe, directory / "run", stages, Heard(), 1)
    run.estimates = {stage.key: 100.0 for stage in stages}
    run.records = {"data/maze": {"seconds": 970.0, "resumed": False}, "report": {"seconds": 9e9, "resumed": True}}
    assert run.time_left(stages[1]) == pytest.approx(100 * 1000 / 130)
    run.records = {
        "data/maze": {"seconds": 970.0, "resumed": False},
        stages[1].key: {"seconds": 100.0, "resumed": False},
    }
    assert run.time_left(stages[1]) == pytest.approx(100)  # its own kind took as long as estimated


def test_a_removed_stage_is_made_again_and_what_reads_it_is_checked(finished, tmp_path):
    directory, _, _ = finished
    copy = tmp_path / "run"
    shutil.copytree(directory / "run", copy)
    shutil.rmtree(copy / "rollout" / "tiny-search")
    outcome, _ = start(micro(directory), copy)
    assert outcome.ran == ("rollout/tiny-search", "report")


def test_an_interrupted_stage_is_gone_on_with(tmp_path, monkeypatch):
    recipe = micro(tmp_path, "bootstrap=[]")
    launched = running.launch

    def killed_before_it_was_noted(command, **where):
        assert launched(command, **where) == 0
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "launch", killed_before_it_was_noted)
    with pytest.raises(KeyboardInterrupt):
        start(recipe, tmp_path / "run")
    monkeypatch.setattr(running, "launch", launched)
    outcome, lines = start(recipe, tmp_path / "run")
    assert outcome.ran[0] == "train/tiny-search"
    assert lines[0] == "stage 1 of 4: data maze: complete"
    trained = json.loads((tmp_path / "run/train/tiny-search/model/config.json").read_text())["trained"]
    assert trained["step"] == 20
    records = json.loads((tmp_path / "run/stages.json").read_text())
    assert records["train/tiny-search"]["resumed"]


def test_a_failing_stage_says_which_it_is_and_the_command_to_go_on(tmp_path, monkeypatch):
    recipe = micro(tmp_path, "bootstrap=[]")
    monkeypatch.setattr(running, "launch", lambda command, **where: 3)
    with pytest.raises(SearchformerError) as error:
        start(recipe, tmp_path / "run")
    assert str(error.value).startswith("stage 2 of 4, train/tiny-search: training tiny-search ended with exit code 3")
    assert "run `searchformer run micro` to continue" in str(error.value)


def test_small_models_train_side_by_side(tmp_path, monkeypatch):
    recipe = micro(tmp_path, "bootstrap=[]", "train.seed=[0, 1, 2]")
    display = Heard()
    outcome = run_recipe(recipe, tmp_path / "run", display=display, workers=1, jobs=2, command="")
    trained = [f"train/tiny-search-seed{seed}" for seed in range(3)]
    assert set(outcome.ran[1:4]) == set(trained)
    assert "training 3 models, 2 at a time; their output is in train/NAME.log" in display.lines
    assert all("20 of 20 steps" in (tmp_path / f"run/{key}.log").read_text() for key in trained)
    assert [name for name, _ in outcome.evaluations] == [f"tiny-search-seed{seed}" for seed in range(3)]


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_run_waits_for_the_one_whose_weights_it_begins_with(tmp_path, jobs):
    first = values()["train"][0] | {"seed": [0, 1]}
    longer = first | {"name": "longer", "init_from": "tiny", "seed": 1}
    recipe = make_recipe(values(train=[first, longer], bootstrap=[]))
    outcome = run_recipe(recipe, tmp_path / "run", display=Heard(), workers=1, jobs=jobs, command="")
    order = [key for key in outcome.ran if key.startswith("train/")]
    assert order.index("train/tiny-search-seed1") < order.index("train/longer-search-seed1")
    config = json.loads((tmp_path / "run/train/longer-search-seed1/config.json").read_text())
    assert config["init_from"].endswith("train/tiny-search-seed1/model")


def test_one_of_several_trainings_that_fails_is_named_and_the_others_are_kept(tmp_path, monkeypatch):
    recipe = micro(tmp_path, "bootstrap=[]", "train.seed=[0, 1, 2]")
    launched = running.launch
    monkeypatch.setattr(running, "launch", lambda command, **where: 3 if "--seed=1" in command else launched(command))
    with pytest.raises(SearchformerError, match=r"training tiny-search-seed1 ended with exit code 3, see .*seed1\.log"):
        run_recipe(recipe, tmp_path / "run", display=Heard(), workers=1, jobs=2, command="")
    monkeypatch.setattr(running, "launch", launched)
    outcome = run_recipe(recipe, tmp_path / "run", display=Heard(), workers=1, jobs=2, command="")
    assert "train/tiny-search-seed1" in outcome.ran


@pytest.mark.parametrize(
    ("model", "jobs", "slots"),
    [(SMALL, None, 4), (SMALL, 2, 2), (SMALL, 9, 5), ("15M", None, 1), ("15M", 2, 2)],
)
def test_as_many_small_models_train_at_a_time_as_there_are_cores(tmp_path, monkeypatch, model, jobs, slots):
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    runs = train_runs(micro(tmp_path, "bootstrap=[]", f"train.model='{model}'", "train.seed=[0, 1, 2, 3, 4]"))
    found, places = running.places_for(runs, "cpu", jobs)
    assert found == places.qsize() == slots
    assert places.get() == {"OMP_NUM_THREADS": str(max(4 // slots, 1))}


def test_a_directory_of_other_things_is_refused(tmp_path):
    write_dataset(tmp_path / "run", train=letter_tasks(2))
    with pytest.raises(SearchformerError, match="run holds a data set, not the run of a recipe; choose another --out"):
        start(micro(tmp_path), tmp_path / "run")
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "a.txt").write_text("Dear")
    with pytest.raises(SearchformerError, match=r"is not empty and holds no recipe\.toml"):
        start(micro(tmp_path), tmp_path / "letters")


def test_a_directory_is_no_recipe(tmp_path):
    with pytest.raises(SearchformerError, match="is a directory; a recipe is a file, or one of quickstart, "):
        load_recipe(str(tmp_path))


def test_two_runs_in_one_directory_do_not_mix(tmp_path):
    (tmp_path / "run").mkdir()
    with (
        locked(tmp_path / "run", doing="running the recipe"),
        pytest.raises(SearchformerError, match="another process is running the recipe"),
    ):
        start(micro(tmp_path), tmp_path / "run")


def test_a_recipes_training_runs_have_its_options(tmp_path):
    recipe = micro(tmp_path, "train.plan_only=[false, true]")
    runner = RecipeRunner(recipe, tmp_path, stages_of(recipe), Heard(), 1)
    commands = [train_command(runner.train_options(run), tmp_path) for run in train_runs(recipe)]
    assert ["--plan-only" in command for command in commands] == [False, True]
    assert "--lr=0.001" in commands[0]


def test_several_processes_are_told_of_each_other_and_end_together(tmp_path):
    import sys

    tell = (
        "import os; open(os.environ['RANK'], 'w').write(' '.join(map(os.environ.get, ('WORLD_SIZE', 'MASTER_PORT'))))"
    )
    assert launch([sys.executable, "-c", f"import os; os.chdir({str(tmp_path)!r}); {tell}"], processes=2) == 0
    told = [(tmp_path / rank).read_text().split() for rank in "01"]
    assert told[0] == told[1]
    assert told[0][0] == "2"
    fail = "import os, sys, time; sys.exit(7) if os.environ['RANK'] == '1' else time.sleep(600)"
    assert launch([sys.executable, "-c", fail], processes=2) == 7


def test_ctrl_c_says_which_stage_it_came_in(tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise Interrupted("generate maze: 3 of 40 tasks")

    monkeypatch.setattr("searchformer.dataset.generate.generate", interrupted)
    with pytest.raises(Interrupted, match=r"^stage 1 of \d+, data/maze: generate maze: 3 of 40 tasks$"):
        start(micro(tmp_path), tmp_path / "run")


def test_a_launched_command_ends_with_the_process_that_launched_it(tmp_path):
    import os
    import signal
    import subprocess
    import sys
    import time

    script = "import os, time; open('pid', 'w').write(str(os.getpid())); os.rename('pid', 'ready'); time.sleep(60)"
    code = f"import sys; from searchformer.train.launch import launch; launch([sys.executable, '-c', {script!r}])"
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path)
    deadline = time.monotonic() + 60
    while not (tmp_path / "ready").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    child = int((tmp_path / "ready").read_text())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    while time.monotonic() < deadline and os.path.exists(f"/proc/{child}") and _state(child) != "Z":
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{child}") or _state(child) == "Z"


def _state(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


def test_fresh_rounds_take_other_tasks_and_begin_with_the_original_traces(tmp_path):
    recipe = micro(tmp_path, "bootstrap.fresh=true", "bootstrap.rounds=3", "bootstrap.tasks=20", "bootstrap.samples=1")
    start(recipe, tmp_path / "run")
    rounds = [tmp_path / f"run/bootstrap/tiny-search/round-{number}" for number in (1, 2, 3)]
    asked = [pq.read_table(folder / "answers/tasks.parquet")["task_id"].to_pylist() for folder in rounds]
    everything = sorted(row["task_id"] for row in Dataset(tmp_path / "run/data/maze").records("train"))
    slices = len(everything) // 20
    assert asked == [everything[20 * (number % slices) :][:20] for number in range(3)]
    assert all(len(list(Dataset(folder / "data").records("train"))) == 20 for folder in rounds)


# --- several data sets


def mixed(**changes):
    """The micro recipe with a second data set, both merged, and every model asked about each."""
    found = values(**changes)
    found["data"]["other"] = found["data"]["maze"] | {"seed": 5, "tasks": 60}
    found["merge"] = {"both": ["maze", "other"]}
    found["train"][0]["data"] = "both"
    found["evaluation"]["data"] = ["other", "maze"]
    return found


def test_data_sets_are_merged_and_models_asked_about_several(tmp_path):
    outcome, _ = start(make_recipe(mixed()), tmp_path / "run")
    names = [name for name, _ in outcome.evaluations]
    assert names == ["tiny-search-on-other", "tiny-search-on-maze", "tiny-search, round-1"]
    parts = [Dataset(tmp_path / "run/data" / name).rows("train") for name in ("maze", "other")]
    assert Dataset(tmp_path / "run/data/both").rows("train") == sum(parts)
    asked = json.loads((tmp_path / "run/bootstrap/tiny-search/options.json").read_text())["eval_data"]
    assert asked == file_digest(tmp_path / "run/data/other/manifest.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"merge": {"both": ["maze", "nothing"]}}, "merge.both: no data set 'nothing'"),
        ({"merge": {"maze": ["maze", "other"]}}, "merge.maze: there is a data.maze already"),
        ({"evaluation": {"data": "nothing"}}, "evaluation.data: no data set 'nothing'"),
    ],
)
def test_unknown_data_sets_are_named(change, message):
    with pytest.raises(SearchformerError, match=message):
        make_recipe(mixed() | change)
