"""Randomness and identity: child seeds from (seed, stage, index), digests, and the generator that kernels use.

Nothing here depends on the process, the platform or Python's salted `hash`. The generator is xoroshiro64** on 32-bit
words held in int64, so that one text gives the same numbers compiled and as plain Python.
"""

import hashlib

import numpy as np

MASK = 0xFFFFFFFF
Stream = np.ndarray
"""State of a generator: int64 array of shape [2], each a 32-bit word."""


def digest(data: bytes) -> str:
    """BLAKE2b-128 as hex: the identity of tasks, files and configurations."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def child_seed(seed: int, stage: str, index: int = 0) -> int:
    """A 64-bit seed for part `index` of `stage`, independent of all others."""
    text = f"{seed}/{stage}/{index}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def stream_key(seed: int, stage: str, index: int = 0) -> np.ndarray:
    """Two 32-bit words from which `reseed` derives streams, as int64."""
    child = child_seed(seed, stage, index)
    return np.array([child & MASK, child >> 32], dtype=np.int64)


def new_stream(seed: int, stage: str, index: int = 0) -> Stream:
    """A generator of its own for part `index` of `stage`."""
    stream = np.zeros(2, dtype=np.int64)
    reseed(stream, stream_key(seed, stage, index), 0, 0)
    return stream


# From here on: plain integer arithmetic that numba compiles as it stands.


def _mix(word):
    """A bijection of 32-bit words in which every input bit reaches every output bit."""
    word ^= word >> 16
    word = (word * 0x7FEB352D) & MASK
    word ^= word >> 15
    word = (word * 0x846CA68B) & MASK
    return word ^ (word >> 16)


def reseed(stream, key, index, part):
    """Set `stream` to the generator for (key, index, part)."""
    low = _mix((int(key[0]) + int(index)) & MASK)
    high = _mix(int(key[1]) ^ _mix((int(part) * 2 + 1 + (int(index) >> 32)) & MASK) ^ low)
    stream[0] = _mix(low ^ high)  # the first word drawn depends on this alone, so every part must reach it
    stream[1] = high | 1  # the all-zero state is the one the generator cannot leave


def next_word(stream):
    """The next 32-bit word."""
    first = int(stream[0])
    second = int(stream[1])
    scrambled = (first * 0x9E3779BB) & MASK
    scrambled = (((scrambled << 5) & MASK) | (scrambled >> 27)) * 5 & MASK
    second ^= first
    stream[0] = (((first << 26) & MASK) | (first >> 6)) ^ second ^ ((second << 9) & MASK)
    stream[1] = ((second << 13) & MASK) | (second >> 19)
    return scrambled


def below(stream, limit):
    """A number from 0 to limit - 1, uniform up to limit / 2**32."""
    return (next_word(stream) * int(limit)) >> 32


def shuffle(stream, order, count):
    """Shuffle order[:count] in place. One word serves four small draws: what a draw leaves of it is the next's word."""
    word = 0
    for place in range(count - 1, 0, -1):
        if (count - 1 - place) % 4 == 0 or place >= 32:  # four larger ones would use a word's 32 bits up
            word = next_word(stream)
        word *= place + 1
        other = word >> 32
        word &= MASK
        order[place], order[other] = order[other], order[place]
