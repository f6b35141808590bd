"""Which search does a trace describe? Tries every reading of a trace in which several nodes are called the same.

Tokens may leave things out: Sokoban's paper tokens do not say which dock a box stands on, so `close worker 3 2 c4 c6`
may mean any of several open nodes. A reading says which node each close means. The trace is legal (or sound, see
validate.py) if some reading of it is.

In: the steps of a trace and its plan. Out: a `Reading`, or None if there is none; `UndecidedError` when the budget ends
first. The search is depth first, turn by turn, where a turn is a close with the creates behind it. Two things keep it
short, and neither loses a reading:

- A failure is blamed on turns. What is known of the nodes called N was decided by the turns that name N, so if no
  node fits a turn, the turns that name the same nodes or their children are to blame. The search returns to the last
  of them and leaves the choices made since alone (conflict-directed backjumping).
- A failure is remembered. Readings that have led to the same nodes, costs and open list can continue in the same
  ways. A parent matters only on the plan's path, which the plan's own steps fix beforehand.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations, pairwise, product
from typing import Any, NamedTuple

from searchformer.domains import DEAD_END
from searchformer.records import Step
from searchformer.search.world import State, World

MOST_TURNS = 50_000
"""Turns that are tried before a trace is left undecided."""


class UndecidedError(Exception):
    """The budget ended before every reading was tried."""


Reading = tuple[tuple[int, str], ...]
"""A reading in which everything that the trace says is true: the steps (by number) that make it a search other than
the algorithm's own, each with what is wrong."""


class Node(NamedTuple):
    """What is known of a state that was created."""

    cost: int
    is_open: bool
    parent_fits: bool
    """Whether its parent is the one that the plan asks for."""


@dataclass(frozen=True)
class Turn:
    """A close and the creates behind it."""

    number: int
    """Of the close, among the steps."""
    closed: Step
    created: tuple[Step, ...]


@dataclass(frozen=True)
class Option:
    """One way to read a turn: the node closed and its children created."""

    node: State
    children: tuple[State, ...]
    complete: bool
    """Whether every child that the algorithm would create is among them."""


def find_reading(
    world: World, steps: Sequence[Step], plan: Sequence[State], *, weights: tuple[int, int], legal: bool
) -> Reading | None:
    """A legal reading of the trace `steps`, or (without `legal`) a sound one, that ends in the states of `plan`."""
    turns = _turns(world, steps)
    if not turns or len(set(plan)) < len(plan):  # a path along parents never comes back
        return None
    return _Search(world, turns, plan, weights=weights, legal=legal).run()


def _turns(world: World, steps: Sequence[Step]) -> list[Turn]:
    """The steps after the start's creation as turns; none if the trace does not begin with that."""
    start = world.start()
    first = Step("create", world.state_tokens(start), 0, world.estimate(start))
    if len(steps) < 2 or steps[0] != first or steps[1].kind != "close":
        return []
    closes = [number for number, step in enumerate(steps) if step.kind == "close"]
    ends = [*closes[1:], len(steps)]
    return [Turn(first, steps[first], tuple(steps[first + 1 : end])) for first, end in zip(closes, ends, strict=True)]


@dataclass
class _Branch:
    """A turn on the path of the search."""

    number: int
    key: int
    """The nodes before it."""
    mark: tuple[int, int]
    """How much to keep when its changes are taken back."""
    options: Iterator[Option]
    """Those not yet tried."""
    blamed: set[int] = field(default_factory=set)
    """Earlier turns that made an option fail."""


class _Search:
    """Depth-first search over readings; one set of nodes is changed on the way down and restored on the way up."""

    def __init__(
        self, world: World, turns: list[Turn], plan: Sequence[State], *, weights: tuple[int, int], legal: bool
    ) -> None:
        self.world, self.turns, self.legal, self.weights = world, turns, legal, weights
        self.plan_parent = dict(pairwise(reversed(plan)))  # the parents that the plan's states must end up with
        self.goal = plan[-1] if plan else None
        self.nodes: dict[State, Node] = {}
        self.named: dict[tuple[str, ...], list[State]] = {}
        self.open_f: Counter[int] = Counter()
        self.key = 0
        self.digest = cache(_digest)
        self.failed: dict[tuple[int, int], set[int]] = {}
        self.undo: list[tuple[State, Node | None]] = []
        self.disorders: list[tuple[int, str]] = []
        self.mentions: dict[tuple[str, ...], list[int]] = {}
        for number, turn in enumerate(turns):
            for name in {step.state for step in (turn.closed, *turn.created)}:
                self.mentions.setdefault(name, []).append(number)

    def run(self) -> Reading | None:
        """The first reading found."""
        start = self.world.start()
        self._set(start, Node(0, True, start not in self.plan_parent))
        path = [self._branch(0)]
        for _ in range(MOST_TURNS + len(self.turns)):
            branch = path[-1]
            self._restore(branch.mark)
            option = next(branch.options, None)
            if option is None:
                blamed = self.failed[branch.number, branch.key] = branch.blamed | self._blame(branch.number)
            else:
                self._apply(self.turns[branch.number], option)
                if len(path) == len(self.turns):
                    if all(state in self.nodes and self.nodes[state].parent_fits for state in self.plan_parent):
                        return tuple(self.disorders)
                    blamed = self._naming(map(self.world.state_tokens, self.plan_parent), before=len(path))
                elif (len(path), self.key) in self.failed:
                    blamed = self.failed[len(path), self.key]
                else:
                    path.append(self._branch(len(path)))
                    continue
            if not blamed:
                return None
            del path[max(blamed) + 1 :]
            path[-1].blamed |= blamed - {max(blamed)}
        raise UndecidedError

    def _branch(self, number: int) -> _Branch:
        return _Branch(number, self.key, (len(self.undo), len(self.disorders)), self._options(number))

    def _may_close(self, number: int, node: State) -> bool:
        """A search ends when it closes a goal, and that is the plan's last state."""
        is_last = number + 1 == len(self.turns)
        return node == self.goal if is_last else not self.world.is_goal(node)

    def _blame(self, number: int) -> set[int]:
        """The turns that decide which options there are for this one."""
        closed = self.turns[number].closed
        nodes = list(self._candidates(closed))
        if self.legal and nodes and self._f(nodes[0]) > min(self.open_f):
            return set(range(number))
        children = {child for node in nodes for child in self.world.successors(node)}
        return self._naming({closed.state, *map(self.world.state_tokens, children)}, before=number)

    def _naming(self, names: Iterable[tuple[str, ...]], *, before: int) -> set[int]:
        """The turns before this one that close or create nodes called one of `names`."""
        return {number for name in names for number in self.mentions.get(name, ()) if number < before}

    def _candidates(self, closed: Step) -> Iterator[State]:
        """The nodes that a close may mean. All have the same f."""
        for state in self.named.get(closed.state, ()):
            cost, is_open, _ = self.nodes[state]
            if is_open and (cost, self.world.estimate(state)) == (closed.cost, closed.estimate):
                yield state

    def _options(self, number: int) -> Iterator[Option]:
        """The nodes that the turn's close may mean, with the children that its creates may mean."""
        turn = self.turns[number]
        for node in tuple(self._candidates(turn.closed)):
            if not self._may_close(number, node) or (self.legal and self._f(node) > min(self.open_f)):
                continue
            for children, complete in self._choices(node, turn.created):
                if complete or not self.legal:
                    yield Option(node, children, complete)

    def _choices(self, node: State, created: Sequence[Step]) -> Iterator[tuple[tuple[State, ...], bool]]:
        """The sets of children that the creates may mean, and whether no child is missing."""
        children = [] if self.world.is_goal(node) else self._children(node)
        wanted = Counter(created)
        expected: dict[Step, list[State]] = {}
        for child in children:
            cost = self.nodes[node].cost + 1
            step = Step("create", self.world.state_tokens(child), cost, self.world.estimate(child))
            expected.setdefault(step, []).append(child)
        if any(len(expected.get(step, ())) < count for step, count in wanted.items()):
            return
        groups = [combinations(expected[step], count) for step, count in wanted.items()]
        for chosen in product(*groups):
            flat = tuple(child for group in chosen for child in group)
            yield flat, len(flat) == len(children)

    def _children(self, node: State) -> list[State]:
        """The children that the algorithm would create when it closes `node`."""
        cost = self.nodes[node].cost + 1
        found = []
        for child in dict.fromkeys(self.world.successors(node)):
            if child in self.nodes:
                worth_it = self.weights[0] > 0 and cost < self.nodes[child].cost
            else:
                worth_it = self.world.estimate(child) != DEAD_END
            if worth_it:
                found.append(child)
        return found

    def _apply(self, turn: Turn, option: Option) -> None:
        """Close the option's node and create its children; note where the algorithm would have done otherwise."""
        if self._f(option.node) > min(self.open_f):
            self.disorders.append((turn.number, "not of least f"))
        if not option.complete:
            self.disorders.append((turn.number + len(option.children) + 1, "child not created"))
        closed = self.nodes[option.node]
        self._set(option.node, closed._replace(is_open=False))
        for child in option.children:
            self._set(child, Node(closed.cost + 1, True, self.plan_parent.get(child) in (None, option.node)))

    def _f(self, state: State) -> int:
        return self.weights[0] * self.nodes[state].cost + self.weights[1] * self.world.estimate(state)

    # --- the nodes so far

    def _set(self, state: State, node: Node | None, *, log: bool = True) -> None:
        """Change one node, or forget it (None)."""
        before = self.nodes.get(state)
        if log:
            self.undo.append((state, before))
        if before is not None:
            self._count(state, before, -1)
        else:
            self.named.setdefault(self.world.state_tokens(state), []).append(state)
        if node is None:
            self.named[self.world.state_tokens(state)].remove(state)
            del self.nodes[state]
            return
        self.nodes[state] = node
        self._count(state, node, 1)

    def _count(self, state: State, node: Node, change: int) -> None:
        """Take the node, which is the state's present one, into the key and the open list, or out of them."""
        self.key ^= self.digest((state, *node))
        if node.is_open:
            f = self._f(state)
            self.open_f[f] += change
            if not self.open_f[f]:
                del self.open_f[f]

    def _restore(self, mark: tuple[int, int]) -> None:
        """Take back every change since `mark`."""
        while len(self.undo) > mark[0]:
            self._set(*self.undo.pop(), log=False)
        del self.disorders[mark[1] :]


def _digest(fact: tuple[Any, ...]) -> int:
    """128 bits for a node's state, cost, openness and parent; a set of nodes is told by the exclusive or of them."""
    return int.from_bytes(hashlib.blake2b(repr(fact).encode(), digest_size=16).digest(), "little")
