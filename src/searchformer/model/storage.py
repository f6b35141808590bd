"""A model on disk: a directory of `model.safetensors`, `config.json` and `vocabulary.json`, each whole or absent."""

from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError

from searchformer.errors import SearchformerError, cut
from searchformer.files import make_directory, read_json, write_json
from searchformer.model.config import ModelConfig, first_error
from searchformer.model.tensors import load_tensors, save_tensors
from searchformer.model.transformer import Transformer
from searchformer.tokens.vocabulary import Vocabulary

WEIGHTS, CONFIG = "model.safetensors", "config.json"


def save_model(model: Transformer, vocabulary: Vocabulary, directory: Path | str, *, trained: dict[str, Any]) -> None:
    """Write the model; `trained` says how it came to be (size, data, seed, step, ...)."""
    directory = make_directory(Path(directory))
    save_tensors(directory / WEIGHTS, model.state_dict())
    vocabulary.save(directory)
    shape = model.config.stored()
    write_json(directory / CONFIG, {"shape": shape, "vocabulary_digest": vocabulary.digest, "trained": trained})


def read_model_config(directory: Path | str) -> tuple[ModelConfig, dict[str, Any]]:
    """The shape of the model in `directory`, and what it says of its training; no weights are read."""
    path = Path(directory) / CONFIG
    stored = read_json(path, what="model")
    try:
        return ModelConfig.from_stored(stored["shape"]), dict(stored["trained"])
    except SearchformerError as error:
        raise SearchformerError(f"{path}: {error}") from None
    except ValidationError as error:
        raise SearchformerError(f"{path} does not describe a model: {first_error(error)}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SearchformerError(
            f"{path} does not describe a model: it needs the fields 'shape' and 'trained' ({cut(str(error))})"
        ) from error


def load_model(
    directory: Path | str, *, device: str | torch.device = "cpu", dtype: torch.dtype | None = torch.float32
) -> tuple[Transformer, Vocabulary]:
    """Read a model and its vocabulary, and check that they belong together. `dtype` None keeps the stored one."""
    directory = Path(directory)
    config, _ = read_model_config(directory)
    vocabulary = Vocabulary.load(directory)
    digest = read_json(directory / CONFIG, what="model").get("vocabulary_digest")
    if digest != vocabulary.digest or len(vocabulary) != config.vocabulary:
        raise SearchformerError(
            f"{directory}: the model was trained with a vocabulary of {config.vocabulary} tokens ({str(digest)[:8]}), "
            f"vocabulary.json has {len(vocabulary)} ({vocabulary.digest[:8]}): restore the model's own"
        )
    weights, _ = load_tensors(directory / WEIGHTS, repair="restore the file, or train the model again")
    _check_unit(directory, config, "step" if "token_kinds" in weights else "token")
    model = Transformer(config, device="meta")
    try:
        model.load_state_dict(weights, assign=True)
    except RuntimeError as error:
        reason = cut(" ".join(str(error).splitlines()[1:2]))
        raise SearchformerError(f"{directory / WEIGHTS} does not hold the weights of this model: {reason}") from error
    return model.to(device=device, dtype=dtype), vocabulary


def _check_unit(directory: Path, config: ModelConfig, found: str) -> None:
    """Raise unless the weights are those of the kind of network that the configuration describes."""
    if found != config.unit:
        raise SearchformerError(
            f"{directory}: {CONFIG} describes a {config.unit} network, {WEIGHTS} holds the weights of a {found} "
            "network: restore the files that were written together"
        )
