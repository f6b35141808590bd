"""Training speed against the plain way, in one run: useful response tokens per second on 10x10-maze data, all cores.

Plain: fp32, torch's own RMSNorm and attention, textbook RoPE, AdamW tensor by tensor, batches of 16 as they come,
padded to the longest, logits for padding too, one process with all threads. Ours: what `searchformer train` does under
torchrun, a process for each core. Both take the optimiser step. The batches are spread evenly over one shuffled pool.
Last line: JSON.

Try: `python benchmarks/training.py --sizes 15M --batches 4`
"""

import argparse
import contextlib
import json
import math
import multiprocessing as mp
import socket
import statistics
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from unittest import mock

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional

from searchformer.dataset.batches import GROUP_BATCHES, POOL_BATCHES, Batch, Sequences
from searchformer.dataset.generate import generate
from searchformer.dataset.shards import GenerateOptions
from searchformer.dataset.store import Dataset
from searchformer.model import ModelConfig, Transformer, layers, make_config
from searchformer.train import TrainOptions
from searchformer.train.objective import Objective
from searchformer.train.optimiser import FlatParameters, Optimiser
from searchformer.train.precision import HalfWeights, choose_precision
from searchformer.train.processes import Processes

BATCH = 16
CPU = torch.device("cpu")
Step = Callable[[Batch], None]


def textbook_rotate(x_BLHK: Tensor, cosines_LP: Tensor, sines_LP: Tensor) -> Tensor:
    even, odd = x_BLHK[..., 0::2], x_BLHK[..., 1::2]
    cosines, sines = cosines_LP.unsqueeze(-2), sines_LP.unsqueeze(-2)
    return torch.stack((even * cosines - odd * sines, even * sines + odd * cosines), dim=-1).flatten(-2)


def plain_step(config: ModelConfig) -> Step:
    """A training step as one would first write it."""
    model = Transformer(config)
    for module in model.modules():
        if isinstance(module, layers.RMSNorm):
            module.forward = super(layers.RMSNorm, module).forward
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-5, betas=(0.9, 0.99))

    def step(batch: Batch) -> None:
        with mock.patch.multiple(layers, rotate=textbook_rotate, pays=mock.Mock(return_value=False)):
            optimiser.zero_grad()
            responses = torch.from_numpy(batch.responses)
            logits = model(torch.from_numpy(batch.prompts), responses[:, :-1], torch.from_numpy(batch.prompt_lengths))
            losses = functional.cross_entropy(logits.transpose(1, 2), responses[:, 1:], reduction="none")
            counts = torch.from_numpy(batch.response_lengths - 1)
            real = torch.arange(losses.shape[1]) < counts[:, None]
            ((losses * real).sum(dim=1) / counts).mean().backward()
            optimiser.step()

    return step


def our_step(config: ModelConfig, precision: str, processes: Processes) -> Step:
    """A training step as `searchformer train` takes it."""
    torch.manual_seed(0)
    model = Transformer(config)
    flat = FlatParameters(model)
    objective = Objective(model)
    options = TrainOptions.checked(data=Path("-"), lr=1e-5, steps=1)
    optimiser = Optimiser(flat, options)
    half = HalfWeights(model, flat) if precision == "bf16" else None

    def step(batch: Batch) -> None:
        flat.gradient.zero_()
        mine = batch.take(slice(processes.rank, None, processes.world))
        for part in mine.microbatches(options.tokens_per_microbatch):
            (objective(objective.inputs(part)) / len(batch)).backward()
        processes.sum(flat.gradient)
        float(torch.linalg.vector_norm(flat.gradient))
        optimiser.step(1e-5)
        if half is not None:
            half.refresh()

    return step


class Team:
    """Our step by several processes with a thread each; they sleep while the plain way has its turn."""

    def __init__(self, config: ModelConfig, precision: str, world: int) -> None:
        context = mp.get_context("spawn")
        with socket.socket() as free:
            free.bind(("localhost", 0))
            address = f"tcp://localhost:{free.getsockname()[1]}"
        self._pipes = []
        for rank in range(world):
            ours, theirs = context.Pipe()
            arguments = (theirs, config, precision, rank, world, address)
            context.Process(target=team_member, args=arguments, daemon=True).start()
            self._pipes.append(ours)

    def __call__(self, batch: Batch) -> None:
        for pipe in self._pipes:
            pipe.send(batch)
        for pipe in self._pipes:
            pipe.recv()


def team_member(pipe: Connection, config: ModelConfig, precision: str, rank: int, world: int, address: str) -> None:
    """A process of the team: a step for each batch that comes."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=world)
    step = our_step(config, precision, Processes(rank=rank, world=world, device=CPU))
    with contextlib.suppress(EOFError):  # the benchmark is over
        while True:
            step(pipe.recv())
            pipe.send(None)


def seconds(step: Step, batch: Batch) -> float:
    started = time.perf_counter()
    step(batch)
    return time.perf_counter() - started


def useful(batch: Batch) -> int:
    return int(batch.response_lengths.sum()) - len(batch)


def padding(batches: list[Batch]) -> float:
    return sum(len(b) * (b.responses.shape[1] - 1) for b in batches) / sum(map(useful, batches))


def needed_flops(config: ModelConfig, batches: list[Batch]) -> float:
    """Multiplications and additions of forward and backward on real tokens, causal attention counted as half."""
    d, f = config.dim, config.ffn
    per_prompt_token = config.layers * (4 * d * d + 3 * d * f + 2 * d * d) + d * d
    per_response_token = config.layers * (4 * d * d + 2 * d * d + 3 * d * f) + d * config.vocabulary
    total = 0.0
    for batch in batches:
        prompts, responses = batch.prompt_lengths.astype(float), batch.response_lengths - 1.0
        scores = prompts**2 + responses**2 / 2 + responses * prompts
        total += float((prompts * per_prompt_token + responses * per_response_token).sum())
        total += float(config.layers * 2 * d * scores.sum())
    return 6 * total


def product_peak(dtype: torch.dtype, repeats: int = 7) -> float:
    """Best rate of a large square matrix product, in GFLOPS."""
    a, b = (torch.randn(1536, 1536).to(dtype) for _ in range(2))
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        a @ b
        times.append(time.perf_counter() - started)
    return 2 * 1536**3 / min(times) / 1e9


def compare(size: str, dataset: Dataset, *, count: int, rounds: int, precision: str, world: int) -> dict[str, object]:
    """Rates of both ways over the same batches, a batch of each in turn."""
    config = make_config(size, vocabulary=len(dataset.vocabulary))
    sequences = Sequences(dataset, "train")
    order = np.random.default_rng(0).permutation(len(sequences))[: POOL_BATCHES * BATCH]
    by_length = sequences.bucketed(order, group=GROUP_BATCHES * BATCH)
    places = [int((i + 0.5) * (len(order) // BATCH) / count) * BATCH for i in range(count)]
    as_they_come = [sequences.batch(order[place : place + BATCH]) for place in places]
    bucketed = [sequences.batch(by_length[place : place + BATCH]) for place in places]
    chosen = choose_precision(precision, config, CPU)
    plain, ours = plain_step(config), Team(config, chosen, world)
    plain(as_they_come[0])
    ours(bucketed[0])
    rates: dict[str, list[float]] = {"plain": [], "ours": []}
    for _ in range(rounds):
        spent = {"plain": 0.0, "ours": 0.0}
        for padded, even in zip(as_they_come, bucketed, strict=True):
            spent["plain"] += seconds(plain, padded)
            spent["ours"] += seconds(ours, even)
        rates["plain"].append(sum(map(useful, as_they_come)) / spent["plain"])
        rates["ours"].append(sum(map(useful, bucketed)) / spent["ours"])
    ratios = [ours / plain for ours, plain in zip(rates["ours"], rates["plain"], strict=True)]
    achieved = needed_flops(config, bucketed) / sum(map(useful, bucketed)) * statistics.median(rates["ours"]) / 1e9
    return {
        "precision": chosen,
        "plain_tokens_per_second": statistics.median(rates["plain"]),
        "our_tokens_per_second": statistics.median(rates["ours"]),
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        "plain_padding": padding(as_they_come),
        "our_padding": padding(bucketed),
        "gflops": achieved,
    }


def maze_data(directory: Path) -> Dataset:
    """10x10 mazes, enough for one pool."""
    config = GenerateOptions(domain="maze", settings={"width": 10, "height": 10}, tasks=4700, seed=0)
    generate(config, directory)
    return Dataset(directory)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="15M,46M", help="comma-separated")
    parser.add_argument("--batches", type=int, default=4, help="batches per round")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--processes", type=int, default=torch.get_num_threads(), help="of ours; default: all cores")
    arguments = parser.parse_args()
    peaks = {name: product_peak(dtype) for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16))}
    print(f"matrix-product peak, {torch.get_num_threads()} threads: " + str({k: round(v) for k, v in peaks.items()}))
    summary: dict[str, object] = {f"{name}_peak_gflops": peak for name, peak in peaks.items()}
    with tempfile.TemporaryDirectory() as place:
        dataset = maze_data(Path(place) / "maze10")
        for size in arguments.sizes.split(","):
            found = compare(
                size,
                dataset,
                count=arguments.batches,
                rounds=arguments.rounds,
                precision=arguments.precision,
                world=arguments.processes,
            )
            found["share_of_peak"] = found["gflops"] / peaks[str(found["precision"])]
            print(f"{size}: " + ", ".join(f"{k} {v:.4g}" for k, v in found.items() if isinstance(v, float)))
            summary |= {f"{size}_{name}": value for name, value in found.items()}
    assert all(math.isfinite(value) for value in summary.values() if isinstance(value, float))
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
