"""Transformers that learn to plan by imitating A*, then search less than A* does.

The names below are loaded when they are first used, so that `import searchformer` takes no time.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from searchformer.api import generate, judge, load, load_dataset, sample, trace
    from searchformer.domains import Domain, make_domain
    from searchformer.interop.tasks import read_tasks
    from searchformer.solve import solve

__version__ = "0.1.0"
__all__ = [
    "Domain",
    "__version__",
    "generate",
    "judge",
    "load",
    "load_dataset",
    "make_domain",
    "read_tasks",
    "sample",
    "solve",
    "trace",
]

_MODULES = {"Domain": "domains", "make_domain": "domains", "read_tasks": "interop.tasks"}
"""Where a name is; those that are not here are in `api`. `solve` is a room that can be called."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "solve":
        return import_module("searchformer.solve")
    return getattr(import_module(f"searchformer.{_MODULES.get(name, 'api')}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
