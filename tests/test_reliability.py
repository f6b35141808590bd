"""The fault table of docs/reliability.md, a test per row: the complete and correct artefact, or one clear line."""

import errno
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import time
from collections import Counter
from unittest import mock

import numpy as np
import pytest
from crash_stages import (
    LEARNING,
    MAZE,
    SHAPE,
    STAGES,
    WITH_WORKERS,
    Inputs,
    answers_of,
    bytes_of,
    in_child,
    scores_of,
    survive,
    survive_without_workers,
    weights_of,
)

from searchformer.bootstrap.select import select
from searchformer.dataset.batches import Sequences
from searchformer.dataset.generate import generate
from searchformer.dataset.options import GenerateOptions
from searchformer.dataset.shards import ShardIndex
from searchformer.dataset.store import SPLITS, Dataset
from searchformer.display import Silent
from searchformer.errors import Interrupted, SearchformerError
from searchformer.evaluate.evaluation import evaluate
from searchformer.evaluate.verdicts import verdicts_of
from searchformer.files import read_json, write_json
from searchformer.model import load_model
from searchformer.report.results import load_results
from searchformer.rollout.store import Rollouts
from searchformer.train import train
from searchformer.train.checkpoint import load_state
from searchformer.train.log import MetricsLog, read_metrics
from searchformer.train.options import TrainOptions


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A data set, a trained model and scored answers, made in a process of their own."""
    made = Inputs(tmp_path_factory.mktemp("inputs")).prepare()
    assert in_child(lambda: STAGES["evaluate"][0](made, made.directory / "answers")) == 0
    return made


# --- killed


@pytest.mark.parametrize(("stage", "moments"), [(stage, 1 if stage in ("bootstrap", "run") else 3) for stage in STAGES])
def test_killed_at_random_moments_a_stage_ends_with_the_same_result(inputs, tmp_path, crash_seed, stage, moments):
    found = survive(stage, inputs, tmp_path, moments=moments, seed=crash_seed)
    assert found["kills"] == moments


@pytest.mark.parametrize("stage", WITH_WORKERS)
def test_a_killed_worker_costs_nothing_but_time(inputs, tmp_path, crash_seed, stage):
    assert survive_without_workers(stage, inputs, tmp_path, moments=1, seed=crash_seed) == {"kills": 1, "runs": 1}


# --- two at once


def test_two_evaluations_at_once_give_the_scores_of_one(inputs, tmp_path):
    """The only stage without a lock: both write the same files, each whole or not at all."""
    shutil.copytree(inputs.directory / "answers", tmp_path / "answers")
    expected = scores_of(tmp_path / "answers")
    for name in ("verdicts.parquet", "astar.parquet", "metrics.json", ".digests-evaluate.json"):
        (tmp_path / "answers" / name).unlink()

    def both():
        child = multiprocessing.get_context("fork").Process(target=evaluate, args=(tmp_path / "answers",))
        child.start()
        evaluate(tmp_path / "answers")
        child.join()
        assert child.exitcode == 0

    assert in_child(both) == 0
    assert scores_of(tmp_path / "answers") == expected
    assert load_results([tmp_path / "answers"]).evaluations[0].scores is not None


# --- Ctrl-C


class Pressing(Silent):
    """Presses Ctrl-C when step number `step` is done, and again a while later if `again`."""

    def __init__(self, step, *, again=False):
        self.step, self.again = step, again

    def bar(self, title, *, unit):
        import contextlib

        @contextlib.contextmanager
        def shown():
            def update(done, total, note):
                if done == self.step:
                    os.kill(os.getpid(), signal.SIGINT)
                    if self.again:
                        time.sleep(1.2)
                        os.kill(os.getpid(), signal.SIGINT)
                        time.sleep(1)

            yield update

        return shown()


def training(inputs, **more):
    return TrainOptions(data=inputs.data, model=SHAPE, **LEARNING | {"steps": 90, "save_every": 50} | more)


def test_a_training_run_interrupted_at_step_71_goes_on_at_step_71(inputs, tmp_path):
    train(training(inputs), tmp_path / "straight")
    with pytest.raises(Interrupted, match="step 71 of 90 is saved"):
        train(training(inputs), tmp_path / "broken", display=Pressing(71))
    steps = []

    class Watching(Silent):
        def bar(self, title, *, unit):
            import contextlib

            return contextlib.nullcontext(lambda done, total, note: steps.append(done))

    train(training(inputs), tmp_path / "broken", display=Watching())
    assert steps[0] == 72
    assert weights_of(tmp_path / "straight")[:2] == weights_of(tmp_path / "broken")[:2]


def test_a_second_ctrl_c_ends_a_training_run_at_once(inputs, tmp_path):
    with pytest.raises(KeyboardInterrupt) as caught:
        train(training(inputs), tmp_path, display=Pressing(71, again=True))
    assert not isinstance(caught.value, Interrupted)
    assert train(training(inputs), tmp_path).step == 90  # from the checkpoint of step 50


# --- no room, no permission, no memory


def fail_writing(number, directory):
    """Every file below `directory` that this process opens for writing from now on meets this error."""

    def watch(event, arguments):
        writing = event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
        if writing and str(arguments[0]).startswith(str(directory)):
            raise OSError(number, os.strerror(number), arguments[0])

    sys.addaudithook(watch)


def complaint(work):
    """What a stage says in a forked process: its SearchformerError, or why it is not one."""
    receiving, sending = multiprocessing.Pipe(duplex=False)

    def tell():
        try:
            work()
            sending.send("it succeeded")
        except SearchformerError as error:
            sending.send(f"SearchformerError: {error}")
        except BaseException as error:
            sending.send(repr(error))

    in_child(tell)
    return receiving.recv()


@pytest.mark.parametrize("stage", ["generate", "train", "rollout", "evaluate"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES], ids=["disk full", "permission lost"])
def test_what_cannot_be_written_is_one_line_and_a_state_to_go_on_from(inputs, tmp_path, stage, number):
    make, read = STAGES[stage]
    if stage == "evaluate":
        shutil.copytree(inputs.directory / "answers", tmp_path / "out")
        for name in ("verdicts.parquet", "astar.parquet", "metrics.json"):
            (tmp_path / "out" / name).unlink()

    def work():
        fail_writing(number, tmp_path)
        make(inputs, tmp_path / "out")

    said = complaint(work)
    assert said.startswith("SearchformerError: ")
    assert os.strerror(number) in said
    assert "\n" not in said
    assert in_child(lambda: make(inputs, tmp_path / "out")) == 0
    assert read(tmp_path / "out")


def test_a_file_that_may_not_grow_is_one_line(inputs, tmp_path):
    def work():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        STAGES["generate"][0](inputs, tmp_path / "out")

    assert complaint(work).startswith("SearchformerError: ")
    assert in_child(lambda: STAGES["generate"][0](inputs, tmp_path / "out")) == 0


# --- a clock that goes backwards


@pytest.mark.parametrize("stage", ["generate", "train", "rollout"])
def test_a_clock_that_goes_backwards_changes_nothing(inputs, tmp_path, stage):
    make, read = STAGES[stage]

    def backwards():
        now = iter(range(2_000_000_000, 0, -3600))
        time.time = lambda: float(next(now))
        time.time_ns = lambda: int(1e9) * next(now)
        make(inputs, tmp_path / "backwards")

    assert in_child(lambda: make(inputs, tmp_path / "forwards")) == 0
    assert in_child(backwards) == 0
    assert read(tmp_path / "backwards") == read(tmp_path / "forwards")


# --- one flipped bit, in every file of every artefact


def read_data(directory):
    dataset = Dataset(directory)
    rows = [list(dataset.records(split)) for split in SPLITS]
    sequences = Sequences(dataset, "train")
    batch = sequences.batch(np.arange(len(sequences)))
    return rows, batch.responses.tolist(), batch.prompts.tolist(), dataset.manifest.model_dump()


def read_training(directory):
    config = read_json(directory / "config.json", what="training run")
    fields = {name: config[name] for name in config if name != "package"}
    state = load_state(directory / "checkpoint", result_fields={"batch_size": LEARNING["batch_size"]})
    if state is None:
        raise SearchformerError("no checkpoint: the run begins again")
    model, vocabulary = load_model(directory / "model")
    weights = {name: tensor.tolist() for name, tensor in model.state_dict().items()}
    records = [{k: v for k, v in record.items() if k != "tokens_per_second"} for record in read_metrics(directory)]
    return fields, state.step, {k: v.tolist() for k, v in state.tensors.items()}, weights, vocabulary.tokens, records


def read_answers(directory):
    one = load_results([directory]).evaluations[0]
    arrays = {name: np.asarray(value).tolist() for name, value in vars(one.scores).items()}
    return scores_of(directory), list(Rollouts.open(directory).prompts), one.stored, arrays


FOUND = "found"


def outcome(read, directory):
    """What was read; or FOUND, if one line says what is wrong."""
    try:
        return read(directory)
    except SearchformerError as error:
        return FOUND if "\n" not in str(error) else repr(error)


ARTEFACTS = {"data": ("data", read_data), "training": ("trained", read_training), "answers": ("answers", read_answers)}


def read_parts(directory):
    """What a bootstrap or the run of a recipe holds: each part as its own reader sees it, and the report's view."""
    data, answers = [], []
    for manifest in sorted(directory.rglob("manifest.json")):
        (answers if (manifest.parent / "tasks.parquet").exists() else data).append(manifest.parent)
    trained = sorted(checkpoint.parent for checkpoint in directory.rglob("checkpoint"))
    results = load_results([directory])
    return (
        [read_data(part) for part in data],
        [read_answers(part) for part in answers if (part / "metrics.json").exists()],
        [(answers_of(part), list(Rollouts.open(part).prompts)) for part in answers],
        [verdicts_of(Rollouts.open(part)).to_pylist() for part in answers],
        [read_training(part) for part in trained],
        [[(one.name, one.model) for one in chain.evaluations] for chain in results.chains],
    )


def flip_bits(whole, read, expected, *, seed, flips):
    """Flip so many bits of every file of an artefact, one at a time; how many were found, the others being harmless."""
    chance, flips = random.Random(seed), int(os.environ.get("BIT_FLIPS", flips))
    files = [path.relative_to(whole) for path in whole.rglob("*") if path.is_file() and path.stat().st_size]
    files = sorted(file for file in files if file.parts[0] != "report" and not file.name.startswith(".lock"))
    found, harmless, spoilt = 0, Counter(), whole.with_name("spoilt")
    for file in files:
        for _ in range(flips):
            shutil.copytree(whole, spoilt)
            data = bytearray((spoilt / file).read_bytes())
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            (spoilt / file).write_bytes(data)
            result = outcome(read, spoilt)
            assert result in (expected, FOUND), f"{file}: another result, silently"
            found += result == FOUND
            harmless[str(file)] += result != FOUND
            shutil.rmtree(spoilt)
    print(f"{len(files)} files, {found} found, {harmless.total()} harmless:", dict(+harmless))
    return found


@pytest.mark.parametrize("kind", ARTEFACTS)
def test_one_flipped_bit_in_any_file_is_found_or_harmless(inputs, tmp_path, crash_seed, kind):
    name, read = ARTEFACTS[kind]
    whole = tmp_path / "whole"
    shutil.copytree(inputs.directory / name, whole, ignore=shutil.ignore_patterns(".lock*", ".flat"))
    read(whole)  # unpacked files are part of the artefact from now on
    assert flip_bits(whole, read, read(whole), seed=crash_seed, flips=4) > 0


@pytest.mark.parametrize("stage", ["bootstrap", "run"])
def test_one_flipped_bit_in_any_file_of_a_run_of_stages_is_found_or_harmless(inputs, tmp_path, crash_seed, stage):
    make, _ = STAGES[stage]
    whole = tmp_path / "whole"
    assert in_child(lambda: make(inputs, whole)) == 0

    def read(directory):
        make(inputs, directory)  # all is complete: the files that say so are read, nothing is made
        return read_parts(directory)

    read(whole)
    assert flip_bits(whole, read, read(whole), seed=crash_seed, flips=1) > 0


def test_one_flipped_bit_in_an_unfinished_data_set_changes_no_byte_of_the_finished_one(tmp_path, crash_seed):
    options = GenerateOptions(domain="maze", settings=MAZE, tasks=9000)

    def read(directory):
        generate(options, directory)
        return bytes_of(directory)

    stopped = mock.patch("searchformer.dataset.generate._finish", side_effect=KeyboardInterrupt)
    with stopped, pytest.raises(KeyboardInterrupt):
        generate(options, tmp_path / "whole")
    assert flip_bits(tmp_path / "whole", read, read(tmp_path / "straight"), seed=crash_seed, flips=1) > 0
    fingerprints = tmp_path / "whole" / ".work" / "00000.npy"
    data = bytearray(fingerprints.read_bytes())
    data[len(data) // 2] ^= 1
    fingerprints.write_bytes(data)
    with pytest.raises(SearchformerError, match=r"00000\.npy is truncated or altered"):
        ShardIndex.load(fingerprints.with_suffix(".npz"))


def test_a_line_of_a_log_whose_digest_lost_its_name_is_found(tmp_path):
    log = MetricsLog(tmp_path, resume_step=0)
    for step in (1, 2):
        log({"step": step, "kind": "train", "loss": 0.5})
    path = tmp_path / "metrics.jsonl"
    path.write_text(path.read_text().replace("content_digest", "content_digast", 1))
    with pytest.raises(SearchformerError, match="line 1 was altered"):
        read_metrics(tmp_path)


def test_a_last_line_of_a_log_that_is_nested_too_deep_is_one_line(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"a":' * 100_000)
    with pytest.raises(SearchformerError, match="line 1 is not JSON: its brackets are nested too deep"):
        read_metrics(tmp_path)


def test_a_json_file_whose_digest_lost_its_name_is_found(tmp_path):
    write_json(tmp_path / "stages.json", {"data/maze": {"seconds": 1.0, "resumed": False}})
    assert read_json(tmp_path / "stages.json", what="run") == {"data/maze": {"seconds": 1.0, "resumed": False}}
    text = (tmp_path / "stages.json").read_text()
    for bit in range(5):
        altered = text.replace("content_digest", "content_d" + chr(ord("i") ^ 1 << bit) + "gest")
        (tmp_path / "stages.json").write_text(altered)
        with pytest.raises(SearchformerError, match=r"stages\.json"):
            read_json(tmp_path / "stages.json", what="run")


def test_a_flipped_bit_stops_selection_before_anything_is_written(inputs, tmp_path):
    shutil.copytree(inputs.data, tmp_path / "data")
    shard = tmp_path / "data" / "train-00000.parquet"
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 4
    shard.write_bytes(data)
    rollouts = Rollouts.open(inputs.directory / "answers")
    with pytest.raises(SearchformerError, match=r"train-00000\.parquet is truncated or altered"):
        select(Dataset(tmp_path / "data"), rollouts, tmp_path / "out", rule="paper", round_number=1)
    assert not (tmp_path / "out").exists()


# --- truncated and missing files


@pytest.mark.parametrize("kind", ARTEFACTS)
@pytest.mark.parametrize("spoil", ["truncated", "missing", "empty"])
def test_a_truncated_or_missing_file_is_one_line_or_is_made_again(inputs, tmp_path, kind, spoil):
    name, read = ARTEFACTS[kind]
    shutil.copytree(inputs.directory / name, tmp_path / "whole", ignore=shutil.ignore_patterns(".lock*", ".flat"))
    expected = read(tmp_path / "whole")
    files = sorted(p.relative_to(tmp_path / "whole") for p in (tmp_path / "whole").rglob("*") if p.is_file())
    for file in files:
        spoilt = tmp_path / "spoilt"
        shutil.copytree(tmp_path / "whole", spoilt)
        if spoil == "missing":
            (spoilt / file).unlink()
        else:
            data = (spoilt / file).read_bytes()
            (spoilt / file).write_bytes(data[: len(data) // 2] if spoil == "truncated" else b"")
        if file.name != "metrics.jsonl":  # the curves of a run may end anywhere
            assert outcome(read, spoilt) in (expected, FOUND), f"{file}: another result, silently"
        shutil.rmtree(spoilt)


# --- what others wrote


def test_a_shard_name_that_leaves_the_directory_is_refused(inputs, tmp_path):
    for kind, opened in (("data", lambda path: Dataset(path, verify=True)), ("answers", lambda p: answers_of(p))):
        shutil.copytree(inputs.directory / kind, tmp_path / kind)
        manifest = read_json(tmp_path / kind / "manifest.json", what="manifest")
        for name in ("../x", "/etc/passwd", "a/b", "..", "", "a\\b"):
            manifest["shards"][0]["file"] = name
            write_json(tmp_path / kind / "manifest.json", manifest)
            with pytest.raises(SearchformerError, match="is not the name of a file in this directory; refused"):
                opened(tmp_path / kind)


DEEP = "[" * 100_000 + "]" * 100_000
SPOILT_JSON = {
    "an empty object": "{}",
    "a list": "[]",
    "nested brackets": DEEP,
    "nested objects": '{"a":' * 100_000 + "1" + "}" * 100_000,
    "a long number": '{"a": ' + "9" * 5000 + "}",
    "a lone surrogate": '{"tokens": ["bos", "eos", "\\ud800"], "digest": "", "shape": {}, "trained": {}}',
    "a number for a token": '{"tokens": ["bos", "eos", 5], "digest": "", "shape": {}, "trained": {}}',
    "no JSON": "{",
    "no text": "\udcff",
}


@pytest.mark.parametrize("text", SPOILT_JSON.values(), ids=SPOILT_JSON)
def test_a_json_file_of_anything_is_one_short_line(inputs, tmp_path, text):
    files = {
        "data/manifest.json": lambda d: Dataset(d / "data"),
        "data/vocabulary.json": lambda d: Dataset(d / "data"),
        "trained/model/config.json": lambda d: load_model(d / "trained" / "model"),
        "trained/model/vocabulary.json": lambda d: load_model(d / "trained" / "model"),
        "answers/config.json": lambda d: Rollouts.open(d / "answers"),
        "answers/manifest.json": lambda d: Rollouts.open(d / "answers"),
        "answers/metrics.json": lambda d: load_results([d / "answers"]),
    }
    for name in ("data", "trained", "answers"):
        shutil.copytree(inputs.directory / name, tmp_path / name)
    for file, opened in files.items():
        whole = (tmp_path / file).read_bytes()
        (tmp_path / file).write_bytes(text.encode("utf-8", "surrogateescape"))
        with pytest.raises(SearchformerError) as caught:
            opened(tmp_path)
        message = str(caught.value).replace(str(tmp_path), "")
        assert "\n" not in message
        assert len(message) < 300
        (tmp_path / file).write_bytes(whole)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"dim": 10**12}, "dim"), ({"layers": 10**6}, "layers"), ({"positions": 10**30}, "positions")],
)
def test_a_network_beyond_all_bounds_is_refused_at_once(inputs, tmp_path, changes, message):
    shutil.copytree(inputs.model, tmp_path / "model")
    config = read_json(tmp_path / "model" / "config.json", what="model")
    write_json(tmp_path / "model" / "config.json", config | {"shape": config["shape"] | changes})
    with pytest.raises(SearchformerError, match=f"does not describe a model: {message}"):
        load_model(tmp_path / "model")
    size = ",".join(f"{key}={value}" for key, value in {"dim": 16, "layers": 1, "heads": 2, **changes}.items())
    with pytest.raises(SearchformerError, match=message):
        train(TrainOptions(data=inputs.data, model=size, steps=1), tmp_path / "run")


def test_a_checkpoint_without_a_header_is_one_line(inputs, tmp_path):
    from safetensors.torch import load_file, save_file

    shutil.copytree(inputs.directory / "trained", tmp_path / "run")
    path = tmp_path / "run" / "checkpoint" / "state.safetensors"
    tensors = load_file(path)
    save_file(tensors, path)
    with pytest.raises(SearchformerError, match="its header lacks the step or the options; remove it to start"):
        train(TrainOptions(data=inputs.data, model=SHAPE, **LEARNING), tmp_path / "run")


def test_a_run_killed_between_checkpoint_and_model_writes_the_model_when_it_is_resumed(inputs, tmp_path):
    shutil.copytree(inputs.directory / "trained", tmp_path / "run")
    expected = weights_of(tmp_path / "run")
    for spoil in (shutil.rmtree, lambda model: (model / "config.json").unlink()):
        spoil(tmp_path / "run" / "model")
        train(TrainOptions(data=inputs.data, model=SHAPE, **LEARNING), tmp_path / "run")
        assert weights_of(tmp_path / "run") == expected


def test_unpacked_files_that_were_damaged_are_unpacked_again(inputs, tmp_path):
    shutil.copytree(inputs.data, tmp_path / "data", ignore=shutil.ignore_patterns(".flat"))
    expected = read_data(tmp_path / "data")
    for path in (tmp_path / "data" / ".flat").rglob("*.ids"):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        assert read_data(tmp_path / "data") == expected


def test_evaluation_makes_damaged_verdicts_again(inputs, tmp_path):
    shutil.copytree(inputs.directory / "answers", tmp_path / "answers")
    expected = scores_of(tmp_path / "answers")
    for name in ("verdicts.parquet", "astar.parquet"):
        data = bytearray((tmp_path / "answers" / name).read_bytes())
        data[len(data) // 3] ^= 1
        (tmp_path / "answers" / name).write_bytes(data)
    evaluate(tmp_path / "answers")
    assert scores_of(tmp_path / "answers") == expected
