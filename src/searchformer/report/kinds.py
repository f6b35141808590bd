"""Kinds of tasks and kinds of models: what results are grouped by, and what they are called."""

from dataclasses import dataclass
from typing import Any

SEARCH_AUGMENTED, SOLUTION_ONLY = "search-augmented", "solution-only"
SINGULAR = {"walls": "wall", "boxes": "box"}


@dataclass(frozen=True)
class TaskKind:
    """The kind of tasks that an evaluation or a data set is about."""

    domain: str
    settings: tuple[tuple[str, Any], ...]
    """The domain's settings as sorted pairs."""
    deterministic: bool
    """Whether traces come from deterministic A*."""

    @classmethod
    def of(cls, domain: str, settings: dict[str, Any], *, deterministic: bool) -> "TaskKind":
        """The kind named by a domain's settings."""
        return cls(domain, tuple(sorted(settings.items())), deterministic)

    @property
    def size(self) -> str:
        """The size in words: `10×10`, `4×4 to 10×10`, `7×7, 2 walls, 2 boxes`."""
        rest = {name: value for name, value in self.settings if name != "max_cost"}
        parts = [f"{rest.pop('width')}×{rest.pop('height')}"] if {"width", "height"} <= rest.keys() else []
        if parts and (smallest := rest.pop("smallest", None)):
            parts = [f"{smallest}×{smallest} to {parts[0]}"]
        counts = [(name, value) for name, value in reversed(rest.items()) if isinstance(value, int) and value]
        parts += [f"{value} {name if value > 1 else SINGULAR.get(name, name)}" for name, value in counts]
        return ", ".join(parts)

    @property
    def cells(self) -> tuple[int, ...]:
        """What sizes are sorted by."""
        settings = dict(self.settings)
        numbers = [value for value in settings.values() if isinstance(value, int)]
        return (settings.get("width", 0) * settings.get("height", 0), *numbers)

    @property
    def label(self) -> str:
        """The kind in words: `maze 10×10`, `maze 10×10, deterministic`."""
        return f"{self.domain} {self.size}".strip() + (", deterministic" if self.deterministic else "")


@dataclass(frozen=True)
class ModelKind:
    """What was trained, up to the random seed."""

    size: str
    """Named size, such as 15M; empty where it is not known."""
    variant: str
    """`search-augmented`, `solution-only`, or the evaluation's name where it is not known."""
    sequences: int | None
    """Number of training sequences."""
    round: int = 0
    """Number of bootstrapping rounds, those before the bootstrap at hand included."""
    control: bool = False
    """Fine-tuned as the bootstrapped model was, but on the original traces."""
    rule: str = ""
    """The bootstrap's selection rule, where it was named."""

    @property
    def searches(self) -> bool:
        """Whether its answers hold traces."""
        return self.variant != SOLUTION_ONLY

    @property
    def family(self) -> str:
        """What it is called in the paper, without the round."""
        if self.control:
            return "control"
        return "Searchformer" if self.round else self.variant

    @property
    def title(self) -> str:
        """What it is called in the paper: `solution-only`, `Searchformer, round 2`."""
        return f"{self.family}, round {self.round}" if self.round else self.family

    @property
    def name(self) -> str:
        """Its title, with the rule by which a bootstrapped model's traces were chosen."""
        return f"{self.title} ({self.rule})" if self.rule and self.round else self.title

    @property
    def label(self) -> str:
        """Size and title."""
        return f"{self.size} {self.title}".strip()

    @property
    def long_label(self) -> str:
        """Size and name."""
        return f"{self.size} {self.name}".strip()


def size_order(size: str) -> tuple[float, str]:
    """Sorts 15M before 175M."""
    try:
        return float(size.rstrip("MKBmkb")) * {"K": 1e-3, "B": 1e3}.get(size[-1:].upper(), 1.0), size
    except ValueError:
        return 0.0, size
