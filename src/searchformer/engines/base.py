"""The one seam between a stage and where it runs: map a job over items, then merge what comes back.

A stage gives a picklable function that makes the job: it is called once in every worker, so that a worker builds its
kernels or loads its model once. The job is then called with one item at a time; it is a generator that yields how far
it is and returns the item's result. What a stage merges must not depend on which worker did what, or when: then every
engine gives the same result.

A worker may die at any moment (no memory, a node that is gone). Its item is given to another one; an item that ends
its worker every time fails alone: the others are finished first, then the error says which item failed and why. So a
job must be able to do an item that was half done before. An exception of the job itself ends the map at once.

Adding an engine is one file with a class like `LocalEngine`, and a name in `options.py`.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from searchformer.errors import SearchformerError

ATTEMPTS = 3
"""How many workers an item may cost before it counts as failed."""

Job = Callable[[Any], Generator[Any, None, Any]]
"""Called with an item: yields messages, returns the item's result."""
MakeJob = Callable[[], Job]
"""Makes the job in a worker. It is pickled: a function of a module, or a `functools.partial` of one."""


@dataclass(frozen=True)
class Told:
    """A worker tells how far it is."""

    index: int
    """Which item, in the order given."""
    message: Any


@dataclass(frozen=True)
class Done:
    """An item is finished."""

    index: int
    result: Any


class Crew(Protocol):
    """Workers that are ready for items of one job."""

    def map(self, items: Sequence[Any]) -> Iterator[Told | Done]:
        """Do all items, in any order; results come as they are finished. Raises if any item failed."""


class Engine(Protocol):
    """Something that runs jobs."""

    @property
    def gpus(self) -> int:
        """GPUs that workers on other machines bring; 0 if only those of this machine count."""

    def worker_count(self, asked: int | None, *, default: int) -> int:
        """How many workers a crew gets if so many are asked for; `default` is the stage's number on one machine."""

    def crew(self, make: MakeJob, *, workers: int, gpu: bool = False) -> AbstractContextManager[Crew]:
        """Start workers, each with a GPU of its own if `gpu`; they end with the block."""


class Attempts:
    """Counts how often each item has cost a worker, and what ended them."""

    def __init__(self, *, at_most: int = ATTEMPTS) -> None:
        self.at_most = at_most
        self.deaths: dict[int, list[str]] = {}

    def died(self, index: int, reason: str) -> bool:
        """Note that a worker died on the item; whether it may be tried again."""
        self.deaths.setdefault(index, []).append(reason)
        return len(self.deaths[index]) < self.at_most

    def raise_failures(self, items: Sequence[Any]) -> None:
        """Raise if items were given up, naming the first."""
        failed = {index: reasons for index, reasons in self.deaths.items() if len(reasons) >= self.at_most}
        if failed:
            index, reasons = min(failed.items())
            more = f", and {len(failed) - 1} more" if len(failed) > 1 else ""
            raise SearchformerError(
                f"{items[index]} ended {len(reasons)} workers ({reasons[-1]}){more}; the rest is done and kept: "
                "run the same command again to try what failed once more"
            )


def results_in_order(crew: Crew, items: Sequence[Any], *, told: Callable[[Told], None] | None = None) -> list[Any]:
    """Map, and the results in the order of the items; `told` gets what the workers tell."""
    results: dict[int, Any] = {}
    for event in crew.map(items):
        if isinstance(event, Done):
            results[event.index] = event.result
        elif told is not None:
            told(event)
    return [results[index] for index in range(len(items))]
