"""The options of `searchformer generate`."""

from typing import Any, Literal

from pydantic import Field

from searchformer.options import OptionsModel


class AlgorithmOptions(OptionsModel):
    """Which search."""

    algorithm: Literal["astar", "dijkstra", "weighted", "greedy"] = "astar"
    """Search algorithm of the traces."""
    weight: float = 1.0
    """Weight of the heuristic, for the algorithm `weighted`."""


class SearchOptions(AlgorithmOptions):
    """How tasks are searched."""

    deterministic: bool = False
    """Break ties by the domain's fixed order instead of at random."""
    seed: int = 0
    """Same seed, same tasks and traces."""
    max_expansions: int = Field(default=10_000_000, ge=1)
    """Give up a search that closes more nodes than this."""


class TaskOptions(SearchOptions):
    """Which tasks are drawn and how they are searched, whatever the domain."""

    tasks: int = Field(default=1000, ge=1)
    """Distinct tasks, training and test together."""
    test_fraction: float = Field(default=0.1, ge=0, le=1)
    """Share of layouts that belong to the test split."""
    max_trace_tokens: int | None = Field(default=None, ge=1)
    """Reject tasks with longer traces; no limit if left out."""
    start_goal_pairs: int = Field(default=1, ge=1)
    """Tasks tried on each layout, for domains whose tasks share layouts, such as mazes."""


class GenerateOptions(TaskOptions):
    """How a data set is made. Each option may change every row, but for `tasks`, which decides how many there are."""

    domain: str
    """Name of the domain."""
    settings: dict[str, Any] = Field(default={})
    """The domain's own settings."""
