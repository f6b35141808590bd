"""The paper's published checkpoints: one in, a model directory out, and back, bit for bit.

A published `.ckpt` is a dict that PyTorch pickled. It is read without running any code: only the file format that
holds tensors beside the pickle is accepted, every name in the pickle is compared with a short list before anything is
unpickled, and `torch.load(weights_only=True)` maps the tensors into memory. Shapes are compared with the named size
before memory is taken. Try: `searchformer import meta-checkpoint FILE --vocabulary maze:10x10 --out DIR`.
"""

import math
import pickle
import pickletools
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from searchformer import __version__
from searchformer.errors import SearchformerError
from searchformer.files import new_directory, replacing
from searchformer.interop.published import SIZES, Language
from searchformer.model import ModelConfig, Transformer, load_model, make_config, read_model_config, save_model
from searchformer.model.rotary import rotary_table

PREFIX = "module.model."
ROPE = {".rope.cos_param": 0, ".rope.sin_param": 1}
"""How the names of the fixed tables end; which of cosines and sines they are."""
ANGLE_ERROR = 2.0**-22
"""An angle of float32 is off by this share of its position at most, however it is computed."""
MOST_PICKLE = 64 << 20
"""Bytes of the pickle inside of a checkpoint; the tensors lie beside it."""
STORAGES = {f"{kind}Storage" for kind in ("Float", "Half", "BFloat16", "Double", "Long", "Int", "Byte", "Bool")}
ALLOWED = {("torch._utils", "_rebuild_tensor_v2"), ("collections", "OrderedDict"), ("torch", "Size")}
ALLOWED |= {("torch", storage) for storage in STORAGES}
"""All that a pickle of plain values and tensors names."""
FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def import_checkpoint(file: Path, out: Path, *, language: Language, size: str | None = None) -> dict[str, Any]:
    """Write the model of a published checkpoint to `out`; returns what its `config.json` says of its training."""
    checkpoint = read_checkpoint(file)
    size = size or _named_size(file, checkpoint)
    config = make_config(size, vocabulary=len(language.vocabulary))
    weights = _checked_weights(file, checkpoint["model"], config, size)
    model = Transformer(config, device="meta")
    model.load_state_dict(weights, assign=True)
    published = {key: _plain(checkpoint.get(key)) for key in ("checkpoint_id", "config")}
    trained = {"size": size, "step": _plain(checkpoint.get("step")), **language.facts(), "published": published}
    with new_directory(out) as directory:
        save_model(model, language.vocabulary, directory, trained=trained)
    return trained


def export_checkpoint(directory: Path, file: Path) -> None:
    """Write the model in `directory` in the layout of the published checkpoints; it has no optimiser state."""
    config, trained = read_model_config(directory)
    names = {ours: theirs for theirs, ours in SIZES.items()}
    size = next((size for size in names if make_config(size, vocabulary=config.vocabulary) == config), None)
    if size is None:
        raise SearchformerError(
            f"{directory}: the published layout is for the sizes {', '.join(names)}; this network is none of them"
        )
    model, _ = load_model(directory, dtype=None)
    published = trained.get("published") or {}
    described = {"encoder": f"enc-{names[size]}", "decoder": f"dec-{names[size]}", "searchformer": __version__}
    checkpoint = {
        "checkpoint_id": published.get("checkpoint_id"),
        "step": trained.get("step", 0),
        "config": published.get("config") or described,
        "model": published_weights(dict(model.state_dict()), config),
        "optimizer": {},
    }
    with replacing(file) as temporary:
        torch.save(checkpoint, temporary)


def published_weights(weights: dict[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """Weights under their published names, with the rotary tables of every self-attention."""
    tables = [table[None, :, None, :].clone() for table in _tables(config)]
    named = {f"{PREFIX}{name}": weight for name, weight in weights.items()}
    for part in ("encoder", "decoder"):
        for layer in range(config.layers):
            for ending, kind in ROPE.items():
                named[f"{PREFIX}{part}.layers.{layer}.attention{ending}"] = tables[kind]
    return named


def read_checkpoint(file: Path) -> dict[str, Any]:
    """The dict in a checkpoint, its tensors mapped into memory; no code in the file is run."""
    _check_container(file)
    try:
        found = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # the unpickler lets everything through that a broken file can cause
        reason = " ".join(str(error).split())[:200]
        raise SearchformerError(f"{file} cannot be read as a checkpoint: {type(error).__name__}: {reason}") from None
    if not isinstance(found, dict) or not isinstance(found.get("model"), dict):
        raise SearchformerError(f"{file} is no published checkpoint: expected a dict with 'model'")
    wrong = [name for name, value in found["model"].items() if not (isinstance(name, str) and torch.is_tensor(value))]
    if wrong:
        raise SearchformerError(f"{file}: 'model' maps names to tensors; found {wrong[0]!r:.80}")
    return found


def _check_container(file: Path) -> None:
    """Raise unless the file is PyTorch's archive of stored parts, and its pickle names nothing but tensors."""
    try:
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            pickles = [entry for entry in entries if entry.filename.endswith("/data.pkl")]
            if len(pickles) != 1 or any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
                raise SearchformerError(f"{file} is a zip file, but not one that torch.save wrote")
            if pickles[0].file_size > MOST_PICKLE:
                raise SearchformerError(f"{file}: a checkpoint's pickle has at most {MOST_PICKLE:,} bytes")
            _check_names(file, archive.read(pickles[0]))
    except OSError as error:
        raise SearchformerError(f"cannot read {file}: {error.strerror or error}") from error
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError) as error:
        raise SearchformerError(f"{file} is not a checkpoint that torch.save wrote (version 1.6 or later)") from error


def _check_names(file: Path, data: bytes) -> None:
    try:
        for operation, argument, _ in pickletools.genops(data):
            name = tuple(str(argument).split(" ", 1))
            if operation.name in ("GLOBAL", "INST", "STACK_GLOBAL") and name not in ALLOWED:
                what = ".".join(name) if argument else "a computed name"
                raise SearchformerError(
                    f"{file} is refused: its pickle names {what}, and a checkpoint of weights names only tensors; "
                    "nothing of it was run"
                )
    except (ValueError, pickle.UnpicklingError, IndexError) as error:
        raise SearchformerError(f"{file} cannot be read as a checkpoint: its pickle is damaged ({error})") from None


def _named_size(file: Path, checkpoint: dict[str, Any]) -> str:
    """The size that the checkpoint's configuration names."""
    config = checkpoint.get("config")
    parts = config if isinstance(config, dict) else {}
    names = [str(parts.get(part)).removeprefix(f"{part[:3]}-") for part in ("encoder", "decoder")]
    if names[0] != names[1] or names[0] not in SIZES:
        raise SearchformerError(
            f"{file} does not say which size it is: expected config.encoder and config.decoder to be one of "
            f"{', '.join(SIZES)}; found {names}; say it with --size"
        )
    return SIZES[names[0]]


def _checked_weights(file: Path, found: dict[str, Tensor], config: ModelConfig, size: str) -> dict[str, Tensor]:
    """The weights under our names, once every name and shape is that of the size and the tables are ours."""
    expected = {name: weight.shape for name, weight in Transformer(config, device="meta").state_dict().items()}
    weights: dict[str, Tensor] = {}
    for name, tensor in found.items():
        own = name.removeprefix(PREFIX)
        ending = next((ending for ending in ROPE if own.endswith(ending)), None)
        if ending:
            _check_table(file, own, tensor, config, ROPE[ending])
        elif own not in expected:
            raise SearchformerError(f"{file}: a network of size {size} has no tensor {own!r}")
        elif tensor.shape != expected[own]:
            raise SearchformerError(_wrong_shape(file, own, tensor, expected[own], size))
        elif tensor.dtype not in FLOATS or tensor.dtype != next(iter(weights.values()), tensor).dtype:
            raise SearchformerError(f"{file}: {own} is of {tensor.dtype}; expected weights of one floating type")
        else:
            weights[own] = tensor
    if missing := expected.keys() - weights.keys():
        raise SearchformerError(f"{file}: {len(missing)} tensors are missing, such as {min(missing)}")
    return weights


def _wrong_shape(file: Path, name: str, found: Tensor, expected: torch.Size, size: str) -> str:
    other_tokens = found.shape[1:] == expected[1:]  # tensors with a row per token are the only ones that differ so
    advice = "is --vocabulary the right one?" if other_tokens else "is it another size?"
    return f"{file}: {name} has the shape {list(found.shape)}, in a network of size {size} {list(expected)}; {advice}"


def _check_table(file: Path, name: str, found: Tensor, config: ModelConfig, kind: int) -> None:
    """Raise unless a stored rotary table is the one that we compute, up to the rounding of large angles."""
    positions, half = config.positions, config.head_dim // 2
    if found.shape != (1, positions, 1, half):
        raise SearchformerError(f"{file}: {name} has the shape {list(found.shape)}; expected {[1, positions, 1, half]}")
    error = (found[0, :, 0, :].double() - _tables(config)[kind].double()).abs()
    allowed = 1e-6 + ANGLE_ERROR * torch.arange(positions, dtype=torch.float64)[:, None]
    if not bool((error <= allowed).all()):
        raise SearchformerError(f"{file}: {name} is not the table of rotary positions with theta {config.rope_theta:g}")


def _tables(config: ModelConfig) -> tuple[Tensor, Tensor]:
    return rotary_table(config.positions, config, torch.device("cpu"))


def _plain(value: Any, depth: int = 0) -> Any:
    """What JSON can hold of a configuration from outside; other things as short text."""
    if isinstance(value, dict) and depth < 16:
        return {str(key): _plain(each, depth + 1) for key, each in value.items()}
    if isinstance(value, list | tuple) and depth < 16:
        return [_plain(each, depth + 1) for each in value]
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return f"{type(value).__name__}"
