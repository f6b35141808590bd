"""Starts `searchformer train` in processes of its own, one or several.

Several are told of each other by the environment variables that torchrun sets, and share what torchrun does beside:
if one fails, the others end. Without torchrun, Ctrl-C is one line instead of its traceback.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from safetensors import SafetensorError, safe_open

from searchformer.errors import Interrupted
from searchformer.lifetime import LAUNCHED, tied
from searchformer.train.options import TrainOptions

STDERR = 2
SAVE_SECONDS = 60.0
"""How long a training run may take to finish its step and save it."""
WAIT_SECONDS = 0.2
"""Between two looks at processes that run side by side."""
_running: set["subprocess.Popen[bytes]"] = set()


def train_command(options: TrainOptions, out: Path, *, bootstrap_round: int = 0) -> list[str]:
    """The command that trains with these options in the directory `out`."""
    words = [*options.words(), f"--out={out}", f"--bootstrap-round={bootstrap_round}"]
    return [sys.executable, "-m", "searchformer", "train", *words]


def launch(
    command: list[str],
    *,
    processes: int = 1,
    log: Path | None = None,
    place: Mapping[str, str] | None = None,
    keep_stdout: bool = False,
) -> int:
    """Run a command in so many processes and show what they say on stderr, or append it to `log`; the exit code.

    `place` are environment variables; with `keep_stdout`, results stay on stdout. However this process ends, the
    command ends too. If one of several processes fails, the others are ended, as they would wait for it.
    """
    started: list[subprocess.Popen[bytes]] = []
    with contextlib.ExitStack() as stack:
        words = stack.enter_context(open(log, "a", encoding="utf-8")) if log else STDERR
        stack.callback(lambda: _running.difference_update(started))
        try:
            for variables in _group_variables(processes):
                environment = {**os.environ, **(place or {}), **variables, LAUNCHED: "1"}
                results, errors = None if keep_stdout else words, words if log else None
                # tied: a killed run's training would go on beside that of the next
                process = subprocess.Popen(tied(command), env=environment, stdout=results, stderr=errors)
                started.append(process)
                _running.add(process)
            return _wait_for(started)
        except BaseException:
            interrupt(*started)
            raise


@contextlib.contextmanager
def telling_the_saved_step(out: Path) -> Iterator[None]:
    """Ctrl-C in the block says which step of the training run in `out` is saved: the run itself keeps silent."""
    try:
        yield
    except KeyboardInterrupt:
        if saved := _saved_step(out):
            raise Interrupted(f"step {saved} is saved in {out}") from None
        raise


def _saved_step(out: Path) -> str | None:
    """`7 of 20` from the head of a checkpoint, without torch; None where there is none to be read."""
    try:
        with safe_open(out / "checkpoint" / "state.safetensors", framework="np") as file:
            header = file.metadata()
        return f"{header['step']} of {json.loads(header['options'])['steps']}"
    except (OSError, SafetensorError, KeyError, TypeError, ValueError):
        return None


def _group_variables(processes: int) -> list[dict[str, str]]:
    """What each of several processes is told of the group, as torchrun tells it; nothing where there is one."""
    if processes == 1:
        return [{}]
    with socket.create_server(("127.0.0.1", 0)) as free:
        group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": str(processes)}
    group["OMP_NUM_THREADS"] = "1"  # processes that each use all cores are slower than one
    return [{**group, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(processes)]


def _wait_for(processes: Sequence["subprocess.Popen[bytes]"]) -> int:
    """The exit code of processes that belong together: that of the first to fail, or 0."""
    running = list(processes)
    while running:
        with contextlib.suppress(subprocess.TimeoutExpired):
            running[0].wait(WAIT_SECONDS)
        failed = [process.returncode for process in running if process.poll()]
        running = [process for process in running if process.poll() is None]
        if failed:
            for process in running:
                process.terminate()
                process.wait()
            return failed[0]
    return 0


def interrupt(*processes: "subprocess.Popen[bytes]") -> None:
    """Let these, or all running commands, save what they have and end; those that take too long are killed."""
    chosen = processes or tuple(_running)
    for process in chosen:
        process.send_signal(signal.SIGINT)  # does nothing to one that has ended
    for process in chosen:
        try:
            process.wait(SAVE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
