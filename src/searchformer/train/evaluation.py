"""Scores of a model on given sequences under teacher forcing: losses on trace and plan apart, and accuracies."""

import contextlib
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from searchformer.dataset.batches import Batch, Sequences
from searchformer.train.objective import Objective
from searchformer.train.processes import Processes

EVAL_BATCH = 32


@torch.inference_mode()
def evaluate(
    objective: Objective,
    sequences: Sequences,
    *,
    tasks: int,
    tokens_per_microbatch: int,
    processes: Processes,
    precision: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
) -> dict[str, float]:
    """Mean scores of the first `tasks` sequences; each process computes its share.

    `loss`, `trace_loss` and `plan_loss` (eos belongs to the plan) are means over a task's tokens, then over tasks.
    `token_accuracy` counts all tokens alike. `plan_accuracy` is the share of tasks whose whole plan is the likeliest
    token at each of its positions, `sequence_accuracy` the same for the whole response.
    """
    chosen = np.arange(min(tasks, len(sequences)))
    chosen = chosen[np.argsort(sequences.response_lengths[chosen], kind="stable")][processes.rank :: processes.world]
    totals = torch.zeros(len(_COLUMNS), dtype=torch.float64)
    for start in range(0, len(chosen), EVAL_BATCH):
        batch = sequences.batch(chosen[start : start + EVAL_BATCH])
        for part in batch.microbatches(tokens_per_microbatch):
            with precision():
                totals += _score(objective, part).sum(dim=0)
    if processes.world > 1:
        totals = processes.sum(totals.to(processes.device)).cpu()
    sums = dict(zip(_COLUMNS, totals.tolist(), strict=True))
    means = {name: sums[name] / sums["tasks"] for name in ("loss", "plan_loss", "sequence_accuracy", "plan_accuracy")}
    if sums["traced"]:
        means["trace_loss"] = sums["trace_loss"] / sums["traced"]
    return means | {"token_accuracy": sums["correct"] / sums["tokens"]}


_COLUMNS = (
    "tasks",
    "traced",
    "tokens",
    "correct",
    "loss",
    "trace_loss",
    "plan_loss",
    "sequence_accuracy",
    "plan_accuracy",
)


def _score(objective: Objective, batch: Batch) -> Tensor:
    """One row of `_COLUMNS` per sequence, on the CPU: not every device has float64."""
    inputs = objective.inputs(batch)
    known_NV = objective.model.log_probabilities(inputs)
    losses = -known_NV.gather(1, inputs.targets_N[:, None])[:, 0].cpu().double()
    correct = (known_NV.argmax(dim=-1) == inputs.targets_N).cpu()
    counts = (batch.response_lengths - 1).tolist()
    rows = []
    for loss, right, start in zip(losses.split(counts), correct.split(counts), batch.plan_starts.tolist(), strict=True):
        traced = start > 1  # the target at position i is token i + 1, so the plan's targets begin at start - 1
        trace_loss = loss[: start - 1].mean().item() if traced else 0.0
        plan = right[start - 1 :]
        row = [
            1,
            traced,
            len(loss),
            right.sum().item(),
            loss.mean().item(),
            trace_loss,
            loss[start - 1 :].mean().item(),
        ]
        rows.append([*row, right.all().item(), plan.all().item()])
    return torch.tensor(rows, dtype=torch.float64)
