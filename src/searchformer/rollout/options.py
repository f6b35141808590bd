"""The options of `searchformer rollout`."""

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class RolloutOptions(BaseModel):
    """What to sample, and how."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: Path
    """Directory of the model."""
    data: Path
    """Directory of the data set."""
    out: Path
    """Directory for the answers."""
    split: str = "test"
    """`test` or `train`."""
    tasks: int | None = Field(default=None, ge=1)
    """The first so many tasks by task id; None for all."""
    skip: int = Field(default=0, ge=0)
    """Leave out the first so many before."""
    samples: int = Field(default=64, ge=1)
    """Answers per task."""
    seed: int = 0
    """Noise is derived from it, the task and the sample."""
    temperature: float = 1.0
    """0 takes the most probable token."""
    top_k: int = 0
    """0 for all tokens."""
    top_p: float = 1.0
    """1 for all tokens."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Cuts answers; None for twice the data set's longest response."""
    prefix: str = ""
    """Tokens that every answer begins with."""
    constrain: bool = False
    """Only tokens that the grammar allows next."""
    precision: str = "auto"
    """auto, fp32, bf16 or int8; see `Engine`."""
    slots: int = Field(default=128, ge=1)
    """Sequences at a time, per worker."""
    cache_gb: float = Field(default=4.0, gt=0)
    """Memory for keys and values, all workers together."""
    workers: int | None = Field(default=None, ge=1)
    """Processes; None for one per core on the CPU, one elsewhere."""
    rank: int = Field(default=0, ge=0)
    """Which machine this is."""
    world_size: int = Field(default=1, ge=1)
    """How many machines share the tasks."""
    device: str = "auto"
    """auto, cpu, cuda or mps."""
    compile: bool = False
    """Run the network through torch.compile."""
    save_seconds: float = Field(default=20.0, ge=0)
    """Time between two files of finished answers."""

    def result_fields(self) -> dict[str, Any]:
        """The options that decide the result, as JSON values: a resumed run must have the same ones."""
        free = {"out", "slots", "cache_gb", "workers", "rank", "world_size", "device", "compile", "save_seconds"}
        return self.model_dump(mode="json", exclude=free)
