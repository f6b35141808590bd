"""Training: `train(options, out)` from a data set to a model directory, resumable at every moment."""

from typing import TYPE_CHECKING, Any

from searchformer.train.options import TrainOptions

if TYPE_CHECKING:
    from searchformer.train.loop import ExactMatch, TrainResult, train

__all__ = ["ExactMatch", "TrainOptions", "TrainResult", "train"]


def __getattr__(name: str) -> Any:
    """Loads torch only when training is used, not for its options."""
    if name not in __all__:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    from searchformer.train import loop

    return getattr(loop, name)
