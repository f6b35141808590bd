"""The browser app on a free port, and a small run for it to open."""

import contextlib
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rollout_directories import write_rollouts

from searchformer.digests import file_digest
from searchformer.domains import make_domain
from searchformer.evaluate.evaluation import evaluate
from searchformer.pretrained import WEIGHTS, find_model
from searchformer.search import Options, Searcher
from searchformer.solve import random_task
from searchformer.tokens.grammar import write_text
from searchformer.tokens.vocabulary import Vocabulary

TASK = {
    "width": 6,
    "height": 6,
    "start": [0, 4],
    "goal": [3, 0],
    "walls": [[0, 0], [2, 1], [4, 2], [5, 2], [1, 3], [2, 3], [4, 3], [5, 3], [0, 5]],
}
LEVEL = ["#######", "#@ $ .#", "#     #", "#######"]
WALLED_IN = {**TASK, "walls": [[0, 3], [0, 5], [1, 4]]}


def write_run(directory: Path) -> Path:
    """A run with a base model, a round and a control, whose answers are searches of A*.

    The base calls itself a packaged model, so that one can look inside; the others are in no directory.
    """
    domain = make_domain("maze", {"width": 5, "height": 5})
    packaged = find_model("maze", {"width": 5, "height": 5})
    assert packaged is not None
    digests = [file_digest(packaged.directory / WEIGHTS), "1", "2"]
    vocabulary = Vocabulary.of(domain.token_list())
    tasks = [random_task(domain, seed=seed) for seed in range(3)]
    problems = {domain.task_id(task.problem): task.problem for task in tasks}

    def texts(task: str, run: int) -> tuple[str, str, str]:
        searcher = Searcher(domain, Options(deterministic=run == 0))
        return write_text(domain, problems[task], searcher.search(problems[task], seed=run))

    prompts = {task: vocabulary.encode(texts(task, 0)[0].split()) for task in problems}
    kinds: dict[str, dict[str, Any]] = {
        "rollout/base": {},
        "bootstrap/base/round-1/rollout": {"bootstrap_round": 1},
        "bootstrap/base/control-1/rollout": {"bootstrap_round": 1, "control": True},
    }
    for number, (place, extra) in enumerate(kinds.items()):
        trained = {"size": "1M", "variant": "search-augmented", "sequences": 10, "seed": 0, **extra}
        write_rollouts(
            directory / place,
            domain,
            vocabulary,
            prompts,
            lambda task, number=number: [" ".join(texts(task, number + k)[1:]).split() for k in (1, 2)],
            model={"trained": trained, "digest": digests[number]},
        )
        evaluate(directory / place, astar_runs=2)
    (directory / "report").mkdir()
    (directory / "report" / "report.html").write_text("<!doctype html><title>r</title><h1>The report</h1>")
    return directory


@contextlib.contextmanager
def serving(*words: object) -> Iterator[str]:
    """The address of `searchformer serve WORDS` on a free port, while it runs."""
    command = [sys.executable, "-m", "searchformer", "serve", "--port", "0", *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            told = server.stdout.readline()
            found = re.search(r"http://\S+", told)
            assert found, f"the server said {told!r}"
            yield found[0]
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(timeout=60)
