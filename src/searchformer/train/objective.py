"""The paper's loss (appendix A.2, its last equation): mean over a sequence's tokens, then over sequences."""

import torch
from torch import Tensor, nn

from searchformer.dataset.batches import Batch
from searchformer.model import Transformer
from searchformer.model.inputs import Inputs


class Objective(nn.Module):
    """Sum over sequences of the mean loss of their tokens."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def inputs(self, batch: Batch) -> Inputs:
        """The batch as the model reads it."""
        return self.model.inputs(batch.prompts, batch.prompt_lengths, batch.responses, batch.response_lengths)

    def forward(self, inputs: Inputs) -> Tensor:
        """The loss, not yet divided by the number of sequences."""
        return torch.dot(self.model.losses(inputs), inputs.weights_N)
