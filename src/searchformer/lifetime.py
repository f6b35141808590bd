"""Processes that end when the one that started them ends, however that happens."""

import multiprocessing
import os
import sys
import threading
from multiprocessing.connection import wait

_TIED = (
    "import ctypes, os, signal, sys; ctypes.CDLL(None).prctl(1, signal.SIGTERM); os.execv(sys.argv[1], sys.argv[1:])"
)
"""Asks Linux to end the process when its parent dies (1 is PR_SET_PDEATHSIG), then becomes the command."""


def end_with_parent() -> None:
    """In a process of `multiprocessing`: end at once when the parent is gone.

    A worker whose parent was killed would wait for work for ever, or write beside the next run.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def tied(command: list[str]) -> list[str]:
    """A command for `subprocess` that ends with this process; on Linux only, elsewhere the command as it is."""
    return [sys.executable, "-c", _TIED, *command] if sys.platform == "linux" else command
