"""An engine at work for many askers: questions come and go while it runs, and tokens are handed out as they are drawn.

In: questions, at any time. Out, step by step: the new tokens of every answer. One batch serves everyone; the next free
slot goes to the question with the fewest answers under way, so that a short question does not wait for a long one.
The answers are those of `Engine.sample` with the same settings. Not for several threads at a time.

    session = Session(engine, longest=2000)
    question = session.ask(prompt, samples=4)
    while session.busy:
        for piece in session.step(): ...
"""

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from searchformer.rollout.engine import Drawing, Engine, Job, Scheduler
from searchformer.rollout.requests import Alphabet, Answer, Prompt, Sampling, make_prompt


@dataclass(frozen=True)
class Piece:
    """New tokens of one answer."""

    question: int
    """What `ask` returned."""
    sample: int
    tokens: np.ndarray
    """int32: ids that were not handed out before, without eos."""
    answer: Answer | None
    """The whole answer, with its last piece."""


@dataclass
class _Question:
    """What was asked, and how far it is."""

    drawing: Drawing
    waiting: deque[Job]
    sent: Counter[int] = field(default_factory=Counter)
    """Tokens handed out, by sample: one that starts again (see engine.py) draws the same ones."""
    left: int = 0
    """Answers that are not finished."""


class Session:
    """Questions to one engine."""

    def __init__(self, engine: Engine, *, longest: int) -> None:
        """`longest` is the largest number of tokens that an answer may be allowed."""
        engine.check_limit(longest)
        self.engine, self.longest = engine, longest
        self._questions: dict[int, _Question] = {}
        self._drawings: dict[Sampling, Drawing] = {}
        self._alphabet = Alphabet.of(engine.model.symbols, None)
        self._asked = 0
        self._scheduler = Scheduler(engine, _NextJob(self), longest=longest)

    def ask(
        self,
        prompt: Prompt | Sequence[str],
        *,
        samples: int = 1,
        first: int = 0,
        seed: int = 0,
        sampling: Sampling | None = None,
        max_tokens: int | None = None,
    ) -> int:
        """Put a question; returns its number. The answers are those that `Engine.sample` numbers from `first` on."""
        made, sampling = make_prompt(prompt, self.engine.vocabulary), sampling or Sampling()
        limit = min(max_tokens or self.longest, self.longest)
        jobs = [
            self.engine.job(self._asked, made, sample, limit=limit, seed=seed)
            for sample in range(first, first + samples)
        ]
        drawing = self._drawings.setdefault(sampling, Drawing.of(sampling, np.empty(0, np.int32), self._alphabet))
        self._questions[self._asked] = _Question(drawing, deque(jobs), left=samples)
        self._asked += 1
        return self._asked - 1

    def cancel(self, question: int) -> None:
        """Stop working on a question; nothing more of it is handed out."""
        if self._questions.pop(question, None):
            self._scheduler.cancel(question)
        self._tidy()

    @property
    def busy(self) -> bool:
        """Whether there is anything left to do."""
        return bool(self._questions)

    def open_questions(self) -> dict[int, int]:
        """The questions that are not answered, each with its place in the queue, from 1; 0 once it is under way."""
        started = self._under_way()
        waiting = [number for number in self._questions if number not in started]
        return dict.fromkeys(self._questions, 0) | {number: place for place, number in enumerate(waiting, start=1)}

    def step(self) -> list[Piece]:
        """Draw the next tokens of every answer that has a slot."""
        finished = {(answer.prompt, answer.sample): answer for answer in self._scheduler.advance()}
        pieces = [self._piece(*key, answer.tokens, answer) for key, answer in finished.items()]
        for running in self._scheduler.running.values():
            job, slot = running.job, running.slot
            tokens = self._scheduler.tokens[slot, 1 : 1 + self._scheduler.written[slot]]
            if len(tokens) > self._questions[job.prompt].sent[job.sample]:
                pieces.append(self._piece(job.prompt, job.sample, tokens, None))
        for question, _ in finished:
            self._questions[question].left -= 1
            if not self._questions[question].left:
                del self._questions[question]
        self._tidy()
        return pieces

    def _piece(self, number: int, sample: int, tokens: np.ndarray, answer: Answer | None) -> Piece:
        sent = self._questions[number].sent
        new = tokens[sent[sample] :].copy()
        sent[sample] = max(sent[sample], len(tokens))
        return Piece(number, sample, new, answer)

    def _tidy(self) -> None:
        """Forget ways of drawing that no question uses."""
        used = {question.drawing for question in self._questions.values()}
        self._drawings = {sampling: drawing for sampling, drawing in self._drawings.items() if drawing in used}

    def _under_way(self) -> Counter[int]:
        """Answers that have a slot, or had one, by question."""
        held = [sequence.job.prompt for sequence in self._scheduler.running.values()]
        return Counter([*held, *(job.prompt for job, _ in self._scheduler.restarts)])

    def next_job(self) -> tuple[Job, Drawing] | None:
        """The next answer of the question with the fewest under way, the oldest of equals."""
        waiting = [number for number, question in self._questions.items() if question.waiting]
        if not waiting:
            return None
        started = self._under_way()
        question = self._questions[min(waiting, key=lambda number: (started[number], number))]
        return question.waiting.popleft(), question.drawing


class _NextJob(Iterator[tuple[Job, Drawing]]):
    """A session's questions as the scheduler's queue, which may be empty now and filled later."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def __next__(self) -> tuple[Job, Drawing]:
        found = self.session.next_job()
        if found is None:
            raise StopIteration
        return found
