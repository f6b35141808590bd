"""`searchformer play`: a maze or a Sokoban level in the terminal."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.live import Live
from rich.text import Text

from searchformer.commands.options import Flat, Settings
from searchformer.commands.tasks import TaskOptions, find_task
from searchformer.errors import SearchformerError

if TYPE_CHECKING:
    from searchformer.solve.game import Game

KEYS = {
    **{"\x1b[A": "u", "\x1b[B": "d", "\x1b[D": "l", "\x1b[C": "r"},
    **{"\x1bOA": "u", "\x1bOB": "d", "\x1bOD": "l", "\x1bOC": "r"},
    **{"w": "u", "s": "d", "a": "l", "d": "r"},
    **{"\xe0H": "u", "\xe0P": "d", "\xe0K": "l", "\xe0M": "r"},  # Windows
}
"""What arrow keys send, and letters for keyboards without."""
HELP = "arrow keys move   u undo   r restart   h hint   q quit"
LOOKS = {
    "#": ("  ", "on grey37"),
    "@": ("@ ", "bold green"),
    "o": ("@ ", "bold green"),
    "+": ("@ ", "bold green on dark_red"),
    "$": ("[]", "bold yellow"),
    "*": ("[]", "bold green"),
    "S": ("s ", "green"),
    "G": ("()", "bold red"),
}
"""How the marks of `Domain.draw` look, two columns each; others are floor."""


def run(
    file: Annotated[str | None, Parameter(help="JSON lines, or a level or map file.")] = None,
    /,
    *,
    options: Annotated[TaskOptions, Flat] = TaskOptions(),
    **settings: Settings,
) -> None:
    """Play a maze or a Sokoban level with the arrow keys: undo, hints, and your moves against the optimum.

    Settings of the domain, such as --boxes 1, are options too.
    """
    from searchformer.search import Options
    from searchformer.solve.game import Game

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise SearchformerError("play needs a terminal: standard input and output must not be redirected")
    limits = Options(max_expansions=1_000_000)
    title, task, _ = find_task(file, options, settings, limits=limits)
    play(Game(task, options=limits), title)


def play(game: "Game", title: str) -> None:
    """Play until it is solved or given up."""
    console = Console(highlight=False)
    best = game.best_moves()
    message = "" if best is not None else "this one cannot be solved"
    with keyboard() as next_key, Live(console=console, auto_refresh=False, screen=True) as live:
        while True:
            live.update(Text.assemble(f"{title}\n\n", board(game), "\n", status(game, best, message)), refresh=True)
            if game.solved or (key := next_key()) in ("q", "\x03", "\x04", ""):
                break
            message = press(game, key)
    console.print(board(game), status(game, best, ""), sep="\n")


def press(game: "Game", key: str) -> str:
    """Do what a key asks for; returns what to say."""
    if key in KEYS:
        return "" if game.move(KEYS[key]) else "blocked"
    if key in ("u", "\x7f", "\x08"):
        game.undo()
    elif key == "r":
        game.restart()
    elif key == "h":
        hint = game.hint()
        return f"hint: {hint}" if hint else "from here it cannot be solved any more: undo"
    return ""


def board(game: "Game") -> Text:
    """The task as it stands, in colours."""
    rows = game.picture().split("\n")
    stride = 2 if all(mark == " " for row in rows for mark in row[1::2]) and len(rows[0]) > 1 else 1
    text = Text()
    for row in rows:
        for mark in row[::stride]:
            dock = mark == "." and stride == 1
            text.append(*(("()", "red") if dock else LOOKS.get(mark, ("  ", ""))))
        text.append("\n")
    return text


def status(game: "Game", best: str | None, message: str) -> str:
    """Moves against the optimum."""
    optimum = "" if best is None else f", optimum {len(best)}"
    hints = f", {game.hints} of them hints" if game.hints else ""
    if game.solved:
        more = game.moves - len(best or "")
        return f"solved in {game.moves} moves{hints}: {f'{more} more than ' if more else ''}the optimum"
    return f"{game.moves} moves{hints}{optimum}   {message}\n\n{HELP}"


@contextlib.contextmanager
def keyboard() -> Iterator[Callable[[], str]]:
    """A function that waits for a key and returns what it sends; the terminal is as before at the end."""
    try:
        import termios
        import tty
    except ImportError:
        yield _windows_key
        return
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield _Keys().next
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


class _Keys:
    """Single keys, also where several have arrived at once."""

    def __init__(self) -> None:
        self.pending = ""

    def next(self) -> str:
        """The next key; empty at the end of the input."""
        self.pending = self.pending or os.read(sys.stdin.fileno(), 64).decode(errors="replace")
        length = 3 if self.pending[:2] in ("\x1b[", "\x1bO") else 1
        key, self.pending = self.pending[:length], self.pending[length:]
        return key


def _windows_key() -> str:
    import msvcrt

    key = msvcrt.getwch()  # type: ignore[attr-defined]
    return key + msvcrt.getwch() if key in "\x00\xe0" else key  # type: ignore[attr-defined]
