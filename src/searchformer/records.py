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


@dataclass(frozen=True)
class Verdict:
    """What an answer is worth."""

    verdict: str
    """`optimal`, `feasible` or `invalid`."""
    reason: str | None
    """Why it is invalid: the first reason found."""
    plan_length: int
    """Nodes of the answer's plan; -1 without one."""
    optimal_length: int
    """Nodes of a shortest plan; -1 if the task has none."""
    trace_length: int
    """Tokens before the plan."""
    created: int
    """Create steps in the trace."""
    closed: int
    """Close steps in the trace."""
    trace_legal: bool | None
    """Whether the trace is a legal execution of A*; None without a trace."""
    trace_sound: bool | None
    """Whether it is legal but for the order of closing and children left out; None without a trace."""
    violation: str | None
    """The first thing that is wrong with the trace."""
    violation_position: int
    """The token where that is; -1 if nowhere."""
    legal_share: float
    """Share of the trace's steps that are legal, replaying on past errors; 0 without a trace."""
    cost_errors: int
    """Steps with a wrong g."""
    estimate_errors: int
    """Steps with a wrong h."""
