"""A*, token writing and task sampling on preallocated arrays: the text that `compiled.py` compiles for each domain.

The names in `DOMAIN RULES` are placeholders that compiled.py replaces by a domain's functions. Everything here reads as
plain Python and runs uncompiled too. `reference.py` is the same search for people; the tests hold the two together.
"""

from typing import Any, NamedTuple

import numpy as np

from searchformer.search.ordering import clear_buckets, pop, push, unsigned
from searchformer.seeding import MASK, reseed, shuffle

# DOMAIN RULES (see domains/base.py)
RULE: Any = None
successors = heuristic = write_prompt = write_state = sample_task = sample_layout = RULE
foresee = accepts = start = is_goal = write_plan = tie_rank = state_index = RULE

STATE_SIZE = 0
"""Length of a state where that is known when the text is compiled, so that loops over a state unroll; else 0."""

# How a search ends.
SOLVED, UNSOLVABLE, OVER_BUDGET, NODES_FULL, EVENTS_FULL, BUCKETS_FULL = range(6)

# Entries of Work.counters.
EPOCH, NODES, EVENTS, CREATED, CLOSED, GOAL, USED_BUCKETS = range(7)

# A batch ends at one of these, or at NODES_FULL, EVENTS_FULL, BUCKETS_FULL.
BATCH_DONE, OUTPUT_FULL = 10, 11

# Entries of Output.cursor, and the reasons for rejecting a candidate, counted in Output.rejected.
CANDIDATE, PAIR, ROWS = range(3)
REASONS = ("no room", "unsolvable", "over budget", "plan too short", "trace too long", "cost beyond vocabulary")
NO_ROOM, NOT_SOLVABLE, BUDGET, PLAN_SHORT, TRACE_LONG, COST_HIGH = range(6)

# The first entries of an id table; the domain's words, numbers and costs follow.
PLAN_WORD, CLOSE_WORD, CREATE_WORD = range(3)


class Work(NamedTuple):
    """Memory of a search, reused from task to task. N nodes, E events, F buckets, S entries a state."""

    states: np.ndarray
    """int32 [N, S]."""
    cost: np.ndarray
    """int32 [N]: g."""
    estimate: np.ndarray
    """int32 [N]: h."""
    parent: np.ndarray
    """int32 [N]: the node it was created from, -1 for the start."""
    closed: np.ndarray
    """uint8 [N]: 1 once closed, until it is created again."""
    rank: np.ndarray
    """int64 [N]: tie_rank, where search is deterministic."""
    table: np.ndarray
    """int64 [T], T a power of two over 2 N: hash table of nodes, epoch << 32 | node; other epochs mean empty."""
    event: np.ndarray
    """int32 [E]: node << 1 | 1 for a close, node << 1 for a create."""
    event_cost: np.ndarray
    """int32 [E]: g at that moment."""
    pool: np.ndarray
    """int32: memory of the buckets."""
    first: np.ndarray
    """int64 [F]: where a bucket begins in the pool."""
    filled: np.ndarray
    """int64 [F]: its size."""
    room: np.ndarray
    """int64 [F]: its capacity."""
    children: np.ndarray
    """int32 [max_children, S]."""
    order: np.ndarray
    """int64 [max_children]."""
    counters: np.ndarray
    """int64: see the names above."""
    tokens: np.ndarray
    """int32: scratch for a state's or a prompt's tokens."""


class Output(NamedTuple):
    """What a batch fills. R rows."""

    problems: np.ndarray
    """int32 [R, problem_size]."""
    prompts: np.ndarray
    """Ids of all prompts, one after the other."""
    prompt_ends: np.ndarray
    """int32 [R + 1]: row r is prompts[prompt_ends[r] : prompt_ends[r + 1]]."""
    traces: np.ndarray
    """The same for traces."""
    trace_ends: np.ndarray
    plans: np.ndarray
    """The same for plans."""
    plan_ends: np.ndarray
    candidates: np.ndarray
    """int64 [R]: the candidate a row came from."""
    cursor: np.ndarray
    """int64 [3]: next candidate, next pair on its layout, rows filled."""
    rejected: np.ndarray
    """int64 [len(REASONS)]."""


def size_of(states):
    """Length of a state."""
    return STATE_SIZE if STATE_SIZE > 0 else states.shape[1]


def find(state, states, table, epoch):
    """The slot of the table that holds the node of `state`, or the empty one where it belongs."""
    key = 0
    size = size_of(states)
    for index in range(size):
        key = ((key ^ int(state[index])) * 0x9E3779B1) & MASK
        key ^= key >> 15
    mask = len(table) - 1
    slot = key & mask
    while True:
        entry = int(table[slot])
        if entry >> 32 != epoch:
            return slot
        node = entry & MASK
        same = True
        for index in range(size):
            if states[node, index] != state[index]:
                same = False
                break
        if same:
            return slot
        slot = (slot + 1) & mask


def node_at(slot, table, epoch):
    """The node in a slot of the table, or -1."""
    entry = int(table[slot])
    return entry & MASK if entry >> 32 == epoch else -1


def search(problem, stream, deterministic, cost_weight, estimate_weight, max_expansions, record, work):
    """Search from the start to a goal (paper, section 3.1). How it ended; the rest is in `work`.

    f = cost_weight * g + estimate_weight * h. A child already open or closed with an f as low is skipped; otherwise it
    is created, again if need be, and its older entry is void.
    """
    states, cost, estimate, parent, closed = work.states, work.cost, work.estimate, work.parent, work.closed
    rank, table, event, event_cost = work.rank, work.table, work.event, work.event_cost
    pool, first, count, room = work.pool, work.first, work.filled, work.room
    children, order, counters = work.children, work.order, work.counters
    size = size_of(states)
    assert states.shape[1] == size  # with that, the compiler knows len(state) in the rules if it knows STATE_SIZE
    assert children.shape[1] == size

    clear_buckets(room, count, counters[USED_BUCKETS])
    counters[EPOCH] += 1
    counters[GOAL] = -1
    epoch = counters[EPOCH]
    capacity, event_capacity, bucket_capacity = len(cost), len(event), len(count)
    nodes = events = created = expanded = pool_used = child_cost = 0
    least = highest = 0
    outcome = UNSOLVABLE
    node = -1  # the start has no parent
    start(problem, children[0])
    order[0] = 0
    candidates = 1

    while True:
        for turn in range(candidates):
            state = children[unsigned(order[turn])]
            slot = state_index(problem, state)
            if slot < 0:
                slot = find(state, states, table, epoch)
            found = node_at(slot, table, epoch)
            if found >= 0:
                # h is the same, so comparing f compares g; with no weight on g, f cannot fall
                if cost_weight == 0 or cost[found] <= child_cost:
                    continue
            else:
                child_estimate = heuristic(problem, state) if estimate_weight > 0 else 0
                if child_estimate < 0:
                    continue
                if nodes == capacity:
                    outcome = NODES_FULL
                    break
                table[slot] = epoch << 32 | nodes
                found = unsigned(nodes)
                nodes += 1
                for index in range(size):
                    states[found, index] = state[index]
                estimate[found] = child_estimate
                if deterministic:
                    rank[found] = tie_rank(problem, state)
            cost[found] = child_cost
            parent[found] = node
            closed[found] = 0
            f = cost_weight * child_cost + estimate_weight * estimate[found]
            if f >= bucket_capacity:
                outcome = BUCKETS_FULL
                break
            f = unsigned(f)
            pool_used = push(found, f, deterministic, rank, pool, pool_used, first, count, room)
            if pool_used < 0:
                outcome = NODES_FULL
                break
            if f < least or created == 0:
                least = f
            if f >= highest:
                highest = f + 1
            created += 1
            if record:
                if events == event_capacity:
                    outcome = EVENTS_FULL
                    break
                event[events] = found << 1
                event_cost[events] = child_cost
                events += 1
        if outcome != UNSOLVABLE:
            break

        while least < highest:
            if count[least] == 0:
                least += 1
                continue
            node = pop(least, deterministic, stream, rank, pool, first, count)
            if closed[node] == 0 and cost_weight * cost[node] + estimate_weight * estimate[node] == least:
                break  # else it is stale
        else:
            break
        closed[node] = 1
        expanded += 1
        if record:
            if events == event_capacity:
                outcome = EVENTS_FULL
                break
            event[events] = node << 1 | 1
            event_cost[events] = cost[node]
            events += 1
        state = states[node]
        if is_goal(problem, state):
            outcome = SOLVED
            counters[GOAL] = node
            break
        if expanded >= max_expansions:
            outcome = OVER_BUDGET
            break
        candidates = successors(problem, state, children)
        for turn in range(candidates):
            order[turn] = turn
        if not deterministic:
            shuffle(stream, order, candidates)
        child_cost = cost[node] + 1

    counters[NODES] = nodes
    counters[EVENTS] = events
    counters[CREATED] = created
    counters[CLOSED] = expanded
    counters[USED_BUCKETS] = highest
    return outcome


def plan_nodes(work):
    """Number of states from the start to the goal found, both included."""
    length = 0
    node = work.counters[GOAL]
    while node >= 0:
        length += 1
        node = work.parent[node]
    return length


def put(tokens, count, ids, words, out, at):
    """Write `count` token codes as ids; the new end of `out`."""
    for index in range(count):
        out[at + index] = ids[unsigned(words + tokens[index])]
    return at + count


def put_trace(problem, work, ids, words, cost_base, out, at):
    """Write the recorded events as ids. Returns the new end, or -1 if `out` is full, -2 if a cost has no token."""
    states, tokens = work.states, work.tokens
    event, event_cost, estimate = work.event, work.event_cost, work.estimate
    costs = len(ids) - cost_base
    limit = len(out)
    assert states.shape[1] == size_of(states)  # as in `search`
    for index in range(work.counters[EVENTS]):
        node = unsigned(event[index]) >> 1
        count = write_state(problem, states[node], tokens)
        if at + count + 3 > limit:
            return -1
        if event_cost[index] >= costs or estimate[node] >= costs:
            return -2
        out[at] = ids[CLOSE_WORD if event[index] & 1 else CREATE_WORD]
        at = put(tokens, count, ids, words, out, at + 1)
        out[at] = ids[unsigned(cost_base + event_cost[index])]
        out[at + 1] = ids[unsigned(cost_base + estimate[node])]
        at += 2
    return at


def trace_tokens(problem, work):
    """Number of tokens of the recorded events."""
    states, tokens = work.states, work.tokens
    total = 0
    for index in range(work.counters[EVENTS]):
        node = work.event[index] >> 1
        total += 3 + write_state(problem, states[node], tokens)
    return total


def put_plan(problem, work, ids, words, out, at):
    """Write the plan as ids, start first. Returns the new end, or -1 if `out` is full."""
    states, tokens, order = work.states, work.tokens, work.event
    length = plan_nodes(work)
    if length > len(order):
        return -1
    node = work.counters[GOAL]
    for index in range(length - 1, -1, -1):  # the events have been written: their memory holds the path now
        order[index] = node
        node = work.parent[node]
    for index in range(length):
        count = write_plan(problem, states[order[index]], tokens)
        if at + count + 1 > len(out):
            return -1
        out[at] = ids[PLAN_WORD]
        at = put(tokens, count, ids, words, out, at + 1)
    return at


def sample_and_search(settings, key, tasks, pairs, options, ids, words, cost_base, work, output, problem, stream):
    """Fill `output` with up to `tasks` accepted tasks, their traces and plans. How the batch ended.

    Candidate i is drawn from (key, i); on its layout, `pairs` tasks are tried. The cursor says where to continue, so
    that a batch that ended for want of memory repeats only the candidate it was at.
    options = [deterministic, cost_weight, estimate_weight, max_expansions, max_trace_tokens, last candidate].
    """
    cursor, rejected = output.cursor, output.rejected
    deterministic = options[0] != 0
    drawn = -1
    while cursor[ROWS] < tasks and cursor[CANDIDATE] <= options[5]:
        row = cursor[ROWS]
        candidate, pair = cursor[CANDIDATE], cursor[PAIR]
        if drawn != candidate:
            reseed(stream, key, candidate, 0)
            if not sample_layout(settings, stream, problem):
                rejected[NO_ROOM] += 1
                cursor[CANDIDATE] += 1
                cursor[PAIR] = 0
                continue
            drawn = candidate
        reseed(stream, key, candidate, 1 + pair)
        reason = -1
        foreseen = -1
        if not sample_task(settings, stream, problem):
            reason = NO_ROOM
        else:
            foreseen = foresee(problem)
            if foreseen == 0:
                reason = NOT_SOLVABLE
            elif foreseen > 0 and not accepts(problem, foreseen):
                reason = PLAN_SHORT
        if reason < 0:
            outcome = search(problem, stream, deterministic, options[1], options[2], options[3], True, work)
            if outcome == UNSOLVABLE:
                reason = NOT_SOLVABLE
            elif outcome == OVER_BUDGET:
                reason = BUDGET
            elif outcome != SOLVED:
                return outcome
            elif not accepts(problem, plan_nodes(work)):
                reason = PLAN_SHORT
        if reason < 0:
            begin = output.trace_ends[row]
            trace_end = put_trace(problem, work, ids, words, cost_base, output.traces, begin)
            if trace_end == -1:
                if begin == 0 and len(output.traces) > options[4]:
                    reason = TRACE_LONG
                else:
                    return OUTPUT_FULL
            elif trace_end == -2:
                reason = COST_HIGH
            elif trace_end - begin > options[4]:
                reason = TRACE_LONG
            else:
                count = write_prompt(problem, work.tokens)
                if output.prompt_ends[row] + count > len(output.prompts):
                    return OUTPUT_FULL
                prompt_end = put(work.tokens, count, ids, words, output.prompts, output.prompt_ends[row])
                plan_end = put_plan(problem, work, ids, words, output.plans, output.plan_ends[row])
                if plan_end < 0:
                    return OUTPUT_FULL
                output.prompt_ends[row + 1] = prompt_end
                output.trace_ends[row + 1] = trace_end
                output.plan_ends[row + 1] = plan_end
                for index in range(len(problem)):  # a slice's check of shapes would take seconds to compile
                    output.problems[row, index] = problem[index]
                output.candidates[row] = candidate
                cursor[ROWS] += 1
        if reason >= 0:
            rejected[reason] += 1
        cursor[PAIR] += 1
        if cursor[PAIR] == pairs:
            cursor[PAIR] = 0
            cursor[CANDIDATE] += 1
    return BATCH_DONE
