"""What a Python user needs: functions that take and give plain values. `import searchformer` names them all.

import searchformer

task = {"width": 3, "height": 3, "start": [0, 2], "goal": [2, 1], "walls": [[2, 0], [0, 1], [1, 1]]}
searchformer.trace(task)["plan"]                 # A*'s search
searchformer.judge(task, "rrru").reason          # what is wrong with an answer
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from searchformer.dataset.store import Dataset
from searchformer.display import Display
from searchformer.evaluate.judge import domain_of
from searchformer.evaluate.judge import judge as judge_answer
from searchformer.records import Verdict
from searchformer.search import Options, Searcher
from searchformer.solve import make_task
from searchformer.tokens.grammar import write_text

if TYPE_CHECKING:
    from searchformer.interop.models import Model


def trace(task: dict[str, Any], *, deterministic: bool = True, seed: int = 0, **options: Any) -> dict[str, Any]:
    """Search a task with A*: `solvable`, and `prompt`, `trace` and `plan` as text. `options` as in `search.Options`."""
    made = make_task(task, name=domain_of(task))
    found = Searcher(made.domain, Options(deterministic=deterministic, **options)).search(made.problem, seed=seed)
    prompt, steps, plan = write_text(made.domain, made.problem, found)
    return {"solvable": found.solvable, "prompt": prompt, "trace": steps, "plan": plan}


def generate(
    domain: str,
    out: Path | str,
    *,
    settings: dict[str, Any] | None = None,
    workers: int = 1,
    display: Display | None = None,
    **options: Any,
) -> Dataset:
    """Make a data set in `out`; `settings` are the domain's, `options` those of `searchformer generate`."""
    from searchformer.dataset.generate import generate as make_dataset
    from searchformer.dataset.options import GenerateOptions

    asked = GenerateOptions.checked(domain=domain, settings=settings or {}, **options)
    make_dataset(asked, Path(out), workers=workers, display=display)
    return Dataset(out)


def load_dataset(directory: Path | str, *, verify: bool = False) -> Dataset:
    """Open a data set; with `verify`, every file is compared with its digest."""
    return Dataset(directory, verify=verify)


def load(path_or_hub_id: str | Path, *, revision: str | None = None) -> "Model":
    """The model of a directory, a training run, a packaged model's name, or a repository of the Hugging Face Hub."""
    from searchformer.interop.models import load as load_model

    return load_model(path_or_hub_id, revision=revision)


def sample(model: "Model", tasks: Sequence[dict[str, Any] | str], **how: Any) -> list[list[str]]:
    """Answers of a model to each task, as text; `how` as in `Model.sample`: samples, seed, temperature, max_tokens."""
    return model.sample(tasks, **how)


def judge(task: dict[str, Any], answer: str | list[Any], *, paper: bool = False, **settings: Any) -> Verdict:
    """Judge an answer (tokens, moves such as `rrdd`, or coordinates; as text or a list) to a task in JSON."""
    return judge_answer(task, answer, paper=paper, **settings)
