"""The shape of a network: a named size, or numbers of one's own, as in `--model dim=64,layers=3,heads=4,ffn=192`.

The sizes of the paper carry its names (appendix B, table of architecture hyper-parameters). Its counts include two
fixed RoPE tables; `Transformer.parameter_count` counts what is trained, which is less.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from searchformer.errors import SearchformerError, cut, shown

HEAD_BLOCKS = 1
"""Residual blocks of a step network's head."""
STEP_FORMAT = 2
"""What the weights of step networks mean: raised whenever those of earlier versions would be misread."""


class ModelConfig(BaseModel):
    """The shape of an encoder-decoder Transformer; encoder and decoder are of the same size."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    vocabulary: int = Field(ge=2, le=1 << 24)
    """Number of tokens, bos and eos included."""
    dim: int = Field(ge=2, le=1 << 16)
    """Width of the residual stream."""
    layers: int = Field(ge=1, le=1000)
    """Blocks in the encoder, and again in the decoder."""
    heads: int = Field(ge=1, le=1 << 12)
    """Attention heads per block."""
    ffn: int = Field(ge=1, le=1 << 20)
    """Hidden width of the feed-forward layers."""
    positions: int = Field(default=65536, ge=1, le=1 << 24)
    """Longest sequence, bos and eos included, in tokens or in the steps of a step network."""
    rope_theta: float = Field(default=10000.0, gt=0)
    """Base of the rotary frequencies."""
    norm_eps: float = Field(default=1e-5, gt=0)
    """Added to the mean square in RMSNorm."""
    unit: Literal["token", "step"] = "token"
    """What a position holds: a token, as in the published networks, or a step of the search."""
    shift: int = Field(default=0, ge=0, le=1 << 10)
    """Self-attention in the decoder reads each position mixed with this many before it."""
    number_heads: int = Field(default=0, ge=0, le=1 << 12)
    """Heads that turn by the numbers of pieces instead of their positions, in a step network (`rotary.py`)."""
    vicinity: int = Field(default=0, ge=0, le=16)
    """A step network's decoder is told what stands up to this far away from the node at hand (`tokens/vicinity.py`)."""
    near: int = Field(default=0, ge=0, le=1 << 10)
    """A step network's head reads and writes numbers relative to others up to this far away (`head.py`)."""
    places: int = Field(default=1, ge=1, le=1 << 16)
    """Tokens that a position of a response can hold; 1 for a token network, for others what the data set needs."""
    plan_places: int = Field(default=1, ge=1, le=1 << 16)
    """Tokens that a position with a step of a plan can hold, likewise."""
    prompt_places: int = Field(default=1, ge=1, le=1 << 16)
    """Tokens that a position of a prompt can hold, likewise."""
    symbols: int = Field(default=0, ge=0)
    """Symbols of a step network where tokens share one (`tokens/symbols.py`); 0: every token has its own."""

    @model_validator(mode="after")
    def _fits_together(self) -> "ModelConfig":
        if self.dim % (2 * self.heads):
            raise ValueError(f"dim {self.dim} must be a multiple of 2 x heads = {2 * self.heads}")
        if self.unit == "token" and (self.number_heads or self.near or self.vicinity):
            raise ValueError("a token network knows no numbers: number_heads, near and vicinity must be 0")
        if self.vicinity and not self.number_heads:
            raise ValueError("vicinity needs number_heads: one for each pair of numbers from which to look around")
        if self.number_heads > self.heads or (self.number_heads and self.head_dim < 4):
            raise ValueError(f"number_heads must be at most heads, {self.heads}, and heads at least 4 wide")
        if self.unit == "token" and (self.places, self.plan_places, self.prompt_places) != (1, 1, 1):
            raise ValueError("a token network has one token at every position: all its places must be 1")
        if self.plan_places > self.places:
            raise ValueError(f"plan_places {self.plan_places} must not be more than places {self.places}")
        if self.unit == "token" and self.symbols:
            raise ValueError("a token network tells all tokens apart: symbols must be 0")
        if self.symbols > self.vocabulary:
            raise ValueError(f"symbols {self.symbols} must not be more than the {self.vocabulary} tokens")
        return self

    def fitted(self, *, places: int, plan_places: int, prompt_places: int, symbols: int) -> "ModelConfig":
        """A step network's shape for a data set whose longest pieces and number of symbols are these."""
        shared = symbols if symbols < self.vocabulary else 0
        fields = {"places": places, "plan_places": plan_places, "prompt_places": prompt_places, "symbols": shared}
        return self.model_copy(update=fields)

    def stored(self) -> dict[str, Any]:
        """The fields as `config.json` holds them. Those that came with step networks are left out of token networks."""
        optional = STEP_FIELDS if self.unit == "token" else ("symbols", "vicinity")
        defaults = {name: type(self).model_fields[name].default for name in optional}
        fields = self.model_dump(exclude={name for name, value in defaults.items() if getattr(self, name) == value})
        return fields | ({"step_format": STEP_FORMAT} if self.unit == "step" else {})

    @classmethod
    def from_stored(cls, fields: dict[str, Any]) -> "ModelConfig":
        """The shape that `stored` wrote; raises for step networks whose weights mean something else now."""
        fields = dict(fields)
        found = fields.pop("step_format", 1)
        if fields.get("unit") == "step" and found != STEP_FORMAT:
            age = "an earlier" if isinstance(found, int) and found < STEP_FORMAT else "a later"
            raise SearchformerError(
                f"a step network of {age} version of searchformer, which reads steps in another way: train it again, "
                "or use that version"
            )
        return cls.model_validate(fields)

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return self.dim // self.heads

    @property
    def symbol_count(self) -> int:
        """What the network tells apart: rows of its tables for one place."""
        return self.symbols or self.vocabulary

    @property
    def most_tokens(self) -> int:
        """Tokens of the longest response that positions can hold."""
        return self.positions * self.places


STEP_FIELDS = (
    *("unit", "shift", "number_heads", "near", "vicinity"),
    *("places", "plan_places", "prompt_places", "symbols"),
)
"""Fields that came with step networks."""

SMALL_DIM = 128
"""Networks up to this width do not fill several cores, and are worth the precision of fp32 on them."""

STEP: dict[str, Any] = {"unit": "step", "shift": 3, "near": 3, "vicinity": 2}
"""What all named sizes of step networks have in common."""

SIZES: dict[str, dict[str, Any]] = {
    "1M": {"dim": 128, "layers": 3, "heads": 4, "ffn": 256},
    "3M": {"dim": 128, "layers": 6, "heads": 4, "ffn": 384},
    "15M": {"dim": 192, "layers": 6, "heads": 3, "ffn": 512},
    "46M": {"dim": 384, "layers": 8, "heads": 4, "ffn": 1024},
    "175M": {"dim": 768, "layers": 9, "heads": 4, "ffn": 2048},
    "747M": {"dim": 1152, "layers": 16, "heads": 12, "ffn": 3072},
    "step-small": STEP | {"dim": 64, "layers": 3, "heads": 4, "ffn": 192, "number_heads": 2},
    "step-medium": STEP | {"dim": 96, "layers": 3, "heads": 6, "ffn": 256, "number_heads": 3},
    "step-large": STEP | {"dim": 128, "layers": 4, "heads": 8, "ffn": 384, "number_heads": 4},
}


def shape_of(size: str) -> dict[str, Any]:
    """The shape that `size` asks for: a name of `SIZES`, or `dim=64,layers=3,heads=4` with `ffn=` if wanted."""
    if size in SIZES:
        return dict(SIZES[size])
    if "=" not in size:
        raise SearchformerError(
            f"unknown model size {shown(size)}; known: {', '.join(SIZES)}, or a shape "
            "as dim=64,layers=3,heads=4,ffn=192"
        )
    shape: dict[str, Any] = dict(pair.partition("=")[::2] for pair in size.split(","))
    if "dim" in shape and "ffn" not in shape and shape["dim"].isdecimal():
        shape["ffn"] = default_ffn(int(shape["dim"][:9]))  # a longer number is refused as a width
    return shape


def default_ffn(dim: int) -> int:
    """Hidden width of the published networks: 8/3 of `dim`, rounded up to a multiple of 256."""
    return -(int(8 * dim / 3) // -256) * 256


def make_config(size: str, *, vocabulary: int) -> ModelConfig:
    """The configuration of a named size or custom shape, for a vocabulary of so many tokens."""
    try:
        return ModelConfig(vocabulary=vocabulary, **shape_of(size))
    except (ValidationError, TypeError) as error:
        raise SearchformerError(f"model {shown(size)}: {first_error(error)}") from error


def first_error(error: Exception) -> str:
    """What a validation error says first, with the field's name."""
    if not isinstance(error, ValidationError):
        return cut(str(error))
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"]))
    message = first["msg"].removeprefix("Value error, ")
    return f"{cut(place)}: {message}" if place else message
