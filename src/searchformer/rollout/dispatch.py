"""`searchformer rollout` as a function: a model and a data set in, a directory of answers out, by many processes.

Tasks are divided among ranks (machines), then among this machine's workers (processes). They need not talk to each
other: noise depends on the task and the sample alone, every process writes files of its own, and whoever finds the last
answer on disk writes the manifest. Run again after a crash, only missing answers are sampled.
"""

import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.connection import wait
from typing import Any

import torch

from searchformer import __version__
from searchformer.dataset.store import MANIFEST as DATA_MANIFEST
from searchformer.dataset.store import Dataset, file_digest
from searchformer.display import Display, Silent
from searchformer.errors import SearchformerError
from searchformer.lifetime import end_with_parent
from searchformer.model import load_model, read_model_config
from searchformer.model.device import choose_device
from searchformer.model.storage import WEIGHTS
from searchformer.rollout import store
from searchformer.rollout.engine import Engine, choose_precision
from searchformer.rollout.memory import peak_memory_gb
from searchformer.rollout.options import RolloutOptions
from searchformer.rollout.requests import Prompt
from searchformer.tokens.grammar import Automaton, automaton_for
from searchformer.tokens.vocabulary import Vocabulary

ROOM = 2
"""How many times the data set's longest response an answer may take, unless a limit is given."""


def roll_out(options: RolloutOptions, *, display: Display | None = None) -> dict[str, Any]:
    """Sample what is missing in `options.out`; returns counts, speed and memory of this run."""
    if options.rank >= options.world_size:
        raise SearchformerError(f"ranks are 0 to {options.world_size - 1}; found {options.rank}")
    dataset = Dataset(options.data)
    options = resolve(options, dataset)
    config = describe(options, dataset)
    store.prepare(options.out, config, dataset)
    began = time.monotonic()
    answers = tokens = 0
    peaks_gb: list[float] = []
    with store.rank_locked(options.out, options.rank), (display or Silent()).bar("rollout", unit="answers") as update:
        shares, done = divide_tasks(options, store.finished_samples(options.out))
        total = done + sum(len(prompt.samples or ()) for share in shares for prompt in share)
        for length in _sample_shares(options, [share for share in shares if share], peaks_gb):
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


def resolve(options: RolloutOptions, dataset: Dataset) -> RolloutOptions:
    """The options with what will be used in place of `auto` and None; a resumed run keeps its precision."""
    shape, _ = read_model_config(options.model)
    device, precision, longest = choose_device(options.device), options.precision, dataset.manifest.longest
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
    manifest = dataset.manifest
    for key, found in (("domain", manifest.domain), ("settings", manifest.settings)):
        if key in trained and trained[key] != found:
            raise SearchformerError(
                f"the model {options.model} was trained on {key} {trained[key]!r}, the data set {options.data} is of "
                f"{found!r}. Use a data set and a checkpoint that belong together"
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


def divide_tasks(options: RolloutOptions, done: dict[str, set[int]]) -> tuple[list[list[Prompt]], int]:
    """What each worker of this rank has to sample, and how many of the rank's answers are on disk already.

    Workers get whole tasks, whose samples share the prompt; or, where tasks are few, some samples of every task.
    """
    prompts = store.read_prompts(options.out)[options.rank :: options.world_size]
    workers = options.workers or ((os.cpu_count() or 1) if options.device == "cpu" else 1)
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


def _sample_shares(options: RolloutOptions, shares: list[list[Prompt]], peaks_gb: list[float]) -> Iterator[int]:
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
        context.Process(target=_run_worker, args=(options, share, worker, len(shares), sender), daemon=True)
        for worker, (share, (_, sender)) in enumerate(zip(shares, pipes, strict=True))
    ]
    for process in processes:
        process.start()
    for _, sender in pipes:
        sender.close()
    try:
        for message in _messages([receiver for receiver, _ in pipes]):
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
                    f"a worker ended with exit code {process.exitcode}, perhaps for lack of memory; "
                    "run the same command again to continue"
                )
    finally:
        for process in processes:
            process.terminate()


def _messages(receivers: list[Any]) -> Iterator[Any]:
    """What the workers say, as it comes, until all of them have ended."""
    while receivers:
        ready: list[Any] = wait(receivers)
        for receiver in ready:
            try:
                yield receiver.recv()
            except EOFError:
                receivers.remove(receiver)


def _run_worker(options: RolloutOptions, share: list[Prompt], worker: int, workers: int, sender: Any) -> None:
    """One worker process: sends the token count of every answer, at last its peak memory; or what went wrong."""
    end_with_parent()
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // workers))
    try:
        with store.worker_locked(options.out, options.rank, worker):
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
    how = options.model_dump(include={"precision", "slots", "compile"})
    engine = Engine(model, vocabulary, cache_gb=options.cache_gb / workers, **how)
    automaton = _automaton(options, vocabulary) if options.constrain else None
    what = options.model_dump(include={"samples", "seed", "temperature", "top_k", "top_p", "max_tokens"})
    answers = engine.sample(share, prefix=options.prefix.split(), automaton=automaton, **what)
    name = f"{options.rank:03d}-{worker:03d}"
    with store.Writer(options.out, vocabulary, name=name, save_seconds=options.save_seconds) as writer:
        for answer in answers:
            writer.add(answer)
            yield len(answer.tokens)


def _automaton(options: RolloutOptions, vocabulary: Vocabulary) -> Automaton:
    config = store.read_config(options.out)
    plan_only = config["model"]["trained"].get("variant") == "solution-only"
    return automaton_for(config["domain"], config["settings"], vocabulary, plan_only=plan_only)
