"""Directories of answers for tests, written by the code that `searchformer rollout` writes them with."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from searchformer.domains import Domain
from searchformer.rollout import Answer, store
from searchformer.tokens.vocabulary import Vocabulary


def write_rollouts(
    directory: Path,
    domain: Domain,
    vocabulary: Vocabulary,
    prompts: Mapping[str, np.ndarray],
    answers: Callable[[str], Iterable[list[str]]],
    *,
    finish: str = "eos",
    log_probability: Callable[[list[str]], float] = lambda tokens: 0.0,
    **config: Any,
) -> store.Rollouts:
    """Answers to tasks (task id to prompt ids); `answers(task_id)` gives the tokens of each task's answers, and
    `log_probability(tokens)` what the model makes of an answer."""
    given = {task: list(answers(task)) for task in sorted(prompts)}
    settings = {key: value for key, value in domain.model_dump().items() if value is not None}
    fields = {
        "model": {"trained": {}},
        **{"domain": domain.name, "settings": settings, "deterministic": False, "algorithm": "astar", "weight": 1.0},
        **{"split": "test", "tasks": len(given), "samples": max(map(len, given.values())), **config},
    }
    store.begin(directory, fields, vocabulary)
    ids = pa.array([prompts[task].tolist() for task in given], pa.list_(pa.uint16()))
    store.write_tasks(directory, pa.table({"task_id": list(given), "prompt": ids}))
    with store.Writer(directory, vocabulary, name="000-000", save_seconds=60) as writer:
        for index, (task, texts) in enumerate(given.items()):
            for sample, tokens in enumerate(texts):
                known = vocabulary.encode(tokens), finish, log_probability(tokens)
                writer.add(Answer(task, index, sample, *known))
    store.finish(directory, fields)
    return store.Rollouts.open(directory)
