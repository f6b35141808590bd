"""Shorter searches in hindsight: a search again, without some of what it did in vain.

A node was closed in vain if it is not on the way from the start to the goal. It can be left out if no child of it was
closed, or if all of those are left out too. The nodes that stay are closed again in their order, and create what they
create in a search that never closed the others, but for some of the children that it never closes: the result is sound.
An answer's false steps are corrected on the way: costs are the true ones, and what it closed although it was not open
is passed over.

Some of this is free. A* closes every node whose f is below the goal's, but of those with the same f it needs only the
ones on its way: without the others, a search is what A* itself does when it is lucky. Who leaves out a node of lower f
claims to know that it leads nowhere.
In: a task, the tokens of an answer. Out: the tokens of a shorter one.

    without_some(world, "create 0 0 c0 c2 close ...".split(), LeftOut(closed_equal=1.0), chance=random.Random(0))
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from searchformer.domains import DEAD_END
from searchformer.search.world import State, Tokens, World, cut_steps


@dataclass(frozen=True)
class LeftOut:
    """What a search is repeated without: shares of the nodes that it closed or created in vain, by their f."""

    closed_below: float = 0.0
    """Of the nodes closed in vain whose f is below the goal's."""
    closed_equal: float = 0.0
    """Of those whose f is the goal's, or above it."""
    created_equal: float = 0.0
    """Of the children never closed whose f is up to the goal's."""
    created_above: float = 0.0
    """Of those whose f is above it."""


LUCKY = LeftOut(closed_equal=1.0)
"""What A* leaves out when it is always lucky among nodes of equal f."""


@dataclass
class _Closing:
    """A node that was closed."""

    state: State
    name: Tokens
    parent: int | None
    """The closing that created this node, by its number."""
    f: int


@dataclass
class _Search:
    """A true search, as far as it has come."""

    closings: list[_Closing] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    is_at_goal: bool = False


def without_some(world: World, answer: Sequence[str], left_out: LeftOut, *, chance: random.Random) -> list[str] | None:
    """The answer without some of what it did in vain, drawn at random.

    None if what it closed does not lead to the goal, or only by another number of moves than its plan has.
    """
    steps = cut_steps(answer)
    whole = _search(world, (step.state for step in steps if step.kind == "close"), chance)
    if not whole.is_at_goal:
        return None
    dropped = _drawn(whole.closings, left_out, chance)
    kept = [closing for number, closing in enumerate(whole.closings) if number not in dropped]
    wanted = {closing.state for closing in kept}
    passed_over: dict[State, bool] = {}

    def is_passed_over(state: State, f: int) -> bool:
        if state not in passed_over:
            share = left_out.created_above if f > whole.closings[-1].f else left_out.created_equal
            passed_over[state] = state not in wanted and chance.random() < share
        return passed_over[state]

    search = _search(world, (closing.name for closing in kept), chance, is_passed_over)
    plan = [world.plan_tokens(search.closings[number].state) for number in _way_to_last(search.closings)]
    is_as_long = len(plan) == sum(step.kind == "plan" for step in steps)
    written = [token for name in plan for token in ("plan", *name)]
    return [*search.trace, *written] if search.is_at_goal and is_as_long else None


def _drawn(closings: Sequence[_Closing], left_out: LeftOut, chance: random.Random) -> set[int]:
    """The closings in vain that are left out, by number: one after the other of those that no other one depends on."""
    way, drawn, goal_f = set(_way_to_last(closings)), set[int](), closings[-1].f
    dependent = Counter(closing.parent for closing in closings)
    in_vain = [number for number in range(len(closings)) if number not in way]
    equal = [number for number in in_vain if closings[number].f >= goal_f]
    below = [number for number in in_vain if closings[number].f < goal_f]
    for numbers, share in ((equal, left_out.closed_equal), (below, left_out.closed_below)):
        free = [number for number in numbers if not dependent[number]]
        for _ in range(int(share * len(numbers) + chance.random())):
            if not free:
                break
            number = free.pop(chance.randrange(len(free)))
            drawn.add(number)
            parent = closings[number].parent
            dependent[parent] -= 1
            if parent in numbers and not dependent[parent]:
                free.append(parent)
    return drawn


def _way_to_last(closings: Sequence[_Closing]) -> list[int]:
    """The closings on the way from the start to the last one, by number."""
    way: list[int] = []
    number = len(closings) - 1 if closings else None
    while number is not None:
        way.append(number)
        number = closings[number].parent
    return way[::-1]


def _search(
    world: World,
    names: Iterable[Tokens],
    chance: random.Random,
    is_passed_over: Callable[[State, int], bool] = lambda _state, _f: False,
) -> _Search:
    """A search that closes open nodes of these names in this order, their children in any, up to the goal.

    It creates no nodes that are to be passed over, which it tells by state and f.
    """
    search, costs = _Search(), dict[State, int]()
    by_name: dict[Tokens, State] = {}
    parents: dict[State, int | None] = {}
    """Of the open nodes."""

    def note(keyword: str, state: State) -> None:
        search.trace.extend((keyword, *world.state_tokens(state), f"c{costs[state]}", f"c{world.estimate(state)}"))

    def create(state: State, cost: int, parent: int | None) -> None:
        estimate = world.estimate(state)
        if estimate == DEAD_END or cost >= costs.get(state, cost + 1):
            return
        if not is_passed_over(state, cost + estimate):
            costs[state], parents[state], by_name[world.state_tokens(state)] = cost, parent, state
            note("create", state)

    create(world.start(), 0, None)
    for name in names:
        state = by_name.get(name)
        if state is None or state not in parents:
            continue
        note("close", state)
        f = costs[state] + world.estimate(state)
        search.closings.append(_Closing(state, name, parents.pop(state), f))
        if world.is_goal(state):
            search.is_at_goal = True
            break
        children = world.successors(state)
        for child in chance.sample(children, len(children)):
            create(child, costs[state] + 1, len(search.closings) - 1)
    return search
