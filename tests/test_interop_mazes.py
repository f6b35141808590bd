"""Other people's mazes and collections as they are found: read as tasks, solved, judged, and never all lost for one."""

import json
from pathlib import Path

import pytest
from command import invoke

from searchformer.domains import TaskError, make_domain
from searchformer.domains.formats import read_levels
from searchformer.evaluate.answers import answer_tokens
from searchformer.evaluate.judge import Judge
from searchformer.interop.mazes import from_record, grid_maze, question_maze, token_maze
from searchformer.interop.tasks import read_tasks

# S.#     Sooo in the answer of Maze-Hard
MAZE = "S # " + "   #" + "## #" + "   G"
SOLVED = "S # " + "ooo#" + "##o#" + "  oG"
RIGHT = "So# " + " oo#" + "##o#" + "  oG"
DETOUR_MAZE = "S  " + "   " + "  G"
DETOUR = "S  " + "o  " + "ooG"
ALPHA = (  # origin at row 0, column 0; target right of it, around a wall
    "<|0-0|><|up_left_right_wall|><|origin|><|0-1|><|up_left_right_wall|><|target|>\n"
    "<|1-0|><|down_left_wall|><|blank|><|1-1|><|down_right_wall|><|blank|>\n"
)
QUESTION = (
    "Navigate from '0' (start) to 'x' (goal):\n\n```\n#####\n#0..#\n###.#\n#x..#\n#####\n```\n"
    "Legend: '#' = Wall, '.' = Passage\n\nWhat is the minimum number of steps to reach the goal?"
)


@pytest.fixture
def save(tmp_path):
    def save(name: str, text: str) -> Path:
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return save


def table(*rows: tuple[str, str]) -> str:
    return "source,q,a,rating\n" + "".join(
        f"x,{maze},{answer},{number}\n" for number, (maze, answer) in enumerate(rows)
    )


def lines(result) -> list[dict]:
    return [json.loads(line) for line in result.stdout.splitlines()]


# --- Maze-Hard


def test_a_table_of_mazes_is_traced_and_its_answers_are_judged(save):
    path = save("test.csv", table((MAZE, RIGHT), (DETOUR_MAZE, DETOUR)))
    traced = lines(invoke("trace", "maze", path, "--deterministic"))
    assert [found["solvable"] for found in traced] == [True, True]
    assert traced[0]["walls"] == [[2, 0], [3, 1], [0, 2], [1, 2], [3, 2]]
    assert (traced[0]["start"], traced[0]["goal"], traced[0]["rating"]) == ([0, 0], [3, 3], "0")
    result = invoke("judge", "maze", path)
    assert [found["verdict"] for found in lines(result)] == ["optimal", "optimal"]
    assert "of 2 answers 2 optimal" in result.stderr


def test_any_shortest_path_counts_and_longer_ones_are_counted_apart(save):
    long_way = "Soo" + "  o" + "  G"  # as short as any other
    roundabout = "S o" + "o o" + "ooo"
    open_maze = "S  " + "   " + "  G"
    around = "S#G" + "o#o" + "ooo"
    path = save("m.csv", table((open_maze, long_way), ("S#G" + " # " + "   ", around), (open_maze, roundabout)))
    result = invoke("judge", "maze", path)
    found = lines(result)
    assert [each.get("verdict") for each in found] == ["optimal", "optimal", None]
    assert found[2] == {"line": 4, "error": "the answer is not the maze with a path of 'o' on free cells"}
    assert str(result.exception).endswith("m.csv:4: the answer is not the maze with a path of 'o' on free cells")


@pytest.mark.parametrize(
    ("maze", "answer", "reason"),
    [
        ("S G", "", "expected a square maze of 4096 cells a side at most; found 3 characters"),
        ("S  S", "", "a maze has one start 'S' and one goal 'G'; found 2, 0"),
        ("S?.G", "", "row 0, column 1: expected one of 'SG# '; found '?'"),
        (MAZE, SOLVED, None),
        (MAZE, MAZE, "the answer's marks do not lead from the start to the goal"),
        (MAZE, RIGHT.replace("S", "o"), "the answer is not the maze with a path of 'o' on free cells"),
        (MAZE, RIGHT.replace("##o#", "#oo#"), "the answer is not the maze with a path of 'o' on free cells"),
        (MAZE, RIGHT[:-1], "the answer is not the maze with a path of 'o' on free cells"),
        (MAZE, RIGHT[:12] + "o oG", "the answer marks 6 cells, of which 5 are on a path to the goal"),
    ],
)
def test_a_row_that_is_wrong_says_why(maze, answer, reason):
    if reason is None:
        assert grid_maze(maze, answer)["answer"].startswith("plan 0 0 plan 0 1 plan 1 1")
        return
    with pytest.raises(TaskError) as caught:
        grid_maze(maze, answer)
    assert str(caught.value) == reason


def test_a_table_with_other_columns_is_refused(save):
    result = invoke("trace", "maze", save("x.csv", "a,b\n1,2\n"))
    assert str(result.exception).endswith("x.csv:1:1: expected the columns source,q,a,rating; found 'a,b'")


def test_the_same_rows_as_json_are_read_too():
    assert from_record({"source": "x", "q": MAZE, "a": RIGHT, "rating": 3})["rating"] == 3
    assert from_record({"question": MAZE, "answer": RIGHT})["answer"].endswith("plan 3 3")


# --- AlphaMaze


def test_walls_between_cells_become_cells():
    task = token_maze(ALPHA + "<|down|> <|right|> <|up|>")
    assert task == {
        "width": 3,
        "height": 3,
        "start": [0, 0],
        "goal": [2, 0],
        "walls": [[1, 0], [1, 1]],
        "answer": "ddrruu",
    }


def test_mazes_in_tokens_are_judged(save):
    text = f"{ALPHA}<|down|><|right|><|up|>\n{ALPHA}<think>at <|0-1|> no</think> <|right|>\n"
    found = lines(invoke("judge", "maze", save("alpha.txt", text)))
    assert [(each["verdict"], each["reason"]) for each in found] == [
        ("optimal", None),
        ("invalid", "illegal move at step 1"),
    ]
    record = {
        "Prompt": f"You solve mazes. MAZE: {ALPHA}",
        "Response": "I go <|down|><|up|> no: <|down|><|right|><|up|>",
    }
    path = save("alpha.jsonl", json.dumps(record) + "\n")
    assert lines(invoke("judge", "maze", path))[0]["verdict"] == "optimal"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (ALPHA.replace("<|1-1|>", "<|1-7|>"), "expected every cell of a maze once"),
        (ALPHA.replace("target", "blank"), "a maze has one origin and one target; found 1, 0"),
        (ALPHA.replace("down_left_wall", "down_sideways_wall"), "expected walls up, down, left, right"),
        ("<|0-0|> nothing else", "expected every cell of a maze once"),
    ],
)
def test_tokens_that_are_no_maze_say_why(text, reason):
    with pytest.raises(TaskError, match=reason):
        token_maze(text)


# --- reasoning-gym


def test_questions_are_read_and_claimed_lengths_are_checked(save):
    records = [{"question": QUESTION, "answer": answer, "metadata": {}} for answer in ("6", "5", "rrddll", "3,3")]
    found = lines(invoke("judge", "maze", save("gym.jsonl", "\n".join(map(json.dumps, records)))))
    assert [each["verdict"] for each in found] == ["right length", "wrong length", "optimal", "invalid"]
    assert found[0]["optimal_length"] == 7


def test_the_librarys_own_mazes_are_read_and_their_lengths_are_right(save):
    """40 of the library's mazes, written by its version 0.1.25."""
    path = Path(__file__).parent / "golden" / "reasoning-gym-maze.jsonl"
    items = [json.loads(line) for line in path.read_text().splitlines()]
    result = invoke("judge", "maze", path)
    assert [each["verdict"] for each in lines(result)] == ["right length"] * 40
    assert question_maze(items[0]["question"], None)["width"] == items[0]["metadata"]["grid_size"]
    text = save("gym.txt", "\n".join(item["question"] for item in items))
    assert sum(isinstance(task, dict) for _, task in read_tasks(str(text))) == 40


def test_a_question_of_another_kind_is_refused():
    with pytest.raises(TaskError, match="expected a question of reasoning-gym's mazes"):
        question_maze("What is 2 + 2?", "4")


# --- answers


MAZE_TASK = {"width": 3, "height": 3, "start": [0, 0], "goal": [2, 0], "walls": [[1, 0]]}


@pytest.mark.parametrize(
    ("answer", "verdict", "reason"),
    [
        ("drru", "optimal", None),
        ("D, R, R, U", "optimal", None),
        ("down right right up", "optimal", None),
        ("Down -> right -> right -> up", "optimal", None),
        ("(0, 0) -> (0, 1) -> (1, 1) -> (2, 1) -> (2, 0)", "optimal", None),
        ("[[0, 0], [0, 1], [1, 1], [2, 1], [2, 0]]", "optimal", None),
        ("0,0 0,1 1,1 2,1 2,0", "optimal", None),
        ("dudrru", "feasible", None),
        ("r", "invalid", "illegal move at step 1"),  # into the wall
        ("drrru", "invalid", "illegal move at step 4"),  # out of the grid
        ("dr", "invalid", "not solved"),
        ("(0, 0) -> (9, 9)", "invalid", "illegal move at step 1"),
        ("(0, 1) -> (1, 1)", "invalid", "wrong start"),
        ("0 0 1", "invalid", "parse error at token 0"),
        ("to the right, then up", "invalid", "parse error at token 0"),
        ("(0, 0) -> (0, -1) -> (1, 1) -> (2, 1) -> (2, 0)", "invalid", "parse error at token 0"),  # no minus is lost
        ("0,0-0,1-1,1-2,1-2,0", "optimal", None),
        ("", "invalid", "no plan"),
    ],
)
def test_moves_and_coordinates_are_judged_as_plans_are(answer, verdict, reason):
    domain = make_domain("maze", {"width": 3, "height": 3})
    found = Judge(domain).judge_text(domain.encode(MAZE_TASK), answer)
    assert (found.verdict, found.reason) == (verdict, reason)


def test_answers_may_be_lists(save):
    cells = [[0, 0], [0, 1], [1, 1], [2, 1], [2, 0]]
    answers = [list("drru"), cells, ["plan", "0", "0", "plan", "0", "1"], [[0, -1]], [None], 7]
    text = "\n".join(json.dumps(MAZE_TASK | {"answer": answer}) for answer in answers)
    result = invoke("judge", "maze", save("x.jsonl", text))
    found = lines(result)
    assert [each.get("verdict") for each in found] == ["optimal", "optimal", "invalid", "invalid", "invalid", None]
    assert [each.get("reason") for each in found[2:5]] == ["not solved", *["parse error at token 0"] * 2]
    assert found[5]["error"] == 'expected "answer", a text or list of tokens, moves or coordinates; found 7'


def test_sokobans_moves_are_read_with_or_without_capitals():
    domain = make_domain("sokoban", {"width": 5, "height": 5, "boxes": 1})
    problem = domain.encode({"level": ["#####", "#@  #", "# $.#", "#   #", "#####"]})
    for answer in ("dR", "dr", "DR"):
        assert Judge(domain).judge_text(problem, answer).verdict == "optimal"
    assert Judge(domain).judge_text(problem, "rdd").reason == "illegal move at step 3"


def test_where_plans_are_no_cells_only_tokens_are_read():
    domain = make_domain("tiles", {"width": 2, "height": 2})
    problem = domain.encode({"prompt": "tiles 1 2 0 3"})
    assert answer_tokens(domain, problem, "r") == ["r"]


# --- collections as they are found

GOOD = "#####\n#@$.#\n#####\n"
TWO_WORKERS = "#####\n#@$@#\n#####\n"
NO_DOCK = "#####\n#@$ #\n#####\n"


def test_one_bad_level_costs_itself(save):
    path = save("levels.xsb", f"{GOOD}\n{TWO_WORKERS}\n{GOOD}\n{NO_DOCK}\n")
    result = invoke("trace", "sokoban", path)
    assert result.exception is None
    assert len(lines(result)) == 2
    assert result.stderr.splitlines() == [
        f"searchformer: skipped the level at {path}:6:4: a second worker in this level",
        f"searchformer: skipped the level at {path}:13:1: boxes and docks differ in number: 1 and 0",
    ]
    strict = invoke("trace", "sokoban", path, "--strict")
    assert str(strict.exception).endswith("a second worker in this level")
    assert strict.stdout == ""


def test_a_collection_of_bad_levels_only_is_refused(save):
    assert "a second worker" in str(invoke("trace", "sokoban", save("x.xsb", TWO_WORKERS)).exception)
    xml = "<SokobanLevels><LevelCollection><Level Id='a'><L>###</L><L>#@#</L><L>###</L></Level>"
    xml += "<Level Id='b'><L>#####</L><L>#@$.#</L><L>#####</L></Level></LevelCollection></SokobanLevels>"
    skipped: list = []
    assert [level.title for level in read_levels(save("x.slc", xml), skipped)] == ["b"]
    assert len(skipped) == 1


def test_a_task_over_budget_or_malformed_costs_its_line(save):
    good = {**MAZE_TASK, "answer": "drru"}
    path = save("tasks.jsonl", "\n".join([json.dumps(good), "{", json.dumps({"width": 3}), json.dumps(good)]))
    for command in ("trace", "judge"):
        result = invoke(command, "maze", path)
        found = lines(result)
        assert ["error" in line for line in found] == [False, True, True, False]
        assert [line["line"] for line in found if "error" in line] == [2, 3]
        assert f"{path}:2: expected a JSON object" in str(result.exception)
        assert str(result.exception).endswith("(and 1 more of 4 failed)")
        assert len(lines(invoke(command, "maze", path, "--strict"))) == 1
    for command in ("trace", "judge"):
        found = lines(invoke(command, "maze", save("one.jsonl", json.dumps(good)), "--max-expansions", 1))
        assert found[0]["line"] == 1
        assert "gave up after closing 1 nodes" in found[0]["error"]


def test_a_missing_answer_costs_its_line(save):
    found = lines(invoke("judge", "maze", save("a.jsonl", json.dumps(MAZE_TASK) + "\n" + json.dumps(MAZE_TASK))))
    assert [line["line"] for line in found] == [1, 2]


def test_solve_takes_other_peoples_mazes(save):
    result = invoke("solve", save("m.csv", table((MAZE, RIGHT))), "--planner", "astar", "--json")
    assert json.loads(result.stdout)["plan_length"] == 7
    assert "found '?'" in str(invoke("solve", save("n.csv", table(("S?.G", "")))).exception)


def test_tasks_of_a_file_become_a_data_set(save, tmp_path):
    path = save("m.csv", table((MAZE, RIGHT), (DETOUR_MAZE, ""), (MAZE, ""), ("S#" + "#G", "")))
    size = ("--width", 4, "--height", 4)
    result = invoke("import", "tasks", "maze", path, *size, "--out", tmp_path / "data")
    assert (result.exception, result.stdout) == (None, f"{tmp_path / 'data'}: 0 training and 1 test tasks\n")
    assert [line.removeprefix(f"searchformer: skipped {path}") for line in result.stderr.splitlines()[:3]] == [
        ":3: expected a task of width 4, height 4; found one of width 3, height 3",
        ":4: an earlier task is the same",
        ":5: expected a task of width 4, height 4; found one of width 2, height 2",
    ]
    facts = json.loads(invoke("inspect", tmp_path / "data", "--json").stdout)
    assert facts["leakage"]["wrong_ids"] == 0


def test_models_answer_the_mazes_of_a_file(save, tmp_path):
    from searchformer.pretrained import find_model

    model = find_model("maze", {"width": 6, "height": 6})
    maze = "S " + " " * 33 + "G"
    path, out = save("m.csv", table((maze, ""), (MAZE, ""))), tmp_path / "answers"
    command = ("rollout", "--model", model.name, "--data", path, "--samples", 2, "--workers", 1, "--out", out)
    result = invoke(*command)
    assert result.exception is None
    assert "skipped" in result.stderr
    assert "2 were there" in invoke(*command).stdout  # the same command continues
    assert json.loads(invoke("evaluate", out, "--json").stdout)["tasks"] == 1
    other = save("n.csv", table((maze[::-1], "")))
    assert "with other options" in str(invoke(*command[:4], other, *command[5:]).exception)
