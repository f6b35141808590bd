"""What a planning domain is, and where domains are registered.

A domain is a class with settings (sizes, number of walls), a handful of plain functions on integer arrays (`Rules`),
and its tokens. The functions are compiled with numba, or run as they are where they cannot be. The arrays:

- `problem`: int32, one task, in a layout that the domain chooses.
- `state`: int32 of shape [state_size], one state of that task. Only `start` writes to it.
- `tokens`: int32 buffer. Write `n >= 0` for the token "n", and `-1 - k` for the word `words[k]`.

Third parties register a class under the entry point `searchformer.domains`; see docs/contributing/domain.md.
"""

import importlib.metadata
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import Any, ClassVar, Literal, NamedTuple, Union, get_args, get_origin

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from searchformer.errors import SearchformerError, cut, shown
from searchformer.options import error_message
from searchformer.seeding import digest

DEAD_END = -1
"""What a heuristic returns for a state from which no goal can be reached: it is never created."""

KEYWORDS = ("create", "close", "plan")
"""Words of every domain's responses."""

Groups = list[tuple[str | None, tuple[int, ...]]]
"""A parsed prompt or state: words (or None) with the numbers behind them, in order."""


class TaskError(SearchformerError):
    """A task from outside is not one of this domain."""


class Rules(NamedTuple):
    """A domain's functions, written in the part of Python that numba compiles. None stands for the default."""

    successors: Callable
    """(problem, state, children[max_children, state_size]) -> count: write the states one move away, cost 1 each."""
    heuristic: Callable
    """(problem, state) -> int: a lower bound of the cost to the goal, or DEAD_END."""
    write_prompt: Callable
    """(problem, tokens) -> count: the task."""
    write_state: Callable
    """(problem, state, tokens) -> count: the state, as in a trace step."""
    sample_task: Callable
    """(settings, stream, problem) -> bool: draw a task; False if that failed. `settings` is `Domain.sampling()`."""
    sample_layout: Callable | None = None
    """(settings, stream, problem) -> bool: first, draw what tasks may share, such as walls. Default: nothing."""
    accepts: Callable | None = None
    """(problem, plan_nodes) -> bool: is the sampled task worth keeping? Default: every solvable one."""
    foresee: Callable | None = None
    """(problem) -> nodes of the shortest plan, 0 if there is none, -1 if unknown: spares searches. Default: unknown."""
    start: Callable | None = None
    """(problem, state) -> None: write the start state. Default: the last state_size entries of `problem`."""
    is_goal: Callable | None = None
    """(problem, state) -> bool. Default: the heuristic is 0."""
    write_plan: Callable | None = None
    """(problem, state, tokens) -> count: as in a plan step; tells a node's successors apart. Default: write_state."""
    tie_rank: Callable | None = None
    """(problem, state) -> int: of the nodes of least f, deterministic search closes the lowest. Default: the oldest."""
    state_index: Callable | None = None
    """(problem, state) -> a number below len(problem) that no other state has. Default: states are hashed."""


@dataclass(frozen=True)
class Group:
    """Part of a prompt or a state: a word (or none), then numbers; repeated between `least` and `most` times."""

    word: str | None
    limits: tuple[int, ...]
    """Every number's exclusive upper limit."""
    least: int = 1
    most: int = 1


class Shapes(NamedTuple):
    """The groups of a prompt, of a trace step's state, and of a plan step."""

    prompt: tuple[Group, ...]
    state: tuple[Group, ...]
    plan: tuple[Group, ...]


class Domain(BaseModel):
    """A planning domain with its settings. Subclasses add a documented field per setting."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: ClassVar[str]
    """Name in the registry and on the command line."""
    words: ClassVar[tuple[str, ...]]
    """The domain's own words; `KEYWORDS` come on top."""
    rules: ClassVar[Any]
    """The functions: `Rules`, or a property that gives them."""
    compiled: ClassVar[bool] = True
    """False for rules that numba cannot compile: they run as plain Python."""
    max_children: ClassVar[int] = 4
    """Most successors of a state."""
    marks: ClassVar[dict[str, str]] = {}
    """What the characters of `draw` stand for, for a legend."""
    shares_layouts: ClassVar[bool] = False
    """Whether several tasks may be drawn on one layout (`--start-goal-pairs`)."""

    max_cost: int | None = Field(None, ge=1, description="highest cost token; by default sized to the domain")

    @property
    @abstractmethod
    def shapes(self) -> Shapes:
        """What prompts, trace steps and plan steps look like."""

    @abstractmethod
    def build(self, groups: Groups) -> np.ndarray:
        """The problem of a prompt's groups; raises TaskError. Called by `parse_prompt`, when they fit the shape."""

    @abstractmethod
    def draw(self, problem: np.ndarray, state: np.ndarray | None = None) -> str:
        """The task, or one of its states, as text."""

    @property
    def numbers(self) -> int:
        """Number tokens are "0" to str(numbers - 1)."""
        return max(limit for shape in self.shapes for group in shape for limit in group.limits)

    @property
    def costs(self) -> int:
        """Cost tokens are "c0" to f"c{costs - 1}"; searches with higher costs are rejected when data is made."""
        return 1 + (self.max_cost or 1023)

    def sampling(self) -> np.ndarray:
        """The settings that are whole numbers, in order of declaration, for the sampling functions; -1 for None."""
        fields = type(self).model_fields.items()
        names = [name for name, field in fields if name != "max_cost" and _is_whole_number(field.annotation)]
        values = [getattr(self, name) for name in names]
        return np.array([value if isinstance(value, int) else -1 for value in values], dtype=np.int64)

    def problem_size(self) -> int:
        """Length of a sampled `problem`: width and height, then one entry per number of the prompt."""
        return 2 + sum(len(group.limits) * group.most for group in self.shapes.prompt)

    def state_size(self, problem: np.ndarray) -> int:
        """Length of a state of this task: by default, one entry per number of a trace step."""
        return sum(len(group.limits) * group.most for group in self.shapes.state)

    def encode(self, record: dict[str, Any]) -> np.ndarray:
        """The problem of a task in JSON; raises TaskError. By default the record is {"prompt": "..."}."""
        if not isinstance(record.get("prompt"), str):
            raise TaskError(f'a task of the domain {self.name} needs "prompt", a text of tokens; found {shown(record)}')
        return self.parse_prompt(record["prompt"].split())

    def decode(self, problem: np.ndarray) -> dict[str, Any]:
        """The task in JSON."""
        tokens = np.zeros(self.prompt_room(problem), dtype=np.int32)
        count = self.rules.write_prompt(problem, tokens)
        return {"prompt": " ".join(self.token_text(code) for code in tokens[:count].tolist())}

    def layout(self, problem: np.ndarray) -> np.ndarray:
        """The part that decides whether tasks [..., problem_size] are for training or testing; by default all of it."""
        return problem

    def symmetric(self, problem: np.ndarray) -> list[np.ndarray]:
        """The same task rotated and reflected, itself included."""
        return [problem]

    def measure(self, problem: np.ndarray) -> dict[str, int]:
        """The settings that can be read off a task, such as its size; they may differ from this domain's."""
        return {}

    def sized(self, problem: np.ndarray) -> "Domain":
        """This domain in the task's own size; a task from outside may be beyond what the settings can sample."""
        return self.model_copy(update=self.measure(problem))

    def fitted(self, problem: np.ndarray) -> np.ndarray:
        """The task as it stands in data sets of these settings, such as a small maze walled in; by default itself."""
        return problem

    def moves(self, problem: np.ndarray, plan: np.ndarray) -> str | None:
        """A plan's states [L, state_size] as a letter per move; None where the domain has no such notation."""
        return None

    def prompt_room(self, problem: np.ndarray) -> int:
        """Tokens that suffice for the prompt of this task."""
        return 16 + 4 * len(problem)

    def state_room(self, problem: np.ndarray) -> int:
        """Tokens that suffice for a trace step's state, keyword and costs."""
        return 8 + 4 * self.state_size(problem)

    @property
    def all_words(self) -> tuple[str, ...]:
        """The domain's words and the keywords of responses; word k has the token code -1 - k."""
        return (*self.words, *KEYWORDS)

    def token_text(self, code: int) -> str:
        """The token that a rule means by `code`."""
        return str(code) if code >= 0 else self.all_words[-1 - code]

    def token_list(self) -> list[str]:
        """Every token that the domain writes, without bos and eos: words (the last first), numbers, costs."""
        numbers, costs = range(self.numbers), range(self.costs)
        return [*reversed(self.all_words), *map(str, numbers), *(f"c{cost}" for cost in costs)]

    def parse_prompt(self, tokens: Sequence[str]) -> np.ndarray:
        """The problem that a prompt's tokens describe; raises TaskError."""
        return self.build(parse_groups(list(tokens), self.shapes.prompt))

    def task_id(self, problem: np.ndarray) -> str:
        """Identity of a task: the digest of its name and its problem as little-endian int32."""
        return digest(self.name.encode() + problem.astype("<i4").tobytes())

    def layout_id(self, problem: np.ndarray) -> str:
        """Identity of a task's layout."""
        return digest(self.name.encode() + self.layout(problem).astype("<i4").tobytes())


def _is_whole_number(annotation: Any) -> bool:
    """Whether a setting of this type can be a whole number: `int`, `bool`, `int | None`, `Literal[4, 8]`."""
    if get_origin(annotation) in (Union, UnionType, Literal):
        return any(map(_is_whole_number, get_args(annotation)))
    return annotation in (int, bool) or isinstance(annotation, int)


def parse_groups(tokens: Sequence[str], shape: tuple[Group, ...]) -> Groups:
    """Tokens taken apart by `shape`; raises TaskError with the position of the first token that does not fit."""
    groups: Groups = []
    at = 0
    for group in shape:
        count = 0
        while count < group.most and (group.word is None or (at < len(tokens) and tokens[at] == group.word)):
            first = at + (group.word is not None)
            values = tuple(_number(tokens, first + k, limit) for k, limit in enumerate(group.limits))
            groups.append((group.word, values))
            at, count = first + len(values), count + 1
        if count < group.least:
            found = shown(tokens[at]) if at < len(tokens) else "the end"
            raise TaskError(f"token {at}: expected {shown(group.word)}; found {found}")
    if at < len(tokens):
        raise TaskError(f"token {at}: expected the end; found {shown(tokens[at])}")
    return groups


def _number(tokens: Sequence[str], at: int, limit: int) -> int:
    found = tokens[at] if at < len(tokens) else "the end"
    readable = found.isascii() and found.isdigit() and len(found) < 10  # Python refuses to read very long numbers
    if not (readable and str(int(found)) == found and int(found) < limit):
        raise TaskError(f"token {at}: expected a number from 0 to {limit - 1}; found {shown(found)}")
    return int(found)


@cache
def _entry_points() -> dict[str, importlib.metadata.EntryPoint]:
    return {entry.name: entry for entry in importlib.metadata.entry_points(group="searchformer.domains")}


def domain_names() -> list[str]:
    """Names of all registered domains."""
    return sorted(_entry_points())


@cache
def domain_class(name: str) -> type[Domain]:
    """The class registered under `name`."""
    try:
        entry = _entry_points()[name]
    except KeyError:
        raise SearchformerError(f"no domain is called {shown(name)}; there are {', '.join(domain_names())}") from None
    try:
        found = entry.load()
    except (ImportError, AttributeError) as error:
        raise SearchformerError(f"the domain {shown(name)} cannot be loaded from {entry.value}: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Domain)):
        raise SearchformerError(
            f"the domain {shown(name)} must be a class derived from Domain; {entry.value} is {shown(found)}"
        )
    return found


def make_domain(name: str, settings: dict[str, Any] | None = None) -> Domain:
    """The domain `name` with these settings; errors name the setting."""
    try:
        return domain_class(name)(**(settings or {}))
    except ValidationError as error:
        first = error.errors()[0]
        message = error_message(first).replace("option", "setting")
        if not first["loc"]:
            raise SearchformerError(f"{name}: {message}") from None
        place = cut(".".join(map(str, first["loc"])))
        found = "" if first["type"] in ("extra_forbidden", "value_error") else f"; found {shown(first['input'])}"
        raise SearchformerError(f"{name}: {place}: {message}{found}") from None
