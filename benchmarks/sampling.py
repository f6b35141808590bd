"""How fast answers are sampled: the rollout engine against the way of the paper's public code, in one run.

The baseline is written from this description: a batch is n repeats of one prompt, the encoder's output is projected to
keys and values again in every layer at every step, and all rows run until the last one has ended. Both get the same
random weights, prompts (10x10 mazes) and lengths; random weights do not know when to end, so lengths are given.

(a) 64 answers of 1000 tokens to one prompt. (b) 100 prompts, 16 answers each, lengths uniform over a factor of 5.
Only tokens before an answer's end count, for both; `raw` is the baseline's rate with the others. The baseline answers
one or two prompts of (b): it takes them one after the other, so more would not change its rate. The engine runs as
`searchformer rollout` does, one process per core. The last line is JSON. Try: `python benchmarks/sampling.py --quick`
"""

import argparse
import json
import multiprocessing
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention, softmax

from searchformer.model import Transformer, make_config
from searchformer.model.rotary import rotary_table, rotate
from searchformer.rollout import Engine, Prompt
from searchformer.rollout.memory import peak_memory_gb
from searchformer.tokens.grammar import Automaton
from searchformer.tokens.vocabulary import BOS, EOS, Vocabulary

GOLDEN = Path(__file__).parents[1] / "tests/golden/meta-model-s-maze10.npz"
VOCABULARY = Vocabulary(tuple(map(str, np.load(GOLDEN)["vocabulary"])))


@dataclass(frozen=True)
class Case:
    """What is to be sampled: prompts, and the length of every answer [prompts, samples]."""

    name: str
    size: str
    prompts: list[Prompt]
    lengths: np.ndarray
    baseline_prompts: int


def make_cases(*, quick: bool) -> list[Case]:
    """(a) and (b) of the module's docstring."""
    generator = np.random.default_rng(0)
    count, part = (10, 5) if quick else (100, 1)
    prompts = [maze_prompt(generator, walls=int(generator.integers(30, 51))) for _ in range(count)]
    lengths = generator.integers(150 // part, 750 // part + 1, (count, 16))
    one = [maze_prompt(generator, walls=40)]
    return [
        Case("a_15M", "15M", one, np.full((1, 64), 1000 // part), 1),
        Case("b_15M", "15M", prompts, lengths, 2),
        Case("b_46M", "46M", prompts, lengths, 1),
    ]


def maze_prompt(generator: np.random.Generator, *, walls: int) -> Prompt:
    """A random 10x10 maze as a prompt."""
    cells = generator.permutation(100)[: walls + 2]
    words = ["start", "goal", *["wall"] * walls]
    text = [token for word, cell in zip(words, cells, strict=True) for token in (word, str(cell % 10), str(cell // 10))]
    return Prompt("-".join(map(str, cells)), VOCABULARY.encode(text).astype(np.int64))


def make_model(size: str) -> Transformer:
    """The same random weights in every process."""
    return Transformer(make_config(size, vocabulary=len(VOCABULARY)), generator=torch.Generator().manual_seed(0)).eval()


@torch.inference_mode()
def run_baseline(model: Transformer, prompt: Prompt, *, samples: int, steps: int) -> None:
    """Sample `steps` tokens for `samples` rows, all with the same prompt."""
    config, heads = model.config, model.config.heads
    prompts_BS = torch.tensor([[BOS, *prompt.tokens.tolist(), EOS]]).repeat(samples, 1)
    features_BSD = model.encode(prompts_BS[:, :, None]).vectors_BSD
    cache = torch.zeros(config.layers, 2, samples, heads, steps, config.head_dim)
    tokens_B1 = torch.full((samples, 1), BOS)
    cosines, sines = rotary_table(steps, config, torch.device("cpu"))
    for step in range(steps):
        turn = cosines[step : step + 1, None], sines[step : step + 1, None]
        x_B1D = model.decoder.embedding(tokens_B1)
        for layer, block in enumerate(model.decoder.layers):
            own, normed = block.attention, block.attention_norm(x_B1D)
            query, key, value = (w(normed).unflatten(-1, (heads, -1)) for w in (own.wq, own.wk, own.wv))
            cache[layer, 0, :, :, step], cache[layer, 1, :, :, step] = rotate(key, *turn)[:, 0], value[:, 0]
            keys, values = cache[layer, :, :, :, : step + 1]
            mixed = scaled_dot_product_attention(rotate(query, *turn).transpose(1, 2), keys, values)
            x_B1D = x_B1D + own.wo(mixed.transpose(1, 2).flatten(-2))
            x_B1D = x_B1D + block.attention_feat(block.attention_feat_norm(x_B1D), features_BSD)  # projects again
            x_B1D = x_B1D + block.feed_forward(block.ffn_norm(x_B1D))
        tokens_B1 = torch.multinomial(softmax(model.decoder.output(x_B1D)[:, 0], -1), 1)


def measure_baseline(case: Case) -> dict[str, float]:
    """Useful and raw tokens per second."""
    model = make_model(case.size)
    run_baseline(model, case.prompts[0], samples=case.lengths.shape[1], steps=3)
    began, raw = time.perf_counter(), 0
    for prompt, lengths in zip(case.prompts[: case.baseline_prompts], case.lengths, strict=False):
        run_baseline(model, prompt, samples=len(lengths), steps=int(lengths.max()))
        raw += len(lengths) * int(lengths.max())
    seconds = time.perf_counter() - began
    useful = int(case.lengths[: case.baseline_prompts].sum())
    return {"tokens_per_second": useful / seconds, "raw_tokens_per_second": raw / seconds, "seconds": seconds}


def run_engine(case: Case, worker: int, workers: int, precision: str, start: Any, results: Any) -> None:
    """One process of the engine: its share of the answers, when it began and ended, its memory."""
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // workers))
    slots = min(64, -(-case.lengths.size // workers))
    engine = Engine(make_model(case.size), VOCABULARY, precision=precision, slots=slots, cache_gb=4.0 / workers)
    if len(case.prompts) >= workers:
        prompts, limits = case.prompts[worker::workers], case.lengths[worker::workers]
    else:
        prompts, limits = case.prompts, case.lengths[:, worker::workers]
    next_state = np.zeros((1, len(VOCABULARY)), np.int32)
    next_state[0, EOS] = -1
    endless = Automaton(start=0, next_state=next_state, expects=("anything but the end",))
    engine.sample_all(prompts[:1], samples=slots, max_tokens=3, automaton=endless)
    start.wait()
    began = time.monotonic()
    answers = engine.sample(prompts, samples=limits.shape[1], max_tokens=limits, automaton=endless)
    tokens = sum(len(answer.tokens) for answer in answers)
    results.put((tokens, began, time.monotonic(), peak_memory_gb()))


def measure_engine(case: Case, *, workers: int, precision: str) -> dict[str, float]:
    """Tokens per second from the first start to the last end, and the processes' peak memory together."""
    context = multiprocessing.get_context("spawn")
    start, results = context.Barrier(workers), context.Queue()
    processes = [
        context.Process(target=run_engine, args=(case, worker, workers, precision, start, results))
        for worker in range(workers)
    ]
    for process in processes:
        process.start()
    tokens, began, ended, gigabytes = zip(*(results.get() for _ in processes), strict=True)
    for process in processes:
        process.join()
    seconds = max(ended) - min(began)
    assert sum(tokens) == case.lengths.sum()
    return {"tokens_per_second": sum(tokens) / seconds, "seconds": seconds, "peak_memory_gb": sum(gigabytes)}


def main() -> None:
    """Measure, print lines as they come, JSON last."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the prompts, a fifth of the lengths")
    parser.add_argument("--only", nargs="*", default=None, help="names of cases: a_15M b_15M b_46M")
    parser.add_argument("--precision", default="bf16", help="of the engine's cache: fp32, bf16 or int8")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes of the engine")
    options = parser.parse_args()
    cores = os.cpu_count() or 1
    result: dict[str, Any] = {"precision": options.precision, "workers": options.workers, "cores": cores}
    for case in make_cases(quick=options.quick):
        if options.only and case.name not in options.only:
            continue
        baseline = measure_baseline(case)
        engine = measure_engine(case, workers=options.workers, precision=options.precision)
        speed = engine["tokens_per_second"]
        result |= {
            f"{case.name}_ratio": round(speed / baseline["tokens_per_second"], 2),
            f"{case.name}_ratio_to_raw": round(speed / baseline["raw_tokens_per_second"], 2),
            f"{case.name}_tokens_per_second": round(speed, 1),
            f"{case.name}_tokens_per_second_per_core": round(speed / cores, 1),
            f"{case.name}_baseline_tokens_per_second": round(baseline["tokens_per_second"], 1),
            f"{case.name}_baseline_raw_tokens_per_second": round(baseline["raw_tokens_per_second"], 1),
            f"{case.name}_peak_memory_gb": round(engine["peak_memory_gb"], 2),
        }
        print(
            f"{case.name}: engine {speed:,.0f} tokens/s ({engine['seconds']:.0f} s), baseline "
            f"{baseline['tokens_per_second']:,.0f} ({baseline['seconds']:.0f} s), "
            f"{speed / baseline['tokens_per_second']:.1f} times",
            flush=True,
        )
    print(json.dumps(result))


if __name__ == "__main__":
    main()
