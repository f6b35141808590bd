"""Compiled loops over the bytes of an archive: CRC-64, documents one after the other, sequences of tokens.

A document, as BSON writes it (numbers are little-endian):

    length:int32  { type:uint8  name  0  value }*  0          a run of documents ends before 0xffffffff
    0x12 "_id" 0 int64      0x04 "prompt" 0 <document whose names are "0", "1", ...>      0x02 "7" 0 length:int32 text 0

Tokens of up to 8 bytes are looked up by these bytes as one number, in a table of open addressing. Each function has a
slow twin: `crc64_by_bytes`, and pymongo's decoder in `sequences.py`; tests/test_interop_mongodump.py compares them.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np
from numba import njit

POLYNOMIAL = 0xC96C5795D7870F42
"""CRC-64-ECMA, bits reversed."""
LEAST_ELEMENT = 8
"""Bytes of an element that holds a token, at least."""
LEAST_DOCUMENT = 5
FINISHED, TERMINATOR, TOO_LONG = 0, 1, 2
"""Why `whole_documents` stopped: not enough bytes, 0xffffffff, a length that no document has."""
STRING, ARRAY, INT32, INT64 = 0x02, 0x04, 0x10, 0x12
IDENTITY, PROMPT, REASONING, PLAN = (
    np.frombuffer(name, dtype=np.uint8) for name in (b"_id", b"prompt", b"reasoning", b"plan")
)
MULTIPLIER = 0x9E3779B97F4A7C15
TokenTable = tuple[np.ndarray, np.ndarray, int]

compiled = njit(nogil=True, cache=True, error_model="numpy")


@cache
def crc_tables() -> np.ndarray:
    """uint64 [8, 256]: what a byte does to the CRC, alone and followed by 1 to 7 zero bytes."""
    tables = np.zeros((8, 256), dtype=np.uint64)
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (POLYNOMIAL if value & 1 else 0)
        tables[0, byte] = value
    for zeros in range(1, 8):
        before = tables[zeros - 1]
        tables[zeros] = before >> np.uint64(8) ^ tables[0][before & np.uint64(0xFF)]
    return tables


def crc64_by_bytes(data: bytes, crc: int = 0) -> int:
    """The CRC of `data`, continued from `crc`: the definition."""
    table = crc_tables()[0].tolist()
    crc ^= 0xFFFFFFFFFFFFFFFF
    for byte in data:
        crc = table[crc & 0xFF ^ byte] ^ crc >> 8
    return crc ^ 0xFFFFFFFFFFFFFFFF


def crc64(data: np.ndarray, begin: int, end: int, crc: int = 0) -> int:
    """The same of data[begin:end], uint8."""
    return int(_crc64(np.uint64(crc), data, begin, end, crc_tables()))


@compiled
def _crc64(crc, data, begin, end, tables):
    """Eight bytes at a time."""
    eight, low = np.uint64(8), np.uint64(0xFF)
    crc = ~crc
    at = begin
    while at + 8 <= end:
        value = np.uint64(0)
        for place in range(8):
            byte = np.uint64(data[at + place]) ^ (crc >> np.uint64(8 * place) & low)
            value ^= tables[7 - place, byte]
        crc = value
        at += 8
    while at < end:
        crc = tables[0, (crc & low) ^ np.uint64(data[at])] ^ crc >> eight
        at += 1
    return ~crc


@compiled
def _int32(data, at):
    value = np.int64(data[at]) | np.int64(data[at + 1]) << 8 | np.int64(data[at + 2]) << 16
    return value | (np.int64(data[at + 3]) ^ 0x80) - 0x80 << 24


@compiled
def whole_documents(data, begin, end, largest):
    """(where the last whole document of data[begin:end] ends, how many there are, why it stopped)."""
    at, count = begin, 0
    while at + 4 <= end:
        length = _int32(data, at)
        if length == -1:
            return at, count, TERMINATOR
        if length < LEAST_DOCUMENT or length > largest:
            return at, count, TOO_LONG
        if at + length > end:
            break
        at += length
        count += 1
    return at, count, FINISHED


def token_table(tokens: Sequence[bytes]) -> TokenTable | None:
    """Keys (0 where empty), ids and the shift of the table; None if a token is too long for it."""
    if any(not 0 < len(token) <= 8 or 0 in token for token in tokens):
        return None
    bits = max(4, (4 * len(tokens)).bit_length())
    keys, ids = np.zeros(1 << bits, dtype=np.uint64), np.zeros(1 << bits, dtype=np.int64)
    for number, token in enumerate(tokens):
        key = int.from_bytes(token, "little")
        place = (key * MULTIPLIER & 0xFFFFFFFFFFFFFFFF) >> 64 - bits
        while keys[place]:
            place = (place + 1) % len(keys)
        keys[place], ids[place] = key, number
    return keys, ids, 64 - bits


@compiled
def _look_up(key, keys, ids, shift):
    """The id of a token, or -1."""
    place = np.int64(key * np.uint64(MULTIPLIER) >> np.uint64(shift))
    while keys[place] != 0:
        if keys[place] == key:
            return ids[place]
        place = (place + 1) & (len(keys) - 1)
    return np.int64(-1)


@compiled
def _name_end(data, at, end):
    """Where the 0 behind a name is; `end` if there is none."""
    while at < end and data[at] != 0:
        at += 1
    return at


@compiled
def _parse_array(data, at, end, keys, ids, shift, out, count):
    """Write the ids of the tokens of the array in data[at:end]; returns the new count, or -1 if it is another thing."""
    last = end - 1
    if data[last] != 0:
        return -1
    while at < last:
        if data[at] != STRING:
            return -1
        at = _name_end(data, at + 1, last) + 1
        if at + 5 > last:
            return -1
        length = _int32(data, at) - 1
        at += 4
        if length < 1 or length > 8 or at + length >= last or data[at + length] != 0:
            return -1
        key = np.uint64(0)
        for place in range(length):
            key |= np.uint64(data[at + place]) << np.uint64(8 * place)
        found = _look_up(key, keys, ids, shift)
        if found < 0:
            return -1
        out[count] = found
        count += 1
        at += length + 1
    return count


@compiled
def _is_name(data, begin, end, name):
    if end - begin != len(name):
        return False
    for place in range(len(name)):
        if data[begin + place] != name[place]:
            return False
    return True


@compiled
def _field(data, begin, end):
    """1, 2, 3 for prompt, reasoning, plan, 0 for _id, -1 for another name in data[begin:end]."""
    if _is_name(data, begin, end, PROMPT):
        return 1
    if _is_name(data, begin, end, REASONING):
        return 2
    if _is_name(data, begin, end, PLAN):
        return 3
    return 0 if _is_name(data, begin, end, IDENTITY) else -1


@compiled
def _parse_document(data, begin, end, keys, ids, shift, row, out_ids, parts, counts):
    """Whether data[begin:end] is a document of the published layout; then it is written as row `row`."""
    at, last, seen = begin + 4, end - 1, 0
    if data[last] != 0:
        return False
    while at < last:
        kind = data[at]
        name_end = _name_end(data, at + 1, last)
        field = _field(data, at + 1, name_end)
        at = name_end + 1
        if field < 0 or seen & 1 << field or at + 8 > end:
            return False
        seen |= 1 << field
        if field == 0:
            if kind != INT64 or at + 8 > last:
                return False
            value = np.uint64(0)
            for place in range(8):
                value |= np.uint64(data[at + place]) << np.uint64(8 * place)
            out_ids[row] = np.int64(value)
            at += 8
        else:
            length = _int32(data, at)
            if kind != ARRAY or length < LEAST_DOCUMENT or at + length > last:
                return False
            count = _parse_array(data, at + 4, at + length, keys, ids, shift, parts[field - 1], counts[field - 1])
            if count < 0:
                return False
            counts[field - 1] = count
            at += length
    return at == last and seen == 15


@compiled
def parse_documents(data, begin, end, keys, ids, shift, out_ids, parts, ends):
    """Write the documents of data[begin:end] as rows, up to the first of another layout: (rows, where it stopped)."""
    row, at = 0, begin
    counts = np.zeros(3, dtype=np.int64)
    for part in range(3):
        ends[part, 0] = 0
    while at + 4 <= end:
        length = _int32(data, at)
        if not _parse_document(data, at, at + length, keys, ids, shift, row, out_ids, parts, counts):
            break
        row += 1
        for part in range(3):
            ends[part, row] = counts[part]
        at += length
    return row, at
