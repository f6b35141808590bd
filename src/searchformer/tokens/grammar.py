"""Searches as tokens, and tokens as searches.

In: a problem and its `Trace`. Out: prompt, trace and plan as text, and back, with named parse errors. What may follow
what is one table (`Automaton`), from the domain's shapes: the parser walks it, and sampling can be held to it.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from searchformer.domains import Domain, Group, Groups, make_domain
from searchformer.errors import SearchformerError
from searchformer.records import Trace
from searchformer.tokens.vocabulary import EOS, Vocabulary

UNKNOWN, TRUNCATED, OUT_OF_RANGE, UNEXPECTED, NO_PLAN, AFTER_EOS = (
    "unknown token",
    "truncated step",
    "coordinate out of range",
    "unexpected token",
    "no plan",
    "text after eos",
)


class ParseError(SearchformerError):
    """A response that the grammar does not have."""

    def __init__(self, kind: str, position: int, detail: str) -> None:
        super().__init__(f"token {position}: {kind}: {detail}")
        self.kind, self.position, self.detail = kind, position, detail

    def __reduce__(self) -> tuple[Any, ...]:
        return ParseError, (self.kind, self.position, self.detail)


@dataclass(frozen=True)
class Step:
    """One line of a trace."""

    kind: str
    """create or close."""
    state: Groups
    cost: int
    """g."""
    estimate: int
    """h."""


@dataclass(frozen=True)
class Response:
    """A parsed answer."""

    steps: list[Step]
    plan: list[Groups]


@dataclass(frozen=True)
class Automaton:
    """Which token may come next. Row s of the table is the state after s: a state, or -1 for a token not allowed."""

    start: int
    next_state: np.ndarray
    """int32 [states, vocabulary]."""
    expects: tuple[str, ...]
    """What each state waits for, in words."""


# --- writing


def write_text(domain: Domain, problem: np.ndarray, trace: Trace) -> tuple[str, str, str]:
    """Prompt, trace and plan as space-separated tokens; trace and plan are empty if there is none."""
    buffer = np.zeros(domain.prompt_room(problem) + domain.state_room(problem), dtype=np.int32)

    def text(count: int) -> str:
        return " ".join(domain.token_text(code) for code in buffer[:count].tolist())

    rules = domain.rules
    write_plan = rules.write_plan or rules.write_state
    prompt = text(rules.write_prompt(problem, buffer))
    states = [text(rules.write_state(problem, state, buffer)) for state in trace.states]
    columns = zip(
        trace.kinds.tolist(), trace.nodes.tolist(), trace.costs.tolist(), trace.estimates.tolist(), strict=True
    )
    steps = [f"{'close' if closes else 'create'} {states[node]} c{g} c{h}" for closes, node, g, h in columns]
    plan = [f"plan {text(write_plan(problem, state, buffer))}" for state in trace.plan]
    return prompt, " ".join(steps), " ".join(plan)


def write_response(response: Response) -> list[str]:
    """The tokens of a parsed response."""
    tokens: list[str] = []
    for step in response.steps:
        tokens += [step.kind, *_write_groups(step.state), f"c{step.cost}", f"c{step.estimate}"]
    for state in response.plan:
        tokens += ["plan", *_write_groups(state)]
    return tokens


def _write_groups(groups: Groups) -> list[str]:
    return [token for word, values in groups for token in ([word] if word else []) + [str(value) for value in values]]


# --- the table

_Place = tuple[Any, ...]


class _Builder:
    """Builds the table by following places: ("step",), ("group", part, g, done), ("number", part, g, done, n), ..."""

    def __init__(self, domain: Domain, vocabulary: Vocabulary) -> None:
        self.shapes = {"trace": domain.shapes.state, "plan": domain.shapes.plan}
        self.ids, self.costs = vocabulary.ids, domain.costs

    def options(self, place: _Place) -> dict[int, _Place]:
        """The tokens allowed at `place`, and where each leads."""
        kind = place[0]
        if kind == "first":
            return self._words({"create": ("group", "trace", 0, 0)})
        if kind == "first plan":
            return self._words({"plan": ("group", "plan", 0, 0)})
        if kind == "step":
            trace, plan = ("group", "trace", 0, 0), ("group", "plan", 0, 0)
            return self._words({"create": trace, "close": trace, "plan": plan})
        if kind == "group":
            return self._group(*place[1:])
        if kind == "number":
            part, index, done, number = place[1:]
            group: Group = self.shapes[part][index]
            last = number + 1 == len(group.limits)
            after = ("group", part, index, done + 1) if last else ("number", part, index, done, number + 1)
            return self._numbers(group.limits[number], after)
        if kind == "cost":
            return self._cost_tokens(("estimate",))
        if kind == "estimate":
            return self._cost_tokens(("step",))
        return {}

    def _group(self, part: str, index: int, done: int) -> dict[int, _Place]:
        """Where `done` of group `index` have been read: one more, or what comes after the group."""
        shape = self.shapes[part]
        if index == len(shape):
            if part == "trace":
                return self._cost_tokens(("estimate",))
            return self._words({"plan": ("group", "plan", 0, 0)}) | {EOS: ("end",)}
        group, allowed = shape[index], {}
        if done >= group.least:
            allowed = self._group(part, index + 1, 0)
        if done < group.most:
            if group.word is not None:
                allowed |= self._words({group.word: ("number", part, index, done, 0)})
            else:
                allowed |= self.options(("number", part, index, done, 0))
        return allowed

    def _words(self, leads: dict[str, _Place]) -> dict[int, _Place]:
        return {self.ids[word]: place for word, place in leads.items()}

    def _numbers(self, limit: int, after: _Place) -> dict[int, _Place]:
        return {self.ids[str(number)]: after for number in range(limit)}

    def _cost_tokens(self, after: _Place) -> dict[int, _Place]:
        return {self.ids[f"c{cost}"]: after for cost in range(self.costs)}


_EXPECTS = {
    "first": "'create'",
    "first plan": "'plan'",
    "step": "'create', 'close' or 'plan'",
    "number": "a number",
    "estimate": "a cost",
    "end": "nothing",
}
_AFTER_PLAN = "'plan' or 'eos'"


def build_automaton(domain: Domain, vocabulary: Vocabulary, *, plan_only: bool = False) -> Automaton:
    """The table of a domain's responses: search and plan, or the plan alone."""
    builder = _Builder(domain, vocabulary)
    places: list[_Place] = [("first plan",) if plan_only else ("first",)]
    number_of = {places[0]: 0}
    rows: list[np.ndarray] = []
    while len(rows) < len(places):
        row = np.full(len(vocabulary), -1, dtype=np.int32)
        for token, place in builder.options(places[len(rows)]).items():
            if place not in number_of:
                number_of[place] = len(places)
                places.append(place)
            row[token] = number_of[place]
        rows.append(row)
    expects = tuple(_expected(place, row) for place, row in zip(places, rows, strict=True))
    return Automaton(start=0, next_state=np.stack(rows), expects=expects)


def _expected(place: _Place, row: np.ndarray) -> str:
    """What a place waits for, in words."""
    return _AFTER_PLAN if row[EOS] >= 0 else _EXPECTS.get(place[0], "the rest of a step")


@cache
def _automaton(domain: Domain, vocabulary: Vocabulary, plan_only: bool) -> Automaton:
    return build_automaton(domain, vocabulary, plan_only=plan_only)


def automaton_for(
    domain_name: str, settings: dict[str, Any], vocabulary: Vocabulary, *, plan_only: bool = False
) -> Automaton:
    """The table for a data set's domain and vocabulary."""
    domain = make_domain(domain_name, settings)
    missing = [token for token in domain.token_list() if token not in vocabulary.ids]
    if missing:
        raise SearchformerError(f"the vocabulary lacks {len(missing)} tokens of {domain_name}, such as {missing[0]!r}")
    return _automaton(domain, vocabulary, plan_only)


# --- reading


def parse_response(domain: Domain, vocabulary: Vocabulary, tokens: list[str]) -> Response:
    """Take a response apart (without bos; a closing eos is allowed); raises ParseError."""
    plan_only = tokens[:1] == ["plan"]
    automaton = _automaton(domain, vocabulary, plan_only)
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
        raise ParseError(AFTER_EOS, len(body) + 1, f"found {tokens[len(body) + 1]!r}")
    return _take_apart(body)


def _mismatch(token: str, position: int, expected: str, vocabulary: Vocabulary) -> ParseError:
    if token not in vocabulary.ids:
        return ParseError(UNKNOWN, position, f"found {token!r}, which the vocabulary does not have")
    if token in ("create", "close", "plan") and expected not in (
        _EXPECTS["first"],
        _EXPECTS["first plan"],
        _AFTER_PLAN,
    ):
        return ParseError(TRUNCATED, position, f"expected {expected}; found {token!r}")
    if expected == _EXPECTS["number"] and token.isdigit():
        return ParseError(OUT_OF_RANGE, position, f"found {token!r}, beyond the task's size")
    return ParseError(UNEXPECTED, position, f"expected {expected}; found {token!r}")


def _take_apart(tokens: list[str]) -> Response:
    """Steps and plan of tokens that the automaton has accepted."""
    starts = [index for index, token in enumerate(tokens) if token in ("create", "close", "plan")]
    steps, plan = [], []
    for first, last in zip(starts, [*starts[1:], len(tokens)], strict=True):
        kind, inside = tokens[first], tokens[first + 1 : last]
        if kind == "plan":
            plan.append(_groups(inside))
        else:
            steps.append(Step(kind, _groups(inside[:-2]), int(inside[-2][1:]), int(inside[-1][1:])))
    return Response(steps, plan)


def _groups(tokens: list[str]) -> Groups:
    groups: list[tuple[str | None, list[int]]] = []
    for token in tokens:
        if not token.isdigit():
            groups.append((token, []))
        elif not groups:
            groups.append((None, [int(token)]))
        else:
            groups[-1][1].append(int(token))
    return [(word, tuple(values)) for word, values in groups]
