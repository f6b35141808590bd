"""Batches of training sequences: complete, padded little, the same for the same seed, nested subsets."""

import numpy as np
import pytest
from synthetic import LETTERS, letter_tasks, task_id, write_dataset

from searchformer.dataset import batches as module
from searchformer.dataset.batches import Batches, Sequences, flatten
from searchformer.dataset.store import Dataset
from searchformer.errors import SearchformerError
from searchformer.tokens.vocabulary import BOS, EOS

ROWS = letter_tasks(50)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("data") / "letters", train=ROWS, test=letter_tasks(7, seed=1))


def unpadded(batch) -> dict[str, tuple[list[int], list[int]]]:
    """Prompt and response of each task, as the lengths say."""
    return {
        name: (
            batch.prompts[i, : batch.prompt_lengths[i]].tolist(),
            batch.responses[i, : batch.response_lengths[i]].tolist(),
        )
        for i, name in enumerate(batch.task_ids)
    }


def test_a_batch_holds_what_the_data_set_holds(dataset):
    sequences = Sequences(dataset, "train")
    found = unpadded(sequences.batch(np.arange(len(sequences))))
    assert found == {name: ([BOS, *prompt, EOS], [BOS, *trace, *plan, EOS]) for name, prompt, trace, plan in ROWS}


def test_plans_start_where_the_batch_says(dataset):
    plans = {name: plan for name, _, _, plan in ROWS}
    for plan_only in (False, True):
        batch = Sequences(dataset, "train", plan_only=plan_only).batch(np.arange(50))
        for i, name in enumerate(batch.task_ids):
            end = batch.response_lengths[i] - 1
            assert batch.responses[i, batch.plan_starts[i] : end].tolist() == plans[name]
        assert (batch.plan_starts == 1).all() == plan_only


def test_plan_only_leaves_the_traces_out(dataset):
    found = unpadded(Sequences(dataset, "train", plan_only=True).batch(np.arange(50)))
    assert all(found[name][1] == [BOS, *plan, EOS] for name, _, _, plan in ROWS)


def test_a_subset_is_the_first_tasks_by_id_and_nested(dataset):
    def names(count):
        return set(Sequences(dataset, "train", count=count).batch(np.arange(count)).task_ids)

    assert names(10) == set(sorted(name for name, *_ in ROWS)[:10])
    assert names(10) < names(20) < names(50)


def test_longer_traces_are_left_out_before_the_subset_is_taken(dataset):
    short = sorted(name for name, _, trace, _ in ROWS if len(trace) <= 5)
    sequences = Sequences(dataset, "train", max_trace_tokens=5)
    assert sorted(sequences.batch(np.arange(len(sequences))).task_ids) == short
    chosen = Sequences(dataset, "train", max_trace_tokens=5, count=3, plan_only=True)
    assert sorted(chosen.batch(np.arange(3)).task_ids) == short[:3]


def test_an_epoch_visits_every_sequence_once(dataset):
    batches = Batches(Sequences(dataset, "train"), batch_size=5, seed=0)
    for epoch in range(2):
        seen = [name for position in range(10) for name in batches[10 * epoch + position].task_ids]
        assert sorted(seen) == sorted(name for name, *_ in ROWS)


def test_epochs_and_seeds_differ_and_repeat(dataset):
    def order(seed, epoch):
        batches = Batches(Sequences(dataset, "train"), batch_size=5, seed=seed)
        return [batches[10 * epoch + position].task_ids for position in range(10)]

    assert order(0, 0) == order(0, 0)
    assert order(0, 0) != order(0, 1)
    assert order(0, 0) != order(1, 0)


def test_any_position_can_be_read_first(dataset):
    straight, jumped = (Batches(Sequences(dataset, "train"), batch_size=7, seed=3) for _ in range(2))
    passed = [straight[position].task_ids for position in range(40)]
    assert [jumped[position].task_ids for position in (33, 2, 39)] == [passed[33], passed[2], passed[39]]


def test_buckets_pad_less_than_batches_as_they_come(dataset):
    sequences = Sequences(dataset, "train")

    def padded(parts):
        return sum(part.responses.size for part in parts)

    bucketed = Batches(sequences, batch_size=5, seed=0)
    as_they_come = [sequences.batch(np.arange(start, start + 5)) for start in range(0, 50, 5)]
    assert padded([bucketed[position] for position in range(10)]) < 0.85 * padded(as_they_come)


def test_fewer_sequences_than_a_batch_make_a_smaller_batch(dataset):
    batches = Batches(Sequences(dataset, "test"), batch_size=16, seed=0)
    assert [len(batches[position]) for position in range(3)] == [7, 7, 7]


def test_microbatches_cover_the_batch_within_the_budget(dataset):
    batch = Sequences(dataset, "train").batch(np.arange(50))
    parts = list(batch.microbatches(90))
    assert [name for part in parts for name in part.task_ids] == list(batch.task_ids)
    assert all(part.prompts.size + part.responses.size <= 90 for part in parts)
    assert len(parts) > 1
    assert [len(part) for part in batch.microbatches(1)] == [1] * 50
    assert unpadded(parts[0]).items() <= unpadded(batch).items()


def test_the_flat_copy_is_made_once_per_data_set(tmp_path, monkeypatch):
    dataset = write_dataset(tmp_path / "letters", train=ROWS)
    first = flatten(dataset, "train")
    monkeypatch.setattr(module, "_write_flat", lambda *_: pytest.fail("unpacked again"))
    assert flatten(dataset, "train") == first
    monkeypatch.undo()
    changed = flatten(write_dataset(tmp_path / "letters", train=ROWS[1:]), "train")
    assert [path.name for path in (tmp_path / "letters" / ".flat").iterdir()] == [changed.name] != [first.name]


def test_an_interrupted_flat_copy_leaves_nothing(tmp_path, monkeypatch):
    dataset = write_dataset(tmp_path / "letters", train=ROWS)

    def full_disk(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full_disk)
    with pytest.raises(SearchformerError, match=r"No space left on device; name another place with --cache"):
        flatten(dataset, "train")
    assert list((tmp_path / "letters" / ".flat").iterdir()) == []


def test_the_flat_copy_goes_where_it_is_told(tmp_path):
    dataset = write_dataset(tmp_path / "letters", train=ROWS)
    assert flatten(dataset, "train", cache=tmp_path / "cache").parent == tmp_path / "cache" / ".flat"
    assert not (tmp_path / "letters" / ".flat").exists()


def test_an_empty_selection_is_refused(dataset, tmp_path):
    with pytest.raises(SearchformerError, match="of 50 tasks in the train split none has a trace of at most 1"):
        Sequences(dataset, "train", max_trace_tokens=1)
    with pytest.raises(SearchformerError, match="51 sequences asked for, the train split has 50"):
        Sequences(dataset, "train", count=51)
    with pytest.raises(SearchformerError, match="of 0 tasks in the test split"):
        Sequences(write_dataset(tmp_path / "letters", train=ROWS), "test")


def test_responses_without_traces_can_be_read(tmp_path):
    rows = [(task_id(i), [2, 3], [], [4, 5]) for i in range(4)]
    sequences = Sequences(write_dataset(tmp_path / "letters", train=rows), "train")
    assert sequences.batch(np.arange(4)).responses.tolist() == [[BOS, 4, 5, EOS]] * 4
    assert len(LETTERS) == 10


def test_data_sets_that_share_a_cache_leave_each_other_alone(tmp_path):
    sets = [write_dataset(tmp_path / str(seed), train=letter_tasks(5, seed=seed), test=[]) for seed in range(2)]
    places = [flatten(each, "train", cache=tmp_path / "cache") for each in sets]
    assert places[0] != places[1]
    assert all(place.is_dir() for place in places)
