"""Progress of long commands: a bar with rate and time left on a terminal, plain lines otherwise, always on stderr."""

import contextlib
import sys
import time
from collections.abc import Iterator
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from searchformer.display import Update

PLAIN_SECONDS = 10.0


class ProgressLine:
    """Shows `done` of `total`, a rate, the time left and a note."""

    def __init__(self, title: str, total: int, *, unit: str) -> None:
        self.title, self.total, self.unit = title, total, unit
        self.began = self.shown = time.monotonic()
        self.first: int | None = None
        self.completed = False
        self.bar: Progress | None = None
        if sys.stderr.isatty():
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeRemainingColumn(),
                TextColumn("{task.fields[note]}"),
            )
            self.bar = Progress(*columns, console=Console(stderr=True))
            self.task = self.bar.add_task(title, total=total, rate="", note="")

    def __enter__(self) -> "ProgressLine":
        if self.bar:
            self.bar.start()
        return self

    def set_total(self, total: int) -> None:
        """Say how much there is to do, where that was not known at first."""
        self.completed = self.completed and total == self.total
        self.total = total
        if self.bar:
            self.bar.update(self.task, total=total)

    def update(self, done: int, note: str = "") -> None:
        """Show the new state; plain lines appear every few seconds."""
        now = time.monotonic()
        if self.first is None:  # what an earlier run had done says nothing about the rate, and is there at once
            self.first = done if now - self.began < 0.2 else 0
        rate = (done - self.first) / max(now - self.began, 1e-9)
        if self.bar:
            self.bar.update(self.task, completed=done, rate=f"{rate:,.0f} {self.unit}/s", note=note)
        elif now - self.shown >= PLAIN_SECONDS or (done >= self.total and not self.completed):
            self.shown, self.completed = now, done >= self.total
            left = f"{(self.total - done) / rate:,.0f} s left" if rate > 0 else "time left unknown"
            text = f"{self.title}: {done:,} of {self.total:,} {self.unit}, {rate:,.0f}/s, {left}"
            print(f"{text}; {note}" if note else text, file=sys.stderr, flush=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar:
            self.bar.stop()


class Lines:
    """Shows a run on stderr."""

    def say(self, line: str) -> None:
        """Print a line."""
        print(line, file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def bar(self, title: str, *, unit: str) -> Iterator[Update]:
        """A progress bar, or lines every few seconds; it begins with the first update, as getting ready has no rate."""
        line: ProgressLine | None = None
        with contextlib.ExitStack() as stack:

            def update(done: int, total: int, note: str) -> None:
                nonlocal line
                if line is None:
                    line = stack.enter_context(ProgressLine(title, total, unit=unit))
                if total != line.total:
                    line.set_total(total)
                line.update(done, note)

            yield update
