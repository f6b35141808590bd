"""Which device to compute on, and what numbers it can compute with. Every command that takes `--device` asks here."""

import os

import torch

from searchformer.errors import SearchformerError
from searchformer.model.config import SMALL_DIM


def choose_device(name: str, local_rank: int = 0) -> torch.device:
    """The device that `name` asks for; `auto` takes the first there is of cuda, mps and cpu."""
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(kind for kind, there in available.items() if there)
    if name not in available:
        raise SearchformerError(f"a device is one of auto, {', '.join(available)}; found {name!r}")
    if not available[name]:
        raise SearchformerError(f"device {name} was asked for, but torch {torch.__version__} finds none here; use cpu")
    return torch.device(name, local_rank) if name == "cuda" else torch.device(name)


def use_fitting_threads(dim: int, device: torch.device) -> None:
    """One thread for a small network on the CPU, unless OMP_NUM_THREADS says how many: several wait for each other."""
    if device.type == "cpu" and dim <= SMALL_DIM and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)


def has_bf16(device: torch.device) -> bool:
    """Whether the device itself multiplies bfloat16 matrices; emulated products are slower than float32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type == "cpu":
        import llvmlite.binding  # type: ignore[import-untyped]

        features = llvmlite.binding.get_host_cpu_features()
        return any(features.get(name, False) for name in ("avx512bf16", "amx-bf16", "bf16"))
    return False


def check_precision(precision: str, device: torch.device) -> None:
    """Raise if the device cannot compute with the precision asked for."""
    if precision == "bf16" and device.type == "mps":
        raise SearchformerError("--precision bf16 is not available on mps; use fp32")


def widest_float(device: torch.device) -> torch.dtype:
    """The most exact floating-point numbers that the device has: float64, or float32 on mps."""
    return torch.float32 if device.type == "mps" else torch.float64
