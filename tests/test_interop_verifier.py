"""Planning as questions for language models: what is asked, and what every kind of answer is worth."""

import asyncio
import json
from pathlib import Path

import pytest

import searchformer
from searchformer.errors import SearchformerError
from searchformer.interop.verifier import (
    PLAN_WEIGHTS,
    SEARCH_WEIGHTS,
    PlanningQuestions,
    extract_answer,
    reward_parts,
)

MAZE = {"width": 3, "height": 3, "start": [0, 0], "goal": [2, 0], "walls": [[1, 0]]}


@pytest.fixture(scope="module", params=["maze", "sokoban"])
def questions(request) -> PlanningQuestions:
    settings = {"width": 5, "height": 5} | ({"boxes": 1, "walls": 1} if request.param == "sokoban" else {})
    return PlanningQuestions(request.param, size=8, seed=3, settings=settings)


def parts(answer: str | None, record=MAZE, domain="maze") -> tuple[float, ...]:
    return tuple(vars(reward_parts(answer, record, domain=domain)).values())


def test_the_stored_answer_scores_all_and_another_nothing(questions):
    assert len(questions) == len(list(questions)) == 8
    for entry in questions:
        assert questions.score_answer(entry["answer"], entry) == 1.0
        assert questions.score_answer("I do not know", entry) == 0.0
        assert questions.score_answer(None, entry) == 0.0
        assert len(entry["answer"]) == entry["metadata"]["optimal_moves"]


def test_questions_depend_on_seed_and_index_alone(questions):
    name, settings = questions.domain.name, questions.domain.model_dump()
    again = PlanningQuestions(name, size=5, seed=3, settings=settings)
    assert [again[2], again[-1]] == [questions[2], questions[4]]
    assert PlanningQuestions(name, size=5, seed=4, settings=settings)[2] != questions[2]
    with pytest.raises(IndexError):
        again[5]


def test_each_part_of_the_reward_stands_for_itself():
    found = searchformer.trace(MAZE)
    whole = f"{found['trace']} {found['plan']}"
    assert parts("drru") == (1.0, 1.0, 0.0, 0.0)
    assert parts("dudrru") == (0.0, 1.0, 0.0, 0.0)
    assert parts("rr") == (0.0, 0.0, 0.0, 0.0)
    assert parts(f"<answer>{whole}</answer>") == (1.0, 1.0, 1.0, 1.0)
    wrong_cost = whole.replace("c4", "c3", 1)
    assert parts(f"<answer>{wrong_cost}</answer>")[2:] == (0.0, 0.0)
    assert sum(PLAN_WEIGHTS.values()) == sum(SEARCH_WEIGHTS.values()) == pytest.approx(1)


def test_a_longer_search_scores_less():
    task = {"width": 4, "height": 4, "start": [0, 0], "goal": [3, 0], "walls": []}
    long = searchformer.trace(task, algorithm="dijkstra")
    trace = " ".join(_with_estimates(long["trace"].split(), goal=(3, 0)))
    optimal, valid, sound, length = parts(f"<answer>{trace} {long['plan']}</answer>", task)
    assert (optimal, valid, sound) == (1.0, 1.0, 1.0)
    assert 0 < length < 1


def _with_estimates(tokens: list[str], goal: tuple[int, int]) -> list[str]:
    """A trace of Dijkstra's search, whose estimates are 0, with A*'s estimates: true, and in another order."""
    for at in range(0, len(tokens), 5):
        x, y = int(tokens[at + 1]), int(tokens[at + 2])
        tokens[at + 4] = f"c{abs(x - goal[0]) + abs(y - goal[1])}"
    return tokens


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("drru", "drru"),
        ("Let me think.\n\nAnswer: drru\n", "drru"),
        ("<answer>no</answer> wait <answer> drru </answer> done", "drru"),
        ("first\nlast line", "last line"),
        ("", ""),
    ],
)
def test_answers_are_found_in_what_models_write(text, answer):
    assert extract_answer(text) == answer


def test_a_question_about_searches_gives_the_tokens(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps(MAZE))
    entry = PlanningQuestions("maze", tasks=str(path), search=True)[0]
    assert "start 0 0 goal 2 0 wall 1 0" in entry["question"]
    assert entry["answer"] == "drru"
    with pytest.raises(SearchformerError, match="questions are asked about maze and sokoban; found 'tiles'"):
        PlanningQuestions("tiles")


def test_faulty_tasks_of_a_file_are_no_questions(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps(MAZE | {"goal": [9, 9]}) + "\n" + json.dumps(MAZE))
    with pytest.warns(UserWarning, match=r"1 of 2 tasks cannot be used, such as .*:1: "):
        questions = PlanningQuestions("maze", tasks=str(path))
    assert [entry["answer"] for entry in questions] == ["drru"]


def test_an_endless_answer_scores_nothing():
    assert parts("d" * 2_000_000) == (0.0, 0.0, 0.0, 0.0)


# --- other people's libraries


def test_entries_look_like_reasoning_gyms(questions):
    first = (Path(__file__).parent / "golden" / "reasoning-gym-maze.jsonl").read_text().splitlines()[0]
    entry, theirs = questions[0], json.loads(first)
    assert entry.keys() == theirs.keys()
    assert {"source_dataset", "source_index"} <= entry["metadata"].keys() & theirs["metadata"].keys()


def test_verifiers_loads_the_taskset_by_its_id_and_scores_replies():
    import verifiers.v1 as vf
    from verifiers.v1.utils.loaders import load_taskset, taskset_class

    from searchformer.interop.taskset import PlanningConfig, PlanningTask, PlanningTaskset

    assert taskset_class("searchformer-taskset") is PlanningTaskset
    taskset = load_taskset(PlanningConfig(id="searchformer-taskset", size=3, width=4, height=4))
    tasks = list(taskset)
    assert len(tasks) == 3
    assert all(isinstance(task, PlanningTask) for task in tasks)
    plan = PlanningQuestions("maze", size=3, settings={"width": 4, "height": 4})[0]["answer"]
    for reply, reward in ((f"<answer>{plan}</answer>", 1.0), ("no idea", 0.0)):
        trace = reply_trace(vf, tasks[0], reply)
        asyncio.run(tasks[0].score(trace))
        assert trace.rewards["planning"].value == reward
        assert trace.metrics["plan_optimal"] == reward
        assert set(trace.metrics) == {"plan_optimal", "plan_valid", "trace_sound", "search_length"}


def reply_trace(vf, task, reply: str):
    """A trace of verifiers in which the model said `reply`."""
    data = vf.TraceTask(type=type(task).__name__, data=task.data)
    trace = vf.Trace.model_construct(task=data, nodes=[], calls=[], rewards={}, metrics={})
    trace.nodes.append(vf.MessageNode(message=vf.AssistantMessage(content=reply), sampled=True, parent=None))
    return trace
