"""Causal attention in fp32 on the CPU that leaves out what lies above the diagonal.

torch's own kernel computes the whole square there and masks half of it. Here queries go in blocks, each against the
keys up to its own end. Shape suffixes: N sequences times heads, T positions, K width of a head.
"""

import math
from typing import Any

import torch
from torch import Tensor

BLOCK = 64
SHORTEST, LONGEST = 192, 1024
"""Lengths for which blocks are worthwhile: shorter ones are too small to matter, longer ones keep too many weights."""


def is_faster_in_blocks(q_BHTK: Tensor) -> bool:
    """Whether blocks are faster than torch's own kernel for these queries."""
    eligible = q_BHTK.device.type == "cpu" and q_BHTK.dtype == torch.float32 and torch.is_grad_enabled()
    return eligible and SHORTEST <= q_BHTK.shape[2] <= LONGEST


class BlockedCausal(torch.autograd.Function):
    """softmax(q k^T / sqrt(K), causal) v."""

    @staticmethod
    def forward(ctx: Any, q_NTK: Tensor, k_NTK: Tensor, v_NTK: Tensor) -> Tensor:
        """All [N, T, K], contiguous; so is the result."""
        out_NTK, weights = torch.empty_like(q_NTK), []
        scaled_NTK = q_NTK * q_NTK.shape[2] ** -0.5
        later = torch.ones(BLOCK, BLOCK, dtype=torch.bool).triu_(1)
        for start, end in _blocks(q_NTK.shape[1]):
            scores = torch.bmm(scaled_NTK[:, start:end], k_NTK[:, :end].transpose(1, 2))
            scores[:, :, start:].masked_fill_(later[: end - start, : end - start], -math.inf)
            weights.append(torch.softmax(scores, dim=-1))
            out_NTK[:, start:end] = torch.bmm(weights[-1], v_NTK[:, :end])
        ctx.save_for_backward(scaled_NTK, k_NTK, v_NTK, *weights)
        return out_NTK

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of q, k and v."""
        scaled_NTK, k_NTK, v_NTK, *weights = ctx.saved_tensors
        gradient_NTK = gradients[0].contiguous()
        gq_NTK, gk_NTK, gv_NTK = torch.empty_like(k_NTK), torch.zeros_like(k_NTK), torch.zeros_like(k_NTK)
        for (start, end), weight in zip(_blocks(k_NTK.shape[1]), weights, strict=True):
            pulled = gradient_NTK[:, start:end]
            scores = torch._softmax_backward_data(
                torch.bmm(pulled, v_NTK[:, :end].transpose(1, 2)), weight, -1, torch.float32
            )
            gv_NTK[:, :end].baddbmm_(weight.transpose(1, 2), pulled)
            gk_NTK[:, :end].baddbmm_(scores.transpose(1, 2), scaled_NTK[:, start:end])
            gq_NTK[:, start:end] = torch.bmm(scores, k_NTK[:, :end])
        return gq_NTK.mul_(k_NTK.shape[2] ** -0.5), gk_NTK, gv_NTK


def _blocks(length: int) -> list[tuple[int, int]]:
    return [(start, min(start + BLOCK, length)) for start in range(0, length, BLOCK)]
