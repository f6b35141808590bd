"""A* to be read: the specification that `kernel.py` is held to, event by event.

In: a domain and a problem. Out: the same `Trace` as the compiled search. About a thousand times slower.
"""

import heapq
from collections import defaultdict

import numpy as np

from searchformer.domains import DEAD_END, Domain
from searchformer.records import Trace
from searchformer.search.compiled import bind
from searchformer.search.ordering import weights
from searchformer.seeding import Stream, below, new_stream, shuffle

State = tuple[int, ...]


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


class World:
    """A task's rules on states as tuples."""

    def __init__(self, domain: Domain, problem: np.ndarray, *, uses_heuristic: bool) -> None:
        self.rules, self.problem, self.uses_heuristic = bind(domain.rules), problem, uses_heuristic
        self.size, self.most = domain.state_size(problem), domain.max_children
        self._estimates: dict[State, int] = {}

    def _array(self, state: State) -> np.ndarray:
        return np.array(state, dtype=np.int32)

    def start(self) -> State:
        """The state a task starts in."""
        state = np.zeros(self.size, dtype=np.int32)
        self.rules["start"](self.problem, state)
        return tuple(state.tolist())

    def successors(self, state: State) -> list[State]:
        """The states one legal move away."""
        children = np.zeros((self.most, self.size), dtype=np.int32)
        count = self.rules["successors"](self.problem, self._array(state), children)
        return [tuple(child) for child in children[:count].tolist()]

    def estimate(self, state: State) -> int:
        """h, or DEAD_END."""
        if not self.uses_heuristic:
            return 0
        if state not in self._estimates:
            self._estimates[state] = int(self.rules["heuristic"](self.problem, self._array(state)))
        return self._estimates[state]

    def is_goal(self, state: State) -> bool:
        """Whether the task is solved."""
        return bool(self.rules["is_goal"](self.problem, self._array(state)))

    def tie_rank(self, state: State) -> int:
        """The domain's order among nodes of equal f."""
        return int(self.rules["tie_rank"](self.problem, self._array(state)))


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
