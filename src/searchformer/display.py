"""Where long work shows how far it is. The command line draws it; the library is silent unless it is given one."""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

Update = Callable[[int, int, str], None]
"""Called with how much is done, of how much, and a note."""


class Display(Protocol):
    """Where a run shows what it does."""

    def say(self, line: str) -> None:
        """Show a line."""

    def bar(self, title: str, *, unit: str) -> AbstractContextManager[Update]:
        """Show progress while a block runs."""


class Silent:
    """Shows nothing."""

    def say(self, line: str) -> None:
        """Say nothing."""

    @contextlib.contextmanager
    def bar(self, title: str, *, unit: str) -> Iterator[Update]:
        """Show nothing."""
        yield lambda done, total, note: None
