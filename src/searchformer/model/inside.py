"""What a network thinks at one place of an answer: how probable each next token is, and where its decoder looks.

In: a network, a prompt and the beginning of an answer. Out: an `Inside`. The network itself runs, whole and unchanged;
its attention layers are watched. A decoder's position is a token, or a piece in a step network (tokens/steps.py).

    look_inside(model, prompt, answer[:40]).probabilities.argmax()        # the likeliest 41st token
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from searchformer.model.layers import Attention, DecoderBlock
from searchformer.model.transformer import Transformer
from searchformer.tokens.steps import NOTHING
from searchformer.tokens.vocabulary import BOS, EOS


@dataclass(frozen=True)
class Inside:
    """What happens before the next token is written. Attention weights add up to one over the last axis."""

    probabilities: np.ndarray
    """float32 [V]: of every next token."""
    to_prompt: np.ndarray
    """float32 [layers, heads, S]: cross-attention to the prompt's positions, bos and eos included."""
    to_answer: np.ndarray
    """float32 [layers, heads, T]: self-attention to the answer's positions so far, bos included."""
    prompt_pieces: list[list[int]]
    """The ids at each of the prompt's positions."""
    answer_pieces: list[list[int]]
    """The ids at each of the answer's positions; those of the first are [BOS]."""


@torch.inference_mode()
def look_inside(model: Transformer, prompt: np.ndarray, answer: np.ndarray) -> Inside:
    """Ids without bos and eos; the token after `answer` is the one that is about to be written."""
    prompt_ids = np.array([[BOS, *prompt.tolist(), EOS]])
    asked = np.array([[BOS, *answer.tolist(), EOS]])  # the last token is the one to predict: any will do
    inputs = model.inputs(prompt_ids, np.array([prompt_ids.shape[1]]), asked, np.array([asked.shape[1]]))
    with _Watch(model) as watch:
        log_probabilities_NV = model.log_probabilities(inputs)
    return Inside(
        probabilities=log_probabilities_NV[-1].float().exp().cpu().numpy()[model.symbols.of_token],
        to_prompt=watch.weights(cross=True),
        to_answer=watch.weights(cross=False),
        prompt_pieces=_cut_like(inputs.prompts_BSP[0], prompt_ids[0]),
        answer_pieces=[[BOS], *_cut_like(inputs.inputs_BTP[0, 1:], asked[0, 1:])],
    )


def _cut_like(pieces_LP: Tensor, ids: np.ndarray) -> list[list[int]]:
    """The ids at each position: pieces hold symbols, which tokens may share; the sequence itself tells them apart."""
    ends = (pieces_LP != NOTHING).sum(dim=-1).cumsum(dim=0).tolist()
    return [ids[start:end].tolist() for start, end in zip([0, *ends], ends, strict=False)]


class _Watch:
    """Notes what the decoder's attention layers are given while it is open."""

    def __init__(self, model: Transformer) -> None:
        blocks = [block for block in model.decoder.layers if isinstance(block, DecoderBlock)]
        self.layers: dict[bool, list[Attention]] = {
            False: [block.attention for block in blocks],
            True: [block.attention_feat for block in blocks],
        }
        self.given: dict[nn.Module, tuple[tuple[Tensor, Tensor], dict[str, Any]]] = {}

    def __enter__(self) -> "_Watch":
        def note(layer: nn.Module, tensors: tuple[Tensor, Tensor], settings: dict[str, Any]) -> None:
            self.given[layer] = tensors, settings

        watched = [layer for layers in self.layers.values() for layer in layers]
        self.hooks = [layer.register_forward_pre_hook(note, with_kwargs=True) for layer in watched]
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self.hooks:
            hook.remove()

    def weights(self, *, cross: bool) -> np.ndarray:
        """Where the last position looks, [layers, heads, positions]: no position comes after it, so none is masked."""
        found = []
        for layer in self.layers[cross]:
            (x_BLD, source_BSD), settings = self.given[layer]
            q_BHLK, k_BHSK = layer.queries_and_keys(x_BLD, source_BSD, settings.get("turns"))
            scores_HS = (k_BHSK[0] @ q_BHLK[0, :, -1, :, None])[..., 0] * q_BHLK.shape[-1] ** -0.5
            found.append(torch.softmax(scores_HS.float(), dim=-1))
        return torch.stack(found).cpu().numpy()
