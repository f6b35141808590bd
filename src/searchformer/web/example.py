"""The task that the page opens with, and two searches of it, as a file that needs no model and no computing.

`python -m searchformer.web.example` writes it again: a model's answer to a task, chosen so that the difference between
the two searches is easy to see, and a run of A* of about its mean length. docs/web.md says what is typical.
"""

import json
from pathlib import Path
from typing import Any

from searchformer.domains import make_domain
from searchformer.files import write_text
from searchformer.pretrained import find_model
from searchformer.search.world import World
from searchformer.solve import random_task
from searchformer.web.records import Example, SearchRequest
from searchformer.web.searches import Searches

FILE = Path(__file__).parent / "static" / "example.json"
SIZE = {"width": 6, "height": 6}
TASK_SEED = 55
SAMPLES = 16


def read_example() -> Example:
    """The file."""
    return Example.model_validate_json(FILE.read_text(encoding="utf-8"))


def make_example() -> Example:
    """Ask the packaged model: its sound and optimal answer of median length, beside the A* run nearest to the mean."""
    from searchformer.model import load_model
    from searchformer.rollout import Engine

    searches, domain = Searches(), make_domain("maze", SIZE)
    task, found = random_task(domain, seed=TASK_SEED), find_model("maze", SIZE)
    assert found is not None
    record: Any = domain.decode(task.problem)
    engine = Engine(*load_model(found.directory), precision="fp32")
    prompt = World(domain, task.problem).prompt_tokens()
    answers = [
        searches.judged(
            task,
            engine.vocabulary.decode(answer.tokens),
            finished=answer.finish == "eos",
            who=found.name,
            sample=answer.sample,
        )
        for answer in engine.sample_all([list(prompt)], samples=SAMPLES, max_tokens=1000)
    ]
    good = sorted((each for each in answers if each.verdict == "optimal" and each.sound), key=lambda a: a.trace_tokens)
    runs = [searches.run(task, SearchRequest(task=record, seed=seed)) for seed in range(64)]
    mean = sum(run.trace_tokens for run in runs) / len(runs)
    seed = min(range(len(runs)), key=lambda seed: abs(runs[seed].trace_tokens - mean))
    return Example(task=record, seed=seed, left=runs[seed], right=good[len(good) // 2])


if __name__ == "__main__":
    write_text(FILE, json.dumps(make_example().model_dump(exclude_defaults=True), separators=(",", ":")) + "\n")
