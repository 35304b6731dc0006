"""Words of a text found, numbered and counted as bytes of UTF-8, compiled: some ten million a second.

White space is what ``str.split`` takes for it. A word's number is found in a table of hashes with open addressing;
where the hash is the same the letters are compared, so that no two words are ever taken for one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numba
import numpy as np

Function = TypeVar("Function", bound=Callable[..., Any])
Array = np.ndarray

BREAK = -1
"""What ``scan`` is told to write for a newline where it only counts."""
UNKNOWN = -2
"""No word of the table."""
FIRST_ROOM = 1 << 12


def _compiled(function: Function) -> Function:
    result: Function = numba.njit(cache=True, nogil=True)(function)
    return result


class Table(NamedTuple):
    """Words by their letters: number ``i`` has the letters from ``starts[i]`` up to ``starts[i+1]``."""

    slots: Array
    """A word's number plus one, where its hash says or in the next free place; 0 is free. A power of two."""
    hashes: Array
    letters: Array
    starts: Array
    counts: Array
    """How often each word was met, where that is counted."""


class Room(NamedTuple):
    """What a scan writes: numbers of words and lines, and where the odd gaps and the words without a number stand."""

    ids: Array
    odd: Array
    lost: Array


class Found(NamedTuple):
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


class Scan(NamedTuple):
    """A text gone through once."""

    ids: Array
    """A number for each word and each newline, int32."""
    words: int
    gaps: Counter[str]
    """How often each run of white space stands between two words."""
    head: str
    tail: str
    """White space before the first word and after the last; where there is no word all is tail."""
    lost: Counter[str]
    """Words that have no number."""


@_compiled
def _space(data: Array, at: int) -> int:  # noqa: PLR0911 — a case a lead byte
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
def _number(table: Table, data: Array, begin: int, end: int, code: int) -> tuple[int, int]:
    """A word's number or -1, and the place in ``slots`` where it is or would be."""
    mask = len(table.slots) - 1
    place = (code ^ (code >> 32)) & mask
    while table.slots[place]:
        number = table.slots[place] - 1
        start = table.starts[number]
        if table.hashes[number] == code and table.starts[number + 1] - start == end - begin:
            same = True
            for offset in range(end - begin):
                if table.letters[start + offset] != data[begin + offset]:
                    same = False
                    break
            if same:
                return number, place
        place = (place + 1) & mask
    return -1, place


@_compiled
def scan(data: Array, table: Table, known: int, line: int, grow: bool, room: Room) -> Found:
    """Go through a text. ``line`` is the number of a newline; with ``grow`` new words get the next numbers and all are
    counted, and the table must have room."""
    size, ids, words, odd, lost = len(data), 0, 0, 0, 0
    spaces, newlines, first, last = 0, 0, -1, -1
    at = 0
    while at < size:
        width = _space(data, at)
        if width:
            if data[at] == 10:
                room.ids[ids] = line
                ids += 1
            at += width
            continue
        begin, code = at, np.uint64(0xCBF29CE484222325)
        while at < size and _space(data, at) == 0:
            code = (code ^ np.uint64(data[at])) * np.uint64(0x100000001B3)
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
        words += 1
        key: Any = np.int64(code >> np.uint64(1))
        number, place = _number(table, data, begin, at, key)
        if number < 0 and grow:
            number = known
            known += 1
            table.slots[place] = known
            table.hashes[number] = key
            start = table.starts[number]
            for offset in range(at - begin):
                table.letters[start + offset] = data[begin + offset]
            table.starts[known] = start + at - begin
            table.counts[number] = 0
        if grow:
            table.counts[number] += 1
        elif number < 0:
            number = UNKNOWN
            room.lost[lost, 0], room.lost[lost, 1] = begin, at
            lost += 1
        room.ids[ids] = number
        ids += 1
    return Found(ids, words, odd, lost, known, spaces, newlines, first, last)


@_compiled
def _hash_all(letters: Array, starts: Array, count: int, slots: Array, hashes: Array) -> None:
    """Fill the table of places for the first ``count`` words."""
    mask = len(slots) - 1
    for number in range(count):
        code = np.uint64(0xCBF29CE484222325)
        for at in range(starts[number], starts[number + 1]):
            code = (code ^ np.uint64(letters[at])) * np.uint64(0x100000001B3)
        hashes[number] = np.int64(code >> np.uint64(1))
        place = (hashes[number] ^ (hashes[number] >> 32)) & mask
        while slots[place]:
            place = (place + 1) & mask
        slots[place] = number + 1


class WordTable:
    """Words and their numbers, which are the order in which they came.

    >>> table = WordTable(["the", "cat"])
    >>> table.scan("the dog\\n", line=9).ids.tolist()
    [0, -2, 9]
    """

    def __init__(self, words: Iterable[str] = ()) -> None:
        encoded = [word.encode() for word in words]
        self.known = len(encoded)
        letters = np.frombuffer(b"".join(encoded), np.uint8)
        starts = np.concatenate([[0], np.cumsum([len(word) for word in encoded], dtype=np.int64)]).astype(np.int64)
        room = max(FIRST_ROOM, self.known)
        self._table = _roomy(letters, starts, np.zeros(self.known, np.int64), room, max(FIRST_ROOM, len(letters)))

    def scan(self, text: str, line: int = BREAK) -> Scan:
        """The numbers of a text's words, ``UNKNOWN`` for those without one, and ``line`` for newlines."""
        return self._scanned(text.encode(), line, False)

    def count(self, text: str) -> Scan:
        """The same, but new words get numbers, and all are counted."""
        data = text.encode()
        self._make_room(len(data) // 2 + 1, len(data))
        return self._scanned(data, BREAK, True)

    @property
    def counts(self) -> Array:
        """How often ``count`` met each word."""
        return self._table.counts[: self.known]

    def words(self) -> list[str]:
        """The words in the order of their numbers."""
        data, starts = self._table.letters.tobytes(), self._table.starts[: self.known + 1].tolist()
        return [data[low:high].decode() for low, high in pairwise(starts)]

    def _scanned(self, data: bytes, line: int, grow: bool) -> Scan:
        array, half = np.frombuffer(data, np.uint8), len(data) // 2 + 1
        room = Room(*(np.empty(size, np.int32) for size in (len(data), (half, 2), (0 if grow else half, 2))))
        found = scan(array, self._table, self.known, line, grow, room)
        self.known = found.known
        gaps = _strings(data, room.odd[: found.odd])
        gaps.update({gap: times for gap, times in ((" ", found.spaces), ("\n", found.newlines)) if times})
        head = data[: max(found.first, 0)].decode()
        tail = data[max(found.last, 0) :].decode()
        return Scan(room.ids[: found.ids], found.words, gaps, head, tail, _strings(data, room.lost[: found.lost]))

    def _make_room(self, words: int, letters: int) -> None:
        """New room for so many more words and letters, twice as much as is needed."""
        table, used = self._table, int(self._table.starts[self.known])
        if self.known + words < len(table.counts) and used + letters <= len(table.letters):
            return
        kept = (table.letters[:used], table.starts[: self.known + 1], self.counts)
        self._table = _roomy(*kept, 2 * (self.known + words), 2 * (used + letters))


def _roomy(letters: Array, starts: Array, counts: Array, words: int, bytes_: int) -> Table:
    """A table of these words with room for ``words`` in all, of ``bytes_`` in all."""
    known = len(counts)
    wide = (np.zeros(bytes_, np.uint8), np.zeros(words + 1, np.int64), np.zeros(words, np.int64))
    wide[0][: len(letters)], wide[1][: len(starts)], wide[2][:known] = letters, starts, counts
    slots = np.zeros(1 << (2 * words - 1).bit_length(), np.int32)
    hashes = np.zeros(words, np.int64)
    _hash_all(wide[0], wide[1], known, slots, hashes)
    return Table(slots, hashes, *wide)


def _strings(data: bytes, spans: Array) -> Counter[str]:
    """How often each of the strings occurs that stand at these places."""
    raw = Counter(data[low:high] for low, high in spans.tolist())
    return Counter({key.decode(): times for key, times in raw.items()})


def by_frequency(words: Sequence[str], counts: Array) -> list[int]:
    """The numbers of words, the commonest first, then by alphabet."""
    order = np.array(sorted(range(len(words)), key=words.__getitem__), np.int64)
    result: list[int] = order[np.argsort(-counts[order], kind="stable")].tolist()
    return result
