"""The options of a training run; the paper's values for those that are left out.

An option added to `TrainingOptions` is an option of `searchformer train`, of a recipe's `[[train]]`, of `config.json`
and of the check on resuming; added to `LearningOptions`, also of bootstrapping.
"""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from searchformer.options import MayChange, OptionsModel

LEARNING_RATES = {"1M": 2e-3, "3M": 1e-3, "15M": 2.5e-4, "46M": 7.5e-5, "175M": 5e-5, "747M": 5e-5}
"""Peaks by size: the paper's table of optimization hyper-parameters; 1M and 3M are ours. Other shapes take 1M's."""
BATCH_SIZES = {"maze": 16, "sokoban": 64}
"""By domain, from the same table; other domains take the maze's."""
STEPS = {"maze": 400_000, "sokoban": 80_000}
"""By domain, from the same table; other domains take the maze's."""
WARMUP_STEPS = 2000
ProcessCount = Annotated[
    int, MayChange, Field(ge=1, description="Training processes on this machine: cores of a CPU, or GPUs.")
]


class LearningOptions(OptionsModel):
    """How a model learns, whether it is trained or fine-tuned by bootstrapping."""

    steps: int | None = Field(default=None, ge=1)
    """Optimiser steps; the paper's if left out."""
    batch_size: int | None = Field(default=None, ge=1)
    """Sequences per step, over all processes; the paper's if left out."""
    tokens_per_microbatch: int = Field(default=16_384, ge=1)
    """Padded tokens computed at once; gradients of larger batches are accumulated, with the same result."""
    lr: float | None = Field(default=None, gt=0)
    """Peak learning rate; the paper's if left out."""
    warmup: int | None = Field(default=None, ge=0)
    """Steps of linear warm-up; 2000 if left out, but at most a tenth of the steps."""
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    """After the warm-up: cosine (down to a tenth of the peak at the last step), linear (down to 0) or constant."""
    optimiser: Literal["adamw", "muon"] = "adamw"
    """adamw (the paper's), or muon: Muon for the layers' matrices, AdamW for the rest, in about half the steps."""
    beta1: float = Field(default=0.9, ge=0, lt=1)
    """AdamW's decay of the first moment."""
    beta2: float = Field(default=0.99, ge=0, lt=1)
    """AdamW's decay of the second moment."""
    weight_decay: float = Field(default=0.01, ge=0)
    """Weight decay; it applies to all weights, as in the paper's runs."""
    clip: float | None = Field(default=None, gt=0)
    """Largest gradient norm; no clipping if left out."""
    max_trace_tokens: int = Field(default=10_000, ge=0)
    """Leave out tasks with longer traces."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Precision of matrix products; auto: whichever is faster here, but fp32 for small networks on a CPU."""
    compile: Annotated[bool, MayChange] = False
    """Run the layers through torch.compile: it takes a minute or two and a C++ compiler, then training is faster."""


class TrainingOptions(LearningOptions):
    """What the runs of one `[[train]]` entry of a recipe share."""

    validation: int = Field(default=0, ge=0)
    """Hold out the last N training tasks and keep the model with the lowest loss on them."""
    patience: int = Field(default=0, ge=0)
    """Stop after N evaluations in a row without a lower validation loss; 0: never."""
    eval_every: Annotated[int, MayChange] = Field(default=1000, ge=0)
    """Steps between evaluations, on the validation tasks if there are any, else on test tasks; 0: none."""
    eval_tasks: int = Field(default=256, ge=1)
    """Test tasks per evaluation, the first by task id; validation tasks are all used."""
    exact_every: Annotated[int, MayChange] = Field(default=0, ge=0)
    """Steps between evaluations that also answer a few test tasks greedily; 0: none do."""
    save_every: Annotated[int, MayChange] = Field(default=500, ge=1)
    """Steps between checkpoints."""
    save_minutes: Annotated[float, MayChange] = Field(default=10.0, gt=0)
    """Also save when this many minutes have passed since the last checkpoint."""
    log_every: Annotated[int, MayChange] = Field(default=50, ge=1)
    """Steps between lines of metrics.jsonl."""

    @model_validator(mode="after")
    def _validation_needs_evaluations(self) -> Self:
        if self.validation and not self.eval_every:
            raise ValueError("--validation needs --eval-every above 0")
        if self.patience and not self.validation:
            raise ValueError("--patience needs --validation")
        return self

    def may_change(self) -> set[str]:
        """With validation, the evaluations choose the model: their number may not change then."""
        return super().may_change() - ({"eval_every"} if self.validation else set())


class TrainOptions(TrainingOptions):
    """One training run. Where None is allowed, `resolved` fills in the paper's value."""

    data: Annotated[Path, MayChange]
    """Directory of the data set."""
    model: str = "15M"
    """1M, 3M, 15M, 46M, 175M, 747M, step-small, step-medium, step-large, or a shape such as dim=64,layers=3,heads=4."""
    plan_only: bool = False
    """Learn plans without traces: the paper's solution-only models."""
    sequences: int | None = Field(default=None, ge=1)
    """Train on the first N tasks by task id; all if left out."""
    init_from: Annotated[Path | None, MayChange] = None
    """Fine-tune this model: a model directory, a run that has made one, or the name of a packaged model."""
    seed: int = Field(default=0, ge=0)
    """Decides the initial weights and the order of the batches."""
    device: Annotated[str, MayChange] = "auto"
    """auto, cpu, cuda or mps."""
    cache: Annotated[Path | None, MayChange] = None
    """Directory for the unpacked data set; beside the data set if left out."""

    def resolved(self, *, domain: str) -> "TrainOptions":
        """These options, with the paper's values for this size and domain in place of those left out."""
        steps = self.steps or STEPS.get(domain, STEPS["maze"])
        return self.model_copy(
            update={
                "steps": steps,
                "batch_size": self.batch_size or BATCH_SIZES.get(domain, BATCH_SIZES["maze"]),
                "lr": self.lr or LEARNING_RATES.get(self.model, LEARNING_RATES["1M"]),
                "warmup": min(WARMUP_STEPS, steps // 10) if self.warmup is None else self.warmup,
            }
        )
