"""AdamW and its schedule, on all weights as one flat vector: a step is a few operations, however many tensors."""

import math

import torch
from torch import Tensor, nn

from searchformer.train.options import TrainOptions

FINAL_SHARE = 0.1
"""Where the cosine ends, as a share of the peak."""


class FlatParameters:
    """The weights and gradients of a module as two vectors; the module's own tensors become views of them.

    One vector makes the optimiser step, the gradient's norm and the sum over processes single operations. Small models
    spend most of such a step on the overhead per tensor otherwise.
    """

    def __init__(self, module: nn.Module) -> None:
        parameters = list(module.parameters())
        self.weights = nn.Parameter(torch.cat([parameter.detach().flatten() for parameter in parameters]))
        self.gradient = torch.zeros_like(self.weights)
        self.weights.grad = self.gradient
        start = 0
        for parameter in parameters:
            end = start + parameter.numel()
            parameter.data = self.weights.data[start:end].view_as(parameter)
            parameter.grad = self.gradient[start:end].view_as(parameter)
            start = end

    def view_like(self, flat: Tensor, module: nn.Module) -> dict[str, Tensor]:
        """Pieces of another vector of this length, by the names and shapes of the module's weights."""
        sizes = [parameter.numel() for parameter in module.parameters()]
        pieces = zip(module.named_parameters(), flat.split(sizes), strict=True)
        return {name: piece.view_as(parameter) for (name, parameter), piece in pieces}


def make_optimiser(flat: FlatParameters, options: TrainOptions) -> torch.optim.AdamW:
    """AdamW over the flat weights, with its state in place so that it can be saved before the first step."""
    optimiser = torch.optim.AdamW(
        [flat.weights],
        lr=options.lr or 0.0,
        betas=(options.beta1, options.beta2),
        weight_decay=options.weight_decay,
        fused=flat.weights.device.type in ("cpu", "cuda"),
    )
    optimiser.state[flat.weights] = {
        "step": torch.zeros((), dtype=torch.float32, device=flat.weights.device),
        "exp_avg": torch.zeros_like(flat.weights),
        "exp_avg_sq": torch.zeros_like(flat.weights),
    }
    return optimiser


def learning_rate(step: int, options: TrainOptions) -> float:
    """The rate of step number `step`, counted from 1: linear warm-up, then the schedule."""
    assert options.lr is not None
    assert options.warmup is not None
    assert options.steps is not None
    if step <= options.warmup:
        return options.lr * step / options.warmup
    if options.schedule == "constant":
        return options.lr
    progress = (step - options.warmup) / max(options.steps - options.warmup, 1)
    return options.lr * (FINAL_SHARE + (1 - FINAL_SHARE) * 0.5 * (1 + math.cos(math.pi * progress)))
