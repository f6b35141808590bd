"""The options of `searchformer bootstrap`: those of training, and those of its rounds."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from searchformer.bootstrap.rules import RuleName, rule_names
from searchformer.options import MayChange
from searchformer.train.options import LearningOptions, ProcessCount


class RoundsOptions(LearningOptions):
    """What is done in every round: also a recipe's `[[bootstrap]]`."""

    rounds: Annotated[int, MayChange] = Field(default=3, ge=1)
    """Rounds of sampling and fine-tuning."""
    samples: int = Field(default=32, ge=1)
    """Answers per training task and round."""
    tasks: int | None = Field(default=None, ge=1)
    """Use the first N training tasks by task id; all if left out."""
    fresh: bool = False
    """Use different training tasks in every round: the next --tasks by task id, starting over after the last."""
    rule: RuleName = Field(default="paper", description=f"Which answers replace a trace: {rule_names()}.")
    temperature: float = Field(default=1.0, gt=0)
    """Sampling temperature for training tasks; test tasks are always answered at 1."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """The share of the probability that answers to training tasks are drawn from; for test tasks it is always 1."""
    steps: int = Field(default=10_000, ge=1)
    """Fine-tuning steps per round."""
    eval_tasks: int | None = Field(default=None, ge=1)
    """Evaluate on the first N test tasks by task id; all if left out."""
    eval_samples: int = Field(default=64, ge=1)
    """Answers per test task."""
    control: Annotated[bool, MayChange] = False
    """Also fine-tune on the original traces for as many steps, for comparison."""
    seed: int = Field(default=0, ge=0)
    """Decides which answers are sampled, and the order of the batches."""
    processes: ProcessCount = 1


class BootstrapOptions(RoundsOptions):
    """A model, its data set, and what to do in every round."""

    model: Path
    """The model to begin with: a model directory, a run that has made one, or the name of a packaged model."""
    data: Path
    """Directory of the model's data set."""
    eval_data: Path | None = None
    """Data set whose test tasks are answered, such as the largest mazes of a mixture; --data if left out."""
    answers: Annotated[Path | None, MayChange] = None
    """Its answers to these test tasks, as `rollout` wrote them: taken as round 0 if they are what it asks for."""
    device: Annotated[str, MayChange] = "auto"
    """auto, cpu, cuda or mps."""
