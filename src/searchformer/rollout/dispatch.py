"""`searchformer rollout` as a function: a model and a data set in, a directory of answers out, by many processes.

Tasks are dealt out, first to ranks (machines), then to this machine's workers (processes). Nobody needs to talk: noise
depends on the task and the sample alone, every process writes files of its own, and whoever finds the last answer on
disk writes the manifest. Run again after a crash, only missing answers are sampled.
"""

import multiprocessing
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field

from searchformer import __version__
from searchformer.dataset.store import MANIFEST as DATA_MANIFEST
from searchformer.dataset.store import Dataset, file_digest
from searchformer.display import Display
from searchformer.errors import SearchformerError
from searchformer.files import read_json
from searchformer.lifetime import end_with_parent
from searchformer.model import load_model, read_model_config
from searchformer.model.storage import WEIGHTS
from searchformer.rollout import store
from searchformer.rollout.engine import DEFAULT_CACHE_GB, DEFAULT_SLOTS, Engine
from searchformer.rollout.requests import Prompt, Sampling
from searchformer.tokens.grammar import Automaton, automaton_for
from searchformer.tokens.vocabulary import Vocabulary

ROOM = 2
"""How many times the data set's longest response an answer may take, unless a limit is given."""


class RolloutOptions(BaseModel):
    """What to sample, and how."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: Path
    """Directory of the model."""
    data: Path
    """Directory of the data set."""
    out: Path
    """Directory for the answers."""
    split: str = "test"
    """`test` or `train`."""
    tasks: int | None = Field(default=None, ge=1)
    """The first so many tasks by task id; None for all."""
    skip: int = Field(default=0, ge=0)
    """Leave out the first so many before."""
    samples: int = Field(default=64, ge=1)
    """Answers per task."""
    seed: int = 0
    """Noise is derived from it, the task and the sample."""
    temperature: float = 1.0
    """0 takes the most probable token."""
    top_k: int = 0
    """0 for all tokens."""
    top_p: float = 1.0
    """1 for all tokens."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Cuts answers; None for twice the data set's longest response."""
    prefix: str = ""
    """Tokens that every answer begins with."""
    constrain: bool = False
    """Only tokens that the grammar allows next."""
    precision: str = "auto"
    """auto, fp32, bf16 or int8; see `Engine`."""
    slots: int = Field(default=DEFAULT_SLOTS, ge=1)
    """Sequences at a time, per worker."""
    cache_gb: float = Field(default=DEFAULT_CACHE_GB, gt=0)
    """Memory for keys and values, all workers together."""
    workers: int | None = Field(default=None, ge=1)
    """Processes; None for one per core on the CPU, one elsewhere."""
    rank: int = Field(default=0, ge=0)
    """Which machine this is."""
    world_size: int = Field(default=1, ge=1)
    """How many machines share the tasks."""
    device: str = "cpu"
    """cpu, cuda, mps, ..."""
    compile: bool = False
    """Run the network through torch.compile."""
    save_seconds: float = Field(default=20.0, ge=0)
    """Time between two files of finished answers."""


@dataclass(frozen=True)
class Progress:
    """How far this rank is."""

    answers: int
    """On disk or finished since."""
    total: int
    tokens: int
    """Sampled in this run."""
    seconds: float
    """Since sampling began."""

    @property
    def speed(self) -> str:
        """Tokens per second, in words."""
        return f"{self.tokens / max(self.seconds, 1e-9):,.0f} tokens/s"


def show_roll_out(options: RolloutOptions, display: Display) -> dict[str, Any]:
    """`roll_out` with a progress bar."""
    with display.bar("rollout", unit="answers") as update:
        return roll_out(options, progress=lambda at: update(at.answers, at.total, at.speed))


def roll_out(options: RolloutOptions, *, progress: Callable[[Progress], None] = lambda _: None) -> dict[str, Any]:
    """Sample what is missing in `options.out`; returns counts, speed and memory of this run."""
    if options.rank >= options.world_size:
        raise SearchformerError(f"ranks are 0 to {options.world_size - 1}; found {options.rank}")
    Sampling(options.temperature, options.top_k, options.top_p)
    config = describe(options)
    store.prepare(options.out, config, Dataset(options.data))
    options = options.model_copy(update={"max_tokens": config["max_tokens"]})
    began = time.monotonic()
    with store.alone(options.out, options.rank) as share_lock:
        store.remove_unfinished(options.out, options.rank)
        shares, done = deal(options, store.finished_samples(options.out))
        share_lock()
        total = done + sum(len(prompt.samples or ()) for share in shares for prompt in share)
        tokens = answers = 0
        peaks_gb: list[float] = []
        for number in _run(options, [share for share in shares if share], peaks_gb):
            answers, tokens = answers + 1, tokens + number
            progress(Progress(done + answers, total, tokens, time.monotonic() - began))
    manifest = store.finish(options.out, config)
    seconds = time.monotonic() - began
    cores = os.cpu_count() or 1
    return {
        "out": str(options.out),
        "complete": manifest is not None,
        "answers": answers,
        "answers_before": done,
        "tokens": tokens,
        "seconds": seconds,
        "tokens_per_second": tokens / seconds,
        "tokens_per_second_per_core": tokens / seconds / cores,
        "peak_memory_gb": sum(peaks_gb) + peak_memory_gb(),
    }


def describe(options: RolloutOptions) -> dict[str, Any]:
    """The directory's `config.json`; raises unless model and data belong together."""
    dataset = Dataset(options.data)
    shape, trained = read_model_config(options.model)
    Vocabulary.load(options.model).require_same(
        dataset.vocabulary, mine=f"the model {options.model}", theirs=f"the data set {options.data}"
    )
    manifest = dataset.manifest
    for key, found in (("domain", manifest.domain), ("settings", manifest.settings)):
        if key in trained and trained[key] != found:
            raise SearchformerError(
                f"the model {options.model} was trained on {key} {trained[key]!r}, the data set {options.data} is of "
                f"{found!r}. Use a data set and a checkpoint that belong together"
            )
    available = dataset.rows(options.split)
    longest = manifest.longest
    limit = options.max_tokens or min(ROOM * (longest["trace"] + longest["plan"]) + 1, shape.positions)
    return {
        "package": __version__,
        "model": {"path": str(options.model), "digest": file_digest(options.model / WEIGHTS), "trained": trained},
        "data": {"path": str(options.data), "digest": file_digest(options.data / DATA_MANIFEST)},
        "domain": manifest.domain,
        "settings": manifest.settings,
        "deterministic": bool(manifest.config.get("deterministic", False)),
        "split": options.split,
        "tasks": available - options.skip if options.tasks is None else options.tasks,
        "skip": options.skip,
        "samples": options.samples,
        "seed": options.seed,
        "temperature": options.temperature,
        "top_k": options.top_k,
        "top_p": options.top_p,
        "max_tokens": limit,
        "prefix": options.prefix,
        "constrain": options.constrain,
        "precision": options.precision,
        "vocabulary_digest": dataset.vocabulary.digest,
    }


def worker_count(options: RolloutOptions) -> int:
    """Processes on this machine."""
    return options.workers or ((os.cpu_count() or 1) if options.device == "cpu" else 1)


def deal(options: RolloutOptions, done: dict[str, set[int]]) -> tuple[list[list[Prompt]], int]:
    """What each worker of this rank has to sample, and how many of the rank's answers are on disk already.

    Workers get whole tasks, whose samples share the prompt; or, where tasks are few, some samples of every task.
    """
    prompts, workers = store.read_prompts(options.out)[options.rank :: options.world_size], worker_count(options)
    missing = []
    for prompt in prompts:
        samples = tuple(s for s in range(options.samples) if s not in done.get(prompt.task_id, ()))
        if samples:
            missing.append(replace(prompt, samples=samples))
    on_disk = len(prompts) * options.samples - sum(len(prompt.samples or ()) for prompt in missing)
    if len(missing) >= 4 * workers:
        return [missing[worker::workers] for worker in range(workers)], on_disk
    parts = [
        [replace(prompt, samples=prompt.samples[worker::workers]) for prompt in missing if prompt.samples]
        for worker in range(workers)
    ]
    return [[prompt for prompt in part if prompt.samples] for part in parts], on_disk


def _run(options: RolloutOptions, shares: list[list[Prompt]], peaks_gb: list[float]) -> Iterator[int]:
    """Sample all shares, one process each; yields the token count of every finished answer.

    `peaks_gb` receives the largest memory of every process started.
    """
    if len(shares) <= 1:
        for share in shares:
            yield from _sample(options, share, worker=0, workers=1)
        return
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe(duplex=False) for _ in shares]
    processes = [
        context.Process(target=_work, args=(options, share, worker, len(shares), sender), daemon=True)
        for worker, (share, (_, sender)) in enumerate(zip(shares, pipes, strict=True))
    ]
    for process in processes:
        process.start()
    for _, sender in pipes:
        sender.close()
    receivers: list[Any] = [receiver for receiver, _ in pipes]
    try:
        while receivers:
            ready: list[Any] = wait(receivers)
            for receiver in ready:
                try:
                    message = receiver.recv()
                except EOFError:
                    receivers.remove(receiver)
                    continue
                if isinstance(message, str):
                    raise SearchformerError(message)
                if isinstance(message, float):
                    peaks_gb.append(message)
                else:
                    yield message
        for process in processes:
            process.join()
            if process.exitcode:
                raise SearchformerError(
                    f"a worker ended with exit code {process.exitcode}, perhaps for want of memory; "
                    "the same command goes on from here"
                )
    finally:
        for process in processes:
            process.terminate()


def _work(options: RolloutOptions, share: list[Prompt], worker: int, workers: int, sender: Any) -> None:
    """One worker process: samples its share, reports token counts, dies with its parent."""
    end_with_parent()
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // workers))
    try:
        with store.together(options.out, options.rank):
            for tokens in _sample(options, share, worker=worker, workers=workers):
                sender.send(tokens)
        sender.send(peak_memory_gb())
    except SearchformerError as error:
        sender.send(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        sender.close()


def _sample(options: RolloutOptions, share: list[Prompt], *, worker: int, workers: int) -> Iterator[int]:
    """Sample a share and write its answers; yields the token count of each."""
    model, vocabulary = load_model(options.model, device=options.device)
    engine = Engine(
        model,
        vocabulary,
        precision=options.precision,
        slots=options.slots,
        cache_gb=options.cache_gb / workers,
        compile=options.compile,
    )
    answers = engine.sample(
        share,
        samples=options.samples,
        seed=options.seed,
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        max_tokens=options.max_tokens,
        prefix=options.prefix.split(),
        automaton=_automaton(options, vocabulary) if options.constrain else None,
    )
    name = f"{options.rank:03d}-{worker:03d}"
    with store.Writer(options.out, vocabulary, name=name, save_seconds=options.save_seconds) as writer:
        for answer in answers:
            writer.add(answer)
            yield len(answer.tokens)


def _automaton(options: RolloutOptions, vocabulary: Vocabulary) -> Automaton:
    config = read_json(options.out / store.CONFIG, what="rollout directory")
    plan_only = config["model"]["trained"].get("variant") == "solution-only"
    return automaton_for(config["domain"], config["settings"], vocabulary, plan_only=plan_only)


def peak_memory_gb() -> float:
    """Largest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
