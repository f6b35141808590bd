"""The browser app on a free port, and a small run for it to open."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rollout_directories import write_rollouts

from searchformer.domains import make_domain
from searchformer.evaluate.evaluation import evaluate
from searchformer.search import Options, Searcher
from searchformer.solve import random_task
from searchformer.tokens.grammar import write_text
from searchformer.tokens.vocabulary import Vocabulary
from searchformer.web.options import ServeOptions

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
    """A run with a base model, a round and a control, whose answers are searches of A*."""
    domain = make_domain("maze", {"width": 5, "height": 5})
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
            model={"trained": trained, "digest": str(number)},
        )
        evaluate(directory / place, astar_runs=2)
    (directory / "report").mkdir()
    (directory / "report" / "report.html").write_text("<!doctype html><title>r</title><h1>The report</h1>")
    return directory


@contextlib.contextmanager
def serving(options: ServeOptions) -> Iterator[str]:
    """The address of the app, while it runs."""
    import uvicorn

    from searchformer.web.app import make_app

    listening = socket.create_server((options.host, 0))
    config = uvicorn.Config(make_app(options), log_level="error", ws_max_size=1 << 18)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    deadline = time.monotonic() + 60
    while not server.started:
        assert thread.is_alive(), "the server has ended"
        assert time.monotonic() < deadline, "the server does not start"
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=30)
