"""Training: `train(options, out)` from a data set to a model directory, resumable at every moment."""

from searchformer.train.loop import ExactMatch, TrainResult, train
from searchformer.train.options import TrainOptions, make_options

__all__ = ["ExactMatch", "TrainOptions", "TrainResult", "make_options", "train"]
