"""Greedy answers to a few test tasks while `searchformer train` runs: the rollout engine as training's callback."""

from functools import partial

import numpy as np

from searchformer.dataset.batches import Batch, Sequences
from searchformer.dataset.store import Dataset
from searchformer.model import Transformer
from searchformer.rollout import Engine
from searchformer.tokens.vocabulary import Vocabulary
from searchformer.train import ExactMatch

TASKS = 32


def greedy_match(dataset: Dataset, sequences: Sequences) -> ExactMatch:
    """A scorer on the first test tasks: the share whose greedy answer ends in exactly the data set's plan.

    The trace before it is not compared: where A* breaks ties at random, no model can know it.
    """
    return partial(_score, dataset.vocabulary, sequences.batch(np.arange(min(TASKS, len(sequences)))))


def _score(vocabulary: Vocabulary, batch: Batch, model: Transformer) -> float:
    engine = Engine(model, vocabulary, precision="fp32", slots=len(batch))
    prompts = [row[1 : length - 1] for row, length in zip(batch.prompts, batch.prompt_lengths, strict=True)]
    limit = min(2 * int(batch.response_lengths.max()), model.config.most_tokens)
    answers = engine.sample_all(prompts, samples=1, temperature=0.0, max_tokens=limit)
    right = 0
    for index, answer in enumerate(answers):
        plan = batch.responses[index, batch.plan_starts[index] : batch.response_lengths[index] - 1]
        right += answer.finish == "eos" and np.array_equal(answer.tokens[-len(plan) :], plan)
    return right / len(batch)
