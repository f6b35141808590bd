"""Shorter searches in hindsight: a search again, without some of the nodes that it closed in vain.

A node was closed in vain if it is not on the way from the start to the goal. It can be left out if no child of it was
closed, or if all of those are left out too. The nodes that stay are closed again in their order, and create what they
create in a search that never closed the others: the result is sound. An answer's false steps are corrected on the way:
costs are the true ones, and what it closed although it was not open is passed over.
In: a task, the tokens of an answer. Out: the tokens of a shorter one.

    without_some(world, "create 0 0 c0 c2 close ...".split(), share=0.5, chance=random.Random(0))
"""

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from searchformer.domains import DEAD_END
from searchformer.search.world import State, Tokens, World, cut_steps


@dataclass
class _Closing:
    """A node that was closed."""

    state: State
    name: Tokens
    parent: int | None
    """The closing that created this node, by its number."""


@dataclass
class _Search:
    """A true search, as far as it has come."""

    closings: list[_Closing] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    is_at_goal: bool = False


def without_some(world: World, answer: Sequence[str], *, share: float, chance: random.Random) -> list[str] | None:
    """The answer without a `share` of the nodes that it closed in vain, drawn at random.

    None if what it closed does not lead to the goal, or only by another number of moves than its plan has.
    """
    steps = cut_steps(answer)
    closings = _search(world, (step.state for step in steps if step.kind == "close"), chance).closings
    left_out = _drawn(closings, share, chance)
    names = (closing.name for number, closing in enumerate(closings) if number not in left_out)
    search = _search(world, names, chance)
    plan = [world.plan_tokens(search.closings[number].state) for number in _way_to_last(search.closings)]
    is_as_long = len(plan) == sum(step.kind == "plan" for step in steps)
    written = [token for name in plan for token in ("plan", *name)]
    return [*search.trace, *written] if search.is_at_goal and is_as_long else None


def _drawn(closings: Sequence[_Closing], share: float, chance: random.Random) -> set[int]:
    """A share of the closings in vain, by number: one after the other of those that no other one depends on."""
    way, left_out = set(_way_to_last(closings)), set[int]()
    dependent = Counter(closing.parent for closing in closings)
    free = [number for number in range(len(closings)) if number not in way and not dependent[number]]
    for _ in range(round(share * (len(closings) - len(way)))):
        number = free.pop(chance.randrange(len(free)))
        left_out.add(number)
        parent = closings[number].parent
        dependent[parent] -= 1
        if parent is not None and parent not in way and not dependent[parent]:
            free.append(parent)
    return left_out


def _way_to_last(closings: Sequence[_Closing]) -> list[int]:
    """The closings on the way from the start to the last one, by number."""
    way: list[int] = []
    number = len(closings) - 1 if closings else None
    while number is not None:
        way.append(number)
        number = closings[number].parent
    return way[::-1]


def _search(world: World, names: Iterable[Tokens], chance: random.Random) -> _Search:
    """A search that closes open nodes of these names in this order, their children in any, up to the goal."""
    search, costs = _Search(), dict[State, int]()
    by_name: dict[Tokens, State] = {}
    parents: dict[State, int | None] = {}
    """Of the open nodes."""

    def note(keyword: str, state: State) -> None:
        search.trace.extend((keyword, *world.state_tokens(state), f"c{costs[state]}", f"c{world.estimate(state)}"))

    def create(state: State, cost: int, parent: int | None) -> None:
        if world.estimate(state) != DEAD_END and cost < costs.get(state, cost + 1):
            costs[state], parents[state], by_name[world.state_tokens(state)] = cost, parent, state
            note("create", state)

    create(world.start(), 0, None)
    for name in names:
        state = by_name.get(name)
        if state is None or state not in parents:
            continue
        note("close", state)
        search.closings.append(_Closing(state, name, parents.pop(state)))
        if world.is_goal(state):
            search.is_at_goal = True
            break
        children = world.successors(state)
        for child in chance.sample(children, len(children)):
            create(child, costs[state] + 1, len(search.closings) - 1)
    return search
