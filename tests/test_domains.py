"""Every registered domain keeps the contract of domains/base.py; mazes and Sokoban keep the reference's rules."""

import importlib.metadata
import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from documents import blocks
from hypothesis import given, settings
from hypothesis import strategies as st

import searchformer.domains
from searchformer.domains import DEAD_END, KEYWORDS, TaskError, base, domain_class, domain_names, make_domain
from searchformer.domains.formats import read_levels
from searchformer.errors import SearchformerError
from searchformer.search import Options, Sampler, Searcher, reference
from searchformer.search.compiled import bind
from searchformer.tokens.vocabulary import Vocabulary

GOLDEN = Path(__file__).parent / "golden"
ENCLOSE = "walls must enclose the worker"
FOLDER = Path(searchformer.domains.__file__).parent


def prompt(domain, problem):
    tokens = np.zeros(domain.prompt_room(problem), dtype=np.int32)
    length = domain.rules.write_prompt(problem, tokens)
    return [domain.token_text(code) for code in tokens[:length].tolist()]


def walk(domain, problem, *, steps, seed):
    """States met on a random walk from the start."""
    world = reference.World(domain, problem, uses_heuristic=True)
    chance, state = random.Random(seed), world.start()
    for _ in range(steps):
        yield state, world
        children = world.successors(state)
        if not children:
            return
        state = chance.choice(children)


def sample(domain, tasks, *, pairs=1, seed=0):
    """Problems of accepted tasks."""
    ids = Vocabulary.of(domain.token_list()).encode(domain.token_list())
    sampler = Sampler(Searcher(domain), ids, seed=seed, part=0, pairs=pairs, max_trace_tokens=1 << 30)
    found = [sampler.draw(tasks).problems.copy()]
    while (missing := tasks - sum(map(len, found))) > 0:
        found.append(sampler.draw(missing).problems.copy())
    return np.concatenate(found)


def uneven(counts, expected):
    """How far counts lie from what was expected, in standard deviations of the chi-square statistic."""
    freedom = len(counts) - 1
    return (float(np.sum((np.asarray(counts) - expected) ** 2 / expected)) - freedom) / np.sqrt(2 * freedom)


# Every domain


def test_tasks_survive_json(domain, draw_problems):
    for problem in draw_problems(domain, 100):
        record = json.loads(json.dumps(domain.decode(problem)))
        assert np.array_equal(domain.encode(record), problem)


def test_prompts_tell_the_whole_task(domain, draw_problems):
    for problem in draw_problems(domain, 100):
        assert np.array_equal(domain.parse_prompt(prompt(domain, problem)), problem)


def test_states_and_plan_steps_have_the_shapes_that_the_domain_declares(domain, draw_problems):
    rules = bind(domain.rules)
    for seed, problem in enumerate(draw_problems(domain, 20)):
        for state, _ in walk(domain, problem, steps=20, seed=seed):
            for rule, shape in (("write_state", domain.shapes.state), ("write_plan", domain.shapes.plan)):
                tokens = np.zeros(domain.state_room(problem), dtype=np.int32)
                length = rules[rule](problem, np.array(state, dtype=np.int32), tokens)
                base.parse_groups([domain.token_text(code) for code in tokens[:length].tolist()], shape)


def test_plan_steps_tell_a_states_successors_apart(domain, draw_problems):
    rules = bind(domain.rules)
    for seed, problem in enumerate(draw_problems(domain, 20)):
        for state, world in walk(domain, problem, steps=20, seed=seed):
            steps = []
            for child in world.successors(state):
                tokens = np.zeros(domain.state_room(problem), dtype=np.int32)
                length = rules["write_plan"](problem, np.array(child, dtype=np.int32), tokens)
                steps.append(tuple(tokens[:length].tolist()))
            assert len(set(steps)) == len(steps) <= domain.max_children


def test_heuristics_are_zero_at_goals_and_never_overestimate(domain, draw_problems):
    astar = Searcher(domain, Options(algorithm="dijkstra", deterministic=True))
    for problem in draw_problems(domain, 60):
        world = reference.World(domain, problem, uses_heuristic=True)
        path = [tuple(state) for state in astar.search(problem).plan.tolist()]
        for left, state in enumerate(reversed(path)):
            assert 0 <= world.estimate(state) <= left
        assert not path or world.estimate(path[-1]) == 0


def test_a_vocabulary_holds_every_token_once(domain, draw_problems):
    tokens = domain.token_list()
    assert len(set(tokens)) == len(tokens)
    assert set(KEYWORDS) <= set(tokens)
    for problem in draw_problems(domain, 30):
        assert set(prompt(domain, problem)) <= set(tokens)


def test_symmetric_tasks_have_plans_of_the_same_length(domain, draw_problems):
    astar = Searcher(domain)
    for problem in draw_problems(domain, 30):
        images = domain.symmetric(problem)
        assert any(np.array_equal(image, problem) for image in images)
        assert len({len(astar.search(image).plan) for image in images}) == 1


@pytest.mark.parametrize("name", ["maze", "sokoban"])
def test_grids_have_eight_symmetric_images(name, draw_problems):
    domain = make_domain(name)
    problem = next(draw_problems(domain, 1))
    images = domain.symmetric(problem)
    assert len({image.tobytes() for image in images}) == len(images) == 8
    back = {other.tobytes() for image in images for other in domain.symmetric(image)}
    assert back == {image.tobytes() for image in images}


def test_tasks_and_layouts_have_stable_names(smallest, draw_problems):
    problems = list(draw_problems(smallest, 50))
    distinct = {problem.tobytes() for problem in problems}
    assert len({smallest.task_id(problem) for problem in problems}) == len(distinct)
    assert all(re.fullmatch("[0-9a-f]{32}", smallest.task_id(problem)) for problem in problems)
    stacked = smallest.layout(np.stack(problems))
    assert all(np.array_equal(row, smallest.layout(one)) for row, one in zip(stacked, problems, strict=True))


def test_task_ids_never_change():
    maze = {"width": 3, "height": 2, "start": [0, 0], "goal": [2, 1], "walls": [[1, 0]]}
    sokoban = {"level": ["######", "#@$ .#", "######"]}
    tiles = {"prompt": "tiles 1 2 3 4 5 6 7 0 8"}
    records = {"maze": maze, "sokoban": sokoban, "tiles": tiles}
    ids = {name: make_domain(name).task_id(make_domain(name).encode(record)) for name, record in records.items()}
    assert ids == {
        "maze": "17036302af2e455dc63260d0f9c0363f",
        "sokoban": "7fe13082a5eee3cac42eb89eb9fd2af2",
        "tiles": "56dc74970ca3f05ab91d95918a87d509",
    }


def test_drawings_show_the_state(domain, draw_problems):
    for seed, problem in enumerate(draw_problems(domain, 10)):
        drawings = {}
        for state, _ in walk(domain, problem, steps=20, seed=seed):
            drawings[state] = domain.draw(problem, np.array(state, dtype=np.int32))
        assert len(set(drawings.values())) == len(drawings)
        assert domain.draw(problem)


@pytest.mark.parametrize("name", domain_names())
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_damaged_prompts_give_another_task_or_a_task_error(name, draw_problems, data):
    domain = make_domain(name)
    tokens = prompt(domain, next(draw_problems(domain, 1)))
    words = st.sampled_from([*domain.all_words, "0", "1", "7", "-1", "+1", "01", "1_0", "²", "", "9" * 5000])
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(tokens)))
        tokens = [*tokens[:place], data.draw(words), *tokens[place + data.draw(st.integers(0, 2)) :]]
    try:
        problem = domain.parse_prompt(tokens)
    except TaskError:
        return
    assert np.array_equal(domain.parse_prompt(prompt(domain, problem)), problem)


# Mazes


@given(data=st.data(), width=st.integers(1, 12), height=st.integers(1, 12))
@settings(max_examples=100, deadline=None)
def test_any_maze_survives_encoding(data, width, height):
    cells = st.tuples(st.integers(0, width - 1), st.integers(0, height - 1))
    start, goal = data.draw(cells), data.draw(cells)
    walls = sorted(data.draw(st.sets(cells)) - {start, goal}, key=lambda cell: (cell[1], cell[0]))
    maze = {"width": width, "height": height, "start": list(start), "goal": list(goal), "walls": list(map(list, walls))}
    domain = make_domain("maze")
    assert domain.decode(domain.encode(maze)) == maze


def test_sampled_mazes_follow_the_reference():
    maze = make_domain("maze")
    problems = sample(maze, 3000)
    walls = problems[:, 4:].sum(axis=1)
    assert (walls.min(), walls.max()) == (30, 50)
    assert not (problems[:, 4:] > 1).any()
    rules = bind(maze.rules)
    nodes = [rules["foresee"](problem) for problem in problems[:300]]
    assert min(nodes) == 10
    for index in (2, 3):
        x, y = problems[:, index] >> 16, problems[:, index] & 0xFFFF
        assert not problems[np.arange(len(problems)), 4 + y * 10 + x].any()


def test_walls_and_ends_of_mazes_are_drawn_uniformly(draw_problems):
    maze = make_domain("maze")
    problems = np.stack(list(draw_problems(maze, 2100)))
    counts = np.bincount(problems[:, 4:].sum(axis=1), minlength=51)[30:]
    assert len(counts) == 21
    assert uneven(counts, 100) < 4
    cells = problems[:, 4:].sum(axis=0)
    assert abs(uneven(cells, cells.mean())) < 7  # without replacement, so less than chi-square
    for index in (2, 3):
        ends = np.bincount((problems[:, index] >> 16) + 10 * (problems[:, index] & 0xFFFF), minlength=100)
        assert uneven(ends, 21) < 4


def test_pairs_on_a_layout_share_its_walls_and_nothing_else():
    maze = make_domain("maze")
    problems = sample(maze, 400, pairs=20)
    layouts = {}
    for problem in problems:
        layouts.setdefault(maze.layout_id(problem), []).append(problem)
    several = [group for group in layouts.values() if len(group) > 3]
    assert several
    assert all((group[0][4:] == other[4:]).all() for group in several for other in group)
    assert np.mean([len({int(one[2]) for one in group}) / len(group) for group in several]) > 0.9


def test_a_maze_is_drawn_row_by_row():
    maze = make_domain("maze")
    record = {"width": 3, "height": 2, "start": [0, 0], "goal": [2, 1], "walls": [[1, 0]]}
    assert maze.draw(maze.encode(record)) == "S # .\n. . G"
    assert maze.draw(maze.encode(record), np.array([1], dtype=np.int32)) == "S # .\no . G"


MAZE = {"width": 3, "height": 3, "start": [0, 0], "goal": [2, 2], "walls": []}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        *(({name: None}, f"a maze needs width, height, start, goal and walls; '{name}' is missing") for name in MAZE),
        ({"width": 0}, "width must be a whole number from 1 to 4096; found 0"),
        ({"width": True}, "width must be a whole number from 1 to 4096; found True"),
        ({"height": 4097}, "height must be a whole number from 1 to 4096; found 4097"),
        ({"height": "3"}, "height must be a whole number from 1 to 4096; found '3'"),
        ({"walls": "none"}, "walls must be a list of [x, y]; found 'none'"),
        ({"walls": [[1, 1], 7]}, "wall 1 must be a pair [x, y]; found 7"),
        ({"walls": [[1, 1, 1]]}, "wall 0 must be a pair [x, y]; found [1, 1, 1]"),
        ({"walls": [[3, 0]]}, "wall 0's x must be a whole number from 0 to 2; found 3"),
        ({"goal": [0, -1]}, "goal's y must be a whole number from 0 to 2; found -1"),
        ({"start": [0.5, 1]}, "start's x must be a whole number from 0 to 2; found 0.5"),
        ({"walls": [[0, 0]]}, "start [0, 0] is a wall"),
        ({"walls": [[2, 2]]}, "goal [2, 2] is a wall"),
    ],
)
def test_bad_mazes_are_refused_with_the_reason(change, message):
    record = {field: value for field, value in (MAZE | change).items() if value is not None}
    with pytest.raises(TaskError) as caught:
        make_domain("maze").encode(record)
    assert str(caught.value) == message


# Sokoban


def plain_moves(rows, worker, boxes):
    """(worker, boxes) after each move, in the words of the reference: y grows downwards; down, up, left, right."""
    for step_x, step_y in ((0, 1), (0, -1), (-1, 0), (1, 0)):
        target, beyond = ((worker[0] + n * step_x, worker[1] + n * step_y) for n in (1, 2))
        if rows[target[1]][target[0]] == "#":
            continue
        if target not in boxes:
            yield target, boxes
        elif beyond not in boxes and rows[beyond[1]][beyond[0]] != "#":
            yield target, (boxes - {target}) | {beyond}


def plain_heuristic(rows, boxes):
    docks = {(x, y) for y, row in enumerate(rows) for x, mark in enumerate(row) if mark in ".*+"}
    total = 0
    for x, y in boxes - docks:
        beside = "#" not in (rows[y][x - 1], rows[y][x + 1])
        above = "#" not in (rows[y - 1][x], rows[y + 1][x])
        if not beside and not above:
            return DEAD_END
        total += min(abs(x - dock_x) + abs(y - dock_y) for dock_x, dock_y in docks - boxes)
    return total


def cells_of(state):
    worker, *boxes = [(cell >> 16, cell & 0xFFFF) for cell in state]
    return worker, frozenset(boxes)


@pytest.mark.parametrize("boxes", [1, 2, 4])
def test_sokoban_moves_and_estimates_are_those_of_the_reference(boxes, draw_problems):
    sokoban = make_domain("sokoban", {"width": 9, "height": 8, "walls": 6, "boxes": boxes})
    pushed = dead = 0
    for seed, problem in enumerate(draw_problems(sokoban, 40)):
        rows = sokoban.draw(problem).split("\n")
        for state, world in walk(sokoban, problem, steps=60, seed=seed):
            assert list(state[1:]) == sorted(state[1:])
            worker, cells = cells_of(state)
            assert [cells_of(child) for child in world.successors(state)] == list(plain_moves(rows, worker, cells))
            assert world.estimate(state) == plain_heuristic(rows, cells)
            pushed += any(cells_of(child)[1] != cells for child in world.successors(state))
            dead += world.estimate(state) == DEAD_END
    assert pushed
    assert dead


def test_sampled_levels_follow_the_reference():
    sokoban = make_domain("sokoban")
    seen = set()
    for problem in sample(sokoban, 400):
        rows = sokoban.decode(problem)["level"]
        cells = [(mark, (x, y)) for y, row in enumerate(rows) for x, mark in enumerate(row)]
        marks = {mark: [cell for other, cell in cells if other == mark] for mark in "#@$."}
        assert {mark: len(cells) for mark, cells in marks.items()} == {"#": 24 + 2, "@": 1, "$": 2, ".": 2}
        assert set(rows[0] + rows[6]) == {"#"}
        assert all(row[0] == row[6] == "#" for row in rows)
        assert all(2 <= x <= 4 and 2 <= y <= 4 for x, y in marks["$"])
        seen |= {(mark, cell) for mark in "@$." for cell in marks[mark]}
    inside = {(x, y) for x in range(1, 6) for y in range(1, 6)}
    assert {cell for mark, cell in seen if mark == "@"} == inside
    assert {cell for mark, cell in seen if mark == "$"} == {(x, y) for x in (2, 3, 4) for y in (2, 3, 4)}


def test_the_papers_tokens_leave_out_docked_boxes_and_full_tokens_do_not():
    level = {"level": ["#######", "#@$.$.#", "#######"]}
    for form, text in (
        ("paper", "worker 2 1 box 4 1"),
        ("full", "worker 2 1 box 3 1 box 4 1"),
    ):
        sokoban = make_domain("sokoban", {"tokens_format": form})
        problem = sokoban.encode(level)
        world = reference.World(sokoban, problem, uses_heuristic=True)
        (pushed,) = world.successors(world.start())
        tokens = np.zeros(20, dtype=np.int32)
        length = sokoban.rules.write_state(problem, np.array(pushed, dtype=np.int32), tokens)
        assert " ".join(map(sokoban.token_text, tokens[:length].tolist())) == text


def test_full_tokens_round_trip_every_microban_level():
    for level in read_levels(GOLDEN / "microban.txt"):
        width, height = len(level.rows[0]), len(level.rows)
        boxes = sum(row.count("$") + row.count("*") for row in level.rows)
        size = {"width": width, "height": height, "walls": 0, "boxes": boxes, "tokens_format": "full"}
        sokoban = domain_class("sokoban").model_construct(**size, max_cost=None)  # may be too narrow to sample from
        problem = sokoban.encode(level.record())
        assert np.array_equal(sokoban.parse_prompt(prompt(sokoban, problem)), problem)


def test_a_level_with_a_docked_box_needs_the_full_format():
    for row in ("#@*$.#", "#+$ $.#"):
        level = {"level": ["#" * len(row), row, "#" * len(row)]}
        with pytest.raises(
            TaskError, match=r"cannot express a box or the worker on a dock .* use --tokens-format full"
        ):
            make_domain("sokoban").encode(level)
        full = make_domain("sokoban", {"tokens_format": "full"})
        assert full.decode(full.encode(level)) == level


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({}, 'a Sokoban task needs "level": a list of rows of text'),
        ({"level": []}, 'a Sokoban task needs "level": a list of rows of text'),
        ({"level": "#@#"}, 'a Sokoban task needs "level": a list of rows of text'),
        ({"level": [1]}, 'a Sokoban task needs "level": a list of rows of text'),
        ({"level": [""]}, "a level has 1 to 4096 rows and columns; found 1 rows, 0 columns"),
        ({"level": ["#" * 4097]}, "a level has 1 to 4096 rows and columns; found 1 rows, 4097 columns"),
        ({"level": ["#"] * 4097}, "a level has 1 to 4096 rows and columns; found 4097 rows, 1 columns"),
        ({"level": ["###", "#x#", "###"]}, "row 1, column 1: expected one of '#@+$*. -_'; found 'x'"),
        ({"level": ["####", "#$.#", "####"]}, "a level has one worker (@ or +); found 0"),
        ({"level": ["####", "#@@#", "####"]}, "a level has one worker (@ or +); found 2"),
        ({"level": ["####", "#@$#", "####"]}, "a level has as many boxes as docks; found 1 boxes and 0 docks"),
        ({"level": ["####", "#@ .", "####"]}, "a level has as many boxes as docks; found 0 boxes and 1 docks"),
        ({"level": ["######", "#@$ . ", "######"]}, f"the level is open at column 5, row 1: {ENCLOSE}"),
        ({"level": ["#@##", "#$ #", "#. #", "####"]}, f"the level is open at column 1, row 0: {ENCLOSE}"),
    ],
)
def test_bad_levels_are_refused_with_the_reason(record, message):
    with pytest.raises(TaskError) as caught:
        make_domain("sokoban").encode(record)
    assert str(caught.value) == message


def test_two_things_on_a_cell_are_refused():
    sokoban = make_domain("sokoban")
    with pytest.raises(TaskError, match=r"two things at column 1, row 2: '@' and '\$'"):
        sokoban.parse_prompt(["worker", "1", "2", "box", "1", "2"])


# Tiles


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({}, 'a task of the domain tiles needs "prompt", a text of tokens; found {}'),
        ({"prompt": 5}, "a task of the domain tiles needs \"prompt\", a text of tokens; found {'prompt': 5}"),
        ({"prompt": "1 2 3 0"}, "token 0: expected 'tiles'; found '1'"),
        ({"prompt": ""}, "token 0: expected 'tiles'; found the end"),
        ({"prompt": "tiles 1 2"}, "token 3: expected a number from 0 to 3; found 'the end'"),
        ({"prompt": "tiles 1 2 4 0"}, "token 3: expected a number from 0 to 3; found '4'"),
        ({"prompt": "tiles 1 2 03 0"}, "token 3: expected a number from 0 to 3; found '03'"),
        ({"prompt": "tiles 1 2 3 0 0"}, "token 5: expected the end; found '0'"),
        ({"prompt": "tiles 1 2 2 0"}, "a puzzle has each of the numbers 0, 1, 2, ... once; found (1, 2, 2, 0)"),
    ],
)
def test_bad_puzzles_are_refused_with_the_reason(record, message):
    with pytest.raises(TaskError) as caught:
        make_domain("tiles", {"width": 2, "height": 2}).encode(record)
    assert str(caught.value) == message


def test_half_of_all_puzzles_cannot_be_solved():
    puzzle = make_domain("tiles", {"width": 2, "height": 2})
    astar = Searcher(puzzle)
    solvable = astar.search(puzzle.encode({"prompt": "tiles 3 1 2 0"}))
    swapped = astar.search(puzzle.encode({"prompt": "tiles 2 1 3 0"}))
    assert solvable.solvable
    assert (swapped.solvable, swapped.closed, len(swapped.plan)) == (False, 12, 0)


# The registry


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("chess", {}, "no domain is called 'chess'; there are maze, sokoban, tiles"),
        ("maze", {"width": 1}, "maze: width: input should be greater than or equal to 2; found 1"),
        ("maze", {"breadth": 4}, "maze: breadth: no such setting"),
        ("sokoban", {"tokens_format": "short"}, "sokoban: tokens_format: input should be 'paper' or 'full'"),
        (
            "sokoban",
            {"walls": 30},
            "sokoban: 30 walls, 2 boxes, a worker and 2 docks do not fit into 7 x 7 cells (boxes keep two cells from ",
        ),
        (
            "tiles",
            {"slides": "many"},
            "tiles: slides: input should be a whole number; found 'many'",
        ),
    ],
)
def test_wrong_names_and_settings_are_one_line_that_names_them(name, given, message):
    with pytest.raises(SearchformerError) as caught:
        make_domain(name, given)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("no_such_module:Broken", "the domain 'broken' cannot be loaded from no_such_module:Broken: No module named"),
        (
            "json:Broken",
            "the domain 'broken' cannot be loaded from json:Broken: module 'json' has no attribute 'Broken'",
        ),
        ("json:dumps", "the domain 'broken' must be a class derived from Domain; json:dumps is <function dumps"),
    ],
)
def test_an_entry_point_that_is_no_domain_is_named(value, message, monkeypatch):
    entry = importlib.metadata.EntryPoint(name="broken", value=value, group="searchformer.domains")
    monkeypatch.setattr(base, "_entry_points", lambda: {"broken": entry})
    with pytest.raises(SearchformerError) as caught:
        make_domain("broken")
    assert str(caught.value).startswith(message)


def page_example():
    (example,) = (block.text for block in blocks("docs/contributing/domain.md") if block.title)
    return example


def test_the_pages_example_is_the_shipped_domain_in_at_most_80_lines():
    assert page_example() == (FOLDER / "tiles.py").read_text()
    assert len(page_example().splitlines()) <= 80


def test_a_package_of_ones_own_registers_a_domain_as_the_page_says(tmp_path):
    (tmp_path / "slide.py").write_text(page_example().replace('= "tiles"', '= "slide"'))
    about = tmp_path / "slide-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: slide\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[searchformer.domains]\nslide = slide:Tiles\n")
    code = (
        "from searchformer.domains import domain_names, make_domain\n"
        "from searchformer.search import reference\n"
        "slide = make_domain('slide', {'width': 2, 'height': 2})\n"
        "found = reference.search(slide, slide.encode({'prompt': 'tiles 3 1 2 0'}))\n"
        "print(*domain_names(), type(slide).__module__, len(found.plan))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout == "maze slide sokoban tiles slide 5\n", done.stderr


def test_a_setting_left_out_keeps_its_place_for_the_sampling_functions():
    class Optional(type(make_domain("tiles"))):
        depth: int | None = None
        style: str = "plain"
        reach: Literal[4, 8] = 8

    assert Optional(width=3, height=2, slides=7).sampling().tolist() == [3, 2, 7, -1, 8]
    assert Optional(width=3, height=2, slides=7, depth=5).sampling().tolist() == [3, 2, 7, 5, 8]
