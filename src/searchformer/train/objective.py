"""The paper's loss (appendix A.2, its last equation): mean over a sequence's tokens, then over sequences.

Shape suffixes: B sequences, T response positions, N predicted tokens of all sequences without padding, D model width.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from searchformer.dataset.batches import Batch
from searchformer.model import Transformer


@dataclass(frozen=True)
class Inputs:
    """A micro-batch on the device."""

    prompts_BS: Tensor
    prompt_lengths_B: Tensor | None
    """None when all prompts are of the same length, so that attention needs no mask."""
    responses_BT: Tensor
    """Without the last token, which predicts nothing."""
    places_N: Tensor | None
    """Where in the flattened [B * T] the real tokens are; None when all are."""
    targets_N: Tensor
    """The token after each."""
    weights_N: Tensor
    """1 / number of predicted tokens of the sequence: the weighted sum is the sum over sequences of their mean."""


def to_device(batch: Batch, device: torch.device) -> Inputs:
    """The batch as tensors."""
    counts_B = batch.response_lengths - 1
    width = batch.responses.shape[1] - 1
    real_BT = np.arange(width) < counts_B[:, None]
    padded = bool((counts_B != width).any())
    weights_N = np.repeat((1.0 / counts_B).astype(np.float32), counts_B)
    uneven = bool((batch.prompt_lengths != batch.prompts.shape[1]).any())

    def tensor(array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device, non_blocking=True)

    return Inputs(
        prompts_BS=tensor(batch.prompts),
        prompt_lengths_B=tensor(batch.prompt_lengths) if uneven else None,
        responses_BT=tensor(batch.responses[:, :-1]),
        places_N=tensor(np.flatnonzero(real_BT)) if padded else None,
        targets_N=tensor(batch.responses[:, 1:][real_BT]),
        weights_N=tensor(weights_N),
    )


class Objective(nn.Module):
    """Sum over sequences of the mean loss of their tokens; logits are computed for real tokens only."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def logits(self, inputs: Inputs) -> Tensor:
        """Logits of the next token at every real position, [N, V]."""
        features = self.model.encode(inputs.prompts_BS, inputs.prompt_lengths_B)
        hidden_BTD = self.model.hidden(inputs.responses_BT, features, inputs.prompt_lengths_B)
        hidden_ND = hidden_BTD.flatten(0, 1)
        if inputs.places_N is not None:
            hidden_ND = hidden_ND.index_select(0, inputs.places_N)
        return self.model.decoder.output(hidden_ND)

    def forward(self, inputs: Inputs) -> Tensor:
        """The loss, not yet divided by the number of sequences."""
        losses_N = functional.cross_entropy(self.logits(inputs).float(), inputs.targets_N, reduction="none")
        return torch.dot(losses_N, inputs.weights_N)
