"""How short a search can be: one that creates and closes the nodes of an optimal plan and nothing else.

In: a task and the length of its optimal plans. Out: tokens of the shortest such trace.
"""

import numpy as np

from searchformer.domains import Domain
from searchformer.domains.base import DEAD_END
from searchformer.search.world import World

TOKENS_BESIDE_STATE = 3
"""Of a trace step: the keyword and two costs."""


def shortest_search_length(domain: Domain, problem: np.ndarray, *, plan_nodes: int) -> int:
    """Trace tokens of the shortest true search for a plan of `plan_nodes` nodes, which must be optimal.

    Optimal plans may differ in length as text: states do not all take the same number of tokens. So all of them are
    looked at, a layer of states at a time, leaving out states that are too far from the goal.
    """
    world = World(domain, problem)

    def tokens(state: tuple[int, ...]) -> int:
        return 2 * (len(world.state_tokens(state)) + TOKENS_BESIDE_STATE)  # created, then closed

    start = world.start()
    layer, seen = {start: tokens(start)}, {start}
    for moves_left in range(plan_nodes - 2, -1, -1):
        following: dict[tuple[int, ...], int] = {}
        for state, so_far in layer.items():
            for child in world.successors(state):
                if child in seen or not DEAD_END < world.estimate(child) <= moves_left:
                    continue
                following[child] = min(following.get(child, so_far + tokens(child)), so_far + tokens(child))
        layer = following
        seen |= layer.keys()
    return min(length for state, length in layer.items() if world.is_goal(state))
