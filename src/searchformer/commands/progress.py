"""Progress of long commands: a bar with rate and time left on a terminal, plain lines otherwise, always on stderr."""

import contextlib
import sys
import time
from collections import deque
from collections.abc import Iterator

from rich.console import Console
from rich.errors import LiveError
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Column

from searchformer.display import Update, duration
from searchformer.errors import Interrupted

PLAIN_SECONDS = 10.0
"""Between plain lines."""
PACE_SECONDS = 180.0
"""Over which the time left is estimated."""
MARK_SECONDS = 1.0
"""Between two notes of how much is done."""


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
                    bar = _Bar(title)
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


class Pace:
    """How fast work goes: an average over the last minutes.

    The whole time would tell nothing of what goes on now, a few seconds would jump with every evaluation or program
    beside it. What was done before the first call is not counted.
    """

    def __init__(self) -> None:
        self.marks: deque[tuple[float, int]] = deque()
        """When how much was done: the first is at least `PACE_SECONDS` old, or the first of all."""

    def __call__(self, done: int) -> float:
        """Units per second, 0 where nothing is known yet; called with how much is done by now."""
        now = time.monotonic()
        if not self.marks or now - self.marks[-1][0] >= MARK_SECONDS:
            self.marks.append((now, done))
        while len(self.marks) > 1 and now - self.marks[1][0] >= PACE_SECONDS:
            self.marks.popleft()
        since, before = self.marks[0]
        return (done - before) / max(now - since, 1e-9)


def _per_second(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"


def _left(done: int, total: int, rate: float) -> str:
    """`12 min left`; nothing where the rate is not known or nothing is left."""
    return f"{duration((total - done) / rate)} left" if rate > 0 and done < total else ""


class _Bar:
    """A bar on a terminal, made to fit its width: the note is cut first."""

    def __init__(self, title: str) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TextColumn("{task.fields[pace]}"),
            TextColumn("{task.fields[note]}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)),
        )
        self.pace = Pace()
        self.progress = Progress(*columns, console=Console(stderr=True), expand=True)
        self.task = self.progress.add_task(title, pace="", note="")

    def update(self, done: int, total: int, note: str) -> None:
        rate = self.pace(done)
        parts = (f"{_per_second(rate)}/s" if rate > 0 else "", _left(done, total, rate))
        pace = ", ".join(part for part in parts if part)
        self.progress.update(self.task, completed=done, total=total, pace=pace, note=note)


class _PlainLines:
    """A line every few seconds, and one when all is done."""

    def __init__(self, title: str, unit: str) -> None:
        self.title, self.unit, self.pace = title, unit, Pace()
        self.shown = time.monotonic()
        self.completed: int | None = None
        """The total that was last reported as complete."""

    def update(self, done: int, total: int, note: str) -> None:
        now, rate = time.monotonic(), self.pace(done)
        complete = done >= total and self.completed != total
        if now - self.shown < PLAIN_SECONDS and not complete:
            return
        self.shown, self.completed = now, total if done >= total else None
        parts = [f"{self.title}: {done:,} of {total:,} {self.unit}", f"{_per_second(rate)}/s" if rate > 0 else ""]
        text = ", ".join(part for part in (*parts, _left(done, total, rate)) if part)
        print(f"{text}; {note}" if note else text, file=sys.stderr, flush=True)
