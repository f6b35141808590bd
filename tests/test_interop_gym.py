"""Gymnasium's own checks of our environments, and policies that walk in them."""

import json
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from command import invoke
from gymnasium.utils.env_checker import check_env

import searchformer.envs  # registers the environments
from searchformer.errors import SearchformerError

GOLDEN = Path(__file__).parent / "golden"
MAKE = {
    "maze": {"id": "searchformer/Maze-v0", "width": 5, "height": 4},
    "sokoban": {"id": "searchformer/Sokoban-v0", "width": 6, "height": 5, "walls": 1, "boxes": 1},
}


@pytest.fixture(params=MAKE)
def env(request):
    made = gymnasium.make(**MAKE[request.param])
    yield made
    made.close()


def test_gymnasiums_own_checks_pass(env):
    check_env(env.unwrapped, skip_render_check=True)


@pytest.mark.parametrize("mode", ["ansi", "rgb_array"])
@pytest.mark.parametrize("name", MAKE)
def test_both_renderings_pass_the_checks(name, mode):
    env = gymnasium.make(**MAKE[name], render_mode=mode)
    check_env(env.unwrapped)
    env.reset(seed=1)
    shown = env.render()
    height, width = env.observation_space.shape
    assert len(shown.split("\n")) == height if mode == "ansi" else shown.shape == (16 * height, 16 * width, 3)
    env.close()


def test_the_same_seed_gives_the_same_tasks(env):
    first = [env.reset(seed=3)[1]["task"], *(env.reset()[1]["task"] for _ in range(3))]
    again = [env.reset(seed=3)[1]["task"], *(env.reset()[1]["task"] for _ in range(3))]
    assert first == again
    assert env.reset(seed=4)[1]["task"] != first[0]


def test_astars_actions_solve_every_task_at_minus_its_length(env):
    for seed in range(5):
        env.reset(seed=seed)
        actions, rewards = env.unwrapped.best_actions(), []
        for action in actions:
            _, reward, solved, cut, _ = env.step(action)
            rewards.append(reward)
        assert (solved, cut, sum(rewards)) == (True, False, -len(actions))


def test_a_random_policy_stays_inside_the_rules(env):
    observation, _ = env.reset(seed=0)
    walls = observation == 1
    env.action_space.seed(0)
    for _ in range(200):
        observation, _, solved, cut, _ = env.step(env.action_space.sample())
        assert env.observation_space.contains(observation)
        assert np.array_equal(observation == 1, walls)
        if solved or cut:
            observation, _ = env.reset()
            walls = observation == 1


def test_a_blocked_move_changes_nothing():
    env = gymnasium.make("searchformer/Maze-v0", width=2, height=2, max_steps=2)
    task = {"width": 2, "height": 2, "start": [0, 0], "goal": [1, 1], "walls": [[1, 0]]}
    before, info = env.reset(options={"task": task})
    assert info["task"] == task
    after, reward, solved, cut, info = env.step(3)
    assert np.array_equal(before, after)
    assert (reward, solved, cut, info["blocked"]) == (-1.0, False, False, True)
    assert env.step(0)[3]  # the second step is the last


def test_tasks_come_from_a_level_file_or_a_data_set(tmp_path):
    env = gymnasium.make("searchformer/Sokoban-v0", tasks=GOLDEN / "microban.txt")
    assert len(env.unwrapped.tasks) == 155
    observation, info = env.reset(options={"task": 0})
    assert info["task"]["level"][3] == "#*@  #"
    assert observation.shape == env.observation_space.shape
    invoke("generate", "maze", "--width", 4, "--height", 4, "--tasks", 20, "--out", tmp_path / "data")
    env = gymnasium.make("searchformer/Maze-v0", tasks=tmp_path / "data", split="train")
    assert env.observation_space.shape == (4, 4)
    with pytest.raises(SearchformerError, match="holds no tasks of sokoban"):
        searchformer.envs.SokobanEnv(tmp_path / "data")
    with pytest.raises(SearchformerError, match="render_mode is ansi or rgb_array"):
        searchformer.envs.MazeEnv(render_mode="human")


def test_faulty_tasks_of_a_file_are_left_out_with_a_warning(tmp_path):
    path = tmp_path / "t.jsonl"
    good = {"width": 2, "height": 2, "start": [0, 0], "goal": [1, 1], "walls": []}
    path.write_text("\n".join(map(json.dumps, [good | {"goal": [9, 9]}, good])) + "\nnonsense\n")
    with pytest.warns(UserWarning, match=r"2 of 3 tasks cannot be used, such as .*t\.jsonl:1: "):
        env = searchformer.envs.MazeEnv(path)
    assert len(env.tasks) == 1
    path.write_text("nonsense")
    with pytest.raises(SearchformerError, match=r"holds no tasks of maze; .*:1: expected a JSON object"):
        searchformer.envs.MazeEnv(path)


def test_gymnasium_finds_the_module_by_name():
    env = gymnasium.make("searchformer.envs:searchformer/Maze-v0", width=4, height=4)
    assert env.reset(seed=0)[0].shape == (4, 4)
