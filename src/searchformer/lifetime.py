"""Processes that end when the one that started them ends, however that happens; and Ctrl-C that waits its turn."""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import wait
from typing import Any

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


class Interrupts:
    """What came while signals were held back."""

    def __init__(self) -> None:
        self.first: float | None = None

    @property
    def asked(self) -> bool:
        """Whether Ctrl-C was pressed."""
        return self.first is not None


SAME_SECONDS = 1.0
"""Signals this close together are one Ctrl-C: a terminal and a launcher both pass it on."""


@contextlib.contextmanager
def held_back(*, raise_after: bool = True) -> Iterator[Interrupts]:
    """Ctrl-C during the block takes effect after it; a second one at once.

    With `raise_after` false, the block asks for itself whether there was one. Other threads than the main one, and
    signals that this process does not handle in Python, are left as they are.
    """
    interrupts = Interrupts()
    if threading.current_thread() is not threading.main_thread():
        yield interrupts
        return
    handlers: dict[int, Any] = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    handlers = {number: handler for number, handler in handlers.items() if callable(handler)}

    def note(number: int, frame: Any) -> None:
        if interrupts.first is not None and time.monotonic() - interrupts.first > SAME_SECONDS:
            handlers[number](number, frame)
        interrupts.first = interrupts.first or time.monotonic()
        came.append(number)

    came: list[int] = []
    for number in handlers:
        signal.signal(number, note)
    try:
        yield interrupts
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if came and raise_after:
        handlers[came[0]](came[0], None)


LAUNCHED = "SEARCHFORMER_LAUNCHED"
"""Set in processes that a command has started: it is the one that tells the user of Ctrl-C."""


def is_launched() -> bool:
    """Whether another of our commands has started this process."""
    return LAUNCHED in os.environ


def speaks() -> bool:
    """Whether this process tells the user that it was interrupted: one of many training processes does."""
    return not is_launched() and os.environ.get("RANK", "0") == "0"


def end_process(code: int) -> None:
    """Exit at once if this process is one of several that train together: what they wrote is on disk.

    Python's own shutdown races with gloo's threads, which may still hold tensors: now and then one of them aborts a
    process whose work is done, and the whole run is called failed.
    """
    if "RANK" in os.environ:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def tied(command: list[str]) -> list[str]:
    """A command for `subprocess` that ends with this process; on Linux only, elsewhere the command as it is."""
    return [sys.executable, "-c", _TIED, *command] if sys.platform == "linux" else command
