"""The state of a run in one file, replaced as a whole: weights, optimiser and step.

A run that is killed at any moment leaves either this state or the one before it, and continues from there as if it had
never been killed. The file is safetensors; its header holds the step and the options of the run.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from searchformer.errors import SearchformerError
from searchformer.files import make_directory, parse_json, require_same
from searchformer.model.tensors import load_tensors, save_tensors
from searchformer.train.options import TrainOptions

FILE_NAME = "state.safetensors"
REPAIR = "remove it to start the run again"


@dataclass(frozen=True)
class State:
    """What a run continues from, besides its options."""

    step: int
    """Optimiser steps done; the next batch has this number."""
    tensors: dict[str, Tensor]
    """`weights` and the optimiser's state, all flat.

    Runs with validation tasks also have `best_weights` and `best`: loss, step, evaluations since."""


def save_state(state: State, directory: Path, *, result_fields: dict[str, Any]) -> None:
    """Replace the checkpoint in `directory`; if that fails, the previous one is still there."""
    header = {"step": str(state.step), "options": json.dumps(result_fields, sort_keys=True)}
    make_directory(directory)
    try:
        save_tensors(directory / FILE_NAME, state.tensors, header)
    except SearchformerError as error:
        kept = "the previous one is still there" if (directory / FILE_NAME).exists() else "there is none yet"
        raise SearchformerError(f"cannot write the checkpoint of step {state.step} ({error}); {kept}") from error


def load_state(directory: Path, *, result_fields: dict[str, Any]) -> State | None:
    """The checkpoint in `directory`, if there is one; it must come from a run with the same options."""
    path = directory / FILE_NAME
    if not path.exists():
        return None
    tensors, header = load_tensors(path, repair=REPAIR)
    if not {"step", "options"} <= header.keys() or not header["step"].isdecimal() or len(header["step"]) > 18:
        raise SearchformerError(f"{path} is no checkpoint: its header lacks the step or the options; {REPAIR}")
    defaults = {name: field.default for name, field in TrainOptions.model_fields.items()}
    # options that are newer than the checkpoint had their defaults
    found = defaults | parse_json(header["options"], where=f"{path}: the options in its header")
    require_same(found, result_fields, where=directory.parent, what="a training run")
    return State(step=int(header["step"]), tensors=tensors)
