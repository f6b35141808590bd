"""The command line: one subcommand per stage, each a module in `commands/` that parses, calls and prints.

Only the module of the command that was asked for is imported, so that `searchformer --help` answers at once.
"""

import importlib
import os
import sys
from collections.abc import Callable

import typer

from searchformer import __version__
from searchformer.errors import SearchformerError

COMMANDS = {
    "generate": "Sample tasks, run A*, store a data set of traces.",
    "trace": "Tasks in, searches out, one JSON object per line.",
    "inspect": "Counts, lengths, leakage audit and drawings of a data set.",
    "train": "Train an encoder-decoder Transformer on a data set.",
    "rollout": "Sample many answers per task with a trained model.",
    "evaluate": "Judge and score a directory of rollouts.",
    "judge": "Tasks with answers in, verdicts out, one JSON object per line.",
    "report": "Figures, tables and one HTML page from result files.",
    "bootstrap": "Fine-tune a model on its own shorter searches, round by round.",
    "run": "Run a whole experiment from a recipe.",
    "solve": "Plan with a model: a task in, a verified plan out.",
}


def _placeholder(summary: str) -> Callable[[], None]:
    """Stands in `--help` for a command whose module is not needed."""

    def command() -> None: ...

    command.__doc__ = summary
    return command


def build(asked: str | None) -> typer.Typer:
    """The application, with the command `asked` for loaded and the others listed."""
    app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

    def version(value: bool) -> None:
        if value:
            typer.echo(f"searchformer {__version__}")
            raise typer.Exit

    @app.callback()
    def options(
        debug: bool = typer.Option(False, "--debug", help="Show a traceback when something fails."),
        version: bool = typer.Option(False, "--version", callback=version, is_eager=True, help="Print the version."),
    ) -> None:
        """Transformers that learn to plan by imitating A*, then search less than A* does."""
        if debug:
            os.environ["SEARCHFORMER_DEBUG"] = "1"

    for name, summary in COMMANDS.items():
        if name == asked:
            module = importlib.import_module(f"searchformer.commands.{name}")
            app.command(name, help=module.run.__doc__, context_settings=getattr(module, "CONTEXT", None))(module.run)
        else:
            app.command(name, help=summary)(_placeholder(summary))
    return app


def main() -> None:
    """Run the command line. Exit codes: 0 done, 1 failed with one line on stderr, 2 wrong usage."""
    asked = next((argument for argument in sys.argv[1:] if not argument.startswith("-")), None)
    try:
        build(asked)()
    except SearchformerError as error:
        if os.environ.get("SEARCHFORMER_DEBUG"):
            raise
        print(f"searchformer: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("searchformer: interrupted; the same command goes on from here", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
