"""Scores of a model on given sequences under teacher forcing: losses on trace and plan apart, and accuracies."""

import contextlib
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from searchformer.dataset.batches import Batch, Sequences
from searchformer.tokens.entropy import FIELDS, NotASearchError, Yardstick
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
    yardstick: Yardstick | None = None,
) -> dict[str, float]:
    """Mean scores of the first `tasks` sequences; each process computes its share.

    `loss`, `trace_loss` and `plan_loss` (eos belongs to the plan) are means over a task's tokens, then over tasks.
    `token_accuracy` counts all tokens alike. `plan_accuracy` is the share of tasks whose whole plan is the likeliest
    token at each of its positions, `sequence_accuracy` the same for the whole response. With a yardstick also `floor`,
    the loss of a perfect imitator of A*, and by how much the model's is above it in each field (`excess_closed`, ...),
    over the tasks whose traces it can measure.
    """
    chosen = np.arange(min(tasks, len(sequences)))
    chosen = chosen[np.argsort(sequences.response_lengths[chosen], kind="stable")][processes.rank :: processes.world]
    totals = torch.zeros(len(_COLUMNS), dtype=torch.float64)
    for start in range(0, len(chosen), EVAL_BATCH):
        batch = sequences.batch(chosen[start : start + EVAL_BATCH])
        for part in batch.microbatches(tokens_per_microbatch):
            with precision():
                totals += _score(objective, part, yardstick).sum(dim=0)
    if processes.world > 1:
        totals = processes.sum(totals.to(processes.device)).cpu()
    sums = dict(zip(_COLUMNS, totals.tolist(), strict=True))
    means = {name: sums[name] / sums["tasks"] for name in ("loss", "plan_loss", "sequence_accuracy", "plan_accuracy")}
    if sums["traced"]:
        means["trace_loss"] = sums["trace_loss"] / sums["traced"]
    if sums["measured"]:
        means |= {name: sums[name] / sums["measured"] for name in ("floor", *EXCESSES)}
    return means | {"token_accuracy": sums["correct"] / sums["tokens"]}


EXCESSES = tuple(f"excess_{field}" for field in FIELDS)
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
    "measured",
    "floor",
    *EXCESSES,
)


def _score(objective: Objective, batch: Batch, yardstick: Yardstick | None) -> Tensor:
    """One row of `_COLUMNS` per sequence, on the CPU: not every device has float64."""
    inputs = objective.inputs(batch)
    known_NV = objective.model.log_probabilities(inputs)  # of symbols, as are the targets
    losses = -known_NV.gather(1, inputs.targets_N[:, None])[:, 0].cpu().double()
    correct = (known_NV.argmax(dim=-1) == inputs.targets_N).cpu()
    counts = (batch.response_lengths - 1).tolist()
    rows = []
    each = zip(losses.split(counts), correct.split(counts), batch.plan_starts.tolist(), batch.responses, strict=True)
    for loss, right, start, response in each:
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
        excess = _excess(loss.numpy(), response[1 : 1 + len(loss)], start - 1, yardstick)
        rows.append([*row, right.all().item(), plan.all().item(), *excess])
    return torch.tensor(rows, dtype=torch.float64)


def _excess(loss: np.ndarray, ids: np.ndarray, plan_start: int, yardstick: Yardstick | None) -> list[float]:
    """Whether the trace can be measured, its floor, and what is lost beyond it in each field, per token."""
    try:
        floor = yardstick.floor(ids[:plan_start]) if yardstick else None
    except NotASearchError:
        floor = None
    if yardstick is None or floor is None:
        return [0.0] * (2 + len(FIELDS))
    lost = np.bincount(yardstick.fields(ids, plan_start), weights=loss, minlength=len(FIELDS))
    return [1.0, floor.sum() / len(ids), *((lost - floor) / len(ids)).tolist()]
