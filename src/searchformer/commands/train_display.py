"""What `searchformer train` shows while it runs: one progress bar on a terminal, plain lines elsewhere."""

import sys
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class Display:
    """Shows every step on a terminal's bar; what the log gets as lines where there is no terminal."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._lines = not self._console.is_terminal
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._progress = Progress(*columns, console=self._console, disable=self._lines, speed_estimate_period=120)
        self._task = self._progress.add_task("training", total=None)

    def __enter__(self) -> "Display":
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def step(self, values: dict[str, Any]) -> None:
        """Move the bar."""
        if not self._lines:
            self._progress.update(
                self._task, completed=values["step"], total=values["steps"], description=_summary(values)
            )

    def record(self, record: dict[str, Any]) -> None:
        """Print a line of the log; on a terminal only evaluations, above the bar."""
        if record["kind"] == "eval":
            scores = ", ".join(f"{k.replace('_', ' ')} {v:.4f}" for k, v in record.items() if isinstance(v, float))
            self._console.print(f"step {record['step']} {record['split']}: {scores}", soft_wrap=True)
        elif self._lines:
            print(f"step {record['step']}: {_summary(record)}", file=sys.stderr)


def _summary(values: dict[str, Any]) -> str:
    return (
        f"loss {values['loss']:.4f}, {values['tokens_per_second']:,.0f} tokens/s, "
        f"learning rate {values['learning_rate']:.2e}"
    )
