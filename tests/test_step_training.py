"""Step networks through training and the command line: everything that works for a token network works for them."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from command import invoke
from step_models import step_model
from synthetic import letter_tasks, write_dataset
from test_training import ALONE, AtStep, environment, interrupt, losses, same, weights
from torch.nn import functional

from searchformer.dataset.batches import Sequences
from searchformer.dataset.generate import generate
from searchformer.dataset.options import GenerateOptions
from searchformer.dataset.store import Dataset
from searchformer.errors import SearchformerError
from searchformer.model import Transformer, load_model, read_model_config
from searchformer.rollout.store import read_answers
from searchformer.tokens.steps import token_kinds
from searchformer.train import TrainOptions, train
from searchformer.train.evaluation import evaluate
from searchformer.train.log import read_metrics
from searchformer.train.objective import Objective
from searchformer.train.optimiser import FlatParameters
from searchformer.train.precision import HalfWeights

SHAPE = "dim=16,layers=1,heads=2,ffn=24,unit=step,shift=2,number_heads=1,near=3"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Dataset:
    """Small mazes."""
    out = tmp_path_factory.mktemp("data") / "maze"
    generate(GenerateOptions(domain="maze", settings={"width": 4, "height": 4}, tasks=60, seed=0), out)
    return Dataset(out)


def options(dataset: Dataset, **changes) -> TrainOptions:
    values = {"data": dataset.directory, "model": SHAPE, "steps": 8, "batch_size": 6, "lr": 1e-2, "eval_every": 0}
    return TrainOptions.checked(
        **(values | {"save_every": 3, "log_every": 1, "precision": "fp32", "clip": 1} | changes)
    )


def fresh(dataset: Dataset) -> Transformer:
    places = Sequences(dataset, "train").longest_pieces(token_kinds(dataset.vocabulary))
    return step_model(dataset.vocabulary, **places)


def evaluations(run: Path) -> list[dict]:
    return [record for record in read_metrics(run) if record["kind"] == "eval"]


def test_the_places_are_those_of_the_longest_steps_of_the_data(dataset, tmp_path):
    train(options(dataset, steps=1), tmp_path / "both")
    train(options(dataset, steps=1, plan_only=True), tmp_path / "plan")
    both, plan = (load_model(tmp_path / name / "model")[0] for name in ("both", "plan"))
    assert (both.config.places, plan.config.places) == (5, 3)  # create x y cost cost, and plan x y
    assert both.config.prompt_places == plan.config.prompt_places == 3  # wall x y
    assert plan.token_kinds.tolist() == token_kinds(dataset.vocabulary).tolist()


@pytest.mark.parametrize("optimiser", ["adamw", "muon"])
def test_a_step_network_learns_and_an_interrupted_run_ends_with_the_same_bits(dataset, tmp_path, optimiser):
    settings = options(dataset, optimiser=optimiser, steps=30, eval_every=10, weight_decay=0.1)
    train(settings, tmp_path / "straight")
    with pytest.raises(KeyboardInterrupt):
        train(settings, tmp_path / "broken", display=AtStep(17, interrupt))
    train(settings, tmp_path / "broken")
    assert same(weights(tmp_path / "straight"), weights(tmp_path / "broken"))
    assert losses(tmp_path / "broken") == losses(tmp_path / "straight")
    looks = evaluations(tmp_path / "straight")
    assert looks[-1]["loss"] < 0.9 * looks[0]["loss"] < 0.9 * np.log(len(dataset.vocabulary))


def arguments(dataset: Dataset, out: Path, *more: object) -> list[str]:
    given = ["--data", dataset.directory, "--out", out, "--model", SHAPE, "--steps", 8, "--batch-size", 6]
    given += ["--lr", 1e-2, "--clip", 1, "--precision", "fp32", "--log-every", 1, "--save-every", 3, "--eval-every", 8]
    return [*map(str, given), *map(str, more)]


def test_a_killed_run_ends_with_the_same_bits(dataset, tmp_path):
    """A real kill, -9, between two checkpoints: the process does it to itself."""
    train(options(dataset), tmp_path / "straight")
    code = (
        "import os, signal, sys; sys.path.insert(0, sys.argv[1]); from test_step_training import *; "
        "train(options(Dataset(Path(sys.argv[2]))), Path(sys.argv[3]), "
        "display=AtStep(5, lambda: os.kill(os.getpid(), signal.SIGKILL)))"
    )
    killed = [sys.executable, "-c", code, str(Path(__file__).parent), str(dataset.directory), str(tmp_path / "killed")]
    assert subprocess.run(killed, env=environment()).returncode == -9
    assert losses(tmp_path / "killed") == losses(tmp_path / "straight")[:4]
    train(options(dataset), tmp_path / "killed")
    assert same(weights(tmp_path / "straight"), weights(tmp_path / "killed"))


def test_two_processes_have_the_losses_of_one(dataset, tmp_path):
    train(options(dataset, eval_every=8), tmp_path / "one")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    parallel = [*torchrun, "-m", "searchformer", "train", *arguments(dataset, tmp_path / "two")]
    subprocess.run(parallel, env=environment(), check=True)
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), abs=1e-4)
    assert evaluations(tmp_path / "two")[-1]["loss"] == pytest.approx(
        evaluations(tmp_path / "one")[-1]["loss"], abs=1e-3
    )
    kinds = [load_model(tmp_path / name / "model")[0].token_kinds.tolist() for name in ("one", "two")]
    assert kinds[0] == kinds[1]


def test_microbatches_give_the_gradient_of_the_whole_batch(dataset):
    batch = Sequences(dataset, "train").batch(np.arange(12))

    def gradient(tokens: int) -> tuple[torch.Tensor, int]:
        model = fresh(dataset)
        flat, objective, parts = FlatParameters(model), Objective(model), list(batch.microbatches(tokens))
        for part in parts:
            (objective(objective.inputs(part)) / len(batch)).backward()
        return flat.gradient, len(parts)

    (whole, one), (pieces, many) = gradient(10**6), gradient(300)
    assert one == 1 < 3 < many
    assert whole.abs().max() > 1e-3
    assert torch.allclose(whole, pieces, atol=1e-6)


def test_every_weight_of_a_step_network_has_a_gradient(dataset):
    model = fresh(dataset)
    objective = Objective(model)
    objective(objective.inputs(Sequences(dataset, "train").batch(np.arange(12)))).backward()
    without = [name for name, parameter in model.named_parameters() if not parameter.grad.abs().max() > 0]
    assert without == []


def test_bf16_products_give_nearly_the_gradient_of_fp32(dataset):
    batch = Sequences(dataset, "train").batch(np.arange(12))
    found = []
    for half in (False, True):
        model = fresh(dataset)
        flat, objective = FlatParameters(model), Objective(model)
        if half:
            HalfWeights(model, flat)
        loss = objective(objective.inputs(batch))
        loss.backward()
        found.append((loss.item(), flat.gradient))
    (exact_loss, exact), (half_loss, rounded) = found
    assert half_loss == pytest.approx(exact_loss, rel=0.01)
    assert half_loss != exact_loss
    assert functional.cosine_similarity(exact, rounded, dim=0) > 0.99


def test_scores_are_what_a_plain_count_gives(dataset):
    model, sequences = fresh(dataset), Sequences(dataset, "test")
    tasks = len(sequences)
    found = evaluate(Objective(model), sequences, tasks=tasks, tokens_per_microbatch=600, processes=ALONE)
    rows = []
    for i in range(tasks):
        batch = sequences.batch(np.array([i]))
        inputs = model.inputs(batch.prompts, batch.prompt_lengths, batch.responses, batch.response_lengths)
        with torch.inference_mode():
            loss, best = model.losses(inputs), model.log_probabilities(inputs).argmax(-1)
        plan = int(batch.plan_starts[0]) - 1
        rows.append(
            (loss.mean(), loss[:plan].mean(), loss[plan:].mean(), best == torch.from_numpy(batch.responses[0, 1:]))
        )
    for name, column in (("loss", 0), ("trace_loss", 1), ("plan_loss", 2)):
        assert found[name] == pytest.approx(np.mean([row[column] for row in rows]), rel=1e-4)
    assert found["token_accuracy"] == pytest.approx(torch.cat([row[3] for row in rows]).float().mean().item())


def test_fine_tuning_starts_from_the_given_model_on_other_data_and_longer_steps(dataset, tmp_path):
    """A model of plans has room for short steps only: longer ones are cut, and learned all the same."""
    train(options(dataset, steps=20, plan_only=True), tmp_path / "plans")
    other = tmp_path / "other"
    generate(GenerateOptions(domain="maze", settings={"width": 4, "height": 4}, tasks=30, seed=7), other)
    train(options(Dataset(other), steps=3, plan_only=True, init_from=tmp_path / "plans"), tmp_path / "again")
    assert losses(tmp_path / "again")[0] < 0.8 * losses(tmp_path / "plans")[0]
    train(options(dataset, steps=20, init_from=tmp_path / "plans"), tmp_path / "traces")
    model, _ = load_model(tmp_path / "traces" / "model")
    assert model.config.places == 3
    assert losses(tmp_path / "traces")[-1] < 0.8 * losses(tmp_path / "traces")[0]


def test_the_weights_with_the_least_validation_loss_are_kept_with_the_kinds_of_tokens(dataset, tmp_path):
    settings = options(dataset, validation=10, patience=2, eval_every=2, steps=200, lr=0.2, warmup=2)
    result = train(settings, tmp_path / "run")
    looks = evaluations(tmp_path / "run")
    best = min(looks, key=lambda record: record["loss"])
    assert result.step == looks[-1]["step"] < 200
    assert looks.index(best) == len(looks) - 3
    model, _ = load_model(tmp_path / "run" / "model")
    held_out = Sequences(dataset, "train", hold_out=10, held_out=True)
    scores = evaluate(Objective(model), held_out, tasks=10, tokens_per_microbatch=10**6, processes=ALONE)
    assert scores["loss"] == pytest.approx(best["loss"], abs=1e-5)
    assert model.token_kinds.tolist() == token_kinds(dataset.vocabulary).tolist()


def test_plan_only_evaluation_has_no_trace_loss(dataset, tmp_path):
    train(options(dataset, steps=2, eval_every=2, plan_only=True), tmp_path / "run")
    (record,) = evaluations(tmp_path / "run")
    assert "trace_loss" not in record
    assert record["plan_loss"] == pytest.approx(record["loss"])


def test_data_without_keywords_are_refused_in_one_line(tmp_path):
    letters = write_dataset(tmp_path / "letters", train=letter_tasks(10))
    with pytest.raises(SearchformerError, match="a step network needs the keywords create, close, plan") as caught:
        train(options(letters), tmp_path / "run")
    assert "\n" not in str(caught.value)


def call(name: str, *given: object) -> dict:
    """What a command prints as JSON."""
    result = invoke(name, *given, "--json")
    if result.exception:
        raise result.exception
    return json.loads(result.stdout.splitlines()[-1])


def test_the_whole_way_from_training_to_solving_works_on_the_command_line(dataset, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 1)  # sampling needs no processes of its own then
    data, run = dataset.directory, tmp_path / "run"
    learning = ("--optimiser", "muon", "--weight-decay", 0.1, "--exact-every", 40, "--eval-tasks", 4)
    trained = call("train", *arguments(dataset, run, "--steps", 40, "--eval-every", 40, *learning))
    assert trained["step"] == 40
    assert 0 <= evaluations(run)[-1]["exact_match"] <= 1
    asked = ("--tasks", 4, "--samples", 8, "--prefix", "create 0", "--constrain", "--max-tokens", 120)
    sampled = call("rollout", "--model", run, "--data", data, "--out", tmp_path / "rollout", *asked)
    assert sampled["answers"] == 32
    answers = [row["tokens"] for table in read_answers(tmp_path / "rollout") for row in table.to_pylist()]
    assert all(dataset.vocabulary.decode(tokens[:2]) == ["create", "0"] for tokens in answers)
    assert call("evaluate", tmp_path / "rollout")["tasks"] == 4
    rounds = ("--rounds", 1, "--samples", 4, "--steps", 3, "--tasks", 6, "--eval-tasks", 2, "--eval-samples", 2)
    call("bootstrap", "--model", run, "--data", data, "--out", tmp_path / "bootstrap", *rounds, "--batch-size", 4)
    (directory,) = {path.parent for path in (tmp_path / "bootstrap").rglob("model.safetensors")}
    config, facts = read_model_config(directory)
    assert (config.unit, config.places, facts["bootstrap_round"]) == ("step", 5, 1)
    solved = call("solve", "--random", "maze:4x4", "--model", directory, "--samples", 6, "--seed", 1)
    assert sum(solved["answers"].values()) == 6


def test_the_models_limit_counts_steps_where_they_are_its_positions(dataset, tmp_path):
    sequences = Sequences(dataset, "train")
    cutter = fresh(dataset).cutter
    batch = sequences.batch(np.arange(len(sequences)))
    prompts = cutter.prompts(batch.prompts, batch.prompt_lengths).counts
    longest = max(prompts.max(), cutter.responses(batch.responses, batch.response_lengths).counts.max())
    assert longest < sequences.response_lengths.max() - 1
    train(options(dataset, steps=1, model=f"{SHAPE},positions={longest}"), tmp_path / "fits")
    with pytest.raises(
        SearchformerError, match=f"has a sequence of {longest} steps, the model's limit is {longest - 1}"
    ):
        train(options(dataset, steps=1, model=f"{SHAPE},positions={longest - 1}"), tmp_path / "does-not")
    assert not (tmp_path / "does-not" / "model").exists()


def test_compiled_blocks_train_to_the_same_losses(dataset, tmp_path):
    """In a process of its own: what torch.compile makes stays in the process."""
    if not any(map(shutil.which, ("g++", "clang++"))):
        with pytest.raises(SearchformerError, match="--compile needs a C\\+\\+ compiler"):
            train(options(dataset, compile=True), tmp_path / "compiled")
        return
    train(options(dataset), tmp_path / "plain")
    command = [sys.executable, "-m", "searchformer", "train", *arguments(dataset, tmp_path / "compiled", "--compile")]
    subprocess.run(command, env=environment(), check=True)
    assert losses(tmp_path / "compiled") == pytest.approx(losses(tmp_path / "plain"), abs=1e-4)
    assert json.loads((tmp_path / "compiled" / "config.json").read_text())["compile"] is True


def test_without_a_compiler_compiling_is_refused_before_anything_is_written(dataset, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(SearchformerError, match="--compile needs a C\\+\\+ compiler on the CPU") as caught:
        train(options(dataset, compile=True), tmp_path / "compiled")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "compiled" / "model").exists()
