"""Step networks against token networks of the same width and layers: how soon they learn, how fast they answer.

All in one run: CPU seconds of one thread (so that other programs hardly matter), fp32 training with Muon, data made on
the spot, every network with a schedule of its own. Training is `searchformer train`'s; its evaluations are not counted.

- Time to the same loss on 256 test tasks. The loss is the one that the token network ends its schedule with, so that it
  is at its best there; the step network's time is read off its curve. 10x10 mazes: a token network as published and one
  with token shift, each against the same step network; `maze10_time_ratio` is the smaller ratio of the two. Sokoban:
  token shift for both; where the step network is past that loss at its first evaluation, the ratio is a lower bound.
- Answers per CPU second, untrained weights: tokens are drawn freely, but of the kinds that real responses have at
  their places, so that both kinds write answers of the same lengths in the same steps. Default precision and slots.
- Quality: both kinds with token shift, trained for equally many steps, three seeds; final test losses, and the share of
  optimal answers at temperature 1 to 200 test tasks, 64 each.

Last line: JSON. Try: `python benchmarks/steps.py --quick`, or `--only maze`.
"""

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from searchformer.dataset.batches import Sequences
from searchformer.dataset.generate import generate
from searchformer.dataset.options import GenerateOptions
from searchformer.dataset.store import Dataset
from searchformer.evaluate.evaluation import evaluate
from searchformer.model import Transformer
from searchformer.rollout import Engine, Prompt
from searchformer.rollout.dispatch import roll_out
from searchformer.rollout.engine import DEFAULT_SLOTS
from searchformer.rollout.options import RolloutOptions
from searchformer.tokens.grammar import Automaton
from searchformer.tokens.steps import KEYWORD, token_kinds
from searchformer.train import TrainOptions, train
from searchformer.train.processes import Processes
from searchformer.train.setup import first_model

SHAPE = "dim=64,layers=3,heads=4,ffn=192"
NETWORKS = {"token": SHAPE, "token_shift": f"{SHAPE},shift=3", "step": "step-small"}
MAZE_TASKS, SOKOBAN_TASKS = 20_000, 4_000
SLOTS = DEFAULT_SLOTS
SEEDS = 3


@dataclass(frozen=True)
class Schedule:
    """How long a network is trained; the rate is a cosine over these steps."""

    steps: int
    eval_every: int
    batch: int
    lr: float = 1e-2

    def quick(self) -> "Schedule":
        """A smoke run of it."""
        return Schedule(4, 2, min(self.batch, 2), self.lr)


MAZE = {
    "step": Schedule(600, 20, 16),
    "token_shift": Schedule(600, 200, 16),
    "token": Schedule(600, 200, 16),
}
SOKOBAN = {"step": Schedule(60, 3, 8), "token_shift": Schedule(60, 20, 8)}
QUALITY = {"maze6": Schedule(1000, 1000, 16), "maze10": Schedule(600, 600, 16)}


# --- learning


@dataclass
class Curve:
    """A training run as it went: CPU seconds of its steps so far, and the test loss after them."""

    seconds: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)

    def time_to(self, loss: float) -> tuple[float, bool]:
        """CPU seconds to `loss`, between evaluations in proportion, and whether it was there at the first one already.

        nan if it was never reached.
        """
        if self.losses[0] <= loss:
            return self.seconds[0], True
        for index in range(1, len(self.losses)):
            before, after = self.losses[index - 1 : index + 1]
            if after <= loss:
                share = (before - loss) / (before - after)
                return self.seconds[index - 1] * (1 - share) + self.seconds[index] * share, False
        return float("nan"), False


class Stopwatch:
    """Listens to a run: CPU time up to each evaluation, without the time of evaluations."""

    def __init__(self, name: str) -> None:
        self.name, self.curve = name, Curve()
        self.spent, self.resumed = 0.0, time.process_time()

    def __call__(self, record: dict[str, Any]) -> None:
        """A line of metrics.jsonl: the steps end with one of kind train, an evaluation with one of kind eval."""
        now = time.process_time()
        if record["kind"] == "train":
            self.spent += now - self.resumed
        else:
            self.curve.seconds.append(self.spent)
            self.curve.losses.append(record["loss"])
            say(f"{self.name}, {record['step']} steps: {self.spent:.1f} CPU s, test loss {record['loss']:.4f}")
        self.resumed = now


def learn(dataset: Dataset, network: str, schedule: Schedule, out: Path, *, name: str, seed: int = 0) -> Curve:
    """Train a network from the start; the run goes to `out`."""
    watch = Stopwatch(f"{name} {network}")
    options = TrainOptions.checked(
        data=dataset.directory,
        model=NETWORKS[network],
        steps=schedule.steps,
        batch_size=schedule.batch,
        lr=schedule.lr,
        warmup=schedule.steps // 10,
        optimiser="muon",
        weight_decay=0.1,
        clip=1.0,
        eval_every=schedule.eval_every,
        log_every=schedule.eval_every,
        save_every=schedule.steps,
        precision="fp32",
        device="cpu",
        seed=seed,
    )
    Sequences(dataset, "train"), Sequences(dataset, "test")  # unpacks the data set, once for all runs
    watch.resumed = time.process_time()
    train(options, out, listeners=[watch])
    return watch.curve


def time_ratios(name: str, dataset: Dataset, schedules: dict[str, Schedule]) -> dict[str, Any]:
    """CPU time of every token network to the loss it ends with, over that of the step network to the same loss."""
    with tempfile.TemporaryDirectory() as place:
        learn(dataset, "token", Schedule(2, 2, 2), Path(place) / "warm-up", name=f"{name} warm-up")
        curves = {
            network: learn(dataset, network, schedule, Path(place) / network, name=name)
            for network, schedule in schedules.items()
        }
    step, results = curves.pop("step"), {}
    ratios: dict[str, tuple[float, bool]] = {}
    for network, curve in curves.items():
        loss, seconds = curve.losses[-1], curve.seconds[-1]
        reached, is_bound = step.time_to(loss)
        ratios[network] = seconds / reached, is_bound
        results |= {
            f"{name}_{network}_loss": round(loss, 4),
            f"{name}_{network}_cpu_seconds": round(seconds, 1),
            f"{name}_step_cpu_seconds_to_{network}_loss": number(reached),
            f"{name}_{network}_time_ratio": number(seconds / reached),
        }
    ratio, is_bound = min(ratios.values())
    results |= {f"{name}_time_ratio": number(ratio), f"{name}_is_lower_bound": is_bound}
    return results | {
        f"{name}_step_loss": round(step.losses[-1], 4),
        f"{name}_step_cpu_seconds": number(step.seconds[-1]),
    }


def quality(name: str, dataset: Dataset, schedule: Schedule, *, seeds: int, tasks: int) -> dict[str, Any]:
    """Test losses and optimal answers after equally many steps, by seed."""
    results: dict[str, Any] = {f"{name}_steps": schedule.steps}
    for network in ("step", "token_shift"):
        losses, optimal = [], []
        for seed in range(seeds):
            with tempfile.TemporaryDirectory() as place:
                run, about = Path(place) / "run", f"{name}, seed {seed},"
                losses.append(learn(dataset, network, schedule, run, name=about, seed=seed).losses[-1])
                optimal.append(optimal_answers(run, dataset, tasks=tasks))
            say(f"{about} {network}: optimal per answer {optimal[-1]}")
        results |= {
            f"{name}_{network}_losses": [round(loss, 4) for loss in losses],
            f"{name}_{network}_mean_loss": round(statistics.mean(losses), 4),
            f"{name}_{network}_optimal_per_answer": optimal,
        }
    return results


def optimal_answers(run: Path, dataset: Dataset, *, tasks: int) -> list[float]:
    """The share of optimal answers to test tasks, 64 each at temperature 1, and its 95% interval over tasks."""
    answers = RolloutOptions(
        model=run / "model", data=dataset.directory, out=run / "answers", tasks=tasks, samples=64, workers=1
    )
    roll_out(answers)
    share = evaluate(run / "answers", workers=1)["metrics"]["pass_at_1"]
    return [round(share[part], 4) for part in ("value", "low", "high")]


# --- answering


def like(response: np.ndarray, kinds: np.ndarray) -> Automaton:
    """Lets answers have any tokens of the kinds that `response` has at their places, its keywords, and no end."""
    next_state = np.full((len(response) + 1, len(kinds)), -1, np.int32)
    for place, token in enumerate(response.tolist()):
        allowed = token if kinds[token] >= KEYWORD else kinds == kinds[token]
        next_state[place, allowed] = place + 1
    next_state[-1, 2:] = len(response)
    return Automaton(start=0, next_state=next_state, expects=("a token of the same kind",) * len(next_state))


def answers_per_second(dataset: Dataset, network: str, *, tasks: int, max_tokens: int | None = None) -> float:
    """Answers per CPU second to the first `tasks` test tasks, `SLOTS` answers to each, as long as the real ones."""
    test, kinds = Sequences(dataset, "test"), token_kinds(dataset.vocabulary)
    options = TrainOptions.checked(data=dataset.directory, model=NETWORKS[network], steps=1)
    model: Transformer = first_model(dataset, test, options, Processes(0, 1, torch.device("cpu")))
    engine = Engine(model, dataset.vocabulary, slots=SLOTS, threads=1)

    def answer(index: int, most: int | None) -> float:
        batch, response = test.batch(np.array([index])), test.response(index)[:most]
        prompt = Prompt(batch.task_ids[0], batch.prompts[0, 1:-1])
        automaton, began = like(response, kinds), time.process_time()
        answers = engine.sample_all([prompt], samples=SLOTS, max_tokens=len(response), automaton=automaton)
        assert all(len(answer.tokens) == len(response) for answer in answers)
        return time.process_time() - began

    answer(0, 40)  # compiles
    seconds = [answer(index, max_tokens) for index in range(tasks)]
    return SLOTS * tasks / sum(seconds)


def sampling_ratios(name: str, dataset: Dataset, *, tasks: int, max_tokens: int | None) -> dict[str, Any]:
    """Answers per CPU second of every kind of network, and the ratio to the faster token network."""
    rates = {kind: answers_per_second(dataset, kind, tasks=tasks, max_tokens=max_tokens) for kind in NETWORKS}
    say(f"{name}: answers per CPU second " + ", ".join(f"{kind} {rate:.2f}" for kind, rate in rates.items()))
    results = {f"{name}_{kind}_answers_per_cpu_second": round(rate, 2) for kind, rate in rates.items()}
    return results | {f"{name}_sampling_ratio": number(rates["step"] / max(rates["token"], rates["token_shift"]))}


# --- all together


def number(value: float) -> float | None:
    """Rounded for JSON, which has no nan."""
    return None if value != value else round(value, 2)


def say(line: str) -> None:
    print(line, flush=True)


def make_dataset(place: Path, name: str, *, quick: bool) -> Dataset:
    """maze6, maze10 or sokoban."""
    directory = place / name
    if not directory.exists():
        size = {"maze6": 6, "maze10": 10, "sokoban": 7}[name]
        settings, limit, tasks = {"width": size, "height": size}, None, MAZE_TASKS
        if name == "sokoban":
            settings, limit, tasks = settings | {"walls": 2, "boxes": 2}, 3000, SOKOBAN_TASKS
        domain = "sokoban" if name == "sokoban" else "maze"
        config = GenerateOptions(
            domain=domain, settings=settings, tasks=100 if quick else tasks, max_trace_tokens=limit, seed=0
        )
        generate(config, directory)
        say(f"made {config.tasks:,} tasks of {name}")
    return Dataset(directory)


def main() -> None:
    """Measure, print lines as they come, JSON last."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = ("maze", "sokoban", "sampling", "quality")
    parser.add_argument("--only", nargs="*", choices=parts, default=parts[:3], help="default: all but quality")
    parser.add_argument("--quick", action="store_true", help="a smoke run; its numbers mean nothing")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="of --only quality")
    options = parser.parse_args()
    torch.set_num_threads(1)

    def schedules(given: dict[str, Schedule]) -> dict[str, Schedule]:
        return {name: schedule.quick() if options.quick else schedule for name, schedule in given.items()}

    result: dict[str, Any] = {"quick": options.quick}
    with tempfile.TemporaryDirectory() as place:

        def made(name: str) -> Dataset:
            return make_dataset(Path(place), name, quick=options.quick)

        if "maze" in options.only:
            result |= time_ratios("maze10", made("maze10"), schedules(MAZE))
        if "sokoban" in options.only:
            result |= time_ratios("sokoban", made("sokoban"), schedules(SOKOBAN))
        if "sampling" in options.only:
            for name, tasks in (("maze10", 8), ("sokoban", 3)):
                tasks, most = (1, 40) if options.quick else (tasks, None)
                result |= sampling_ratios(name, made(name), tasks=tasks, max_tokens=most)
        if "quality" in options.only:
            for name, schedule in schedules(QUALITY).items():
                result |= quality(name, made(name), schedule, seeds=options.seeds, tasks=2 if options.quick else 200)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
