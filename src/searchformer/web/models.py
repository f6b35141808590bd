"""The models that can be asked: the packaged ones, one given on the command line, and those of open runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from searchformer.digests import file_digest
from searchformer.domains import TaskError
from searchformer.errors import SearchformerError
from searchformer.files import read_json
from searchformer.pretrained import WEIGHTS, find_model, packaged_models, resolve_model
from searchformer.solve import Task
from searchformer.solve.planning import AnswerSampler
from searchformer.web.records import Example, ModelView


@dataclass(frozen=True)
class ModelEntry:
    """A model on disk."""

    name: str
    directory: Path
    shape: dict[str, Any]
    trained: dict[str, Any]

    @classmethod
    def read(cls, name: str, directory: Path) -> "ModelEntry":
        """Reads `config.json` only."""
        stored = read_json(directory / "config.json", what="model")
        return cls(name, directory, stored.get("shape", {}), stored.get("trained", {}))

    @cached_property
    def digest(self) -> str:
        """Of its weights: the one that stored answers name."""
        return file_digest(self.directory / WEIGHTS)

    def view(self) -> ModelView:
        """What the browser is told."""
        settings = self.trained.get("settings", {})
        return ModelView(
            name=self.name,
            domain=self.trained.get("domain", ""),
            width=settings.get("width"),
            height=settings.get("height"),
            boxes=settings.get("boxes"),
            unit=self.shape.get("unit", "token"),
            parameters=self.trained.get("parameters"),
            searches=self.trained.get("variant") != "solution-only",
        )


class Models:
    """All models by name."""

    def __init__(self, runs: dict[str, Path], *, model: str | Path | None = None) -> None:
        entries = [ModelEntry.read(each.name, each.directory) for each in packaged_models()]
        for run, directory in runs.items():
            for path in sorted(directory.rglob(WEIGHTS)):
                place = path.parent.relative_to(directory)
                name = "/".join([run, *(place.parts[:-1] if place.name == "model" else place.parts)])
                entries.append(ModelEntry.read(name, path.parent))
        self.entries = {entry.name: entry for entry in entries if entry.trained.get("domain") in ("maze", "sokoban")}
        self.preferred: ModelEntry | None = None
        if model is not None:
            directory = resolve_model(model)
            known = next((each for each in self.entries.values() if each.directory == directory), None)
            short = Path(model).resolve().name
            name = str(model) if short in self.entries else short
            self.preferred = known or ModelEntry.read(name, directory)
            self.entries[self.preferred.name] = self.preferred

    def views(self) -> list[ModelView]:
        """What the browser is told of all models."""
        return [entry.view() for entry in self.entries.values()]

    def first_asked(self, example: Example) -> list[ModelEntry]:
        """The models to have ready: the preferred one, or one of each domain, with that of the opening task first."""
        if self.preferred:
            return [self.preferred]
        shown = example.right.who if example.right else None
        by_domain: dict[str, ModelEntry] = {}
        for entry in sorted(self.entries.values(), key=lambda entry: entry.name != shown):
            by_domain.setdefault(entry.trained["domain"], entry)
        return list(by_domain.values())

    def name_of(self, digest: str | None) -> str | None:
        """The name of the model with these weights, if it can be asked."""
        return next((entry.name for entry in self.entries.values() if entry.digest == digest), None)

    def choose(self, task: Task, name: str | None) -> ModelEntry:
        """The model called `name`, or the one that fits the task; raises SearchformerError."""
        if name is not None:
            if name not in self.entries:
                raise SearchformerError(f"there is no model {name!r}; there are {', '.join(self.entries)}")
            return self.entries[name]
        if self.preferred and self.preferred.trained.get("domain") == task.domain.name:
            return self.preferred
        found = find_model(task.domain.name, task.domain.measure(task.problem))
        if found is None:
            raise SearchformerError(f"no model for {task.domain.name} is packaged")
        return self.entries[found.name]

    def prepare(self, task: Task, name: str | None) -> tuple[ModelEntry, AnswerSampler]:
        """The model for a task, with the task in its words; raises SearchformerError if it has none for it."""
        entry = self.choose(task, name)
        try:
            return entry, AnswerSampler.open(entry.directory, task)
        except TaskError as error:
            raise SearchformerError(f"{entry.name} has no words for this task ({error})") from None


def runs_by_name(directories: Sequence[Path]) -> dict[str, Path]:
    """Run directories by their names; raises if one is missing or two are called the same."""
    found: dict[str, Path] = {}
    for directory in directories:
        name = directory.resolve().name
        if not directory.is_dir():
            raise SearchformerError(f"{directory} is not a directory; --run expects a run directory")
        if name in found:
            raise SearchformerError(f"two runs are called {name}: {found[name]} and {directory}")
        found[name] = directory
    return found
