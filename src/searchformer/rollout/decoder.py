"""The decoder as samplers run it, one position at a time: its weights, and the way through its blocks.

`model.layers.DecoderBlock` is the same computation over whole sequences, which training needs. A backend brings the
arithmetic (`Arithmetic`), and what comes before and after the blocks: an input vector, and what is read off the last
one. Tests compare both backends with the network itself (`test_the_engine_gives_the_answers_of_the_obvious_sampler`).
"""

from dataclasses import dataclass
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from searchformer.model import Transformer
from searchformer.model.layers import DecoderBlock
from searchformer.model.rotary import rotate
from searchformer.model.transformer import Features


@dataclass(frozen=True)
class BlockWeights:
    """One decoder block. Matrices are [in, out]; those with the same input are joined."""

    attention_norm: Tensor
    shift: Tensor | None
    query_key_value: Tensor
    attention_out: Tensor
    cross_norm: Tensor
    cross_query: Tensor
    cross_keys: Tensor
    cross_values: Tensor
    cross_out: Tensor
    ffn_norm: Tensor
    ffn_in: Tensor
    ffn_out: Tensor


@dataclass(frozen=True)
class DecoderWeights:
    """A decoder's weights. The matrices of the blocks are in the precision of their products, the rest in float32."""

    embedding: Tensor
    blocks: tuple[BlockWeights, ...]
    output_norm: Tensor
    output: Tensor

    @classmethod
    def of(cls, model: Transformer, *, products: torch.dtype, prompt_products: torch.dtype) -> "DecoderWeights":
        """Copies of the model's weights; `prompt_products` is for the keys and values of prompts."""
        norm, output = cast(tuple[nn.RMSNorm, nn.Linear], tuple(model.decoder.output))
        blocks = (cast(DecoderBlock, block) for block in model.decoder.layers)
        return cls(
            embedding=model.decoder.embedding.weight.detach().float(),
            blocks=tuple(_block_weights(block, products, prompt_products) for block in blocks),
            output_norm=norm.weight.detach().float(),
            output=_joined(output, dtype=torch.float32),
        )


def _block_weights(block: DecoderBlock, products: torch.dtype, prompt_products: torch.dtype) -> BlockWeights:
    own, cross, ffn = block.attention, block.attention_feat, block.feed_forward
    return BlockWeights(
        attention_norm=block.attention_norm.weight.detach().float(),
        shift=block.shift.detach().float() if hasattr(block, "shift") else None,
        query_key_value=_joined(own.wq, own.wk, own.wv, dtype=products),
        attention_out=_joined(own.wo, dtype=products),
        cross_norm=block.attention_feat_norm.weight.detach().float(),
        cross_query=_joined(cross.wq, dtype=products),
        cross_keys=_joined(cross.wk, dtype=prompt_products),
        cross_values=_joined(cross.wv, dtype=prompt_products),
        cross_out=_joined(cross.wo, dtype=products),
        ffn_norm=block.ffn_norm.weight.detach().float(),
        ffn_in=_joined(ffn.w1, ffn.w3, dtype=products),
        ffn_out=_joined(ffn.w2, dtype=products),
    )


def _joined(*maps: nn.Linear, dtype: torch.dtype) -> Tensor:
    return torch.cat([each.weight for each in maps]).detach().t().to(dtype).contiguous()


def prompt_keys_and_values(features: Features, block: BlockWeights) -> tuple[Tensor, Tensor]:
    """Keys and values of one encoded prompt for a block's attention to it, both [S, D]."""
    vectors_SD = features.vectors_BSD[0].to(block.cross_keys.dtype)
    keys_SD, values_SD = vectors_SD @ block.cross_keys, vectors_SD @ block.cross_values
    if features.rotation.numbers is None:
        return keys_SD, values_SD
    cosines, sines = (table[0] for table in features.rotation.numbers)

    def turned(x_SD: Tensor) -> Tensor:
        return rotate(x_SD.unflatten(-1, (cosines.shape[-2], -1)), cosines, sines).flatten(1)

    return turned(keys_SD), turned(values_SD)


class Arithmetic(Protocol):
    """What a backend does in one block, for the residual stream x of the rows at hand.

    The vectors that are handed from one call to the next are the backend's own kind of array.
    """

    def project(self, norm: Tensor, weight: Tensor) -> Any:
        """RMSNorm(x) @ weight."""

    def project_mixed(self, layer: int, norm: Tensor, shift: Tensor, weight: Tensor) -> Any:
        """(RMSNorm(x) mixed with that of earlier positions) @ weight."""

    def attend_to_own(self, layer: int, query_key_value: Any) -> Any:
        """Rotate query and key, add key and value to the cache, and attend to the row's own positions so far."""

    def attend_to_prompt(self, layer: int, query: Any) -> Any:
        """Attend to the row's prompt."""

    def gate(self, hidden: Any) -> Any:
        """silu(first half) * second half."""

    def add(self, change: Any, weight: Tensor) -> None:
        """x += change @ weight, at once or when x is next read."""


def run_blocks(blocks: tuple[BlockWeights, ...], arithmetic: Arithmetic) -> None:
    """Take the residual stream through all blocks."""
    for layer, block in enumerate(blocks):
        if block.shift is None:
            query_key_value = arithmetic.project(block.attention_norm, block.query_key_value)
        else:
            query_key_value = arithmetic.project_mixed(layer, block.attention_norm, block.shift, block.query_key_value)
        arithmetic.add(arithmetic.attend_to_own(layer, query_key_value), block.attention_out)
        query = arithmetic.project(block.cross_norm, block.cross_query)
        arithmetic.add(arithmetic.attend_to_prompt(layer, query), block.cross_out)
        hidden = arithmetic.project(block.ffn_norm, block.ffn_in)
        arithmetic.add(arithmetic.gate(hidden), block.ffn_out)
