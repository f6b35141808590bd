"""Training: the paper's loss, the same gradient however it is computed, and runs that survive anything."""

import contextlib
import functools
import json
import math
import os
import re
import resource
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from synthetic import letter_tasks, write_dataset
from torch.nn import functional

from searchformer import cli
from searchformer.dataset.batches import Sequences
from searchformer.dataset.store import Dataset
from searchformer.display import Silent
from searchformer.errors import Interrupted, SearchformerError
from searchformer.files import locked
from searchformer.model import Transformer, load_model, make_config
from searchformer.model.device import choose_device
from searchformer.rollout import Prompt, Sampling, sample_naively
from searchformer.tokens.vocabulary import Vocabulary
from searchformer.train import TrainOptions, train
from searchformer.train.curves import plot_curves
from searchformer.train.evaluation import evaluate
from searchformer.train.launch import telling_the_saved_step
from searchformer.train.log import make_trackers, read_metrics
from searchformer.train.objective import Objective
from searchformer.train.optimiser import FlatParameters, Optimiser, learning_rate, orthogonal
from searchformer.train.precision import HalfWeights, choose_precision
from searchformer.train.processes import Processes
from searchformer.train.setup import first_model

SHAPE = "dim=16,layers=2,heads=2,ffn=24"
CPU = torch.device("cpu")
ALONE = Processes(rank=0, world=1, device=CPU)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Dataset:
    directory = tmp_path_factory.mktemp("data") / "letters"
    return write_dataset(directory, train=letter_tasks(60), test=letter_tasks(20, seed=1))


def options(dataset: Dataset, **changes) -> TrainOptions:
    values = {"data": dataset.directory, "model": SHAPE, "steps": 12, "batch_size": 6, "lr": 3e-3, "eval_every": 0}
    return TrainOptions.checked(**(values | {"save_every": 4, "log_every": 1, "precision": "fp32"} | changes))


def tiny(seed: int = 0) -> Transformer:
    return Transformer(make_config(SHAPE, vocabulary=10), generator=torch.Generator().manual_seed(seed))


class AtStep(Silent):
    """Calls `action` when step number `step` was done, before anything of it is logged."""

    def __init__(self, step: int, action) -> None:
        self.step, self.action = step, action

    @contextlib.contextmanager
    def bar(self, title, *, unit):
        yield lambda done, total, note: self.action() if done == self.step else None


def interrupt():
    raise KeyboardInterrupt


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "model" / "model.safetensors")


def losses(run: Path) -> list[float]:
    return [record["loss"] for record in read_metrics(run) if record["kind"] == "train"]


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


# The loss and its gradient


def test_the_loss_is_the_mean_over_tokens_then_over_sequences(dataset):
    model, batch = tiny(), Sequences(dataset, "train").batch(np.arange(7))
    by_hand = []
    for i in range(7):
        prompt = torch.from_numpy(batch.prompts[i : i + 1, : batch.prompt_lengths[i]])
        response = torch.from_numpy(batch.responses[i, : batch.response_lengths[i]])
        by_hand.append(functional.cross_entropy(model(prompt, response[None, :-1])[0], response[1:]))
    objective = Objective(model)
    total = objective(objective.inputs(batch))
    assert total.item() == pytest.approx(sum(by_hand).item(), rel=1e-5)


def test_microbatches_give_the_gradient_of_the_whole_batch(dataset):
    batch = Sequences(dataset, "train").batch(np.arange(20))

    def gradient(tokens: int) -> torch.Tensor:
        model = tiny()
        flat = FlatParameters(model)
        objective, parts = Objective(model), list(batch.microbatches(tokens))
        for part in parts:
            (objective(objective.inputs(part)) / len(batch)).backward()
        return flat.gradient, len(parts)

    (whole, one), (pieces, many) = gradient(10**6), gradient(60)
    assert one == 1 < 5 < many
    assert torch.allclose(whole, pieces, atol=1e-6)


def test_flat_weights_train_as_separate_ones_do(dataset):
    inputs = Objective(tiny()).inputs(Sequences(dataset, "train").batch(np.arange(20)))
    plain, packed = tiny(), tiny()
    settings = options(dataset, weight_decay=0.1)
    flat = FlatParameters(packed)
    twin = torch.optim.AdamW(plain.parameters(), lr=3e-3, betas=(0.9, 0.99), weight_decay=0.1)
    optimiser = Optimiser(flat, settings)
    for _ in range(5):
        plain.zero_grad()
        flat.gradient.zero_()
        for model in (plain, packed):
            Objective(model)(inputs).backward()
        twin.step()
        optimiser.step(3e-3)
    moved = (flat.weights.detach() - FlatParameters(tiny()).weights.detach()).abs().max()
    assert moved > 1e-3
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(plain.parameters(), packed.parameters(), strict=True))


def test_stacked_muon_trains_as_pytorchs_does(dataset):
    """Matrices of the layers as torch.optim.Muon changes them (it multiplies in bf16), the rest as AdamW does."""
    inputs = Objective(tiny()).inputs(Sequences(dataset, "train").batch(np.arange(20)))
    plain, packed = tiny(), tiny()
    flat = FlatParameters(packed, stacked=True)
    named = dict(plain.named_parameters())
    matrices = [p for name, p in named.items() if ".layers." in name and p.ndim == 2]
    rest = [p for p in named.values() if not any(p is matrix for matrix in matrices)]
    twins = (
        torch.optim.Muon(matrices, lr=3e-3, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(rest, lr=3e-3, betas=(0.9, 0.99), weight_decay=0.1),
    )
    optimiser = Optimiser(flat, options(dataset, weight_decay=0.1, optimiser="muon"))
    for _ in range(3):
        plain.zero_grad()
        flat.gradient.zero_()
        for model in (plain, packed):
            Objective(model)(inputs).backward()
        for twin in twins:
            twin.step()
        optimiser.step(3e-3)
    before = dict(tiny().named_parameters())
    for name, parameter in packed.named_parameters():
        moved, as_moved = parameter - before[name], named[name] - before[name]
        assert functional.cosine_similarity(moved.flatten(), as_moved.flatten(), dim=0) > 0.99, name
        assert moved.norm().item() == pytest.approx(as_moved.norm().item(), rel=0.05), name


@pytest.mark.parametrize("shape", [(3, 8, 8), (2, 24, 8), (2, 8, 24)])
def test_orthogonal_matrices_are_nearly_orthogonal(shape):
    values = torch.linalg.svdvals(orthogonal(torch.randn(shape, generator=torch.Generator().manual_seed(0))))
    assert values.min() > 0.3
    assert values.max() < 1.3


def test_bf16_products_give_nearly_the_gradient_of_fp32(dataset):
    inputs = Objective(tiny()).inputs(Sequences(dataset, "train").batch(np.arange(20)))
    exact, half = tiny(), tiny()
    exact_flat, half_flat = FlatParameters(exact), FlatParameters(half)
    HalfWeights(half, half_flat)
    exact_loss, half_loss = Objective(exact)(inputs), Objective(half)(inputs)
    exact_loss.backward()
    half_loss.backward()
    assert half_loss.item() == pytest.approx(exact_loss.item(), rel=0.01)
    assert half_loss.item() != exact_loss.item()
    assert functional.cosine_similarity(exact_flat.gradient, half_flat.gradient, dim=0) > 0.999
    assert half_flat.gradient.dtype == torch.float32


def test_bf16_copies_follow_the_weights(dataset):
    model = tiny()
    flat = FlatParameters(model)
    copies = HalfWeights(model, flat)
    with torch.no_grad():
        flat.weights.mul_(2)
    copies.refresh()
    layer = model.encoder.layers[0].attention.wq
    assert torch.equal(layer.half_weight, layer.weight.detach().bfloat16())


def test_auto_precision_takes_what_is_faster_here_but_fp32_for_small_networks(monkeypatch):
    config = make_config("dim=192,layers=1,heads=3", vocabulary=10)
    for speedup, expected in ((2.0, "bf16"), (1.0, "fp32")):
        monkeypatch.setattr("searchformer.train.precision._half_speedup", lambda _, value=speedup: value)
        assert choose_precision("auto", config, CPU) == expected
    assert choose_precision("bf16", config, CPU) == "bf16"
    monkeypatch.setattr("searchformer.train.precision._half_speedup", lambda _: 9.0)
    assert choose_precision("auto", make_config("dim=128,layers=1,heads=2", vocabulary=10), CPU) == "fp32"


def test_the_schedule_is_the_papers():
    settings = TrainOptions.checked(data=Path("x"), lr=1.0, steps=1000, warmup=100)
    rates = [learning_rate(step, settings) for step in range(1, 1001)]
    assert rates[:100] == pytest.approx([step / 100 for step in range(1, 101)])
    assert rates[549] == pytest.approx(0.1 + 0.9 * 0.5)
    assert rates[-1] == pytest.approx(0.1)
    assert all(later < sooner for sooner, later in pairwise(rates[99:]))
    constant = settings.model_copy(update={"schedule": "constant"})
    assert learning_rate(1000, constant) == 1.0


def test_a_linear_schedule_ends_at_nothing():
    settings = TrainOptions.checked(data=Path("x"), lr=1.0, steps=1000, warmup=100, schedule="linear")
    rates = [learning_rate(step, settings) for step in (50, 100, 325, 1000)]
    assert rates == pytest.approx([0.5, 1.0, 0.75, 0.0])


def test_defaults_are_the_papers_tables():
    def resolved(size: str, domain: str) -> tuple[float, int, int, int]:
        chosen = TrainOptions(data=Path("x"), model=size).resolved(domain=domain)
        return chosen.lr, chosen.batch_size, chosen.steps, chosen.warmup

    assert resolved("15M", "maze") == (2.5e-4, 16, 400_000, 2000)
    assert resolved("46M", "sokoban") == (7.5e-5, 64, 80_000, 2000)
    assert resolved("175M", "maze")[0] == resolved("747M", "sokoban")[0] == 5e-5
    plain = TrainOptions(data=Path("x"))
    assert (plain.beta1, plain.beta2, plain.weight_decay, plain.clip) == (0.9, 0.99, 0.01, None)


# Evaluation


def test_scores_are_what_a_plain_count_gives(dataset):
    model, sequences = tiny(), Sequences(dataset, "test")
    found = evaluate(Objective(model), sequences, tasks=20, tokens_per_microbatch=70, processes=ALONE)
    batch = sequences.batch(np.arange(20))
    rows = []
    for i in range(20):
        prompt = torch.from_numpy(batch.prompts[i : i + 1, : batch.prompt_lengths[i]])
        response = torch.from_numpy(batch.responses[i, : batch.response_lengths[i]])
        logits = model(prompt, response[None, :-1])[0].detach()
        loss = functional.cross_entropy(logits, response[1:], reduction="none")
        plan = int(batch.plan_starts[i]) - 1
        rows.append((loss.mean(), loss[:plan].mean(), loss[plan:].mean(), (logits.argmax(-1) == response[1:])))
    for name, column in (("loss", 0), ("trace_loss", 1), ("plan_loss", 2)):
        assert found[name] == pytest.approx(np.mean([row[column] for row in rows]), rel=1e-4)
    assert found["token_accuracy"] == pytest.approx(torch.cat([row[3] for row in rows]).float().mean().item())


def test_a_trained_model_scores_better_than_an_untrained_one(dataset, tmp_path):
    result = train(options(dataset, steps=150, lr=5e-3, eval_every=75), tmp_path / "run")
    first, last = [record for record in read_metrics(tmp_path / "run") if record["kind"] == "eval"]
    assert last["loss"] < first["loss"] < math.log(10)
    assert last["token_accuracy"] > 0.5
    assert 0 <= last["sequence_accuracy"] <= last["plan_accuracy"] <= 1
    assert result.last["eval"] == last


def test_plan_only_evaluation_has_no_trace_loss(dataset, tmp_path):
    train(options(dataset, steps=2, eval_every=2, plan_only=True), tmp_path / "run")
    (record,) = [record for record in read_metrics(tmp_path / "run") if record["kind"] == "eval"]
    assert "trace_loss" not in record
    assert record["plan_loss"] == pytest.approx(record["loss"])
    assert record["sequence_accuracy"] == record["plan_accuracy"]


def test_exact_match_is_asked_for_by_callback(dataset, tmp_path):
    asked = []

    def make_scorer(_dataset, sequences):
        return lambda model: asked.append((len(sequences), model.config.dim)) or 0.25

    settings = options(dataset, steps=8, eval_every=2, exact_every=4)
    train(settings, tmp_path / "run", exact_match=make_scorer)
    scores = [record.get("exact_match") for record in read_metrics(tmp_path / "run") if record["kind"] == "eval"]
    assert scores == [None, 0.25, None, 0.25]
    assert asked == [(20, 16)] * 2


# Runs


def test_a_run_leaves_a_model_that_says_where_it_comes_from(dataset, tmp_path):
    result = train(options(dataset, sequences=30), tmp_path / "run")
    model, vocabulary = load_model(result.model)
    assert vocabulary == dataset.vocabulary
    trained = json.loads((result.model / "config.json").read_text())["trained"]
    assert trained["parameters"] == model.parameter_count == result.parameters
    expected = {"variant": "search-augmented", "sequences": 30, "step": 12, "domain": "letters", "deterministic": True}
    assert trained.items() >= expected.items()
    stored = json.loads((tmp_path / "run" / "config.json").read_text())
    assert stored.items() >= {"batch_size": 6, "warmup": 1, "resolved_precision": "fp32"}.items()


def test_the_same_seed_trains_the_same_weights(dataset, tmp_path):
    for name, seed in (("one", 1), ("two", 1), ("other", 2)):
        train(options(dataset, seed=seed), tmp_path / name)
    assert same(weights(tmp_path / "one"), weights(tmp_path / "two"))
    assert not same(weights(tmp_path / "one"), weights(tmp_path / "other"))


@pytest.mark.filterwarnings("ignore:The .grad attribute")
def test_compiled_blocks_train_as_plain_ones_do(dataset, tmp_path, monkeypatch):
    """Through torch.compile's tracing and gradients, without its C++ code, which takes a compiler and a minute."""
    compile_block = torch.nn.Module.compile
    monkeypatch.setattr(torch.nn.Module, "compile", functools.partialmethod(compile_block, backend="aot_eager"))
    shape = "dim=8,layers=1,heads=1,ffn=8,shift=2"  # layers share their code, and step networks have the same ones
    for name in ("plain", "compiled"):  # large batches are always padded: a batch without padding is traced anew
        settings = options(dataset, model=shape, batch_size=30, steps=3, compile=name == "compiled")
        train(settings, tmp_path / name)
    pairs = zip(losses(tmp_path / "plain"), losses(tmp_path / "compiled"), strict=True)
    assert all(compiled == pytest.approx(plain, rel=1e-5) for plain, compiled in pairs)


def test_a_finished_run_is_left_as_it_is(dataset, tmp_path):
    train(options(dataset), tmp_path / "run")
    before = weights(tmp_path / "run")
    assert train(options(dataset), tmp_path / "run").step == 12
    assert same(before, weights(tmp_path / "run"))


@pytest.mark.parametrize("optimiser", ["adamw", "muon"])
def test_an_interrupted_run_goes_on_as_if_it_had_not_been(dataset, tmp_path, optimiser):
    settings = options(dataset, optimiser=optimiser)
    train(settings, tmp_path / "straight")
    with pytest.raises(KeyboardInterrupt):
        train(settings, tmp_path / "broken", display=AtStep(10, interrupt))
    assert losses(tmp_path / "broken") == losses(tmp_path / "straight")[:9]
    train(settings, tmp_path / "broken")
    assert same(weights(tmp_path / "straight"), weights(tmp_path / "broken"))
    assert losses(tmp_path / "broken") == losses(tmp_path / "straight")


def test_a_checkpoint_of_an_older_version_is_resumed(dataset, tmp_path):
    """It also held a generator and a data position, and knew fewer options."""
    train(options(dataset), tmp_path / "straight")
    with pytest.raises(KeyboardInterrupt):
        train(options(dataset), tmp_path / "old", display=AtStep(10, interrupt))
    path = tmp_path / "old" / "checkpoint" / "state.safetensors"
    with safe_open(path, framework="pt") as file:
        header = file.metadata()
    del header["content_digest"]
    known = json.loads(header["options"])
    del known["optimiser"], known["init_digest"]
    header |= {"data_position": header["step"], "options": json.dumps(known)}
    save_file(load_file(path) | {"generator": torch.get_rng_state()}, path, metadata=header)
    train(options(dataset), tmp_path / "old")
    assert same(weights(tmp_path / "straight"), weights(tmp_path / "old"))


def command(dataset: Dataset, out: Path, *more: str) -> list[str]:
    arguments = ["-m", "searchformer", "train", "--data", str(dataset.directory), "--out", str(out)]
    arguments += ["--model", SHAPE, "--batch-size", "6", "--lr", "3e-3", "--precision", "fp32", "--log-every", "1"]
    return [*arguments, "--eval-every", "0", *more]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", **more}


def test_a_run_killed_at_random_ends_with_the_same_bits(dataset, tmp_path):
    """Real kills: -9, at moments that the generator draws, until the run gets through."""
    settings = ("--steps", "200", "--save-every", "20", "--weight-decay", "0.1", "--clip", "1")
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    train(options(dataset, steps=200, save_every=20, weight_decay=0.1, clip=1), straight)
    generator, kills = np.random.default_rng(0), 0
    while kills < 2:
        target = int(generator.integers(20, 80)) + len(losses(broken))
        process = subprocess.Popen([sys.executable, *command(dataset, broken, *settings)], env=environment())
        while process.poll() is None and len(losses(broken)) < target:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        if process.wait() == -signal.SIGKILL:
            kills += 1
        else:
            break
    assert kills >= 1
    subprocess.run([sys.executable, *command(dataset, broken, *settings)], env=environment(), check=True)
    assert same(weights(straight), weights(broken))
    assert losses(straight) == losses(broken)


def test_two_processes_have_the_losses_of_one(dataset, tmp_path):
    settings = ("--steps", "12", "--eval-every", "12")
    train(options(dataset, eval_every=12), tmp_path / "one")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    parallel = [*torchrun, "--standalone", *command(dataset, tmp_path / "two", *settings)]
    subprocess.run(parallel, env=environment(), check=True)
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), abs=1e-5)
    assert len(losses(tmp_path / "two")) == 12
    one, two = (read_metrics(tmp_path / name)[-1] for name in ("one", "two"))
    assert one["kind"] == two["kind"] == "eval"
    assert two["plan_loss"] == pytest.approx(one["plan_loss"], abs=1e-4)


def test_the_command_starts_processes_that_save_and_say_so_once_on_ctrl_c(dataset, tmp_path):
    arguments = [sys.executable, *command(dataset, tmp_path / "run", "--steps", "100000", "--processes", "2")]
    process = subprocess.Popen(
        arguments, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    while len(losses(tmp_path / "run")) < 20:
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    output, errors = process.communicate(timeout=60)
    told = r"searchformer: interrupted, step (\d+) of 100000 is saved in .*; run the same command again to continue"
    match = re.fullmatch(told, errors.splitlines()[-1])
    assert match
    assert (process.returncode, output, errors.count("\n")) == (130, "", 1)
    assert int(match[1]) >= 20


def test_a_size_is_a_size_even_beside_a_run_of_that_name(dataset, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train(options(dataset), "1M")
    train(options(dataset), "mine")
    words = ["train", f"--data={dataset.directory}", "--out=new", "--steps=1", "--batch-size=2", "--eval-every=0"]
    assert cli.run([*words, "--model=1M"]) == 0
    assert cli.run([*words, "--model=mine"]) == 1


def test_ctrl_c_tells_the_saved_step_of_a_run_in_another_process(dataset, tmp_path):
    train(options(dataset, steps=5), tmp_path / "run")
    with pytest.raises(Interrupted, match=r"^step 5 of 5 is saved in .*run$"), telling_the_saved_step(tmp_path / "run"):
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt) as caught, telling_the_saved_step(tmp_path / "none"):
        raise KeyboardInterrupt
    assert caught.type is KeyboardInterrupt


def test_processes_that_the_command_starts_give_one_result_and_one_error(dataset, tmp_path):
    arguments = command(dataset, tmp_path / "run", "--steps", "12", "--processes", "2", "--json")
    done = subprocess.run([sys.executable, *arguments], env=environment(), capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["step"] == 12
    train(options(dataset), tmp_path / "one")
    assert losses(tmp_path / "run") == pytest.approx(losses(tmp_path / "one"), abs=1e-5)
    for changes, message in ((["--seed", "9"], "seed was 0, now 9"), (["--data", "nowhere"], "no directory nowhere")):
        wrong = subprocess.run(
            [sys.executable, *arguments, *changes], env=environment(), capture_output=True, text=True
        )
        assert (wrong.returncode, wrong.stdout, wrong.stderr.count("\n")) == (1, "", 1)
        assert message in wrong.stderr


def run_on_two_machines(*places_and_options, succeed: bool = True) -> list[str]:
    """Train in two processes without torchrun, in a directory each; what they print on stderr."""
    machines, more = places_and_options[:2], places_and_options[2:]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": "2"}
    arguments = ["--data", "data", "--out", "run", "--model", SHAPE, "--steps", "12", "--batch-size", "6"]
    arguments += ["--lr", "3e-3", "--save-every", "4", "--log-every", "1", "--device", "cpu", *more]
    if "--eval-every" not in more:
        arguments += ["--eval-every", "0"]
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "searchformer", "train", *arguments],
            cwd=machine,
            env=environment(**place, RANK=str(rank)),
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, machine in enumerate(machines)
    ]
    try:
        errors = [process.communicate(timeout=120)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    assert all((process.returncode == 0) == succeed for process in processes), errors
    return errors


def test_only_the_first_machine_needs_the_run_and_the_model_to_fine_tune(dataset, tmp_path, monkeypatch):
    """Each process has a directory of its own, and all that the second one finds there is the data set."""
    monkeypatch.setattr("searchformer.train.precision._half_speedup", lambda config: 1.0)
    start, straight, first, second = (tmp_path / name for name in ("start", "straight", "first", "second"))
    train(options(dataset, steps=5, seed=3), start)
    fine_tuning = options(dataset, init_from=start, validation=10, eval_every=4, precision="auto")
    train(fine_tuning, straight)
    with pytest.raises(KeyboardInterrupt):
        train(fine_tuning, first / "run", display=AtStep(6, interrupt))
    shutil.copytree(start, first / "start")
    shutil.copytree(dataset.directory, first / "data")
    shutil.copytree(dataset.directory, second / "data")
    run_on_two_machines(first, second, "--init-from", "start", "--validation", "10", "--eval-every", "4")
    assert losses(first / "run") == pytest.approx(losses(straight), abs=1e-5)
    assert len(losses(first / "run")) == 12
    assert [path.name for path in second.iterdir()] == ["data"]


def test_an_error_of_the_first_process_is_told_by_all(dataset, tmp_path):
    train(options(dataset, precision="auto"), tmp_path / "first" / "run")
    for machine in ("first", "second"):
        shutil.copytree(dataset.directory, tmp_path / machine / "data")
    errors = run_on_two_machines(tmp_path / "first", tmp_path / "second", "--seed", "1", succeed=False)
    assert all("seed was 0, now 1" in text for text in errors)


def test_the_model_with_the_least_validation_loss_is_kept(dataset, tmp_path):
    settings = {"validation": 10, "eval_every": 2, "steps": 40, "lr": 0.05, "warmup": 2, "save_every": 3}
    train(options(dataset, **settings), tmp_path / "run")
    looks = [record for record in read_metrics(tmp_path / "run") if record["kind"] == "eval"]
    assert len(looks) == 20
    assert {record["split"] for record in looks} == {"validation"}
    best = min(looks, key=lambda record: record["loss"])
    trained = json.loads((tmp_path / "run/model/config.json").read_text())["trained"]
    assert (trained["step"], trained["steps_done"]) == (best["step"], 40)
    assert trained["sequences"] == 50
    model, _ = load_model(tmp_path / "run/model")
    held_out = Sequences(dataset, "train", hold_out=10, held_out=True)
    scores = evaluate(Objective(model), held_out, tasks=10, tokens_per_microbatch=10**6, processes=ALONE)
    assert scores["loss"] == pytest.approx(best["loss"], abs=1e-6)


def test_a_run_out_of_patience_stops_and_resumes_to_the_same_bits(dataset, tmp_path):
    settings = {"validation": 10, "patience": 2, "eval_every": 2, "steps": 400, "lr": 0.05, "warmup": 2}
    settings = options(dataset, save_every=3, **settings)
    result = train(settings, tmp_path / "straight")
    looks = [record["loss"] for record in read_metrics(tmp_path / "straight") if record["kind"] == "eval"]
    assert result.step == 2 * len(looks) < 400
    assert min(looks) == looks[-3]
    assert train(settings, tmp_path / "straight").step == result.step
    with pytest.raises(KeyboardInterrupt):
        train(settings, tmp_path / "broken", display=AtStep(result.step - 1, interrupt))
    assert train(settings, tmp_path / "broken").step == result.step
    assert same(weights(tmp_path / "broken"), weights(tmp_path / "straight"))


def test_a_full_disk_leaves_the_last_good_checkpoint(dataset, tmp_path):
    """A limit on file sizes takes the part of the full disk: after the first ones, checkpoints no longer fit."""
    state = tmp_path / "run" / "checkpoint" / "state.safetensors"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill_the_disk():
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))

    try:
        with pytest.raises(SearchformerError, match=r"checkpoint of step 8 .*; the previous one is still there"):
            train(options(dataset), tmp_path / "run", display=AtStep(6, fill_the_disk))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [path.name for path in state.parent.iterdir()] == [state.name]
    train(options(dataset), tmp_path / "run")
    train(options(dataset), tmp_path / "straight")
    assert same(weights(tmp_path / "run"), weights(tmp_path / "straight"))


def test_a_loss_that_is_not_a_number_stops_the_run(dataset, tmp_path, monkeypatch):
    true_inputs = Objective.inputs

    def poisoned(self, batch):
        inputs = true_inputs(self, batch)
        poisoned.calls += 1
        if poisoned.calls == 6:
            poisoned.task_ids = batch.task_ids
            inputs.weights_N[0] = math.nan
        return inputs

    poisoned.calls = 0
    monkeypatch.setattr(Objective, "inputs", poisoned)
    with pytest.raises(SearchformerError, match=r"step 6: the loss is nan.*checkpoint \(step 4\)") as caught:
        train(options(dataset), tmp_path / "run")
    assert all(name in str(caught.value) for name in poisoned.task_ids)


def test_fine_tuning_starts_from_the_given_model(dataset, tmp_path):
    train(options(dataset, steps=40, save_every=40), tmp_path / "first")
    for place in (tmp_path / "first", tmp_path / "first" / "model"):
        out = tmp_path / place.name / "second"
        train(options(dataset, steps=3, init_from=place, lr=1e-4), out)
        assert losses(out)[0] < 0.8 * losses(tmp_path / "first")[0]


def test_clipping_bounds_the_step(dataset, tmp_path):
    """A gradient of norm 1e-9 is as small as AdamW's epsilon, so its step is a fraction of the rate."""
    settings = {"steps": 1, "warmup": 0, "weight_decay": 0}
    start = first_model(dataset, Sequences(dataset, "train"), options(dataset), ALONE).state_dict()

    def furthest(**changes) -> float:
        out = tmp_path / str(len(changes))
        train(options(dataset, **settings, **changes), out)
        return max((tensor - start[name]).abs().max().item() for name, tensor in weights(out).items())

    assert furthest(clip=1e-9) < 1e-4 < 2e-4 < furthest()


def test_a_run_draws_its_curves(dataset, tmp_path):
    train(options(dataset, steps=4, eval_every=2), tmp_path / "run")
    assert plot_curves(tmp_path / "run").read_bytes().startswith(b"\x89PNG")


# Wrong input


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"model": "16M"}, "unknown model size '16M'"),
        ({"model": f"{SHAPE},positions=9"}, "the model's limit is 9; lower --max-trace-tokens"),
        ({"device": "cuda"}, "device cuda was asked for"),
        ({"max_trace_tokens": 1}, "none has a trace of at most 1 tokens"),
        ({"sequences": 61}, "61 sequences asked for, the train split has 60 that fit; lower --sequences"),
        ({"sequences": 51, "validation": 10, "eval_every": 1}, "train split has 50 that fit beside the 10"),
        (
            {"validation": 60, "eval_every": 1},
            "60 sequences are to be held out, the train split has 60; lower --validation",
        ),
    ],
)
def test_what_cannot_be_trained_is_refused_in_one_line(dataset, tmp_path, changes, complaint):
    if changes.get("device") == "cuda" and torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    with pytest.raises(SearchformerError, match=complaint) as caught:
        train(options(dataset, **changes), tmp_path / "run")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"steps": 0}, r"--steps 0: .*greater than or equal to 1"),
        ({"precision": "fp8"}, r"--precision fp8: "),
        ({"schedule": "steep"}, r"--schedule steep: "),
        ({"validation": 5}, r"^--validation needs --eval-every above 0$"),
        ({"patience": 5}, r"^--patience needs --validation$"),
    ],
)
def test_a_wrong_option_is_named(dataset, changes, complaint):
    with pytest.raises(SearchformerError, match=complaint):
        options(dataset, **changes)


def test_a_checkpoint_with_another_vocabulary_is_refused(dataset, tmp_path):
    train(options(dataset, steps=1), tmp_path / "first")
    other = write_dataset(tmp_path / "other", train=letter_tasks(10), vocabulary=Vocabulary.of("abcdefgi"))
    with pytest.raises(SearchformerError, match=r"data set .* has a vocabulary .* checkpoint .* differ from id 9"):
        train(options(other, init_from=tmp_path / "first"), tmp_path / "second")


def test_a_directory_with_another_run_is_refused(dataset, tmp_path):
    train(options(dataset), tmp_path / "run")
    with pytest.raises(SearchformerError, match=r"other options \(steps was 12, now 14\)"):
        train(options(dataset, steps=14), tmp_path / "run")


def test_two_runs_in_one_directory_do_not_mix(dataset, tmp_path):
    with (
        locked(tmp_path / "run", doing="training"),
        pytest.raises(SearchformerError, match="another process is training"),
    ):
        train(options(dataset), tmp_path / "run")


def test_an_empty_test_split_is_refused_unless_nothing_is_evaluated(tmp_path):
    dataset = write_dataset(tmp_path / "letters", train=letter_tasks(10))
    with pytest.raises(SearchformerError, match="of 0 tasks in the test split"):
        train(options(dataset, eval_every=1), tmp_path / "run")
    assert train(options(dataset, steps=1), tmp_path / "run").step == 1


def test_an_unknown_device_or_tracker_is_refused(tmp_path):
    with pytest.raises(SearchformerError, match="a device is one of auto"):
        choose_device("tpu")
    with pytest.raises(SearchformerError, match="a tracker is one of tensorboard, trackio"):
        make_trackers(["wandb"], tmp_path)


def run_command(monkeypatch, capsys, *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of the command, run in this process."""
    monkeypatch.setattr(sys, "argv", ["searchformer", *arguments])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    return stopped.value.code or 0, *capsys.readouterr()


def test_the_command_prints_json_last(dataset, tmp_path, monkeypatch, capsys):
    arguments = command(dataset, tmp_path / "run", "--steps", "2", "--json", "--plot")[2:]
    code, out, err = run_command(monkeypatch, capsys, *arguments)
    assert code == 0
    summary = json.loads(out.splitlines()[-1])
    assert summary["step"] == 2
    assert Path(summary["plot"]).exists()
    assert [line.partition(":")[0] for line in err.splitlines()] == ["train"]


def test_trackers_get_the_numbers_and_json_is_still_printed_last(dataset, tmp_path):
    """trackio writes to a local database; nothing needs a network."""
    trackers = ("--tracker", "trackio", "--tracker", "tensorboard")
    arguments = command(dataset, tmp_path / "run", "--steps", "3", "--json", *trackers)
    place = environment(TRACKIO_DIR=str(tmp_path / "trackio"), HF_HUB_OFFLINE="1")
    done = subprocess.run([sys.executable, *arguments], env=place, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["step"] == 3
    (database,) = (tmp_path / "trackio").glob("*.db")
    with contextlib.closing(sqlite3.connect(database)) as connection:
        stored = [json.loads(row[0]) for row in connection.execute("select metrics from metrics order by step")]
    assert [row["train/loss"] for row in stored] == losses(tmp_path / "run")
    assert list((tmp_path / "run" / "tensorboard").iterdir())


def test_the_command_scores_greedy_answers(dataset, tmp_path, monkeypatch, capsys):
    more = ("--steps", "200", "--eval-every", "200", "--exact-every", "200", "--lr", "1e-2", "--log-every", "100")
    code, *_ = run_command(monkeypatch, capsys, *command(dataset, tmp_path / "run", *more)[2:])
    assert code == 0
    record = read_metrics(tmp_path / "run")[-1]
    model, _ = load_model(tmp_path / "run" / "model")
    right, rows = 0, list(dataset.records("test"))
    limit = 2 * max(len(row["trace"] + row["plan"]) + 2 for row in rows)
    for row in rows:
        prompt = Prompt(row["task_id"], np.array(row["prompt"]))
        answer = sample_naively(model, prompt, sampling=Sampling(temperature=0.0), max_tokens=limit)
        right += answer.finish == "eos" and answer.tokens.tolist()[-len(row["plan"]) :] == row["plan"]
    assert record["exact_match"] == right / 20 > 0


def test_the_command_says_in_one_line_what_is_wrong(dataset, tmp_path, monkeypatch, capsys):
    arguments = command(dataset, tmp_path / "run", "--device", "tpu")[2:]
    code, _, err = run_command(monkeypatch, capsys, *arguments)
    assert code == 1
    assert err.startswith("searchformer: a device is one of auto")
    assert err.count("\n") == 1
