"""The options that choose an engine; nothing heavy is loaded for them."""

from typing import Annotated, Literal

from searchformer.engines.base import Engine
from searchformer.options import MayChange, OptionsModel


class EngineOptions(OptionsModel):
    """Where the work is done. The result is the same."""

    engine: Annotated[Literal["local", "ray"], MayChange] = "local"
    """local: processes on this machine; ray: a Ray cluster whose machines all see the directories used."""
    ray_address: Annotated[str | None, MayChange] = None
    """Address of the Ray cluster, such as 10.0.0.1:6379; if left out, RAY_ADDRESS, or else a new one here."""


def make_engine(options: EngineOptions) -> Engine:
    """The engine that the options ask for."""
    if options.engine == "ray":
        from searchformer.engines.ray import RayEngine

        return RayEngine(options.ray_address)
    from searchformer.engines.local import LocalEngine

    return LocalEngine()
