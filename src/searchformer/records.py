"""What the stages hand on: frozen records without behaviour."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Trace:
    """One search. E events, N nodes, S entries a state, L states in the plan."""

    solvable: bool
    """Whether a goal was reached; if not, `plan` is empty."""
    created: int
    """Nodes created, repeated creations included."""
    closed: int
    """Nodes closed, the goal included."""
    kinds: np.ndarray
    """bool [E]: True for a close, False for a create. Empty if the search was not recorded."""
    nodes: np.ndarray
    """int32 [E]: which node."""
    costs: np.ndarray
    """int32 [E]: its g at that moment."""
    estimates: np.ndarray
    """int32 [E]: its h."""
    states: np.ndarray
    """int32 [N, S]: the nodes' states."""
    plan: np.ndarray
    """int32 [L, S]: the states from start to goal."""
