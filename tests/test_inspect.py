"""Inspection: counts and quantiles, a leakage audit that finds what leaks, spoilt files named, plans drawn."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command import invoke

from searchformer.dataset.audit import audit_leakage, length_quantiles
from searchformer.dataset.generate import generate
from searchformer.dataset.options import GenerateOptions
from searchformer.dataset.store import PARTS, SPLITS, Dataset
from searchformer.digests import file_digest
from searchformer.domains import domain_names, make_domain
from searchformer.errors import SearchformerError
from searchformer.files import read_json, write_json
from searchformer.search.drawing import draw_plan

SETTINGS = {"maze": {"width": 4, "height": 4}, "sokoban": {"width": 6, "height": 6, "boxes": 1}}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A data set of each registered domain, once."""
    directory = tmp_path_factory.mktemp("made")
    for name in domain_names():
        settings = SETTINGS.get(name, {})
        generate(GenerateOptions(domain=name, settings=settings, tasks=150, test_fraction=0.3), directory / name)
    return directory


@pytest.fixture
def copy(made, tmp_path):
    """A data set of mazes to change."""
    for path in (made / "maze").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def change(directory, split, new):
    """Replace a split's rows by `new(table)`, with a manifest that fits."""
    path = directory / f"{split}-00000.parquet"
    table = new(pq.read_table(path))
    pq.write_table(table, path)
    stored = read_json(directory / "manifest.json", what="manifest")
    for shard in stored["shards"]:
        if shard["file"] == path.name:
            shard.update(digest=file_digest(path), rows=table.num_rows)
    write_json(directory / "manifest.json", stored)


def inspect(*arguments):
    return invoke("inspect", *arguments)


# The audit


def test_a_fresh_data_set_has_no_leaks(made):
    for name in domain_names():
        dataset = Dataset(made / name)
        found = audit_leakage(dataset, limit=1000)
        assert found.complete
        assert found.tasks == found.examined == {split: dataset.rows(split) for split in SPLITS}
        assert (found.shared_layouts, found.duplicates_across, found.wrong_ids) == (0, 0, 0)
        assert found.duplicates == {"train": 0, "test": 0}


def test_symmetric_tasks_are_counted_as_by_comparing_all_images_of_all_tasks(made):
    for name in domain_names():
        dataset = Dataset(made / name)
        domain = make_domain(name, dataset.manifest.settings)
        forms = {split: [] for split in SPLITS}
        for split in SPLITS:
            for row in dataset.records(split):
                images = domain.symmetric(domain.parse_prompt(dataset.vocabulary.decode(row["prompt"])))
                forms[split].append(min(image.tobytes() for image in images))
        expected = sum(form in set(forms["train"]) for form in forms["test"])
        assert audit_leakage(dataset, limit=1000).symmetric == expected
        if name == "maze":
            assert expected > 0  # there are few mazes of this size


def test_repeated_tasks_and_shared_layouts_are_counted(copy):
    train = pq.read_table(copy / "train-00000.parquet")
    change(copy, "test", lambda test: pa.concat_tables([test, train.slice(0, 3)]))
    change(copy, "train", lambda table: pa.concat_tables([table, table.slice(5, 2)]))
    found = audit_leakage(Dataset(copy, verify=True), limit=1000)
    assert found.duplicates == {"train": 2, "test": 0}
    assert found.duplicates_across == 3
    assert found.shared_layouts == 3
    result = inspect(copy, "--json")
    assert isinstance(result.exception, SearchformerError)
    assert "share 3 layouts and 3 tasks" in str(result.exception)
    assert json.loads(result.stdout.splitlines()[-1])["leakage"]["shared_layouts"] == 3


def test_a_layout_shared_by_different_tasks_is_found(copy):
    maze = make_domain("maze", SETTINGS["maze"])
    vocabulary = Dataset(copy).vocabulary
    row = pq.read_table(copy / "train-00000.parquet").slice(0, 1).to_pylist()[0]
    words = vocabulary.decode(row["prompt"])
    words[1:3], words[4:6] = words[4:6], words[1:3]  # from goal to start, between the same walls
    row["prompt"] = vocabulary.encode(words).tolist()
    row["task_id"] = maze.task_id(maze.parse_prompt(vocabulary.decode(row["prompt"])))
    change(copy, "test", lambda test: pa.concat_tables([test, pa.Table.from_pylist([row], test.schema)]))
    found = audit_leakage(Dataset(copy), limit=1000)
    assert (found.shared_layouts, found.duplicates_across, found.wrong_ids) == (1, 0, 0)


def test_a_prompt_that_is_not_its_task_is_counted(copy):
    def swap(table):
        prompts = table["prompt"].to_pylist()
        prompts[:2] = prompts[1::-1]
        place = table.column_names.index("prompt")
        return table.set_column(
            place, table.schema.field("prompt"), pa.array(prompts, table.schema.field("prompt").type)
        )

    change(copy, "train", swap)
    assert audit_leakage(Dataset(copy), limit=1000).wrong_ids == 2


def test_a_prompt_that_is_no_task_is_named(copy):
    def spoil(table):
        prompts = table["prompt"].to_pylist()
        prompts[0] = prompts[0][:4]
        place = table.column_names.index("prompt")
        return table.set_column(
            place, table.schema.field("prompt"), pa.array(prompts, table.schema.field("prompt").type)
        )

    change(copy, "train", spoil)
    identity = pq.read_table(copy / "train-00000.parquet")["task_id"][0].as_py()
    with pytest.raises(SearchformerError, match=f"train task {identity}: the prompt is not a task of maze: token 4"):
        audit_leakage(Dataset(copy), limit=1000)


def test_an_audit_of_a_part_says_so(made):
    found = audit_leakage(Dataset(made / "maze"), limit=10)
    assert found.examined == {"train": 10, "test": 10}
    assert not found.complete
    assert "of the first 10 tasks of each split" in inspect(made / "maze", "--audit-tasks", 10).stdout


# Lengths


def test_quantiles_are_those_of_the_stored_sequences(made):
    for name in domain_names():
        dataset = Dataset(made / name)
        for split in SPLITS:
            rows = list(dataset.records(split))
            found = length_quantiles(dataset, split)
            lengths = {part: np.array([len(row[part]) for row in rows]) for part in PARTS}
            lengths["response"] = lengths["trace"] + lengths["plan"]
            for part, values in lengths.items():
                assert found[part]["min"] == values.min()
                assert found[part]["max"] == values.max()
                assert found[part]["mean"] == pytest.approx(values.mean())
                assert found[part]["50%"] == np.median(values)
                assert found[part]["5%"] == pytest.approx(np.percentile(values, 5))
                assert found[part]["95%"] == pytest.approx(np.percentile(values, 95))


# The command


def test_everything_is_said_as_json(made):
    result = inspect(made / "sokoban", "--json")
    assert result.exit_code == 0
    facts = json.loads(result.stdout.splitlines()[-1])
    dataset = Dataset(made / "sokoban")
    assert facts["counts"] == {split: dataset.rows(split) for split in SPLITS}
    assert facts["vocabulary"] == {"tokens": len(dataset.vocabulary), "digest": dataset.vocabulary.digest}
    assert facts["config"] == dataset.manifest.config
    assert facts["rejected"]["unsolvable"] == dataset.manifest.counts["rejected.unsolvable"] > 0
    assert facts["lengths"]["test"]["trace"]["max"] <= dataset.manifest.longest["trace"]
    assert facts["leakage"]["shared_layouts"] == 0
    assert facts["verified"] is True


def test_the_tables_name_what_matters(made):
    for name in domain_names():
        result = inspect(made / name)
        assert result.exit_code == 0
        for words in (
            name,
            "every digest verified",
            "rejected",
            "vocabulary",
            "response",
            "turned or mirrored",
            "plan of",
        ):
            assert words in result.stdout


@pytest.mark.parametrize("fraction", [0, 1])
def test_an_empty_split_is_no_trouble(tmp_path, fraction):
    config = GenerateOptions(domain="maze", settings=SETTINGS["maze"], tasks=20, test_fraction=fraction)
    generate(config, tmp_path)
    assert inspect(tmp_path).exit_code == 0
    facts = json.loads(inspect(tmp_path, "--json").stdout.splitlines()[-1])
    assert facts["lengths"]["train" if fraction else "test"] is None
    assert facts["lengths"]["test" if fraction else "train"]["plan"]["min"] > 0


def test_an_extra_column_is_no_trouble(copy):
    change(copy, "train", lambda table: table.append_column("source", pa.array(["original"] * table.num_rows)))
    assert inspect(copy).exit_code == 0


def test_a_spoilt_shard_is_named_unless_digests_are_not_compared(copy):
    shard = copy / "train-00000.parquet"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-1])
    command = [sys.executable, "-m", "searchformer", "inspect", str(copy)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stderr.startswith(f"searchformer: {shard} is truncated or altered")
    assert len(result.stderr.splitlines()) == 1
    shard.write_bytes(whole[:-8] + b"\0" + whole[-7:])  # the footer's length: not readable
    assert "train-00000.parquet cannot be read" in str(inspect(copy, "--no-verify").exception)
    shard.write_bytes(whole)
    assert "digests not compared" in inspect(copy, "--no-verify").stdout


def test_a_directory_that_is_no_data_set_is_named(tmp_path):
    error = inspect(tmp_path).exception
    assert str(error) == f"{tmp_path} holds no complete data set: manifest.json is missing"
    (tmp_path / "file").write_text("text")
    assert str(inspect(tmp_path / "file").exception) == f"{tmp_path / 'file'} is a file and holds no complete data set"


@pytest.mark.parametrize(("mark", "owner"), [("metrics.jsonl", "a training run"), ("tasks.parquet", "rollouts")])
def test_a_directory_of_another_kind_is_told_by_its_kind(tmp_path, mark, owner):
    (tmp_path / mark).write_text("")
    (tmp_path / "manifest.json").write_text("{}")
    error = inspect(tmp_path).exception
    assert str(error) == f"{tmp_path} holds {owner}, not a data set; give the directory of one"


# Drawings


def test_a_mazes_plan_is_marked_on_its_cells():
    maze = make_domain("maze", {"width": 3, "height": 2})
    record = {"width": 3, "height": 2, "start": [0, 0], "goal": [2, 0], "walls": [[1, 0]]}
    plan = "plan 0 0 plan 0 1 plan 1 1 plan 2 1 plan 2 0"
    picture = draw_plan(maze, maze.encode(record), plan.split(), width=80)
    assert picture.plain == "S # G\no o o\n\nS start, G goal, # wall, o plan\nplan of 5 nodes"


def test_a_workers_way_is_marked_and_docks_stay_to_be_seen():
    sokoban = make_domain("sokoban", {"width": 6, "height": 5, "boxes": 1})
    problem = sokoban.encode({"level": ["######", "#@   #", "# $. #", "#    #", "######"]})
    plan = "plan 1 1 plan 1 2 plan 2 2"
    picture = draw_plan(sokoban, problem, plan.split(), width=80)
    marks = "@ worker, $ box, . dock, # wall, o plan"
    assert picture.plain == f"######\n#@   #\n#o$. #\n#    #\n######\n\n{marks}\nplan of 3 nodes"


def test_other_plans_are_drawn_state_by_state():
    tiles = make_domain("tiles", {"width": 2, "height": 2})
    problem = np.array([2, 2, 0, 2, 1, 3], dtype=np.int32)
    plan = "plan 0 2 1 3 plan 1 2 0 3 plan 1 2 3 0"
    picture = draw_plan(tiles, problem, plan.split(), width=80)
    assert picture.plain == " .  2    1  2    1  2\n 1  3    .  3    3  .\n\n. gap\nplan of 3 nodes"
    narrow = draw_plan(tiles, problem, plan.split(), width=5)
    assert len(narrow.plain.splitlines()) == 11


def test_inspection_reads_no_traces_but_the_first(made, monkeypatch):
    read, reads = Dataset.batches, 0

    def batches(self, split, columns=None):
        nonlocal reads
        assert columns is not None
        for batch in read(self, split, columns):
            reads += "trace" in columns
            yield batch

    monkeypatch.setattr(Dataset, "batches", batches)
    assert inspect(Path(made / "sokoban")).exit_code == 0
    assert reads <= 1
