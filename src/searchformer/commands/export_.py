"""`searchformer export KIND`: models, data sets and searches for other people's tools."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

NewFile = Annotated[Path, Parameter(help="File to write.")]
Model = Annotated[Path, Parameter(help="A model directory, a training run, or the name of a packaged model.")]


def meta_checkpoint(model: Model, /, *, out: NewFile) -> None:
    """A model of one of the paper's sizes in the layout of the published checkpoints."""
    from searchformer.interop.meta_checkpoint import export_checkpoint
    from searchformer.pretrained import resolve_model

    export_checkpoint(resolve_model(model), out)
    print(f"{out}: {out.stat().st_size:,} bytes")
