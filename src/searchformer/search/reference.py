"""A* to be read: the specification that `kernel.py` is held to, event by event.

In: a domain and a problem. Out: the same `Trace` as the compiled search. About a thousand times slower.
"""

import heapq
from collections import defaultdict

import numpy as np

from searchformer.domains import DEAD_END, Domain
from searchformer.records import Trace
from searchformer.search.ordering import weights
from searchformer.search.world import State, World
from searchformer.seeding import Stream, below, new_stream, shuffle


def search(
    domain: Domain,
    problem: np.ndarray,
    *,
    deterministic: bool = False,
    seed: int = 0,
    algorithm: str = "astar",
    weight: float = 1.0,
) -> Trace:
    """Search from the start to a goal and log every node that is created or closed."""
    world = World(domain, problem, uses_heuristic=algorithm != "dijkstra")
    cost_weight, estimate_weight = weights(algorithm, weight)
    stream = new_stream(seed, "search")
    waiting = Heap() if deterministic else Urn(stream)
    cost_so_far: dict[State, int] = {}
    parent: dict[State, State | None] = {}
    closed: set[State] = set()
    events: list[tuple[bool, State]] = []
    costs: list[int] = []

    def f(state: State) -> int:
        return cost_weight * cost_so_far[state] + estimate_weight * world.estimate(state)

    def create(state: State, cost: int, origin: State | None) -> None:
        if world.estimate(state) == DEAD_END:
            return
        if state in cost_so_far:
            as_low = f(state) <= cost_weight * cost + estimate_weight * world.estimate(state)
            if as_low:
                return
        cost_so_far[state], parent[state] = cost, origin
        closed.discard(state)
        waiting.push(f(state), world.tie_rank(state), state)
        events.append((False, state))
        costs.append(cost)

    create(world.start(), 0, None)
    goal = None
    while (popped := waiting.pop()) is not None:
        expected_f, state = popped
        if state in closed or f(state) != expected_f:
            continue  # an entry left behind when the state was created again at a lower f
        closed.add(state)
        events.append((True, state))
        costs.append(cost_so_far[state])
        if world.is_goal(state):
            goal = state
            break
        children = world.successors(state)
        order = list(range(len(children)))
        if not deterministic:
            shuffle(stream, order, len(order))
        for index in order:
            create(children[index], cost_so_far[state] + 1, state)

    return _record(world, events, costs, _path(goal, parent))


class Heap:
    """Open nodes of deterministic search: least f first, then least rank, then the state first met."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, int, int, State]] = []
        self.met: dict[State, int] = {}

    def push(self, f: int, rank: int, state: State) -> None:
        """Add a node."""
        order = self.met.setdefault(state, len(self.met))
        heapq.heappush(self.entries, (f, rank, order, state))

    def pop(self) -> tuple[int, State] | None:
        """The next node with its f, or None."""
        if not self.entries:
            return None
        f, _, _, state = heapq.heappop(self.entries)
        return f, state


class Urn:
    """Open nodes of non-deterministic search: any of those of least f, with equal chance."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.buckets: dict[int, list[State]] = defaultdict(list)

    def push(self, f: int, rank: int, state: State) -> None:
        """Add a node."""
        self.buckets[f].append(state)

    def pop(self) -> tuple[int, State] | None:
        """One of the nodes of least f, with that f, or None."""
        if not self.buckets:
            return None
        f = min(self.buckets)
        bucket = self.buckets[f]
        place = below(self.stream, len(bucket))
        bucket[place], bucket[-1] = bucket[-1], bucket[place]
        state = bucket.pop()
        if not bucket:
            del self.buckets[f]
        return f, state


def _path(goal: State | None, parent: dict[State, State | None]) -> list[State]:
    path = []
    while goal is not None:
        path.append(goal)
        goal = parent[goal]
    return path[::-1]


def _record(world: World, events: list[tuple[bool, State]], costs: list[int], path: list[State]) -> Trace:
    node_of: dict[State, int] = {}
    for _, state in events:
        node_of.setdefault(state, len(node_of))
    return Trace(
        solvable=bool(path),
        created=sum(not is_close for is_close, _ in events),
        closed=sum(is_close for is_close, _ in events),
        kinds=np.array([is_close for is_close, _ in events], dtype=bool),
        nodes=np.array([node_of[state] for _, state in events], dtype=np.int32),
        costs=np.array(costs, dtype=np.int32),
        estimates=np.array([world.estimate(state) for _, state in events], dtype=np.int32),
        states=np.array(list(node_of), dtype=np.int32).reshape(-1, world.size),
        plan=np.array(path, dtype=np.int32).reshape(-1, world.size),
    )
