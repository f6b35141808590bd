"""Result files of made-up runs, in the formats that the stages write: for tests of the report."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from searchformer.dataset.store import finish, schema
from searchformer.digests import file_digest
from searchformer.evaluate.evaluation import ASTAR
from searchformer.evaluate.metrics import Scores, score
from searchformer.files import write_json
from searchformer.seeding import digest
from searchformer.tokens.vocabulary import Vocabulary

MAZE_6 = {"width": 6, "height": 6}
MAZE_8 = {"width": 8, "height": 8}
SOKOBAN_7 = {"width": 7, "height": 7, "walls": 2, "boxes": 2}
VIOLATIONS = (
    "wrong heuristic",
    "closed node is not of least f",
    "created node is not a neighbour",
    "wrong cost",
    "node was never created",
)


def make_task_ids(name: str, tasks: int) -> list[str]:
    return [digest(f"{name} {index}".encode()) for index in range(tasks)]


def write_evaluation(
    directory: Path,
    *,
    domain: str = "maze",
    settings: dict[str, Any] = MAZE_6,
    deterministic: bool = False,
    size: str = "15M",
    variant: str = "search-augmented",
    sequences: int = 10_000,
    seed: int = 0,
    round_: int = 0,
    skill: float = 0.8,
    shorter: float = 1.0,
    tasks: int = 60,
    samples: int = 8,
    trained: dict[str, Any] | None = None,
) -> None:
    """An evaluation: `skill` is the chance of an optimal answer, `shorter` the model's trace length over A*'s."""
    directory.mkdir(parents=True)
    generator = np.random.default_rng([seed, round_, sequences])
    typical = 120 if domain == "maze" else 6000
    base = np.random.default_rng(7).lognormal(np.log(typical), 0.55, tasks)
    astar = np.maximum(base[:, None] * generator.normal(1, 0.12, (tasks, 16)), 5).astype(int)
    searches = variant != "solution-only"
    fate = generator.random((tasks, samples))
    optimal, correct = fate < skill, fate < skill + 0.06
    optimal_length = np.random.default_rng(8).integers(6, 20, tasks)
    plan = np.where(optimal, optimal_length[:, None], np.where(correct, optimal_length[:, None] + 2, -1))
    stretch = shorter * np.where(optimal, 1.0, 1.4) * generator.normal(1, 0.15, (tasks, samples))
    trace = np.maximum(base[:, None] * stretch, 5).astype(int) * searches
    legal = generator.random((tasks, samples)) < 0.9 * skill
    kinds = np.array(VIOLATIONS)[generator.choice(5, (tasks, samples), p=[0.4, 0.25, 0.15, 0.15, 0.05])]
    task_ids = make_task_ids(f"{domain}{sorted(settings.items())}", tasks)
    verdict = np.where(optimal, "optimal", np.where(correct, "feasible", "invalid"))
    columns: dict[str, Any] = {
        "task_id": np.repeat(task_ids, samples),
        "sample": np.tile(np.arange(samples, dtype=np.int32), tasks),
        "verdict": verdict.ravel(),
        "reason": [None if fine else "not solved" for fine in correct.ravel()],
        "plan_length": plan.ravel().astype(np.int32),
        "optimal_length": np.repeat(optimal_length, samples).astype(np.int32),
        "trace_length": trace.ravel().astype(np.int32),
        "created": (trace.ravel() // 7).astype(np.int32),
        "closed": (trace.ravel() // 12).astype(np.int32),
        "trace_legal": pa.array([bool(fine) if searches else None for fine in legal.ravel()], pa.bool_()),
        "trace_sound": pa.array([bool(fine) if searches else None for fine in legal.ravel()], pa.bool_()),
        "violation": pa.array(
            [
                None if fine or not searches else str(kind)
                for fine, kind in zip(legal.ravel(), kinds.ravel(), strict=True)
            ],
            pa.string(),
        ),
        "violation_position": np.where(legal.ravel(), -1, 10).astype(np.int32),
        "legal_share": np.where(legal.ravel(), 1.0, 0.5),
    }
    if deterministic:
        columns["exact"] = (legal & optimal).ravel()
    said = {
        "size": size,
        "parameters": {"15M": 6_200_000, "46M": 33_000_000, "small": 380_000}[size],
        **{"variant": variant, "sequences": sequences, "seed": seed, "step": 1000, "bootstrap_round": round_},
        **{"domain": domain, "settings": settings, "deterministic": deterministic, "data_digest": "00"},
    }
    run = make_run(directory, domain=domain, settings=settings, tasks=tasks, samples=samples)
    run["deterministic"], run["model"]["trained"] = deterministic, said if trained is None else trained
    store_evaluation(directory, columns, dict(zip(task_ids, astar.tolist(), strict=True)), run)


def make_run(directory: Path, *, domain: str, settings: dict[str, Any], tasks: int, samples: int) -> dict[str, Any]:
    """A rollout's configuration."""
    return {
        "model": {"path": "model", "digest": digest(str(directory).encode()), "trained": {}},
        "data": {"path": "data", "digest": "00"},
        **{"domain": domain, "settings": settings, "deterministic": False, "split": "test"},
        **{"tasks": tasks, "samples": samples, "seed": 0, "temperature": 1.0, "top_k": 0, "top_p": 1.0},
        **{"max_tokens": 1000, "vocabulary_digest": "00"},
    }


def store_evaluation(
    directory: Path, columns: dict[str, Any], astar: dict[str, list[int]], run: dict[str, Any]
) -> None:
    """Write what `rollout` and `evaluate` write, except for the answers."""
    verdicts = pa.table(columns)
    reference = pa.Table.from_pylist(
        [
            {"task_id": task, "lengths": runs, "shortest": min(runs) // 2, "nats": min(runs) / 10}
            for task, runs in astar.items()
        ],
        schema=ASTAR,
    )
    pq.write_table(verdicts, directory / "verdicts.parquet")
    pq.write_table(reference, directory / "astar.parquet")
    scores = Scores.from_tables(verdicts, reference, task_ids=list(astar), samples=run["samples"])
    write_json(directory / "config.json", run)
    write_json(directory / "metrics.json", {"run": run, **score(scores, resamples=200)})
    files = sorted(directory.glob("rollouts-*.parquet"))
    shards = [{"file": path.name, "digest": file_digest(path)} for path in files]
    write_json(directory / "manifest.json", {"format": 1, "answers": 0, "shards": shards})  # as rollouts have it


def golden_mazes(size: int) -> list[dict[str, Any]]:
    """Solvable golden mazes of one size, with the tokens of their search."""
    with gzip.open(Path(__file__).parent / "golden" / "maze-deterministic.jsonl.gz", "rt") as file:
        records = [json.loads(line) for line in file]
    return [record for record in records if record["width"] == size and record["solvable"]]


def thinned(trace: list[str], *, keep: float) -> list[str]:
    """A trace without some of its steps."""
    steps = [trace[place : place + 5] for place in range(0, len(trace), 5)]
    kept = [step for number, step in enumerate(steps) if (number * 0.618) % 1 < keep or number == 0]
    return [token for step in kept for token in step]


def write_answers(directory: Path, *, size: int = 8, keep: float = 1.0, round_: int = 0) -> None:
    """An evaluation with its answers: golden searches of mazes, with only part of their steps kept."""
    directory.mkdir(parents=True)
    mazes = golden_mazes(size)
    tokens = {token for maze in mazes for part in ("prompt", "trace", "plan") for token in maze[part].split()}
    vocabulary = Vocabulary.of(tokens | {str(number) for number in range(size)})
    vocabulary.save(directory)
    task_ids = make_task_ids("golden", len(mazes))
    traces = [thinned(maze["trace"].split(), keep=keep) for maze in mazes]
    answers = [vocabulary.encode([*t, *maze["plan"].split()]) for t, maze in zip(traces, mazes, strict=True)]
    nodes = [len(maze["plan"].split()) // 3 for maze in mazes]
    ids = pa.list_(pa.uint16())
    prompts = [vocabulary.encode(maze["prompt"].split()) for maze in mazes]
    tasks = {"task_id": task_ids, "prompt": pa.array(prompts, ids)}
    pq.write_table(pa.table(tasks), directory / "tasks.parquet")
    rollouts = {"task_id": task_ids, "sample": np.zeros(len(mazes), np.int32), "tokens": pa.array(answers, ids)}
    rollouts["finish"] = ["eos"] * len(mazes)
    for part, rows in enumerate(np.array_split(np.arange(len(mazes)), 2)):
        pq.write_table(pa.table(rollouts).take(rows), directory / f"rollouts-{part:05d}.parquet")
    columns = {
        "task_id": task_ids,
        "sample": np.zeros(len(mazes), np.int32),
        "verdict": ["optimal"] * len(mazes),
        "plan_length": nodes,
        "optimal_length": nodes,
        "trace_length": [len(trace) for trace in traces],
        "trace_legal": [keep == 1.0] * len(mazes),
        "trace_sound": [keep == 1.0] * len(mazes),
        "violation": pa.array([None if keep == 1.0 else VIOLATIONS[1]] * len(mazes), pa.string()),
    }
    settings = {"width": size, "height": size}
    run = make_run(directory, domain="maze", settings=settings, tasks=len(mazes), samples=1)
    run["model"]["trained"] = {
        "size": "small",
        "variant": "search-augmented",
        "sequences": 500,
        "bootstrap_round": round_,
    }
    lengths = [[len(maze["trace"].split())] * 4 for maze in mazes]
    store_evaluation(directory, columns, dict(zip(task_ids, lengths, strict=True)), run)


def write_training(
    directory: Path, *, steps: int = 2000, seed: int = 0, floor: float = 0.06, init_from: str | None = None
) -> None:
    """A training run's options and metrics.jsonl."""
    directory.mkdir(parents=True)
    write_json(directory / "config.json", {"steps": steps, "init_from": init_from})
    generator = np.random.default_rng(seed)
    rows = []
    for step in range(10, steps + 1, 10):
        loss = floor + 2.0 * np.exp(-step / (steps / 5))
        rows.append(
            {"step": step, "kind": "train", "loss": float(loss * generator.normal(1, 0.08)), "learning_rate": 1e-3}
        )
        if step % (steps // 10) == 0:
            share = 1 - np.exp(-step / (steps / 3))
            accuracies = {"plan_accuracy": float(share), "token_accuracy": float(0.5 + share / 2)}
            rows.append({"step": step, "kind": "eval", "split": "test", "loss": float(loss * 1.1), **accuracies})
    (directory / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_data_set(
    directory: Path, *, domain: str = "maze", settings: dict[str, Any] = MAZE_6, mean: float = 120, rows: int = 200
) -> None:
    """A data set whose sequences hold nothing but have lengths."""
    directory.mkdir(parents=True)
    vocabulary = Vocabulary.of(["create", "close", "plan"])
    generator = np.random.default_rng(int(mean))
    files = {}
    for split, count in (("train", rows), ("test", rows // 4)):
        trace = generator.lognormal(np.log(mean), 0.6, count).astype(np.int32)
        plan = (3 * generator.integers(6, 14, count)).astype(np.int32)
        empty = pa.array([[]] * count, pa.list_(pa.uint16()))
        table = pa.table(
            {
                "task_id": make_task_ids(f"{directory.name}{split}", count),
                **dict.fromkeys(("prompt", "trace", "plan"), empty),
                **{"prompt_length": np.full(count, 40, np.int32), "trace_length": trace, "plan_length": plan},
            },
            schema=schema(vocabulary),
        )
        file = f"{split}-00000.parquet"
        pq.write_table(table, directory / file, compression="zstd")
        files[file] = split
    config = {"domain": domain, "settings": settings, "deterministic": False}
    finish(directory, files, config=config, vocabulary=vocabulary)


def write_bootstrap(
    directory: Path, *, rounds: int = 3, earlier_rounds: int = 0, seed: int = 0, rule: str = "", **options: Any
) -> None:
    """A bootstrap run: a start (of so many earlier rounds), rounds with ever shorter traces, and a control."""
    listed = []
    for round_ in range(rounds + 1):
        place = f"round-{round_}/rollout"
        shorter, skill = 1 - 0.11 * round_, 0.82 + 0.02 * round_
        said = round_ or earlier_rounds
        write_evaluation(directory / place, seed=seed, round_=said, shorter=shorter, skill=skill, **options)
        listed.append({"round": round_, "model": f"round-{round_}/model", "evaluation": place})
    write_evaluation(directory / "control/rollout", seed=seed, round_=rounds, skill=0.8, **options)
    listed.append({"round": rounds, "model": "control/model", "evaluation": "control/rollout", "control": True})
    write_json(directory / "bootstrap.json", {"rounds": listed, **({"rule": rule} if rule else {})})


def write_experiment(directory: Path) -> None:
    """Everything that the report's figures want: sizes, variants, training-set sizes, seeds, bootstrap rounds."""
    for deterministic, kind in ((False, "maze-6"), (True, "maze-6-det")):
        for size, bonus in (("15M", 0.0), ("46M", 0.06)):
            for variant, start in (("search-augmented", 0.45), ("solution-only", 0.2)):
                for sequences in (1_000, 10_000):
                    for seed in range(3) if size == "15M" else (0,):
                        name = f"{size}-{variant}-{sequences}-{seed}"
                        skill = min(0.93, start + bonus + 0.13 * np.log10(sequences / 1000) * 2 + 0.02 * seed)
                        options = {"deterministic": deterministic, "size": size, "variant": variant}
                        amount = {"sequences": sequences, "seed": seed, "samples": 1 if deterministic else 8}
                        write_evaluation(directory / kind / name / "rollout", skill=skill, **options, **amount)
    for variant, skill in (("search-augmented", 0.7), ("solution-only", 0.15)):
        options = {"settings": MAZE_8, "variant": variant, "skill": skill, "sequences": 10_000}
        write_evaluation(directory / "maze-8" / variant / "rollout", **options)
    for seed in range(2):
        sokoban = {"domain": "sokoban", "settings": SOKOBAN_7, "size": "small"}
        write_bootstrap(directory / "sokoban" / f"bootstrap-{seed}", rounds=2, seed=seed, **sokoban)
    write_answers(directory / "answers" / "round-0")
    write_answers(directory / "answers" / "round-2", keep=0.6, round_=2)
    for seed in range(2):
        write_training(directory / "maze-6" / f"train-{seed}", seed=seed)
        write_training(directory / "sokoban" / f"bootstrap-{seed}" / "train", steps=300, seed=seed, init_from="model")
    write_data_set(directory / "data" / "maze-6")
    write_data_set(directory / "data" / "sokoban-7", domain="sokoban", settings=SOKOBAN_7, mean=6000)
