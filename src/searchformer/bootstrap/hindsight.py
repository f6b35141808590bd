"""Shorter searches in hindsight: a search again, without some of the nodes that it closed in vain.

A node was closed in vain if it is not on the way from the start to the goal. It can be left out if no child of it was
closed, or if all of those are left out too. The nodes that stay are closed again in their order, and create what they
create in a search that never closed the others: the result is sound, and ends in the same plan.
In: a task, the tokens of a sound answer. Out: the tokens of a shorter one.

    without_some(world, "create 0 0 c0 c2 close ...".split(), share=0.5, chance=random.Random(0))
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from searchformer.domains import DEAD_END
from searchformer.records import Step
from searchformer.search.world import State, Tokens, World, cut_steps


@dataclass
class _Closing:
    """A node that was closed."""

    name: Tokens
    parent: int | None
    """The closing that created this node, by its number."""
    stays: bool = False
    """It is on the way to the goal, or the parent of one that stays."""


def without_some(world: World, answer: Sequence[str], *, share: float, chance: random.Random) -> list[str]:
    """The answer without a `share` of what can be left out, drawn at random, the latest nodes first."""
    steps = cut_steps(answer)
    closings = _closings([step for step in steps if step.kind != "plan"])
    number = len(closings) - 1 if closings else None  # the goal
    while number is not None:
        closings[number].stays = True
        number = closings[number].parent
    for closing in reversed(closings):
        closing.stays = closing.stays or chance.random() >= share
        if closing.stays and closing.parent is not None:
            closings[closing.parent].stays = True
    trace = _search(world, [closing.name for closing in closings if closing.stays], chance)
    return [*trace, *(token for step in steps if step.kind == "plan" for token in ("plan", *step.state))]


def _closings(steps: Sequence[Step]) -> list[_Closing]:
    """The closed nodes of a trace; a node's parent is the one closed before it was created, the last time."""
    closings: list[_Closing] = []
    created: dict[Tokens, int] = {}
    for step in steps:
        if step.kind == "close":
            closings.append(_Closing(step.state, created.get(step.state)))
        elif closings:
            created[step.state] = len(closings) - 1
    return closings


def _search(world: World, names: Sequence[Tokens], chance: random.Random) -> list[str]:
    """The trace of a search that closes nodes of these names in this order, its children in any."""
    costs: dict[State, int] = {}
    by_name: dict[Tokens, State] = {}
    trace: list[str] = []

    def note(keyword: str, state: State) -> None:
        trace.extend((keyword, *world.state_tokens(state), f"c{costs[state]}", f"c{world.estimate(state)}"))

    def create(state: State, cost: int) -> None:
        if world.estimate(state) != DEAD_END and cost < costs.get(state, cost + 1):
            costs[state], by_name[world.state_tokens(state)] = cost, state
            note("create", state)

    if names:
        create(world.start(), 0)
    for name in names:
        state = by_name[name]
        note("close", state)
        if world.is_goal(state):
            break
        children = world.successors(state)
        for child in chance.sample(children, len(children)):
            create(child, costs[state] + 1)
    return trace
