"""`searchformer train`: a data set in, a trained model out."""

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from searchformer.commands.options import Flat, Json
from searchformer.errors import SearchformerError
from searchformer.options import OptionsModel
from searchformer.train.options import ProcessCount, TrainOptions

Trackers = Annotated[
    tuple[Literal["tensorboard", "trackio"], ...],
    Parameter(name="--tracker", help="Also log to tensorboard or trackio; may be repeated."),
]


class TogetherOptions(OptionsModel):
    """How many processes share the work."""

    processes: ProcessCount = 1


def run(
    *,
    options: Annotated[TrainOptions, Flat],
    together: Annotated[TogetherOptions, Flat] = TogetherOptions(),
    out: Annotated[Path, Parameter(help="Directory of the run; run the same command again to continue.")],
    trackers: Trackers = (),
    plot: Annotated[bool, Parameter(help="Draw the run's curves into curves.png at the end.")] = False,
    bootstrap_round: Annotated[int, Parameter(show=False)] = 0,
    as_json: Json = False,
) -> None:
    """Train an encoder-decoder Transformer on a data set, or continue an unfinished run."""
    _require_size(options.model)
    if together.processes > 1 and "RANK" not in os.environ:
        words = [*options.words(), f"--out={out}", *(f"--tracker={tracker}" for tracker in trackers)]
        words += [word for word, asked in (("--plot", plot), ("--json", as_json)) if asked]
        return _run_together(words, options, out, processes=together.processes)
    from searchformer.addresses import at_hand, working_copy
    from searchformer.commands.progress import TerminalDisplay
    from searchformer.commands.train_answers import greedy_match
    from searchformer.pretrained import resolve_model
    from searchformer.train import train
    from searchformer.train.curves import plot_curves
    from searchformer.train.log import make_trackers

    reads = ("data", "init_from")
    if int(os.environ.get("RANK", "0")):
        with at_hand(options, reads=reads) as asked:
            train(asked, out, bootstrap_round=bootstrap_round)
        return
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


def _require_size(model: str) -> None:
    """Raise if the model is one that exists: elsewhere `--model` takes those, here it is the size of a new one."""
    from searchformer.model.config import SIZES
    from searchformer.pretrained import models_of, packaged_models

    if model in SIZES:  # even beside a run of that name
        return
    if models_of(Path(model)) or model in (each.name for each in packaged_models()):
        raise SearchformerError(f"--model is the size of a new network; --init-from {model} fine-tunes that model")


def _run_together(words: list[str], options: TrainOptions, out: Path, *, processes: int) -> None:
    """Train in several processes of this machine; exits as they did, having said what they said."""
    from searchformer.addresses import at_hand
    from searchformer.dataset.store import Dataset
    from searchformer.train.launch import launch, telling_the_saved_step

    with at_hand(options, reads=("data",)) as asked:
        Dataset(asked.data)  # all processes would tell that it is missing
    with telling_the_saved_step(out):
        code = launch([sys.executable, "-m", "searchformer", "train", *words], processes=processes, keep_stdout=True)
    if code:
        raise SystemExit(code)
