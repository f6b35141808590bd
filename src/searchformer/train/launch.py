"""Starts `searchformer train` in processes of its own: one, or several under torchrun."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from searchformer.lifetime import tied
from searchformer.train.options import TrainOptions

STDERR = 2
SAVE_SECONDS = 60.0
"""How long a training run may take to finish its step and save it."""
_running: set["subprocess.Popen[bytes]"] = set()


def train_command(options: TrainOptions, out: Path, *, processes: int = 1, bootstrap_round: int = 0) -> list[str]:
    """The command that trains with these options in the directory `out`."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    words = [*options.words(), f"--out={out}", f"--bootstrap-round={bootstrap_round}"]
    return [sys.executable, *(launcher if processes > 1 else []), "-m", "searchformer", "train", *words]


def launch(command: list[str], *, log: Path | None = None, place: Mapping[str, str] | None = None) -> int:
    """Run a command and show what it says on stderr, or append it to `log`; its exit code.

    `place` are environment variables. However this process ends, the command ends too.
    """
    environment = {**os.environ, **(place or {})}
    if "torch.distributed.run" in command:
        environment["OMP_NUM_THREADS"] = "1"  # processes that each use all cores are slower than one
    command = tied(command)  # a killed run's training would go on beside that of the next
    with contextlib.ExitStack() as stack:
        words = stack.enter_context(open(log, "a", encoding="utf-8")) if log else STDERR
        process = subprocess.Popen(command, env=environment, stdout=words, stderr=words if log else None)
        _running.add(process)
        try:
            return process.wait()
        except BaseException:
            interrupt(process)
            raise
        finally:
            _running.discard(process)


def interrupt(*processes: "subprocess.Popen[bytes]") -> None:
    """Let these, or all running commands, save what they have and end; those that take too long are killed."""
    chosen = processes or tuple(_running)
    for process in chosen:
        process.send_signal(signal.SIGINT)
    for process in chosen:
        try:
            process.wait(SAVE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
