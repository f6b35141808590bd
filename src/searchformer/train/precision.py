"""Matrix products in bfloat16 with weights, sums and everything else in float32.

On the CPU each linear map gets a bf16 copy of its weight, refreshed once per optimiser step: autocast would convert
the weights again for every product, and would also put attention into bf16, whose backward pass is slower there than in
fp32. On GPUs autocast does the same with fused kernels.
"""

import contextlib
import time
from collections.abc import Callable
from typing import Literal

import torch
from torch import nn

from searchformer.errors import SearchformerError
from searchformer.model.config import ModelConfig
from searchformer.model.layers import Linear
from searchformer.train.optimiser import FlatParameters

Precision = Literal["fp32", "bf16"]
WORTHWHILE = 1.3
"""bf16 products must be so many times as fast as fp32 ones, conversions included, for `auto` to choose them."""


def choose_precision(asked: str, config: ModelConfig, device: torch.device) -> Precision:
    """The precision asked for; for `auto` the faster one, as measured on this device with products of this model."""
    if asked == "fp32" or device.type == "mps":
        if asked == "bf16":
            raise SearchformerError("--precision bf16 is not available on mps; use fp32")
        return "fp32"
    if asked == "bf16":
        return "bf16"
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    return "bf16" if _half_speedup(config) > WORTHWHILE else "fp32"


def _half_speedup(config: ModelConfig) -> float:
    """Time of an fp32 product over that of a bf16 one with its conversions, best of a few."""
    x, weight = torch.randn(2048, config.dim), torch.randn(config.ffn, config.dim)
    half = weight.bfloat16()
    return _best_seconds(lambda: x @ weight.T) / _best_seconds(lambda: (x.bfloat16() @ half.T).float())


def _best_seconds(call: Callable[[], object], repeats: int = 5) -> float:
    best = float("inf")
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - started)
    return best


class HalfWeights:
    """bf16 copies of all weights as one vector, of which the linear maps hold views."""

    def __init__(self, model: nn.Module, flat: FlatParameters) -> None:
        self._flat = flat
        self._half = torch.empty_like(flat.weights, dtype=torch.bfloat16, requires_grad=False)
        views = flat.view_like(self._half)
        for name, module in model.named_modules():
            if isinstance(module, Linear):
                module.half_weight = views[f"{name}.weight"]
        self.refresh()

    def refresh(self) -> None:
        """Copy the weights anew: call after every change of them."""
        self._half.copy_(self._flat.weights.detach())


def autocast_for(precision: Precision, device: torch.device) -> Callable[[], contextlib.AbstractContextManager[None]]:
    """What to compute losses under: autocast for bf16 on GPUs, else nothing."""
    if precision == "bf16" and device.type == "cuda":
        return lambda: torch.autocast("cuda", dtype=torch.bfloat16)
    return contextlib.nullcontext
