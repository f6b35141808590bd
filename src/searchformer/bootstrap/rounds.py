"""Bootstrapping rounds: sample, select, fine-tune, evaluate, again (paper, section 3.3 and figure 4).

In: a trained model and its data set. Out, per round, everything that was made:

    bootstrap.json              what was asked, and where each round's model and evaluation are
    round-0/rollout             the model as it was given, on test tasks
    round-K/answers             its answers to training tasks
    round-K/data                the data set with shorter traces
    round-K/train               the fine-tuning run; round-K/train/model is the next model
    round-K/rollout             that model on test tasks
    control-K/train, rollout    the same fine-tuning on the original traces, for comparison

Test tasks play no part in the selection. Killed and started again, it continues where it stopped.
Try: `searchformer bootstrap --model DIR --data DIR --out DIR`.
"""

from pathlib import Path
from typing import Any

from searchformer.bootstrap.options import BootstrapOptions
from searchformer.bootstrap.select import select
from searchformer.dataset.store import MANIFEST, Dataset
from searchformer.digests import file_digest
from searchformer.display import Display, Silent
from searchformer.engines.base import Engine
from searchformer.engines.local import LocalEngine
from searchformer.errors import Interrupted, SearchformerError
from searchformer.evaluate.evaluation import evaluate
from searchformer.evaluate.verdicts import verdicts_of
from searchformer.files import BOOTSTRAP_RUN, locked, read_json, require_kind, require_same, write_json
from searchformer.model.storage import WEIGHTS
from searchformer.rollout.options import RolloutOptions
from searchformer.rollout.store import Rollouts
from searchformer.tokens.vocabulary import Vocabulary
from searchformer.train.launch import launch, telling_the_saved_step, train_command
from searchformer.train.options import LearningOptions, TrainOptions
from searchformer.train.setup import model_directory


def bootstrap(
    options: BootstrapOptions, out: Path, *, display: Display | None = None, engine: Engine | None = None
) -> dict[str, Any]:
    """Run all rounds, or continue those in `out`; returns what bootstrap.json says."""
    require_kind(out, BOOTSTRAP_RUN)
    with locked(out, doing="bootstrapping"):
        try:
            return _bootstrap(options, out, display or Silent(), engine or LocalEngine())
        except KeyboardInterrupt as interrupt:
            raise Interrupted.within(_stands(options, out), interrupt) from None


def _stands(options: BootstrapOptions, out: Path) -> str:
    """How many rounds are complete, in words."""
    path = out / "bootstrap.json"
    rounds = read_json(path, what="bootstrap run")["rounds"] if path.exists() else []
    done = [entry for entry in rounds if entry["round"] and not entry["control"]]
    controls = f" and {len(rounds) - 1 - len(done)} controls" if options.control and len(done) == options.rounds else ""
    return f"{len(done)} of {options.rounds} rounds{controls} complete in {out}"


def _bootstrap(options: BootstrapOptions, out: Path, display: Display, engine: Engine) -> dict[str, Any]:
    _require_one_vocabulary(options)
    _require_same(options, out)
    rule = f"{options.rule}, fresh tasks" if options.fresh else options.rule
    state: dict[str, Any] = {"options": options.model_dump(mode="json"), "rule": rule, "rounds": []}
    _evaluate_round(options, out, state, 0, model_directory(options.model), display, engine)
    model, data = model_directory(options.model), options.data
    for number in range(1, options.rounds + 1):
        folder = out / f"round-{number}"
        selected = _select(options, folder, model, data, number, display, engine)
        model = _fine_tune(options, folder, model, folder / "data", number, display)
        data = options.data if options.fresh else folder / "data"
        _evaluate_round(options, out, state, number, model, display, engine, selected=selected)
    if options.control:
        model = model_directory(options.model)
        for number in range(1, options.rounds + 1):
            folder = out / f"control-{number}"
            model = _fine_tune(options, folder, model, options.data, number, display)
            _evaluate_round(options, out, state, number, model, display, engine, control=True)
    return state


def _require_same(options: BootstrapOptions, out: Path) -> None:
    """Raise, naming what differs, if `out` holds rounds with other options; more rounds of the same are allowed.

    The model and the data set are recognised by their content, wherever they are stored.
    """
    path = out / "options.json"
    asked = options.result_fields()
    asked["model"] = file_digest(model_directory(options.model) / WEIGHTS)
    asked["data"] = file_digest(options.data / MANIFEST)
    asked["eval_data"] = file_digest(options.eval_data / MANIFEST) if options.eval_data else None
    if path.exists():
        defaults = BootstrapOptions(model=Path(), data=Path()).result_fields()  # for options added since
        found = defaults | read_json(path, what="bootstrap run")
        require_same(found, asked, where=out, what="a bootstrap run")
    write_json(path, asked)


def _require_one_vocabulary(options: BootstrapOptions) -> None:
    """Raise unless the data sets are there and in the model's language: nothing of the run is written before."""
    model = model_directory(options.model)
    vocabulary = Vocabulary.load(model)
    for data in (options.data, options.eval_data):
        if data is not None:
            vocabulary.require_same(Dataset(data).vocabulary, mine=f"the model {model}", theirs=f"the data set {data}")


def _select(
    options: BootstrapOptions, folder: Path, model: Path, data: Path, number: int, display: Display, engine: Engine
) -> dict[str, Any]:
    """Sample answers to training tasks and write the round's data set; the counts of the selection."""
    counts = folder / "selection.json"
    if (folder / "data" / MANIFEST).exists() and counts.exists():
        return read_json(counts, what="selection")
    dataset = Dataset(data)
    there = len(dataset.task_ids("train"))
    tasks = min(options.tasks or there, there)
    skip = (number - 1) % (there // tasks) * tasks if options.fresh else 0
    display.say(f"round {number}: sampling {options.samples} answers for each of {tasks:,} training tasks")
    asked: dict[str, Any] = {"split": "train", "tasks": tasks, "skip": skip, "seed": options.seed + number}
    asked |= options.model_dump(include={"samples", "temperature", "top_p"})
    _roll_out(options, model, data, folder / "answers", display, engine, **asked)
    display.say(f"round {number}: selecting ({options.rule})")
    rollouts = Rollouts.open(folder / "answers")
    verdicts = verdicts_of(rollouts, display=display, engine=engine)
    selection = select(dataset, rollouts, folder / "data", rule=options.rule, round_number=number, verdicts=verdicts)
    write_json(counts, vars(selection))
    if not selection.replaced:
        display.say(
            f"round {number}: no trace was replaced, as no answer is optimal and shorter than its task's trace; "
            "train the model longer, or raise --samples or --tasks"
        )
        return vars(selection)
    share = 1 - selection.tokens_after / selection.rows / max(selection.tokens_before / selection.tasks, 1e-9)
    display.say(
        f"round {number}: {selection.replaced:,} of {selection.tasks:,} traces replaced, {share:.1%} shorter on average"
    )
    return vars(selection)


def _roll_out(
    options: BootstrapOptions,
    model: Path,
    data: Path,
    out: Path,
    display: Display,
    engine: Engine,
    *,
    answers: Path | None = None,
    **values: Any,
) -> None:
    """Sample what is asked, unless it is what these `answers` are."""
    from searchformer.rollout.dispatch import roll_out, take_over

    rollout = RolloutOptions(model=model, data=data, out=out, device=options.device, **values)
    if answers and take_over(rollout, answers, engine=engine):
        return
    if not roll_out(rollout, display=display, engine=engine)["complete"]:
        raise SearchformerError(f"{out}: answers are missing; run the same command again")


def _fine_tune(options: BootstrapOptions, folder: Path, model: Path, data: Path, number: int, display: Display) -> Path:
    """Fine-tune `model` on `data`; the directory of the new model."""
    out = folder / "train"
    if (folder / "trained.json").exists():
        return out / "model"
    display.say(f"{folder.name}: fine-tuning for {options.steps:,} steps")
    control = folder.name.startswith("control")
    training = TrainOptions(
        data=data,
        init_from=model,
        seed=options.seed + number,
        eval_every=max(options.steps // 4, 1),
        model=read_json(model / "config.json", what="model").get("trained", {}).get("size", "custom"),
        sequences=options.tasks if control and not options.fresh else None,
        device=options.device,
        **options.model_dump(include=set(LearningOptions.model_fields)),
    )
    with telling_the_saved_step(out):
        code = launch(train_command(training, out, bootstrap_round=number), processes=options.processes)
    if code:
        raise SearchformerError(f"fine-tuning ended with exit code {code}; run the same command again to continue")
    write_json(folder / "trained.json", {"model": "train/model", "steps": options.steps})
    return out / "model"


def _evaluate_round(
    options: BootstrapOptions,
    out: Path,
    state: dict[str, Any],
    number: int,
    model: Path,
    display: Display,
    engine: Engine,
    *,
    selected: dict[str, Any] | None = None,
    control: bool = False,
) -> None:
    """Answer the test tasks, score the answers, and note the round in bootstrap.json."""
    name = f"{'control' if control else 'round'}-{number}"
    rollout = out / name / "rollout"
    if not (rollout / "metrics.json").exists():
        data = options.eval_data or options.data
        tasks = options.eval_tasks or Dataset(data).rows("test")
        display.say(f"{name}: answering {tasks:,} test tasks {options.eval_samples} times")
        asked: dict[str, Any] = {"split": "test", "tasks": tasks, "samples": options.eval_samples, "seed": options.seed}
        answers = options.answers if number == 0 else None
        _roll_out(options, model, data, rollout, display, engine, answers=answers, **asked)
        if not (rollout / "metrics.json").exists():  # answers that were taken over bring their scores
            evaluate(rollout, display=display, engine=engine)
    metrics = read_json(rollout / "metrics.json", what="evaluation")["metrics"]
    ratio, optimal = metrics["length_ratio_of_means"]["value"], metrics["pass_at_1"]["value"]
    lengths = f"A* length / model length {ratio:.3f}, " if ratio else ""
    display.say(f"{name}: {lengths}optimal per answer {optimal:.1%}")
    entry = {
        "round": number,
        "control": control,
        "model": str(model if number == 0 else Path(name) / "train" / "model"),
        "evaluation": str(Path(name) / "rollout"),
        "selection": selected,
    }
    state["rounds"].append(entry)
    write_json(out / "bootstrap.json", state)
