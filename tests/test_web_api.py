"""The app's interface: searches, tasks, levels, runs, streams of answers, and everything that must be refused."""

import contextlib
import json
import re
import shutil
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect
from web_server import LEVEL, TASK, WALLED_IN, write_run

from searchformer.evaluate.judge import Judge
from searchformer.model import load_model
from searchformer.pretrained import WEIGHTS, find_model, packaged_models
from searchformer.rollout import Engine
from searchformer.search.replay import OF_ORDER
from searchformer.search.validate import codes_of
from searchformer.search.world import World
from searchformer.solve.planning import AnswerSampler
from searchformer.web import page, records
from searchformer.web.app import make_app
from searchformer.web.example import Candidate, opening, read_example
from searchformer.web.mazes import perfect_maze
from searchformer.web.models import Models
from searchformer.web.options import ServeOptions
from searchformer.web.searches import Follower, Searches, read_task

ORIGIN = {"origin": "http://localhost"}
MAZE = records.MazeTask(**TASK)
MAZE_MODEL = find_model("maze", {"width": TASK["width"], "height": TASK["height"]})
SOKOBAN_MODEL = find_model("sokoban", {})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "small")


@pytest.fixture(scope="module")
def client(run):
    with TestClient(make_app(ServeOptions(run=(run,), slots=8, device="cpu")), base_url="http://localhost") as client:
        yield client


def search(client, **settings):
    reply = client.post("/api/search", json={"task": TASK, **settings})
    assert reply.status_code == 200, reply.text
    return reply.json()


def answers(client, **question):
    """The messages of one question, by type."""
    messages = {}
    with client.websocket_connect("ws://localhost/api/ask", headers=ORIGIN) as socket:
        socket.send_text(json.dumps({"task": TASK, **question}))
        while True:
            message = socket.receive_json()
            messages.setdefault(message["type"], []).append(message)
            if message["type"] in ("done", "error"):
                return messages


@contextlib.contextmanager
def asked(client, **question):
    """A connection whose first tokens have come; left in the middle."""
    with (
        contextlib.suppress(CancelledError),  # the test client's way to end what still runs
        client.websocket_connect("ws://localhost/api/ask", headers=ORIGIN) as socket,
    ):
        socket.send_text(json.dumps({"task": TASK, **question}))
        while socket.receive_json()["type"] != "tokens":
            pass
        yield


# --- searches


def test_a_search_can_be_played_step_by_step(client):
    found = search(client, deterministic=True)
    kinds = [step["kind"] for step in found["steps"]]
    assert (kinds.count("create"), kinds.count("close")) == (found["created"], found["closed"])
    assert kinds.count("plan") == found["plan_length"] == found["optimal_length"]
    assert found["tokens"][: found["trace_tokens"]][-5] == "close"
    for step in found["steps"]:
        assert found["tokens"][step["at"]] == step["kind"]
        assert found["tokens"][step["at"] + 1 : step["at"] + 3] == [str(number) for number in step["cells"][0]]
    assert found["steps"][0]["cells"] == [TASK["start"]]
    assert found["steps"][-1]["cells"] == [TASK["goal"]]


@pytest.mark.parametrize("algorithm", ["astar", "dijkstra", "weighted", "greedy"])
def test_every_algorithm_finds_a_plan(client, algorithm):
    found = search(client, algorithm=algorithm)
    assert found["verdict"] in ("optimal", "feasible")
    assert found["verdict"] == "optimal" or algorithm in ("weighted", "greedy")


def test_the_shortest_search_creates_and_closes_the_plan_alone(client):
    found = search(client)
    assert found["shortest_search"] == 2 * found["plan_length"] * 5  # tokens of `create x y c0 c0`
    assert found["shortest_search"] <= found["trace_tokens"]


def test_a_task_without_a_plan_is_said_to_have_none(client):
    assert search(client, task=WALLED_IN)["verdict"] == "unsolvable"
    assert client.post("/api/plan", json={"task": WALLED_IN}).json() == {"solvable": False, "moves": "", "cells": []}
    assert answers(client, task=WALLED_IN)["error"][0]["reason"].startswith("no plan exists")


def test_sokoban_steps_show_where_all_boxes_are(client):
    found = search(client, task={"level": LEVEL})
    assert all(len(step["cells"]) == 2 for step in found["steps"])
    assert found["steps"][-1]["cells"][1] == [5, 1]


def test_an_answer_is_followed_the_same_way_whole_or_token_by_token():
    searches, task = Searches(), read_task(MAZE)
    tokens = searches.run(task, records.SearchRequest(task=MAZE)).tokens
    tokens = [
        *tokens[:20],
        "create",
        "5",
        "5",
        "c9",
        "c9",
        "close",
        *tokens[20:],
    ]  # a node that was not reached, a stump
    whole = Follower(World(task.domain, task.problem)).feed(tokens, last=True)
    follower = Follower(World(task.domain, task.problem))
    piecemeal = [step for token in tokens for step in follower.feed([token])] + follower.feed([], last=True)
    assert piecemeal == whole
    assert [tokens[step.at] for step in whole] == [step.kind for step in whole]


def test_every_wrong_step_is_marked_with_the_validators_reason():
    searches, task = Searches(), read_task(MAZE)
    tokens = searches.run(task, records.SearchRequest(task=MAZE, deterministic=True)).tokens
    wrong = tokens.copy()
    second_close = [place for place, token in enumerate(tokens) if token == "close"][1]
    wrong[second_close + 3] = "c30"
    judged = searches.judged(task, wrong, finished=True, who="m")
    marks = {number: step.wrong for number, step in enumerate(judged.steps) if step.wrong}
    verdict = Judge(task.domain).judge(task.problem, codes_of(task.domain, wrong), optimal_length=8)
    assert next(iter(marks.values())) == verdict.violation == "wrong cost"
    number = next(iter(marks))
    assert judged.steps[number].at == second_close
    assert judged.steps[number].unsound
    assert judged.sound is False


def test_steps_out_of_order_are_told_from_untrue_ones():
    walls = [[4, y] for y in range(5)]  # a cul-de-sac before the goal
    trap = records.MazeTask(width=6, height=6, start=[0, 2], goal=[5, 2], walls=walls)
    searches, task = Searches(), read_task(trap)
    greedy = searches.run(task, records.SearchRequest(task=trap, algorithm="greedy", deterministic=True))
    judged = searches.judged(task, greedy.tokens, finished=True, who="m")
    assert {"not of least f"} <= {step.wrong for step in judged.steps} <= {None, *OF_ORDER}
    assert (judged.legal, judged.sound) == (False, True)
    assert not any(step.unsound for step in judged.steps)


def test_an_illegal_move_of_the_plan_is_marked():
    searches, task = Searches(), read_task(MAZE)
    judged = searches.judged(task, ["plan", "0", "4", "plan", "5", "5"], finished=True, who="m")
    assert [step.wrong for step in judged.steps] == [None, "illegal move"]
    assert judged.verdict == "invalid"


def test_the_lengths_are_those_of_evaluations(client):
    found = client.post("/api/lengths", json={"task": TASK}).json()
    assert len(found["trace_tokens"]) == 64
    assert min(found["trace_tokens"]) >= found["shortest_search"]
    assert len(set(found["trace_tokens"])) > 1


def test_the_opening_example_is_what_the_packaged_model_and_astar_say(client):
    """After a change of packaged models, `python -m searchformer.web.example` writes it again."""
    stored = client.get("/api/example").json()
    asked = answers(client, task=stored["task"], first=stored["right"]["sample"])
    assert asked["answer"][0]["search"] == stored["right"]
    assert asked["begin"][0]["notes"] == []
    stored = read_example()
    searches, task = Searches(), read_task(stored.task)
    left = searches.run(task, records.SearchRequest(task=stored.task, seed=stored.seed))
    right = searches.judged(task, stored.right.tokens, finished=True, who=stored.right.who, sample=stored.right.sample)
    assert (left, right) == (stored.left, stored.right)
    assert (right.verdict, right.sound) == ("optimal", True)
    assert right.trace_tokens < left.trace_tokens


def test_the_page_opens_without_an_answer_where_another_model_would_be_asked(monkeypatch, tmp_path):
    stored = read_example()
    assert opening(Models({})) == stored
    named = next(each for each in packaged_models() if each.name == stored.right.who)
    copied = tmp_path / "models" / "renamed"
    shutil.copytree(named.directory, copied)
    monkeypatch.setenv("SEARCHFORMER_MODELS", str(copied.parent))
    assert opening(Models({})).right == stored.right.model_copy(update={"who": "renamed"})
    with open(copied / WEIGHTS, "ab") as weights:
        weights.write(b" ")  # another model, by its digest
    assert opening(Models({})) == stored.model_copy(update={"right": None})
    monkeypatch.undo()
    assert opening(Models({}, model=copied)).right is None
    assert opening(Models({}, model=named.name)) == stored


def test_a_task_is_shown_for_what_its_typical_good_answer_saves():
    good = read_example().right.model_copy(update={"trace_tokens": 50})
    longer, untrue = good.model_copy(update={"trace_tokens": 60}), good.model_copy(update={"sound": False})
    runs = [70, 90]
    mostly_good = Candidate(None, [longer, good, untrue, longer], runs)
    assert (mostly_good.typical, mostly_good.saved) == (longer, 0.25)
    assert Candidate(None, [good, untrue], runs).saved == 0


# --- tasks and levels


@pytest.mark.parametrize("side", [3, 6, 9, 20])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_perfect_maze_has_one_way_between_any_two_free_cells(side, seed):
    maze = perfect_maze(side, side, seed)
    walls = {tuple(wall) for wall in maze["walls"]}
    free = {(x, y) for x in range(side) for y in range(side)} - walls
    edges = sum(((x + 1, y) in free) + ((x, y + 1) in free) for x, y in free)
    assert edges == len(free) - 1  # with one connected part, a tree
    assert Searches().plan(read_task(records.MazeTask(**maze))).solvable


@pytest.mark.parametrize(
    "asked",
    [
        {"kind": "random", "width": 10, "height": 10},
        {"kind": "empty"},
        {},
        {"domain": "sokoban"},
        {"domain": "sokoban", "boxes": 2},
        {"kind": "perfect", "width": 15, "height": 15},
        {"domain": "sokoban", "width": 7, "height": 7},
        {"domain": "sokoban", "width": 7, "height": 7, "boxes": 2},
    ],
)
def test_new_tasks_have_plans(client, asked):
    task = client.post("/api/task", json=asked).json()
    assert client.post("/api/plan", json={"task": task}).json()["solvable"]


def test_every_level_of_the_gallery_has_a_plan_of_the_length_in_its_title(client):
    levels = client.get("/api/gallery").json()
    assert len(levels) >= 10
    for level in levels:
        plan = client.post("/api/plan", json={"task": {"level": level["level"]}}).json()
        assert plan["solvable"]
        assert len(plan["moves"]) == int(re.search(r"(\d+) moves", level["title"])[1])


def test_levels_are_read_from_text_and_xml(client):
    text = "\n".join(LEVEL)
    xml = "<SokobanLevels><LevelCollection><Level Id='a'>" + "".join(f"<L>{row}</L>" for row in LEVEL)
    for given in (text, xml + "</Level></LevelCollection></SokobanLevels>"):
        assert client.post("/api/levels", json={"text": given}).json()[0]["level"] == LEVEL


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("#####\n#@$ #\n#####", "text:1:1: boxes and docks differ in number: 1 and 0"),
        ("####\n#@$.\n####", "open border"),
        ("hello", "no Sokoban level"),
        ("<a>", "not well-formed XML"),
        ("", "no Sokoban level"),
    ],
)
def test_a_bad_level_is_refused_with_its_place_and_reason(client, text, reason):
    reply = client.post("/api/levels", json={"text": text})
    assert reply.status_code == 422
    assert reason in reply.json()["detail"] or "empty" in reply.json()["detail"]


# --- a model's answers


def test_streamed_tokens_are_those_of_the_engine(client):
    messages = answers(client, samples=3, first=1, seed=4, temperature=0.7)
    streamed = {}
    for message in messages["tokens"]:
        for sample, piece in message["answers"].items():
            streamed.setdefault(int(sample), []).extend(piece["tokens"])
    judged = {message["search"]["sample"]: message["search"] for message in messages["answer"]}
    assert sorted(judged) == [1, 2, 3]
    assert {sample: found["tokens"] for sample, found in judged.items()} == streamed
    engine = Engine(*load_model(MAZE_MODEL.directory))
    prompt = [list(AnswerSampler.open(MAZE_MODEL.directory, read_task(MAZE)).prompt)]
    limit = messages["begin"][0]["limit"]
    expected = engine.sample_all(prompt, samples=4, seed=4, temperature=0.7, max_tokens=limit)
    assert [engine.vocabulary.decode(each.tokens) for each in expected[1:]] == [streamed[n] for n in (1, 2, 3)]


def test_streamed_steps_are_those_of_the_judged_answer(client):
    messages = answers(client)
    steps = [step for message in messages["tokens"] for step in message["answers"]["0"]["steps"]]
    judged = messages["answer"][0]["search"]["steps"]
    assert [(step["kind"], step["at"], step["cells"]) for step in steps] == [
        (step["kind"], step["at"], step["cells"]) for step in judged
    ]


def test_a_task_that_the_model_has_no_words_for_is_explained(client):
    large = {"width": 40, "height": 40, "start": [0, 0], "goal": [39, 39], "walls": []}
    reason = answers(client, task=large, model=MAZE_MODEL.name)["error"][0]["reason"]
    assert f"{MAZE_MODEL.name} has no words for this task" in reason


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        ({"samples": 65}, "samples: input should be less than or equal to 64"),
        ({"temperature": -1}, "temperature: input should be greater than or equal to 0"),
        ({"model": "nobody"}, "there is no model 'nobody'"),
        ({"model": SOKOBAN_MODEL.name}, "was trained for sokoban"),
        ({"task": {"level": ["###"]}}, "a level has one worker"),
        ({"other": 1}, "other: no such option"),
    ],
)
def test_a_bad_question_gets_a_reason(client, question, reason):
    assert reason in answers(client, **question)["error"][0]["reason"]


def test_a_question_that_is_not_json_gets_a_reason(client):
    with client.websocket_connect("ws://localhost/api/ask", headers=ORIGIN) as socket:
        socket.send_text("{")
        assert "invalid JSON" in socket.receive_json()["reason"]


def test_a_closed_connection_stops_the_work(client):
    with asked(client, samples=64, temperature=2.0):
        assert client.get("/api/load").json()["questions"] == 1
    deadline = time.monotonic() + 60
    while client.get("/api/load").json()["questions"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_waiting_questions_are_told_their_place():
    options = ServeOptions(slots=1, device="cpu")
    with (
        TestClient(make_app(options), base_url="http://localhost") as narrow,
        asked(narrow, samples=64, temperature=3.0),
    ):
        assert any("queue" in answers(narrow, samples=1) for _ in range(3))


def test_a_question_that_takes_too_long_is_stopped():
    options = ServeOptions(max_seconds=0.001, slots=2, device="cpu")
    with TestClient(make_app(options), base_url="http://localhost") as hasty:
        assert "stopped after" in answers(hasty, samples=64, temperature=3.0)["error"][0]["reason"]


# --- inside


def test_a_look_inside_names_cells_and_probabilities(client):
    tokens = ["create", "0", "4", "c0", "c7", "close"]
    view = client.post("/api/inside", json={"task": TASK, "tokens": tokens}).json()
    assert view["next_tokens"][0]["token"] == "0"  # x of the only open node
    assert 0.5 < view["next_tokens"][0]["probability"] <= 1
    assert [look["tokens"] for look in view["answer"]] == [["bos"], *([token] for token in tokens)]
    assert view["answer"][2]["cells"] == view["answer"][3]["cells"] == [[0, 4]]
    assert view["prompt"][1]["cells"] == [[0, 4]]  # the word `start`
    weights = view["prompt"][0]["weights"]
    assert (len(weights), len(weights[0])) == (view["layers"], view["heads"])


def test_looks_at_the_same_time_do_not_mix(client):
    written, places = search(client)["tokens"], [5, 40, 10, 60, 15, 50]

    def look(place):
        return client.post("/api/inside", json={"task": TASK, "tokens": written[:place]}).json()

    alone = [look(place) for place in places]
    with ThreadPoolExecutor(len(places)) as viewers:
        assert list(viewers.map(look, places)) == alone


def test_a_look_inside_of_unknown_tokens_is_refused(client):
    reply = client.post("/api/inside", json={"task": TASK, "tokens": ["c999"]})
    assert reply.status_code == 422
    assert "'c999'" in reply.json()["detail"]


# --- replays


def test_a_replay_is_one_small_file_that_asks_for_nothing(client):
    answer = search(client, deterministic=True)
    reply = client.post("/api/replay", json={"task": TASK, "tokens": answer["tokens"], "model": MAZE_MODEL.name})
    text = reply.text
    assert reply.status_code == 200
    assert "attachment" in reply.headers["content-disposition"]
    assert len(text.encode()) < 1_000_000
    assert not re.search(r"""(src|href)\s*=|import\s+[{*"']|url\(|fetch\(|WebSocket""", text)
    data = json.loads(re.search(r'id="replay-data">(.*?)</script>', text, re.DOTALL)[1])
    assert data["right"]["tokens"] == answer["tokens"]


def test_the_largest_replay_is_below_a_megabyte():
    side = records.MAX_SIDE
    task = records.MazeTask(width=side, height=side, start=[0, 0], goal=[side - 1, side - 1], walls=[])
    searches, request = Searches(), records.SearchRequest(task=task, algorithm="dijkstra")
    left = searches.run(read_task(task), request)
    right = searches.judged(read_task(task), left.tokens[: records.MAX_TOKENS], finished=False, who="m")
    text = page.replay_page(task.model_dump(), left.model_dump(), right.model_dump())
    assert len(text.encode()) < 1_000_000


def test_nothing_in_a_replay_can_end_its_script():
    text = page.replay_page({}, {"who": "</script><script>alert(1)</script>"}, {"who": "<b>"})
    assert "</script><script>alert" not in text
    assert text.count("<script") == 2


# --- runs


def test_a_run_shows_its_models_and_replays_its_answers(client, run):
    assert client.get("/api/runs").json() == [{"name": "small", "has_report": True}]
    detail = client.get("/api/runs/small").json()
    assert [one["label"] for one in detail["evaluations"]] == [
        "1M search-augmented",
        "1M Searchformer, round 1",
        "1M control, round 1",
    ]
    assert len(detail["tasks"]) == 3
    task = detail["tasks"][0]["task_id"]
    shown = client.get(f"/api/runs/small/tasks/{task}").json()
    assert shown["astar"]["verdict"] == "optimal"
    assert [len(one["answers"]) for one in shown["evaluations"]] == [2, 2, 2]
    one = shown["evaluations"][1]
    query = {"evaluation": one["evaluation"], "sample": 1}
    replay = client.get(f"/api/runs/small/tasks/{task}/answer", params=query).json()
    assert replay["trace_tokens"] == one["answers"][1]["trace_tokens"]
    assert replay["verdict"] == "optimal"


def test_stored_answers_name_their_model_where_it_can_be_asked(client):
    task = client.get("/api/runs/small").json()["tasks"][0]["task_id"]
    shown = client.get(f"/api/runs/small/tasks/{task}").json()
    packaged = find_model("maze", {"width": 5, "height": 5})
    assert [one["model"] for one in shown["evaluations"]] == [packaged.name, None, None]


def test_a_replay_of_stored_answers_holds_what_is_stored(client):
    tasks = [each["task_id"] for each in client.get("/api/runs/small").json()["tasks"]]
    shown = client.get(f"/api/runs/small/tasks/{tasks[0]}").json()
    names = [one["evaluation"] for one in shown["evaluations"]]
    left, right = (
        {"run": "small", "task_id": tasks[0], "evaluation": names[number], "sample": number} for number in (0, 1)
    )

    def replay(**places):
        return client.post("/api/replay", json={"task": shown["task"], **places})

    reply = replay(left=left, right=right)
    data = json.loads(re.search(r'id="replay-data">(.*?)</script>', reply.text, re.DOTALL)[1])
    for side, place in (("left", left), ("right", right)):
        query = {"evaluation": place["evaluation"], "sample": place["sample"]}
        assert data[side] == client.get(f"/api/runs/small/tasks/{tasks[0]}/answer", params=query).json()
    assert data["task"] == shown["task"]
    assert replay(right={**right, "run": "none"}).status_code == 404
    reply = replay(right={**right, "task_id": tasks[1]})
    assert (reply.status_code, "another task" in reply.json()["detail"]) == (422, True)


def test_a_report_is_served_without_scripts(client):
    reply = client.get("/runs/small/report")
    assert "The report" in reply.text
    assert "script-src" not in reply.headers["content-security-policy"]
    assert reply.headers["content-security-policy"].startswith("default-src 'none'")


@pytest.mark.parametrize(
    "path",
    [
        "/api/runs/none",
        "/runs/none/report",
        "/api/runs/small/tasks/none",
        "/api/runs/small/tasks/none/answer?evaluation=x",
        "/api/runs/..%2F..",
        "/static/..%2Fapp.py",
        "/nowhere",
    ],
)
def test_what_is_not_there_is_a_404(client, path):
    assert client.get(path).status_code == 404


# --- safety


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "", "[::g]", "evil.example:80"])
def test_other_host_names_are_refused(client, host):
    reply = client.get("/api/models", headers={"host": host})
    assert reply.status_code == 403
    assert "--name" in reply.json()["detail"]


@pytest.mark.parametrize("host", ["localhost", "localhost:9", "127.0.0.1:80", "[::1]:80", "192.168.1.7:8080"])
def test_own_names_and_plain_addresses_are_let_in(client, host):
    assert client.get("/api/models", headers={"host": host}).status_code == 200


def test_requests_of_other_sites_are_refused(client):
    for origin in ("http://evil.example", "null", "http://localhost:1"):
        reply = client.post("/api/plan", json={"task": TASK}, headers={"origin": origin})
        assert reply.status_code == 403
    assert client.post("/api/plan", json={"task": TASK}, headers=ORIGIN).status_code == 200


@pytest.mark.parametrize("headers", [{"origin": "http://evil.example"}, {}])
def test_sockets_of_other_sites_are_refused(client, headers):
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("ws://localhost/api/ask", headers=headers):
        pass


def test_a_huge_request_is_refused_before_it_is_read(client):
    reply = client.post("/api/levels", content=b"x" * (records.MAX_REQUEST + 1))
    assert reply.status_code == 413
    chunks = (b"x" * 1000 for _ in range(records.MAX_REQUEST))
    assert client.post("/api/levels", content=chunks).status_code == 413


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"task": {**TASK, "width": 41}}, "width"),
        ({"task": {**TASK, "start": [9, 9]}}, "start's x must be a whole number from 0 to 5; found 9"),
        ({"task": {**TASK, "start": TASK["walls"][0]}}, "is a wall"),
        ({"task": {**TASK, "walls": [[0]]}}, "walls"),
        ({"task": {"level": ["#" * 50]}}, "level"),
        ({"task": {"level": ["#@#"]}}, "as many boxes as docks|open"),
        ({"task": TASK, "seed": -1}, "seed"),
        ({"task": TASK, "weight": "much", "algorithm": "weighted"}, "weight"),
        ({"task": None}, "task"),
        ([], "input should be"),
    ],
)
def test_a_malformed_request_gets_a_4xx_with_a_reason(client, body, reason):
    reply = client.post("/api/search", json=body)
    assert 400 <= reply.status_code < 500
    assert re.search(reason, reply.json()["detail"])


def test_a_search_that_is_too_large_is_refused(client):
    walls = ["#" * 20, "#@" + " " * 17 + "#", *["#" + " " * 18 + "#"] * 6]
    level = [*walls, "#  $ $ $ $ $ $     #", "#  . . . . . .     #", *["#" + " " * 18 + "#"] * 6, "#" * 20]
    reply = client.post("/api/search", json={"task": {"level": level}})
    assert reply.status_code == 422
    assert "too large" in reply.json()["detail"]


def test_every_reply_forbids_inline_scripts_and_foreign_sources(client):
    for path in ("/", "/api/models", "/static/app.js", "/nowhere"):
        policy = client.get(path).headers["content-security-policy"]
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy


def test_the_page_has_no_inline_script_or_style_and_no_foreign_address():
    static = Path(page.__file__).parent / "static"
    for name in ("index.html", "api.html"):
        text = (static / name).read_text()
        assert not re.search(r"<script(?![^>]*\ssrc=)|<style|\sstyle=|\son\w+=", text)
        assert not re.search(r"(src|href)=\"(?!/)", text)
    for path in static.iterdir():
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", path.read_text()), path.name


def test_the_modules_of_a_replay_come_after_those_that_they_import():
    static, seen = Path(page.__file__).parent / "static", set()
    for name in page.MODULES:
        imported = set(re.findall(r'from "\./([\w.]+)"', (static / name).read_text()))
        assert imported <= seen, name
        seen.add(name)
    names = re.findall(r"^(?:class|function|const|let)\s+(\w+)", page.bundle(), re.MULTILINE)
    assert len(names) == len(set(names)), "two modules call something the same"
    assert "import " not in page.bundle()


def test_the_interface_is_described(client):
    document = client.get("/openapi.json").json()
    assert {"/api/search", "/api/runs/{run}", "/api/replay"} <= document["paths"].keys()
    assert "openapi.json" in client.get("/api").text


def test_uploads_and_questions_write_nothing(client, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    client.post("/api/levels", json={"text": "\n".join(LEVEL)})
    client.post("/api/search", json={"task": TASK})
    client.get("/api/runs/small")
    assert list(tmp_path.iterdir()) == []
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before
