"""Tensors in a safetensors file that knows whether it is whole: its header holds the digest of all there is in it."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from searchformer.errors import SearchformerError, cut
from searchformer.files import replacing

DIGEST = "content_digest"
"""Key of the header's digest; files of older versions, and those of other programs, have none."""


def save_tensors(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, str] | None = None) -> None:
    """Write the file, whole or not at all."""
    on_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    header = dict(header or {})
    with replacing(path) as temporary:
        try:
            save_file(on_cpu, temporary, metadata=header | {DIGEST: _content_digest(on_cpu, header)})
        except SafetensorError as error:
            raise SearchformerError(f"cannot write {path}: {cut(str(error))}") from error


def load_tensors(path: Path, *, repair: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and header; raises, naming the file and how to `repair` it, unless it is as it was written."""
    try:
        with safe_open(path, framework="pt") as file:
            header = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise SearchformerError(f"{path} is missing; {repair}") from None
    except (OSError, SafetensorError, ValueError, RuntimeError) as error:
        raise SearchformerError(f"{path} cannot be read: {cut(str(error))}; {repair}") from error
    expected = header.pop(DIGEST, None)
    if expected is not None and expected != _content_digest(tensors, header):
        raise SearchformerError(f"{path} was altered: its content is not what its digest says; {repair}")
    return tensors, header


def _content_digest(tensors: Mapping[str, Tensor], header: Mapping[str, str]) -> str:
    """BLAKE2b-128 of the header and of every tensor with its name, type and shape, as hex."""
    hasher = hashlib.blake2b(json.dumps(header, sort_keys=True).encode(), digest_size=16)
    for name, tensor in sorted(tensors.items()):
        hasher.update(f"\n{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        hasher.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return hasher.hexdigest()
