"""What the browser and the server say to each other, each field with its limits: the OpenAPI document."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

MAX_SIDE = 40
"""Longest side of a grid, in cells."""
MAX_SAMPLES = 64
"""Answers per question."""
MAX_TOKENS = 4000
"""Tokens of an answer."""
MAX_REQUEST = 256 * 1024
"""Bytes of a request."""
MAX_LEVELS = 500
"""Levels that are read of one collection."""

Coordinate = Annotated[int, Field(ge=0, lt=MAX_SIDE)]
Side = Annotated[int, Field(ge=2, le=MAX_SIDE)]
Cell = Annotated[list[Coordinate], Field(min_length=2, max_length=2)]
Token = Annotated[str, Field(min_length=1, max_length=8, pattern=r"^[a-z0-9]+$")]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Algorithm = Literal["astar", "dijkstra", "weighted", "greedy"]
Name = Annotated[str, Field(min_length=1, max_length=200)]


class Record(BaseModel):
    """Checked, frozen, nothing extra."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)


# --- from the browser


class MazeTask(Record):
    """A maze. (0, 0) is the cell on the upper left."""

    width: Side
    height: Side
    start: Cell
    goal: Cell
    walls: list[Cell] = Field(max_length=MAX_SIDE * MAX_SIDE)


class SokobanTask(Record):
    """A Sokoban level: `#` wall, `@` worker, `$` box, `.` dock, `*` box on a dock, `+` worker on a dock."""

    level: list[Annotated[str, Field(max_length=MAX_SIDE)]] = Field(min_length=1, max_length=MAX_SIDE)


def _kind_of_task(task: Any) -> str:
    """Which of the two a task is to be read as, so that errors speak of one of them."""
    return "sokoban" if isinstance(task, SokobanTask) or (isinstance(task, dict) and "level" in task) else "maze"


TaskRecord = Annotated[
    Annotated[MazeTask, Tag("maze")] | Annotated[SokobanTask, Tag("sokoban")],
    Discriminator(_kind_of_task),
]


class NewTask(Record):
    """Which task to draw."""

    domain: Literal["maze", "sokoban"] = "maze"
    kind: Literal["random", "perfect", "empty"] = "random"
    """For mazes: the paper's random walls, a maze with one way between any two cells, or no walls."""
    width: Side | None = None
    """The size that a packaged model was trained for if left out."""
    height: Side | None = None
    seed: Seed = 0
    boxes: int | None = Field(default=None, ge=1, le=4)
    """For Sokoban."""


class SearchRequest(Record):
    """A search by a classical algorithm."""

    task: TaskRecord
    algorithm: Algorithm = "astar"
    weight: float = Field(default=2.0, ge=1, le=100)
    """Of the estimate, with the algorithm `weighted`."""
    deterministic: bool = False
    """Ties by the domain's order; otherwise at random, and children in random order."""
    seed: Seed = 0


class PlanRequest(Record):
    """A task to find a shortest plan for."""

    task: TaskRecord


class Question(Record):
    """A question to a model."""

    task: TaskRecord
    model: Name | None = None
    """One of `/api/models`; the packaged one that fits the task if left out."""
    samples: int = Field(default=1, ge=1, le=MAX_SAMPLES)
    first: int = Field(default=0, ge=0, lt=10_000)
    """The number of the first answer: another number, another answer; the same number, the same."""
    temperature: float = Field(default=1.0, ge=0, le=5)
    seed: Seed = 0


class InsideRequest(Record):
    """A place in an answer of a model."""

    task: TaskRecord
    model: Name | None = None
    tokens: list[Token] = Field(max_length=MAX_TOKENS)
    """The answer up to that place."""


class StoredPlace(Record):
    """Where a run keeps an answer."""

    run: Name
    task_id: Name
    evaluation: str = Field(max_length=400)
    sample: int = Field(ge=0, lt=100_000)


class ReplayRequest(SearchRequest):
    """What to put on a page of its own: a classical search and a model's answer, or stored answers in their places."""

    tokens: list[Token] = Field(default=[], max_length=MAX_TOKENS)
    """The model's answer."""
    finished: bool = True
    """Whether the model ended it."""
    model: Name | None = None
    left: StoredPlace | None = None
    right: StoredPlace | None = None


class LevelsText(Record):
    """A collection of Sokoban levels as text (.xsb, .txt, .sok, .slc)."""

    text: str = Field(max_length=MAX_REQUEST)


# --- to the browser


class Step(Record):
    """A step of a search or of a plan."""

    kind: Literal["create", "close", "plan"]
    at: int
    """Where its first token stands in the answer."""
    cells: list[list[int]]
    """Where the walker or worker is, then the boxes."""
    cost: int | None = None
    estimate: int | None = None
    wrong: str | None = None
    """What the validator says of it."""
    unsound: bool = False
    """Whether the step is untrue, and not only out of A*'s order."""


class Search(Record):
    """A whole search, to be played step by step."""

    who: str
    tokens: list[str]
    steps: list[Step]
    created: int
    closed: int
    trace_tokens: int
    plan_length: int
    """Nodes of the plan; -1 without one."""
    optimal_length: int
    """Nodes of a shortest plan; -1 if the task has none."""
    shortest_search: int
    """Trace tokens of the shortest search that finds an optimal plan: it creates and closes nothing else."""
    verdict: Literal["optimal", "feasible", "invalid", "unsolvable"]
    reason: str | None = None
    """Why the plan is invalid."""
    legal: bool | None = None
    """Whether the search is a run of A*."""
    sound: bool | None = None
    """Whether everything that it says is true."""
    violation: str | None = None
    sample: int = 0


class Plan(Record):
    """A shortest plan."""

    solvable: bool
    moves: str
    """u, d, l, r; capitals push."""
    cells: list[list[list[int]]]
    """The states on the way, as in a step."""


class Lengths(Record):
    """How long A*'s searches of a task are, from one run to the next."""

    trace_tokens: list[int]
    shortest_search: int
    optimal_length: int


class TokenProbability(Record):
    token: str
    probability: float


class Look(Record):
    """How much attention a position gets, and the cells that its tokens name."""

    tokens: list[str]
    cells: list[list[int]]
    weights: list[list[float]]
    """By layer and head."""


class InsideView(Record):
    """What the network does before it writes the next token."""

    model: str
    unit: Literal["token", "step"]
    layers: int
    heads: int
    next_tokens: list[TokenProbability]
    """The likeliest five."""
    prompt: list[Look]
    answer: list[Look]


class ModelView(Record):
    """A model that can be asked."""

    name: str
    domain: str
    width: int | None
    height: int | None
    boxes: int | None
    unit: Literal["token", "step"]
    parameters: int | None
    searches: bool
    """Whether it writes a search before the plan."""


class LevelView(Record):
    title: str
    level: list[str]


class RunView(Record):
    name: str
    has_report: bool


class EvaluationView(Record):
    """One model's answers in a run."""

    name: str
    label: str
    tasks: int
    samples: int
    optimal: float | None
    """Share of optimal answers."""
    length_ratio: float | None
    """A*'s mean length over the model's."""


class StoredTask(Record):
    task_id: str
    evaluations: int
    """How many of the run's models answered it."""
    optimal_length: int


class RunDetail(RunView):
    evaluations: list[EvaluationView]
    tasks: list[StoredTask]


class StoredAnswer(Record):
    sample: int
    verdict: str
    trace_tokens: int
    plan_length: int


class StoredAnswers(Record):
    evaluation: str
    label: str
    model: str | None
    """The model's name among those that can be asked, if it is one of them."""
    answers: list[StoredAnswer]


class TaskDetail(Record):
    """A test task of a run, A*'s search of it, and what every model answered."""

    task: TaskRecord
    astar: Search
    evaluations: list[StoredAnswers]


class Problem(Record):
    """Why a request was refused."""

    detail: str


class Example(Record):
    """A task with two searches of it."""

    task: TaskRecord
    seed: Seed
    """Of A*'s search."""
    left: Search
    right: Search | None
    """The answer of a model; none where another model is asked first."""
    model_digest: str = ""
    """Of the weights of the model that answered."""


class Load(Record):
    """How busy the server is."""

    questions: int
    slots: int
