"""Progress of long commands: a bar with rate and time left on a terminal, plain lines otherwise, always on stderr."""

import contextlib
import sys
import time
from collections.abc import Iterator

from rich.console import Console
from rich.errors import LiveError
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from searchformer.display import Update
from searchformer.errors import Interrupted

PLAIN_SECONDS = 10.0
"""Between plain lines."""
RATE_SECONDS = 120.0
"""Over which the time left is estimated."""


class TerminalDisplay:
    """The command line's `Display`."""

    def say(self, line: str) -> None:
        """Print a line, above the bar if there is one."""
        print(line, file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def bar(self, title: str, *, unit: str) -> Iterator[Update]:
        """Show progress while a block runs, from the first update on: time spent on preparations has no rate."""
        bar: _Bar | _PlainLines | None = None
        stands = ""
        with contextlib.ExitStack() as stack:

            def update(done: int, total: int, note: str) -> None:
                nonlocal bar, stands
                stands = f"{title}: {done:,} of {total:,} {unit}"
                if bar is None and sys.stderr.isatty():
                    bar = _Bar(title, unit)
                    stack.enter_context(bar.progress)
                bar = bar or _PlainLines(title, unit)
                bar.update(done, total, note)

            try:
                yield update
            except KeyboardInterrupt as interrupt:
                if isinstance(interrupt, Interrupted) or not stands:
                    raise
                raise Interrupted(stands) from None


class CompilingNote:
    """Says once that kernels are compiled; on a terminal, a spinner turns meanwhile."""

    LINE = "compiling kernels for this machine: once, about 20 s"

    def __init__(self) -> None:
        self.said = False

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """While a kernel is compiled."""
        with contextlib.ExitStack() as stack:
            if sys.stderr.isatty():
                with contextlib.suppress(LiveError):  # a progress bar is turning already
                    stack.enter_context(Console(stderr=True).status(self.LINE))
            elif not self.said:
                print(self.LINE, file=sys.stderr, flush=True)
            self.said = True
            yield


class _Rate:
    """How fast work goes. What an earlier run did is reported at once, and does not count."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.first: int | None = None

    def __call__(self, done: int) -> float:
        seconds = time.monotonic() - self.began
        if self.first is None:
            self.first = done if seconds < 0.2 else 0
        return (done - self.first) / max(seconds, 1e-9)


def _per_second(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"


class _Bar:
    """A bar on a terminal."""

    def __init__(self, title: str, unit: str) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        self.unit, self.rate = unit, _Rate()
        self.progress = Progress(*columns, console=Console(stderr=True), speed_estimate_period=RATE_SECONDS)
        self.task = self.progress.add_task(title, rate="", note="")

    def update(self, done: int, total: int, note: str) -> None:
        rate = f"{_per_second(self.rate(done))} {self.unit}/s"
        self.progress.update(self.task, completed=done, total=total, rate=rate, note=note)


class _PlainLines:
    """A line every few seconds, and one when all is done."""

    def __init__(self, title: str, unit: str) -> None:
        self.title, self.unit, self.rate = title, unit, _Rate()
        self.shown = time.monotonic()
        self.completed: int | None = None
        """The total that was last reported as complete."""

    def update(self, done: int, total: int, note: str) -> None:
        now, rate = time.monotonic(), self.rate(done)
        complete = done >= total and self.completed != total
        if now - self.shown < PLAIN_SECONDS and not complete:
            return
        self.shown, self.completed = now, total if done >= total else None
        text = f"{self.title}: {done:,} of {total:,} {self.unit}"
        if rate > 0:
            text += f", {_per_second(rate)}/s, {(total - done) / rate:,.0f} s left"
        print(f"{text}; {note}" if note else text, file=sys.stderr, flush=True)
