"""The task that the page opens with, and two searches of it, as a file that needs no model and no computing.

`python -m searchformer.web.example` writes it again, for the largest packaged model of mazes: of some random tasks the
one on which the difference between the two searches is the easiest to see. docs/web.md says what is typical.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from searchformer.domains import make_domain
from searchformer.errors import SearchformerError
from searchformer.files import write_text
from searchformer.pretrained import packaged_models
from searchformer.search import Searcher
from searchformer.solve import Task, make_task, random_task
from searchformer.solve.planning import LONGEST_ANSWER, AnswerSampler
from searchformer.web.models import ModelEntry, Models
from searchformer.web.records import Example, Search, SearchRequest
from searchformer.web.searches import Searches

FILE = Path(__file__).parent / "example.json"
CANDIDATES, SAMPLES, ASTAR_RUNS = 64, 16, 64
"""Random tasks, answers to each of them, and runs of A* on each of them."""
LEAST_OPTIMAL = 0.75
"""Share of optimal answers to a task that is shown: one that the model mostly fails at says little."""


def read_example() -> Example:
    """The file."""
    return Example.model_validate_json(FILE.read_text(encoding="utf-8"))


def opening(models: Models) -> Example:
    """The file; without its answer unless it is one of the model that would be asked."""
    example = read_example()
    asked = models.preferred if models.preferred and models.preferred.trained.get("domain") == "maze" else None
    name = asked.name if asked and asked.digest == example.model_digest else models.name_of(example.model_digest)
    if example.right is None or name is None or (asked and asked.name != name):
        return example.model_copy(update={"right": None})
    return example.model_copy(update={"right": example.right.model_copy(update={"who": name})})


@dataclass(frozen=True)
class Candidate:
    """A task with a model's answers and A*'s runs."""

    record: Any
    answers: list[Search]
    runs: list[int]
    """Trace tokens of A*'s searches, by seed."""

    @property
    def good(self) -> list[Search]:
        """The answers that are optimal and say nothing untrue, by the length of their searches."""
        good = [each for each in self.answers if each.verdict == "optimal" and each.sound]
        return sorted(good, key=lambda each: each.trace_tokens)

    @property
    def typical(self) -> Search:
        """The good answer of median length."""
        return self.good[len(self.good) // 2]

    @property
    def saved(self) -> float:
        """Share of A*'s mean length that the typical answer saves; nothing where too few answers are good."""
        if len(self.good) < LEAST_OPTIMAL * len(self.answers):
            return 0.0
        return 1 - self.typical.trace_tokens / self.mean_run

    @property
    def mean_run(self) -> float:
        """Mean length of A*'s searches."""
        return mean(self.runs)


def make_example(*, candidates: int = CANDIDATES) -> Example:
    """Ask the largest packaged model of mazes; beside its typical answer stands the A* run nearest to the mean."""
    mazes = [each for each in packaged_models() if each.domain == "maze"]
    if not mazes:
        raise SearchformerError("no model of mazes is packaged; `python -m searchformer.pretrained.package` adds one")
    found = max(mazes, key=lambda each: each.settings["width"] * each.settings["height"])
    domain = make_domain("maze", {name: found.settings[name] for name in ("width", "height")})
    records = [domain.decode(random_task(domain, seed=seed).problem) for seed in range(candidates)]
    entry = ModelEntry.read(found.name, found.directory)
    best = max(_candidates(entry, records), key=lambda each: each.saved)
    if best.saved <= 0:
        raise SearchformerError(f"{found.name} saves nothing on any of {candidates} tasks; raise the number of tasks")
    seed = min(range(ASTAR_RUNS), key=lambda seed: abs(best.runs[seed] - best.mean_run))
    left = Searches().run(make_task(best.record), SearchRequest(task=best.record, seed=seed))
    return Example(task=best.record, seed=seed, left=left, right=best.typical, model_digest=entry.digest)


def _candidates(entry: ModelEntry, records: list[Any]) -> list[Candidate]:
    """The model's answers to the tasks, and A*'s runs."""
    from searchformer.model import load_model
    from searchformer.rollout import Engine

    searches, engine = Searches(), Engine(*load_model(entry.directory), precision="fp32")
    asked = [AnswerSampler.open(entry.directory, make_task(record)) for record in records]
    runs = [_astar_lengths(each.task) for each in asked]
    longest = LONGEST_ANSWER * max(max(lengths) for lengths in runs)
    answers: list[list[Search]] = [[] for _ in records]
    for answer in engine.sample_all([each.prompt for each in asked], samples=SAMPLES, max_tokens=longest):
        tokens, finished = engine.vocabulary.decode(answer.tokens), answer.finish == "eos"
        task = asked[answer.prompt].task
        judged = searches.judged(task, tokens, finished=finished, who=entry.name, sample=answer.sample)
        answers[answer.prompt].append(judged)
    return [Candidate(*each) for each in zip(records, answers, runs, strict=True)]


def _astar_lengths(task: Task) -> list[int]:
    """Trace tokens of the searches that the page shows for the first seeds."""
    searcher = Searcher(task.domain)
    return [searcher.trace_length(task.problem, seed=seed) for seed in range(ASTAR_RUNS)]


if __name__ == "__main__":
    write_text(FILE, json.dumps(make_example().model_dump(exclude_defaults=True), separators=(",", ":")) + "\n")
