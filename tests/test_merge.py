"""Several kinds of tasks in one data set: merged data sets, and mazes of several sizes."""

import numpy as np
import pytest
from command import invoke

from searchformer.dataset import batches
from searchformer.dataset.batches import Sequences
from searchformer.dataset.generate import generate
from searchformer.dataset.merge import merge
from searchformer.dataset.options import GenerateOptions
from searchformer.dataset.store import SPLITS, Dataset
from searchformer.domains import make_domain
from searchformer.errors import SearchformerError
from searchformer.search import Searcher
from searchformer.search.world import World
from searchformer.solve import random_task
from searchformer.solve.planning import size_warnings
from searchformer.tokens.steps import token_kinds
from searchformer.tokens.symbols import costs_of


def made(path, domain="sokoban", tasks=40, seed=0, **settings):
    options = GenerateOptions(
        domain=domain, settings=settings, tasks=tasks, seed=seed, test_fraction=0.3, max_trace_tokens=3000
    )
    generate(options, path)
    return path


@pytest.fixture(scope="module")
def levels(tmp_path_factory):
    """Sokoban with one box and with two, in one vocabulary."""
    home, size = tmp_path_factory.mktemp("levels"), {"width": 6, "height": 6, "max_cost": 100}
    return [made(home / str(boxes), boxes=boxes, **size) for boxes in (1, 2)]


def test_a_merged_data_set_has_all_tasks_where_they_were(levels, tmp_path):
    assert invoke("merge", *levels, "--out", tmp_path / "both").exception is None
    both, parts = Dataset(tmp_path / "both", verify=True), [Dataset(level) for level in levels]
    for split in SPLITS:
        rows = [row for part in parts for row in part.records(split)]
        assert list(both.records(split)) == rows
    assert both.manifest.settings["boxes"] == 2
    assert "boxes 1" in invoke("inspect", tmp_path / "both", "--tasks", 0).stdout


def test_longer_steps_and_higher_costs_are_found_wherever_they_stand(levels, tmp_path, monkeypatch):
    """A network whose places were those of the first tasks would have to cut the steps of later ones in two."""
    merge(levels, tmp_path / "both")
    monkeypatch.setattr(batches, "SEQUENCES_READ", 7)
    found = [Sequences(Dataset(path), "train") for path in (*levels, tmp_path / "both")]
    vocabulary = Dataset(levels[0]).vocabulary
    kinds, costs = token_kinds(vocabulary), costs_of(vocabulary)
    one, two, both = (each.longest_pieces(kinds) for each in found)
    assert (one["places"], two["places"]) == (9, 12)  # create worker x y box x y cost cost, and another box x y
    assert both == two
    assert found[2].highest_cost(costs) == max(each.highest_cost(costs) for each in found[:2])


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"domain": "maze", "width": 5, "height": 5}, "of one domain can be merged"),
        ({"boxes": 1, "width": 6, "height": 6, "max_cost": 90}, "vocabulary"),
        ({"boxes": 1, "width": 6, "height": 6, "max_cost": 100, "tokens_format": "full"}, "tokens_format"),
    ],
)
def test_what_does_not_go_together_is_refused(levels, tmp_path, other, message):
    with pytest.raises(SearchformerError, match=message):
        merge([levels[0], made(tmp_path / "other", **other)], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_task_twice_is_refused(levels, tmp_path):
    with pytest.raises(SearchformerError, match="in common"):
        merge([levels[0], levels[0]], tmp_path / "out")
    with pytest.raises(SearchformerError, match="two or more"):
        merge(levels[:1], tmp_path / "out")


def test_mazes_that_do_not_say_their_size_are_refused(tmp_path):
    size = {"domain": "maze", "width": 6, "max_cost": 35}
    parts = [made(tmp_path / str(height), height=height, **size) for height in (5, 6)]
    with pytest.raises(SearchformerError, match="--smallest"):
        merge(parts, tmp_path / "out")


def test_mazes_of_several_sizes_are_walled_in(tmp_path):
    dataset = Dataset(made(tmp_path / "d", "maze", tasks=200, width=8, height=7, smallest=3))
    domain = make_domain("maze", dataset.manifest.settings)
    sizes = set()
    for row in dataset.records("train"):
        problem = domain.parse_prompt(dataset.vocabulary.decode(row["prompt"]))
        assert domain.task_id(problem) == row["task_id"]
        free = problem[4:].reshape(7, 8) == 0
        width, height = 1 + np.flatnonzero(free.any(0)).max(), 1 + np.flatnonzero(free.any(1)).max()
        sizes.add((int(width), int(height)))
        assert row["plan_length"] >= 3 * max(width, height)
        if width * height >= 20:  # walls are counted in whole tenths of the cells
            assert 0.4 <= free[:height, :width].mean() <= 0.85
    assert {width for width, _ in sizes} == set(range(3, 9))
    assert {height for _, height in sizes} == set(range(3, 8))


def test_a_walled_in_maze_is_searched_as_the_small_one():
    small, large = make_domain("maze", {"width": 3, "height": 4}), make_domain("maze", {"smallest": 2})
    record = {"width": 3, "height": 4, "start": [0, 0], "goal": [2, 3], "walls": [[1, 1], [1, 2]]}
    problem = small.encode(record)
    walled_in = large.fitted(problem)
    assert large.decode(walled_in)["width"] == 10
    assert World(large, walled_in).prompt_tokens()[:6] == World(small, problem).prompt_tokens()[:6]
    for seed in range(5):
        ours, theirs = Searcher(large).search(walled_in, seed=seed), Searcher(small).search(problem, seed=seed)
        for field in ("kinds", "nodes", "costs", "estimates", "states", "plan"):
            assert (getattr(ours, field) == getattr(theirs, field)).all()
    assert make_domain("maze").fitted(problem) is problem


def test_smallest_must_fit():
    with pytest.raises(SearchformerError, match="smallest is 6"):
        make_domain("maze", {"width": 8, "height": 5, "smallest": 6})


def test_a_model_of_a_merged_data_set_knows_the_sizes_of_its_parts():
    settings = [{"width": 7, "height": 7, "boxes": boxes} for boxes in (1, 2)]
    trained = {"settings": settings[1], "merged": settings}
    levels = {boxes: random_task(make_domain("sokoban", {"boxes": boxes}), seed=0) for boxes in (1, 2, 3)}
    assert not any(list(size_warnings(trained, levels[boxes])) for boxes in (1, 2))
    assert list(size_warnings({"settings": settings[1]}, levels[1]))
    assert list(size_warnings(trained, levels[3]))
