"""Options: one text for the command line, recipes, configurations and resume checks."""

import tomllib
from pathlib import Path
from typing import Annotated, Literal

import pytest
from command import invoke
from pydantic import Field

from searchformer.bootstrap.options import BootstrapOptions
from searchformer.errors import SearchformerError
from searchformer.files import MARKS, require_kind, write_json
from searchformer.options import MayChange, OptionsModel
from searchformer.pretrained import HERE, resolve_model
from searchformer.recipes.recipe import BootstrapSpec, TrainSpec, load_recipe, make_recipe, result_fields
from searchformer.rollout.options import AnswerOptions, RolloutOptions
from searchformer.train.launch import train_command
from searchformer.train.options import LearningOptions, TrainingOptions, TrainOptions

OTHER = {int: 7, float: 0.5, str: "other", bool: True, Path: Path("elsewhere")}


class Inner(OptionsModel):
    """Options within options."""

    size: int = 1
    """How large."""
    shown: Annotated[int, MayChange] = Field(default=1, ge=0)
    """How often it is shown."""


class Outer(OptionsModel):
    """Options."""

    kind: Literal["a", "b"] = "a"
    """Which kind."""
    fast: Annotated[bool, MayChange] = False
    """Whether to hurry."""
    safe: bool = True
    """Whether to look."""
    names: tuple[str, ...] = ()
    """Who takes part."""
    inner: tuple[Inner, ...] = (Inner(),)
    """More."""


def test_what_may_change_is_no_result_field_at_any_depth():
    assert Outer().result_fields() == {"kind": "a", "safe": True, "names": [], "inner": [{"size": 1}]}
    assert Outer().model_dump()["inner"] == ({"size": 1, "shown": 1},)


def test_options_are_written_as_the_words_of_a_command():
    assert Outer(inner=()).model_copy(update={"inner": (Inner(),)}).words() == []
    options = Outer(kind="b", fast=True, safe=False, names=("x", "y"))
    assert options.words() == ["--kind=b", "--fast", "--no-safe", "--names=x", "--names=y"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kind": "c"}, "--kind c: input should be 'a' or 'b'"),
        ({"inner": [{"shown": -1}]}, "--inner-0-shown -1: input should be greater than or equal to 0"),
        ({"colour": "red"}, "--colour: no such option"),
    ],
)
def test_a_wrong_value_is_said_in_one_line(values, message):
    with pytest.raises(SearchformerError) as error:
        Outer.checked(**values)
    assert str(error.value) == message


def other_value(model, name):
    """A valid value of an option that is not its default."""
    field = model.model_fields[name]
    for value in (*OTHER.values(), "muon", "constant", "fp32"):
        try:
            found = model.model_validate({"data": "d", "model": "m", "validation": 5, "eval_every": 3, name: value})
        except ValueError:
            continue
        if getattr(found, name) != field.default:
            return value
    raise AssertionError(name)


@pytest.mark.parametrize("name", TrainingOptions.model_fields)
def test_an_option_of_training_is_one_everywhere_from_its_one_text(name):
    value = other_value(TrainOptions, name)
    options = TrainOptions(**{"data": Path("d"), "validation": 5, "eval_every": 3, name: value})
    plain = TrainOptions(data=Path("d"), validation=5, eval_every=3)
    assert f"--{name.replace('_', '-')}" in invoke("train", "--help").stdout
    assert (options.model_dump(mode="json") == plain.model_dump(mode="json")) == (options == plain)
    may_change = name in plain.may_change()
    assert (options.result_fields() == plain.result_fields()) == (may_change or options == plain)
    words = train_command(options, Path("o"))
    parsed = {word.partition("=")[0]: word.partition("=")[2] for word in words}
    assert f"--{name.replace('_', '-')}" in parsed
    entry = TrainSpec.model_validate({"data": "d", "model": "m", "validation": 5, "eval_every": 3, name: value})
    assert getattr(entry, name) == getattr(options, name)


@pytest.mark.parametrize("name", LearningOptions.model_fields)
def test_an_option_of_learning_is_one_of_bootstrapping(name):
    assert TrainOptions.model_fields[name].annotation in (
        BootstrapOptions.model_fields[name].annotation,
        BootstrapOptions.model_fields[name].annotation | None,
    )
    assert name in BootstrapSpec.model_fields
    assert name in BootstrapOptions(model=Path("m"), data=Path("d")).model_dump()


def test_with_validation_the_number_of_evaluations_decides_the_result():
    assert "eval_every" not in TrainOptions(data=Path("d")).result_fields()
    assert "eval_every" in TrainOptions(data=Path("d"), validation=5).result_fields()


def test_where_and_how_fast_answers_are_sampled_may_change():
    options = RolloutOptions(model=Path("m"), data=Path("d"), out=Path("o"))
    there = {"out": Path("p"), "slots": 3, "cache_gb": 1.0, "workers": 2, "device": "cpu", "rank": 1, "world_size": 2}
    assert options.model_copy(update=there).result_fields() == options.result_fields()
    for name in ("samples", "seed", "temperature", "top_k", "max_tokens", "prefix", "precision"):
        assert name in AnswerOptions().result_fields()


def test_a_recipe_as_the_first_version_wrote_it_is_the_same_recipe():
    stored = tomllib.loads((Path(__file__).parent / "golden" / "recipe-of-0.1.toml").read_text())
    assert result_fields(make_recipe(stored)) == result_fields(load_recipe("maze-small"))


def test_a_model_is_given_as_directory_run_or_name(tmp_path):
    (tmp_path / "run" / "model").mkdir(parents=True)
    (tmp_path / "run" / "model" / "model.safetensors").touch()
    assert resolve_model(tmp_path / "run") == resolve_model(tmp_path / "run" / "model") == tmp_path / "run" / "model"
    assert resolve_model("maze-6x6") == HERE / "maze-6x6"
    packaged = "maze-10x10, maze-6x6, sokoban-7x7"
    with pytest.raises(SearchformerError, match=rf"holds no model: .* a packaged model .{packaged}"):
        resolve_model(tmp_path)


def test_a_bootstrap_gives_its_last_rounds_model_and_a_recipe_its_only_one(tmp_path):
    run = tmp_path / "bootstrap" / "quick"
    for name in ("round-1", "round-2", "control-2"):
        (run / name / "train" / "model").mkdir(parents=True)
        (run / name / "train" / "model" / "model.safetensors").touch()
    rounds = [{"round": number, "model": f"round-{number}/train/model"} for number in (0, 1, 2)]
    rounds.append({"round": 2, "control": True, "model": "control-2/train/model"})
    write_json(run / "bootstrap.json", {"rounds": rounds})
    last = run / "round-2" / "train" / "model"
    assert resolve_model(run) == last
    (tmp_path / "recipe.toml").touch()
    assert resolve_model(tmp_path) == last
    (tmp_path / "train" / "quick" / "model").mkdir(parents=True)
    (tmp_path / "train" / "quick" / "model" / "model.safetensors").touch()
    with pytest.raises(SearchformerError, match="holds 2 models; choose one of"):
        resolve_model(tmp_path)


@pytest.mark.parametrize("mark", MARKS)
def test_a_directory_of_something_else_is_refused(tmp_path, mark):
    (tmp_path / mark).touch()
    for kind in {*MARKS.values()}:
        if kind == MARKS[mark]:
            require_kind(tmp_path, kind)
        else:
            with pytest.raises(SearchformerError, match=f"holds {MARKS[mark]}, not {kind}; choose another"):
                require_kind(tmp_path, kind)


def test_a_new_directory_and_one_with_other_files_are_nobodys(tmp_path):
    (tmp_path / "notes.txt").touch()
    for directory in (tmp_path, tmp_path / "new"):
        require_kind(directory, MARKS["checkpoint"])
