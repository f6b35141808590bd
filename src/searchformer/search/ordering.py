"""Which open node is closed next: the algorithms' weights, and the open list.

The open list keeps one bucket of nodes per value of f. Deterministic search keeps a bucket as a heap, least `tie_rank`
first, older nodes first among equals. Non-deterministic search picks any of the least bucket's nodes with equal chance
at each step: a random key fixed at insertion would favour younger nodes. A node whose f has fallen stays behind in its
old bucket and is skipped there: that is cheaper than to remove it, and the choice among the others stays uniform.
"""

from fractions import Fraction

from searchformer.errors import SearchformerError
from searchformer.seeding import MASK, below

ALGORITHMS = ("astar", "dijkstra", "weighted", "greedy")


def weights(algorithm: str, weight: float = 1.0) -> tuple[int, int]:
    """(a, b) such that f = a * g + b * h orders the open list; whole numbers, so that f is one too."""
    if algorithm not in ALGORITHMS:
        raise SearchformerError(f"an algorithm is one of {', '.join(ALGORITHMS)}; found {algorithm!r}")
    if algorithm != "weighted" and weight != 1.0:
        raise SearchformerError(f"--weight goes with --algorithm weighted; found {algorithm}")
    if not 1.0 <= weight <= 100.0:
        raise SearchformerError(f"a weight is a number from 1 to 100; found {weight}")
    ratio = Fraction(str(weight)).limit_denominator(100)
    fixed = {"astar": (1, 1), "dijkstra": (1, 0), "greedy": (0, 1)}
    return fixed.get(algorithm, (ratio.denominator, ratio.numerator))


# From here on compiled. A bucket f is pool[first[f] : first[f] + count[f]], with room[f] entries reserved.


def unsigned(value):
    """`value`, from 0 to MASK: told so, the compiler does not test whether an index counts from the end."""
    return int(value) & MASK


def clear_buckets(room, count, limit):
    """Empty the buckets below `limit`."""
    for f in range(limit):
        room[f] = 0
        count[f] = 0


def before(rank, node, other):
    """Does `node` come before `other` in deterministic order?"""
    return rank[node] < rank[other] or (rank[node] == rank[other] and node < other)


def push(node, f, deterministic, rank, pool, pool_used, first, count, room):
    """Add `node` to bucket f; returns the pool's new end, or -1 if the pool is too small."""
    if count[f] == room[f]:
        larger = max(8, 2 * room[f])
        if pool_used + larger > len(pool):
            return -1
        for index in range(count[f]):
            pool[pool_used + index] = pool[first[f] + index]
        first[f] = pool_used
        room[f] = larger
        pool_used += larger
    base = unsigned(first[f])
    place = unsigned(count[f])
    count[f] += 1
    if deterministic:
        while place > 0:
            above = (place - 1) // 2
            if not before(rank, node, pool[base + above]):
                break
            pool[base + place] = pool[base + above]
            place = above
    pool[base + place] = node
    return pool_used


def pop(f, deterministic, stream, rank, pool, first, count):
    """Take the next node out of the non-empty bucket f."""
    base = unsigned(first[f])
    count[f] -= 1
    size = unsigned(count[f])
    last = unsigned(pool[base + size])
    if not deterministic:
        place = below(stream, size + 1)
        node = unsigned(pool[base + place])
        pool[base + place] = last
        return node
    node = unsigned(pool[base])
    place = 0
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and before(rank, pool[base + child + 1], pool[base + child]):
            child += 1
        if not before(rank, pool[base + child], last):
            break
        pool[base + place] = pool[base + child]
        place = child
    pool[base + place] = last
    return node
