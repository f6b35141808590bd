"""The parts of the network: attention, feed-forward, and the two kinds of block.

Tensor names end in their shape: B batch, T response positions, S prompt positions, L either of them, D model width,
H heads, K width of a head, V vocabulary. No biases, no dropout; tensors are named as in the published checkpoints.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from searchformer.model.causal import BlockedCausal, is_faster_in_blocks
from searchformer.model.config import ModelConfig
from searchformer.model.rotary import Rotation, Turns, by_hand, rotate, rotate_back


class RMSNorm(nn.RMSNorm):
    """RMSNorm; in fp32 on the CPU with fewer passes over memory than torch's own, forward and backward."""

    def forward(self, x: Tensor) -> Tensor:
        """x over its root mean square, times the weight."""
        if by_hand(x) and x.dtype == torch.float32:
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
        turns: tuple[Turns, Turns] | None = None,
        numbers: tuple[Turns, Turns] | None = None,
        mask: Tensor | None = None,
        causal: bool = False,
    ) -> Tensor:
        """Attend from x to source. `mask` [B, 1, 1, S] is true where source counts.

        `turns` of x and source are for queries and keys. With `numbers`, values are turned too, and what is read of
        them is turned back: so it tells where source is as seen from x.
        """
        q_BHLK, k_BHSK = self.queries_and_keys(x_BLD, source_BSD, turns)
        v_BSHK = self.wv(source_BSD).unflatten(-1, (self.heads, -1))
        v_BHSK = (rotate(v_BSHK, *numbers[1]) if numbers else v_BSHK).transpose(1, 2)
        if causal and by_hand(q_BHLK) and is_faster_in_blocks(q_BHLK):
            q_NTK, k_NTK, v_NTK = (x.reshape(-1, *x.shape[2:]) for x in (q_BHLK, k_BHSK, v_BHSK))
            mixed_BHLK = BlockedCausal.apply(q_NTK, k_NTK, v_NTK).view_as(q_BHLK)
        else:
            mixed_BHLK = functional.scaled_dot_product_attention(
                q_BHLK, k_BHSK, v_BHSK, attn_mask=mask, is_causal=causal
            )
        mixed_BLHK = mixed_BHLK.transpose(1, 2)
        mixed_BLHK = rotate_back(mixed_BLHK, *numbers[0]) if numbers else mixed_BLHK
        return self.wo(mixed_BLHK.flatten(-2))

    def queries_and_keys(
        self, x_BLD: Tensor, source_BSD: Tensor, turns: tuple[Turns, Turns] | None
    ) -> tuple[Tensor, Tensor]:
        """What each position of x asks, [B, H, L, K], and what each of source answers to, [B, H, S, K]."""
        q_BLHK = self.wq(x_BLD).unflatten(-1, (self.heads, -1))
        k_BSHK = self.wk(source_BSD).unflatten(-1, (self.heads, -1))
        if turns is not None:
            q_BLHK, k_BSHK = rotate(q_BLHK, *turns[0]), rotate(k_BSHK, *turns[1])
        return q_BLHK.transpose(1, 2), k_BSHK.transpose(1, 2)

    def to_itself(
        self, x_BLD: Tensor, rotation: Rotation, *, mask: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """Self-attention."""
        numbers = (rotation.numbers, rotation.numbers) if rotation.numbers else None
        return self(x_BLD, x_BLD, turns=(rotation.own, rotation.own), numbers=numbers, mask=mask, causal=causal)

    def to_prompt(
        self, x_BTD: Tensor, features_BSD: Tensor, here: Rotation, there: Rotation, mask: Tensor | None
    ) -> Tensor:
        """Attention to an encoded prompt, as it is; positions do not count, numbers do."""
        numbers = (here.numbers, there.numbers) if here.numbers and there.numbers else None
        return self(x_BTD, features_BSD, turns=numbers, numbers=numbers, mask=mask)


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

    def forward(self, x_BSD: Tensor, rotation: Rotation, mask: Tensor | None) -> Tensor:
        """`mask` [B, 1, 1, S] is true on the prompt's own positions; None when none is padding."""
        x_BSD = x_BSD + self.attention.to_itself(self.attention_norm(x_BSD), rotation, mask=mask)
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
        self, x_BTD: Tensor, features_BSD: Tensor, rotation: Rotation, prompt_rotation: Rotation, mask: Tensor | None
    ) -> Tensor:
        """`mask` [B, 1, 1, S] is true on the prompt's own positions; None when none is padding."""
        normed_BTD = self.attention_norm(x_BTD)
        if hasattr(self, "shift"):
            normed_BTD = mix_with_earlier(normed_BTD, self.shift)
        x_BTD = x_BTD + self.attention.to_itself(normed_BTD, rotation, causal=True)
        normed_BTD = self.attention_feat_norm(x_BTD)
        x_BTD = x_BTD + self.attention_feat.to_prompt(normed_BTD, features_BSD, rotation, prompt_rotation, mask)
        return x_BTD + self.feed_forward(self.ffn_norm(x_BTD))
