"""What a recipe costs, as an estimate: floating-point operations by counting, divided by rates that were measured.

Sequence lengths come from a few hundred tasks that are sampled and searched on the spot, for any domain. The rates of
the 2-core CPU were measured (see `CPU`); those of the GPU are assumptions, as no GPU was at hand.
"""

import json
import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from searchformer.dataset.options import GenerateOptions
from searchformer.dataset.shards import ShardMaker
from searchformer.domains import make_domain
from searchformer.errors import SearchformerError
from searchformer.model.config import HEAD_BLOCKS, ModelConfig, make_config
from searchformer.recipes.plan import AnswerRun, BootstrapRun, Merge, Stage, TrainRun
from searchformer.recipes.recipe import DataSpec, Recipe, errors_of
from searchformer.search import Sampler
from searchformer.tokens.steps import KEYWORD, KINDS, WORD, longest_piece, token_kinds
from searchformer.tokens.symbols import costs_of, symbols_for
from searchformer.tokens.vicinity import Vicinity
from searchformer.train.options import BATCH_SIZES, STEPS

SAMPLED_TASKS = 256
MOST_CANDIDATES = 50_000
BACKWARD = 3
"""Training does a forward pass and a backward pass that costs twice as much."""


Rates = dict[str, tuple[tuple[int, float], ...]]
"""For networks with a token or a step per position, by width: pairs (dim, operations per second), ascending."""


@dataclass(frozen=True)
class Machine:
    """How fast a machine is."""

    name: str
    training: Rates
    sampling: Rates
    step_seconds: float
    """Of an optimiser step, whatever the model."""
    token_seconds: float
    """Of a sampled position, per layer and whatever the width; a step network's head counts as a layer per token."""
    start_seconds: float = 8.0
    """Of a stage: imports, first use of kernels."""
    generated_tokens: float = 4e6
    """Per second, searched and written."""
    judged_tokens: float = 1.5e6
    """Per second; A*'s own runs are as fast as generating."""
    report_seconds: float = 15.0


CPU = Machine(
    name="a 2-core CPU",
    training={"token": ((64, 5.2e10), (192, 7.1e10)), "step": ((64, 5.2e10), (96, 6.2e10))},
    sampling={"token": ((64, 3.0e10), (192, 6.5e10), (384, 1.07e11)), "step": ((64, 2.1e10), (96, 3.7e10))},
    step_seconds=0.03,
    token_seconds=0.0,
)
"""From tokens per second measured on two cores of an AMD EPYC (Zen 3, fp32), times the operations that
`sequence_operations` counts for them. Training: dim 64, 3 layers, 6x6 and 7x7 mazes, 26,000; 15M, 10x10 mazes, 47% of
the product peak of 150 GFLOPS; wider models are taken to do as well. Sampling: dim 64, 7x7 Sokoban, 39,000; 15M 6,500,
46M 2,160. Step networks, 10x10 mazes, measured on one core and doubled: training `step-small` 76,000, `step-medium`
44,000; sampling 91,000 and 78,000. What a step and a stage take beside: `quickstart`, 4.5 minutes in all."""
_GPU_TRAINING = ((64, 2e12), (192, 1e13), (384, 3e13), (768, 8e13), (1152, 1.2e14))
_GPU_SAMPLING = ((64, 1e12), (192, 3e12), (384, 1e13), (768, 2e13), (1152, 3e13))
GPU = Machine(
    name="one GPU",
    training={"token": _GPU_TRAINING, "step": _GPU_TRAINING},
    sampling={"token": _GPU_SAMPLING, "step": _GPU_SAMPLING},
    step_seconds=0.03,
    token_seconds=4e-6,
)
"""Assumed, not measured: a data-centre GPU with 300 bf16 TFLOPS at the shares of it that such widths and batches
usually reach (the same for step networks), 30 ms to launch a step's kernels, and 0.5 ms per layer for a position of
128 sequences."""


@dataclass(frozen=True)
class Lengths:
    """Mean lengths of a data set's sequences, in tokens or in the pieces that a step network reads."""

    prompt: float
    trace: float
    plan: float
    response_squared: float
    """Mean of the square of trace + plan."""

    def response(self, *, plan_only: bool) -> float:
        """What a model learns to write."""
        return self.plan if plan_only else self.trace + self.plan

    def squared(self, *, plan_only: bool) -> float:
        """Mean of its square."""
        return self.plan**2 if plan_only else self.response_squared


@dataclass(frozen=True)
class Sizes:
    """What a data set asks of a network."""

    tokens: Lengths
    pieces: Lengths
    vocabulary: int
    places: dict[str, int]
    """Tokens of the longest piece of a prompt, a trace, a plan."""
    symbols: dict[str, int]
    """What a step network has to tell apart to know a prompt, a trace, a plan."""


@dataclass(frozen=True)
class Cost:
    """An estimate."""

    seconds: float
    size: str
    """What is done, in words."""


def sizes_of(spec: DataSpec) -> Sizes:
    """Sizes of a few hundred tasks of the data set."""
    limits = spec.model_dump(include={"domain", "settings", "deterministic", "algorithm", "weight", "max_trace_tokens"})
    limits["settings"] = make_domain(spec.domain, spec.settings).model_dump()
    return _sampled_sizes(json.dumps(limits, sort_keys=True))


@lru_cache
def _sampled_sizes(config: str) -> Sizes:
    maker = ShardMaker(GenerateOptions(tasks=SAMPLED_TASKS, **json.loads(config)))
    longest = maker.config.max_trace_tokens or (1 << 31) - 1
    sampler = Sampler(maker.searcher, maker.ids, seed=0, part=0, pairs=1, max_trace_tokens=longest)
    kinds, costs = token_kinds(maker.vocabulary), costs_of(maker.vocabulary)
    tokens: dict[str, list[np.ndarray]] = {"prompt": [], "trace": [], "plan": []}
    pieces: dict[str, list[np.ndarray]] = {part: [] for part in tokens}
    places, highest = dict.fromkeys(tokens, 1), dict.fromkeys(tokens, -1)
    rows = 0
    while rows < SAMPLED_TASKS and sampler.candidates() < MOST_CANDIDATES:
        batch = sampler.draw(SAMPLED_TASKS - rows, candidates=1000)
        rows += len(batch.problems)
        for part, ends in batch.ends.items():
            kinds_of_part, is_prompt = kinds[batch.parts[part]], part == "prompt"
            begun = (kinds_of_part >= KEYWORD) | (is_prompt & (kinds_of_part == WORD))
            tokens[part].append(np.diff(ends).astype(float))
            pieces[part].append(np.diff(np.append(0, np.cumsum(begun))[ends]).astype(float))
            places[part] = max(places[part], longest_piece(kinds_of_part, prompts=is_prompt))
            highest[part] = max(highest[part], int(costs[batch.parts[part]].max(initial=-1)))
    if not rows:
        raise SearchformerError(f"no task fits among {MOST_CANDIDATES:,} candidates; widen the settings")
    symbols = {part: symbols_for(costs, cost).count for part, cost in highest.items()}
    return Sizes(_means(tokens), _means(pieces), len(maker.vocabulary), places, symbols)


def _means(parts: dict[str, list[np.ndarray]]) -> Lengths:
    prompt, trace, plan = (np.concatenate(parts[part]) for part in ("prompt", "trace", "plan"))
    return Lengths(float(prompt.mean()), float(trace.mean()), float(plan.mean()), float(np.mean((trace + plan) ** 2)))


def sequence_operations(shape: ModelConfig, sizes: Sizes, *, plan_only: bool) -> float:
    """Floating-point operations of one forward pass over one prompt and its response."""
    lengths = sizes.pieces if shape.unit == "step" else sizes.tokens
    d, prompt, response = shape.dim, lengths.prompt, lengths.response(plan_only=plan_only)
    squared = lengths.squared(plan_only=plan_only)
    ffn = 3 * d * shape.ffn
    encoder = prompt * (4 * d * d + ffn) + 2 * prompt * prompt * d
    decoder = response * (6 * d * d + ffn + shape.shift * d) + prompt * 2 * d * d + squared * d
    decoder += 2 * response * prompt * d
    written = sizes.tokens.response(plan_only=plan_only)
    head = 0.0
    if shape.unit == "step":
        copying = response * (2 * d * d + shape.places * d) + squared * (d + shape.places)
        head = written * HEAD_BLOCKS * 4 * d * d + copying
    return 2 * (shape.layers * (encoder + decoder) + prompt * d * d + head + written * d * shape.symbol_count)


def rate(table: tuple[tuple[int, float], ...], dim: int) -> float:
    """Operations per second for a width: between the table's entries on logarithmic scales, level beyond them."""
    widths, rates = zip(*table, strict=True)
    return math.exp(float(np.interp(math.log(dim), np.log(widths), np.log(rates))))


# --- stages


def stage_cost(stage: Stage, recipe: Recipe, machine: Machine) -> Cost:
    """The estimate for one stage."""
    work = stage.work
    if isinstance(work, DataSpec):
        with errors_of(f"data.{stage.name}"):
            return _data_cost(work, machine)
    if isinstance(work, Merge):
        return Cost(machine.start_seconds, f"{recipe.data_named(stage.name).tasks:,} tasks of {', '.join(work.parts)}")
    if isinstance(work, TrainRun):
        return _train_cost(work, recipe, machine)
    if isinstance(work, AnswerRun):
        data = recipe.data_named(work.data)
        sizes, tasks = sizes_of(data), work.spec.tasks or test_tasks(data)
        seconds = _answer_seconds(work.train, sizes, tasks, work.spec.samples, machine)
        return Cost(machine.start_seconds + seconds, f"{tasks:,} test tasks, {work.spec.samples} answers each")
    if isinstance(work, BootstrapRun):
        return _bootstrap_cost(work, recipe, machine)
    return Cost(machine.report_seconds, "figures and tables")


def test_tasks(spec: DataSpec) -> int:
    """About how many tasks the test split gets."""
    return round(spec.tasks * spec.test_fraction)


def _data_cost(spec: DataSpec, machine: Machine) -> Cost:
    lengths = sizes_of(spec).tokens
    tokens = spec.tasks * (lengths.prompt + lengths.trace + lengths.plan)
    kind = "deterministic" if spec.deterministic else "random ties"
    size = f"{spec.tasks:,} tasks, {kind}, {count(tokens)} tokens"
    return Cost(machine.start_seconds + tokens / machine.generated_tokens, size)


def _shape(run: TrainRun, sizes: Sizes) -> ModelConfig:
    shape = make_config(run.model, vocabulary=sizes.vocabulary)
    if shape.unit == "token":
        return shape
    parts = ("plan",) if run.plan_only else ("trace", "plan")
    return shape.fitted(
        places=max(sizes.places[part] for part in parts),
        plan_places=sizes.places["plan"],
        prompt_places=sizes.places["prompt"],
        symbols=max(sizes.symbols[part] for part in ("prompt", *parts)),
    )


def _train_cost(run: TrainRun, recipe: Recipe, machine: Machine) -> Cost:
    data = recipe.data_named(run.data)
    steps = run.spec.steps or STEPS.get(data.domain, STEPS["maze"])
    batch = run.spec.batch_size or BATCH_SIZES.get(data.domain, BATCH_SIZES["maze"])
    sizes = sizes_of(data)
    tokens = steps * batch * sizes.tokens.response(plan_only=run.plan_only)
    seconds = _training_seconds(run, sizes, steps, batch, machine)
    size = f"{steps:,} steps of {batch} sequences, {count(parameters(_shape(run, sizes)))} parameters"
    return Cost(machine.start_seconds + seconds, f"{size}, {count(tokens)} tokens")


def _training_seconds(run: TrainRun, sizes: Sizes, steps: int, batch: int, machine: Machine) -> float:
    shape = _shape(run, sizes)
    operations = BACKWARD * batch * sequence_operations(shape, sizes, plan_only=run.plan_only)
    return steps * (machine.step_seconds + operations / rate(machine.training[shape.unit], shape.dim))


def _answer_seconds(run: TrainRun, sizes: Sizes, tasks: int, samples: int, machine: Machine) -> float:
    shape, response = _shape(run, sizes), sizes.tokens.response(plan_only=run.plan_only)
    operations = sequence_operations(shape, sizes, plan_only=run.plan_only)
    waits = response * shape.layers
    if shape.unit == "step":
        waits = sizes.pieces.response(plan_only=run.plan_only) * shape.layers + response
    per_answer = operations / rate(machine.sampling[shape.unit], shape.dim) + waits * machine.token_seconds
    return tasks * samples * (per_answer + response / machine.judged_tokens)


def _bootstrap_cost(work: BootstrapRun, recipe: Recipe, machine: Machine) -> Cost:
    data, run, options = recipe.data_named(work.data), work.train, work.options
    sizes, asked = sizes_of(data), recipe.data_named(work.eval_data)
    batch = options.batch_size or BATCH_SIZES.get(data.domain, BATCH_SIZES["maze"])
    tasks = options.tasks or data.tasks - test_tasks(data)
    tested = options.eval_tasks or test_tasks(asked)
    evaluation = _answer_seconds(run, sizes_of(asked), tested, options.eval_samples, machine)
    tuning = _training_seconds(run, sizes, options.steps, batch, machine) + 2 * machine.start_seconds
    sampling = _answer_seconds(run, sizes, tasks, options.samples, machine)
    rounds = options.rounds * (sampling + tuning + evaluation)
    controls = options.rounds * (tuning + evaluation) if options.control else 0.0
    plural = "s" if options.rounds > 1 else ""
    size = f"{options.rounds} round{plural} of {options.samples} answers to {tasks:,} tasks and {options.steps:,} steps"
    return Cost(machine.start_seconds + evaluation + rounds + controls, size + (", control" if options.control else ""))


def parameters(shape: ModelConfig) -> int:
    """Trained parameters."""
    d, symbols = shape.dim, shape.symbol_count
    encoder = 4 * d * d + 3 * d * shape.ffn + 2 * d
    decoder = 8 * d * d + 3 * d * shape.ffn + 3 * d + shape.shift * d
    embeddings, head = 2 * symbols, 0
    if shape.unit == "step":
        in_places = (shape.prompt_places, shape.places, shape.places)  # of the encoder, the decoder, the head
        embeddings = sum(places * symbols + (places > 1) for places in in_places)
        blocks = HEAD_BLOCKS * (4 * d * d + d)
        offsets = 2 * shape.near + 1
        near = (shape.places * offsets + 1 + offsets) * d
        around = Vicinity.row_count(shape.vicinity, shape.number_heads) * d if shape.vicinity else 0
        head = blocks + 2 * d * d + 2 * shape.places * d + d + KINDS * (KINDS + 3) + near + around
    return shape.layers * (encoder + decoder) + d * (embeddings + symbols) + d * d + 2 * d + head


# --- in words


def count(number: float) -> str:
    """1234567 as `1.2M`."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.1f}{unit}"
    return f"{number:.0f}"
