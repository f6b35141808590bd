"""The same bits: answers whatever the batch, slots and threads; and the losses of a short training, kept in a file.

`python tests/test_exact.py` writes the file again, after a change of numerics that was meant.
"""

import json
import platform
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import GOLDEN

from searchformer.dataset.generate import generate
from searchformer.dataset.options import GenerateOptions
from searchformer.dataset.store import Dataset
from searchformer.model import ModelConfig, Transformer
from searchformer.rollout import Engine, Prompt
from searchformer.rollout.products import FEWEST_ROWS, product
from searchformer.train import train
from searchformer.train.log import read_metrics
from searchformer.train.options import TrainOptions

LOSSES = GOLDEN / "losses.json"
NEARLY = 1e-4
"""Relative difference that losses may have on another processor, or with another version of PyTorch."""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    directory = tmp_path_factory.mktemp("mazes")
    generate(GenerateOptions(domain="maze", settings={"width": 4, "height": 4}, tasks=80, test_fraction=0.3), directory)
    return Dataset(directory)


def network(dataset, unit):
    """A network with random weights."""
    more = {"unit": "step", "shift": 2, "number_heads": 1, "near": 3, "places": 6, "plan_places": 3, "prompt_places": 4}
    config = ModelConfig(
        vocabulary=len(dataset.vocabulary), dim=32, layers=2, heads=2, ffn=48, **(more if unit == "step" else {})
    )
    return Transformer(config, generator=torch.Generator().manual_seed(1), vocabulary=dataset.vocabulary)


def answered(engine, prompts):
    """Answers by task and sample, log-probabilities to the last bit."""
    found = engine.sample_all(prompts, samples=3, seed=4, max_tokens=60)
    return {(a.task_id, a.sample): (a.tokens.tolist(), a.finish, a.log_probability) for a in found}


@pytest.mark.parametrize("unit", ["token", "step"])
def test_answers_have_the_same_bits_in_any_batch_slots_and_threads(dataset, unit):
    model = network(dataset, unit)
    rows = list(dataset.records("test"))[:6]
    prompts = [Prompt(row["task_id"], np.array(row["prompt"], np.int64)) for row in rows]
    expected = answered(Engine(model, dataset.vocabulary, precision="fp32", slots=18, threads=1), prompts)
    for slots, threads in ((1, 1), (3, 1), (7, 1), (18, 2), (5, 3)):
        engine = Engine(model, dataset.vocabulary, precision="fp32", slots=slots, threads=threads)
        assert answered(engine, prompts) == expected
    engine = Engine(model, dataset.vocabulary, precision="fp32", slots=4, threads=1)
    assert answered(engine, prompts[::-1]) == expected
    alone = {key: value for prompt in prompts for key, value in answered(engine, [prompt]).items()}
    assert alone == expected


def test_a_row_of_a_product_does_not_depend_on_the_others():
    generator = torch.Generator().manual_seed(0)
    for inner, outer in ((32, 96), (64, 40), (192, 64)):
        x, weight = (torch.randn(size, generator=generator) for size in ((70, inner), (inner, outer)))
        whole = product(x, weight)
        for rows in (1, 2, 3, FEWEST_ROWS - 1, FEWEST_ROWS, 33):
            assert torch.equal(product(x[:rows], weight), whole[:rows])
            assert torch.equal(product(x[5 : 5 + rows], weight), whole[5 : 5 + rows])
            out = torch.empty(rows, outer)
            assert torch.equal(product(x[:rows], weight, out=out), whole[:rows])
            assert torch.equal(out, whole[:rows])


@pytest.mark.parametrize("unit", ["token", "step"])
def test_the_samplers_log_probabilities_are_the_trainers_up_to_rounding(dataset, unit):
    """Not to the last bit: training adds up attention over a whole sequence, sampling over blocks of the cache."""
    model = network(dataset, unit)
    row = next(iter(dataset.records("test")))
    prompt = Prompt(row["task_id"], np.array(row["prompt"], np.int64))
    answers = Engine(model, dataset.vocabulary, precision="fp32").sample_all([prompt], samples=4, max_tokens=50)
    for answer in answers:
        ended = [1] if answer.finish == "eos" else []
        sequence = np.array([[0, *answer.tokens.tolist(), *(ended or [1])]])
        asked = np.array([[0, *prompt.tokens.tolist(), 1]])
        lengths = np.array([asked.shape[1]]), np.array([sequence.shape[1]])
        with torch.inference_mode():
            known_NV = model.log_probabilities(model.inputs(asked, lengths[0], sequence, lengths[1])).double()
        targets = [*answer.tokens.tolist(), *ended]
        total = sum(float(known_NV[i, token] - known_NV[i].logsumexp(0)) for i, token in enumerate(targets))
        assert answer.log_probability == pytest.approx(total, rel=1e-5, abs=1e-4)


# --- the losses of a short training


def machine():
    """What the bits of a loss depend on besides our own text."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if sys.platform == "linux" else []
    names = [line for line in lines if line.startswith("model name")]
    cpu = names[0].partition(":")[2].strip() if names else platform.processor()
    return {"torch": torch.__version__, "capability": torch.backends.cpu.get_cpu_capability(), "cpu": cpu}


def short_losses(directory):
    """Losses of seeded trainings: token and step network, AdamW and Muon, search-augmented and solution-only."""
    settings = {"width": 4, "height": 4}
    generate(GenerateOptions(domain="maze", settings=settings, tasks=200, test_fraction=0.2), directory / "data")
    runs = {
        "token, adamw": {"model": "dim=32,layers=2,heads=2,ffn=48"},
        "token, plans only": {"model": "dim=32,layers=2,heads=2,ffn=48", "plan_only": True},
        "step, muon": {"model": "unit=step,shift=2,dim=32,layers=2,heads=2,ffn=48", "optimiser": "muon", "clip": 1.0},
    }
    common = {"steps": 25, "batch_size": 8, "lr": 3e-3, "precision": "fp32", "log_every": 1, "eval_every": 0}
    losses = {}
    for name, options in runs.items():
        out = directory / name
        train(TrainOptions(data=directory / "data", **common, **options, device="cpu"), out)
        losses[name] = [record["loss"] for record in read_metrics(out)]
    return losses


def test_the_losses_of_a_short_training_are_those_of_the_file(tmp_path):
    """To the last bit on the machine that wrote the file, elsewhere up to rounding."""
    torch.set_num_threads(1)
    stored, found = json.loads(LOSSES.read_text()), short_losses(tmp_path)
    assert found.keys() == stored["losses"].keys()
    for name, losses in found.items():
        if machine() == stored["machine"]:
            assert losses == stored["losses"][name], f"{name}: other bits than before; meant? see the head of this file"
        assert losses == pytest.approx(stored["losses"][name], rel=NEARLY)


if __name__ == "__main__":
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        kept = {"machine": machine(), "losses": short_losses(Path(name))}
    LOSSES.write_text(json.dumps(kept, indent=1) + "\n")
