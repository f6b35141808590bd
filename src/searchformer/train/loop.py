"""Training from the first step, or from the last checkpoint, to the last step. Out: a directory with

`config.json` (the options as resolved), `metrics.jsonl`, `checkpoint/` (the state to resume from) and `model/`.
Try: `searchformer train --data DIR --model 1M --steps 1000 --out runs/first`.
"""

import contextlib
import copy
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from searchformer import __version__
from searchformer.dataset.audit import yardstick_for
from searchformer.dataset.batches import Batch, Batches, Sequences
from searchformer.dataset.store import MANIFEST, Dataset
from searchformer.digests import file_digest
from searchformer.display import Display, Silent
from searchformer.errors import Interrupted, SearchformerError
from searchformer.files import TRAINING_RUN, locked, make_directory, require_kind, write_json
from searchformer.lifetime import Interrupts, held_back
from searchformer.model import Transformer, read_model_config, save_model
from searchformer.model.device import use_fitting_threads
from searchformer.model.storage import WEIGHTS
from searchformer.model.tensors import load_tensors
from searchformer.train.checkpoint import REPAIR, State, load_state, save_state
from searchformer.train.evaluation import evaluate
from searchformer.train.log import Listener, MetricsLog, Record
from searchformer.train.objective import Objective
from searchformer.train.optimiser import FlatParameters, Optimiser, learning_rate
from searchformer.train.options import TrainOptions
from searchformer.train.precision import HalfWeights, autocast_for
from searchformer.train.processes import Processes, joined
from searchformer.train.setup import (
    check_lengths,
    compile_blocks,
    first_model,
    model_directory,
    open_sequences,
    run_precision,
)

ExactMatch = Callable[[Transformer], float]
"""Share of a few test tasks that the model answers greedily with exactly the data set's response."""


@dataclass(frozen=True)
class TrainResult:
    """What a finished run leaves behind."""

    model: Path
    """Directory of the trained model."""
    step: int
    """Steps done."""
    parameters: int
    """Trained parameters."""
    last: dict[str, Record]
    """The last record of each kind, `train` and `eval`, that this process wrote."""


def train(
    options: TrainOptions,
    out: Path,
    *,
    display: Display | None = None,
    listeners: Sequence[Listener] = (),
    exact_match: Callable[[Dataset, Sequences], ExactMatch] | None = None,
    bootstrap_round: int = 0,
) -> TrainResult:
    """Train as `options` say, or resume the run in `out`.

    `listeners` get the records of metrics.jsonl; `exact_match` makes the scorer of greedy answers. Under torchrun every
    process calls this; the first one reads and writes the run's directory.
    """
    out = Path(out)
    with joined(options.device) as processes, contextlib.ExitStack() as stack:

        def claim() -> None:
            require_kind(out, TRAINING_RUN)
            stack.enter_context(locked(out, doing="training"))

        processes.from_first(claim)
        training = _Training(options, out, processes, listeners, bootstrap_round)
        shown = display if display is not None and processes.is_first else Silent()
        return training.run(shown, exact_match=exact_match)


@dataclass
class _BestWeights:
    """The weights with the lowest validation loss so far."""

    weights: Tensor
    loss: float = math.inf
    step: int = 0
    evaluations_since: int = 0

    def update(self, loss: float, step: int, weights: Tensor) -> None:
        """Keep these weights if they are better."""
        if loss < self.loss:
            self.weights.copy_(weights)
            self.loss, self.step, self.evaluations_since = loss, step, 0
        else:
            self.evaluations_since += 1


class _Training:
    """Everything that one run holds while it trains."""

    def __init__(
        self,
        options: TrainOptions,
        out: Path,
        processes: Processes,
        listeners: Sequence[Listener],
        bootstrap_round: int,
    ) -> None:
        self.out, self.processes = out, processes
        self.dataset = Dataset(options.data)
        self.options = options = options.resolved(domain=self.dataset.manifest.domain)
        assert options.steps is not None
        assert options.batch_size is not None
        self.steps = options.steps
        self.bootstrap_round = bootstrap_round
        self.train_set, self.eval_set = open_sequences(self.dataset, options, processes)
        self.batches = Batches(self.train_set, batch_size=options.batch_size, seed=options.seed)
        if self.batches.batch_size < processes.world:
            raise SearchformerError(
                f"{processes.world} processes need batches of at least {processes.world} sequences; found "
                f"{self.batches.batch_size}: start fewer processes, or raise --batch-size or --sequences"
            )
        self.yardstick = None if options.plan_only else yardstick_for(self.dataset)
        self.model = first_model(self.dataset, self.train_set, options, processes).to(processes.device)
        use_fitting_threads(self.model.config.dim, processes.device)
        check_lengths(self.model, self.train_set, self.eval_set, data=options.data)
        self.precision = processes.from_first(lambda: run_precision(options, self.model.config, out, processes.device))
        self.flat = FlatParameters(self.model, stacked=options.optimiser == "muon")
        self.optimiser = Optimiser(self.flat, options)
        self.objective = Objective(self.model)
        if options.compile:
            compile_blocks(self.model, processes.device)
        self.autocast = autocast_for(self.precision, processes.device)
        self.best = _BestWeights(self.flat.weights.detach().clone()) if options.validation else None
        self.digests = self._input_digests()
        self.result_fields = options.result_fields() | self.digests
        self.step = self.saved = self._resume()
        uses_copies = self.precision == "bf16" and processes.device.type == "cpu"
        self.half = HalfWeights(self.model, self.flat) if uses_copies else None
        self.listeners: list[Listener] = []
        self.last: dict[str, Record] = {}
        if processes.is_first:
            self._write_config()
            self.listeners = [MetricsLog(out, resume_step=self.step), *listeners]

    def _input_digests(self) -> dict[str, str | None]:
        """Digests of the data set, which all processes must share, and of the model to fine-tune."""
        data, source = file_digest(self.dataset.directory / MANIFEST), self.options.init_from
        digests = self.processes.from_first(
            lambda: {
                "data_digest": data,
                "init_digest": file_digest(model_directory(source) / "model.safetensors") if source else None,
            }
        )
        if digests["data_digest"] != data:
            raise SearchformerError(
                f"process {self.processes.rank} finds another data set in {self.dataset.directory} than the first one; "
                "copy the data set to every machine"
            )
        return digests

    def _write_config(self) -> None:
        make_directory(self.out)
        config = self.options.model_dump(mode="json") | self.digests
        config |= {"resolved_precision": self.precision, "package": __version__, "processes": self.processes.world}
        write_json(self.out / "config.json", config)

    def _resume(self) -> int:
        """Continue from the checkpoint, if there is one; the number of steps done.

        The first process reads it and sends it to the others: their machines need not have the file.
        """
        step = self.processes.from_first(self._load_checkpoint)
        for tensor in (self.flat.weights.data, *self.optimiser.state.values()):
            self.processes.broadcast(tensor)
        if (best := self.best) is not None:
            self.processes.broadcast(best.weights)
            numbers = self.processes.from_first(lambda: (best.loss, best.step, best.evaluations_since))
            best.loss, best.step, best.evaluations_since = numbers
        return step

    def _load_checkpoint(self) -> int:
        """Copy the checkpoint, if there is one, into weights and optimiser; its step."""
        state = load_state(self.out / "checkpoint", result_fields=self.result_fields)
        if state is None:
            return 0
        self._require_fitting(state)
        self.flat.weights.data.copy_(state.tensors["weights"])
        for name, tensor in self.optimiser.state.items():
            tensor.copy_(state.tensors[name])
        if self.best is not None:
            self.best.weights.copy_(state.tensors["best_weights"])
            loss, step, since = state.tensors["best"].tolist()
            self.best.loss, self.best.step, self.best.evaluations_since = loss, int(step), int(since)
        return state.step

    def _require_fitting(self, state: State) -> None:
        """Raise unless the checkpoint's tensors are those of this model and optimiser."""
        wanted = {"weights": self.flat.weights.data} | self.optimiser.state
        if self.best is not None:
            wanted |= {"best_weights": self.best.weights, "best": torch.zeros(3, dtype=torch.float64)}
        for name, tensor in wanted.items():
            found = state.tensors.get(name)
            if found is None or found.shape != tensor.shape:
                shape = "nothing" if found is None else list(found.shape)
                raise SearchformerError(
                    f"{self.out / 'checkpoint'}: {name} should be {list(tensor.shape)}; found {shape}, "
                    f"as of another version of this package; {REPAIR}"
                )

    def _save(self) -> None:
        """Write the checkpoint, then the model."""
        self.saved = self.step
        if not self.processes.is_first:
            return
        tensors = {"weights": self.flat.weights.detach()} | self.optimiser.state
        kept = self.model
        if self.best is not None:
            numbers = (self.best.loss, self.best.step, self.best.evaluations_since)
            tensors |= {"best_weights": self.best.weights, "best": torch.tensor(numbers, dtype=torch.float64)}
            kept = copy.deepcopy(self.model)
            kept.load_state_dict(self.flat.view_like(self.best.weights), strict=False)  # buffers stay
        state = State(step=self.step, tensors=tensors)
        with held_back():
            save_state(state, self.out / "checkpoint", result_fields=self.result_fields)
            save_model(kept, self.dataset.vocabulary, self.out / "model", trained=self._trained())

    def _finish_model(self) -> None:
        """Write the model of the checkpoint, if the run was killed after the one and before the other."""
        if not self.processes.is_first or not self.step:
            return
        try:
            stored = load_tensors(self.out / "model" / WEIGHTS, repair="")[0]
            _, trained = read_model_config(self.out / "model")
            whole = trained == self._trained() and stored.keys() == self.model.state_dict().keys()
        except SearchformerError:
            whole = False
        if not whole:
            self._save()

    def _trained(self) -> dict[str, Any]:
        manifest = self.dataset.manifest
        validated = {} if self.best is None else {"steps_done": self.step, "validation_loss": self.best.loss}
        merged = [part["settings"] for part in manifest.config.get("merged", [])]
        if self.options.init_from and not merged:  # fine-tuned on some of the tasks that it knows
            merged = read_model_config(model_directory(self.options.init_from))[1].get("merged", [])
        return validated | {
            "size": self.options.model,
            "parameters": self.model.parameter_count,
            "variant": "solution-only" if self.options.plan_only else "search-augmented",
            "sequences": len(self.train_set),
            "seed": self.options.seed,
            "step": self.step if self.best is None else self.best.step,
            "bootstrap_round": self.bootstrap_round,
            "domain": manifest.domain,
            "settings": manifest.settings,
            **({"merged": merged} if merged else {}),
            "deterministic": bool(manifest.config.get("deterministic", False)),
            "data_digest": self.digests["data_digest"],
        }

    def run(self, display: Display, *, exact_match: Callable[[Dataset, Sequences], ExactMatch] | None) -> TrainResult:
        """Steps, evaluations and checkpoints until the last step is done."""
        options, scorer = self.options, None
        if exact_match is not None and options.exact_every and self.eval_set is not None and self.processes.is_first:
            scorer = exact_match(self.dataset, self.eval_set)
        self._finish_model()
        with display.bar("train", unit="steps") as update, held_back(raise_after=False) as interrupts:
            tokens, since = 0, time.perf_counter()
            saved = since
            while not self._is_done():
                if self._is_interrupted(interrupts):
                    self._save()
                    raise Interrupted(f"step {self.step} of {self.steps} is saved in {self.out}")
                batch = self.batches[self.step]
                values = self._take_step(batch)
                tokens += int(batch.response_lengths.sum()) - len(batch)
                values["tokens_per_second"] = tokens / (time.perf_counter() - since)
                steady = self.last.get("train", values)["tokens_per_second"]  # of the last line that was logged
                note = f"loss {values['loss']:.4f}, {steady:,.0f} tokens/s, learning rate {values['learning_rate']:.2e}"
                update(self.step, self.steps, note)
                if self.step % options.log_every == 0 or self.step == self.steps:
                    self._log("train", values)
                    tokens, since = 0, time.perf_counter()
                paused = time.perf_counter()
                if self._is_due(options.eval_every):
                    self._evaluate(display, scorer)
                minutes = (paused - saved) / 60
                if self._is_due(options.save_every) or minutes >= options.save_minutes:
                    self._save()
                    saved = time.perf_counter()
                since += time.perf_counter() - paused
        return TrainResult(self.out / "model", self.step, self.model.parameter_count, self.last)

    def _is_interrupted(self, interrupts: Interrupts) -> bool:
        """Whether Ctrl-C was pressed in any of the processes: all of them stop at the same step."""
        asked = torch.tensor([float(interrupts.asked)], device=self.processes.device)
        return bool(self.processes.sum(asked)) if self.processes.world > 1 else interrupts.asked

    def _is_done(self) -> bool:
        patience = self.options.patience
        out_of_patience = self.best is not None and 0 < patience <= self.best.evaluations_since
        return out_of_patience or self.step >= self.steps

    def _is_due(self, every: int) -> bool:
        """Whether `every` steps have passed or the run ends; never if `every` is 0."""
        return every > 0 and (self._is_done() or self.step % every == 0)

    def _take_step(self, batch: Batch) -> Record:
        """One optimiser step; the loss before it and the gradient's norm, over all processes, and the rate."""
        mine = batch.take(slice(self.processes.rank, None, self.processes.world))
        self.flat.gradient.zero_()
        total = torch.zeros(1, device=self.processes.device)
        for part in mine.microbatches(self.options.tokens_per_microbatch):
            with self.autocast():
                loss = self.objective(self.objective.inputs(part)) / len(batch)
            loss.backward()
            total += loss.detach()
        self.processes.sum(self.flat.gradient)
        self.processes.sum(total)
        norm = torch.linalg.vector_norm(self.flat.gradient)
        self._check_finite(float(total), float(norm), batch)
        if self.options.clip is not None:
            self.flat.gradient.mul_((self.options.clip / (norm + 1e-6)).clamp(max=1.0))
        rate = learning_rate(self.step + 1, self.options)
        self.optimiser.step(rate)
        if self.half is not None:
            self.half.refresh()
        self.step += 1
        return {"loss": float(total), "gradient_norm": float(norm), "learning_rate": rate}

    def _check_finite(self, loss: float, norm: float, batch: Batch) -> None:
        if math.isfinite(loss) and math.isfinite(norm):
            return
        last_good = f"{self.out / 'checkpoint'} (step {self.saved})" if self.saved else "none yet"
        raise SearchformerError(
            f"step {self.step + 1}: the loss is {loss}, the gradient's norm {norm}; tasks of the batch: "
            f"{', '.join(batch.task_ids)}; last good checkpoint: {last_good}. "
            "Lower --lr, set --clip or use --precision fp32"
        )

    def _evaluate(self, display: Display, scorer: ExactMatch | None) -> None:
        if self.eval_set is None:
            return
        options = self.options
        scores = evaluate(
            self.objective,
            self.eval_set,
            tasks=options.validation or options.eval_tasks,
            tokens_per_microbatch=options.tokens_per_microbatch,
            processes=self.processes,
            precision=self.autocast,
            yardstick=self.yardstick,
        )
        if scorer is not None and self._is_due(options.exact_every):
            scores["exact_match"] = scorer(self.model)
        if self.best is not None:
            self.best.update(scores["loss"], self.step, self.flat.weights.detach())
        split = "test" if self.best is None else "validation"
        self._log("eval", {"split": split, **scores})
        listed = ", ".join(f"{name.replace('_', ' ')} {score:.4f}" for name, score in scores.items())
        display.say(f"step {self.step} {split}: {listed}")

    def _log(self, kind: str, values: Record) -> None:
        record = {"step": self.step, "kind": kind, **values}
        self.last[kind] = record
        for listener in self.listeners:
            listener(record)
