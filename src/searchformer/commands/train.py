"""`searchformer train`: a data set in, a trained model out."""

import json
import os
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from searchformer.commands.options import Flat, Json
from searchformer.train.options import TrainOptions

Trackers = Annotated[
    tuple[Literal["tensorboard", "trackio"], ...],
    Parameter(name="--tracker", help="Also log to tensorboard or trackio; may be given twice."),
]


def run(
    *,
    options: Annotated[TrainOptions, Flat],
    out: Annotated[Path, Parameter(help="Directory of the run; run the same command again to continue.")],
    trackers: Trackers = (),
    plot: Annotated[bool, Parameter(help="Draw the run's curves into curves.png at the end.")] = False,
    bootstrap_round: Annotated[int, Parameter(show=False)] = 0,
    as_json: Json = False,
) -> None:
    """Train an encoder-decoder Transformer on a data set, or continue an unfinished run."""
    from searchformer.addresses import at_hand, working_copy
    from searchformer.commands.progress import TerminalDisplay
    from searchformer.commands.train_answers import greedy_match
    from searchformer.pretrained import resolve_model
    from searchformer.train import train
    from searchformer.train.curves import plot_curves
    from searchformer.train.log import make_trackers
    from searchformer.train.processes import end_process

    reads = ("data", "init_from")
    if int(os.environ.get("RANK", "0")):
        with at_hand(options, reads=reads) as asked:
            train(asked, out, bootstrap_round=bootstrap_round)
        return end_process()
    with at_hand(options, reads=reads) as asked, working_copy(out) as here:
        if asked.init_from is not None:  # only the first process reads that model
            asked = asked.model_copy(update={"init_from": resolve_model(asked.init_from)})
        listeners = make_trackers(trackers, here)
        result = train(
            asked,
            here,
            listeners=listeners,
            display=TerminalDisplay(),
            exact_match=greedy_match,
            bootstrap_round=bootstrap_round,
        )
        summary: dict[str, Any] = {"model": str(result.model), "step": result.step, "parameters": result.parameters}
        summary |= result.last
        if plot:
            summary["plot"] = str(plot_curves(here))
        for listener in listeners:
            listener.close()
    if as_json:
        print(json.dumps(summary))
    else:
        print(f"{result.model}: {result.parameters:,} parameters, step {result.step}")
    end_process()
