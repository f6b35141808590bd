"""Sampling answers: the engine, its readable twin, and the directory that answers are kept in.

Names are loaded when they are first used: what only reads answers (`rollout.store`) must not load torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from searchformer.rollout.dispatch import roll_out
    from searchformer.rollout.engine import Engine
    from searchformer.rollout.naive import sample_naively
    from searchformer.rollout.options import RolloutOptions
    from searchformer.rollout.requests import Answer, Prompt, Sampling

_MODULES = {
    "Answer": "requests",
    "Engine": "engine",
    "Prompt": "requests",
    "RolloutOptions": "options",
    "Sampling": "requests",
    "roll_out": "dispatch",
    "sample_naively": "naive",
}

__all__ = ["Answer", "Engine", "Prompt", "RolloutOptions", "Sampling", "roll_out", "sample_naively"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
