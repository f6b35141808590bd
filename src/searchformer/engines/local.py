"""Workers that are processes of this machine; with one worker, this process does the work itself.

Ctrl-C reaches the coordinator alone. It asks the workers to stop, which they do at once, saving what they hold; after a
second Ctrl-C, or if they take too long, it kills them. If the coordinator is killed, they end by themselves.
"""

import contextlib
import multiprocessing
import signal
import sys
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from searchformer.engines.base import Attempts, Crew, Done, Job, MakeJob, Told
from searchformer.errors import SearchformerError
from searchformer.lifetime import end_with_parent

SAVE_SECONDS = 30.0
"""How long workers may take to save what they hold when they are asked to stop."""


class LocalEngine:
    """Runs jobs in processes of this machine."""

    gpus = 0

    def worker_count(self, asked: int | None, *, default: int) -> int:
        """As many as asked for."""
        return asked or default

    @contextlib.contextmanager
    def crew(self, make: MakeJob, *, workers: int, gpu: bool = False) -> Iterator[Crew]:
        """Start the workers when there is something to do."""
        if workers < 1:
            raise SearchformerError(f"--workers must be 1 or more; found {workers}")
        if workers == 1:
            yield _Alone(make)
            return
        crew = _Processes(make, workers)
        try:
            yield crew
        finally:
            crew.stop()


class _Alone:
    """This process: no copies, no pickling."""

    def __init__(self, make: MakeJob) -> None:
        self.make = make
        self.job: Job | None = None

    def map(self, items: Sequence[Any]) -> Iterator[Told | Done]:
        """One item after another."""
        if items and self.job is None:
            self.job = self.make()
        for index, item in enumerate(items):
            assert self.job is not None
            yield from events_of(self.job, index, item)


def events_of(job: Job, index: int, item: Any) -> Generator[Told | Done, None, None]:
    """What comes of one item."""
    work = job(item)
    try:
        while True:
            yield Told(index, next(work))
    except StopIteration as stop:
        yield Done(index, stop.value)
    finally:
        work.close()


@dataclass
class _Worker:
    """One process, and the item that it is at work on."""

    process: SpawnProcess
    pipe: Connection
    index: int | None = None


class _Processes:
    """Processes that take the next item as they finish one."""

    def __init__(self, make: MakeJob, count: int) -> None:
        self.make, self.count = make, count
        self.context = multiprocessing.get_context("spawn")
        self.workers: list[_Worker] = []

    def map(self, items: Sequence[Any]) -> Iterator[Told | Done]:
        """Give out the items; one whose worker dies is given to another."""
        waiting, attempts = deque(range(len(items))), Attempts()
        while len(self.workers) < min(self.count, len(items)):
            self.workers.append(self._start())
        while True:
            for worker in self.workers:
                if worker.index is None and waiting:
                    self._give(worker, waiting, items)
            busy = {worker.pipe: worker for worker in self.workers if worker.index is not None}
            if not busy:
                break
            ready: list[Any] = wait(list(busy))
            for pipe in ready:
                worker = busy[pipe]
                try:
                    message = pipe.recv()
                except (EOFError, OSError):
                    self._replace(worker, waiting, attempts)
                    continue
                if isinstance(message, Exception):
                    raise message
                if isinstance(message, Done):
                    worker.index = None
                yield message
        attempts.raise_failures(items)

    def stop(self) -> None:
        """Ask the workers to stop and wait until they have saved what they hold; the second Ctrl-C kills them."""
        try:
            for worker in self.workers:
                worker.process.terminate()
                worker.pipe.close()
            for worker in self.workers:
                worker.process.join(SAVE_SECONDS)
        finally:
            for worker in self.workers:
                worker.process.kill()
                worker.process.join()
            self.workers = []

    def _start(self) -> _Worker:
        mine, theirs = self.context.Pipe()
        process = self.context.Process(target=_work, args=(self.make, theirs), daemon=True)
        process.start()
        theirs.close()
        return _Worker(process, mine)

    def _give(self, worker: _Worker, waiting: deque[int], items: Sequence[Any]) -> None:
        worker.index = waiting.popleft()
        with contextlib.suppress(OSError):  # it died while it waited: the next `wait` finds out
            worker.pipe.send((worker.index, items[worker.index]))

    def _replace(self, worker: _Worker, waiting: deque[int], attempts: Attempts) -> None:
        """Start a process in place of one that died, and put its item back unless it was tried often enough."""
        worker.process.join()
        worker.pipe.close()
        assert worker.index is not None
        if attempts.died(worker.index, how_it_ended(worker.process.exitcode)):
            waiting.appendleft(worker.index)
        self.workers[self.workers.index(worker)] = self._start()


def how_it_ended(code: int | None) -> str:
    """An exit code in words."""
    if code is None or code >= 0:
        return f"exit code {code}"
    name = signal.Signals(-code).name
    return f"{name}, perhaps for lack of memory" if name == "SIGKILL" else name


class _Stop(BaseException):
    """The coordinator wants this worker to stop: whatever is open is saved and closed on the way out."""


def _stop(*_: object) -> None:
    signal.signal(signal.SIGTERM, _already_ending)
    raise _Stop


def _already_ending(*_: object) -> None:
    """Does nothing. Not SIG_IGN, as Python would complain of a signal that comes just when that is set."""


def _work(make: MakeJob, pipe: Connection) -> None:
    """A worker process: makes the job, then does item after item until it is stopped or the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the coordinator
    end_with_parent()
    try:
        signal.signal(signal.SIGTERM, _stop)
        try:
            job = make()
            while True:
                index, item = pipe.recv()
                for event in events_of(job, index, item):
                    pipe.send(event)
        except Exception as error:
            with contextlib.suppress(OSError):  # the coordinator has closed its end
                pipe.send(_sendable(error))
        finally:
            signal.signal(signal.SIGTERM, _already_ending)
    except _Stop:
        sys.exit(1)


def _sendable(error: Exception) -> Exception:
    """The error as it may travel: one of ours, or else its text."""
    from multiprocessing.reduction import ForkingPickler

    try:
        ForkingPickler.loads(ForkingPickler.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
