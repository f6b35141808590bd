"""`searchformer solve`: whatever a model answers, what is shown was replayed by the domain's rules."""

import json
import shutil

import numpy as np
import pytest
import torch
from command import invoke

from searchformer import pretrained
from searchformer.commands.solve import frames_of
from searchformer.domains import make_domain
from searchformer.errors import SearchformerError
from searchformer.evaluate.judge import Judge
from searchformer.model import Transformer, load_model, save_model
from searchformer.model.config import ModelConfig
from searchformer.pretrained.package import package_model
from searchformer.records import Verdict
from searchformer.search import Searcher
from searchformer.solve import (
    Solution,
    Task,
    make_task,
    plan_tokens,
    preference,
    random_task,
    search_events,
    solve,
)
from searchformer.tokens.grammar import write_text
from searchformer.tokens.vocabulary import Vocabulary

MAZE = {"width": 4, "height": 4, "start": [0, 0], "goal": [2, 2], "walls": [[1, 1], [2, 1], [0, 3], [3, 3]]}
WALLED_IN = {"width": 4, "height": 4, "start": [0, 0], "goal": [3, 3], "walls": [[3, 2], [2, 3]]}
LEVELS = """; the first
#######
#@ $. #
#     #
#######

; the second, with a box on a dock
 #####
 #+$ #
 # * #
 #   #
 #####
"""
SETTINGS = {"width": 4, "height": 4}


def make_model(directory, *, domain="maze", settings=SETTINGS, steps=0, **shape):
    """A tiny model: untrained, or one that knows A*'s answers to `MAZE` and nothing else."""
    made = make_domain(domain, settings)
    vocabulary = Vocabulary.of(made.token_list())
    config = ModelConfig(vocabulary=len(vocabulary), dim=32, layers=1, heads=2, ffn=64, **shape)
    model = Transformer(config, generator=torch.Generator().manual_seed(0), vocabulary=vocabulary)
    if steps:
        learn_by_heart(model, vocabulary, make_task(MAZE, settings=settings), steps=steps)
    save_model(model, vocabulary, directory, trained={"domain": domain, "settings": settings, "step": steps})
    return directory


def learn_by_heart(model, vocabulary, task, *, steps):
    """Fit the model to one of A*'s answers."""
    found = Searcher(task.domain).search(task.problem, seed=1)
    prompt, trace, plan = (vocabulary.encode(text.split()) for text in write_text(task.domain, task.problem, found))
    prompt_1S, response_1T = np.array([[0, *prompt, 1]]), np.array([[0, *trace, *plan, 1]])
    inputs = model.inputs(prompt_1S, np.array([prompt_1S.size]), response_1T, np.array([response_1T.size]))
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # on a busy machine threads wait for each other longer than so small a model computes
    for _ in range(steps):
        loss = model.losses(inputs).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def skilled(tmp_path_factory):
    """A model that solves `MAZE`."""
    return make_model(tmp_path_factory.mktemp("skilled") / "maze-4x4", steps=150)


@pytest.fixture(scope="module")
def untrained(tmp_path_factory):
    """A model that solves nothing."""
    return make_model(tmp_path_factory.mktemp("untrained") / "maze-4x4")


@pytest.fixture
def no_models(monkeypatch, tmp_path):
    """A package without models."""
    monkeypatch.setenv(pretrained.VARIABLE, str(tmp_path / "none"))


@pytest.fixture
def command():
    """Runs `searchformer solve` with these arguments; errors are raised."""

    def run(*arguments):
        result = invoke("solve", *arguments)
        if result.exception:
            raise result.exception
        return result

    return run


@pytest.fixture
def maze_file(tmp_path):
    """Three mazes: one that the models know the size of, an unsolvable one, and a smaller one."""
    path = tmp_path / "mazes.jsonl"
    small = {"width": 3, "height": 3, "start": [0, 0], "goal": [2, 2], "walls": []}
    path.write_text("".join(json.dumps(maze) + "\n" for maze in (MAZE, WALLED_IN, small)))
    return path


@pytest.fixture
def level_file(tmp_path):
    path = tmp_path / "levels.xsb"
    path.write_text(LEVELS)
    return path


# --- with a model


def test_a_models_best_answer_is_verified_and_shown_beside_what_astar_takes(command, skilled, maze_file):
    output = command(maze_file, "--model", skilled).output
    assert "moves   ddrr" in output
    assert f"plan    4 moves, optimal, by the model {skilled}" in output
    assert "by the model for this plan" in output
    assert "by the model (mean of" in output
    assert "by A* (mean of 16 runs)" in output
    assert "S . . .\no # # .\no o G .\n# . . #" in output
    assert "by the model (its only valid answer)" in command(maze_file, "--model", skilled, "--samples", 1).output


def test_the_json_has_the_plan_the_moves_and_both_efforts(command, skilled, maze_file):
    record = json.loads(command(maze_file, "--model", skilled, "--json", "--samples", 4).stdout.splitlines()[-1])
    assert record["planner"] == "model"
    assert record["optimal"]
    assert record["solvable"]
    assert record["plan"] == "plan 0 0 plan 0 1 plan 0 2 plan 1 2 plan 2 2"
    assert record["moves"] == "ddrr"
    assert sum(record["answers"].values()) == 4
    assert record["notes"] == []
    task = make_task(MAZE)
    found = Searcher(task.domain).search(task.problem, seed=1)
    assert record["search"]["created"] == found.created
    assert record["search"]["closed"] == found.closed
    assert record["search"]["tokens"] == 5 * (found.created + found.closed)
    assert record["model_mean"] == record["search"]  # it knows one search only
    assert record["astar"]["runs"] == 16


def test_the_same_seed_gives_the_same_solution(skilled):
    first, second = (solve(make_task(MAZE), model=skilled, samples=4, seed=5) for _ in range(2))
    assert np.array_equal(first.plan, second.plan)
    assert first.answers == second.answers
    assert np.array_equal(first.found, second.found)


def test_a_task_that_the_model_does_not_solve_is_planned_by_astar_and_that_is_said(command, untrained, maze_file):
    result = command(maze_file, "--model", untrained, "--samples", 2)
    assert "none of the model's 2 answers solves the task" in result.stderr
    assert "plan    4 moves, optimal, by A*" in result.stdout
    assert "0 optimal, 0 feasible, 2 invalid" in result.stdout
    assert " once): planned by A*" in command(maze_file, "--model", untrained, "--samples", 1).stderr


def test_an_unsolvable_task_is_said_to_be_unsolvable(command, skilled, maze_file):
    result = command(maze_file, "--level", 2, "--model", skilled)
    assert "unsolvable: no plan exists" in result.stdout
    record = json.loads(command(maze_file, "--level", 2, "--model", skilled, "--json").stdout)
    assert (record["solvable"], record["moves"], record["plan"], record["answers"]) == (False, None, "", {})


def test_a_size_that_the_model_was_not_trained_for_is_warned_of(command, untrained, maze_file):
    result = command(maze_file, "--level", 3, "--model", untrained, "--samples", 1)
    assert "was trained for width 4, height 4; this task has width 3, height 3" in result.stderr


def test_a_task_beyond_the_vocabulary_goes_to_astar_with_the_reason(command, untrained):
    result = command("--random", "maze:6x6", "--seed", 1, "--model", untrained)
    assert "the model cannot express this task (width 6, height 6: its vocabulary has no" in result.stderr
    assert "by A*" in result.stdout


def test_a_box_on_a_dock_is_beyond_the_papers_tokens_but_not_beyond_astar(command, level_file, tmp_path):
    settings = {"width": 5, "height": 5, "boxes": 1, "walls": 0}
    model = make_model(tmp_path / "sokoban", domain="sokoban", settings=settings)
    result = command(level_file, "--level", 2, "--model", model)
    assert "the model cannot express this task" in result.stderr
    assert "moves   ddrruuL" in result.stdout


def test_a_model_for_another_domain_is_refused(command, untrained, level_file):
    with pytest.raises(SearchformerError, match="was trained for maze; this task is of sokoban"):
        command(level_file, "--model", untrained)


def test_the_models_mean_is_over_the_answers_that_hold_and_the_best_is_no_worse(skilled):
    solution = solve(make_task(MAZE), model=skilled, samples=16)
    assert solution.effort.tokens <= solution.model.tokens
    assert solve(make_task(MAZE)).model is None


def verdict(kind, *, plan, trace):
    return Verdict(kind, None, plan, 5, trace, 1, 1, True, True, None, -1, 1.0, 0, 0)


def test_optimal_answers_come_first_then_short_plans_then_short_traces():
    ranked = [
        verdict("optimal", plan=5, trace=10),
        verdict("optimal", plan=5, trace=20),
        verdict("feasible", plan=7, trace=90),
        verdict("feasible", plan=9, trace=5),
    ]
    shuffled = [ranked[index] for index in (3, 1, 0, 2)]
    assert sorted(shuffled, key=preference) == ranked


# --- packaged models


def test_without_a_packaged_model_astar_plans_and_that_is_said(command, no_models, maze_file):
    result = command(maze_file)
    assert "no model for maze is packaged: planned by A*; --model DIR uses one of your own" in result.stderr
    assert "by A*" in result.stdout


def test_the_packaged_model_of_the_tasks_domain_and_size_is_used(command, skilled, maze_file, monkeypatch):
    monkeypatch.setenv(pretrained.VARIABLE, str(skilled.parent))
    result = command(maze_file)
    assert "by the model maze-4x4" in result.stdout
    assert result.stderr == ""


def test_the_planner_astar_asks_no_model(command, skilled, maze_file, monkeypatch):
    monkeypatch.setenv(pretrained.VARIABLE, str(skilled.parent))
    result = command(maze_file, "--planner", "astar")
    assert "by A*" in result.stdout
    assert "answers" not in result.stdout


def test_of_several_models_the_same_size_wins_then_the_nearest_larger_then_the_largest(monkeypatch, tmp_path):
    def add(name, **settings):
        (tmp_path / name).mkdir()
        trained = {"domain": "maze", "settings": settings}
        (tmp_path / name / "config.json").write_text(json.dumps({"trained": trained}))

    for side in (4, 6, 10):
        add(f"maze-{side}", width=side, height=side)
    monkeypatch.setenv(pretrained.VARIABLE, str(tmp_path))

    def chosen(width, height):
        return pretrained.find_model("maze", {"width": width, "height": height}).name

    assert [chosen(6, 6), chosen(5, 6), chosen(7, 3), chosen(12, 12)] == ["maze-6", "maze-6", "maze-10", "maze-10"]
    add("maze-many", width=12, height=12, smallest=5)
    assert [chosen(6, 6), chosen(5, 7), chosen(7, 4), chosen(14, 4)] == ["maze-6", "maze-many", "maze-10", "maze-many"]
    assert pretrained.find_model("sokoban", {}) is None


def test_a_random_task_takes_the_settings_of_the_packaged_model_of_its_size(command, tmp_path, monkeypatch):
    settings = {"width": 6, "height": 5, "boxes": 1, "walls": 3}
    make_model(tmp_path / "models" / "sokoban", domain="sokoban", settings=settings)
    monkeypatch.setenv(pretrained.VARIABLE, str(tmp_path / "models"))
    record = json.loads(command("--random", "sokoban:6x5", "--seed", 4, "--planner", "astar", "--json").stdout)
    level = "".join(record["task"]["level"])
    assert (level.count("$"), level.count("#")) == (1, 3 + 2 * 6 + 2 * 3)


def test_a_packaged_model_has_half_the_bytes_and_reads_back_as_float32(skilled, tmp_path):
    package_model(skilled, tmp_path / "maze-4x4", made_with=["searchformer run tiny"])
    (before, _), (after, vocabulary) = load_model(skilled), load_model(tmp_path / "maze-4x4")
    sizes = [(each / "model.safetensors").stat().st_size for each in (skilled, tmp_path / "maze-4x4")]
    assert sizes[1] < 0.6 * sizes[0]
    assert len(vocabulary) == before.config.vocabulary
    for name, weight in after.state_dict().items():
        assert weight.dtype == torch.float32
        assert torch.allclose(weight, before.state_dict()[name], rtol=1e-3, atol=1e-7)
    assert solve(make_task(MAZE), model=tmp_path / "maze-4x4", samples=4).planner == "model"


def test_a_step_network_solves_before_and_after_it_is_packaged(command, maze_file, tmp_path):
    shape = {"unit": "step", "shift": 2, "places": 5, "plan_places": 3, "prompt_places": 3}
    model, packaged = make_model(tmp_path / "model", steps=100, **shape), tmp_path / "maze-4x4"
    package_model(model, packaged, made_with=["searchformer run tiny"])
    for directory in (model, packaged):
        record = json.loads(command(maze_file, "--model", directory, "--json", "--samples", 4).stdout.splitlines()[-1])
        assert (record["planner"], record["moves"], record["answers"]) == ("model", "ddrr", {"optimal": 4})
    (before, _), (after, _) = load_model(model), load_model(packaged)
    assert torch.equal(before.token_kinds, after.token_kinds)
    assert after.decoder.head.copy_bias.dtype == torch.float32


def test_the_model_card_says_what_was_trained_and_measured(skilled, tmp_path):
    metrics = {
        "run": {"split": "test", "temperature": 1.0},
        "rule": "strict",
        "tasks": 200,
        "samples": 64,
        "metrics": {"solved": {"value": 0.9125, "low": 0.9, "high": 0.93}, "none": {"value": None}},
    }
    (tmp_path / "metrics.json").write_text(json.dumps(metrics))
    package_model(skilled, tmp_path / "box", metrics=tmp_path / "metrics.json", made_with=["searchformer run tiny"])
    card = (tmp_path / "box" / "MODEL_CARD.md").read_text()
    assert "- domain: maze" in card
    assert "- tasks: width 4, height 4" in card
    assert "- step: 150" in card
    assert "searchformer run tiny" in card
    assert "200 test tasks, 64 answers each" in card
    assert "| solved | 0.9125 | 0.9 to 0.93 |" in card
    assert "| none" not in card


def test_a_model_too_large_for_the_package_is_refused(skilled, tmp_path, monkeypatch):
    monkeypatch.setattr("searchformer.pretrained.package.MOST_BYTES", 1000)
    with pytest.raises(SearchformerError, match="at most 1,000 bytes"):
        package_model(skilled, tmp_path / "box")
    assert not (tmp_path / "box").exists()


# --- tasks


def test_level_chooses_a_task_of_a_collection(command, level_file, no_models):
    first, second = (command(level_file, "--level", level).stdout for level in (1, 2))
    assert "moves   rR" in first
    assert "--level chooses another task" in first
    assert "moves   ddrruuL" in second
    with pytest.raises(SearchformerError, match="has no task 3"):
        command(level_file, "--level", 3)


def test_a_map_is_solved_from_a_start_to_a_goal(command, tmp_path, no_models):
    path = tmp_path / "hall.map"
    path.write_text("type octile\nheight 3\nwidth 4\nmap\n....\n.@@.\n..@.\n")
    assert "moves   rrrdd" in command(path, "--start", "0,0", "--goal", "3,2").stdout
    with pytest.raises(SearchformerError, match="give a start and a goal"):
        command(path)
    with pytest.raises(SearchformerError, match="a cell is X,Y"):
        command(path, "--start", "0;0", "--goal", "3,2")


def test_a_start_and_a_goal_are_for_maps_only(command, maze_file):
    with pytest.raises(SearchformerError, match=r"--start and --goal are for \.map files; .* has tasks of its own"):
        command(maze_file, "--start", "0,0", "--goal", "1,1")


@pytest.mark.parametrize("order", [("{file}", "--domain", "tiles", "--width", "2", "--height=2"), None])
def test_settings_of_the_domain_are_options_wherever_they_stand(command, tmp_path, no_models, order):
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"prompt": "tiles 1 0 3 2"}\n')
    order = order or ("--width", "2", "--height=2", "--domain", "tiles", "{file}")
    stdout = command(*(word.format(file=path) for word in order)).stdout
    assert " 1  .    1  2\n 3  2    3  ." in stdout
    assert "plan    1 move, optimal, by A*" in stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "expected a FILE or --random"),
        (["tasks.jsonl", "--random", "maze"], "and not both"),
        (["--random", "maze:6"], "such as maze:6x6"),
        (["--random", "maze:1x1"], "maze: width"),
        (["--random", "chess"], "no domain is called 'chess'"),
        (["--random", "maze", "--modle", "x"], "maze has no option '--modle'"),
        (["--random", "maze", "--planner", "astar", "--max-expansions", "1"], "gave up after closing 1 nodes"),
        (["missing.jsonl"], "missing.jsonl: cannot be read: No such file"),
        (["--random", "maze:4x4", "--model", "missing"], "missing holds no model"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(command, no_models, arguments, message):
    with pytest.raises(SearchformerError, match=message) as caught:
        command(*arguments)
    assert "\n" not in str(caught.value)


def test_random_tasks_are_solvable_and_drawn_by_their_seed(smallest):
    first, again, other = (random_task(smallest, seed=seed) for seed in (3, 3, 4))
    assert np.array_equal(first.problem, again.problem)
    assert not np.array_equal(first.problem, other.problem)
    assert Searcher(smallest).search(first.problem).solvable


# --- moves and states


STEPS = {"u": (0, -1), "d": (0, 1), "l": (-1, 0), "r": (1, 0)}


def test_the_moves_of_a_maze_lead_from_start_to_goal():
    domain = make_domain("maze", {"width": 6, "height": 5})
    for seed in range(5):
        task = random_task(domain, seed=seed)
        record, moves = domain.decode(task.problem), domain.moves(task.problem, solve(task).plan)
        x, y = record["start"]
        for move in moves:
            x, y = x + STEPS[move][0], y + STEPS[move][1]
            assert [x, y] not in record["walls"]
        assert [x, y] == record["goal"]


def test_the_moves_of_sokoban_push_every_box_onto_a_dock_and_pushes_are_capitals():
    domain = make_domain("sokoban", {"width": 6, "height": 6, "boxes": 1})
    for seed in range(5):
        task = random_task(domain, seed=seed)
        rows = domain.decode(task.problem)["level"]
        places = {mark: (x, y) for y, row in enumerate(rows) for x, mark in enumerate(row) if mark in "@$."}
        (x, y), box = places["@"], places["$"]
        for move in domain.moves(task.problem, solve(task).plan):
            step_x, step_y = STEPS[move.lower()]
            x, y = x + step_x, y + step_y
            assert move.isupper() == ((x, y) == box)
            if move.isupper():
                box = (x + step_x, y + step_y)
        assert box == places["."]


def as_answer(task, found):
    """A*'s solution as if a model had written it."""
    _, trace, plan = write_text(task.domain, task.problem, found)
    return f"{trace} {plan}".split()


def test_the_states_of_a_written_search_are_those_of_the_search(smallest):
    task = random_task(smallest, seed=0)
    searched = solve(task)
    tokens = as_answer(task, searched.found)
    read = Solution(**{**vars(searched), "planner": "model", "found": tokens})
    for one, other in zip(search_events(searched), search_events(read), strict=True):
        assert (one.closes, one.cost, one.estimate) == (other.closes, other.cost, other.estimate)
        assert np.array_equal(one.state, other.state)


def test_the_plan_tokens_are_those_that_the_grammar_writes(smallest):
    task = random_task(smallest, seed=0)
    solution = solve(task)
    assert " ".join(plan_tokens(solution)) == write_text(task.domain, task.problem, solution.found)[2]
    answer = " ".join(plan_tokens(solution))
    assert Judge(task.domain).judge_text(task.problem, answer).verdict == "optimal"


def test_a_state_that_an_answer_had_not_reached_has_no_drawing_of_its_own():
    task = make_task(MAZE)
    text = "create 0 0 c0 c4 create 3 1 c1 c2 plan 0 0"
    solution = Solution(**{**vars(solve(task)), "planner": "model", "found": text.split()})
    assert [event.state is None for event in search_events(solution)] == [False, True]
    assert "never reached" in frames_of(solution)[1]


def test_the_animation_has_a_frame_per_step_and_keeps_what_was_searched():
    task = make_task(MAZE)
    solution = solve(task)
    frames = frames_of(solution)
    assert len(frames) == len(solution.found.kinds)
    assert frames[0].startswith("o . . .\n. # # .\n. . G .\n# . . #")
    assert frames[-1].startswith("S x x +\nx # # .\nx x o .\n# + . #")
    assert f"step {len(frames)} of {len(frames)}: A* closes (g 4, h 0)" in frames[-1]
    assert "S start, G goal, # wall, o now, + open, x closed" in frames[-1]
    assert max(len(line) for frame in frames for line in frame.splitlines()) <= 80


def test_the_legend_of_an_animation_names_what_comes_later():
    frames = frames_of(solve(make_task({"level": ["######", "#@$ .#", "######"]})))
    assert "*" not in frames[0].split("\n\n")[0]
    assert "*" in frames[-1].split("\n\n")[0]
    assert all("@ worker, $ box, . dock, * box on a dock, # wall" in frame for frame in frames)


def test_nothing_is_animated_where_there_is_no_terminal(command, no_models, maze_file):
    plain, animated = (command(maze_file, *more) for more in ([], ["--animate"]))
    assert plain.output == animated.output


def test_levels_beyond_the_settings_limits_are_solved_too(tmp_path):
    task = make_task({"level": ["####", "#@ #", "#$ #", "#. #", "####"]})
    assert isinstance(task, Task)
    assert task.domain.moves(task.problem, solve(task).plan) == "D"


def test_a_damaged_model_is_an_error_and_not_a_fallback(command, skilled, maze_file, tmp_path):
    shutil.copytree(skilled, tmp_path / "damaged")
    (tmp_path / "damaged" / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(SearchformerError, match=r"model\.safetensors cannot be read"):
        command(maze_file, "--model", tmp_path / "damaged")
