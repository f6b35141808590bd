"""AdamW or Muon, and the schedule, on all weights as one flat vector: a step is a few operations, however many tensors.

Muon (Jordan et al. 2024) replaces the gradient of a weight matrix, averaged over steps, by the nearest orthogonal
matrix; embeddings, norms and the output layers stay with AdamW. It needs about half the steps of AdamW here.
"""

import math

import torch
from torch import Tensor, nn

from searchformer.train.options import TrainOptions

FINAL_SHARE = 0.1
"""Where the cosine ends, as a share of the peak."""
ORTHOGONAL_STEPS = 5
"""Iterations towards the orthogonal matrix; singular values end between 0.7 and 1.2."""
QUINTIC = (3.4445, -4.7750, 2.0315)
"""Coefficients of x, x^3 and x^5 in an iteration."""
MUON_MOMENTUM = 0.95
"""Decay of the averaged gradient."""
MUON_SCALE = 0.2
"""Root mean square of an update's entries, as large as AdamW's usually are: the same rates suit both."""


class FlatParameters:
    """The weights and gradients of a module as two vectors; the module's own tensors become views of them.

    One vector makes the optimiser step, the gradient's norm and the sum over processes single operations. Small models
    spend most of such a step on the overhead per tensor otherwise. With `stacked`, the matrices of the layers come
    first, those of one shape after each other, and `stacks` are views of them: weights and gradients, [n, rows,
    columns] each.
    """

    def __init__(self, module: nn.Module, *, stacked: bool = False) -> None:
        self._parameters = dict(module.named_parameters())
        by_shape: dict[tuple[int, ...], list[str]] = {}
        for name, parameter in self._parameters.items():
            if stacked and ".layers." in name and parameter.ndim == 2:
                by_shape.setdefault(tuple(parameter.shape), []).append(name)
        first = {name: self._parameters[name] for names in by_shape.values() for name in names}
        self._parameters = first | self._parameters
        self.weights = nn.Parameter(torch.cat([p.detach().flatten() for p in self._parameters.values()]))
        self.gradient = torch.zeros_like(self.weights)
        self.weights.grad = self.gradient
        gradients = self.view_like(self.gradient)
        for name, piece in self.view_like(self.weights.data).items():
            self._parameters[name].data, self._parameters[name].grad = piece, gradients[name]
        self.stacks: list[tuple[Tensor, Tensor]] = []
        self.stacked = 0
        for shape, names in by_shape.items():
            end = self.stacked + len(names) * math.prod(shape)
            place = slice(self.stacked, end)
            self.stacks.append((self.weights.data[place].view(-1, *shape), self.gradient[place].view(-1, *shape)))
            self.stacked = end

    def view_like(self, flat: Tensor) -> dict[str, Tensor]:
        """Pieces of another vector of this length, by the names and shapes of the module's weights."""
        pieces = flat.split([parameter.numel() for parameter in self._parameters.values()])
        named = zip(self._parameters.items(), pieces, strict=True)
        return {name: piece.view_as(parameter) for (name, parameter), piece in named}


class Optimiser:
    """Changes the flat weights by their gradient: AdamW on all of them, Muon on those that are stacked."""

    def __init__(self, flat: FlatParameters, options: TrainOptions) -> None:
        self._flat, self._decay = flat, options.weight_decay
        rest = nn.Parameter(flat.weights.data[flat.stacked :])
        rest.grad = flat.gradient[flat.stacked :]
        self._adam = torch.optim.AdamW(
            [rest],
            betas=(options.beta1, options.beta2),
            weight_decay=options.weight_decay,
            fused=rest.device.type in ("cpu", "cuda"),
        )
        steps = torch.zeros((), dtype=torch.float32, device=rest.device)
        moments = {name: torch.zeros_like(rest) for name in ("exp_avg", "exp_avg_sq")}
        self._adam.state[rest] = {"step": steps} | moments  # in place, so that it can be saved before the first step
        self.state = {"adam_step": steps} | moments
        """What it remembers, by the names of a checkpoint."""
        self._momenta: list[Tensor] = []
        if flat.stacks:
            momentum = torch.zeros_like(flat.gradient[: flat.stacked])
            self.state["momentum"] = momentum
            pieces = momentum.split([weights.numel() for weights, _ in flat.stacks])
            self._momenta = [piece.view_as(weights) for piece, (weights, _) in zip(pieces, flat.stacks, strict=True)]

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """One step with this learning rate."""
        for (weights, gradients), momenta in zip(self._flat.stacks, self._momenta, strict=True):
            momenta.lerp_(gradients, 1 - MUON_MOMENTUM)
            updates = orthogonal(gradients.lerp(momenta, MUON_MOMENTUM))
            weights.mul_(1 - rate * self._decay)
            weights.add_(updates, alpha=-rate * MUON_SCALE * max(weights.shape[-2:]) ** 0.5)
        self._adam.param_groups[0]["lr"] = rate
        self._adam.step()


def orthogonal(matrices: Tensor) -> Tensor:
    """About the nearest matrix with orthonormal rows (or columns, if there are fewer) to each of [n, rows, columns]."""
    a, b, c = QUINTIC
    is_tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if is_tall else matrices
    x = x / (torch.linalg.matrix_norm(x, keepdim=True) + 1e-7)
    for _ in range(ORTHOGONAL_STEPS):
        products = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(products, products, products, beta=b, alpha=c), x, beta=a)
    return x.mT if is_tall else x


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
    if options.schedule == "linear":
        return options.lr * (1 - progress)
    return options.lr * (FINAL_SHARE + (1 - FINAL_SHARE) * 0.5 * (1 + math.cos(math.pi * progress)))
