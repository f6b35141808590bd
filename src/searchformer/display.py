"""Where long work shows how far it is. The command line draws it; the library is silent unless it is given one."""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

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


def duration(seconds: float) -> str:
    """Seconds in words, as coarse as an estimate is."""
    units: Any = (("year", 365 * 86400, 730 * 86400), ("day", 86400, 72 * 3600), ("hour", 3600, 5400), ("min", 60, 90))
    for unit, size, least in units:
        if seconds >= least:
            value = seconds / size
            number = f"{value:,.0f}" if value >= 9.95 or unit == "min" else f"{value:.1f}"
            return f"{number} {unit}" + ("s" if unit != "min" and number != "1" else "")
    return f"{max(seconds, 1):.0f} s"
