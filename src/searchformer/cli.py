"""The command line: one subcommand per stage, each a module in `commands/` that parses, calls and prints.

Only the module of the command that was asked for is imported, so that `searchformer --help` answers at once. Options
are fields of models (see `options.py`); whatever is wrong with them becomes one line here.
"""

import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cache
from importlib import import_module
from typing import Any

import attrs
import cyclopts
from cyclopts import App, CycloptsError, Parameter
from cyclopts.help import DefaultFormatter

from searchformer import __version__, compiling
from searchformer.errors import FirstProcessError, Interrupted, SearchformerError, cut
from searchformer.lifetime import end_process, is_launched, speaks

COMMANDS = {
    "generate": "Sample tasks, run A*, store a data set of traces.",
    "trace": "Search tasks: tasks in, searches out, one JSON object per line.",
    "inspect": "Show a data set: counts, lengths, leakage audit, drawings.",
    "merge": "Merge several data sets into one.",
    "train": "Train an encoder-decoder Transformer on a data set.",
    "rollout": "Sample many answers per task with a trained model.",
    "evaluate": "Judge and score a directory of rollouts.",
    "judge": "Judge answers: one verdict per line, as JSON.",
    "report": "Write figures, tables and one HTML page from result files.",
    "bootstrap": "Fine-tune a model on its own shorter searches, round by round.",
    "run": "Run a whole experiment from a recipe.",
    "solve": "Plan with a model: a task in, a verified plan out.",
    "serve": "Start the browser app: watch A* and a Transformer search.",
    "play": "Play a maze or a Sokoban level in the terminal.",
}
GROUPS = {
    "import": (
        "Bring in other people's checkpoints, data sets and tasks.",
        {
            "meta-checkpoint": "Turn a published checkpoint into a model directory.",
            "mongodump": "Read a data set from a published MongoDB archive; no server is needed.",
            "mongodb": "Read a data set from a MongoDB server.",
            "tasks": "Make a data set of the tasks in a file.",
        },
    ),
    "export": (
        "Write models, data sets and searches for other people's tools.",
        {
            "meta-checkpoint": "Write a model in the layout of the published checkpoints.",
            "mongodb": "Send a data set to a MongoDB server, in the published layout.",
            "hub": "Write a model or data set with its card, for the Hugging Face Hub.",
            "posthoc": "Write a search for Posthoc, the path-finding visualiser.",
        },
    ),
}
"""Commands of several kinds: a function per kind in `commands/import_.py` and `commands/export_.py`."""
RESUMABLE = ("generate", "train", "rollout", "bootstrap", "run", "mongodb")
"""Commands, and kinds of import and export, that continue where they were interrupted."""
REPEATABLE = ("merge", "evaluate", "report", *GROUPS)
"""Commands that start over: they take minutes."""
DONE, FAILED, WRONG_USAGE, INTERRUPTED = 0, 1, 2, 130
"""Exit codes."""


def make_app(asked: str | None = None) -> App:
    """The application. The command `asked` for gets its function's text as help, the others one line each."""
    app = App(
        name="searchformer",
        help="Transformers that learn to plan by imitating A*, then search less than A* does.",
        help_epilogue="With --debug, a failing command shows a traceback.",
        help_format="plaintext",
        help_formatter=_Help(),
        version=f"searchformer {__version__}",
        version_flags="--version",
        group_parameters="Options",
        default_parameter=Parameter(allow_repeating=True, show_default=_shown_default),
        result_action="return_value",
        exit_on_error=False,
        print_error=False,
        suppress_keyboard_interrupt=False,
    )
    for place, (name, summary) in enumerate(COMMANDS.items()):
        text = _paragraphs(name) if name == asked else summary
        app.command(f"searchformer.commands.{name}:run", name=name, help=text, sort_key=place)
    for name, (summary, kinds) in GROUPS.items():
        group = App(name=name, help=summary, sort_key=len(COMMANDS))
        app.command(group)
        for place, (kind, line) in enumerate(kinds.items()):
            function = kind.replace("-", "_")
            text = _paragraphs(f"{name}_", function) if name == asked else line
            group.command(f"searchformer.commands.{name}_:{function}", name=kind, help=text, sort_key=place)
    return app


def main() -> None:
    """Run the command line and exit with its code."""
    code = run(sys.argv[1:])
    end_process(code)
    sys.exit(code)


def run(words: Sequence[str]) -> int:
    """Run a command and return its exit code; what goes wrong is said in one line on stderr."""
    debug = "--debug" in words or bool(os.environ.get("SEARCHFORMER_DEBUG"))
    words = [word for word in words if word != "--debug"]
    if "-" in words:  # stdin as the last argument: anywhere else it would be taken for an option
        words = [word for word in words if word != "-"] + ["--", "-"]
    command = next((word for word in words if not word.startswith("-")), None)
    compiling.announce = _announce_compiling
    try:
        make_app(command)(words)
        sys.stdout.flush()
    except KeyboardInterrupt as interrupt:
        stands = f", {interrupt}" if isinstance(interrupt, Interrupted) else ""
        if speaks():
            print(f"searchformer: interrupted{stands}{_goes_on(words)}", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # whoever reads our output, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:
        if debug:
            traceback.print_exc()
        code, line = _explain(error)
        if isinstance(error, FirstProcessError) and is_launched():
            return code  # the first process says it, on the same terminal
        hint = f"{' See' if line.endswith('?') else '; see'} {_help_command(words)}" if code == WRONG_USAGE else ""
        print(f"searchformer: {line}{hint}", file=sys.stderr)
        return code
    return DONE


def _goes_on(words: Sequence[str]) -> str:
    """What the same command does when it is run again after an interruption."""
    named = [word for word in words if not word.startswith("-")][:2]
    if any(word in RESUMABLE for word in (named[1:] if named[:1] and named[0] in GROUPS else named[:1])):
        return "; run the same command again to continue"
    return "; run the same command again, it starts over" if named and named[0] in REPEATABLE else ""


@cache
def _compiling_note() -> Callable[[], AbstractContextManager[object]]:
    from searchformer.commands.progress import CompilingNote

    return CompilingNote()


def _announce_compiling() -> AbstractContextManager[object]:
    return _compiling_note()()


def _explain(error: Exception) -> tuple[int, str]:
    """The exit code for an error, and what is wrong in one line."""
    if isinstance(error, SearchformerError):
        return FAILED, str(error)
    from pydantic import ValidationError

    from searchformer.options import option_error

    for wrong in (error, error.__cause__):
        if isinstance(wrong, ValidationError):
            return WRONG_USAGE, option_error(wrong)
    if isinstance(error, CycloptsError):
        return WRONG_USAGE, _usage_error(error)
    text = f"{type(error).__name__}: {cut(str(error))}"
    return FAILED, f"unexpected {text}; --debug shows where it comes from"


def _usage_error(error: CycloptsError) -> str:
    """What is wrong with the words of a command."""
    unused = " ".join(error.unused_tokens or ())
    if isinstance(error, cyclopts.MissingArgumentError) and error.argument:
        if error.argument.field_info.kind is inspect.Parameter.VAR_KEYWORD and not _is_setting(error.keyword or ""):
            return f"unknown option: {error.keyword}"
        return f"{error.keyword} needs a value" if error.keyword else f"{error.argument.name} is missing"
    if isinstance(error, cyclopts.UnknownCommandError):
        return f"there is no command {unused.split()[0]}"
    if isinstance(error, cyclopts.UnusedCliTokensError):
        return f"unexpected argument {unused}"
    text = " ".join(str(error).split()).rstrip(".")
    text = re.sub(r"\. ([A-Z])", lambda sentence: f"; {sentence[1].lower()}", text)
    return text[:1].lower() + text[1:]


def _is_setting(option: str) -> bool:
    """Whether a domain has a setting of this name."""
    from searchformer.domains import domain_class, domain_names
    from searchformer.options import option_name

    return any(option_name(field) == option for name in domain_names() for field in domain_class(name).model_fields)


def _help_command(words: Sequence[str]) -> str:
    """The command that explains the one that was typed."""
    command, *rest = [word for word in words if not word.startswith("-")] or [""]
    known = [command] if command in (*COMMANDS, *GROUPS) else []
    if command in GROUPS and rest and rest[0] in GROUPS[command][1]:
        known.append(rest[0])
    return " ".join(["searchformer", *known, "--help"])


# --- help


def _paragraphs(command: str, function: str = "run") -> str:
    """The docstring of a command's function, each paragraph as one line."""
    text = inspect.getdoc(getattr(import_module(f"searchformer.commands.{command}"), function)) or ""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def _shown_default(value: Any) -> str | None:
    """Defaults as users would type them; where the default is nothing, the option's own text says what happens."""
    return None if value is None or value is False or value in ("", ()) else str(value)


class _Help(DefaultFormatter):
    """Required options first; `--no-...` only of flags that are on by default."""

    def __call__(self, console: Any, options: Any, panel: Any) -> None:
        entries = [
            entry if entry.default == "True" else attrs.evolve(entry, negative_names=())
            for entry in sorted(panel.entries, key=lambda entry: not entry.required)
        ]
        super().__call__(console, options, attrs.evolve(panel, entries=entries))


if __name__ == "__main__":
    main()
