"""What a training run is told, validated once and stored as `config.json`; the paper's values where nothing is said."""

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from searchformer.errors import SearchformerError

LEARNING_RATES = {"1M": 2e-3, "3M": 1e-3, "15M": 2.5e-4, "46M": 7.5e-5, "175M": 5e-5, "747M": 5e-5}
"""Peaks by size: the paper's table of optimization hyper-parameters; 1M and 3M are ours. Other shapes take 1M's."""
BATCH_SIZES = {"maze": 16, "sokoban": 64}
"""By domain, from the same table; other domains take the maze's."""
STEPS = {"maze": 400_000, "sokoban": 80_000}
"""By domain, from the same table; other domains take the maze's."""
WARMUP_STEPS = 2000
NOT_OF_THE_RESULT = frozenset(
    {"data", "init_from", "device", "eval_every", "exact_every", "save_every", "log_every", "cache", "compile"}
)
"""Fields that a resumed run may have otherwise than before."""


class TrainOptions(BaseModel):
    """One training run. Where None is allowed, `resolved` fills in the paper's value."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: Path
    """Directory of the data set."""
    model: str = "15M"
    """A named size, or a shape as `dim=64,layers=3,heads=4,ffn=192`."""
    plan_only: bool = False
    """Learn plans without traces: the paper's solution-only models."""
    sequences: int | None = Field(default=None, ge=1)
    """Train on the first so many tasks by task id; all when None."""
    validation: int = Field(default=0, ge=0)
    """Hold the last so many training tasks out; the model that is kept is the one with the least loss on them."""
    patience: int = Field(default=0, ge=0)
    """Stop after so many evaluations in a row that brought no better validation loss; 0 to go on to the end."""
    max_trace_tokens: int = Field(default=10_000, ge=0)
    """Leave out tasks with longer traces."""
    steps: int | None = Field(default=None, ge=1)
    """Optimiser steps."""
    batch_size: int | None = Field(default=None, ge=1)
    """Sequences per step, over all processes."""
    tokens_per_microbatch: int = Field(default=16_384, ge=1)
    """Padded tokens that are computed on at once; what is beyond is accumulated, with the same gradient."""
    lr: float | None = Field(default=None, gt=0)
    """Peak learning rate."""
    warmup: int | None = Field(default=None, ge=0)
    """Steps of linear warm-up; by default the paper's, but at most a tenth of the steps."""
    schedule: Literal["cosine", "constant"] = "cosine"
    """After the warm-up: cosine down to a tenth of the peak at the last step, or constant."""
    optimiser: Literal["adamw", "muon"] = "adamw"
    """AdamW on all weights, or Muon on the matrices of the layers and AdamW on the rest."""
    beta1: float = Field(default=0.9, ge=0, lt=1)
    """AdamW's decay of the first moment."""
    beta2: float = Field(default=0.99, ge=0, lt=1)
    """AdamW's decay of the second moment."""
    weight_decay: float = Field(default=0.01, ge=0)
    """Weight decay, on all weights as in the paper's runs."""
    clip: float | None = Field(default=None, gt=0)
    """Largest gradient norm; no clipping when None."""
    init_from: Path | None = None
    """Directory of a model to go on from: fine-tuning."""
    seed: int = Field(default=0, ge=0)
    """Draws the first weights and the order of the batches."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Of matrix products; weights and optimiser are always fp32. `auto` measures which is faster here."""
    compile: bool = False
    """Run the layers through torch.compile; needs a C++ compiler on the CPU."""
    device: str = "auto"
    """auto, cpu, cuda or mps."""
    eval_every: int = Field(default=1000, ge=0)
    """Steps between evaluations on the validation tasks if there are any, else on the test split; 0 for none."""
    eval_tasks: int = Field(default=256, ge=1)
    """Test tasks per evaluation, the first by task id; validation tasks are all used."""
    exact_every: int = Field(default=0, ge=0)
    """Steps between greedy answers to a few test tasks; 0 for none."""
    save_every: int = Field(default=500, ge=1)
    """Steps between checkpoints."""
    log_every: int = Field(default=50, ge=1)
    """Steps between lines of metrics.jsonl."""
    cache: Path | None = None
    """Where the unpacked data set goes; beside the data set when None."""

    @model_validator(mode="after")
    def _validation_is_looked_at(self) -> "TrainOptions":
        if self.validation and not self.eval_every:
            raise ValueError("--validation needs --eval-every above 0")
        if self.patience and not self.validation:
            raise ValueError("--patience needs --validation")
        return self

    def resolved(self, *, domain: str) -> "TrainOptions":
        """These options with the paper's values for this size and domain where nothing was said."""
        steps = self.steps or STEPS.get(domain, STEPS["maze"])
        return self.model_copy(
            update={
                "steps": steps,
                "batch_size": self.batch_size or BATCH_SIZES.get(domain, BATCH_SIZES["maze"]),
                "lr": self.lr or LEARNING_RATES.get(self.model, LEARNING_RATES["1M"]),
                "warmup": min(WARMUP_STEPS, steps // 10) if self.warmup is None else self.warmup,
            }
        )

    def result_fields(self) -> dict[str, Any]:
        """The fields that decide the trained weights: those that a resumed run must have unchanged."""
        passed_over = NOT_OF_THE_RESULT - ({"eval_every"} if self.validation else set())
        return {k: v for k, v in self.model_dump(mode="json").items() if k not in passed_over}


def make_options(**values: Any) -> TrainOptions:
    """Options from unchecked values; an error names the first wrong one."""
    try:
        return TrainOptions(**values)
    except ValidationError as error:
        first = error.errors()[0]
        if not first["loc"]:
            raise SearchformerError(first["msg"].removeprefix("Value error, ")) from error
        name = "--" + "-".join(map(str, first["loc"])).replace("_", "-")
        raise SearchformerError(f"{name} {first['input']!r}: {first['msg']}") from error
