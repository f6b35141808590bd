"""The one error that users see, and how it quotes what was found."""

from typing import Any

SHOWN = 80
"""Most characters of what was found that a message shows."""


class SearchformerError(Exception):
    """Input from outside is not what was expected. The message says what was expected, what was found, what to do."""


class FirstProcessError(SearchformerError):
    """What went wrong in the first of several processes, as the others tell it."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, after what could be saved was saved. The message says where the work stands."""

    @classmethod
    def within(cls, place: str, interrupt: KeyboardInterrupt) -> "Interrupted":
        """The interrupt of a part, as that of the whole: what it says comes after `place`."""
        return cls(f"{place}: {interrupt}" if isinstance(interrupt, Interrupted) else place)


def shown(value: Any) -> str:
    """A value as a message quotes it: as Python writes it, in one line, cut to the first characters."""
    try:
        return cut(repr(value))
    except (ValueError, RecursionError):  # whole numbers of thousands of digits, lists nested as deep
        return f"a {type(value).__name__} that is too large to show"


def cut(text: str) -> str:
    """The beginning of a text, in one line that any terminal can print."""
    line = " ".join(text[: 4 * SHOWN].split()).encode("utf-8", "backslashreplace").decode()
    return line if len(line) <= SHOWN and len(text) <= 4 * SHOWN else line[: SHOWN - 3] + "..."
