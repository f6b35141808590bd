"""Planning tasks as questions for language models, with our judge as the reward.

In: a domain, or a file of tasks. Out: questions in plain text, and for every answer a score of four parts: is the plan
optimal, is it valid, is the search that it shows a true one, and how long is that. The data set has the interface of
reasoning-gym's: `len`, indexing, `score_answer`.

    questions = PlanningQuestions("maze", size=100, settings={"width": 6, "height": 6})
    questions.score_answer("rrdd", questions[0])
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from searchformer.domains import Domain, make_domain
from searchformer.errors import SearchformerError
from searchformer.evaluate.judge import INVALID, OPTIMAL, Judge
from searchformer.interop.tasks import usable_tasks
from searchformer.search import Options, Searcher
from searchformer.search.world import World
from searchformer.seeding import child_seed
from searchformer.solve import Task, make_task, random_task

PLAN_WEIGHTS = {"plan_optimal": 0.5, "plan_valid": 0.5, "trace_sound": 0.0, "search_length": 0.0}
SEARCH_WEIGHTS = {"plan_optimal": 0.4, "plan_valid": 0.2, "trace_sound": 0.2, "search_length": 0.2}
"""Weights of the parts where answers are plans, and where they are to show their search; each add up to 1."""
RULES = {
    "maze": "Walk from S to G, one cell up, down, left or right at a time; '#' is a wall, '.' is free.",
    "sokoban": (
        "Push every box ($) onto a dock (.). @ is the worker (+ on a dock), # a wall, * a box on its dock. The worker "
        "walks up, down, left or right, and pushes a box if the cell behind it is free."
    ),
}
ASK_PLAN = (
    "Find a shortest plan. Answer with its moves alone, a letter each (u up, d down, l left, r right), "
    "as in <answer>rrdl</answer>."
)
ASK_SEARCH = (
    "The same task in tokens (x from the left, y from the top, both from 0): {prompt}\n"
    "Search for a shortest plan as A* does with the Manhattan distance, and show the search: `create STATE cG cH` for "
    "every node put into the frontier, `close STATE cG cH` for every node taken out, with its cost so far G and its "
    "estimate H; then `plan X Y` for every position of the plan, the first included. A STATE is written as {state}. "
    "Put all of it into <answer>...</answer>."
)
ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL | re.IGNORECASE)
MOST_CHARACTERS = 1_000_000
"""Of an answer; a longer one scores nothing."""


@dataclass(frozen=True)
class RewardParts:
    """What an answer is worth, each part from 0 to 1."""

    plan_optimal: float
    """1 if the plan is valid and as short as can be."""
    plan_valid: float
    """1 if the answer follows the grammar and its plan solves the task."""
    trace_sound: float
    """1 if it shows a search in which every step is true."""
    search_length: float
    """Tokens of A*'s own search over those of the answer's, at most 1; 0 unless plan and search are right."""

    def weighted(self, weights: Mapping[str, float]) -> float:
        """The sum of the parts times their weights."""
        return sum(weights.get(name, 0.0) * value for name, value in vars(self).items())


class PlanningQuestions(Sequence[dict[str, Any]]):
    """Questions about tasks of one domain: drawn at random by (seed, index), or those of a file."""

    def __init__(
        self,
        domain: str = "maze",
        *,
        size: int = 100,
        seed: int = 0,
        settings: dict[str, Any] | None = None,
        tasks: str | None = None,
        search: bool = False,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        """With `search`, answers are to show their search. `tasks` is a file that `searchformer trace` reads."""
        if domain not in RULES:
            raise SearchformerError(f"questions are asked about {' and '.join(RULES)}; found {domain!r}")
        self.domain, self.seed, self.search = make_domain(domain, settings or {}), seed, search
        self.weights = dict(weights or (SEARCH_WEIGHTS if search else PLAN_WEIGHTS))
        self.tasks = usable_tasks(tasks, domain=domain)[:size] if tasks is not None else None
        self.size = size if self.tasks is None else len(self.tasks)

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[index] for index in range(len(self)))

    def __getitem__(self, index: int) -> dict[str, Any]:  # type: ignore[override]
        """`question`, `answer` (a shortest plan as moves, empty if there is none) and `metadata`."""
        if not -self.size <= index < self.size:
            raise IndexError(f"there are {self.size} questions; asked for is {index}")
        index %= self.size
        if self.tasks is None:
            task = random_task(self.domain, seed=child_seed(self.seed, "question", index))
        else:
            task = self.tasks[index]
        record = task.domain.decode(task.problem)
        reference = _reference(task.domain, task.problem.tobytes())
        metadata = {
            "source_dataset": f"searchformer/{self.domain.name}",
            "source_index": index,
            "task": record,
            "optimal_moves": len(reference.moves) if reference.solvable else None,
        }
        return {"question": question(task, search=self.search), "answer": reference.moves, "metadata": metadata}

    def score_answer(self, answer: str | None, entry: dict[str, Any]) -> float:
        """The weighted sum of the answer's parts, from 0 to 1."""
        return self.reward_parts(answer, entry).weighted(self.weights)

    def reward_parts(self, answer: str | None, entry: dict[str, Any]) -> RewardParts:
        """The parts of an answer's score."""
        return reward_parts(answer, entry["metadata"]["task"], domain=self.domain.name)


def question(task: Task, *, search: bool = False) -> str:
    """A task as a question in plain text."""
    name, drawing = task.domain.name, task.domain.draw(task.problem)
    if not search:
        return f"{RULES[name]}\n\n{drawing}\n\n{ASK_PLAN}"
    world = World(task.domain, task.problem)
    state = f"`{' '.join(world.state_tokens(world.start()))}` for the start"
    return f"{RULES[name]}\n\n{drawing}\n\n{ASK_SEARCH.format(prompt=' '.join(world.prompt_tokens()), state=state)}"


def extract_answer(text: str) -> str:
    """The answer in a language model's text: in <answer> tags, else the last line."""
    if tagged := ANSWER.findall(text):
        return tagged[-1].strip()
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return re.sub(r"^(?:final )?(?:answer|plan|moves)\s*:\s*", "", lines[-1], flags=re.IGNORECASE) if lines else ""


def reward_parts(answer: str | None, record: dict[str, Any], *, domain: str) -> RewardParts:
    """Judge a language model's text as an answer to the task `record`."""
    if not isinstance(answer, str) or len(answer) > MOST_CHARACTERS:
        return RewardParts(0.0, 0.0, 0.0, 0.0)
    task = make_task(record, name=domain)
    reference = _reference(task.domain, task.problem.tobytes())
    found = _judge(task.domain).judge_text(task.problem, extract_answer(answer))
    valid, sound = found.verdict != INVALID, bool(found.trace_sound)
    length = min(1.0, reference.trace_tokens / found.trace_length) if valid and sound and found.trace_length else 0.0
    return RewardParts(float(found.verdict == OPTIMAL), float(valid), float(sound), length)


@dataclass(frozen=True)
class _Reference:
    """What A* makes of a task."""

    solvable: bool
    moves: str
    trace_tokens: int


@lru_cache(maxsize=64)
def _judge(domain: Domain) -> Judge:
    return Judge(domain)


@lru_cache(maxsize=64)
def _searcher(domain: Domain) -> Searcher:
    return Searcher(domain, Options(deterministic=True))


@lru_cache(maxsize=4096)
def _reference(domain: Domain, problem: bytes) -> _Reference:
    """A*'s deterministic search of a problem, given as int32 bytes so that it can be remembered."""
    array = np.frombuffer(problem, dtype=np.int32)
    searcher = _searcher(domain)
    found = searcher.search(array)
    moves = domain.moves(array, found.plan) if found.solvable else ""
    return _Reference(found.solvable, (moves or "").lower(), searcher.trace_length(array))
