"""The encoder-decoder Transformer: shapes, network, and the directory it is saved in."""

from searchformer.model.config import SIZES, ModelConfig, make_config
from searchformer.model.storage import load_model, read_model_config, save_model
from searchformer.model.transformer import Transformer, with_symbols

__all__ = [
    "SIZES",
    "ModelConfig",
    "Transformer",
    "load_model",
    "make_config",
    "read_model_config",
    "save_model",
    "with_symbols",
]
