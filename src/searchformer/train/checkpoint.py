"""The state of a run in one file, replaced whole: weights, optimiser, generator, step and data position.

A run that is killed at any moment finds here either the last state or the one before, and goes on from it as if it had
never been killed. The file is safetensors; its header holds the numbers and the options it belongs to.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from searchformer.errors import SearchformerError
from searchformer.files import make_directory, replacing
from searchformer.train.options import TrainOptions

FILE_NAME = "state.safetensors"


@dataclass(frozen=True)
class State:
    """What a run goes on from, besides its options."""

    step: int
    """Optimiser steps done."""
    data_position: int
    """Number of the next batch."""
    tensors: dict[str, Tensor]
    """`weights`, the optimiser's state (all flat), and torch's generator as `generator`.

    Runs with validation tasks also have `best_weights` and `best`: loss, step, evaluations since."""


def save_state(state: State, directory: Path, *, result_fields: dict[str, Any]) -> None:
    """Replace the checkpoint in `directory`; if that fails, the one before is still there."""
    header = {
        "step": str(state.step),
        "data_position": str(state.data_position),
        "options": json.dumps(result_fields, sort_keys=True),
    }
    make_directory(directory)
    try:
        with replacing(directory / FILE_NAME) as temporary:
            save_file({name: tensor.cpu() for name, tensor in state.tensors.items()}, temporary, metadata=header)
    except (SafetensorError, SearchformerError) as error:
        kept = "the one before is still there" if (directory / FILE_NAME).exists() else "there is none yet"
        raise SearchformerError(f"cannot write the checkpoint of step {state.step} ({error}); {kept}") from error


def load_state(directory: Path, *, result_fields: dict[str, Any]) -> State | None:
    """The checkpoint in `directory`, if there is one; it must come from a run with the same options."""
    path = directory / FILE_NAME
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise SearchformerError(f"{path} cannot be read: {error}; remove it to start again") from error
    _require_same(json.loads(header["options"]), result_fields, path)
    return State(step=int(header["step"]), data_position=int(header["data_position"]), tensors=tensors)


def _require_same(stored: dict[str, Any], asked: dict[str, Any], path: Path) -> None:
    later = {name: field.default for name, field in TrainOptions.model_fields.items() if name in asked}
    stored = later | stored  # options that came after the checkpoint was written were at their defaults
    different = [name for name in sorted(stored | asked) if stored.get(name) != asked.get(name)]
    if different:
        changes = ", ".join(f"{name} {stored.get(name)!r} -> {asked.get(name)!r}" for name in different)
        raise SearchformerError(
            f"{path.parent.parent} holds a run with other options ({changes}); use another --out, or the same options"
        )


def generator_state() -> Tensor:
    """State of torch's global generator."""
    return torch.get_rng_state()
