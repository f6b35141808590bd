"""Says when kernels are being compiled: it happens once on a machine, and a new user should not wait for nothing.

Whoever has kernels calls `watch`; whoever talks to a person sets `announce`. Kernels that are found on disk are not
compiled, and so not announced.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

announce: Callable[[], AbstractContextManager[object]] | None = None
"""Entered while kernels are compiled."""


@cache
def watch() -> None:
    """Have compilations announced from now on."""
    from numba.core import event

    class Listener(event.Listener):
        """Compilations are nested: only the outermost counts."""

        def __init__(self) -> None:
            self.depth = 0
            self.announced: AbstractContextManager[object] | None = None

        def on_start(self, event: Any) -> None:
            if self.depth == 0 and announce is not None:
                self.announced = announce()
                self.announced.__enter__()
            self.depth += 1

        def on_end(self, event: Any) -> None:
            self.depth -= 1
            if self.depth == 0 and self.announced is not None:
                self.announced.__exit__(None, None, None)
                self.announced = None

    event.register("numba:compile", Listener())
