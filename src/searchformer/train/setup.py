"""What a run needs before its first step: sequences, first weights, precision, and a check that they fit together."""

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch

from searchformer.dataset.batches import Sequences
from searchformer.dataset.store import Dataset
from searchformer.errors import SearchformerError
from searchformer.files import read_json
from searchformer.model import Transformer, load_model, make_config
from searchformer.model.config import ModelConfig
from searchformer.seeding import child_seed
from searchformer.tokens.steps import token_kinds
from searchformer.train.options import TrainOptions
from searchformer.train.precision import Precision, choose_precision
from searchformer.train.processes import Processes


def open_sequences(dataset: Dataset, options: TrainOptions, processes: Processes) -> tuple[Sequences, Sequences | None]:
    """Training sequences, and those to evaluate on (validation or test tasks) if there are to be evaluations.

    The first process unpacks the data set while the others wait.
    """

    def opened() -> tuple[Sequences, Sequences | None]:
        common: dict[str, Any] = options.model_dump(include={"plan_only", "max_trace_tokens", "cache"})
        training = Sequences(dataset, "train", count=options.sequences, hold_out=options.validation, **common)
        if options.validation:
            return training, Sequences(dataset, "train", hold_out=options.validation, held_out=True, **common)
        evaluating = options.eval_every or options.exact_every
        return training, Sequences(dataset, "test", **common) if evaluating else None

    if processes.world > 1:
        processes.from_first(lambda: opened() and None)
    return opened()


def first_model(dataset: Dataset, train_set: Sequences, options: TrainOptions, processes: Processes) -> Transformer:
    """A model with weights drawn from the seed, or the one to fine-tune, which only the first process reads."""
    if options.init_from is None:
        generator = torch.Generator().manual_seed(child_seed(options.seed, "weights") >> 1)
        config = make_config(options.model, vocabulary=len(dataset.vocabulary))
        if config.unit == "step":
            places, prompt_places = train_set.longest_pieces(token_kinds(dataset.vocabulary))
            config = config.model_copy(update={"places": places, "prompt_places": prompt_places})
        return Transformer(config, generator=generator, kinds=kinds_for(config, dataset))
    loaded: list[Transformer] = []

    def load() -> ModelConfig:
        assert options.init_from is not None
        model, vocabulary = load_model(model_directory(options.init_from))
        dataset.vocabulary.require_same(
            vocabulary, mine=f"data set {options.data}", theirs=f"checkpoint {options.init_from}"
        )
        loaded.append(model)
        return model.config

    config = processes.from_first(load)
    return loaded[0] if loaded else Transformer(config, kinds=kinds_for(config, dataset))


def kinds_for(config: ModelConfig, dataset: Dataset) -> np.ndarray | None:
    """The kinds of the data set's tokens, which a step network needs to know."""
    return token_kinds(dataset.vocabulary) if config.unit == "step" else None


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


def run_precision(options: TrainOptions, config: ModelConfig, out: Path, device: torch.device) -> Precision:
    """The precision that the run in `out` was started with; for a new run, the one asked for or the best here."""
    if options.precision == "auto" and (out / "config.json").exists():
        stored = read_json(out / "config.json", what="training run").get("resolved_precision")
        if stored in ("fp32", "bf16"):
            return stored
    return choose_precision(options.precision, config, device)


def compile_blocks(model: Transformer, device: torch.device) -> None:
    """torch.compile block by block: all layers share the code of one, and no length of sequences needs its own."""
    if device.type == "cpu" and not any(map(shutil.which, (os.environ.get("CXX", "g++"), "clang++"))):
        raise SearchformerError("--compile needs a C++ compiler on the CPU, and neither g++ nor clang++ was found")
    for block in (*model.encoder.layers, *model.decoder.layers):
        block.compile(dynamic=True)
