"""Questions that come and go while an engine runs get the answers of `Engine.sample`."""

import numpy as np
import pytest
from step_models import searches_of, step_model

from searchformer.domains import make_domain
from searchformer.errors import SearchformerError
from searchformer.model import load_model
from searchformer.pretrained import resolve_model
from searchformer.rollout import Engine, Prompt, Sampling
from searchformer.rollout.session import Session

LIMIT = 40
PROMPTS = [["start", "0", "0", "goal", "5", str(y), "wall", "2", "2"] for y in range(5)]


def token_engine(**settings):
    return Engine(*load_model(resolve_model("maze-6x6")), precision="fp32", threads=1, **settings)


def step_engine(**settings):
    found = searches_of(make_domain("maze", {"width": 6, "height": 6}))
    return Engine(step_model(found.vocabulary, *found.places), found.vocabulary, precision="fp32", **settings)


@pytest.fixture(params=[token_engine, step_engine], ids=["token", "step"])
def make_engine(request):
    return request.param


def run(session, *, on_step=lambda step: None):
    """Run until nothing is left; the streamed tokens and the whole answers, by question and sample."""
    streamed, answers = {}, {}
    for step in range(2000):
        if not session.busy:
            return streamed, answers
        for piece in session.step():
            key = piece.question, piece.sample
            assert key not in answers, "an answer goes on after its end"
            streamed.setdefault(key, []).extend(piece.tokens.tolist())
            if piece.answer:
                answers[key] = piece.answer
        on_step(step)
    raise AssertionError("the session does not end")


def test_questions_asked_at_different_times_get_the_answers_of_one_batch(make_engine):
    engine = make_engine(slots=3)
    alone = {
        (number, answer.sample): answer.tokens.tolist()
        for number, prompt in enumerate(PROMPTS)
        for answer in engine.sample([prompt], samples=2, seed=number, max_tokens=LIMIT)
    }
    session, waiting = Session(make_engine(slots=3), longest=LIMIT), list(enumerate(PROMPTS))

    def ask(step):
        if step % 5 == 0 and waiting:
            number, prompt = waiting.pop(0)
            assert session.ask(prompt, samples=2, seed=number) == number

    ask(0)
    streamed, answers = run(session, on_step=ask)
    assert {key: answer.tokens.tolist() for key, answer in answers.items()} == alone
    assert streamed == alone


def test_temperatures_are_not_mixed_up(make_engine):
    engine = make_engine()
    session = Session(engine, longest=LIMIT)
    greedy = session.ask(PROMPTS[0], samples=2, sampling=Sampling(temperature=0))
    drawn = session.ask(PROMPTS[0], samples=2, sampling=Sampling(temperature=1.5))
    _, answers = run(session)
    for question, temperature in ((greedy, 0.0), (drawn, 1.5)):
        expected = make_engine().sample_all([PROMPTS[0]], samples=2, temperature=temperature, max_tokens=LIMIT)
        assert [answers[question, sample].tokens.tolist() for sample in (0, 1)] == [
            answer.tokens.tolist() for answer in expected
        ]


def test_a_cancelled_question_gives_its_slots_and_blocks_back(make_engine):
    session = Session(make_engine(slots=4), longest=LIMIT)
    scheduler = session._scheduler
    blocks = len(scheduler.free_blocks)
    doomed, kept = session.ask(PROMPTS[0], samples=9), session.ask(PROMPTS[1])
    seen = {piece.question for _ in range(3) for piece in session.step()}
    assert seen == {doomed, kept}
    session.cancel(doomed)
    _, answers = run(session)
    assert set(answers) == {(kept, 0)}
    assert len(scheduler.free_slots) == 4
    session.step()
    assert len(scheduler.free_blocks) == blocks


def test_the_next_slot_goes_to_the_question_with_the_fewest_answers_under_way():
    session = Session(token_engine(slots=4), longest=LIMIT)
    large, small = session.ask(PROMPTS[0], samples=16), session.ask(PROMPTS[1], samples=1)
    assert session.open_questions() == {large: 1, small: 2}
    session.step()
    assert session.open_questions() == {large: 0, small: 0}
    late = session.ask(PROMPTS[2])
    assert session.open_questions() == {large: 0, small: 0, late: 1}


def test_streams_go_on_unbroken_where_the_cache_is_too_small_for_all():
    engine = token_engine(slots=4)
    engine.blocks = 6  # two for the prompts of two questions: at most four answers' first blocks
    session = Session(engine, longest=200)
    for number in (0, 1):
        session.ask(PROMPTS[number], samples=3, seed=number)
    streamed, answers = run(session)
    assert len(answers) == 6
    for key, answer in answers.items():
        assert streamed[key] == answer.tokens.tolist()


def test_an_unknown_token_is_refused_before_anything_is_queued():
    session = Session(token_engine(), longest=LIMIT)
    with pytest.raises(SearchformerError, match="does not have"):
        session.ask(["start", "99"])
    with pytest.raises(SearchformerError, match="expected ids"):
        session.ask(Prompt("t", np.array([1])))
    assert not session.busy
