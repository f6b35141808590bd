"""`searchformer merge`: one data set made of several."""

import json
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from searchformer.commands.options import Json


def run(
    *sources: Annotated[Path, Parameter(help="Two or more data sets.")],
    out: Annotated[Path, Parameter(help="Directory for the data set.")],
    as_json: Json = False,
) -> None:
    """Merge data sets of one domain and one vocabulary, so that a model can learn tasks of different kinds at once.

    For example, Sokoban with one box and with two: generate both with the same --max-cost, so that they share a
    vocabulary.
    """
    from searchformer.dataset.merge import merge

    manifest = merge(sources, out)
    counts = manifest.counts
    if as_json:
        print(json.dumps({"out": str(out), "counts": counts, "longest": manifest.longest}))
    else:
        print(f"{out}: {counts['train']:,} training and {counts['test']:,} test tasks")
