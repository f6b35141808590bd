"""Libraries that only some adapters need: each is an extra of the package, and its absence is said in one line."""

from importlib import import_module
from typing import Any

from searchformer.errors import SearchformerError


def require(module: str, *, extra: str) -> Any:
    """The module, or an error that names the extra which installs it."""
    try:
        return import_module(module)
    except ImportError as error:
        if error.name and error.name.partition(".")[0] != module.partition(".")[0]:
            raise  # it is there, and broken in itself
        raise SearchformerError(f"{module} is not installed: pip install 'searchformer[{extra}]'") from None
