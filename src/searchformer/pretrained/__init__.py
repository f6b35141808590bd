"""Models in the package: a directory each, in the format of every other model, with a MODEL_CARD.md.

In: a domain's name and a task's size. Out: the model that fits best.
`python -m searchformer.pretrained.package` adds one.
The environment variable SEARCHFORMER_MODELS names another directory to look in.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from searchformer.errors import SearchformerError
from searchformer.files import read_json

HERE = Path(__file__).parent
VARIABLE = "SEARCHFORMER_MODELS"
WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class PackagedModel:
    """A model and what it was trained for."""

    directory: Path
    domain: str
    settings: dict[str, Any]
    """The domain's settings: width, height, ..."""

    @property
    def name(self) -> str:
        """Its directory's name."""
        return self.directory.name


def packaged_models() -> list[PackagedModel]:
    """All packaged models, by name; no weights are read."""
    root = Path(os.environ.get(VARIABLE) or HERE)
    found = []
    for path in sorted(root.glob("*/config.json")):
        trained = read_json(path, what="model").get("trained", {})
        found.append(PackagedModel(path.parent, trained.get("domain", ""), trained.get("settings", {})))
    return found


def find_model(domain: str, size: dict[str, int]) -> PackagedModel | None:
    """The packaged model for tasks of this size: the same, else one for many sizes, the nearest larger, the largest."""

    def misfit(model: PackagedModel) -> tuple[int, bool, int]:
        missing = [value - int(model.settings.get(name) or 0) for name, value in size.items()]
        smallest = model.settings.get("smallest")
        unknown = any(missing) and not (smallest and all(value >= smallest for value in size.values()))
        return sum(each for each in missing if each > 0), unknown, sum(map(abs, missing))

    return min((model for model in packaged_models() if model.domain == domain), key=misfit, default=None)


def resolve_model(model: str | Path) -> Path:
    """The directory of a model: given as such, as a run that has made one, or as the name of a packaged model."""
    found = models_of(Path(model))
    if len(found) > 1:
        listed = ", ".join(map(str, found))
        raise SearchformerError(f"{model} holds {len(found)} models; choose one of {listed}")
    if found:
        return found[0]
    packaged = {each.name: each.directory for each in packaged_models()}
    if str(model) not in packaged:
        names = ", ".join(packaged) or "none here"
        raise SearchformerError(
            f"{model} holds no model: expected a model directory, a run with one, or a packaged model ({names})"
        )
    return packaged[str(model)]


def models_of(directory: Path) -> list[Path]:
    """The models of a directory: itself, its training run's, its bootstrap's of the last round, or its recipe's."""
    for place in (directory, directory / "model"):
        if (place / WEIGHTS).is_file():
            return [place]
    if (directory / "bootstrap.json").is_file():
        rounds = read_json(directory / "bootstrap.json", what="bootstrap run")["rounds"]
        made = [directory / entry["model"] for entry in rounds if entry["round"] and not entry.get("control")]
        return made[-1:]
    if (directory / "recipe.toml").is_file():
        runs = [*sorted(directory.glob("train/*/")), *sorted(directory.glob("bootstrap/*/"))]
        return [model for run in runs for model in models_of(run)]
    return []
