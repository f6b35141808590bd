"""Runs the command line in this process."""

import contextlib
import io
from dataclasses import dataclass

from searchformer.cli import make_app


@dataclass(frozen=True)
class Result:
    """What came of a command."""

    stdout: str
    stderr: str
    exception: Exception | None

    @property
    def exit_code(self) -> int:
        return 1 if self.exception else 0

    @property
    def output(self) -> str:
        return self.stdout + self.stderr


def invoke(name: str, *arguments: object) -> Result:
    """Run `searchformer NAME ARGUMENTS`."""
    exception = None
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            make_app(name)([name, *map(str, arguments)])
        except Exception as error:
            exception = error
    return Result(out.getvalue(), err.getvalue(), exception)
