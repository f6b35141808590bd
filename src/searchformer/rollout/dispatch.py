"""`searchformer rollout` as a function: a model and a data set in, a directory of answers out, by many workers.

Tasks are divided among ranks (machines that share the directory), then into shares that the workers of an engine take
as they finish. Nobody needs to talk: noise depends on the task and the sample alone, every share has files of its own,
and whoever finds the last answer on disk writes the manifest. After a crash, only missing answers are sampled.
"""

import os
import shutil
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from searchformer import __version__
from searchformer.dataset.store import MANIFEST as DATA_MANIFEST
from searchformer.dataset.store import Dataset
from searchformer.digests import file_digest
from searchformer.display import Display, Silent
from searchformer.engines.base import Engine, Told
from searchformer.engines.local import LocalEngine
from searchformer.errors import SearchformerError, shown
from searchformer.files import ROLLOUTS, make_directory, require_kind
from searchformer.model import load_model, read_model_config
from searchformer.model.device import choose_device
from searchformer.model.storage import WEIGHTS
from searchformer.rollout import store
from searchformer.rollout.engine import Engine as SamplingEngine
from searchformer.rollout.engine import choose_precision
from searchformer.rollout.memory import peak_memory_gb
from searchformer.rollout.options import RolloutOptions
from searchformer.rollout.requests import Prompt
from searchformer.tokens.grammar import Automaton, automaton_for
from searchformer.tokens.vocabulary import Vocabulary

ROOM = 2
"""How many times the data set's longest response an answer may take, unless a limit is given."""
TOLD_ANSWERS = 8
"""Answers between two reports of a worker."""


def roll_out(
    options: RolloutOptions, *, display: Display | None = None, engine: Engine | None = None
) -> dict[str, Any]:
    """Sample what is missing in `options.out`; returns counts, speed and memory of this run."""
    engine = engine or LocalEngine()
    if options.rank >= options.world_size:
        raise SearchformerError(f"ranks are 0 to {options.world_size - 1}; found {options.rank}")
    require_kind(options.out, ROLLOUTS)
    dataset = Dataset(options.data)
    options = resolve(options, dataset, engine)
    config = describe(options, dataset)
    store.prepare(options.out, config, dataset)
    began = time.monotonic()
    answers = tokens = 0
    peaks_gb: list[float] = []
    with store.rank_locked(options.out, options.rank), (display or Silent()).bar("rollout", unit="answers") as update:
        missing, done = missing_prompts(options, store.finished_samples(options.out))
        workers = engine.worker_count(options.workers, default=(os.cpu_count() or 1) if options.device == "cpu" else 1)
        shares = divide(missing, workers=workers, slots=options.slots)
        workers, total = max(1, min(workers, len(shares))), done + sum(share.answers for share in shares)
        for length in _sample_shares(options, engine, shares, workers, peaks_gb):
            answers, tokens = answers + 1, tokens + length
            update(done + answers, total, f"{tokens / (time.monotonic() - began):,.0f} tokens/s")
    manifest = store.finish(options.out, config)
    seconds = time.monotonic() - began
    return {
        "out": str(options.out),
        "complete": manifest is not None,
        "answers": answers,
        "answers_before": done,
        "tokens": tokens,
        "seconds": seconds,
        "tokens_per_second": tokens / seconds,
        "tokens_per_second_per_core": tokens / seconds / (os.cpu_count() or 1),
        "peak_memory_gb": sum(peaks_gb) + peak_memory_gb(),
    }


def take_over(options: RolloutOptions, answers: Path, *, engine: Engine | None = None) -> bool:
    """Copy the answers of another directory, and their scores, to `options.out` if they are what the options ask for.

    Returns whether they were.
    """
    dataset = Dataset(options.data)
    asked = describe(resolve(options, dataset, engine or LocalEngine()), dataset)
    if options.out.exists() or not store.are_complete(answers) or not store.are_same(store.read_config(answers), asked):
        return False
    make_directory(options.out.parent)
    unfinished = options.out.with_name(f".{options.out.name}")
    shutil.rmtree(unfinished, ignore_errors=True)
    shutil.copytree(answers, unfinished)
    unfinished.replace(options.out)
    return True


def resolve(options: RolloutOptions, dataset: Dataset, engine: Engine) -> RolloutOptions:
    """The options with what will be used in place of `auto` and None; a resumed run keeps its precision."""
    shape, _ = read_model_config(options.model)
    if options.skip >= (there := dataset.rows(options.split)):
        raise SearchformerError(f"{options.data} has {there} {options.split} tasks; --skip {options.skip} leaves none")
    precision, longest = options.precision, dataset.manifest.longest
    on_cluster = engine.gpus > 0 and options.device in ("auto", "cuda")  # this machine need not have any
    device = torch.device("cuda") if on_cluster else choose_device(options.device)
    if precision == "auto" and store.is_begun(options.out):
        precision = store.read_config(options.out)["precision"]
    used = {
        "device": device.type,
        "precision": choose_precision(precision, device, compile=options.compile),
        "tasks": options.tasks or dataset.rows(options.split) - options.skip,
        "max_tokens": options.max_tokens or min(ROOM * (longest["trace"] + longest["plan"]) + 1, shape.most_tokens),
    }
    return options.model_copy(update=used)


def describe(options: RolloutOptions, dataset: Dataset) -> dict[str, Any]:
    """The directory's `config.json` for resolved options; raises unless model and data belong together."""
    _, trained = read_model_config(options.model)
    Vocabulary.load(options.model).require_same(
        dataset.vocabulary, mine=f"the model {options.model}", theirs=f"the data set {options.data}"
    )
    dataset.vocabulary.encode(options.prefix.split())  # an unknown word is refused before anything is written
    manifest = dataset.manifest
    if trained.get("domain", manifest.domain) != manifest.domain:  # its settings may differ: with one vocabulary,
        raise SearchformerError(  # a model can be asked about tasks of another kind than it was trained on
            f"the model {options.model} was trained on domain {shown(trained['domain'])}, the data set {options.data} "
            f"is of {shown(manifest.domain)}. Use a data set and a model that belong together"
        )
    return {
        "package": __version__,
        **options.result_fields(),
        "device": options.device,
        "model": {"path": str(options.model), "digest": file_digest(options.model / WEIGHTS), "trained": trained},
        "data": {"path": str(options.data), "digest": file_digest(options.data / DATA_MANIFEST)},
        "domain": manifest.domain,
        "settings": manifest.settings,
        "deterministic": bool(manifest.config.get("deterministic", False)),
        "algorithm": manifest.config.get("algorithm", "astar"),
        "weight": manifest.config.get("weight", 1.0),
        "vocabulary_digest": dataset.vocabulary.digest,
    }


def missing_prompts(options: RolloutOptions, done: dict[str, set[int]]) -> tuple[list[Prompt], int]:
    """What this rank has to sample, and how many of its answers are on disk already."""
    prompts = store.read_prompts(options.out)[options.rank :: options.world_size]
    missing = []
    for prompt in prompts:
        samples = tuple(s for s in range(options.samples) if s not in done.get(prompt.task_id, ()))
        if samples:
            missing.append(replace(prompt, samples=samples))
    on_disk = len(prompts) * options.samples - sum(len(prompt.samples or ()) for prompt in missing)
    return missing, on_disk


@dataclass(frozen=True)
class Share:
    """Some of the answers to be sampled, and the number that names their files."""

    number: int
    prompts: tuple[Prompt, ...]

    def __str__(self) -> str:
        return f"share {self.number} of the answers"

    @property
    def answers(self) -> int:
        """How many there are."""
        return sum(len(prompt.samples or ()) for prompt in self.prompts)


def divide(prompts: list[Prompt], *, workers: int, slots: int) -> list[Share]:
    """Shares of whole tasks, whose samples share the prompt; or, where tasks are few, of some samples of every task.

    Large shares come first, each half of a worker's part of what is left, then smaller ones, down to what fills a
    worker's slots: a worker that is late with one leaves the rest to the others, and few shares mean that slots are
    seldom empty.
    """
    if len(prompts) < 4 * workers:
        parts = [
            tuple(
                replace(prompt, samples=mine) for prompt in prompts if (mine := (prompt.samples or ())[worker::workers])
            )
            for worker in range(workers)
        ]
        return [Share(number, part) for number, part in enumerate(part for part in parts if part)]
    if workers == 1:
        return [Share(0, tuple(prompts))]
    shares: list[Share] = []
    left = sum(len(prompt.samples or ()) for prompt in prompts)
    waiting = list(reversed(prompts))
    while waiting:
        size = max(slots, left // (2 * workers))
        part: list[Prompt] = []
        while waiting and sum(len(prompt.samples or ()) for prompt in part) < size:
            part.append(waiting.pop())
        shares.append(Share(len(shares), tuple(part)))
        left -= shares[-1].answers
    return shares


def _sample_shares(
    options: RolloutOptions, engine: Engine, shares: list[Share], workers: int, peaks_gb: list[float]
) -> Iterator[int]:
    """Sample all shares; yields the token count of every finished answer.

    `peaks_gb` receives the largest memory of every worker besides this process.
    """
    largest: dict[int, float] = {}
    with engine.crew(partial(_Sampler, options, workers), workers=workers, gpu=options.device == "cuda") as crew:
        for event in crew.map(shares):
            if isinstance(event, Told):
                yield from event.message
            elif event.result is not None:
                process, peak_gb = event.result
                largest[process] = max(peak_gb, largest.get(process, 0.0))
    peaks_gb += [peak for process, peak in largest.items() if process != os.getpid()]


class _Sampler:
    """What a worker does: holds the model, samples share after share."""

    def __init__(self, options: RolloutOptions, workers: int) -> None:
        if workers > 1:
            torch.set_num_threads(max(1, (os.cpu_count() or 1) // workers))
        self.options = options
        model, self.vocabulary = load_model(options.model, device=options.device)
        how = options.model_dump(include={"precision", "slots", "compile"})
        self.engine = SamplingEngine(model, self.vocabulary, cache_gb=options.cache_gb / workers, **how)
        self.automaton = _automaton(options, self.vocabulary) if options.constrain else None

    def __call__(self, share: Share) -> Generator[list[int], None, tuple[int, float]]:
        """Sample a share and write its answers; yields token counts, returns this process and its memory.

        A share that another worker left half done is finished: its answers on disk are not sampled again.
        """
        options, name = self.options, f"{self.options.rank:03d}-{share.number:03d}"
        with store.share_locked(options.out, options.rank, share.number):
            done = store.finished_samples(options.out, name=name)
            prompts = [
                replace(prompt, samples=left)
                for prompt in share.prompts
                if (left := tuple(s for s in prompt.samples or () if s not in done.get(prompt.task_id, ())))
            ]
            what = options.model_dump(include={"samples", "seed", "temperature", "top_k", "top_p", "max_tokens"})
            answers = self.engine.sample(prompts, prefix=options.prefix.split(), automaton=self.automaton, **what)
            with store.Writer(options.out, self.vocabulary, name=name, save_seconds=options.save_seconds) as writer:
                told: list[int] = []
                for answer in answers:
                    writer.add(answer)
                    told.append(len(answer.tokens))
                    if len(told) >= TOLD_ANSWERS:
                        yield told
                        told = []
                yield told
        return os.getpid(), peak_memory_gb()


def _automaton(options: RolloutOptions, vocabulary: Vocabulary) -> Automaton:
    config = store.read_config(options.out)
    plan_only = config["model"]["trained"].get("variant") == "solution-only"
    return automaton_for(config["domain"], config["settings"], vocabulary, plan_only=plan_only)
