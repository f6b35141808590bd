"""Libraries that only some commands need: each is an extra of the package, and its absence is said in one line."""

import re
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires
from typing import Any

from searchformer.errors import SearchformerError


def require(module: str, *, extra: str) -> Any:
    """The module, or an error that says what to install."""
    try:
        return import_module(module)
    except ImportError as error:
        if error.name and error.name.partition(".")[0] != module.partition(".")[0]:
            raise  # it is there, and broken in itself
        raise SearchformerError(f"{module} is not installed: {install_command(extra)}") from None


def install_command(extra: str) -> str:
    """The command that installs what an extra consists of, wherever this package was installed from."""
    try:
        listed = requires("searchformer") or []
    except PackageNotFoundError:
        listed = []
    mine = [line.partition(";")[0].strip() for line in listed if re.search(rf"extra == ['\"]{extra}['\"]", line)]
    return f"pip install {' '.join(repr(each) for each in mine) or repr(f'searchformer[{extra}]')}"
