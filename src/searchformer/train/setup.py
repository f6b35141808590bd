"""What a run needs before its first step: sequences, first weights, and a check that they fit each other."""

import os
import shutil
from pathlib import Path
from typing import Any, TypeVar

import torch

from searchformer.dataset.batches import Sequences
from searchformer.dataset.store import Dataset
from searchformer.domains import make_domain
from searchformer.errors import SearchformerError
from searchformer.files import read_json
from searchformer.model import Transformer, load_model, make_config
from searchformer.seeding import child_seed
from searchformer.tokens.steps import places_of, token_kinds
from searchformer.train.options import TrainOptions
from searchformer.train.precision import Precision, choose_precision
from searchformer.train.processes import Processes

T = TypeVar("T")


def known(value: T | None) -> T:
    """An option that `TrainOptions.resolved` has filled in."""
    assert value is not None
    return value


def open_sequences(dataset: Dataset, options: TrainOptions, processes: Processes) -> tuple[Sequences, Sequences | None]:
    """Training sequences, and if any evaluation is asked for those to evaluate on: validation or test tasks.

    The first process unpacks the data set while the others wait.
    """

    def opened() -> tuple[Sequences, Sequences | None]:
        common: dict[str, Any] = options.model_dump(include={"plan_only", "max_trace_tokens", "cache"})
        training = Sequences(dataset, "train", count=options.sequences, hold_out=options.validation, **common)
        if options.validation:
            return training, Sequences(dataset, "train", hold_out=options.validation, held_out=True, **common)
        evaluating = options.eval_every or options.exact_every
        return training, Sequences(dataset, "test", **common) if evaluating else None

    found = opened() if processes.is_first else None
    processes.from_first(None)
    return found or opened()


def first_model(dataset: Dataset, options: TrainOptions) -> Transformer:
    """A model with weights drawn from the seed, or the one to fine-tune."""
    if options.init_from is None:
        generator = torch.Generator().manual_seed(child_seed(options.seed, "weights") >> 1)
        manifest = dataset.manifest
        places = places_of(make_domain(manifest.domain, manifest.settings))
        config = make_config(options.model, vocabulary=len(dataset.vocabulary), places=places)
        kinds = token_kinds(dataset.vocabulary) if config.unit == "step" else None
        return Transformer(config, generator=generator, kinds=kinds)
    model, vocabulary = load_model(model_directory(options.init_from))
    dataset.vocabulary.require_same(
        vocabulary, mine=f"data set {options.data}", theirs=f"checkpoint {options.init_from}"
    )
    return model


def model_directory(path: Path) -> Path:
    """`path` itself, or its folder `model` where `path` is a training run."""
    return path / "model" if (path / "model").is_dir() else path


def check_lengths(model: Transformer, *selections: Sequences | None, data: Path) -> None:
    """Raise if a sequence is longer than the model's limit."""
    limit = model.config.positions
    for sequences in filter(None, selections):
        longest = max(int(sequences.prompt_lengths.max()), int(sequences.response_lengths.max()) - 1)
        if longest > limit:
            raise SearchformerError(
                f"{data} has a sequence of {longest} tokens, the model's limit is {limit}; lower --max-trace-tokens"
            )


def settle_precision(options: TrainOptions, model: Transformer, out: Path, processes: Processes) -> Precision:
    """The precision that the run in `out` was begun with; for a new run, what the first process finds best."""
    config = out / "config.json"
    if options.precision == "auto" and config.exists():
        stored = read_json(config, what="training run").get("resolved_precision")
        if stored in ("fp32", "bf16"):
            return stored
    return processes.from_first(choose_precision(options.precision, model.config, processes.device))


def compile_blocks(model: Transformer, device: torch.device) -> None:
    """torch.compile block by block: all layers share the code of one, and no length of sequences needs its own."""
    if device.type == "cpu" and not any(map(shutil.which, (os.environ.get("CXX", "g++"), "clang++"))):
        raise SearchformerError("--compile needs a C++ compiler on the CPU, and neither g++ nor clang++ was found")
    for block in (*model.encoder.layers, *model.decoder.layers):
        block.compile(dynamic=True)
