"""The parts of the network: rotary positions, attention, feed-forward, and the two kinds of block.

Tensor names end in their shape: B batch, T response positions, S prompt positions, L either of them, D model width,
H heads, K width of a head, V vocabulary. No biases, no dropout; tensors are named as in the published checkpoints.
"""

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from searchformer.model.causal import BlockedCausal, is_faster_in_blocks
from searchformer.model.config import ModelConfig


@lru_cache(maxsize=16)
def _rotary_table(positions: int, width: int, theta: float, device: torch.device) -> tuple[Tensor, Tensor]:
    frequencies = theta ** (-torch.arange(0, width, 2, dtype=torch.float32, device=device) / width)
    angles = torch.outer(torch.arange(positions, dtype=torch.float32, device=device), frequencies)
    return angles.cos(), angles.sin()


def rotary_table(positions: int, config: ModelConfig, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the rotary angles, each [positions, K/2]; computed once per power of two."""
    length = 1 << max(positions - 1, 255).bit_length()
    with torch.inference_mode(False):
        cosines, sines = _rotary_table(length, config.head_dim, config.rope_theta, device)
    return cosines[:positions], sines[:positions]


def _by_hand(x: Tensor) -> bool:
    """Whether to use what is written here for the CPU: not where torch.compile fuses the plain operations itself."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def rotate(x_BLHK: Tensor, cosines_LP: Tensor, sines_LP: Tensor) -> Tensor:
    """Turn neighbouring pairs of the last axis by the angle of their position: RoPE."""
    pairs = x_BLHK.float().unflatten(-1, (-1, 2))
    if _by_hand(x_BLHK):  # one pass over memory instead of seven
        turns = torch.complex(cosines_LP, sines_LP).unsqueeze(-2)
        return torch.view_as_real(torch.view_as_complex(pairs) * turns).flatten(-2).to(x_BLHK.dtype)
    even, odd = pairs.unbind(-1)
    cosines, sines = cosines_LP.unsqueeze(-2), sines_LP.unsqueeze(-2)
    turned = torch.stack((even * cosines - odd * sines, even * sines + odd * cosines), dim=-1)
    return turned.flatten(-2).to(x_BLHK.dtype)


class RMSNorm(nn.RMSNorm):
    """RMSNorm; in fp32 on the CPU with fewer passes over memory than torch's own, forward and backward."""

    def forward(self, x: Tensor) -> Tensor:
        """x over its root mean square, times the weight."""
        if _by_hand(x) and x.dtype == torch.float32:
            return _Norm.apply(x, self.weight, self.eps)
        return super().forward(x)


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        norms = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        inverse = norms.square_().div_(x.shape[-1]).add_(eps).rsqrt_()
        ctx.save_for_backward(x, weight, inverse)
        return (x * inverse).mul_(weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        (gradient,), (x, weight, inverse) = gradients, ctx.saved_tensors
        normed = x * inverse
        product = gradient * normed
        weight_gradient = product.flatten(0, -2).sum(dim=0)
        mean = torch.mv(product.flatten(0, -2), weight).view_as(inverse).div_(x.shape[-1])
        return (gradient * weight).addcmul_(normed, mean, value=-1).mul_(inverse), weight_gradient, None


class Linear(nn.Linear):
    """A linear map without bias that can compute its products in bf16 while its weight stays in fp32."""

    half_weight: Tensor | None = None
    """A bf16 copy of the weight, set and kept up to date by whoever wants products in bf16."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x times the weight, in x's precision."""
        if self.half_weight is None:
            return functional.linear(x, self.weight)
        return HalfProduct.apply(x, self.weight, self.half_weight)


class HalfProduct(torch.autograd.Function):
    """x times a weight with bf16 products forward and backward; what goes in and out is fp32."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, half_weight: Tensor) -> Tensor:
        """`weight` only receives the gradient; `half_weight` is multiplied."""
        half_x = x.bfloat16()
        ctx.save_for_backward(half_x, half_weight)
        return functional.linear(half_x, half_weight).float()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        """Gradients of x and of the fp32 weight."""
        half_x, half_weight = ctx.saved_tensors
        half_gradient = gradients[0].bfloat16()
        weight_gradient = half_gradient.flatten(0, -2).T @ half_x.flatten(0, -2)
        return (half_gradient @ half_weight).float(), weight_gradient.float(), None


class Attention(nn.Module):
    """Multi-head attention from one sequence to another or to itself."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.wq = Linear(config.dim, config.dim)
        self.wk = Linear(config.dim, config.dim)
        self.wv = Linear(config.dim, config.dim)
        self.wo = Linear(config.dim, config.dim)

    def forward(
        self,
        x_BLD: Tensor,
        source_BSD: Tensor,
        *,
        rotary: tuple[Tensor, Tensor] | None = None,
        mask: Tensor | None = None,
        causal: bool = False,
    ) -> Tensor:
        """Attend from x to source. `mask` [B, 1, 1, S] is true where source counts; `rotary` turns queries and keys."""
        q_BHLK, k_BHSK = self.queries_and_keys(x_BLD, source_BSD, rotary)
        v_BHSK = self.wv(source_BSD).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        if causal and _by_hand(q_BHLK) and is_faster_in_blocks(q_BHLK):
            q_NTK, k_NTK, v_NTK = (x.reshape(-1, *x.shape[2:]) for x in (q_BHLK, k_BHSK, v_BHSK))
            mixed_BHLK = BlockedCausal.apply(q_NTK, k_NTK, v_NTK).view_as(q_BHLK)
        else:
            mixed_BHLK = functional.scaled_dot_product_attention(
                q_BHLK, k_BHSK, v_BHSK, attn_mask=mask, is_causal=causal
            )
        return self.wo(mixed_BHLK.transpose(1, 2).flatten(-2))

    def queries_and_keys(
        self, x_BLD: Tensor, source_BSD: Tensor, rotary: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, Tensor]:
        """What each position of x asks, [B, H, L, K], and what each of source answers to, [B, H, S, K]."""
        q_BLHK = self.wq(x_BLD).unflatten(-1, (self.heads, -1))
        k_BSHK = self.wk(source_BSD).unflatten(-1, (self.heads, -1))
        if rotary is not None:
            q_BLHK, k_BSHK = rotate(q_BLHK, *rotary), rotate(k_BSHK, *rotary)
        return q_BLHK.transpose(1, 2), k_BSHK.transpose(1, 2)


class FeedForward(nn.Module):
    """SwiGLU: w2(silu(w1 x) * w3 x)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.w1 = Linear(config.dim, config.ffn)
        self.w2 = Linear(config.ffn, config.dim)
        self.w3 = Linear(config.dim, config.ffn)

    def forward(self, x_BLD: Tensor) -> Tensor:
        """The same shape as x."""
        return self.w2(functional.silu(self.w1(x_BLD)) * self.w3(x_BLD))


class EncoderBlock(nn.Module):
    """Self-attention over the prompt, then feed-forward, each added to its input."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.dim, eps=config.norm_eps)
        self.attention = Attention(config)
        self.ffn_norm = RMSNorm(config.dim, eps=config.norm_eps)
        self.feed_forward = FeedForward(config)

    def forward(self, x_BSD: Tensor, rotary: tuple[Tensor, Tensor], mask: Tensor | None) -> Tensor:
        """`mask` [B, 1, 1, S] is true on the prompt's own positions; None when none is padding."""
        normed_BSD = self.attention_norm(x_BSD)
        x_BSD = x_BSD + self.attention(normed_BSD, normed_BSD, rotary=rotary, mask=mask)
        return x_BSD + self.feed_forward(self.ffn_norm(x_BSD))


def mix_with_earlier(x_BTD: Tensor, weights_KD: Tensor) -> Tensor:
    """Each position plus the K before it, weighted by how far back they are and by channel (token shift)."""
    mixed_BTD = x_BTD
    for back, weight_D in enumerate(weights_KD[: x_BTD.shape[1] - 1], start=1):
        mixed_BTD = mixed_BTD + functional.pad(x_BTD[:, :-back] * weight_D, (0, 0, back, 0))
    return mixed_BTD


class DecoderBlock(nn.Module):
    """Causal self-attention, attention to the encoded prompt as it is, feed-forward, each added to its input."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.dim, eps=config.norm_eps)
        if config.shift:
            self.shift = nn.Parameter(torch.empty(config.shift, config.dim))
        self.attention = Attention(config)
        self.attention_feat_norm = RMSNorm(config.dim, eps=config.norm_eps)
        self.attention_feat = Attention(config)
        self.ffn_norm = RMSNorm(config.dim, eps=config.norm_eps)
        self.feed_forward = FeedForward(config)

    def forward(
        self, x_BTD: Tensor, features_BSD: Tensor, rotary: tuple[Tensor, Tensor], mask: Tensor | None
    ) -> Tensor:
        """`mask` [B, 1, 1, S] is true on the prompt's own positions; None when none is padding."""
        normed_BTD = self.attention_norm(x_BTD)
        if hasattr(self, "shift"):
            normed_BTD = mix_with_earlier(normed_BTD, self.shift)
        x_BTD = x_BTD + self.attention(normed_BTD, normed_BTD, rotary=rotary, causal=True)
        x_BTD = x_BTD + self.attention_feat(self.attention_feat_norm(x_BTD), features_BSD, mask=mask)
        return x_BTD + self.feed_forward(self.ffn_norm(x_BTD))
