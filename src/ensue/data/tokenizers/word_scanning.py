"""Words of a text found, numbered and counted as bytes of UTF-8, compiled.

White space is what ``str.split`` takes for it. A word's number is found in a table of hashes with open addressing;
where the hash is the same the letters are compared, so that no two words are ever taken for one.

Words are found some hundred at a time, and then looked up together: the processor waits for many places of the table at
once instead of for one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numba
import numpy as np

from ensue.core.compile_notice import watch

watch()

Function = TypeVar("Function", bound=Callable[..., Any])
Array = np.ndarray

LINE_BREAK = -1
"""What ``scan_words`` is told to write for a newline where it only counts."""
UNKNOWN_WORD = -2
"""No word of the table."""
LOOKUP_BATCH = 256
"""So many words are looked up together."""
FNV_OFFSET, FNV_PRIME, TAG_MASK = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3), np.uint64(0xFFFFFFFF00000000)
"""Of the hash, which is FNV-1a, and the half of it that stands in the table."""


def _compiled(function: Function) -> Function:
    result: Function = numba.njit(cache=True, nogil=True)(function)
    return result


class HashTable(NamedTuple):
    """Words by their letters: number ``i`` has the letters from ``starts[i]`` up to ``starts[i+1]``."""

    slots: Array
    """Half of a word's hash and its number plus one, where the hash says or in the next free place; 0 is free. A power
    of two of them, uint64."""
    letters: Array
    starts: Array
    counts: Array
    """How often each word was met, where that is counted."""


class ScanBuffers(NamedTuple):
    """What a scan writes: numbers of words and lines, and where the odd gaps and the words without a number stand."""

    ids: Array
    odd: Array
    lost: Array


class ScanCounts(NamedTuple):
    """What a scan found: how many of each."""

    ids: int
    words: int
    odd: int
    lost: int
    known: int
    spaces: int
    newlines: int
    first: int
    last: int


@_compiled
def _space_width(data: Array, at: int) -> int:  # noqa: PLR0911 — a case a lead byte
    """How many bytes of white space begin here; 0 where it is something else."""
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
    """Whether a word's letters are these."""
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
    """A word's number or -1, and the place in ``slots`` where it is or would be."""
    mask = np.uint64(len(table.slots) - 1)
    place = _first_slot(code, mask)
    while table.slots[place]:
        if (table.slots[place] ^ code) & TAG_MASK == 0:
            number: Any = np.int64(table.slots[place] & ~TAG_MASK) - 1
            if _equals_word(table, number, data, begin, end):
                return number, place
        place = (place + np.uint64(1)) & mask
    return -1, place


@_compiled
def _insert_word(table: HashTable, number: int, place: Any, data: Array, begin: int, end: int, code: Any) -> None:
    """A new word, the next after all that are there."""
    table.slots[place] = (code & TAG_MASK) | np.uint64(number + 1)
    start = table.starts[number]
    for offset in range(end - begin):
        table.letters[start + offset] = data[begin + offset]
    table.starts[number + 1] = start + end - begin
    table.counts[number] = 0


@_compiled
def scan_words(  # noqa: PLR0912, PLR0915 — one walk, and calls cost
    data: Array, table: HashTable, known: int, line: int, grow: bool, room: ScanBuffers
) -> ScanCounts:
    """Go through a text. ``line`` is the number of a newline; with ``grow`` new words get the next numbers and all are
    counted, and the table must have room."""
    size, ids, words, odd, lost = len(data), 0, 0, 0, 0
    spaces, newlines, first, last = 0, 0, -1, -1
    begins, ends, places = (
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
                    room.ids[ids] = line
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
                room.odd[odd, 0], room.odd[odd, 1] = last, begin
                odd += 1
            last = at
            begins[count], ends[count], codes[count], places[count] = begin, at, code, ids
            ids += 1
            count += 1
        for each in range(count):  # where a word most likely is; none of these waits for another
            slot = table.slots[_first_slot(codes[each], mask)]
            guesses[each] = np.int64(slot & ~TAG_MASK) - 1 if (slot ^ codes[each]) & TAG_MASK == 0 else -1
        for each in range(count):
            begin, end, number = begins[each], ends[each], guesses[each]
            if number < 0 or not _equals_word(table, number, data, begin, end):
                number, place = _find_slot(table, data, begin, end, codes[each])
                if number < 0 and grow:
                    number = known
                    _insert_word(table, number, place, data, begin, end, codes[each])
                    known += 1
                elif number < 0:
                    number = UNKNOWN_WORD
                    room.lost[lost, 0], room.lost[lost, 1] = begin, end
                    lost += 1
            if grow:
                table.counts[number] += 1
            room.ids[places[each]] = number
        words += count
    return ScanCounts(ids, words, odd, lost, known, spaces, newlines, first, last)


@_compiled
def _hash_bytes(letters: Array, begin: int, end: int) -> Any:
    code = FNV_OFFSET
    for at in range(begin, end):
        code = (code ^ np.uint64(letters[at])) * FNV_PRIME
    return code


@_compiled
def fill_slots(table: HashTable, count: int) -> None:
    """Fill the table of places for the first ``count`` words, which differ or are empty."""
    mask = np.uint64(len(table.slots) - 1)
    for number in range(count):
        code = _hash_bytes(table.letters, table.starts[number], table.starts[number + 1])
        place = _first_slot(code, mask)
        while table.slots[place]:
            place = (place + np.uint64(1)) & mask
        table.slots[place] = (code & TAG_MASK) | np.uint64(number + 1)


@_compiled
def merge_tables(table: HashTable, known: int, other: HashTable, count: int) -> int:
    """Take over the words of another table with their counts; answers how many there are then."""
    for each in range(count):
        begin, end = other.starts[each], other.starts[each + 1]
        code = _hash_bytes(other.letters, begin, end)
        number, place = _find_slot(table, other.letters, begin, end, code)
        if number < 0:
            number = known
            _insert_word(table, number, place, other.letters, begin, end, code)
            known += 1
        table.counts[number] += other.counts[each]
    return known
