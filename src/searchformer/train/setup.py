"""What a run needs before its first step: sequences, first weights, precision, and a check that they fit together."""

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch

from searchformer.dataset.batches import Batch, Sequences
from searchformer.dataset.store import Dataset
from searchformer.errors import SearchformerError
from searchformer.files import read_json
from searchformer.model import Transformer, load_model, make_config, with_symbols
from searchformer.model.config import ModelConfig
from searchformer.seeding import child_seed
from searchformer.tokens.steps import token_kinds
from searchformer.tokens.symbols import Symbols, costs_of, symbols_for
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
        if config.unit == "token":
            return Transformer(config, generator=generator)
        symbols, longest = _symbols_of(dataset, train_set), train_set.longest_pieces(token_kinds(dataset.vocabulary))
        config = config.fitted(**longest, symbols=symbols.count)
        return Transformer(config, generator=generator, vocabulary=dataset.vocabulary, symbols=symbols)
    loaded: list[Transformer] = []

    def load() -> tuple[ModelConfig, Symbols]:
        assert options.init_from is not None
        model, vocabulary = load_model(model_directory(options.init_from))
        dataset.vocabulary.require_same(
            vocabulary, mine=f"data set {options.data}", theirs=f"checkpoint {options.init_from}"
        )
        loaded.append(model)
        return model.config, model.symbols

    config, symbols = processes.from_first(load)
    if config.unit == "token":
        return loaded[0] if loaded else Transformer(config)
    model = loaded[0] if loaded else Transformer(config, vocabulary=dataset.vocabulary, symbols=symbols)
    shared = symbols.shared & _symbols_of(dataset, train_set).shared
    return model if (shared == symbols.shared).all() else with_symbols(model, Symbols.sharing(shared))


def _symbols_of(dataset: Dataset, train_set: Sequences) -> Symbols:
    """What a step network has to tell apart to learn these sequences."""
    costs = costs_of(dataset.vocabulary)
    return symbols_for(costs, train_set.highest_cost(costs))


def model_directory(path: Path) -> Path:
    """`path` itself, or its folder `model` where `path` is a training run."""
    return path / "model" if (path / "model").is_dir() else path


def check_lengths(model: Transformer, *selections: Sequences | None, data: Path) -> None:
    """Raise if a sequence is longer than the model's limit."""
    limit = model.config.positions
    for sequences in filter(None, selections):
        tokens = np.maximum(sequences.prompt_lengths, sequences.response_lengths - 1)
        for index in np.argsort(-tokens)[: (tokens > limit).sum()]:
            longest = _positions(model, sequences.batch(index[None]))
            if longest > limit:
                raise SearchformerError(
                    f"{data} has a sequence of {longest} {model.config.unit}s, the model's limit is {limit}; "
                    "lower --max-trace-tokens"
                )


def _positions(model: Transformer, batch: Batch) -> int:
    """Positions that the longest prompt or response takes; eos is written but not read."""
    prompts, responses = batch.prompt_lengths, batch.response_lengths - 1
    if model.cutter is not None:
        symbols = model.symbols.of_token
        prompts = model.cutter.prompts(symbols[batch.prompts], batch.prompt_lengths).counts
        responses = model.cutter.responses(symbols[batch.responses], batch.response_lengths).counts
    return int(max(prompts.max(), responses.max()))


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
