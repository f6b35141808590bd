"""Replays answers in a domain's rules: is the plan legal, and is the trace an execution of A*?

The text that `compiled.py` compiles for each domain; `validate.py` calls it. A step's state is compared as tokens, so
that no domain needs a parser: a create must read like a child of the node just closed, a close like an open node.

An answer is an array of codes: a number n is n, word k is -1 - k (the domain's words, then create, close, plan), cost c
is COST + c. `keywords` is minus the number of the domain's own words; create, close, plan are keywords - 1, - 2, - 3:

    codes       create  3  4  COST+2  COST+5  close  3  4  COST+2  COST+5 ...  plan  3  4  plan  3  5
                ^ begin       ^ end - 2       ^ end = begin of the next step   ^ trace_end            ^ end

Nodes are numbered in the order of their first creation and found by a hash table, as in kernel.py.
`tests/test_validate.py` holds all this against a slow checker that shares no code with it.
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
NONE, MALFORMED, BAD_START, NOT_NEIGHBOUR, SKIPPABLE, REPEATED, BAD_COST, BAD_ESTIMATE = range(8)
NOT_OPEN, IS_CLOSED, NOT_LEAST, CHILD_MISSING, AFTER_GOAL, GOAL_OPEN, BAD_PLAN = range(8, 15)
OF_ORDER = (VIOLATIONS[NOT_LEAST], VIOLATIONS[CHILD_MISSING])
"""Violations that leave a trace sound."""

# A child of the node just closed: A* creates it next, A* skips it, or the trace has created it.
TO_CREATE, TO_SKIP, CREATED_NOW = range(3)

# Entries of Memory.result. UNSOUND counts violations other than of order; AMBIGUOUS the steps before the first of
# these that may mean several nodes; EPOCH marks the hash table's entries of this replay.
RESULTS = 12
VIOLATION, POSITION, STEPS, LEGAL, COST_ERRORS, ESTIMATE_ERRORS = range(6)
CREATED, CLOSED, AMBIGUOUS, NODES, EPOCH, UNSOUND = range(6, RESULTS)


class Memory(NamedTuple):
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
    name: np.ndarray
    """int64 [N]: digest of the state's tokens."""
    table: np.ndarray
    """int64 [T]: hash table of nodes, as in kernel.Work."""
    children: np.ndarray
    """int32 [max_children, S]: of the node just closed."""
    status: np.ndarray
    """int64 [max_children]: TO_CREATE, TO_SKIP or CREATED_NOW."""
    state: np.ndarray
    """int32 [S]: scratch for a state."""
    candidates: np.ndarray
    """int64: the node that a close is taken to mean (-1: none), then all nodes that it may mean."""
    path: np.ndarray
    """int64 [N]: nodes from the start to the goal."""
    tokens: np.ndarray
    """int32: scratch for a state's tokens."""
    wrong: np.ndarray
    """int64: what is wrong with each step of the trace."""
    result: np.ndarray
    """int64: see the names above."""


def copy_state(states, node, state):
    """Copy row `node` of `states` to `state`."""
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


def first_refused(codes, table):
    """Where `codes` leave the grammar of tokens/grammar.py; their number if they end too soon; else -1.

    The table's columns are the words, then any number, any cost, and the end.
    """
    words = table.shape[1] - 3
    state = 0
    for at in range(len(codes)):
        code = codes[at]
        if code < -words:
            return at
        column = -1 - code if code < 0 else words if code < COST else words + 1
        state = table[state, column]
        if state < 0:
            return at
    return -1 if table[state, words + 2] >= 0 else len(codes)


def replay_plan(problem, codes, begin, end, keywords, memory, outcome):
    """Walk the plan in codes[begin:end]. outcome = [ending, at which step, nodes]; keywords = create's code + 1."""
    state, children, tokens = memory.state, memory.children, memory.tokens
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
                copy_state(children, index, state)
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


def add_node(problem, memory, cost, parent, estimate_weight):
    """Create memory.state, for the first time or again; the node."""
    result, state = memory.result, memory.state
    slot = find(state, memory.states, memory.table, result[EPOCH])
    node = node_at(slot, memory.table, result[EPOCH])
    if node < 0:
        node = result[NODES]
        memory.table[slot] = result[EPOCH] << 32 | node
        result[NODES] += 1
        for index in range(len(state)):
            memory.states[node, index] = state[index]
        memory.estimate[node] = heuristic(problem, state) if estimate_weight > 0 else 0
        count = write_state(problem, state, memory.tokens)
        memory.name[node] = digest_codes(memory.tokens, 0, count)
    memory.cost[node] = cost
    memory.parent[node] = parent
    memory.is_open[node] = 1
    return node


def find_children(problem, node, memory, cost_weight, estimate_weight):
    """The children of the node just closed, each with its status. Returns how many there are."""
    states, children, state = memory.states, memory.children, memory.state
    table, epoch = memory.table, memory.result[EPOCH]
    copy_state(states, node, state)
    count = successors(problem, state, children)
    for index in range(count):
        copy_state(children, index, state)
        existing = node_at(find(state, states, table, epoch), table, epoch)
        if existing >= 0:
            skipped = cost_weight == 0 or memory.cost[existing] <= memory.cost[node] + 1
        else:
            skipped = estimate_weight > 0 and heuristic(problem, state) < 0
        memory.status[index] = TO_SKIP if skipped else TO_CREATE
    return count


def create_step(problem, codes, begin, end, node, children, memory, cost_weight, estimate_weight):
    """Replay a create of a child of `node` (-1: of the start). What is wrong with it."""
    state, tokens, status = memory.state, memory.tokens, memory.status
    cost, match, matches = 0, -1, 0
    if node < 0:
        start(problem, state)
        if memory.result[NODES] > 0:
            return REPEATED
        if not equal_codes(codes, begin + 1, end - 2, tokens, write_state(problem, state, tokens)):
            return BAD_START
    else:
        for index in range(children):
            copy_state(memory.children, index, state)
            if equal_codes(codes, begin + 1, end - 2, tokens, write_state(problem, state, tokens)):
                if status[index] == TO_CREATE:
                    matches += 1
                if match < 0 or (matches == 1 and status[index] == TO_CREATE):
                    match = index
        if match < 0:
            return NOT_NEIGHBOUR
        if status[match] == TO_SKIP:
            return SKIPPABLE
        if status[match] == CREATED_NOW:
            return REPEATED
        if matches > 1 and memory.result[UNSOUND] == 0:
            memory.result[AMBIGUOUS] += 1
        copy_state(memory.children, match, state)
        status[match] = CREATED_NOW
        cost = memory.cost[node] + 1
    added = add_node(problem, memory, cost, node, estimate_weight)
    if codes[end - 2] != COST + cost:
        return BAD_COST
    if codes[end - 1] != COST + memory.estimate[added]:
        return BAD_ESTIMATE
    return NONE


def matching(problem, codes, begin, end, memory, node):
    """Does the step's state read as `node`'s?"""
    copy_state(memory.states, node, memory.state)
    return equal_codes(codes, begin + 1, end - 2, memory.tokens, write_state(problem, memory.state, memory.tokens))


def children_follow(problem, codes, end, trace_end, keywords, node, memory, cost_weight, estimate_weight):
    """Are the creates that follow at `end` just those that A* makes when it closes `node`?"""
    children = find_children(problem, node, memory, cost_weight, estimate_weight)
    at, create_word = end, keywords - 1
    while at < trace_end and codes[at] == create_word:
        stop = step_end(codes, at, trace_end, keywords)
        expected = False
        for index in range(children):
            copy_state(memory.children, index, memory.state)
            count = write_state(problem, memory.state, memory.tokens)
            if memory.status[index] == TO_CREATE and equal_codes(codes, at + 1, stop - 2, memory.tokens, count):
                memory.status[index] = CREATED_NOW
                expected = True
                break
        if not expected:
            return False
        at = stop
    for index in range(children):
        if memory.status[index] == TO_CREATE:
            return False
    return True


def close_step(problem, codes, begin, end, trace_end, keywords, memory, cost_weight, estimate_weight):
    """Replay a close. What is wrong with it; memory.candidates[0] becomes the node, or -1.

    Where tokens leave something out, a close may mean several nodes. The first one is taken whose costs are right and
    whose children are created next; that it need not be the one that was meant is left to readings.py.
    """
    result, is_open, cost, estimate = memory.result, memory.is_open, memory.cost, memory.estimate
    candidates = memory.candidates
    name = digest_codes(codes, begin + 1, end - 2)
    least, exact, alike, was_closed = 1 << 60, 0, -1, False
    for node in range(result[NODES]):
        if is_open[node]:
            f = cost_weight * cost[node] + estimate_weight * estimate[node]
            if f < least:
                least = f
        if memory.name[node] == name and matching(problem, codes, begin, end, memory, node):
            if not is_open[node]:
                was_closed = True
            elif codes[end - 2] == COST + cost[node] and codes[end - 1] == COST + estimate[node]:
                exact = min(exact + 1, len(candidates) - 1)
                candidates[exact] = node
            else:
                alike = node
    candidates[0] = alike
    if exact == 0 and alike < 0:
        return IS_CLOSED if was_closed else NOT_OPEN
    if exact == 0:
        return BAD_COST if codes[end - 2] != COST + cost[alike] else BAD_ESTIMATE
    candidates[0] = candidates[1]
    if exact > 1:
        if result[UNSOUND] == 0:
            result[AMBIGUOUS] += 1
        for index in range(1, exact + 1):
            node = candidates[index]
            if children_follow(problem, codes, end, trace_end, keywords, node, memory, cost_weight, estimate_weight):
                candidates[0] = node
                break
    if cost_weight * cost[candidates[0]] + estimate_weight * estimate[candidates[0]] > least:
        return NOT_LEAST
    return NONE


def record_violation(result, violation, position):
    """Count a violation; keep the first."""
    if violation == BAD_COST:
        result[COST_ERRORS] += 1
    if violation == BAD_ESTIMATE:
        result[ESTIMATE_ERRORS] += 1
    if result[VIOLATION] == NONE:
        result[VIOLATION] = violation
        result[POSITION] = position


def replay_trace(problem, codes, trace_end, end, keywords, cost_weight, estimate_weight, memory):
    """Replay the trace in codes[:trace_end] and the plan in codes[trace_end:end]; see Memory.result.

    After a violation the replay continues as well as it can, to tell how many steps are legal: a wrong cost is read as
    the right one, a step that means no node is passed over.
    """
    result, status, candidates = memory.result, memory.status, memory.candidates
    epoch = result[EPOCH] + 1
    result[:] = 0
    result[EPOCH] = epoch
    create_word, close_word = keywords - 1, keywords - 2
    node, children, goal = -1, 0, -1
    at = 0
    while at < trace_end:
        stop = step_end(codes, at, trace_end, keywords)
        result[STEPS] += 1
        violation, position, unsound = NONE, at, True
        is_create = codes[at] == create_word
        has_costs = stop - at >= 4 and codes[stop - 2] >= COST and codes[stop - 1] >= COST
        if not has_costs or (not is_create and codes[at] != close_word):
            violation = MALFORMED
        elif goal >= 0:
            violation = AFTER_GOAL
        elif is_create:
            result[CREATED] += 1
            violation = create_step(problem, codes, at, stop, node, children, memory, cost_weight, estimate_weight)
            unsound = violation != NONE
        else:
            result[CLOSED] += 1
            missing = False
            for index in range(children):
                missing = missing or status[index] == TO_CREATE
            violation = close_step(problem, codes, at, stop, trace_end, keywords, memory, cost_weight, estimate_weight)
            unsound = violation != NONE and violation != NOT_LEAST
            if missing and violation != NOT_OPEN and violation != IS_CLOSED:
                violation = CHILD_MISSING
            if candidates[0] >= 0:
                node = candidates[0]
                memory.is_open[node] = 0
                copy_state(memory.states, node, memory.state)
                children = 0
                if is_goal(problem, memory.state):
                    goal = node
                else:
                    children = find_children(problem, node, memory, cost_weight, estimate_weight)
        if unsound:
            result[UNSOUND] += 1
        memory.wrong[result[STEPS] - 1] = violation
        if violation == NONE:
            result[LEGAL] += 1
        else:
            if violation == BAD_COST:
                position = stop - 2
            elif violation == BAD_ESTIMATE:
                position = stop - 1
            record_violation(result, violation, position)
        at = stop
    if goal < 0:
        result[UNSOUND] += 1
        record_violation(result, GOAL_OPEN, trace_end)
    elif result[UNSOUND] == 0:
        wrong = plan_deviates(problem, codes, trace_end, end, keywords, goal, memory)
        if wrong >= 0:
            result[UNSOUND] += 1
            record_violation(result, BAD_PLAN, wrong)


def plan_deviates(problem, codes, begin, end, keywords, goal, memory):
    """Where the plan leaves the path of parents that leads to the goal, or -1."""
    length, node, path = 0, goal, memory.path
    while node >= 0:
        length += 1
        node = memory.parent[node]
    node = goal
    for index in range(length - 1, -1, -1):
        path[index] = node
        node = memory.parent[node]
    at = begin
    for index in range(length):
        if at >= end or codes[at] != keywords - 3:
            return at
        stop = step_end(codes, at, end, keywords)
        copy_state(memory.states, path[index], memory.state)
        count = write_plan(problem, memory.state, memory.tokens)
        if not equal_codes(codes, at + 1, stop, memory.tokens, count):
            return at
        at = stop
    return at if at < end else -1
