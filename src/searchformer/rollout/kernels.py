"""Compiled kernels of the CPU sampler: everything of a decode step that is not a matrix product.

In and out: arrays that the caller owns. Activations are float32, or bfloat16 kept as uint16 (NumPy and numba know no
bfloat16). Arithmetic is float32.

Shape suffixes: R rows of the batch, D model width, F feed-forward width, H heads, E head width, L layers, N cache
blocks, B positions of a block, T blocks of a row's table, V symbols, S automaton states.

Where keys and values lie. A row's positions are cut into blocks of B; its table names the blocks, which lie anywhere:

    table_RT[row] = [7, 2, ...]      position p is column p % B of block table_RT[row, p // B]
    rows that share a prompt have the same blocks in their prompt table

    keys_NLHEB[block, layer, head], and the same for values: a matrix with a column per position, because then a loop
    over positions reads neighbouring memory (`_scores` and `_add_values` are such loops)

                 position 0    1    2  ...  B-1
        number 0      [ .    .    .   ...   . ]
        number 1      [ .    .    .   ...   . ]
        ...
        number E-1    [ .    .    .   ...   . ]

    fp32   float32, as drawn
    bf16   uint32, E / 2 rows of words: number e in the low half, number e + E / 2 in the high half of word e, so that
           a shift and a mask make two float32
    int8   int8, as drawn, times scales_NLH2B[block, layer, head]: row 0 has a scale per position for keys, row 1 for
           values; in the other formats B is 0 there

Columns that are not written yet hold anything among the keys (their weight is set to 0 after the softmax), but zeros
among the values: 0 * NaN would be NaN, so `_store` clears a block's values when it writes column 0.

If this is wrong, `test_the_attention_kernel_is_attention` breaks (every format, blocks out of order, NaN in new
memory), and `test_answers_longer_than_a_block_stay_those_of_the_obvious_sampler` for what the tables say.
"""

# mypy cannot follow types through numba's intrinsics and overloads:
# mypy: disable-error-code="call-arg, operator, return-value, assignment, var-annotated, arg-type"

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from searchformer import compiling
from searchformer.rollout.backend import BLOCK

compiling.watch()

_CACHE_LINE = 64

# Sums may be reordered and products fused, which lets loops vectorise; infinities and NaN keep their meaning.
_FAST = {"reassoc", "contract", "arcp", "nsz"}
compiled = njit(nogil=True, cache=True, error_model="numpy", fastmath=_FAST)

_WORD = ir.IntType(32)


def _bits(value: int) -> ir.Constant:
    return ir.Constant(_WORD, value)


@intrinsic
def widen(typing: Any, value: Any) -> Any:
    """An activation as float32: bfloat16 bits move into the upper half, float32 stays as it is."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if signature.args[0] == types.float32:
            return arguments[0]
        return builder.bitcast(builder.shl(builder.zext(arguments[0], _WORD), _bits(16)), ir.FloatType())

    return types.float32(value), generate


@intrinsic
def _rounded_bits(typing: Any, value: Any) -> Any:
    """The 16 bits of the bfloat16 nearest to a float32, ties to even."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bits = builder.bitcast(arguments[0], _WORD)
        odd = builder.and_(builder.lshr(bits, _bits(16)), _bits(1))
        rounded = builder.add(bits, builder.add(odd, _bits(0x7FFF)))
        return builder.trunc(builder.lshr(rounded, _bits(16)), ir.IntType(16))

    return types.uint16(types.float32), generate


@intrinsic
def _low(typing: Any, word: Any) -> Any:
    """The bfloat16 in the lower half of a word, as float32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(builder.shl(arguments[0], _bits(16)), ir.FloatType())

    return types.float32(types.uint32), generate


@intrinsic
def _high(typing: Any, word: Any) -> Any:
    """The bfloat16 in the upper half of a word, as float32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(builder.and_(arguments[0], _bits(0xFFFF0000)), ir.FloatType())

    return types.float32(types.uint32), generate


@intrinsic
def _float_of_bits(typing: Any, bits: Any) -> Any:
    """The float32 with these 32 bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


@intrinsic
def _prefetch(typing: Any, matrix: Any, offset: Any) -> Any:
    """Ask for the cache line `offset` bytes into a contiguous array, before it is needed."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        byte = ir.IntType(8).as_pointer()
        address = builder.gep(builder.bitcast(array.data, byte), [arguments[1]], source_etype=ir.IntType(8))
        kind = ir.FunctionType(ir.VoidType(), [byte, _WORD, _WORD, _WORD])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [address, _bits(0), _bits(3), _bits(1)])
        return context.get_dummy_value()

    return types.void(matrix, types.int64), generate


def _put(target: Any, row: int, column: int, value: float) -> None:
    """target[row, column] = value, rounded to the array's kind of number; only called from compiled code."""


@overload(_put, jit_options={"fastmath": _FAST})
def _put_for(target: Any, row: Any, column: Any, value: Any) -> Callable[..., None]:
    if target.dtype == types.uint16:

        def put(target: Any, row: Any, column: Any, value: Any) -> None:
            target[row, column] = _rounded_bits(value)
    else:

        def put(target: Any, row: Any, column: Any, value: Any) -> None:
            target[row, column] = value

    return put


def _pair(matrix: Any, row: int, next_row: int, column: int) -> Any:
    """The numbers at (row, column) and at (next_row, column); words hold both in one place, (row, column)."""


@overload(_pair, jit_options={"fastmath": _FAST})
def _pair_for(matrix: Any, row: Any, next_row: Any, column: Any) -> Callable[..., Any]:
    if matrix.dtype == types.uint32:

        def pair(matrix: Any, row: Any, next_row: Any, column: Any) -> Any:
            word = matrix[row, column]
            return _low(word), _high(word)
    else:

        def pair(matrix: Any, row: Any, next_row: Any, column: Any) -> Any:
            return np.float32(matrix[row, column]), np.float32(matrix[next_row, column])

    return pair


def _keep_pair(matrix: Any, row: int, next_row: int, column: int, first: float, second: float) -> None:
    """Write what `_pair` reads; only called from compiled code."""


@overload(_keep_pair, jit_options={"fastmath": _FAST})
def _keep_pair_for(matrix: Any, row: Any, next_row: Any, column: Any, first: Any, second: Any) -> Callable[..., None]:
    if matrix.dtype == types.uint32:

        def keep(matrix: Any, row: Any, next_row: Any, column: Any, first: Any, second: Any) -> None:
            high = np.uint32(_rounded_bits(second)) << np.uint32(16)
            matrix[row, column] = np.uint32(_rounded_bits(first)) | high
    elif matrix.dtype == types.int8:

        def keep(matrix: Any, row: Any, next_row: Any, column: Any, first: Any, second: Any) -> None:
            matrix[row, column] = np.int8(np.rint(first))
            matrix[next_row, column] = np.int8(np.rint(second))
    else:

        def keep(matrix: Any, row: Any, next_row: Any, column: Any, first: Any, second: Any) -> None:
            matrix[row, column] = first
            matrix[next_row, column] = second

    return keep


_LOG2_E = np.float32(np.log2(np.e))
_LOWEST, _HIGHEST = np.float32(-87.0), np.float32(88.0)
_ZERO, _HALF, _ONE, _LARGEST_BYTE = np.float32(0.0), np.float32(0.5), np.float32(1.0), np.float32(127.0)
_EXPONENT_BIAS, _MANTISSA_BITS = np.int32(127), np.int32(23)
# 2**f on [-0.5, 0.5]: ln(2)**k / k!
_C1, _C2, _C3, _C4, _C5, _C6 = (np.float32(np.log(2) ** k / np.prod(np.arange(1.0, k + 1))) for k in range(1, 7))


@compiled
def fast_exp(x: float) -> float:
    """e**x in float32 to about 1e-7, in operations that vectorise; clamped instead of overflowing."""
    power = min(max(x, _LOWEST), _HIGHEST) * _LOG2_E
    whole = np.floor(power + _HALF)
    f = power - whole
    two_to_f = _ONE + f * (_C1 + f * (_C2 + f * (_C3 + f * (_C4 + f * (_C5 + f * _C6)))))
    return two_to_f * _float_of_bits(np.int32((np.int32(whole) + _EXPONENT_BIAS) << _MANTISSA_BITS))


@compiled
def embed(token_R: np.ndarray, embedding_VD: np.ndarray, x_RD: np.ndarray) -> None:
    """The residual stream starts as the embedding of each row's last token."""
    for row in range(token_R.shape[0]):
        for d in range(x_RD.shape[1]):
            x_RD[row, d] = embedding_VD[token_R[row], d]


@compiled
def add_and_norm(x_RD: np.ndarray, change_RD: np.ndarray, weight_D: np.ndarray, eps: float, out_RD: np.ndarray) -> None:
    """x += change, and out = RMSNorm(x). An empty `change` changes nothing."""
    width = x_RD.shape[1]
    for row in range(x_RD.shape[0]):
        if change_RD.shape[0] > 0:
            for d in range(width):
                x_RD[row, d] += widen(change_RD[row, d])
        squares = _ZERO
        for d in range(width):
            squares += x_RD[row, d] * x_RD[row, d]
        scale = np.float32(1.0 / np.sqrt(squares / width + eps))
        for d in range(width):
            _put(out_RD, row, d, x_RD[row, d] * scale * weight_D[d])


@compiled
def gate(hidden_R2F: np.ndarray, out_RF: np.ndarray) -> None:
    """out = silu(first half) * second half."""
    width = out_RF.shape[1]
    for row in range(out_RF.shape[0]):
        for f in range(width):
            value = widen(hidden_R2F[row, f])
            _put(out_RF, row, f, value / (_ONE + fast_exp(-value)) * widen(hidden_R2F[row, width + f]))


@compiled
def _scale_of(vector: np.ndarray) -> float:
    """What one step of an int8 stands for, so that the vector's largest number becomes 127."""
    largest = np.float32(1e-30)
    for e in range(vector.shape[0]):
        largest = max(largest, abs(vector[e]))
    return largest / _LARGEST_BYTE


@compiled
def _store(
    key_E: np.ndarray, value_E: np.ndarray, keys_EB: np.ndarray, values_EB: np.ndarray, scale_2B: np.ndarray, at: int
) -> None:
    """Write one position of one head into its block, as a column. Blocks begin with values of 0, see `_add_values`."""
    if at == 0:
        values_EB[:] = 0
    key_step = value_step = _ONE
    if scale_2B.shape[1] > 0:
        key_step, value_step = _scale_of(key_E), _scale_of(value_E)
        scale_2B[0, at], scale_2B[1, at] = key_step, value_step
    half = key_E.shape[0] // 2
    for e in range(half):
        _keep_pair(keys_EB, e, half + e, at, key_E[e] / key_step, key_E[half + e] / key_step)
        _keep_pair(values_EB, e, half + e, at, value_E[e] / value_step, value_E[half + e] / value_step)


@compiled
def rotate_and_store(
    mixed_R3D: np.ndarray,
    cosines: np.ndarray,
    sines: np.ndarray,
    number_cosines_RGP: np.ndarray,
    number_sines_RGP: np.ndarray,
    position_R: np.ndarray,
    keys_NLHEB: np.ndarray,
    values_NLHEB: np.ndarray,
    scales_NLH2B: np.ndarray,
    layer: int,
    table_RT: np.ndarray,
    query_RD: np.ndarray,
) -> None:
    """Turn queries and keys to their position (RoPE); queries go to `query_RD`, keys and values into the cache.

    The last G heads turn by numbers instead (`model/rotary.py`), and so do their values.
    """
    heads, dim = keys_NLHEB.shape[2], query_RD.shape[1]
    width = dim // heads
    key, value = np.empty(width, np.float32), np.empty(width, np.float32)
    for row in range(position_R.shape[0]):
        position = position_R[row]
        block, at = table_RT[row, position // BLOCK], position % BLOCK
        after = min(row + 1, position_R.shape[0] - 1)
        next_block, next_at = table_RT[after, position_R[after] // BLOCK], position_R[after] % BLOCK
        for head in range(heads):
            ahead = keys_NLHEB[next_block, layer, head]
            for e in range(ahead.shape[0]):  # a column touches as many cache lines as it has entries
                _prefetch(ahead, (e * BLOCK + next_at) * ahead.itemsize)
            number = head - heads + number_cosines_RGP.shape[1]
            for pair in range(width // 2):
                if number < 0:
                    cosine, sine = cosines[position, pair], sines[position, pair]
                else:
                    cosine, sine = number_cosines_RGP[row, number, pair], number_sines_RGP[row, number, pair]
                here = head * width + 2 * pair
                even, odd = widen(mixed_R3D[row, here]), widen(mixed_R3D[row, here + 1])
                query_RD[row, here], query_RD[row, here + 1] = even * cosine - odd * sine, even * sine + odd * cosine
                even, odd = widen(mixed_R3D[row, dim + here]), widen(mixed_R3D[row, dim + here + 1])
                key[2 * pair], key[2 * pair + 1] = even * cosine - odd * sine, even * sine + odd * cosine
            for e in range(width):
                value[e] = widen(mixed_R3D[row, 2 * dim + head * width + e])
            if number >= 0:
                for pair in range(width // 2):
                    cosine, sine = number_cosines_RGP[row, number, pair], number_sines_RGP[row, number, pair]
                    even, odd = value[2 * pair], value[2 * pair + 1]
                    value[2 * pair], value[2 * pair + 1] = even * cosine - odd * sine, even * sine + odd * cosine
            _store(
                key,
                value,
                keys_NLHEB[block, layer, head],
                values_NLHEB[block, layer, head],
                scales_NLH2B[block, layer, head],
                at,
            )


@compiled
def turn_by_numbers(x_RD: np.ndarray, cosines_RGP: np.ndarray, sines_RGP: np.ndarray, direction: float) -> None:
    """Turn the last G heads of x in place, back if `direction` is -1."""
    heads, half = cosines_RGP.shape[1], cosines_RGP.shape[2]
    first = x_RD.shape[1] - 2 * half * heads
    for row in range(x_RD.shape[0]):
        for head in range(heads):
            for pair in range(half):
                cosine, sine = cosines_RGP[row, head, pair], np.float32(direction) * sines_RGP[row, head, pair]
                here = first + 2 * (head * half + pair)
                even, odd = widen(x_RD[row, here]), widen(x_RD[row, here + 1])
                _put(x_RD, row, here, even * cosine - odd * sine)
                _put(x_RD, row, here + 1, even * sine + odd * cosine)


@compiled
def store_prompt(
    keys_SD: np.ndarray,
    values_SD: np.ndarray,
    keys_NLHEB: np.ndarray,
    values_NLHEB: np.ndarray,
    scales_NLH2B: np.ndarray,
    layer: int,
    table_T: np.ndarray,
) -> None:
    """Write one layer's cross-attention keys and values (float32, S prompt positions) into the prompt's blocks."""
    heads = keys_NLHEB.shape[2]
    width = keys_SD.shape[1] // heads
    for position in range(keys_SD.shape[0]):
        block, at = table_T[position // BLOCK], position % BLOCK
        for head in range(heads):
            _store(
                keys_SD[position, head * width : (head + 1) * width],
                values_SD[position, head * width : (head + 1) * width],
                keys_NLHEB[block, layer, head],
                values_NLHEB[block, layer, head],
                scales_NLH2B[block, layer, head],
                at,
            )


@compiled
def _fetch(ahead: np.ndarray, line: int, end: int) -> int:
    """Ask for the bytes of `ahead` from `line` to `end`; returns where to continue."""
    while line < end:
        _prefetch(ahead, line)
        line += _CACHE_LINE
    return line


@compiled
def _scores(query_E: np.ndarray, keys_EB: np.ndarray, ahead: np.ndarray, score_B: np.ndarray) -> None:
    """score = query @ keys, for all positions of a block; meanwhile the block `ahead` is fetched."""
    half = query_E.shape[0] // 2
    whole, line = half - half % 2, 0
    score_B[:] = 0.0
    for e in range(0, whole, 2):
        a0, a1, b0, b1 = query_E[e], query_E[e + 1], query_E[half + e], query_E[half + e + 1]
        line = _fetch(ahead, line, (e + 2) * ahead.nbytes // half)
        for n in range(BLOCK):
            k0, l0 = _pair(keys_EB, e, half + e, n)
            k1, l1 = _pair(keys_EB, e + 1, half + e + 1, n)
            score_B[n] += a0 * k0 + b0 * l0 + a1 * k1 + b1 * l1
    for e in range(whole, half):
        for n in range(BLOCK):
            k0, l0 = _pair(keys_EB, e, half + e, n)
            score_B[n] += query_E[e] * k0 + query_E[half + e] * l0


@compiled
def _add_values(weight_B: np.ndarray, values_EB: np.ndarray, ahead: np.ndarray, total_E: np.ndarray) -> None:
    """total += values @ weight, over all positions of a block; meanwhile the block `ahead` is fetched.

    Positions that are not written yet weigh 0; what is there must be a number all the same.
    """
    half = total_E.shape[0] // 2
    line = 0
    for e in range(half):
        line = _fetch(ahead, line, (e + 1) * ahead.nbytes // half)
        first, second = _ZERO, _ZERO
        for n in range(BLOCK):
            u, v = _pair(values_EB, e, half + e, n)
            first += weight_B[n] * u
            second += weight_B[n] * v
        total_E[e] += first
        total_E[half + e] += second


@compiled
def _softmax(scores: np.ndarray, length: int) -> None:
    """scores[:length] become weights that sum to 1."""
    highest = scores[0]
    for i in range(length):
        highest = max(highest, scores[i])
    total = _ZERO
    for i in range(length):
        weight = fast_exp(scores[i] - highest)
        scores[i] = weight
        total += weight
    scale = _ONE / total
    for i in range(length):
        scores[i] *= scale


@compiled
def _place(number: int, rows: int, heads: int, stream: bool) -> tuple[int, int]:
    """Row and head of the number-th piece of work: row by row when blocks are streamed, else head by head."""
    if stream:
        return number // heads, number % heads
    return number % rows, number // rows


@compiled
def attend(
    query_RD: np.ndarray,
    keys_NLHEB: np.ndarray,
    values_NLHEB: np.ndarray,
    scales_NLH2B: np.ndarray,
    layer: int,
    table_RT: np.ndarray,
    length_R: np.ndarray,
    stream: bool,
    scores: np.ndarray,
    out_RD: np.ndarray,
) -> None:
    """Attention of one query per row over the first `length_R` positions of the blocks in the row's table.

    A row's own blocks come from main memory (`stream`): they are read row by row, as they lie there, and each matrix is
    asked for while the one before it is worked on. Blocks that rows share (the prompt's) are read head by head, so that
    the next row finds them in the core's cache. `scores` is scratch for the longest row, rounded up to whole blocks.
    """
    rows, heads, scaled = length_R.shape[0], keys_NLHEB.shape[2], scales_NLH2B.shape[4] > 0
    width = query_RD.shape[1] // heads
    query, total = np.empty(width, np.float32), np.empty(width, np.float32)
    shrink = np.float32(1.0 / np.sqrt(width))
    for number in range(rows * heads):
        row, head = _place(number, rows, heads, stream)
        next_row, next_head = _place((number + 1) % (rows * heads), rows, heads, stream)
        first, length = head * width, length_R[row]
        for e in range(width):
            query[e] = widen(query_RD[row, first + e]) * shrink
            total[e] = 0.0
        last = (length - 1) // BLOCK
        for i in range(last + 1):
            block, score = table_RT[row, i], scores[i * BLOCK : (i + 1) * BLOCK]
            ahead = values_NLHEB[table_RT[row, 0], layer, head]
            if i < last:
                ahead = keys_NLHEB[table_RT[row, i + 1], layer, head]
            _scores(query, keys_NLHEB[block, layer, head], ahead if stream else ahead[:0], score)
            if scaled:
                for b in range(BLOCK):
                    score[b] *= scales_NLH2B[block, layer, head, 0, b]
        _softmax(scores, length)
        scores[length : (last + 1) * BLOCK] = 0.0
        for i in range(last + 1):
            block, weight = table_RT[row, i], scores[i * BLOCK : (i + 1) * BLOCK]
            ahead = keys_NLHEB[table_RT[next_row, 0], layer, next_head]
            if i < last:
                ahead = values_NLHEB[table_RT[row, i + 1], layer, head]
            if scaled:
                for b in range(min(BLOCK, length - i * BLOCK)):
                    weight[b] *= scales_NLH2B[block, layer, head, 1, b]
            _add_values(weight, values_NLHEB[block, layer, head], ahead if stream else ahead[:0], total)
        for e in range(width):
            _put(out_RD, row, first + e, total[e])


@compiled
def _uniform(key: int, position: int) -> float:
    """The number in [0, 1) that decides the token at `position`; the twin of `requests.uniform`."""
    z = key + np.uint64(position + 1) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return np.float64(z >> np.uint64(11)) * 2.0**-53


@compiled
def _largest_below(weights: np.ndarray, limit: float) -> tuple[float, int]:
    """The largest weight below `limit`, and how many there are of it. (To compile a sort takes two seconds.)"""
    largest, alike = np.float32(-1.0), 0
    for weight in weights:
        if weight < limit and weight >= largest:
            alike = 1 if weight > largest else alike + 1
            largest = weight
    return largest, alike


@compiled
def _cut(weights: np.ndarray, top_k: int, top_p: float) -> None:
    """Set to 0 the weights below the k-th largest, then those outside the smallest set that holds a share of top_p."""
    lowest = np.float32(0.0)
    if 0 < top_k < weights.shape[0]:
        lowest, kept = _largest_below(weights, np.float32(np.inf))
        while kept < top_k:
            lowest, alike = _largest_below(weights, lowest)
            kept += alike
    total = np.float64(0.0)
    for v in range(weights.shape[0]):
        if weights[v] >= lowest:
            total += weights[v]
    weight, running = np.float32(np.inf), np.float64(0.0)
    while running < top_p * total and weight > lowest:
        weight, alike = _largest_below(weights, weight)
        running += alike * np.float64(weight)
    lowest = max(lowest, weight)
    for v in range(weights.shape[0]):
        if weights[v] < lowest:
            weights[v] = 0.0


@compiled
def sample(
    logits_RV: np.ndarray,
    temperature: float,
    top_k: int,
    top_p: float,
    key_R: np.ndarray,
    position_R: np.ndarray,
    forced_R: np.ndarray,
    allowed_SV: np.ndarray,
    state_R: np.ndarray,
    symbol_R: np.ndarray,
    log_probability_R: np.ndarray,
) -> None:
    """Choose each row's next symbol, as `naive.choose` does; a forced token (>= 0) is taken as it is, at no cost.

    `allowed_SV` says what may come in each state of an automaton; one of no states allows everything.
    """
    size, free = logits_RV.shape[1], allowed_SV.shape[0] == 0
    weights = np.empty(size, np.float32)
    for row in range(logits_RV.shape[0]):
        logits = logits_RV[row]
        if forced_R[row] >= 0:
            symbol_R[row], log_probability_R[row] = forced_R[row], 0.0
        else:
            highest, best = logits[0], -1
            for v in range(size):
                highest = max(highest, logits[v])
                if (free or allowed_SV[state_R[row], v]) and (best < 0 or logits[v] > logits[best]):
                    best = v
            total = _ZERO
            for v in range(size):
                total += fast_exp(logits[v] - highest)
            if temperature > 0.0:
                inverse, peak = np.float32(1.0 / temperature), logits[best]
                for v in range(size):
                    weights[v] = fast_exp((logits[v] - peak) * inverse)
                if not free:
                    for v in range(size):
                        if not allowed_SV[state_R[row], v]:
                            weights[v] = 0.0
                if top_k > 0 or top_p < 1.0:
                    _cut(weights, top_k, top_p)
                mass = np.float64(0.0)
                for v in range(size):
                    mass += weights[v]
                target, running = _uniform(key_R[row], position_R[row]) * mass, np.float64(0.0)
                for v in range(size):
                    if weights[v] > 0.0:
                        best = v
                        running += weights[v]
                        if running > target:
                            break
            symbol_R[row], log_probability_R[row] = best, logits[best] - highest - np.log(total)
