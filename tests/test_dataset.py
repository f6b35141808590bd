"""Data sets: the same bytes whatever happens, tasks split by content, legal traces, errors that name their cause."""

import errno
import json
import os
import resource
import signal
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
from conftest import GOLDEN
from crash_generate import contents, survive

from searchformer.dataset import generate as generation
from searchformer.dataset import shards, supply
from searchformer.dataset.generate import generate
from searchformer.dataset.shards import GenerateOptions
from searchformer.dataset.store import PARTS, SPLITS, Dataset, schema
from searchformer.domains import domain_names, make_domain
from searchformer.errors import SearchformerError
from searchformer.files import LOCK, locked, read_json, write_json
from searchformer.search import Options, Searcher
from searchformer.search.validate import Validator, codes_of
from searchformer.tokens.grammar import parse_response, write_response
from searchformer.tokens.vocabulary import Vocabulary

FILE_EVENTS = ("os.mkdir", "os.remove", "os.rename", "os.rmdir", "shutil.rmtree")


def config(domain="tiles", tasks=70, **changes):
    """By default: so few tasks to choose from that shards repeat one another's."""
    settings = {"tiles": {"width": 3, "height": 3, "slides": 16}, "maze": {"width": 5, "height": 5}}
    return GenerateOptions(domain=domain, **({"settings": settings.get(domain, {})} | changes), tasks=tasks)


@pytest.fixture
def small_shards(monkeypatch):
    """Several shards from few tasks; what a power cut would do is not tested, so nothing need reach the disk."""
    monkeypatch.setattr(os, "fsync", lambda file: None)
    monkeypatch.setattr(generation, "ROWS_PER_SHARD", 32)
    monkeypatch.setattr(supply, "ROWS_PER_SHARD", 32)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A data set of each registered domain, once."""
    directory = tmp_path_factory.mktemp("made")
    small = {"sokoban": {"width": 6, "height": 6, "walls": 2, "boxes": 2}}
    for name in domain_names():
        changes = {"settings": small[name]} if name in small else {}
        generate(config(name, 100, test_fraction=0.3, **changes), directory / name)
    return directory


@pytest.fixture
def copy(made, tmp_path):
    """A data set of mazes to spoil."""
    target = tmp_path / "copy"
    target.mkdir()
    for name, data in contents(made / "maze").items():
        (target / name).write_bytes(data)
    return target


def rows(dataset):
    return [(split, row) for split in SPLITS for row in dataset.records(split)]


# The same bytes


def test_one_and_two_workers_write_the_same_bytes(tmp_path, small_shards):
    alone = generate(config(), tmp_path / "1", workers=1)
    generate(config(), tmp_path / "2", workers=2)
    assert contents(tmp_path / "1") == contents(tmp_path / "2")
    assert alone.counts["rejected.duplicate"] > 0
    assert len(alone.shards) > 4
    assert alone.counts["train"] + alone.counts["test"] == 70


def test_another_seed_gives_other_tasks(tmp_path):
    for seed in (0, 1):
        generate(config("maze", 20, seed=seed), tmp_path / str(seed))
    first, second = ({row["task_id"] for _, row in rows(Dataset(tmp_path / str(seed)))} for seed in (0, 1))
    assert not first & second


def test_killed_at_random_moments_and_rerun_it_writes_the_same_bytes(tmp_path, crash_seed):
    survive(tmp_path, moments=6, seed=crash_seed, kills=3)


def in_child(at, action, task):
    """Run `task` in a forked process where file operation number `at` meets with `action`; its exit code, -9 if killed.

    3 stands for a SearchformerError, 5 for success in spite of the action, 0 for success with fewer operations.
    """
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status)
    left, code = at, 4

    def watch(event, arguments):
        nonlocal left
        if event in FILE_EVENTS or (event == "open" and isinstance(arguments[1], str) and "w" in arguments[1]):
            left -= 1
            if left == 0:
                action()

    try:
        sys.addaudithook(watch)
        task()
        code = 0 if left > 0 else 5
    except SearchformerError:
        code = 3
    finally:
        os._exit(code)


def kill_self():
    os.kill(os.getpid(), signal.SIGKILL)


def disk_is_full():
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(("action", "expected", "stride"), [(kill_self, -9, 2), (disk_is_full, 3, 4)])
def test_stopped_at_any_file_operation_it_continues_to_the_same_bytes(
    tmp_path, small_shards, crash_seed, action, expected, stride
):
    generate(config(), tmp_path / "whole")
    whole = contents(tmp_path / "whole")
    for at in range(1 + crash_seed % stride, 1000, stride):
        out = tmp_path / str(at)
        code = in_child(at, action, lambda out=out: generate(config(), out))
        if (out / "manifest.json").exists():
            Dataset(out, verify=True)  # complete, since it says so
        generate(config(), out)
        assert contents(out) == whole, f"stopped at file operation {at}"
        if code == 0:
            break
        assert code in (expected, 5), f"stopped at file operation {at}"
    assert 20 < at < 200


@pytest.mark.parametrize(("action", "expected", "stride"), [(kill_self, -9, 3), (disk_is_full, 3, 4)])
def test_appending_stopped_at_any_file_operation_ends_with_the_bytes_of_one_run(
    tmp_path, small_shards, crash_seed, action, expected, stride
):
    generate(config(tasks=70), tmp_path / "whole")
    whole = contents(tmp_path / "whole")
    generate(config(tasks=40), tmp_path / "begun")
    begun = contents(tmp_path / "begun")
    for at in range(1 + crash_seed % stride, 1000, stride):
        out = tmp_path / str(at)
        out.mkdir()
        for name, data in begun.items():
            (out / name).write_bytes(data)
        code = in_child(at, action, lambda out=out: generate(config(tasks=30), out, append=True))
        if (out / "manifest.json").exists():
            Dataset(out, verify=True)
        begin_again = (out / ".work" / "config.json").exists() or Dataset(out).manifest.config["tasks"] == 40
        generate(config(tasks=30 if begin_again else 70), out, append=begin_again)
        assert contents(out) == whole, f"stopped at file operation {at}"
        if code == 0:
            break
        assert code in (expected, 5), f"stopped at file operation {at}"
    assert 20 < at < 200


def test_a_complete_data_set_is_left_as_it_is(made):
    def times():
        return {path: path.stat().st_mtime_ns for path in (made / "tiles").iterdir() if path.name != LOCK}

    before = times()
    generate(config("tiles", 100, test_fraction=0.3), made / "tiles")
    assert times() == before


def test_a_disk_that_fills_up_leaves_nothing_that_looks_complete(tmp_path):
    command = [
        sys.executable,
        "-m",
        "searchformer",
        "generate",
        "maze",
        "--tasks",
        "2000",
        "--out",
        str(tmp_path / "d"),
    ]
    limit = (100_000, resource.RLIM_INFINITY)
    stopped = subprocess.run(
        command, capture_output=True, text=True, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    )
    assert stopped.returncode == 1
    assert "cannot write" in stopped.stderr.splitlines()[-1]
    assert "File too large" in stopped.stderr.splitlines()[-1]
    assert not (tmp_path / "d" / "manifest.json").exists()
    with pytest.raises(SearchformerError, match="holds an unfinished data set; run the command"):
        Dataset(tmp_path / "d")
    subprocess.run(command, check=True, capture_output=True)
    Dataset(tmp_path / "d", verify=True)


def test_a_place_that_cannot_be_written_to_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(SearchformerError, match=r"cannot create the directory .*file"):
        generate(config(), tmp_path / "file")
    with pytest.raises(SearchformerError, match=r"cannot create the directory .*file/inside"):
        generate(config(), tmp_path / "file" / "inside")
    assert (tmp_path / "file").read_text() == "in the way"


def test_peak_memory_does_not_grow_with_the_number_of_tasks(tmp_path):
    peaks = []
    for tasks in (10_000, 40_000):
        out = tmp_path / str(tasks)
        command = [sys.executable, "-m", "searchformer", "generate", "maze", "--width", "6", "--height", "6"]
        process = subprocess.Popen([*command, "--tasks", str(tasks), "--out", str(out)], stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        peaks.append(usage.ru_maxrss)
    assert peaks[1] < 1.15 * peaks[0]


# What is refused


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seed", 1),
        ("deterministic", True),
        ("test_fraction", 0.5),
        ("max_trace_tokens", 500),
        ("settings", {"width": 3, "height": 3, "slides": 15}),
        ("algorithm", "dijkstra"),
    ],
)
@pytest.mark.parametrize("append", [False, True])
def test_another_configuration_is_refused_and_the_field_named(made, field, value, append):
    other = config("tiles", 100, **({"test_fraction": 0.3} | {field: value}))
    with pytest.raises(SearchformerError, match=rf"other options \({field}.* was .*, now .* choose another"):
        generate(other, made / "tiles", append=append)


def test_another_number_of_tasks_is_refused(made):
    with pytest.raises(
        SearchformerError, match="complete data set of 100 tasks, asked for are 101; add to it with --append"
    ):
        generate(config("tiles", 101, test_fraction=0.3), made / "tiles")


def test_an_unfinished_data_set_is_finished_as_it_was_begun_or_not_at_all(tmp_path, small_shards):
    assert in_child(12, kill_self, lambda: generate(config(), tmp_path)) == -9
    assert not (tmp_path / "manifest.json").exists()
    for other, append in ((config(tasks=71), False), (config(), True)):
        with pytest.raises(SearchformerError, match="unfinished data set begun with --tasks 70; finish it first"):
            generate(other, tmp_path, append=append)
    with pytest.raises(SearchformerError, match="seed was 0, now 1"):
        generate(config(seed=1), tmp_path)
    generate(config(), tmp_path)
    Dataset(tmp_path, verify=True)


def test_appending_to_nothing_is_refused(tmp_path):
    with pytest.raises(SearchformerError, match="no complete data set to append to"):
        generate(config(), tmp_path / "new", append=True)


def test_a_directory_with_other_things_in_it_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(SearchformerError, match="is not empty and holds no data set"):
        generate(config(), tmp_path)


def test_more_tasks_than_there_are_is_an_error_with_the_number_found(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "PATIENCE", 20_000)
    settings = {"width": 3, "height": 3}
    with pytest.raises(SearchformerError, match=r"found \d+ distinct tasks of the 1,000 asked for.*ask for fewer"):
        generate(config("maze", 1000, settings=settings), tmp_path / "d")
    assert not (tmp_path / "d" / "manifest.json").exists()


# What is in it


def test_tasks_are_unique_and_split_by_layout(made):
    for name in domain_names():
        dataset = Dataset(made / name, verify=True)
        domain = make_domain(name, dataset.manifest.settings)
        found = rows(dataset)
        assert len({row["task_id"] for _, row in found}) == len(found) == 100
        splits_of = {}
        for split, row in found:
            problem = domain.parse_prompt(dataset.vocabulary.decode(row["prompt"]))
            assert domain.task_id(problem) == row["task_id"]
            layout = domain.layout_id(problem)
            splits_of.setdefault(layout, set()).add(split)
            assert (int(layout[:16], 16) < 0.3 * 2**64) == (split == "test")
        assert all(len(splits) == 1 for splits in splits_of.values())
        assert {split for split, _ in found} == set(SPLITS)


@pytest.mark.parametrize("name", domain_names())
def test_every_row_parses_and_its_trace_is_legal_and_its_plan_optimal(made, name):
    dataset = Dataset(made / name)
    domain = make_domain(name, dataset.manifest.settings)
    validator, astar = Validator(domain), Searcher(domain, Options(deterministic=True))
    for _, row in rows(dataset):
        tokens = dataset.vocabulary.decode(row["trace"] + row["plan"])
        answer = parse_response(domain, dataset.vocabulary, tokens)
        assert write_response(answer) == tokens
        problem = domain.parse_prompt(dataset.vocabulary.decode(row["prompt"]))
        verdict = validator.trace(problem, codes_of(domain, tokens))
        assert verdict.legal, (row["task_id"], verdict)
        assert validator.plan(problem, codes_of(domain, tokens)).solved
        assert len(answer.plan) == len(astar.search(problem, record=False).plan)


def test_plain_pyarrow_reads_it_and_columns_agree_with_lengths_and_manifest(made):
    for name in domain_names():
        dataset = Dataset(made / name)
        longest = dict.fromkeys(PARTS, 0)
        for shard in dataset.manifest.shards:
            table = pq.read_table(made / name / shard.file)
            assert table.column_names == ["task_id", *PARTS, *(f"{part}_length" for part in PARTS)]
            assert table.num_rows == shard.rows
            tokens = 0
            for part in PARTS:
                lengths = table[f"{part}_length"].to_numpy()
                assert lengths.tolist() == [len(ids) for ids in table[part].to_pylist()]
                tokens += int(lengths.sum())
                longest[part] = max(longest[part], int(lengths.max()))
            assert tokens == shard.tokens
        assert dataset.manifest.longest == longest
        assert {split: dataset.rows(split) for split in SPLITS} == {k: dataset.manifest.counts[k] for k in SPLITS}


@pytest.mark.parametrize(("fraction", "full", "empty"), [(0.0, "train", "test"), (1.0, "test", "train")])
def test_everything_may_be_training_or_test(tmp_path, fraction, full, empty):
    generate(config("maze", 30, test_fraction=fraction), tmp_path)
    dataset = Dataset(tmp_path, verify=True)
    assert (dataset.rows(full), dataset.rows(empty)) == (30, 0)
    assert list(dataset.batches(empty)) == []


def test_traces_longer_than_asked_for_are_rejected_and_counted(tmp_path):
    manifest = generate(config("maze", 60, max_trace_tokens=80), tmp_path)
    assert manifest.longest["trace"] <= 80
    assert manifest.counts["rejected.trace too long"] > 0


def test_several_tasks_on_one_layout_are_in_the_same_split(tmp_path):
    generate(config("maze", 200, start_goal_pairs=8, test_fraction=0.4), tmp_path)
    dataset = Dataset(tmp_path)
    domain = make_domain("maze", config("maze").settings)
    splits_of = {}
    for split, row in rows(dataset):
        layout = domain.layout_id(domain.parse_prompt(dataset.vocabulary.decode(row["prompt"])))
        splits_of.setdefault(layout, []).append(split)
    assert all(len(set(splits)) == 1 for splits in splits_of.values())
    assert np.mean([len(splits) for splits in splits_of.values()]) > 2
    assert {splits[0] for splits in splits_of.values()} == set(SPLITS)


# Files that were spoilt


def test_a_truncated_an_altered_and_a_missing_shard_are_named(copy):
    shard = copy / "train-00000.parquet"
    whole = shard.read_bytes()
    altered = bytearray(whole)
    altered[len(whole) // 2] ^= 1
    for spoilt in (whole[:-1], whole[: len(whole) // 2], b"", bytes(altered)):
        shard.write_bytes(spoilt)
        with pytest.raises(SearchformerError, match=r"train-00000\.parquet is truncated or altered"):
            Dataset(copy, verify=True)
    shard.unlink()
    with pytest.raises(SearchformerError, match=r"train-00000\.parquet is missing"):
        Dataset(copy, verify=True)


def test_a_shard_that_cannot_be_read_is_named(copy):
    shard = copy / "test-00000.parquet"
    shard.write_bytes(shard.read_bytes()[:200])
    with pytest.raises(SearchformerError, match=r"test-00000\.parquet is truncated or altered"):
        list(Dataset(copy).batches("test"))


def test_the_vocabulary_of_another_data_set_is_refused(copy, made):
    (copy / "vocabulary.json").write_bytes((made / "tiles" / "vocabulary.json").read_bytes())
    with pytest.raises(SearchformerError, match=r"vocabulary\.json is not the one the manifest names"):
        Dataset(copy)


def test_an_altered_vocabulary_is_refused(copy):
    stored = read_json(copy / "vocabulary.json", what="vocabulary")
    stored["tokens"][5:7] = stored["tokens"][6:4:-1]
    write_json(copy / "vocabulary.json", stored)
    with pytest.raises(SearchformerError, match="was altered"):
        Dataset(copy)


def test_appending_to_spoilt_shards_is_refused(copy):
    shard = copy / "train-00000.parquet"
    shard.write_bytes(shard.read_bytes()[:-4])
    with pytest.raises(SearchformerError, match="truncated or altered"):
        generate(config("maze", 10, test_fraction=0.3), copy, append=True)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda stored: stored.pop("longest"), "field longest"),
        (lambda stored: stored["config"].pop("domain"), "field config: .*lacks domain"),
        (lambda stored: stored.update(format=3), "field format"),
        (lambda stored: stored["shards"][0].update(rows="many"), r"field shards\.0\.rows"),
        (lambda stored: stored.update(colour="blue"), "field colour"),
    ],
)
def test_a_manifest_with_a_wrong_field_is_refused_by_its_name(copy, spoil, message):
    stored = read_json(copy / "manifest.json", what="manifest")
    spoil(stored)
    write_json(copy / "manifest.json", stored)
    with pytest.raises(SearchformerError, match=message):
        Dataset(copy)


def test_a_data_set_of_format_1_still_opens_and_grows(tmp_path):
    """Its manifest said domain, settings and counts twice; `config` was as it is now."""
    options = config("maze", 100, test_fraction=0.3)
    new = generate(options, tmp_path / "old")
    stored = json.loads((GOLDEN / "manifest-format-1.json").read_text())
    counts = stored["counts"]
    stored["shards"] = [shard.model_dump() for shard in new.shards]  # their digests depend on pyarrow's version
    (tmp_path / "old" / "manifest.json").write_text(json.dumps(stored))
    old = Dataset(tmp_path / "old", verify=True).manifest
    assert (old.domain, old.settings, old.counts) == ("maze", stored["settings"], counts)
    assert old.model_dump(exclude={"format"}) == new.model_dump(exclude={"format"})
    assert generate(options, tmp_path / "old") == old
    generate(config("maze", 20, test_fraction=0.3), tmp_path / "old", append=True)
    generate(config("maze", 120, test_fraction=0.3), tmp_path / "whole")
    assert contents(tmp_path / "old") == contents(tmp_path / "whole")


def test_a_split_that_is_not_one_is_refused(made):
    with pytest.raises(SearchformerError, match="one of train, test; found 'dev'"):
        Dataset(made / "maze").rows("dev")


def test_ids_are_stored_in_two_bytes_as_long_as_they_fit():
    for tokens, kind in ((65_534, "uint16"), (65_535, "uint32")):
        columns = schema(Vocabulary(("bos", "eos", *map(str, range(tokens)))))
        assert {str(columns.field(part).type.value_type) for part in PARTS} == {kind}


def test_two_generators_in_one_directory_do_not_mix(tmp_path):
    config = GenerateOptions(domain="maze", settings={"width": 4, "height": 4}, tasks=5)
    with locked(tmp_path, doing="generating"), pytest.raises(SearchformerError, match="another process is generating"):
        generate(config, tmp_path)
    assert generate(config, tmp_path).counts["train"] > 0
