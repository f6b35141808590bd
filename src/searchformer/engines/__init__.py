"""Where maps over shards run: processes of this machine, or a Ray cluster. See `base.py` for what an engine is."""

from searchformer.engines.base import Engine
from searchformer.engines.local import LocalEngine
from searchformer.engines.options import EngineOptions, make_engine

__all__ = ["Engine", "EngineOptions", "LocalEngine", "make_engine"]
