"""Shorter searches in hindsight: a search again, without some of what it did in vain.

A node was closed in vain if it is not on the way from the start to the goal. Three kinds of work in vain can be left
out without risk:

- Ties. A* must close every node whose f is below the goal's, but of those with the same f only the ones on its way:
  without the others, a search is what A* itself does when it is lucky.
- Dead ends. To close a node contributes nothing, whatever its f, if that creates no child, or none but dead ends and
  children whose f is above the goal's. Dead ends are created all the same: who takes a node for one by mistake can
  still close it later, but never one that was not created.
- Children that are never closed and whose f is above the goal's.

What is left is closed again in the same order, so the result is sound, and it still closes all that A* needs to know
that its plan is optimal. An answer's false steps are corrected on the way: costs are the true ones, and what it closed
although it was not open is passed over.
In: a task, the tokens of an answer. Out: the tokens of a shorter one.

    without_some(world, "create 0 0 c0 c2 close ...".split(), LeftOut(ties=1.0), chance=random.Random(0))
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache

from searchformer.domains import DEAD_END
from searchformer.search.world import State, Tokens, World, cut_steps


@dataclass(frozen=True)
class LeftOut:
    """What a search is repeated without: shares of what it did in vain."""

    ties: float = 0.0
    """Of the nodes closed in vain whose f is the goal's, or above it."""
    dead_ends: float = 0.0
    """Of the nodes whose every child is such a node, too, or has an f above the goal's: they are not closed."""
    children_above: float = 0.0
    """Of the children never closed whose f is above the goal's."""


LUCKY = LeftOut(ties=1.0)
"""What A* leaves out when it is always lucky among nodes of equal f."""


@dataclass
class _Closing:
    """A node that was closed."""

    state: State
    name: Tokens
    parent: int | None
    """The closing that created this node, by its number."""
    f: int
    children: list[tuple[State, int]] = field(default_factory=list)
    """What closing it created, with its f."""


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
    ties = _drawn_ties(whole.closings, left_out.ties, chance)
    kept = [closing.name for number, closing in enumerate(whole.closings) if number not in ties]
    lucky = _search(world, kept, chance)
    dead_ends = _drawn_dead_ends(lucky.closings, left_out.dead_ends, chance)
    closings = [closing for closing in lucky.closings if closing.state not in dead_ends]
    closed, goal_f = {closing.state for closing in closings}, closings[-1].f

    @cache
    def is_passed_over(state: State, is_above: bool) -> bool:
        return is_above and state not in closed and chance.random() < left_out.children_above

    names = (closing.name for closing in closings)
    search = _search(world, names, chance, lambda state, f: is_passed_over(state, f > goal_f))
    plan = [world.plan_tokens(search.closings[number].state) for number in _way_to_last(search.closings)]
    is_as_long = len(plan) == sum(step.kind == "plan" for step in steps)
    written = [token for name in plan for token in ("plan", *name)]
    return [*search.trace, *written] if search.is_at_goal and is_as_long else None


def _drawn_ties(closings: Sequence[_Closing], share: float, chance: random.Random) -> set[int]:
    """The ties that are left out, by number: one after the other of those that no other closing depends on."""
    way, drawn = set(_way_to_last(closings)), set[int]()
    ties = {number for number, closing in enumerate(closings) if closing.f >= closings[-1].f and number not in way}
    dependent = Counter(closing.parent for closing in closings)
    free = sorted(number for number in ties if not dependent[number])
    for _ in range(int(share * len(ties) + chance.random())):
        if not free:
            break
        number = free.pop(chance.randrange(len(free)))
        drawn.add(number)
        parent = closings[number].parent
        dependent[parent] -= 1
        if parent in ties and not dependent[parent]:
            free.append(parent)
    return drawn


def _drawn_dead_ends(closings: Sequence[_Closing], share: float, chance: random.Random) -> set[State]:
    """The dead ends that are left out. Children are closed after what created them, so the last are looked at first."""
    way, drawn = set(_way_to_last(closings)), set[State]()
    times = Counter(closing.state for closing in closings)  # where h is inconsistent, a node may be closed again
    for number in reversed(range(len(closings))):
        closing = closings[number]
        leads_on = any(state not in drawn and (f <= closings[-1].f or times[state]) for state, f in closing.children)
        is_dead_end = number not in way and times[closing.state] == 1 and not leads_on
        if is_dead_end and chance.random() < share:
            drawn.add(closing.state)
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
            if parent is not None:
                search.closings[parent].children.append((state, cost + estimate))

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
