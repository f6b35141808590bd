"""One copy of each model serves all viewers: a thread runs the rollout engine, and hands out tokens as they are drawn.

In: questions from any number of connections. Out: an asynchronous stream of events per question. Models are loaded when
first asked, in that thread, so that no page waits for one. A question that is cancelled leaves its slots at once.

    async with sampler.asked(directory, prompt, samples=16) as batches:
        async for events in batches: ...
"""

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from searchformer.errors import SearchformerError
from searchformer.rollout.requests import Sampling

if TYPE_CHECKING:
    from searchformer.model import Transformer
    from searchformer.rollout.session import Piece, Session
    from searchformer.tokens.vocabulary import Vocabulary

MOST_QUESTIONS = 256
"""Questions in the queue, those under way included."""
PAUSE_SECONDS = 0.03
"""Tokens are handed out this often, not one by one."""
MOST_MODELS = 4
"""Models in memory; the one that was not asked for the longest time goes first."""


class BusyError(SearchformerError):
    """The queue is full."""


@dataclass(frozen=True)
class Waiting:
    """The question's place in the queue, from 1."""

    place: int


@dataclass(frozen=True)
class Tokens:
    """New tokens of one answer."""

    sample: int
    tokens: tuple[str, ...]
    finish: str | None
    """`eos` or `max_tokens` with the last tokens."""


@dataclass(frozen=True)
class Failed:
    """The question cannot be answered, or took too long."""

    reason: str


Event = Waiting | Tokens | Failed


@dataclass(eq=False)
class _Question:
    directory: Path
    prompt: tuple[str, ...]
    samples: int
    first: int
    seed: int
    sampling: Sampling
    max_tokens: int
    loop: asyncio.AbstractEventLoop
    events: "asyncio.Queue[Event | None]" = field(default_factory=asyncio.Queue)
    cancelled: bool = False
    number: int | None = None
    """In the session, once the thread has passed it on."""
    place: int = -1
    began: float | None = None

    def tell(self, *events: Event | None) -> None:
        """Hand events to the connection; None ends the stream."""
        with contextlib.suppress(RuntimeError):  # the server has stopped
            for event in events:
                self.loop.call_soon_threadsafe(self.events.put_nowait, event)


@dataclass
class _Loaded:
    """A model in memory, and the questions to it."""

    model: "Transformer"
    vocabulary: "Vocabulary"
    session: "Session"
    questions: dict[int, _Question] = field(default_factory=dict)


class Sampler:
    """The thread and its models."""

    def __init__(self, *, slots: int, cache_gb: float, max_tokens: int, max_seconds: float, device: str) -> None:
        self.slots, self.cache_gb, self.max_tokens, self.max_seconds = slots, cache_gb, max_tokens, max_seconds
        self.device = device
        self._inbox: queue.SimpleQueue[_Question | Path | None] = queue.SimpleQueue()
        self._loaded: dict[Path, _Loaded] = {}
        self._loading = threading.Lock()
        self._count = 0
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def start(self, *, warm: Iterator[Path] | tuple[Path, ...] = ()) -> None:
        """Start the thread; it loads the models of `warm` before anyone asks."""
        self._thread.start()
        for directory in warm:
            self._inbox.put(directory)

    def stop(self) -> None:
        """Stop the thread."""
        self._inbox.put(None)
        self._thread.join(timeout=30)

    @property
    def under_way(self) -> int:
        """Questions in the queue."""
        return self._count

    def model(self, directory: Path) -> "tuple[Transformer, Vocabulary]":
        """A model, loaded if need be. From any thread."""
        loaded = self._load(directory)
        return loaded.model, loaded.vocabulary

    def asked(
        self,
        directory: Path,
        prompt: tuple[str, ...],
        *,
        samples: int,
        first: int,
        seed: int,
        sampling: Sampling,
        max_tokens: int,
    ) -> AbstractAsyncContextManager[AsyncIterator[list[Event]]]:
        """Put a question; its events are read inside the block, and leaving the block cancels it."""
        return self._asked(
            _Question(directory, prompt, samples, first, seed, sampling, max_tokens, asyncio.get_running_loop())
        )

    @contextlib.asynccontextmanager
    async def _asked(self, question: _Question) -> AsyncIterator[AsyncIterator[list[Event]]]:
        if self._count >= MOST_QUESTIONS:
            raise BusyError(f"{self._count} questions are waiting; try again later")
        self._count += 1
        self._inbox.put(question)
        try:
            yield _batches(question)
        finally:
            self._count -= 1
            question.cancelled = True

    # --- in the thread

    def _run(self) -> None:
        while True:
            try:
                while True:  # wait only when there is nothing to do
                    arrived = self._inbox.get(block=not any(each.questions for each in list(self._loaded.values())))
                    if arrived is None:
                        return
                    self._take(arrived)
            except queue.Empty:
                pass
            for loaded in list(self._loaded.values()):  # others may load a model meanwhile
                if loaded.questions:
                    self._advance(loaded)

    def _take(self, arrived: _Question | Path) -> None:
        directory = arrived if isinstance(arrived, Path) else arrived.directory
        try:
            loaded = self._load(directory)
            if isinstance(arrived, _Question):
                arrived.number = loaded.session.ask(
                    list(arrived.prompt),
                    samples=arrived.samples,
                    first=arrived.first,
                    seed=arrived.seed,
                    sampling=arrived.sampling,
                    max_tokens=arrived.max_tokens,
                )
                loaded.questions[arrived.number] = arrived
        except SearchformerError as error:
            if isinstance(arrived, _Question):
                arrived.tell(Failed(str(error)), None)

    def _advance(self, loaded: _Loaded) -> None:
        """One step of a model's session, and word of it to everyone concerned."""
        session = loaded.session
        for number, question in tuple(loaded.questions.items()):
            late = question.began is not None and time.monotonic() - question.began > self.max_seconds
            if late:
                question.tell(Failed(f"stopped after {self.max_seconds:g} seconds"), None)
            if late or question.cancelled:
                session.cancel(number)
                del loaded.questions[number]
        events: dict[int, list[Event | None]] = {}
        for piece in session.step():
            events.setdefault(piece.question, []).append(self._event(loaded, piece))
        open_questions = session.open_questions()
        for number, question in tuple(loaded.questions.items()):
            place = open_questions.get(number, 0)
            told = events.get(number, [])
            if told and question.began is None:
                question.began = time.monotonic()
            if place != question.place and place:
                told.append(Waiting(place))
            question.place = place
            if number not in open_questions:
                told.append(None)
                del loaded.questions[number]
            if told:
                question.tell(*told)

    def _event(self, loaded: _Loaded, piece: "Piece") -> Tokens:
        tokens = tuple(loaded.vocabulary.decode(piece.tokens.tolist()))
        return Tokens(piece.sample, tokens, piece.answer.finish if piece.answer else None)

    def _load(self, directory: Path) -> _Loaded:
        """The model, from memory or from disk."""
        with self._loading:
            if directory in self._loaded:
                self._loaded[directory] = self._loaded.pop(directory)  # asked last
                return self._loaded[directory]
            self._forget_oldest()
            from searchformer.model import load_model
            from searchformer.model.device import choose_device, use_fitting_threads
            from searchformer.rollout import Engine
            from searchformer.rollout.session import Session

            device = choose_device(self.device)
            model, vocabulary = load_model(directory, device=device)
            use_fitting_threads(model.config.dim, device)
            engine = Engine(model, vocabulary, slots=self.slots, cache_gb=self.cache_gb)
            longest = min(self.max_tokens, model.config.positions)
            self._loaded[directory] = _Loaded(model, vocabulary, Session(engine, longest=longest))
            return self._loaded[directory]

    def _forget_oldest(self) -> None:
        idle = [directory for directory, loaded in self._loaded.items() if not loaded.questions]
        for directory in idle[: max(0, len(self._loaded) + 1 - MOST_MODELS)]:
            del self._loaded[directory]


async def _batches(question: _Question) -> AsyncIterator[list[Event]]:
    """The question's events; those that come shortly after each other together."""
    while True:
        batch = [await question.events.get()]
        await asyncio.sleep(PAUSE_SECONDS)
        while not question.events.empty():
            batch.append(question.events.get_nowait())
        if events := [event for event in batch if event is not None]:
            yield events
        if batch[-1] is None:
            return


def settings_of(options: Any) -> dict[str, Any]:
    """A sampler's settings among those of the server."""
    return {name: getattr(options, name) for name in ("slots", "cache_gb", "max_tokens", "max_seconds", "device")}
