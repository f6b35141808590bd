"""Engines: every item done once whoever dies, failures alone and with their reason, the same data sets and answers."""

import contextlib
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from functools import partial

import pytest
from crash_generate import contents
from engine_jobs import Recorder, slow_to_end
from ray_cluster import NODE, three_nodes

from searchformer.dataset.generate import generate
from searchformer.dataset.options import GenerateOptions
from searchformer.engines.base import Done, Told
from searchformer.engines.local import LocalEngine, _work
from searchformer.errors import SearchformerError
from searchformer.evaluate.evaluation import evaluate
from searchformer.pretrained import resolve_model
from searchformer.rollout import RolloutOptions, roll_out, store

ITEMS = [f"item-{number}" for number in range(7)]
MAZES = GenerateOptions(domain="maze", settings={"width": 6, "height": 6}, tasks=60_000)


@pytest.fixture(scope="module")
def cluster():
    with three_nodes() as nodes:
        yield nodes


@pytest.fixture(params=["alone", "processes", "ray"])
def engine(request):
    """Every engine, with its number of workers."""
    if request.param == "ray":
        from searchformer.engines.ray import RayEngine

        return RayEngine(request.getfixturevalue("cluster").address), 3
    return LocalEngine(), 1 if request.param == "alone" else 2


def run(engine, directory, items):
    """Everything that comes of the items: results by index, messages."""
    results, messages = {}, []
    where, workers = engine
    with where.crew(partial(Recorder, directory), workers=workers) as crew:
        for event in crew.map(items):
            if isinstance(event, Done):
                assert event.index not in results
                results[event.index] = event.result
            else:
                assert isinstance(event, Told)
                messages.append(event.message)
    return results, messages


def test_every_item_is_done_once_and_told(engine, tmp_path):
    results, messages = run(engine, tmp_path, ITEMS)
    assert results == {index: item.upper() for index, item in enumerate(ITEMS)}
    assert sorted(messages) == [f"doing {item}" for item in ITEMS]
    assert all((tmp_path / item).read_text() == "done\n" for item in ITEMS)


def test_an_item_whose_worker_is_killed_is_done_by_another(engine, tmp_path):
    if engine[1] == 1:
        return  # alone there is no other: that is the test of whole commands below
    results, _ = run(engine, tmp_path, [*ITEMS, "once-1", "once-2"])
    assert len(results) == len(ITEMS) + 2


def test_an_item_that_ends_every_worker_fails_alone_and_with_its_reason(engine, tmp_path):
    if engine[1] == 1:
        return
    with pytest.raises(SearchformerError, match=r"poison ended 3 workers \(.+\); the rest is done and kept") as caught:
        run(engine, tmp_path, ["poison", *ITEMS])
    assert "SIGKILL" in str(caught.value) or "died" in str(caught.value)
    assert all((tmp_path / item).read_text() == "done\n" for item in ITEMS)


def test_what_a_job_says_is_wrong_is_said_at_once(engine, tmp_path):
    with pytest.raises(SearchformerError, match=r"^wrong-1 is wrong$"):
        run(engine, tmp_path, ["wrong-1", *ITEMS])


def test_a_worker_that_is_stopped_while_it_ends_says_nothing(tmp_path, capfd):
    context, marker = multiprocessing.get_context("spawn"), tmp_path / "ending"
    mine, theirs = context.Pipe()
    process = context.Process(target=_work, args=(partial(slow_to_end, marker), theirs))
    process.start()
    theirs.close()
    mine.close()
    end = time.monotonic() + 100
    while not marker.exists():
        assert process.is_alive()
        assert time.monotonic() < end
        time.sleep(0.02)
    process.terminate()
    process.join()
    assert capfd.readouterr() == ("", "")


# --- the same data sets


class AtTasks:
    """A display that does something when so many tasks are there."""

    def __init__(self, tasks, action):
        self.tasks, self.action, self.acted = tasks, action, False

    def say(self, line):
        pass

    @contextlib.contextmanager
    def bar(self, title, *, unit):
        def update(done, total, note):
            if not self.acted and done >= self.tasks:
                self.acted = True
                self.action()

        yield update


@pytest.fixture(scope="module")
def mazes(tmp_path_factory):
    """A data set that this process made alone."""
    directory = tmp_path_factory.mktemp("mazes") / "data"
    generate(MAZES, directory)
    return directory


def lose_a_node(cluster):
    """Kill the processes of one of the nodes, and let another one join."""
    cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
    cluster.add_node(**NODE)


def test_ray_makes_the_bytes_of_one_process_though_a_node_is_lost(cluster, mazes, tmp_path):
    from searchformer.engines.ray import RayEngine

    losing = AtTasks(10_000, lambda: lose_a_node(cluster))
    generate(MAZES, tmp_path, engine=RayEngine(cluster.address), display=losing)
    assert losing.acted
    assert contents(tmp_path) == contents(mazes)


def test_a_driver_that_is_killed_and_started_again_goes_on(cluster, mazes, tmp_path):
    words = ["maze", "--width", "6", "--height", "6", "--tasks", str(MAZES.tasks), "--out", str(tmp_path)]
    command = [sys.executable, "-m", "searchformer", "generate", *words]
    command += ["--engine", "ray", "--ray-address", cluster.address]
    killed = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    end = time.monotonic() + 300
    while not list((tmp_path / ".work").glob("*.npz")):
        assert killed.poll() is None
        assert time.monotonic() < end
        time.sleep(0.02)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    subprocess.run(command, check=True, capture_output=True)
    assert contents(tmp_path) == contents(mazes)


# --- the same answers


def rollout(data, out, **more):
    settings = {"tasks": 16, "samples": 6, "precision": "fp32", "slots": 8, "seed": 3}
    return RolloutOptions(model=resolve_model("maze-6x6"), data=data, out=out, **settings | more)


def answers(directory):
    return sorted(
        (row["task_id"], row["sample"], tuple(row["tokens"]))
        for table in store.read_answers(directory)
        for row in table.to_pylist()
    )


def test_ray_gives_the_answers_and_scores_of_one_process_though_a_node_is_lost(cluster, mazes, tmp_path):
    from searchformer.engines.ray import RayEngine

    roll_out(rollout(mazes, tmp_path / "alone", workers=1))
    losing, engine = AtTasks(10, lambda: lose_a_node(cluster)), RayEngine(cluster.address)
    summary = roll_out(rollout(mazes, tmp_path / "ray"), display=losing, engine=engine)
    assert losing.acted
    assert summary["complete"]
    assert answers(tmp_path / "ray") == answers(tmp_path / "alone")
    scores = [evaluate(tmp_path / "alone"), evaluate(tmp_path / "ray", engine=engine)]
    nats = [each["metrics"].pop("answer_nats")["value"] for each in scores]  # log-probabilities vary with the batch
    assert nats[0] == pytest.approx(nats[1], rel=1e-3)
    assert scores[0]["metrics"] == scores[1]["metrics"]


def test_shares_hold_every_answer_once_and_become_smaller(mazes, tmp_path):
    from searchformer.rollout.dispatch import divide
    from searchformer.rollout.requests import Prompt

    prompts = [Prompt(str(number), None, tuple(range(number % 5 + 1))) for number in range(50)]
    for workers in (1, 2, 7, 30):
        shares = divide(prompts, workers=workers, slots=4)
        found = sorted((p.task_id, s) for share in shares for p in share.prompts for s in p.samples)
        assert found == sorted((p.task_id, s) for p in prompts for s in p.samples)
        assert [share.number for share in shares] == list(range(len(shares)))
        if workers in (2, 7):
            sizes = [share.answers for share in shares]
            assert max(sizes[len(sizes) // 2 :]) <= max(sizes[: len(sizes) // 2])
            assert len(shares) >= workers


# --- Ctrl-C


def start_sampling(options):
    """A rollout as a command, once it has told of answers."""
    command = [sys.executable, "-m", "searchformer", "rollout", *options.words()]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    while "answers" not in (line := process.stderr.readline()):
        assert line, f"it ended with exit code {process.wait()}"
    return process


@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_keeps_the_answers_there_are_and_says_so(mazes, tmp_path, workers):
    options = rollout(mazes, tmp_path, workers=workers, samples=64, save_seconds=1000.0, tasks=1000)
    process = start_sampling(options)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130
    stands = r"searchformer: interrupted, rollout: [\d,]+ of 64,000 answers; run the same command again to continue"
    assert re.fullmatch(stands, errors.splitlines()[-1]), errors
    assert "Traceback" not in errors
    kept = len(answers(tmp_path))
    assert kept > 0
    assert len(set(answers(tmp_path))) == kept
    assert not list(tmp_path.glob("*.tmp"))
    again = start_sampling(options)
    again.send_signal(signal.SIGINT)
    again.communicate()
    assert len(set(answers(tmp_path))) == len(answers(tmp_path)) > kept
