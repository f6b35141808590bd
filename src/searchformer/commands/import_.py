"""`searchformer import KIND`: other people's checkpoints, data sets and tasks in."""

import json
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from searchformer.commands.options import Json

NewDirectory = Annotated[Path, Parameter(help="Directory to write; it must not hold anything yet.")]
LANGUAGE = "Its tokens: maze:WxH, sokoban, or a vocabulary.json, data set or model that has them."


def meta_checkpoint(
    file: Annotated[Path, Parameter(help="A published .ckpt file.")],
    /,
    *,
    vocabulary: Annotated[str, Parameter(help=LANGUAGE)],
    out: NewDirectory,
    size: Annotated[str | None, Parameter(help="15M, 46M, 175M or 747M; what the file says if left out.")] = None,
    as_json: Json = False,
) -> None:
    """A published checkpoint as a model directory. No code in the file is run."""
    from searchformer.interop.meta_checkpoint import import_checkpoint
    from searchformer.interop.published import read_language

    trained = import_checkpoint(file, out, language=read_language(vocabulary), size=size)
    if as_json:
        print(json.dumps({"out": str(out), **trained}))
    else:
        print(f"{out}: size {trained['size']}, step {trained['step']}")
