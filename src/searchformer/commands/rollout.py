"""`searchformer rollout`: a model and a data set in, a directory of answers out."""

import json
from typing import Annotated

from searchformer.commands.options import Flat, Json
from searchformer.engines.options import EngineOptions, make_engine
from searchformer.rollout.options import RolloutOptions


def run(
    *,
    options: Annotated[RolloutOptions, Flat],
    where: Annotated[EngineOptions, Flat] = EngineOptions(),
    as_json: Json = False,
) -> None:
    """Sample many answers per task with a trained model.

    If it is interrupted, run the same command again to continue.
    """
    from searchformer.addresses import at_hand
    from searchformer.commands.progress import TerminalDisplay
    from searchformer.pretrained import resolve_model
    from searchformer.rollout.dispatch import roll_out

    with at_hand(options, reads=("model", "data"), writes=("out",)) as here:
        here = here.model_copy(update={"model": resolve_model(here.model)})
        summary = roll_out(here, display=TerminalDisplay(), engine=make_engine(where))
    if as_json:
        print(json.dumps(summary))
    else:
        state = "complete" if summary["complete"] else "waiting for other ranks"
        print(
            f"{options.out}: {summary['answers']:,} answers ({summary['answers_before']:,} were there), "
            f"{summary['tokens']:,} tokens, {summary['tokens_per_second']:,.0f} tokens/s, "
            f"{summary['peak_memory_gb']:.2f} GB; {state}"
        )
