"""Compiled kernels of the CPU sampler for step networks; `stepwise.py` says the same in PyTorch, for people.

Shape suffixes: R rows, S slots, T positions, P places, K inputs that are remembered, D model width, V symbols, O
offsets, N rows of an embedding's table. Slots hold what is remembered of a sequence; tests compare answers with the
obvious sampler's (`tests/test_step_networks.py`).
"""

# mypy cannot follow types through numba's compiled functions:
# mypy: disable-error-code="call-arg, operator, return-value, assignment, var-annotated"

import numpy as np

from searchformer.model.head import LEAST_MASS, TINY
from searchformer.rollout.kernels import compiled, fast_exp

_LEAST_MASS, _TINY = np.float32(LEAST_MASS), np.float32(TINY)
_ZERO, _ONE = np.float32(0.0), np.float32(1.0)


@compiled
def embed_pieces(inputs_RP: np.ndarray, symbols: int, table_ND: np.ndarray, x_RD: np.ndarray) -> None:
    """The decoder's input: the sum of a vector for every (place, symbol) of a piece."""
    for row in range(inputs_RP.shape[0]):
        x_RD[row] = _ZERO
        for place in range(inputs_RP.shape[1]):
            if inputs_RP[row, place] >= 0:
                vector = table_ND[place * symbols + inputs_RP[row, place]]
                for d in range(x_RD.shape[1]):
                    x_RD[row, d] += vector[d]


@compiled
def add_rows(rows_N: np.ndarray, begins_R: np.ndarray, table_ND: np.ndarray, x_RD: np.ndarray) -> None:
    """Add to each x the rows of the table that are its own: from where they begin to where the next ones do."""
    for row in range(x_RD.shape[0]):
        end = begins_R[row + 1] if row + 1 < x_RD.shape[0] else len(rows_N)
        for n in range(begins_R[row], end):
            vector = table_ND[rows_N[n]]
            for d in range(x_RD.shape[1]):
                x_RD[row, d] += vector[d]


@compiled
def mix_recent(
    x_RD: np.ndarray, weights_KD: np.ndarray, recent_SKD: np.ndarray, slot_R: np.ndarray, out_RD: np.ndarray
) -> None:
    """out = x plus the slot's recent inputs, weighted; x becomes the latest of them."""
    back = weights_KD.shape[0]
    for row in range(x_RD.shape[0]):
        recent = recent_SKD[slot_R[row]]
        for d in range(x_RD.shape[1]):
            total = x_RD[row, d]
            for k in range(back):
                total += weights_KD[k, d] * recent[k, d]
            out_RD[row, d] = total
        for d in range(x_RD.shape[1]):
            for k in range(back - 1, 0, -1):
                recent[k, d] = recent[k - 1, d]
            recent[0, d] = x_RD[row, d]


@compiled
def look_back(
    looks_RN: np.ndarray,
    kind_R: np.ndarray,
    keys_STD: np.ndarray,
    kinds_ST: np.ndarray,
    costs_ST2: np.ndarray,
    superseded_ST: np.ndarray,
    bias_KK: np.ndarray,
    by_cost_K2: np.ndarray,
    content_K: np.ndarray,
    slot_R: np.ndarray,
    position_R: np.ndarray,
    attention_RT: np.ndarray,
    live_RT: np.ndarray,
    count_R: np.ndarray,
) -> None:
    """Attention of each query, with which `looks_RN` begins, to the slot's positions so far, without that to bos.

    The positions that have any are listed in `live_RT`, `count_R` of them in each row: all others are passed over when
    it comes to copying, and there are ever fewer as tokens are written.
    """
    width = keys_STD.shape[2]
    shrink = np.float32(1.0 / np.sqrt(width))
    for row in range(looks_RN.shape[0]):
        keys, superseded, last = keys_STD[slot_R[row]], superseded_ST[slot_R[row]], position_R[row]
        kinds, costs = kinds_ST[slot_R[row]], costs_ST2[slot_R[row]]
        bias, by_cost = bias_KK[kind_R[row]], by_cost_K2[kind_R[row]]
        highest, content = np.float32(-np.inf), content_K[kind_R[row]] * shrink
        for t in range(last + 1):
            score = _ZERO
            for d in range(width):
                score += looks_RN[row, d] * keys[t, d]
            score = score * content + bias[kinds[t]] + by_cost[0] * costs[t, 0] + by_cost[1] * costs[t, 1]
            if superseded[t]:
                score = np.float32(-np.inf)
            attention_RT[row, t] = score
            highest = max(highest, score)
        total = _ZERO
        for t in range(last + 1):
            attention_RT[row, t] = fast_exp(attention_RT[row, t] - highest)
            total += attention_RT[row, t]
        count = 0
        for t in range(1, last + 1):
            attention_RT[row, t] /= total
            if attention_RT[row, t] > _ZERO:
                live_RT[row, count] = t
                count += 1
        count_R[row] = count


@compiled
def add_near(
    outputs_RN: np.ndarray,
    beside_VO: np.ndarray,
    references_SP: np.ndarray,
    slot_R: np.ndarray,
    place: int,
    logits_RV: np.ndarray,
) -> None:
    """Logits: the first V outputs and, for the numbers next to the reference's at this place, one of the others."""
    size = logits_RV.shape[1]
    for row in range(logits_RV.shape[0]):
        for v in range(size):
            logits_RV[row, v] = outputs_RN[row, v]
        reference = references_SP[slot_R[row], place]
        for o in range(beside_VO.shape[1] if reference >= 0 else 0):
            if beside_VO[reference, o] < size:
                logits_RV[row, beside_VO[reference, o]] += outputs_RN[row, size + o]


@compiled
def mix_copies(
    logits_RV: np.ndarray,
    attention_RT: np.ndarray,
    live_RT: np.ndarray,
    count_R: np.ndarray,
    gate_RP: np.ndarray,
    pieces_STP: np.ndarray,
    slot_R: np.ndarray,
    place: int,
) -> None:
    """The network's logits become log-probabilities of the mixture with what may be copied at this place."""
    size = logits_RV.shape[1]
    mass = np.zeros(size, np.float32)
    for row in range(logits_RV.shape[0]):
        logits, pieces = logits_RV[row], pieces_STP[slot_R[row]]
        highest, total, held = logits[0], _ZERO, _ZERO
        for v in range(size):
            highest = max(highest, logits[v])
        for v in range(size):
            total += fast_exp(logits[v] - highest)
        for t in live_RT[row, : count_R[row]]:
            if pieces[t, place] >= 0:
                mass[pieces[t, place]] += attention_RT[row, t]
                held += attention_RT[row, t]
        scale = gate_RP[row, place] / (held + _LEAST_MASS)
        own = np.log1p(-scale * held) - highest - np.log(total)
        for v in range(size):
            logits[v] += own
        for t in live_RT[row, : count_R[row]]:
            symbol = pieces[t, place]
            if symbol >= 0 and mass[symbol] > _ZERO:
                copied = np.log(max(mass[symbol] * scale, _TINY))
                larger = max(copied, logits[symbol])
                logits[symbol] = larger + np.log1p(np.exp(min(copied, logits[symbol]) - larger))
            if symbol >= 0:
                mass[symbol] = _ZERO


@compiled
def write_symbol(
    symbol_R: np.ndarray,
    is_writing_R: np.ndarray,
    place: int,
    symbols: int,
    table_ND: np.ndarray,
    place_PD: np.ndarray,
    near_ND: np.ndarray,
    beside_VO: np.ndarray,
    references_SP: np.ndarray,
    pieces_STP: np.ndarray,
    slot_R: np.ndarray,
    known_RD: np.ndarray,
    live_RT: np.ndarray,
    count_R: np.ndarray,
) -> None:
    """Rows that go on writing know one symbol more, and copy only from pieces that agree with it."""
    offsets = beside_VO.shape[1]
    for row in range(symbol_R.shape[0]):
        if is_writing_R[row]:
            vector, pieces = table_ND[place * symbols + symbol_R[row]], pieces_STP[slot_R[row]]
            for d in range(known_RD.shape[1]):
                known_RD[row, d] += vector[d] + (place_PD[place + 1, d] - place_PD[place, d])
            reference = references_SP[slot_R[row], place]
            near = near_ND[near_ND.shape[0] - 1]
            for o in range(offsets if reference >= 0 else 0):
                if beside_VO[reference, o] == symbol_R[row]:
                    near = near_ND[place * offsets + o]
            for d in range(known_RD.shape[1]):
                known_RD[row, d] += near[d]
            count = 0
            for t in live_RT[row, : count_R[row]]:
                if pieces[t, place] == symbol_R[row] or place == 0:  # keywords may differ
                    live_RT[row, count] = t
                    count += 1
            count_R[row] = count


@compiled
def remember(
    written_RP: np.ndarray,
    kinds_V: np.ndarray,
    costs_V: np.ndarray,
    names_state_V: np.ndarray,
    names_node_V: np.ndarray,
    creates_V: np.ndarray,
    factors_P: np.ndarray,
    slot_R: np.ndarray,
    position_R: np.ndarray,
    pieces_STP: np.ndarray,
    references_SP: np.ndarray,
    states_ST: np.ndarray,
    nodes_ST: np.ndarray,
    kinds_ST: np.ndarray,
    costs_ST2: np.ndarray,
    superseded_ST: np.ndarray,
) -> None:
    """Note the pieces written; they supersede others as `Cutter.superseded_at` says."""
    for row in range(written_RP.shape[0]):
        slot, at, state, node, filled = slot_R[row], position_R[row] + 1, 0, 0, 0
        creates = creates_V[written_RP[row, 0]]
        for place in range(written_RP.shape[1]):
            symbol = written_RP[row, place]
            pieces_STP[slot, at, place] = symbol
            filled += symbol >= 0
            if not creates:
                references_SP[slot, place] = symbol
            if symbol >= 0 and names_node_V[symbol]:
                node += (symbol + 1) * factors_P[place]
                if names_state_V[symbol]:
                    state += (symbol + 1) * factors_P[place]
        states_ST[slot, at], nodes_ST[slot, at] = state, node
        superseded_ST[slot, at], superseded_ST[slot, 0] = False, True
        for which in range(2):
            last = filled - 2 + which
            costs_ST2[slot, at, which] = costs_V[written_RP[row, last]] if last >= 0 else _ZERO
        kinds_ST[slot, at] = kinds_V[written_RP[row, 0]]
        cost = costs_ST2[slot, at, 0]
        for t in range(1, at if node != 0 else 0):
            is_better = creates and state != 0 and states_ST[slot, t] == state and cost < costs_ST2[slot, t, 0]
            if is_better or nodes_ST[slot, t] == node:
                superseded_ST[slot, t] = True
