"""Does bf16 cost quality? Loss after 1,000 steps in fp32 and with bf16 products, three seeds each. Last line: JSON.

Where the processor has no bf16 products they are emulated: operands and results rounded to bf16, sums in fp32, which is
what such processors do. Try: `python benchmarks/precision.py --steps 200`
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.nn import functional

from searchformer.dataset.generate import generate
from searchformer.dataset.shards import GenerateOptions
from searchformer.model import layers, make_config
from searchformer.train import TrainOptions, train
from searchformer.train.log import read_metrics
from searchformer.train.precision import choose_precision

SHAPE = "dim=64,layers=2,heads=4,ffn=128"


class EmulatedProduct(torch.autograd.Function):
    """`HalfProduct` with fp32 arithmetic on bf16 values."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, half_weight: Tensor) -> Tensor:
        rounded = x.bfloat16().float()
        ctx.save_for_backward(rounded, half_weight)
        return functional.linear(rounded, half_weight.float()).bfloat16().float()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        rounded, half_weight = ctx.saved_tensors
        gradient = gradients[0].bfloat16().float()
        weight_gradient = gradient.flatten(0, -2).T @ rounded.flatten(0, -2)
        return (gradient @ half_weight.float()).bfloat16().float(), weight_gradient.bfloat16().float(), None


def final_losses(data: Path, out: Path, *, precision: str, seed: int, steps: int) -> dict[str, float]:
    """Training loss over the last tenth of the steps, and the test loss."""
    options = TrainOptions.checked(
        data=data, model=SHAPE, steps=steps, lr=3e-3, seed=seed, precision=precision, eval_every=steps, log_every=1
    )
    result = train(options, out)
    losses = [record["loss"] for record in read_metrics(out) if record["kind"] == "train"]
    return {"train": statistics.mean(losses[-steps // 10 :]), "test": result.last["eval"]["loss"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    emulated = choose_precision("auto", make_config("46M", vocabulary=64), torch.device("cpu")) == "fp32"
    product = EmulatedProduct if emulated else layers.HalfProduct
    found: dict[str, list[dict[str, float]]] = {"fp32": [], "bf16": []}
    with tempfile.TemporaryDirectory() as place, mock.patch.object(layers, "HalfProduct", product):
        data = Path(place) / "maze6"
        generate(GenerateOptions(domain="maze", settings={"width": 6, "height": 6}, tasks=6000), data)
        for seed in range(arguments.seeds):
            for precision, runs in found.items():
                out = Path(place) / f"{precision}-{seed}"
                runs.append(final_losses(data, out, precision=precision, seed=seed, steps=arguments.steps))
                print(f"seed {seed}, {precision}: train {runs[-1]['train']:.4f}, test {runs[-1]['test']:.4f}")
    test = {name: [run["test"] for run in runs] for name, runs in found.items()}
    difference = statistics.mean(test["bf16"]) - statistics.mean(test["fp32"])
    summary = {"emulated": emulated, "steps": arguments.steps, **found, "mean_test_difference": difference}
    if arguments.seeds > 1:
        summary["spread_over_seeds"] = statistics.stdev(test["fp32"])
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
