"""Workers that are actors of a Ray cluster: one you have, or one that Ray starts on this machine.

Actors, not tasks or Ray Data: a worker loads a model or compiles its kernels once and keeps them, and an actor takes
the next item as it finishes one. Every machine needs this package and sees the working directories under the same
paths. A node that is lost costs the items that its workers were at; the other workers do them.
Try: `searchformer generate maze --tasks 100000 --engine ray --out runs/mazes`.
"""

import contextlib
import os
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from searchformer.engines.base import Attempts, Crew, Done, MakeJob, Told
from searchformer.engines.local import SAVE_SECONDS, events_of
from searchformer.errors import SearchformerError, cut
from searchformer.extras import require

POLL_SECONDS = 0.5
"""How often busy workers are asked how far they are."""
FAILED_STARTS = 3
"""So many workers that die before they are ready, and none that is, mean that none ever will."""


class RayEngine:
    """Runs jobs on a Ray cluster."""

    def __init__(self, address: str | None = None) -> None:
        ray = _require_ray()
        if not ray.is_initialized():
            where = address or os.environ.get("RAY_ADDRESS")
            more: dict[str, Any] = {"address": where} if where else {"include_dashboard": False}
            try:
                ray.init(log_to_driver=False, logging_level="ERROR", **more)
            except (ConnectionError, ValueError, RuntimeError) as error:
                place = f"at {where}" if where else "on this machine"
                raise SearchformerError(f"no Ray cluster {place}: {cut(str(error))}") from error
        self.resources = ray.cluster_resources()

    @property
    def gpus(self) -> int:
        """GPUs of the cluster."""
        return int(self.resources.get("GPU", 0))

    def worker_count(self, asked: int | None, *, default: int) -> int:
        """As many as asked for; if none were, one per GPU or else one per processor of the cluster."""
        return asked or self.gpus or int(self.resources.get("CPU", default)) or default

    @contextlib.contextmanager
    def crew(self, make: MakeJob, *, workers: int, gpu: bool = False) -> Iterator[Crew]:
        """Start the actors when there is something to do."""
        crew = _Actors(make, workers, gpu=gpu)
        try:
            yield crew
        finally:
            crew.stop()


class _Worker:
    """What an actor does. Its two methods run side by side."""

    def __init__(self, make: MakeJob) -> None:
        self.make, self.told = make, deque[Any]()
        self.job: Any = None
        self.stopping = False

    def ready(self) -> None:
        """Make the job."""
        self.job = self.make()

    def run(self, index: int, item: Any) -> tuple[Any, list[Any]]:
        """Do one item; its result, and what it told that nobody has asked for."""
        with contextlib.closing(events_of(self.job, index, item)) as events:
            for event in events:
                if isinstance(event, Done):
                    return event.result, self.messages()
                self.told.append(event.message)
                if self.stopping:
                    break  # the job is closed, and saves what it holds
        return None, self.messages()

    def messages(self) -> list[Any]:
        """What `run` has told since it was last asked."""
        return [self.told.popleft() for _ in range(len(self.told))]

    def stop(self) -> None:
        """Ask `run` to end as soon as it has something to tell."""
        self.stopping = True


class _Actors:
    """Actors that take the next item as they finish one."""

    def __init__(self, make: MakeJob, count: int, *, gpu: bool) -> None:
        self.ray = _require_ray()
        needs = {"num_cpus": 1, "num_gpus": 1 if gpu else 0, "max_concurrency": 2, "scheduling_strategy": "SPREAD"}
        self.kind = self.ray.remote(**needs)(_Worker)
        self.make, self.count = make, count
        self.idle: list[Any] = []
        self.running: dict[Any, tuple[Any, int]] = {}
        """Actors and the index of their item, by what they will answer."""
        self.starting: dict[Any, Any] = {}
        """Actors by what they answer when they are ready."""
        self.failed_starts = 0

    def map(self, items: Sequence[Any]) -> Iterator[Told | Done]:
        """Give out the items; one whose actor dies is given to another."""
        waiting, attempts, running = deque(range(len(items))), Attempts(), self.running
        while len(self.idle) + len(self.starting) < min(self.count, len(items)):
            self._start()
        while waiting or running:
            while self.idle and waiting:
                actor, index = self.idle.pop(), waiting.popleft()
                running[actor.run.remote(index, items[index])] = (actor, index)
            finished, _ = self.ray.wait([*running, *self.starting], num_returns=1, timeout=POLL_SECONDS)
            for reference in finished:
                if reference in self.starting:
                    self._started(reference)
                else:
                    actor, index = running.pop(reference)
                    yield from self._finished(reference, actor, index, waiting, attempts)
            if not finished:
                for actor, index in list(running.values()):
                    yield from self._told(actor, index)
        attempts.raise_failures(items)

    def stop(self) -> None:
        """End the actors; those at work first save what they hold. A second Ctrl-C ends them at once."""
        busy = [actor for actor, _ in self.running.values()]
        try:
            if busy:
                for actor in busy:
                    actor.stop.remote()
                self.ray.wait(list(self.running), num_returns=len(busy), timeout=SAVE_SECONDS)
        finally:
            for actor in [*self.idle, *busy, *self.starting.values()]:
                self.ray.kill(actor)
            self.idle, self.starting, self.running = [], {}, {}

    def _start(self) -> None:
        actor = self.kind.remote(self.make)
        self.starting[actor.ready.remote()] = actor

    def _started(self, reference: Any) -> None:
        """An actor is ready, or could not be."""
        actor = self.starting.pop(reference)
        try:
            self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:
            raise _cause(error) from None
        except self.ray.exceptions.RayError as error:
            self.failed_starts += 1
            if self.failed_starts >= FAILED_STARTS and not self.idle:
                raise SearchformerError(f"Ray workers die before they begin: {_reason(error)}") from error
            self._start()
            return
        self.failed_starts = 0
        self.idle.append(actor)

    def _finished(
        self, reference: Any, actor: Any, index: int, waiting: deque[int], attempts: Attempts
    ) -> Iterator[Told | Done]:
        try:
            result, messages = self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:
            raise _cause(error) from None
        except self.ray.exceptions.RayError as error:  # the actor or its node is gone
            if attempts.died(index, _reason(error)):
                waiting.appendleft(index)
            self._start()
            return
        self.idle.append(actor)
        yield from (Told(index, message) for message in messages)
        yield Done(index, result)

    def _told(self, actor: Any, index: int) -> Iterator[Told]:
        try:
            messages = self.ray.get(actor.messages.remote(), timeout=POLL_SECONDS)
        except self.ray.exceptions.RayError:  # busy or gone: `map` finds out
            return
        yield from (Told(index, message) for message in messages)


def _cause(error: Any) -> Exception:
    """What the job raised."""
    cause = error.cause if isinstance(error.cause, Exception) else error
    return cause if isinstance(cause, SearchformerError) else RuntimeError(cut(str(cause)))


def _reason(error: Exception) -> str:
    """The gist of a Ray error, whose text is a page with a traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    cause = [line for line in lines if "Error: " in line or line.startswith("The actor died")]
    return cut((cause or lines or [type(error).__name__])[-1])


def _require_ray() -> Any:
    return require("ray", extra="ray")
