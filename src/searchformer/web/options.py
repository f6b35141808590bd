"""The options of `searchformer serve`."""

from pathlib import Path

from pydantic import Field

from searchformer.options import OptionsModel
from searchformer.web.records import MAX_TOKENS


class ServeOptions(OptionsModel):
    """Where the app is served, what it offers, and how much it may use."""

    host: str = "127.0.0.1"
    """Address to listen on. Any other than this computer's own lets other people use the app: there is no password."""
    port: int = Field(default=8080, ge=0, le=65535)
    """Port to listen on; 0 takes a free one."""
    name: tuple[str, ...] = ()
    """Another host name that the server answers to; may be repeated."""
    model: Path | None = None
    """The model to ask first: a model directory, a run that has made one, or the name of a packaged model."""
    run: tuple[Path, ...] = ()
    """A run directory to open in the browser; may be repeated."""
    slots: int = Field(default=64, ge=1)
    """Answers sampled at the same time, per model."""
    cache_gb: float = Field(default=1.0, gt=0)
    """Memory limit for keys and values, in GB, per model."""
    max_tokens: int = Field(default=MAX_TOKENS, ge=16, le=MAX_TOKENS)
    """Longer answers are cut."""
    max_seconds: float = Field(default=120.0, gt=0)
    """A question that takes longer is stopped."""
    device: str = "auto"
    """auto, cpu, cuda or mps."""
