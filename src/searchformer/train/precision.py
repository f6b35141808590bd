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

from searchformer.model.config import SMALL_DIM, ModelConfig
from searchformer.model.device import check_precision, has_bf16
from searchformer.model.layers import Linear
from searchformer.train.optimiser import FlatParameters

Precision = Literal["fp32", "bf16"]
WORTHWHILE = 1.3
"""How many times as fast as fp32 products bf16 ones must be, conversions included, for `auto` to choose them."""


def choose_precision(asked: str, config: ModelConfig, device: torch.device) -> Precision:
    """The precision asked for; for `auto` the faster one: on the CPU as measured with products of this model.

    Small networks stay with fp32 there: they learn less in bf16 than they save.
    """
    check_precision(asked, device)
    if asked != "auto":
        return "bf16" if asked == "bf16" else "fp32"
    if device.type == "cpu":
        return "bf16" if config.dim > SMALL_DIM and _half_speedup(config) > WORTHWHILE else "fp32"
    return "bf16" if has_bf16(device) else "fp32"


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
        """Copy the weights again; call this after every change of them."""
        self._half.copy_(self._flat.weights.detach())


def autocast_for(precision: Precision, device: torch.device) -> Callable[[], contextlib.AbstractContextManager[None]]:
    """The context to compute losses in: autocast for bf16 on GPUs, else one that does nothing."""
    if precision == "bf16" and device.type == "cuda":
        return lambda: torch.autocast("cuda", dtype=torch.bfloat16)
    return contextlib.nullcontext
