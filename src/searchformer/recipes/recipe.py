"""A recipe: a whole experiment in one TOML file, validated once; errors name the field as a path (`train[1].steps`).

In: the name of a shipped recipe or a file, and changes as in `--set train.steps=2000`. Out: a frozen `Recipe`, which
can be written as TOML again. The sections take the options of the commands that they stand for: `generate`, `train`,
`rollout` and `bootstrap`; they are strict, as TOML has types: "3" is not a number of steps.
Try: `searchformer run quickstart --dry-run`.
"""

import contextlib
import copy
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import tomli_w
from pydantic import BeforeValidator, Field, ValidationError, create_model

from searchformer.bootstrap.options import RoundsOptions
from searchformer.bootstrap.rules import RuleName, rule_names
from searchformer.dataset.options import GenerateOptions
from searchformer.errors import SearchformerError, cut, shown
from searchformer.options import MayChange, OptionsModel, error_message
from searchformer.rollout.options import AnswerOptions
from searchformer.train.options import LearningOptions, ProcessCount, TrainingOptions

SHIPPED = Path(__file__).parent
NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"
"""Names become folders."""
FROM_TRAINING = frozenset(LearningOptions.model_fields) - {"steps", "warmup"} | {"seed", "processes"}
"""Options that a bootstrap takes from its training run unless it gives its own."""
FROM_EVALUATION = {"eval_tasks": "tasks", "eval_samples": "samples"}
"""Options that a bootstrap takes from `[evaluation]` unless it gives its own, with their names there."""

T = TypeVar("T")


def _as_tuple(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    return value if isinstance(value, tuple) or value is None else (value,)


Many = Annotated[tuple[T, ...], BeforeValidator(_as_tuple), Field(min_length=1)]
"""One value, or a list of values: the experiment is done with each."""


def may_be_left_out(base: type[OptionsModel], names: Collection[str]) -> type[OptionsModel]:
    """The options of `base`, of which these are None if they are left out."""
    fields: dict[str, Any] = {}
    for name in names:
        field = copy.copy(base.model_fields[name])
        field.default = None
        fields[name] = (field.annotation | None, field)  # type: ignore[operator]
    return create_model(f"{base.__name__}LeftOut", __base__=base, **fields)


if TYPE_CHECKING:
    _Rounds = RoundsOptions
else:
    _Rounds = may_be_left_out(RoundsOptions, FROM_TRAINING | FROM_EVALUATION.keys())


class DataSpec(GenerateOptions, strict=True):
    """A data set: the options of `searchformer generate`."""


class TrainSpec(TrainingOptions, strict=True):
    """Training runs: one for each combination of `data`, `model`, `plan_only`, `sequences` and `seed`."""

    name: str = Field(default="", pattern=NAME + "|^$")
    """Begins the runs' names; bootstraps may refer to it."""
    data: Many[str]
    """Names of data sets."""
    model: Many[str]
    """Named sizes, or shapes such as dim=64,layers=3,heads=4,ffn=192."""
    plan_only: Many[bool] = (False,)
    """Learn plans without traces (solution-only)."""
    sequences: Many[Annotated[int, Field(ge=1)]] | None = None
    """Train on the first N tasks by task id; all if left out."""
    seed: Many[Annotated[int, Field(ge=0)]] = (0,)
    """Decides the initial weights and the order of the batches."""
    init_from: str | None = None
    """Name of an entry above: each run begins with the weights of its run of the same model and variant."""
    processes: ProcessCount = 1
    answers: bool = True
    """Whether the models answer test tasks; not needed of those with which only another entry begins."""


class EvaluationSpec(AnswerOptions, strict=True):
    """How every trained model is asked: answers to test tasks, judged by the strict judge."""

    data: Many[str] | None = None
    """Names of the data sets whose test tasks are asked, bootstraps those of the first; the model's if left out."""


class BootstrapSpec(_Rounds, strict=True):
    """Bootstraps: one for each training run that `train` names, with each rule."""

    name: str = Field(default="", pattern=NAME + "|^$")
    """Begins the bootstraps' names."""
    train: Many[str]
    """Names of `[[train]]` entries or of their runs; `*` stands for anything. Solution-only runs are passed over."""
    data: str | None = None
    """Name of the data set whose training tasks are answered; the training run's if left out."""
    rule: Many[RuleName] = Field(  # type: ignore[assignment]
        default=("paper",), description=f"Which answers replace the training traces: {rule_names()}."
    )

    def may_change(self) -> set[str]:
        """A complete bootstrap is not run again, so rounds and a control cannot be added."""
        return super().may_change() - {"rounds", "control"}


class ReportSpec(OptionsModel, strict=True):
    """The report at the end."""

    also: tuple[str, ...] = ()
    """Directories of other runs to show beside this one."""


class Recipe(OptionsModel, strict=True):
    """A whole experiment."""

    title: Annotated[str, MayChange]
    """One line."""
    description: Annotated[str, MayChange] = ""
    """What it is for."""
    device: Annotated[Literal["auto", "cpu", "cuda", "mps"], MayChange] = "auto"
    """Where models are trained and sampled."""
    data: dict[Annotated[str, Field(pattern=NAME)], DataSpec] = Field(min_length=1)
    """Data sets by name."""
    merge: dict[Annotated[str, Field(pattern=NAME)], Many[str]] = Field(default={})
    """More data sets, each made of several of the others: `both = ["one", "two"]`."""
    train: tuple[TrainSpec, ...] = ()
    """Training runs."""
    evaluation: EvaluationSpec = EvaluationSpec()
    """Of every training run."""
    bootstrap: tuple[BootstrapSpec, ...] = ()
    """Bootstraps of training runs."""
    report: ReportSpec = ReportSpec()
    """At the end."""

    def data_named(self, name: str) -> DataSpec:
        """A data set; one made of several is described by its largest part, with the tasks of all."""
        if name in self.data:
            return self.data[name]
        parts = [self.data[part] for part in self.merge[name]]
        largest = max(parts, key=lambda part: part.tasks)
        return largest.model_copy(update={"tasks": sum(part.tasks for part in parts)})


# --- reading


def shipped_names() -> list[str]:
    """The recipes in the package, small ones first."""
    order = ["quickstart", "maze-small", "sokoban-small", "maze-10x10", "sokoban-7x7"]
    names = sorted(path.stem for path in SHIPPED.glob("*.toml"))
    return sorted(names, key=lambda name: (order.index(name) if name in order else len(order), name))


def load_recipe(source: str, changes: Sequence[str] = ()) -> Recipe:
    """The recipe of this name, or in this file, with changes such as `train.steps=2000`."""
    path = SHIPPED / f"{source}.toml" if source in shipped_names() else Path(source)
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SearchformerError(
            f"no recipe {shown(source)}: neither a file nor one of {', '.join(shipped_names())}"
        ) from None
    except IsADirectoryError:
        raise SearchformerError(
            f"{path} is a directory; a recipe is a file, or one of {', '.join(shipped_names())}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise SearchformerError(f"cannot read the recipe {path}: {error}") from None
    except (ValueError, RecursionError) as error:  # ValueError: also numbers of thousands of digits
        reason = "its brackets are nested too deep" if isinstance(error, RecursionError) else cut(str(error))
        raise SearchformerError(f"{path} is not TOML: {reason}") from None
    for change in changes:
        apply_change(values, change)
    return make_recipe(values, source=source)


def make_recipe(values: dict[str, Any], *, source: str = "recipe") -> Recipe:
    """The recipe that the values describe; an error names the first wrong field."""
    tables: dict[str, Any] = dict(values)
    for key in {"train", "bootstrap"} & values.keys():
        tables[key] = _as_tuple(values[key])
    if isinstance(tables.get("report"), dict):
        tables["report"] = {key: _as_tuple(value) for key, value in tables["report"].items()}
    try:
        recipe = Recipe.model_validate(tables)
    except ValidationError as error:
        first = error.errors()[0]
        raise SearchformerError(f"{source}: {field_path(first['loc'], values)}: {_message(first)}") from None
    try:
        _check(recipe)
    except SearchformerError as error:
        raise SearchformerError(f"{source}: {error}") from None
    return recipe


def field_path(location: Sequence[int | str], values: Any) -> str:
    """`("train", 1, "steps")` as `train[1].steps`; ends where the recipe has a plain value instead of a list."""
    path = ""
    for part in location:
        if part == "[key]":
            break
        if isinstance(part, int) and not isinstance(values, list | tuple):
            break
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
        try:
            values = values[part]
        except (KeyError, IndexError, TypeError):
            values = None
    return cut(path.removeprefix(".")) or "recipe"


def _message(error: Any) -> str:
    if error["type"] in ("extra_forbidden", "missing", "value_error"):
        return error_message(error).replace("option", "field")
    return f"{error_message(error)}; found {shown(error['input'])}"


def _check(recipe: Recipe) -> None:
    """Check fields against each other, and settings with their domains and models."""
    from searchformer.domains import domain_class, make_domain
    from searchformer.model.config import make_config

    for name, data in recipe.data.items():
        with errors_of(f"data.{name}.domain"):
            shares = domain_class(data.domain).shares_layouts
        with errors_of(f"data.{name}.settings"):
            make_domain(data.domain, data.settings)
        if data.start_goal_pairs > 1 and not shares:
            raise SearchformerError(f"data.{cut(name)}.start_goal_pairs: {cut(data.domain)} tasks do not share layouts")
    for name, parts in recipe.merge.items():
        if name in recipe.data:
            raise SearchformerError(f"merge.{cut(name)}: there is a data.{cut(name)} already")
        _check_names(parts, recipe.data, f"merge.{cut(name)}")
    known = [*recipe.data, *recipe.merge]
    _check_names(recipe.evaluation.data or (), known, "evaluation.data")
    for index, entry in enumerate(recipe.train):
        _check_names(entry.data, known, f"train[{index}].data")
        for name in entry.data:
            most, there = max(entry.sequences or (0,)), recipe.data_named(name).tasks
            if most > there:
                raise SearchformerError(
                    f"train[{index}].sequences: {most:,} asked for, data.{cut(name)} has {there:,} tasks"
                )
        for size in entry.model:
            with errors_of(f"train[{index}].model"):
                make_config(size, vocabulary=2)
    for index, boot in enumerate(recipe.bootstrap):
        _check_names((boot.data,) if boot.data else (), known, f"bootstrap[{index}].data")


def _check_names(names: Iterable[str], known: Collection[str], path: str) -> None:
    for name in names:
        if name not in known:
            raise SearchformerError(f"{path}: no data set {shown(name)}; there are {cut(', '.join(known))}")


@contextlib.contextmanager
def errors_of(path: str) -> Iterator[None]:
    """Puts a field's path before the errors of a block."""
    try:
        yield
    except SearchformerError as error:
        raise SearchformerError(f"{cut(path)}: {error}") from None


# --- changing


def apply_change(values: dict[str, Any], change: str) -> None:
    """Carry out `a.b=c`: in all entries of a list (`train.steps=9`), or in one of them (`train[1].steps=9`)."""
    path, equals, text = change.partition("=")
    parts = re.findall(r"[^.\[\]]+", path)
    if not equals or not parts:
        raise SearchformerError(f"--set {shown(change)}: expected a.b=c, as in --set train.steps=2000")
    _set(values, parts, _value(text), change)


def _set(place: Any, parts: list[str], value: Any, change: str) -> None:
    if isinstance(place, list):
        if not re.fullmatch(r"\d+", parts[0]):
            for entry in place:
                _set(entry, parts, value, change)
            return
        if len(parts[0]) > 9 or int(parts[0]) >= len(place):
            raise SearchformerError(f"--set {shown(change)}: the recipe has entries 0 to {len(place) - 1} there")
        if len(parts) > 1:
            _set(place[int(parts[0])], parts[1:], value, change)
        else:
            place[int(parts[0])] = value
    elif isinstance(place, dict):
        if len(parts) == 1:
            place[parts[0]] = value
        else:
            _set(place.setdefault(parts[0], {}), parts[1:], value, change)
    else:
        raise SearchformerError(f"--set {shown(change)}: {shown(parts[0])} would be inside of a plain value")


def _value(text: str) -> Any:
    """The value that TOML reads, or else the text itself: `15M` needs no quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


# --- writing and comparing


def to_toml(recipe: Recipe) -> str:
    """The recipe as TOML with defaults spelled out; what is None is left out."""
    return tomli_w.dumps(recipe.model_dump(mode="json", exclude_none=True))


def result_fields(recipe: Recipe) -> dict[str, Any]:
    """What decides the results of a recipe, with the domains' default settings spelled out."""
    from searchformer.domains import make_domain

    fields = recipe.result_fields()
    for data in fields["data"].values():
        data["settings"] = make_domain(data["domain"], data["settings"]).model_dump(mode="json")
    return {"names of data sets": sorted(fields["data"]), **fields}
