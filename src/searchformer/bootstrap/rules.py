"""Selection rules: which of a task's candidates replace its trace in bootstrapping. A new one is an entry of `RULES`.

A candidate is an answer that the strict judge calls optimal and whose trace is shorter than the one in the data set
(`select.py`). Help texts, recipes' documentation and reports take names and explanations from here.
"""

from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator

from searchformer.errors import SearchformerError, shown
from searchformer.search.hindsight import LUCKY, LeftOut


@dataclass(frozen=True)
class Rule:
    """How to choose among a task's candidates."""

    explanation: str
    requires: str | None = None
    """A field of the verdict that must be true, besides the plan's being optimal."""
    keep: int = 1
    """How many different candidates are taken, the shortest first; the task's current trace stays if there is none."""
    left_out: LeftOut | None = None
    """What is first removed from every candidate, its false steps corrected (`hindsight.py`). Where a true search of
    the task ended in a longer plan, nothing is removed, and the longest come first: there, searching pays."""


RULES = {
    "paper": Rule("the shortest trace that ends in an optimal plan"),
    "several": Rule("the four shortest different traces that end in an optimal plan", keep=4),
    "sound": Rule(
        "the shortest with an optimal plan that is a true search: legal but for the order of closing and children "
        "left out",
        "trace_sound",
    ),
    "several-sound": Rule("the four shortest different true searches with an optimal plan", "trace_sound", keep=4),
    "lucky": Rule(
        "the four shortest with an optimal plan, their false steps corrected, each as a lucky A* would have done it: "
        "without the nodes closed in vain whose f is the goal's; where a true search ended in a longer plan, the four "
        "longest, with nothing left out",
        keep=4,
        left_out=LUCKY,
    ),
    "hindsight": Rule(
        "the four shortest with an optimal plan, their false steps corrected, each without most of what was in vain: "
        "nodes closed although their f is the goal's, children created although theirs is higher, and a few nodes of "
        "lower f; where a true search ended in a longer plan, the four longest, with nothing left out",
        keep=4,
        left_out=LeftOut(closed_below=0.1, closed_equal=0.95, created_above=0.9),
    ),
    "legal": Rule("the shortest with an optimal plan that is also a legal execution of A*", "trace_legal"),
}


def rule_names() -> str:
    """`paper, sound or legal`."""
    *first, last = RULES
    return f"{', '.join(first)} or {last}"


def known_rule(name: str) -> str:
    """The name; raises if no rule has it."""
    if name not in RULES:
        raise ValueError(f"no selection rule is called {shown(name)}; there are {rule_names()}")
    return name


RuleName = Annotated[str, AfterValidator(known_rule)]
"""An option that names a rule."""


def rule_named(name: str) -> Rule:
    """The rule of this name."""
    try:
        return RULES[known_rule(name)]
    except ValueError as error:
        raise SearchformerError(str(error)) from None
