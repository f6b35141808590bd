"""The options of `searchformer rollout`; no torch is loaded for them."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from searchformer.options import MayChange, OptionsModel


class AnswerOptions(OptionsModel):
    """How a model is asked for answers: also a recipe's `[evaluation]`."""

    tasks: int | None = Field(default=None, ge=1)
    """Answer the first N tasks by task id; all if left out."""
    samples: int = Field(default=64, ge=1)
    """Answers per task."""
    seed: int = 0
    """Same seed, same answers, whatever the batches and the number of workers."""
    temperature: float = Field(default=1.0, ge=0)
    """Divides the logits; 0 takes the most probable token."""
    top_k: int = Field(default=0, ge=0)
    """Draw from the k most probable tokens only; 0: from all."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Draw only from the fewest most probable tokens that together hold this share of the probability; 1: from all."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Cut longer answers; twice the data set's longest response if left out."""
    prefix: str = ""
    """Tokens that every answer begins with, separated by spaces."""
    constrain: bool = False
    """Draw only tokens that the grammar allows next."""
    precision: Literal["auto", "fp32", "bf16", "int8"] = "auto"
    """fp32, bf16, int8 (an 8-bit cache, on CPUs only), or auto: bf16, except on GPUs without it."""
    slots: Annotated[int, MayChange] = Field(default=256, ge=1)
    """Sequences sampled at a time, per worker."""
    cache_gb: Annotated[float, MayChange] = Field(default=4.0, gt=0)
    """Memory limit for keys and values, in GB, over all workers."""
    compile: Annotated[bool, MayChange] = False
    """Run the network through torch.compile."""


class RolloutOptions(AnswerOptions):
    """What to sample, with what, and where the answers go."""

    model: Path
    """A model directory, a run that has made one, or the name of a packaged model."""
    data: Path
    """Directory of the data set, or a file of tasks."""
    out: Annotated[Path, MayChange]
    """Directory for the answers; run the same command again to continue."""
    split: Literal["test", "train"] = "test"
    """Which tasks of the data set."""
    skip: int = Field(default=0, ge=0)
    """Leave out the first N tasks by task id; --tasks counts from there."""
    workers: Annotated[int | None, MayChange] = Field(default=None, ge=1)
    """Processes; one per core on CPUs if left out, else one."""
    rank: Annotated[int, MayChange] = Field(default=0, ge=0)
    """Which of several machines this is, from 0."""
    world_size: Annotated[int, MayChange] = Field(default=1, ge=1)
    """How many machines share the tasks."""
    device: Annotated[str, MayChange] = "auto"
    """auto, cpu, cuda or mps."""
    save_seconds: Annotated[float, MayChange] = Field(default=20.0, ge=0)
    """Time between two files of finished answers."""
