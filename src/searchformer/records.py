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
class Step:
    """One step of an answer as written: `create 3 4 c2 c5`, `close 3 4 c2 c5` or `plan 3 4`."""

    kind: str
    """`create`, `close` or `plan`."""
    state: tuple[str, ...]
    """The tokens that name the state."""
    cost: int | None
    """g; None in a plan, or where the two costs are not there."""
    estimate: int | None
    """h; None where the cost is."""

    def tokens(self) -> list[str]:
        """The step as it was written."""
        costs = [] if self.cost is None else [f"c{self.cost}", f"c{self.estimate}"]
        return [self.kind, *self.state, *costs]


@dataclass(frozen=True)
class Verdict:
    """What an answer is worth. `verdict` and `reason` judge the plan; what follows `trace_length` judges the search."""

    verdict: str
    """`optimal` or `feasible` if the whole answer follows the grammar and its plan solves the task; else `invalid`."""
    reason: str | None
    """Why it is invalid: the first reason found. A search that is wrong but well formed is not a reason."""
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
    """Whether the trace is a legal execution of the search algorithm; None without a trace, or if undecided."""
    trace_sound: bool | None
    """Whether it is legal but for the order of closing and children left out; None as above."""
    violation: str | None
    """The first thing that is wrong with the trace; `undecided` if its many possible readings were not all tried."""
    violation_position: int
    """The token where that is; -1 if nowhere."""
    legal_share: float
    """Share of the trace's steps that are legal, where the replay continues after errors; 0 without a trace."""
    cost_errors: int
    """Steps with a wrong g."""
    estimate_errors: int
    """Steps with a wrong h."""
