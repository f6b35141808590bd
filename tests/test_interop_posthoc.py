"""Posthoc's YAML: what a YAML reader finds in it, for A*'s searches and for a model's."""

import json
from pathlib import Path

import pytest
import yaml
from command import invoke

from searchformer.domains.formats import read_map
from searchformer.pretrained import packaged_models

MAZE = {"width": 3, "height": 3, "start": [0, 2], "goal": [2, 1], "walls": [[2, 0], [0, 1], [1, 1]]}


def exported(tmp_path: Path, task: dict, *options, domain: str = "maze") -> dict:
    (tmp_path / "task.jsonl").write_text(json.dumps(task))
    out = tmp_path / "t.trace.yaml"
    result = invoke("export", "posthoc", domain, tmp_path / "task.jsonl", "--out", out, "--json", *options)
    assert result.exception is None, result.exception
    trace = yaml.safe_load(out.read_text())
    assert json.loads(result.stdout) == {"out": str(out), "events": len(trace["events"])}
    return trace


def test_astars_search_is_told_event_by_event(tmp_path):
    trace = exported(tmp_path, MAZE)
    assert trace["version"] == "1.4.0"
    kinds = [(event["type"], event["id"], event.get("pId")) for event in trace["events"]]
    assert kinds[:4] == [
        ("source", "0 2", None),
        ("destination", "goal", None),
        ("generating", "0 2", None),
        ("expanding", "0 2", None),
    ]
    assert kinds[4] == ("generating", "1 2", "0 2")
    assert kinds[-1][:2] == ("end", "2 1")
    node = trace["events"][4]
    assert (node["x"], node["y"], node["g"], node["h"], node["f"]) == (1, 2, 1, 2, 3)


def test_an_answer_without_a_search_leaves_it_to_astar(tmp_path):
    assert exported(tmp_path, MAZE | {"answer": "rrru"}) == exported(tmp_path, MAZE)


def test_each_node_is_closed_before_the_next_is_expanded(tmp_path):
    is_open = None
    for event in exported(tmp_path, MAZE)["events"]:
        if event["type"] == "expanding":
            assert is_open is None
            is_open = event["id"]
        elif event["type"] == "closing":
            assert event["id"] == is_open
            is_open = None


def test_an_answer_is_exported_as_it_is_even_if_wrong(tmp_path):
    answer = "create 0 2 c0 c3 close 0 2 c0 c3 create 9 9 c1 c2 create 0 2 c0 c1 plan 0 2"
    events = exported(tmp_path, MAZE | {"answer": answer})["events"]
    assert [event["type"] for event in events] == [
        "source",
        "destination",
        "generating",
        "expanding",
        "generating",
        "updating",
        "end",
    ]


def test_a_models_search_and_the_map_are_exported(tmp_path):
    model = next(model for model in packaged_models() if model.domain == "maze")
    task = {"width": 6, "height": 6, "start": [0, 0], "goal": [3, 2], "walls": [[1, 0], [1, 1]]}
    trace = exported(tmp_path, task, "--model", model.name, "--map", tmp_path / "m.map")
    assert {"generating", "expanding"} <= {event["type"] for event in trace["events"]}
    assert read_map(tmp_path / "m.map").walls == ((1, 0), (1, 1))


def test_sokobans_states_are_nodes_at_the_workers_place(tmp_path):
    level = {"level": ["#####", "#@  #", "# $.#", "#   #", "#####"]}
    events = exported(tmp_path, level, domain="sokoban")["events"]
    assert events[0] == {"type": "source", "id": "worker 1 1 box 2 2", "x": 1, "y": 1}


@pytest.mark.parametrize(
    ("task", "options", "reason"),
    [
        (MAZE | {"answer": "create close plan 0 2"}, (), "the answer has no search to export"),
        (MAZE, ("--level", 2), "has no task 2"),
        ({"width": 3}, (), "a maze needs width"),
    ],
)
def test_what_cannot_be_exported_is_said(tmp_path, task, options, reason):
    (tmp_path / "task.jsonl").write_text(json.dumps(task))
    result = invoke("export", "posthoc", "maze", tmp_path / "task.jsonl", "--out", tmp_path / "x", *options)
    assert reason in str(result.exception)
    assert not (tmp_path / "x").exists()
