"""Plans one task with a model, and never trusts it: every answer is judged, and A* steps in where none is valid.

In: a task and a model's directory. Out: a `Solution` with the best verified plan, what the search for it took, and what
A* takes. Try: `searchformer solve --random maze:6x6`.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from searchformer.domains import TaskError, make_domain
from searchformer.errors import SearchformerError
from searchformer.evaluate.judge import INVALID, OPTIMAL, Judge
from searchformer.files import read_json
from searchformer.pretrained import resolve_model
from searchformer.records import Verdict
from searchformer.search import Options, Searcher
from searchformer.search.validate import codes_of
from searchformer.search.world import World, cut_steps
from searchformer.seeding import child_seed
from searchformer.solve.solution import Effort, Solution, plan_tokens
from searchformer.solve.tasks import Task, make_task
from searchformer.tokens.vocabulary import Vocabulary

ASTAR_RUNS = 16
"""Most runs of non-deterministic A* to compare with."""
ASTAR_STEPS = 400_000
"""Fewer runs where they would take more steps than this together, but one at least."""
LONGEST_ANSWER = 4
"""An answer this many times as long as A*'s is cut."""
TOP_P = 0.95
"""Answers are drawn from this share of the probability: it holds what A* leaves open, and few false steps."""


def solve(
    task: Task | dict[str, Any],
    *,
    model: Path | str | None = None,
    samples: int = 16,
    seed: int = 0,
    options: Options | None = None,
) -> Solution:
    """Plan with a model (its directory or name), or with A* alone. `options` limits A*'s searches.

    A task may also be given as a JSON object.
    """
    options = options or Options()
    task = task if isinstance(task, Task) else make_task(task)
    notes: list[str] = []
    sampler = None
    if model is not None:
        try:
            sampler = AnswerSampler.open(resolve_model(model), task)
        except TaskError as error:
            notes.append(f"the model cannot express this task ({error}): planned by A*")
    task = sampler.task if sampler else task
    solution = _by_astar(task, options)
    if sampler and solution.solvable:
        notes += sampler.warnings()
        limit = LONGEST_ANSWER * (int(solution.astar.tokens) + len(plan_tokens(solution)))
        solution = _by_model(sampler, solution, samples=samples, seed=seed, limit=limit)
    return replace(solution, notes=(*notes, *solution.notes))


def _by_astar(task: Task, options: Options) -> Solution:
    """A*'s own plan, by the deterministic search, and the mean effort of the non-deterministic ones."""
    domain, problem = task.domain, task.problem
    searcher = Searcher(domain, replace(options, deterministic=True))
    found = searcher.search(problem)
    effort = Effort(found.created, found.closed, searcher.trace_length(problem))
    runs = max(1, min(ASTAR_RUNS, ASTAR_STEPS // (found.created + found.closed)))
    mean = _mean(list(_efforts(task, options, runs)))
    return Solution(task, "astar", found.plan, found.solvable, effort, astar=mean, astar_runs=runs, found=found)


def _mean(efforts: list[Effort]) -> Effort:
    return Effort(*np.mean([(each.created, each.closed, each.tokens) for each in efforts], axis=0).tolist())


def _efforts(task: Task, options: Options, runs: int) -> Iterator[Effort]:
    """What non-deterministic A* takes, run by run; the same runs as those of `searchformer evaluate`."""
    searcher = Searcher(task.domain, replace(options, deterministic=False))
    for run in range(runs):
        seed = child_seed(run, "astar", 0)
        found = searcher.search(task.problem, seed=seed)
        yield Effort(found.created, found.closed, searcher.trace_length(task.problem, seed=seed))


def size_warnings(trained: dict[str, Any], task: Task) -> Iterator[str]:
    """Says so if a task is not of the size that a model was `trained` for."""
    settings = trained.get("settings", {})
    domain = make_domain(task.domain.name, settings)
    size = domain.measure(domain.fitted(task.problem))
    known = [settings, *trained.get("merged", [])]
    if all(any(each.get(name, value) != value for name, value in size.items()) for each in known):
        there = {name: settings[name] for name in size if name in settings}
        yield f"the model was trained for {_listed(there)}; this task has {_listed(size)}: expect worse answers"


@dataclass(frozen=True)
class AnswerSampler:
    """Samples a model's answers to one task, which is given in the variant of its domain that the model knows."""

    directory: Path
    trained: dict[str, Any]
    vocabulary: Vocabulary
    task: Task
    prompt: tuple[str, ...]

    @classmethod
    def open(cls, directory: Path, task: Task) -> "AnswerSampler":
        """Raises TaskError where the model has no words for the task. No weights are read."""
        trained = read_json(directory / "config.json", what="model").get("trained", {})
        name = trained.get("domain", task.domain.name)
        if name != task.domain.name:
            raise SearchformerError(
                f"the model in {directory} was trained for {name}; this task is of {task.domain.name}"
            )
        domain = make_domain(name, trained.get("settings", {}))
        task = task.as_domain(domain)
        vocabulary = Vocabulary.load(directory)
        prompt = World(domain, domain.fitted(task.problem)).prompt_tokens()
        missing = [token for token in prompt if token not in vocabulary.ids]
        if missing:
            size = _listed(task.domain.measure(task.problem))
            raise TaskError(f"{size}: its vocabulary has no {missing[0]!r}")
        return cls(directory, trained, vocabulary, task, prompt)

    def warnings(self) -> Iterator[str]:
        """Says so if the task is not of the size that the model was trained for."""
        yield from size_warnings(self.trained, self.task)

    def answers(self, *, samples: int, seed: int, limit: int) -> Iterator[tuple[list[str], bool]]:
        """The tokens of sampled answers, and whether each ended with eos."""
        import torch

        from searchformer.model import load_model
        from searchformer.model.device import use_fitting_threads
        from searchformer.rollout import Engine

        model, vocabulary = load_model(self.directory)
        use_fitting_threads(model.config.dim, torch.device("cpu"))
        engine = Engine(model, vocabulary, slots=samples)
        most = min(limit, model.config.most_tokens)
        asked = {"samples": samples, "seed": seed, "top_p": TOP_P, "max_tokens": most}
        for answer in engine.sample_all([list(self.prompt)], **asked):
            yield vocabulary.decode(answer.tokens), answer.finish == "eos"


def _by_model(sampler: AnswerSampler, astar: Solution, *, samples: int, seed: int, limit: int) -> Solution:
    """The model's best valid answer; `astar` if there is none."""
    task, judge = astar.task, Judge(astar.task.domain)
    judged: list[tuple[Verdict, list[str]]] = []
    for tokens, finished in sampler.answers(samples=samples, seed=seed, limit=limit):
        codes = codes_of(task.domain, tokens)
        asked: dict[str, Any] = {"optimal_length": len(astar.plan), "finished": finished, "judge_trace": False}
        verdict = judge.judge(task.problem, codes, **asked)
        judged.append((verdict, tokens))
    answers = dict(Counter(verdict.verdict for verdict, _ in judged))
    valid = [each for each in judged if each[0].verdict != INVALID]
    if not valid:
        reasons = Counter(str(verdict.reason).split(" at ")[0] for verdict, _ in judged).most_common(2)
        why = ", ".join(f"{reason} {'once' if times == 1 else f'{times} times'}" for reason, times in reasons)
        note = f"none of the model's {samples} answers solves the task ({why}): planned by A*"
        return replace(astar, answers=answers, notes=(note,))
    verdict, tokens = min(valid, key=lambda each: preference(each[0]))
    plan = [step.state for step in cut_steps(tokens) if step.kind == "plan"]
    return replace(
        astar,
        planner="model",
        plan=np.array(World(task.domain, task.problem).walk(plan), dtype=np.int32),
        optimal=verdict.verdict == OPTIMAL,
        effort=_effort(verdict),
        model=_mean([_effort(each) for each, _ in valid]),
        answers=answers,
        found=tokens,
    )


def _effort(verdict: Verdict) -> Effort:
    return Effort(verdict.created, verdict.closed, verdict.trace_length)


def _listed(size: dict[str, int]) -> str:
    """A size in words."""
    return ", ".join(f"{name} {value}" for name, value in size.items())


def preference(verdict: Verdict) -> tuple[bool, int, int]:
    """Smaller is better: optimal first, then the shortest plan, then the shortest trace."""
    return verdict.verdict != OPTIMAL, verdict.plan_length, verdict.trace_length
