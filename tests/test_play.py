"""Playing in the terminal: moves, undo, hints, the optimum, and keys on a real terminal."""

import os
import pty
import select
import subprocess
import sys
import time

import pytest
from command import invoke

from searchformer.commands.play import board, press, status
from searchformer.domains import make_domain
from searchformer.errors import SearchformerError
from searchformer.solve import make_task, random_task
from searchformer.solve.game import Game

LEVEL = ["#######", "#@ $ .#", "#     #", "#######"]
RIGHT, LEFT, DOWN = "\x1b[C", "\x1b[D", "\x1b[B"


def test_a_level_is_solved_by_moves_and_compared_with_the_optimum():
    game = Game(make_task({"level": LEVEL}))
    assert game.best_moves() == "rRR"
    assert not game.move("l")
    assert [press(game, key) for key in (LEFT, DOWN, "u", RIGHT, RIGHT, RIGHT)] == ["blocked", "", "", "", "", ""]
    assert game.solved
    assert game.moves == 3
    assert status(game, "rRR", "") == "solved in 3 moves: the optimum"
    assert not game.move("l")


def test_a_longer_way_and_hints_are_counted():
    game = Game(make_task({"level": LEVEL}))
    for key in (DOWN, "\x1b[A"):
        press(game, key)
    while not game.solved:
        assert press(game, "h").startswith("hint: ")
    assert status(game, "rRR", "") == "solved in 5 moves, 3 of them hints: 2 more than the optimum"


def test_a_hopeless_position_is_said():
    game = Game(make_task({"level": ["######", "#  . #", "#@$  #", "######"]}))
    game.move("r")
    assert press(game, "h") == "from here it cannot be solved any more: undo"
    press(game, "r")
    assert game.moves == 0


@pytest.mark.parametrize("name", ["maze", "sokoban"])
def test_hints_alone_reach_the_goal_in_the_optimum(name):
    task = random_task(make_domain(name, {"width": 7, "height": 7}), seed=3)
    game = Game(task)
    best = game.best_moves()
    while not game.solved:
        assert game.hint()
    assert game.moves == len(best)


def test_the_board_has_two_columns_a_cell():
    maze = make_task({"width": 3, "height": 2, "start": [0, 0], "goal": [2, 1], "walls": [[1, 0]]})
    assert board(Game(maze)).plain == "@     \n    ()\n"
    assert board(Game(make_task({"level": LEVEL}))).plain.split("\n")[1] == "  @   []  ()  "


def test_domains_whose_moves_have_no_names_are_refused():
    with pytest.raises(SearchformerError, match="tiles cannot be played"):
        Game(random_task(make_domain("tiles", {"width": 2, "height": 2}), seed=0))


def test_play_asks_for_a_terminal_and_a_task():
    assert "needs a terminal" in str(invoke("play", "--random", "maze").exception)


def test_a_level_is_played_on_a_terminal(tmp_path):
    path = tmp_path / "level.xsb"
    path.write_text("\n".join(LEVEL))
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "searchformer", "play", str(path)]
    environment = {**os.environ, "TERM": "xterm"}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as game:
        os.close(theirs)
        said = read_until(ours, b"quit")
        assert b"optimum 3" in said
        os.write(ours, (DOWN + "u" + RIGHT * 3).encode())
        assert b"solved in 3 moves: the optimum" in read_until(ours, b"the optimum")
        assert game.wait(timeout=60) == 0
    os.close(ours)


def read_until(terminal, text):
    """What the terminal shows up to `text`."""
    shown, deadline = b"", time.monotonic() + 120
    while text not in shown:
        assert time.monotonic() < deadline, shown
        if select.select([terminal], [], [], 1)[0]:
            shown += os.read(terminal, 4096)
    return shown
