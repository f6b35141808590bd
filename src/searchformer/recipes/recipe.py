"""A recipe: a whole experiment in one TOML file, validated once; errors name the field as a path (`train[1].steps`).

In: the name of a shipped recipe or a file, and changes as in `--set train.steps=2000`. Out: a frozen `Recipe`, which
can be written as TOML again with every default spelled out. Try: `searchformer run quickstart --dry-run`.
"""

import json
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from searchformer.dataset.shards import GenerateConfig
from searchformer.errors import SearchformerError

SHIPPED = Path(__file__).parent
NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"
"""Names become folders."""
NOT_OF_THE_RESULT = frozenset({"title", "description", "device", "processes"})
"""Fields that a run may be gone on with otherwise than it was begun."""

T = TypeVar("T")


def _as_tuple(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    return value if isinstance(value, tuple) or value is None else (value,)


Many = Annotated[tuple[T, ...], BeforeValidator(_as_tuple), Field(min_length=1)]
"""One value, or a list of values: the experiment is done with each."""


class _Section(BaseModel):
    """A table of a recipe."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class DataSpec(GenerateConfig):
    """A data set: what `searchformer generate` takes."""

    model_config = _Section.model_config


class TrainSpec(_Section):
    """Training runs: one for each combination of `data`, `model`, `plan_only`, `sequences` and `seed`.

    Where None is allowed, `searchformer train` takes the paper's value for the size and the domain.
    """

    name: str = Field(default="", pattern=NAME + "|^$")
    """Begins the runs' names; bootstraps may refer to it."""
    data: Many[str]
    """Names of data sets."""
    model: Many[str]
    """Named sizes, or shapes as dim=64,layers=3,heads=4,ffn=192."""
    plan_only: Many[bool] = (False,)
    """Learn plans without traces (solution-only)."""
    sequences: Many[Annotated[int, Field(ge=1)]] | None = None
    """Train on the first so many tasks by task id; all when left out."""
    seed: Many[Annotated[int, Field(ge=0)]] = (0,)
    """Draws the first weights and the order of the batches."""
    init_from: str | None = None
    """Name of an entry above: each run begins with the weights of its run of the same model and variant."""
    steps: int | None = Field(default=None, ge=1)
    """Optimiser steps."""
    batch_size: int | None = Field(default=None, ge=1)
    """Sequences per step, over all processes."""
    lr: float | None = Field(default=None, gt=0)
    """Peak learning rate."""
    warmup: int | None = Field(default=None, ge=0)
    """Steps of linear warm-up."""
    schedule: Literal["cosine", "constant"] = "cosine"
    """After the warm-up."""
    optimiser: Literal["adamw", "muon"] = "adamw"
    """AdamW on all weights, or Muon on the matrices of the layers and AdamW on the rest."""
    weight_decay: float = Field(default=0.01, ge=0)
    """Of all weights."""
    clip: float | None = Field(default=None, gt=0)
    """Largest gradient norm; no clipping when left out."""
    validation: int = Field(default=0, ge=0)
    """Hold the last so many training tasks out and keep the model with the least loss on them."""
    patience: int = Field(default=0, ge=0)
    """Stop after so many evaluations without a better validation loss; 0 to go on to the end."""
    max_trace_tokens: int = Field(default=10_000, ge=0)
    """Leave out tasks with longer traces."""
    tokens_per_microbatch: int = Field(default=16_384, ge=1)
    """Padded tokens computed at once; more are accumulated, same gradient."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Of matrix products."""
    compile: bool = False
    """Run the layers through torch.compile."""
    eval_every: int = Field(default=1000, ge=0)
    """Steps between looks at the validation tasks, else at the test split, which choose nothing; 0 for none."""
    eval_tasks: int = Field(default=256, ge=1)
    """Test tasks per look."""
    save_every: int = Field(default=500, ge=1)
    """Steps between checkpoints."""
    processes: int = Field(default=1, ge=1)
    """Training processes on this machine: cores on a CPU, or GPUs."""


class EvaluationSpec(_Section):
    """How every trained model is asked: answers to test tasks, judged by the strict judge."""

    tasks: int | None = Field(default=None, ge=1)
    """Test tasks, the first by task id; all when left out."""
    samples: int = Field(default=64, ge=1)
    """Answers per task."""
    seed: int = Field(default=0, ge=0)
    """Of the sampling."""
    temperature: float = Field(default=1.0, ge=0)
    """0 takes the most probable token."""
    top_k: int = Field(default=0, ge=0)
    """0 for all tokens."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """1 for all tokens."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Cuts answers; twice the data set's longest response when left out."""
    slots: int = Field(default=128, ge=1)
    """Sequences at a time, per worker."""
    cache_gb: float = Field(default=4.0, gt=0)
    """Most memory for keys and values."""


class BootstrapSpec(_Section):
    """Bootstraps: one for each training run that `train` names, with each rule."""

    name: str = Field(default="", pattern=NAME + "|^$")
    """Begins the bootstraps' names."""
    train: Many[str]
    """Names of `[[train]]` entries or of their runs; `*` stands for anything. Solution-only runs are passed over."""
    rule: Many[str] = ("paper",)
    """Which answers replace the training traces."""
    rounds: int = Field(default=3, ge=1)
    """Rounds of sampling and fine-tuning."""
    samples: int = Field(default=32, ge=1)
    """Answers per training task and round."""
    tasks: int | None = Field(default=None, ge=1)
    """Training tasks used, the first by task id; as many as the model was trained on when left out."""
    fresh: bool = False
    """Take other training tasks in every round: the next `tasks`, then the first again."""
    temperature: float = Field(default=1.0, gt=0)
    """Of sampling answers to training tasks."""
    steps: int = Field(default=10_000, ge=1)
    """Fine-tuning steps per round."""
    batch_size: int | None = Field(default=None, ge=1)
    """Sequences per step; the training run's when left out."""
    lr: float | None = Field(default=None, gt=0)
    """Peak learning rate; the training run's when left out."""
    warmup: int | None = Field(default=None, ge=0)
    """Warm-up steps."""
    optimiser: Literal["adamw", "muon"] | None = None
    """The training run's when left out."""
    weight_decay: float | None = Field(default=None, ge=0)
    """The training run's when left out."""
    clip: float | None = Field(default=None, gt=0)
    """The training run's when left out."""
    eval_tasks: int | None = Field(default=None, ge=1)
    """Test tasks per round; the evaluation's when left out."""
    eval_samples: int | None = Field(default=None, ge=1)
    """Answers per test task; the evaluation's when left out."""
    seed: int | None = Field(default=None, ge=0)
    """The training run's when left out."""
    control: bool = False
    """Also fine-tune on the original traces, as long."""
    processes: int | None = Field(default=None, ge=1)
    """The training run's when left out."""


class ReportSpec(_Section):
    """The report at the end."""

    also: tuple[str, ...] = ()
    """Directories of other runs to show beside this one."""


class Recipe(_Section):
    """A whole experiment."""

    title: str
    """One line."""
    description: str = ""
    """What it is for."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where models are trained and sampled."""
    data: dict[Annotated[str, Field(pattern=NAME)], DataSpec] = Field(min_length=1)
    """Data sets by name."""
    train: tuple[TrainSpec, ...] = ()
    """Training runs."""
    evaluation: EvaluationSpec = EvaluationSpec()
    """Of every training run."""
    bootstrap: tuple[BootstrapSpec, ...] = ()
    """Bootstraps of training runs."""
    report: ReportSpec = ReportSpec()
    """At the end."""


# --- reading


def shipped_names() -> list[str]:
    """The recipes in the package, small ones first."""
    order = ["quickstart", "maze-small", "sokoban-small"]
    names = sorted(path.stem for path in SHIPPED.glob("*.toml"))
    return sorted(names, key=lambda name: (order.index(name) if name in order else len(order), name))


def load_recipe(source: str, changes: Sequence[str] = ()) -> Recipe:
    """The recipe of this name, or in this file, with changes such as `train.steps=2000`."""
    path = SHIPPED / f"{source}.toml" if source in shipped_names() else Path(source)
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SearchformerError(
            f"no recipe {source!r}: neither a file nor one of {', '.join(shipped_names())}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise SearchformerError(f"cannot read the recipe {path}: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise SearchformerError(f"{path} is not TOML: {error}") from None
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
    return path.removeprefix(".") or "recipe"


def _message(error: Any) -> str:
    kind = error["type"]
    if kind == "extra_forbidden":
        return "no such field"
    if kind == "missing":
        return "this field is missing"
    return f"{error['msg'][0].lower()}{error['msg'][1:]}; found {error['input']!r}"


def _check(recipe: Recipe) -> None:
    """What one field says of another, and what domains and models say of their settings."""
    from searchformer.domains import domain_class, make_domain
    from searchformer.model.config import make_config

    for name, data in recipe.data.items():
        with naming(f"data.{name}.domain"):
            shares = domain_class(data.domain).shares_layouts
        with naming(f"data.{name}.settings"):
            make_domain(data.domain, data.settings)
        if data.start_goal_pairs > 1 and not shares:
            raise SearchformerError(f"data.{name}.start_goal_pairs: {data.domain} tasks do not share layouts")
    for index, entry in enumerate(recipe.train):
        for name in entry.data:
            if name not in recipe.data:
                raise SearchformerError(
                    f"train[{index}].data: no data set {name!r}; there are {', '.join(recipe.data)}"
                )
            most = max(entry.sequences or (0,))
            if most > recipe.data[name].tasks:
                raise SearchformerError(
                    f"train[{index}].sequences: {most:,} asked for, data.{name} has {recipe.data[name].tasks:,} tasks"
                )
        for size in entry.model:
            with naming(f"train[{index}].model"):
                make_config(size, vocabulary=2)


class naming:
    """Puts a field's path before the errors of a block."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, SearchformerError):
            raise SearchformerError(f"{self.path}: {error}") from None


# --- changing


def apply_change(values: dict[str, Any], change: str) -> None:
    """Carry out `a.b=c`. Entries of a list are meant all (`train.steps=9`), or one by number (`train[1].steps=9`)."""
    path, equals, text = change.partition("=")
    parts = re.findall(r"[^.\[\]]+", path)
    if not equals or not parts:
        raise SearchformerError(f"--set {change!r}: expected a.b=c, as in --set train.steps=2000")
    _set(values, parts, _value(text), change)


def _set(place: Any, parts: list[str], value: Any, change: str) -> None:
    if isinstance(place, list):
        if not re.fullmatch(r"\d+", parts[0]):
            for entry in place:
                _set(entry, parts, value, change)
            return
        if int(parts[0]) >= len(place):
            raise SearchformerError(f"--set {change!r}: the recipe has entries 0 to {len(place) - 1} there")
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
        raise SearchformerError(f"--set {change!r}: {parts[0]} would be inside of a plain value")


def _value(text: str) -> Any:
    """The value that TOML reads, or else the text itself: `15M` needs no quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


# --- writing


def to_toml(recipe: Recipe) -> str:
    """The recipe as TOML, defaults included; what is None is left out."""
    lines: list[str] = []
    _write_table(recipe.model_dump(mode="json", exclude_none=True), "", lines)
    return "\n".join(lines).strip() + "\n"


def _write_table(table: dict[str, Any], path: str, lines: list[str]) -> None:
    """Plain values first, then tables, each under its heading."""
    nested = {key: value for key, value in table.items() if _is_table(value)}
    lines += [f"{_key(key)} = {_plain(value)}" for key, value in table.items() if key not in nested]
    for key, value in nested.items():
        inner = f"{path}{_key(key)}"
        for entry in value if isinstance(value, list) else [value]:
            entries_only = isinstance(value, dict) and value and all(_is_table(one) for one in value.values())
            if not entries_only:
                lines += ["", f"[[{inner}]]" if isinstance(value, list) else f"[{inner}]"]
            _write_table(entry, f"{inner}.", lines)


def _is_table(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and bool(value) and isinstance(value[0], dict))


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _plain(key)


def _plain(value: Any) -> str:
    """Strings, numbers, booleans and lists of them: JSON's spelling is TOML's, but for DEL."""
    if isinstance(value, list):
        return "[" + ", ".join(_plain(one) for one in value) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


# --- comparing


def first_difference(found: Recipe, asked: Recipe) -> str | None:
    """Path and both values of the first field that decides results and differs; None if there is none."""
    return _difference(found.model_dump(mode="json"), asked.model_dump(mode="json"), "")


def _difference(found: Any, asked: Any, path: str) -> str | None:
    if isinstance(found, dict) and isinstance(asked, dict):
        for key in [*found, *(key for key in asked if key not in found)]:
            if key not in NOT_OF_THE_RESULT or path == ".data":
                inner = _difference(found.get(key), asked.get(key), f"{path}.{key}")
                if inner:
                    return inner
        return None
    tables = isinstance(found, list) and isinstance(asked, list) and any(isinstance(one, dict) for one in found + asked)
    if tables and len(found) == len(asked):
        pairs = enumerate(zip(found, asked, strict=True))
        return next((d for i, pair in pairs if (d := _difference(*pair, f"{path}[{i}]"))), None)
    if tables and len(found) != len(asked):
        return f"{path.removeprefix('.')} has {len(found)} entries there and {len(asked)} here"
    return None if found == asked else f"{path.removeprefix('.')} = {found!r} there and {asked!r} here"
