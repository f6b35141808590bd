"""The one grammar: searches as tokens, tokens as searches, and what may come next.

In: a problem and its `Trace`. Out: prompt, trace and plan as text, and back, with named parse errors. What may follow
what is one table of kinds of token (`GrammarTable`), made from the domain's shapes. The judge walks it; spelt out for
a vocabulary (`Automaton`), the parser walks it and sampling can be held to it.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from searchformer.domains import KEYWORDS, Domain, Group, Shapes, make_domain
from searchformer.errors import SearchformerError, shown
from searchformer.records import Step, Trace
from searchformer.search.world import World, cut_steps
from searchformer.tokens.vocabulary import EOS, Vocabulary

UNKNOWN, TRUNCATED, OUT_OF_RANGE = "unknown token", "truncated step", "coordinate out of range"
UNEXPECTED, NO_PLAN, AFTER_EOS = "unexpected token", "no plan", "text after eos"


class ParseError(SearchformerError):
    """A response that the grammar does not have."""

    def __init__(self, kind: str, position: int, detail: str) -> None:
        super().__init__(f"token {position}: {kind}: {detail}")
        self.kind, self.position, self.detail = kind, position, detail

    def __reduce__(self) -> tuple[Any, ...]:
        return ParseError, (self.kind, self.position, self.detail)


@dataclass(frozen=True)
class Response:
    """A parsed answer."""

    steps: list[Step]
    """Of the trace."""
    plan: list[Step]


@dataclass(frozen=True)
class GrammarTable:
    """The grammar of a domain's responses: which kind of token may come next. State 0 is the start."""

    next_state: np.ndarray
    """int32 [states, words + 3]: the state after each of `Domain.all_words`, a number, a cost, the end; -1 for none."""
    limits: tuple[int, ...]
    """The exclusive limit of the number that each state waits for; 0 where it waits for none."""
    expects: tuple[str, ...]
    """What each state waits for, in words."""


@dataclass(frozen=True)
class Automaton:
    """The same for a vocabulary. Row s of the table is the state after s: a state, or -1 for a token not allowed."""

    start: int
    next_state: np.ndarray
    """int32 [states, vocabulary]."""
    expects: tuple[str, ...]
    """What each state waits for, in words."""


# --- writing


def write_text(domain: Domain, problem: np.ndarray, trace: Trace) -> tuple[str, str, str]:
    """Prompt, trace and plan as space-separated tokens; trace and plan are empty if there is none."""
    world = World(domain, problem)
    prompt = " ".join(world.prompt_tokens())
    states = [" ".join(world.state_tokens(tuple(state))) for state in trace.states.tolist()]
    columns = zip(
        trace.kinds.tolist(), trace.nodes.tolist(), trace.costs.tolist(), trace.estimates.tolist(), strict=True
    )
    steps = [f"{'close' if closes else 'create'} {states[node]} c{g} c{h}" for closes, node, g, h in columns]
    plan = [" ".join(("plan", *world.plan_tokens(tuple(state)))) for state in trace.plan.tolist()]
    return prompt, " ".join(steps), " ".join(plan)


def write_response(response: Response) -> list[str]:
    """The tokens of a parsed response."""
    return [token for step in (*response.steps, *response.plan) for token in step.tokens()]


# --- the table

_Place = tuple[Any, ...]
_NUMBER, _COST, _END = "<number>", "<cost>", "<end>"


class _Next(NamedTuple):
    """Where a kind of token leads, and a number's limit."""

    place: _Place
    limit: int = 0


def _options(shapes: Shapes, place: _Place) -> dict[str, _Next]:
    """The kinds of token allowed at `place`: ("step",), ("group", part, g, done), ("number", part, g, done, n), ..."""
    trace, plan = _Next(("group", "state", 0, 0)), _Next(("group", "plan", 0, 0))
    match place:
        case ("first",):
            return {"create": trace}
        case ("first plan",):
            return {"plan": plan}
        case ("step",):
            return {"create": trace, "close": trace, "plan": plan}
        case ("estimate",):
            return {_COST: _Next(("step",))}
        case ("number", part, index, done, number):
            limits = getattr(shapes, part)[index].limits
            is_last = number + 1 == len(limits)
            after = ("group", part, index, done + 1) if is_last else ("number", part, index, done, number + 1)
            return {_NUMBER: _Next(after, limits[number])}
        case ("group", part, index, done):
            return _group_options(shapes, part, index, done)
    return {}  # ("end",)


def _group_options(shapes: Shapes, part: str, index: int, done: int) -> dict[str, _Next]:
    """Where `done` of group `index` have been read: one more, or what comes after the group."""
    groups = getattr(shapes, part)
    if index == len(groups):
        if part == "state":
            return {_COST: _Next(("estimate",))}
        return {"plan": _Next(("group", "plan", 0, 0)), _END: _Next(("end",))}
    group: Group = groups[index]
    allowed = _group_options(shapes, part, index + 1, 0) if done >= group.least else {}
    if done < group.most:
        inside = ("number", part, index, done, 0)
        allowed |= _options(shapes, inside) if group.word is None else {group.word: _Next(inside)}
    return allowed


@cache
def build_table(domain: Domain, *, plan_only: bool = False) -> GrammarTable:
    """The grammar of a domain's responses: search and plan, or the plan alone."""
    shapes, columns = domain.shapes, [*domain.all_words, _NUMBER, _COST, _END]
    places: list[_Place] = [("first plan",) if plan_only else ("first",)]
    rows, limits, expects = list[list[int]](), list[int](), list[str]()
    for place in places:  # grows on the way
        options = _options(shapes, place)
        places += [after for after in dict.fromkeys(each.place for each in options.values()) if after not in places]
        rows.append([places.index(options[kind].place) if kind in options else -1 for kind in columns])
        limits.append(options[_NUMBER].limit if _NUMBER in options else 0)
        expects.append(_AFTER_PLAN if _END in options else _EXPECTS.get(place[0], "the rest of a step"))
    return GrammarTable(np.array(rows, dtype=np.int32), tuple(limits), tuple(expects))


_EXPECTS = {
    "first": "'create'",
    "first plan": "'plan'",
    "step": "'create', 'close' or 'plan'",
    "number": "a number",
    "estimate": "a cost",
    "end": "nothing",
}
_AFTER_PLAN = "'plan' or 'eos'"


@cache
def build_automaton(domain: Domain, vocabulary: Vocabulary, *, plan_only: bool = False) -> Automaton:
    """The grammar for the tokens of a vocabulary."""
    table, ids = build_table(domain, plan_only=plan_only), vocabulary.ids
    numbers = np.array([ids[str(number)] for number in range(domain.numbers)])
    columns: list[Any] = [[ids[word]] for word in domain.all_words]
    columns += [numbers, [ids[f"c{cost}"] for cost in range(domain.costs)], [EOS]]
    next_state = np.full((len(table.limits), len(vocabulary)), -1, dtype=np.int32)
    for row, after, limit in zip(next_state, table.next_state, table.limits, strict=True):
        for tokens, state in zip(columns, after, strict=True):
            row[tokens[:limit] if tokens is numbers else tokens] = state
    return Automaton(0, next_state, table.expects)


def automaton_for(
    domain_name: str, settings: dict[str, Any], vocabulary: Vocabulary, *, plan_only: bool = False
) -> Automaton:
    """The table for a data set's domain and vocabulary."""
    domain = make_domain(domain_name, settings)
    missing = [token for token in domain.token_list() if token not in vocabulary.ids]
    if missing:
        raise SearchformerError(
            f"the vocabulary lacks {len(missing)} tokens of {domain_name}, such as {shown(missing[0])}"
        )
    return build_automaton(domain, vocabulary, plan_only=plan_only)


# --- reading


def parse_response(domain: Domain, vocabulary: Vocabulary, tokens: list[str]) -> Response:
    """Take a response apart (without bos; a closing eos is allowed); raises ParseError."""
    plan_only = tokens[:1] == ["plan"]
    automaton = build_automaton(domain, vocabulary, plan_only=plan_only)
    ends_with_eos = "eos" in tokens
    body = tokens[: tokens.index("eos")] if ends_with_eos else tokens
    state = automaton.start
    for position, token in enumerate(body):
        after = int(automaton.next_state[state, vocabulary.ids[token]]) if token in vocabulary.ids else -1
        if after < 0:
            raise _mismatch(token, position, automaton.expects[state], vocabulary)
        state = after
    if automaton.next_state[state, EOS] < 0:
        if automaton.expects[state] in (_EXPECTS["first"], _EXPECTS["step"], _EXPECTS["first plan"]):
            raise ParseError(NO_PLAN, len(body), "the response ends before its plan")
        raise ParseError(TRUNCATED, len(body), f"the response ends where {automaton.expects[state]} should follow")
    if ends_with_eos and len(body) + 1 < len(tokens):
        raise ParseError(AFTER_EOS, len(body) + 1, f"found {shown(tokens[len(body) + 1])}")
    steps = cut_steps(body)
    return Response([step for step in steps if step.kind != "plan"], [step for step in steps if step.kind == "plan"])


def _mismatch(token: str, position: int, expected: str, vocabulary: Vocabulary) -> ParseError:
    if token not in vocabulary.ids:
        return ParseError(UNKNOWN, position, f"found {shown(token)}, which the vocabulary does not have")
    between_steps = (_EXPECTS["first"], _EXPECTS["first plan"], _AFTER_PLAN)
    if token in KEYWORDS and expected not in between_steps:
        return ParseError(TRUNCATED, position, f"expected {expected}; found {shown(token)}")
    if expected == _EXPECTS["number"] and token.isdigit():
        return ParseError(OUT_OF_RANGE, position, f"found {shown(token)}, beyond the task's size")
    return ParseError(UNEXPECTED, position, f"expected {expected}; found {shown(token)}")
