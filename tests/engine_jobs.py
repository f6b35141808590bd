"""Jobs for tests of engines; a module of their own, as workers import them by name."""

import os
import signal
import time
from collections.abc import Generator
from multiprocessing.util import Finalize
from pathlib import Path

from searchformer.errors import SearchformerError


class Item(str):
    """An item; what it says decides what becomes of it."""


class Recorder:
    """Leaves a line in a file for every item it does; `poison` kills the worker, `once` does so the first time."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __call__(self, item: str) -> Generator[str, None, str]:
        marker = self.directory / item
        yield f"doing {item}"
        if item.startswith("poison") or (item.startswith("once") and not marker.exists()):
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if item.startswith("wrong"):
            raise SearchformerError(f"{item} is wrong")
        with open(marker, "a") as file:
            file.write("done\n")
        return item.upper()


def slow_to_end(marker: Path) -> Recorder:
    """Makes a job whose worker takes a while to end; the file says that it has begun to."""

    def linger() -> None:
        marker.touch()
        time.sleep(1)

    Finalize(None, linger, exitpriority=1)
    return Recorder(marker.parent)
