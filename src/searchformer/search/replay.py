"""Replays answers in a domain's rules: is the plan legal, and is the trace an execution of A*?

The text that `compiled.py` compiles for each domain; `validate.py` calls it. Tokens come as codes: a number n as n,
word k as -1 - k, cost c as COST + c. A step's state is compared as tokens, so that no domain needs a parser: a create
must read like a child of the node just closed, a close like an open node.
"""

from typing import Any, NamedTuple

import numpy as np

from searchformer.search.kernel import find, node_at
from searchformer.seeding import MASK

# DOMAIN RULES (see domains/base.py)
RULE: Any = None
successors = heuristic = write_state = start = is_goal = write_plan = RULE

COST = 1 << 24
"""Codes from here on are costs."""

# How a plan ends.
SOLVED, NO_PLAN, WRONG_START, ILLEGAL_MOVE, NOT_SOLVED = range(5)

# What may be wrong with a trace. The first one found is reported.
VIOLATIONS = (
    "none",
    "malformed step",
    "wrong start",
    "not a neighbour",
    "should have been skipped",
    "created twice",
    "wrong cost",
    "wrong estimate",
    "not open",
    "already closed",
    "not of least f",
    "child not created",
    "step after the goal",
    "goal not closed",
    "plan does not follow the parents",
)
(
    NONE,
    MALFORMED,
    BAD_START,
    NOT_NEIGHBOUR,
    SKIPPABLE,
    REPEATED,
    BAD_COST,
    BAD_ESTIMATE,
    NOT_OPEN,
    IS_CLOSED,
    NOT_LEAST,
    CHILD_MISSING,
    AFTER_GOAL,
    GOAL_OPEN,
    BAD_PLAN,
) = range(15)

# What became of a child of the node just closed.
TO_CREATE, TO_SKIP, DONE = range(3)

# Entries of Ground.result.
RESULTS = 12
VIOLATION, POSITION, STEPS, LEGAL, COST_ERRORS, ESTIMATE_ERRORS, CREATED, CLOSED, CHOICES, NODES, EPOCH, UNTRUE = range(
    RESULTS
)


class Ground(NamedTuple):
    """Memory of a replay. N nodes (no more than steps in the trace), S entries a state."""

    states: np.ndarray
    """int32 [N, S]."""
    cost: np.ndarray
    """int32 [N]."""
    estimate: np.ndarray
    """int32 [N]."""
    parent: np.ndarray
    """int32 [N]."""
    is_open: np.ndarray
    """uint8 [N]."""
    reads: np.ndarray
    """int64 [N]: digest of the state's tokens."""
    table: np.ndarray
    """int64 [T]: hash table of nodes, as in kernel.Work."""
    children: np.ndarray
    """int32 [max_children, S]: of the node just closed."""
    fate: np.ndarray
    """int64 [max_children]: TO_CREATE, TO_SKIP or DONE."""
    state: np.ndarray
    """int32 [S]: a state in hand."""
    closing: np.ndarray
    """int64: the node closed, then nodes that read like it."""
    path: np.ndarray
    """int64 [N]: nodes from the start to the goal."""
    tokens: np.ndarray
    """int32: scratch for a state's tokens."""
    choices: np.ndarray
    """int64: which of several nodes that read alike each ambiguous close takes, up to the first violation."""
    alternatives: np.ndarray
    """int64: how many there were."""
    result: np.ndarray
    """int64: see the names above."""


def take(states, node, state):
    """Copy a row of `states` to `state`."""
    for index in range(len(state)):
        state[index] = states[node, index]


def digest_codes(codes, begin, end):
    """A 32-bit digest of codes[begin:end]."""
    key = end - begin
    for index in range(begin, end):
        key = ((key ^ (int(codes[index]) + 64)) * 0x9E3779B1) & MASK
        key ^= key >> 15
    return key


def equal_codes(codes, begin, end, tokens, count):
    """Does codes[begin:end] read as tokens[:count]?"""
    if end - begin != count:
        return False
    for index in range(count):
        if codes[begin + index] != tokens[index]:
            return False
    return True


def step_end(codes, begin, end, keywords):
    """Where the step that begins at `begin` ends: at the next keyword, or the end."""
    at = begin + 1
    while at < end and not (keywords - 3 <= codes[at] < keywords):
        at += 1
    return at


def first_malformed(codes, keywords, plan_width):
    """Where codes stop being steps: keyword, state, two costs; then `plan` and `plan_width` tokens. -1 if nowhere."""
    end = len(codes)
    in_plan = False
    at = 0
    while at < end:
        if not keywords - 3 <= codes[at] < keywords:
            return at
        stop = step_end(codes, at, end, keywords)
        in_plan = in_plan or codes[at] == keywords - 3
        if in_plan and codes[at] != keywords - 3:
            return at
        costs = 0 if in_plan else 2
        for index in range(at + 1, stop):
            is_cost = codes[index] >= COST
            if is_cost != (index >= stop - costs):
                return index
        if (in_plan and stop - at != 1 + plan_width) or stop - at < 2 + costs:
            return stop
        at = stop
    return -1


def replay_plan(problem, codes, begin, end, keywords, ground, outcome):
    """Walk the plan in codes[begin:end]. outcome = [ending, at which step, nodes]; keywords = create's code + 1."""
    state, children, tokens = ground.state, ground.children, ground.tokens
    plan_word = keywords - 3
    start(problem, state)
    at, step = begin, 0
    outcome[0], outcome[1], outcome[2] = SOLVED, 0, 0
    if begin >= end or codes[begin] != plan_word:
        outcome[0] = NO_PLAN
        return
    while at < end:
        stop = step_end(codes, at, end, keywords)
        outcome[1] = step
        if codes[at] != plan_word:
            outcome[0] = ILLEGAL_MOVE
            return
        if step == 0:
            if not equal_codes(codes, at + 1, stop, tokens, write_plan(problem, state, tokens)):
                outcome[0] = WRONG_START
                return
        else:
            count = successors(problem, state, children)
            moved = False
            for index in range(count):
                take(children, index, state)
                if equal_codes(codes, at + 1, stop, tokens, write_plan(problem, state, tokens)):
                    moved = True
                    break
            if not moved:
                outcome[0] = ILLEGAL_MOVE
                return
        step += 1
        outcome[2] = step
        at = stop
    if not is_goal(problem, state):
        outcome[0] = NOT_SOLVED


def add_node(problem, ground, cost, parent, estimate_weight):
    """Create ground.state, again if it is known; the node."""
    result, state = ground.result, ground.state
    slot = find(state, ground.states, ground.table, result[EPOCH])
    node = node_at(slot, ground.table, result[EPOCH])
    if node < 0:
        node = result[NODES]
        ground.table[slot] = result[EPOCH] << 32 | node
        result[NODES] += 1
        for index in range(len(state)):
            ground.states[node, index] = state[index]
        ground.estimate[node] = heuristic(problem, state) if estimate_weight > 0 else 0
        count = write_state(problem, state, ground.tokens)
        ground.reads[node] = digest_codes(ground.tokens, 0, count)
    ground.cost[node] = cost
    ground.parent[node] = parent
    ground.is_open[node] = 1
    return node


def find_fates(problem, node, ground, cost_weight, estimate_weight):
    """Which children of the node just closed are to be created. Returns how many children there are."""
    states, children, fate, state = ground.states, ground.children, ground.fate, ground.state
    table, epoch = ground.table, ground.result[EPOCH]
    take(states, node, state)
    count = successors(problem, state, children)
    for index in range(count):
        take(children, index, state)
        known = node_at(find(state, states, table, epoch), table, epoch)
        if known >= 0:
            skipped = cost_weight == 0 or ground.cost[known] <= ground.cost[node] + 1
        else:
            skipped = estimate_weight > 0 and heuristic(problem, state) < 0
        fate[index] = TO_SKIP if skipped else TO_CREATE
    return count


def create_step(problem, codes, begin, end, node, children, ground, cost_weight, estimate_weight):
    """Replay a create of a child of `node` (-1: of the start). What is wrong with it."""
    state, tokens, fate = ground.state, ground.tokens, ground.fate
    cost, match = 0, 0
    if node < 0:
        start(problem, state)
        if ground.result[NODES] > 0:
            return REPEATED
        if not equal_codes(codes, begin + 1, end - 2, tokens, write_state(problem, state, tokens)):
            return BAD_START
    else:
        match = -1
        for index in range(children):
            take(ground.children, index, state)
            if equal_codes(codes, begin + 1, end - 2, tokens, write_state(problem, state, tokens)):
                match = index
                if fate[index] == TO_CREATE:
                    break
        if match < 0:
            return NOT_NEIGHBOUR
        if fate[match] == TO_SKIP:
            return SKIPPABLE
        if fate[match] == DONE:
            return REPEATED
        take(ground.children, match, state)
        fate[match] = DONE
        cost = ground.cost[node] + 1
    added = add_node(problem, ground, cost, node, estimate_weight)
    if codes[end - 2] != COST + cost:
        return BAD_COST
    if codes[end - 1] != COST + ground.estimate[added]:
        return BAD_ESTIMATE
    return NONE


def matching(problem, codes, begin, end, ground, node):
    """Does the step's state read as `node`'s?"""
    take(ground.states, node, ground.state)
    return equal_codes(codes, begin + 1, end - 2, ground.tokens, write_state(problem, ground.state, ground.tokens))


def foretold(problem, codes, end, trace_end, keywords, node, ground, cost_weight, estimate_weight):
    """Are the creates that follow at `end` just those that closing `node` calls for?"""
    children = find_fates(problem, node, ground, cost_weight, estimate_weight)
    at, create_word = end, keywords - 1
    while at < trace_end and codes[at] == create_word:
        stop = step_end(codes, at, trace_end, keywords)
        called_for = False
        for index in range(children):
            take(ground.children, index, ground.state)
            count = write_state(problem, ground.state, ground.tokens)
            if ground.fate[index] == TO_CREATE and equal_codes(codes, at + 1, stop - 2, ground.tokens, count):
                ground.fate[index] = DONE
                called_for = True
                break
        if not called_for:
            return False
        at = stop
    for index in range(children):
        if ground.fate[index] == TO_CREATE:
            return False
    return True


def close_step(problem, codes, begin, end, trace_end, keywords, ground, cost_weight, estimate_weight):
    """Replay a close. What is wrong with it; ground.closing[0] becomes the node, or -1.

    Nodes may read alike where tokens leave something out. The one whose costs are right and whose children are created
    next is meant; if there are several, the choices say which.
    """
    result, is_open, cost, estimate = ground.result, ground.is_open, ground.cost, ground.estimate
    closing = ground.closing
    reading = digest_codes(codes, begin + 1, end - 2)
    least, exact, alike, was_closed = 1 << 60, 0, -1, False
    for node in range(result[NODES]):
        if is_open[node]:
            f = cost_weight * cost[node] + estimate_weight * estimate[node]
            if f < least:
                least = f
        if ground.reads[node] == reading and matching(problem, codes, begin, end, ground, node):
            if not is_open[node]:
                was_closed = True
            elif codes[end - 2] == COST + cost[node] and codes[end - 1] == COST + estimate[node]:
                exact = min(exact + 1, len(closing) - 1)
                closing[exact] = node
            else:
                alike = node
    closing[0] = alike
    if exact == 0 and alike < 0:
        return IS_CLOSED if was_closed else NOT_OPEN
    if exact == 0:
        return BAD_COST if codes[end - 2] != COST + cost[alike] else BAD_ESTIMATE
    closing[0] = closing[1]
    if exact > 1:
        fitting = 0
        for index in range(1, exact + 1):
            node = closing[index]
            if foretold(problem, codes, end, trace_end, keywords, node, ground, cost_weight, estimate_weight):
                fitting += 1
                closing[fitting] = node
        if fitting > 0:
            wanted = 0
            if fitting > 1 and result[CHOICES] < len(ground.choices) and result[VIOLATION] == NONE:
                wanted = ground.choices[result[CHOICES]]
                ground.alternatives[result[CHOICES]] = fitting
                result[CHOICES] += 1
            closing[0] = closing[1 + wanted]
    if cost_weight * cost[closing[0]] + estimate_weight * estimate[closing[0]] > least:
        return NOT_LEAST
    return NONE


def note(result, violation, position):
    """Count a violation; keep the first."""
    if violation == BAD_COST:
        result[COST_ERRORS] += 1
    if violation == BAD_ESTIMATE:
        result[ESTIMATE_ERRORS] += 1
    if result[VIOLATION] == NONE:
        result[VIOLATION] = violation
        result[POSITION] = position


def replay_trace(problem, codes, trace_end, end, keywords, cost_weight, estimate_weight, ground):
    """Replay the trace in codes[:trace_end] and the plan in codes[trace_end:end]; see Ground.result.

    After a violation the replay goes on as well as it can, to tell how many steps are legal: a wrong cost is read as
    the right one, a step that cannot be understood is passed over.
    """
    result, fate, closing = ground.result, ground.fate, ground.closing
    epoch = result[EPOCH] + 1
    result[:] = 0
    result[EPOCH] = epoch
    create_word, close_word = keywords - 1, keywords - 2
    node, children, goal = -1, 0, -1
    at = 0
    while at < trace_end:
        stop = step_end(codes, at, trace_end, keywords)
        result[STEPS] += 1
        violation, position, untrue = NONE, at, True
        is_create = codes[at] == create_word
        has_costs = stop - at >= 4 and codes[stop - 2] >= COST and codes[stop - 1] >= COST
        if not has_costs or (not is_create and codes[at] != close_word):
            violation = MALFORMED
        elif goal >= 0:
            violation = AFTER_GOAL
        elif is_create:
            result[CREATED] += 1
            violation = create_step(problem, codes, at, stop, node, children, ground, cost_weight, estimate_weight)
            untrue = violation != NONE
        else:
            result[CLOSED] += 1
            missing = False
            for index in range(children):
                missing = missing or fate[index] == TO_CREATE
            violation = close_step(problem, codes, at, stop, trace_end, keywords, ground, cost_weight, estimate_weight)
            untrue = violation != NONE and violation != NOT_LEAST
            if missing and violation != NOT_OPEN and violation != IS_CLOSED:
                violation = CHILD_MISSING
            if closing[0] >= 0:
                node = closing[0]
                ground.is_open[node] = 0
                take(ground.states, node, ground.state)
                children = 0
                if is_goal(problem, ground.state):
                    goal = node
                else:
                    children = find_fates(problem, node, ground, cost_weight, estimate_weight)
        if untrue:
            result[UNTRUE] += 1
        if violation == NONE:
            result[LEGAL] += 1
        else:
            if violation == BAD_COST:
                position = stop - 2
            elif violation == BAD_ESTIMATE:
                position = stop - 1
            note(result, violation, position)
        at = stop
    if goal < 0:
        result[UNTRUE] += 1
        note(result, GOAL_OPEN, trace_end)
    elif result[UNTRUE] == 0:
        wrong = plan_deviates(problem, codes, trace_end, end, keywords, goal, ground)
        if wrong >= 0:
            result[UNTRUE] += 1
            note(result, BAD_PLAN, wrong)


def plan_deviates(problem, codes, begin, end, keywords, goal, ground):
    """Where the plan leaves the path of parents that leads to the goal, or -1."""
    length, node, path = 0, goal, ground.path
    while node >= 0:
        length += 1
        node = ground.parent[node]
    node = goal
    for index in range(length - 1, -1, -1):
        path[index] = node
        node = ground.parent[node]
    at = begin
    for index in range(length):
        if at >= end or codes[at] != keywords - 3:
            return at
        stop = step_end(codes, at, end, keywords)
        take(ground.states, path[index], ground.state)
        count = write_plan(problem, ground.state, ground.tokens)
        if not equal_codes(codes, at + 1, stop, ground.tokens, count):
            return at
        at = stop
    return at if at < end else -1
