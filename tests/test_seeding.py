"""Seeds, digests, and the generator that kernels use: stable, independent, uniform, the same compiled and not."""

import os
import subprocess
import sys
from itertools import permutations

import numba
import numpy as np
import pytest

from searchformer import seeding
from searchformer.search.compiled import copy_function
from searchformer.seeding import MASK, below, child_seed, digest, new_stream, next_word, reseed, shuffle, stream_key


def uneven(counts, expected):
    """How far counts lie from what was expected, in standard deviations of the chi-square statistic."""
    freedom = len(counts) - 1
    statistic = float(np.sum((np.asarray(counts) - expected) ** 2 / expected))
    return (statistic - freedom) / np.sqrt(2 * freedom)


def compiled(name):
    mix = numba.njit(seeding._mix)
    word = numba.njit(seeding.next_word)
    return numba.njit(copy_function(getattr(seeding, name), {"_mix": mix, "next_word": word}))


def test_child_seeds_never_change():
    assert child_seed(0, "sample", 0) == 0x207CF9936C01094D
    assert digest(b"task") == "602bc984d15a2e4a31d79df86bf4b259"
    stream = new_stream(1, "search")
    assert [next_word(stream) for _ in range(3)] == [3350778858, 3098030137, 495362197]


def test_seeds_do_not_depend_on_the_process():
    code = "from searchformer.seeding import *; print(child_seed(3, 'sample', 7), new_stream(5, 'search').tolist())"
    environment = {**os.environ, "PYTHONHASHSEED": "123"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == f"{child_seed(3, 'sample', 7)} {new_stream(5, 'search').tolist()}"


def test_seed_stage_and_index_each_give_another_child():
    children = [child_seed(seed, stage, index) for seed in range(10) for stage in "ab" for index in range(10)]
    assert len(set(children)) == len(children)


def test_streams_of_candidates_and_parts_are_all_different():
    key, stream, states = stream_key(0, "sample"), np.zeros(2, dtype=np.int64), set()
    indices = [*range(200), 1 << 32, (1 << 32) + 1]
    for index in indices:
        for part in range(20):
            reseed(stream, key, index, part)
            states.add(tuple(stream.tolist()))
    assert len(states) == 20 * len(indices)


def test_the_first_words_of_a_candidates_parts_are_independent():
    """The number of walls is drawn with part 0's first word, the start with part 1's."""
    key, stream = stream_key(0, "sample"), np.zeros(2, dtype=np.int64)
    pairs = np.zeros((4, 4), dtype=int)
    for index in range(16_000):
        drawn = []
        for part in range(2):
            reseed(stream, key, index, part)
            drawn.append(below(stream, 4))
        pairs[drawn[0], drawn[1]] += 1
    assert uneven(pairs.ravel(), 1000) < 4


def test_words_are_below_two_to_the_32_and_every_bit_is_even():
    stream = new_stream(0, "bits")
    words = np.array([next_word(stream) for _ in range(10_000)], dtype=np.int64)
    assert words.min() >= 0
    assert words.max() <= MASK
    ones = ((words[:, None] >> np.arange(32)) & 1).sum(axis=0)
    assert np.abs(ones - 5000).max() < 5 * 50


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
def test_below_is_uniform(limit):
    stream = new_stream(0, "below", limit)
    drawn = np.bincount([below(stream, limit) for _ in range(200 * limit)], minlength=limit)
    assert len(drawn) == limit
    assert limit == 1 or uneven(drawn, 200) < 4


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_shuffle_gives_every_order_with_equal_chance(size):
    stream = new_stream(0, "shuffle", size)
    counts = dict.fromkeys(permutations(range(size)), 0)
    for _ in range(100 * len(counts)):
        order = list(range(size))
        shuffle(stream, order, size)
        counts[tuple(order)] += 1
    assert uneven(list(counts.values()), 100) < 4


def test_a_long_shuffle_takes_a_word_for_every_large_draw():
    """Four numbers below 1000 need more than 32 bits: from one word, the fourth would follow from the others."""
    stream, words = new_stream(0, "long"), new_stream(0, "long")
    shuffle(stream, list(range(1000)), 1000)
    taken = 0
    while words.tolist() != stream.tolist():
        next_word(words)
        taken += 1
    assert taken == (1000 - 32) + 8


def test_shuffle_leaves_the_rest_alone():
    order = list(range(10))
    shuffle(new_stream(0, "rest"), order, 3)
    assert sorted(order[:3]) == [0, 1, 2]
    assert order[3:] == list(range(3, 10))


def test_compiled_streams_are_the_same_as_plain_ones():
    fast_reseed, fast_word = compiled("reseed"), compiled("next_word")
    fast_below, fast_shuffle = compiled("below"), compiled("shuffle")
    for index in [*range(50), 1 << 33]:
        key, plain, fast = stream_key(index, "twins"), np.zeros(2, dtype=np.int64), np.zeros(2, dtype=np.int64)
        reseed(plain, key, index, index % 5)
        fast_reseed(fast, key, index, index % 5)
        for limit in range(1, 20):
            assert below(plain, limit) == fast_below(fast, limit)
        orders = np.arange(12), np.arange(12)
        shuffle(plain, orders[0], 12)
        fast_shuffle(fast, orders[1], 12)
        assert orders[0].tolist() == orders[1].tolist()
        assert next_word(plain) == fast_word(fast)
