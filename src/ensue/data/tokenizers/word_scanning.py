"""Compiled loops that find, number and count the words of UTF-8 text.

White space is that of ``str.split``. Words are looked up in a hash table with open addressing; words with equal hashes
are compared byte by byte.

Words are found in batches of some hundreds and then looked up together, so that memory accesses overlap.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ensue.core.compile_cache import Function, compile_cached
from ensue.core.compile_notice import watch

watch()

Array = np.ndarray

LINE_BREAK = -1
"""Id that ``scan_words`` writes for newlines while counting."""
UNKNOWN_WORD = -2
"""Id of words outside the table."""
LOOKUP_BATCH = 256
"""Number of words looked up together."""
FNV_OFFSET, FNV_PRIME, TAG_MASK = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3), np.uint64(0xFFFFFFFF00000000)
"""Constants of the FNV-1a hash, and the half of it stored in the table."""


def _compiled(function: Function) -> Function:
    return compile_cached(function, nogil=True)


class HashTable(NamedTuple):
    """Words as bytes: word ``i`` is ``letters[starts[i]:starts[i+1]]``."""

    slots: Array
    """Half of a word's hash and its id plus one, at the slot of its hash or the next free one; 0 is free. The size is a
    power of two, uint64."""
    letters: Array
    starts: Array
    counts: Array
    """Count of each word, if words are counted."""


class ScanBuffers(NamedTuple):
    """Output of a scan: ids of words and lines, and the spans of irregular gaps and of unknown words."""

    ids: Array
    odd: Array
    unknown: Array


class ScanCounts(NamedTuple):
    """Number of items of each kind that a scan wrote."""

    ids: int
    words: int
    odd: int
    unknown: int
    known: int
    spaces: int
    newlines: int
    first: int
    last: int


@_compiled
def _space_width(data: Array, at: int) -> int:  # noqa: PLR0911 — a case a lead byte
    """Return the number of bytes of white space at a position; 0 if there is none."""
    byte = data[at]
    if byte <= 32:
        return 1 if byte == 32 or 9 <= byte <= 13 or 28 <= byte <= 31 else 0
    if byte < 0xC2 or byte > 0xE3:
        return 0
    if byte == 0xC2:
        return 2 if data[at + 1] == 0x85 or data[at + 1] == 0xA0 else 0
    if byte < 0xE1:
        return 0
    second, third = data[at + 1], data[at + 2]
    if byte == 0xE1:
        return 3 if second == 0x9A and third == 0x80 else 0
    if byte == 0xE2 and second == 0x80:
        return 3 if third <= 0x8A or third in (0xA8, 0xA9, 0xAF) else 0
    if byte == 0xE2:
        return 3 if second == 0x81 and third == 0x9F else 0
    return 3 if second == 0x80 and third == 0x80 else 0


@_compiled
def _equals_word(table: HashTable, number: int, data: Array, begin: int, end: int) -> bool:
    start = table.starts[number]
    if table.starts[number + 1] - start != end - begin:
        return False
    for offset in range(end - begin):  # noqa: SIM110 — compiled
        if table.letters[start + offset] != data[begin + offset]:
            return False
    return True


@_compiled
def _first_slot(code: Any, mask: Any) -> Any:
    return (code ^ (code >> np.uint64(32))) & mask


@_compiled
def _find_slot(table: HashTable, data: Array, begin: int, end: int, code: Any) -> tuple[int, Any]:
    """Return a word's id or -1, and its slot or the free slot for it."""
    mask = np.uint64(len(table.slots) - 1)
    slot = _first_slot(code, mask)
    while table.slots[slot]:
        if (table.slots[slot] ^ code) & TAG_MASK == 0:
            number: Any = np.int64(table.slots[slot] & ~TAG_MASK) - 1
            if _equals_word(table, number, data, begin, end):
                return number, slot
        slot = (slot + np.uint64(1)) & mask
    return -1, slot


@_compiled
def _insert_word(table: HashTable, number: int, slot: Any, data: Array, begin: int, end: int, code: Any) -> None:
    table.slots[slot] = (code & TAG_MASK) | np.uint64(number + 1)
    start = table.starts[number]
    for offset in range(end - begin):
        table.letters[start + offset] = data[begin + offset]
    table.starts[number + 1] = start + end - begin
    table.counts[number] = 0


@_compiled
def scan_words(  # noqa: PLR0912, PLR0915 — one walk, and calls cost
    data: Array, table: HashTable, known: int, line: int, grow: bool, buffers: ScanBuffers
) -> ScanCounts:
    """Scan a text. ``line`` is the id of a newline; with ``grow`` new words get the next ids, all are counted, and the
    table must have enough capacity."""
    size, ids, words, odd, unknown = len(data), 0, 0, 0, 0
    spaces, newlines, first, last = 0, 0, -1, -1
    begins, ends, indices = (
        np.empty(LOOKUP_BATCH, np.int64),
        np.empty(LOOKUP_BATCH, np.int64),
        np.empty(LOOKUP_BATCH, np.int64),
    )
    codes, guesses = np.empty(LOOKUP_BATCH, np.uint64), np.empty(LOOKUP_BATCH, np.int64)
    mask = np.uint64(len(table.slots) - 1)
    at = 0
    while at < size:
        count = 0
        while at < size and count < LOOKUP_BATCH:  # find words
            width = _space_width(data, at)
            if width:
                if data[at] == 10:
                    buffers.ids[ids] = line
                    ids += 1
                at += width
                continue
            begin, code = at, FNV_OFFSET
            while at < size and ((32 < data[at] < 0xC2) or _space_width(data, at) == 0):
                code = (code ^ np.uint64(data[at])) * FNV_PRIME
                at += 1
            if first < 0:
                first = begin
            elif begin - last == 1 and data[last] == 32:
                spaces += 1
            elif begin - last == 1 and data[last] == 10:
                newlines += 1
            else:
                buffers.odd[odd, 0], buffers.odd[odd, 1] = last, begin
                odd += 1
            last = at
            begins[count], ends[count], codes[count], indices[count] = begin, at, code, ids
            ids += 1
            count += 1
        for each in range(count):  # the most likely slot of each word; these loads are independent
            entry = table.slots[_first_slot(codes[each], mask)]
            guesses[each] = np.int64(entry & ~TAG_MASK) - 1 if (entry ^ codes[each]) & TAG_MASK == 0 else -1
        for each in range(count):
            begin, end, number = begins[each], ends[each], guesses[each]
            if number < 0 or not _equals_word(table, number, data, begin, end):
                number, slot = _find_slot(table, data, begin, end, codes[each])
                if number < 0 and grow:
                    number = known
                    _insert_word(table, number, slot, data, begin, end, codes[each])
                    known += 1
                elif number < 0:
                    number = UNKNOWN_WORD
                    buffers.unknown[unknown, 0], buffers.unknown[unknown, 1] = begin, end
                    unknown += 1
            if grow:
                table.counts[number] += 1
            buffers.ids[indices[each]] = number
        words += count
    return ScanCounts(ids, words, odd, unknown, known, spaces, newlines, first, last)


@_compiled
def _hash_bytes(letters: Array, begin: int, end: int) -> Any:
    code = FNV_OFFSET
    for at in range(begin, end):
        code = (code ^ np.uint64(letters[at])) * FNV_PRIME
    return code


@_compiled
def fill_slots(table: HashTable, count: int) -> None:
    """Fill the slots for the first ``count`` words, which are different or empty."""
    mask = np.uint64(len(table.slots) - 1)
    for number in range(count):
        code = _hash_bytes(table.letters, table.starts[number], table.starts[number + 1])
        slot = _first_slot(code, mask)
        while table.slots[slot]:
            slot = (slot + np.uint64(1)) & mask
        table.slots[slot] = (code & TAG_MASK) | np.uint64(number + 1)


@_compiled
def merge_tables(table: HashTable, known: int, other: HashTable, count: int) -> int:
    """Add the words and counts of another table; return the new number of words."""
    for each in range(count):
        begin, end = other.starts[each], other.starts[each + 1]
        code = _hash_bytes(other.letters, begin, end)
        number, slot = _find_slot(table, other.letters, begin, end, code)
        if number < 0:
            number = known
            _insert_word(table, number, slot, other.letters, begin, end, code)
            known += 1
        table.counts[number] += other.counts[each]
    return known
