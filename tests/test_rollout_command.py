"""`searchformer rollout`: what it writes, how it shares work, and that kill -9 neither loses nor repeats an answer."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from searchformer.cli import main
from searchformer.dataset.store import Dataset, finish, schema
from searchformer.domains import make_domain
from searchformer.errors import SearchformerError
from searchformer.files import read_json, write_json
from searchformer.model import ModelConfig, Transformer, save_model
from searchformer.model.device import choose_device
from searchformer.rollout import RolloutOptions, dispatch, roll_out, store
from searchformer.tokens.grammar import automaton_for
from searchformer.tokens.vocabulary import EOS, Vocabulary

SETTINGS = {"width": 3, "height": 3}
VOCABULARY = Vocabulary.of(make_domain("maze", SETTINGS).token_list())
TASKS = 12


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set of made-up tasks; its rows are not in the order of their ids."""
    directory = tmp_path_factory.mktemp("data")
    generator = np.random.default_rng(0)
    rows: dict[str, list[Any]] = {"task_id": [f"{n * 7 % TASKS:032x}" for n in range(TASKS)]}
    for part, length in (("prompt", 12), ("trace", 40), ("plan", 9)):
        rows[part] = [generator.integers(2, len(VOCABULARY), length).tolist() for _ in range(TASKS)]
        rows[f"{part}_length"] = [length] * TASKS
    path = directory / "test-00000.parquet"
    pq.write_table(pa.table(rows, schema=schema(VOCABULARY)), path)
    config = {"domain": "maze", "settings": SETTINGS, "deterministic": True, "algorithm": "dijkstra"}
    finish(directory, {path.name: "test"}, config=config, vocabulary=VOCABULARY)
    return directory


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("model")
    config = ModelConfig(vocabulary=len(VOCABULARY), dim=16, layers=2, heads=2, ffn=24, positions=20000)
    network = Transformer(config, generator=torch.Generator().manual_seed(0))
    save_model(network, VOCABULARY, directory, trained={"domain": "maze", "settings": SETTINGS})
    return directory


def answers(directory: Path) -> list[tuple[Any, ...]]:
    """Every answer on disk, in order; log-probabilities to the rounding of a batch."""
    rows = [row for table in store.read_answers(directory) for row in table.to_pylist()]
    found = [(r["task_id"], r["sample"], r["tokens"], r["finish"], round(r["log_probability"], 2)) for r in rows]
    return sorted(found, key=lambda row: row[:2])


def options(model: Path, data: Path, out: Path, **more: Any) -> RolloutOptions:
    settings = {"tasks": 6, "samples": 4, "precision": "fp32", "workers": 1, "seed": 5, "max_tokens": 40}
    return RolloutOptions(model=model, data=data, out=out, **settings | more)


def test_a_directory_holds_all_that_judging_needs(model: Path, data: Path, tmp_path: Path) -> None:
    summary = roll_out(options(model, data, tmp_path))
    assert (summary["complete"], summary["answers"], summary["answers_before"]) == (True, 24, 0)
    config = read_json(tmp_path / "config.json", what="configuration")
    expected = {
        "domain": "maze",
        "settings": SETTINGS,
        "deterministic": True,
        "algorithm": "dijkstra",
        "weight": 1.0,
        "split": "test",
        "tasks": 6,
        "samples": 4,
    }
    assert {key: config[key] for key in expected} == expected
    assert config["model"]["trained"] == {"domain": "maze", "settings": SETTINGS}
    assert Vocabulary.load(tmp_path) == VOCABULARY
    tasks = pq.read_table(tmp_path / "tasks.parquet").to_pylist()
    records = sorted(Dataset(data).records("test"), key=lambda record: record["task_id"])
    assert tasks == [{key: record[key] for key in ("task_id", "prompt")} for record in records[:6]]
    found = answers(tmp_path)
    assert [row[:2] for row in found] == [(task["task_id"], sample) for task in tasks for sample in range(4)]
    assert all(EOS not in row[2] and len(row[2]) <= 40 for row in found)
    assert {row[3] for row in found} == {"eos", "max_tokens"}
    manifest = read_json(tmp_path / "manifest.json", what="manifest")
    assert (manifest["answers"], manifest["tokens"]) == (24, sum(len(row[2]) for row in found))


def test_ranks_of_one_run_give_the_answers_of_one_process(model: Path, data: Path, tmp_path: Path) -> None:
    roll_out(options(model, data, tmp_path / "one"))
    assert not roll_out(options(model, data, tmp_path / "two", rank=1, world_size=2, slots=3))["complete"]
    assert not (tmp_path / "two/manifest.json").exists()
    assert roll_out(options(model, data, tmp_path / "two", rank=0, world_size=2))["complete"]
    assert answers(tmp_path / "two") == answers(tmp_path / "one")


def test_a_complete_directory_is_left_as_it_is(model: Path, data: Path, tmp_path: Path) -> None:
    roll_out(options(model, data, tmp_path))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    summary = roll_out(options(model, data, tmp_path))
    assert (summary["answers"], summary["answers_before"], summary["complete"]) == (0, 24, True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_answers_are_taken_over_where_they_are_what_is_asked(model: Path, data: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "rounds/second"
    assert not dispatch.take_over(options(model, data, second), first)  # nothing there
    roll_out(options(model, data, first))
    for other in ({"seed": 6}, {"samples": 5}, {"temperature": 0.5}, {"max_tokens": 41}):
        assert not dispatch.take_over(options(model, data, second, **other), first)
    assert not second.exists()
    assert dispatch.take_over(options(model, data, second), first)
    assert answers(second) == answers(first)
    assert roll_out(options(model, data, second))["answers"] == 0
    assert not dispatch.take_over(options(model, data, second), first)  # what is there stays
    store.shard_files(first)[0].unlink()
    assert not dispatch.take_over(options(model, data, tmp_path / "third"), first)


def test_constrained_answers_follow_the_grammar(model: Path, data: Path, tmp_path: Path) -> None:
    roll_out(options(model, data, tmp_path, constrain=True, max_tokens=60))
    automaton = automaton_for("maze", SETTINGS, VOCABULARY)
    for _, _, tokens, finish_reason, _ in answers(tmp_path):
        state = automaton.start
        for token in [*tokens, *([EOS] if finish_reason == "eos" else [])]:
            state = automaton.next_state[state, token]
            assert state >= 0


def command(model: Path, data: Path, out: Path, *more: str) -> list[str]:
    arguments = ["--model", str(model), "--data", str(data), "--out", str(out), "--samples", "8", "--precision", "fp32"]
    return [sys.executable, "-m", "searchformer", "rollout", *arguments, "--workers", "2", *more]


def test_half_written_files_of_a_killed_process_are_removed_but_not_those_of_other_ranks(tmp_path: Path) -> None:
    mine = [".rollouts-000-001-00002.parquet.aa.tmp", "..digests-000-001.json.bb.tmp"]
    others = [".rollouts-001-000-00000.parquet.cc.tmp", "..digests-001-000.json.dd.tmp"]
    for name in mine + others:
        (tmp_path / name).touch()
    with store.rank_locked(tmp_path, 0):
        assert sorted(path.name for path in tmp_path.glob("*.tmp")) == sorted(others)


def test_killed_and_started_again_no_answer_is_lost_or_repeated(model: Path, data: Path, tmp_path: Path) -> None:
    more = ("--max-tokens", "600", "--constrain", "--save-seconds", "0", "--slots", "4")
    killed = subprocess.Popen(command(model, data, tmp_path / "killed", *more), stderr=subprocess.PIPE)
    give_up = time.monotonic() + 100
    while len(store.shard_files(tmp_path / "killed")) < 10:
        assert killed.poll() is None, killed.stderr and killed.stderr.read().decode()
        assert time.monotonic() < give_up
        time.sleep(0.01)
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    whole = options(model, data, tmp_path / "whole", tasks=None, samples=8, seed=0, max_tokens=600, constrain=True)
    summary = roll_out(whole.model_copy(update={"out": tmp_path / "killed"}))
    assert summary["complete"]
    assert summary["answers_before"] >= 10
    assert summary["answers"] + summary["answers_before"] == 8 * TASKS
    roll_out(whole)
    assert answers(tmp_path / "killed") == answers(tmp_path / "whole")
    assert not list((tmp_path / "killed").glob("*.tmp"))


def test_two_runs_never_share_a_rank_of_a_directory(model: Path, data: Path, tmp_path: Path) -> None:
    with (
        store.rank_locked(tmp_path, 0),
        pytest.raises(SearchformerError, match="another process is writing rollouts"),
    ):
        roll_out(options(model, data, tmp_path))


def test_a_run_waits_for_the_workers_that_a_killed_one_left_behind(
    model: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "WAIT_SECONDS", 0.2)
    with (
        store.share_locked(tmp_path, 0, 1),
        pytest.raises(SearchformerError, match="another process is writing rollouts"),
    ):
        roll_out(options(model, data, tmp_path))
    assert not store.shard_files(tmp_path)
    assert roll_out(options(model, data, tmp_path))["complete"]


def test_auto_becomes_what_was_used_and_resumes(
    model: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = options(model, data, tmp_path, device="auto", precision="auto", tasks=2)
    monkeypatch.setattr(dispatch, "choose_precision", lambda asked, device, compile: {"auto": "fp32"}.get(asked, asked))
    roll_out(asked)
    config = read_json(tmp_path / "config.json", what="configuration")
    assert (config["precision"], config["device"]) == ("fp32", choose_device("auto").type)
    monkeypatch.setattr(dispatch, "choose_precision", lambda asked, device, compile: {"auto": "bf16"}.get(asked, asked))
    assert roll_out(asked)["answers_before"] == 8  # another machine, where auto would be bf16
    with pytest.raises(SearchformerError, match="precision was 'fp32', now 'bf16'"):
        roll_out(asked.model_copy(update={"precision": "bf16"}))


def test_directories_of_older_versions_still_resume(model: Path, data: Path, tmp_path: Path) -> None:
    asked = options(model, data, tmp_path, precision="auto", device="cpu")
    roll_out(asked)
    expected = answers(tmp_path)
    config = read_json(tmp_path / "config.json", what="configuration")
    for field in (
        "skip",
        "device",
        "algorithm",
        "weight",
    ):  # as they were before these fields; `auto` was stored as it was asked
        del config[field]
    write_json(tmp_path / "config.json", config | {"precision": "auto"})
    (tmp_path / "manifest.json").unlink()
    store.shard_files(tmp_path)[0].unlink()
    assert roll_out(asked)["complete"]
    assert answers(tmp_path) == expected


def test_what_does_not_belong_together_is_named(model: Path, data: Path, tmp_path: Path) -> None:
    roll_out(options(model, data, tmp_path / "out", tasks=1))
    with pytest.raises(SearchformerError, match=r"other options \(seed was 5, now 6\); choose"):
        roll_out(options(model, data, tmp_path / "out", tasks=1, seed=6))
    config = ModelConfig(vocabulary=len(VOCABULARY), dim=16, layers=1, heads=2, ffn=24)
    save_model(Transformer(config), VOCABULARY, tmp_path / "sokoban", trained={"domain": "sokoban", "settings": {}})
    with pytest.raises(SearchformerError, match=r"was trained on domain 'sokoban', the data set .* is of 'maze'"):
        roll_out(options(tmp_path / "sokoban", data, tmp_path / "new"))
    small = Vocabulary.of(["a", "b"])
    config = ModelConfig(vocabulary=len(small), dim=16, layers=1, heads=2, ffn=24)
    save_model(Transformer(config), small, tmp_path / "other", trained={})
    with pytest.raises(SearchformerError, match=r"has a vocabulary of 4 tokens .* they differ from id 2 on"):
        roll_out(options(tmp_path / "other", data, tmp_path / "new"))
    with pytest.raises(SearchformerError, match="has 12 test tasks; asked for are 13"):
        roll_out(options(model, data, tmp_path / "new", tasks=13))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--out", "{tmp_path}/file/out"], "cannot create the directory"),
        (["--out", "{tmp_path}/out", "--cache-gb", "0.00001"], "is too small for one sequence of"),
        (["--out", "{tmp_path}/out", "--rank", "2", "--world-size", "2"], "ranks are 0 to 1; found 2"),
        (["--out", "{tmp_path}/out", "--data", "{tmp_path}/nowhere"], "nowhere, so no complete data set"),
    ],
)
def test_errors_of_the_command_are_one_line(
    model: Path,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    more: list[str],
    message: str,
) -> None:
    (tmp_path / "file").write_text("in the way")
    arguments = ["--model", str(model), "--data", str(data), "--workers", "1", *more]
    monkeypatch.setattr(
        sys, "argv", ["searchformer", "rollout", *(part.format(tmp_path=tmp_path) for part in arguments)]
    )
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    found = capsys.readouterr().err
    assert found.count("\n") == 1
    assert message in found


def test_the_command_reports_what_it_did_as_json(
    model: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--model", model, "--data", data, "--out", tmp_path, "--workers", 1, "--samples", 2, "--max-tokens", 9]
    monkeypatch.setattr(sys, "argv", ["searchformer", "rollout", *map(str, arguments), "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    captured = capsys.readouterr()
    summary = json.loads(captured.out.splitlines()[-1])
    assert (summary["answers"], summary["complete"]) == (2 * TASKS, True)
    assert summary["tokens_per_second_per_core"] <= summary["tokens_per_second"]
    assert "tokens/s" in captured.err


@pytest.mark.parametrize(
    ("asked", "reason"), [({"skip": 500}, "12 test tasks; --skip 500 leaves none"), ({"prefix": "create foo"}, "'foo'")]
)
def test_what_cannot_be_asked_is_refused_before_anything_is_written(model, data, tmp_path, asked, reason):
    with pytest.raises(SearchformerError, match=reason):
        roll_out(RolloutOptions(model=model, data=data, out=tmp_path / "answers", **asked))
    assert not (tmp_path / "answers" / "config.json").exists()
