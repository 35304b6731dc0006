"""A table of words: maps texts to word ids on several threads, and counts words."""

from __future__ import annotations

import queue
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import NamedTuple, TypeVar

import numpy as np

from ensue.core.forks import in_forked_process
from ensue.core.torchrun import available_cores
from ensue.data.tokenizers.word_scanning import (
    LINE_BREAK,
    Array,
    HashTable,
    ScanBuffers,
    fill_slots,
    merge_tables,
    scan_words,
)

Context = TypeVar("Context")
MIN_CAPACITY = 1 << 12
COUNT_SLICE_BYTES = 1 << 16
"""Bytes of text after which a growing table checks its capacity."""
MIN_THREAD_BYTES = 1 << 17
"""Minimum number of bytes per thread."""
_BORDER = re.compile(rb"[!-~][ \n](?=[!-~])")
"""Where a text can be cut: after a single space or newline between two words."""


class WordScan(NamedTuple):
    """The result of scanning a text."""

    ids: Array
    """Id of each word and each newline, int32."""
    words: int
    gaps: Counter[str]
    """Count of each run of white space between two words."""
    head: str
    tail: str
    """White space before the first word and after the last; in a text without words, all is tail."""
    unknown: Counter[str]
    """Words outside the table."""


class WordTable:
    """Words and their ids, in order of insertion.

    >>> table = WordTable(["the", "cat"])
    >>> table.scan("the dog\\n", line=9).ids.tolist()
    [0, -2, 9]
    """

    def __init__(self, words: Iterable[str] = ()) -> None:
        encoded = [word.encode() for word in words]
        self.known = len(encoded)
        letters = np.frombuffer(b"".join(encoded), np.uint8)
        starts = np.concatenate([[0], np.cumsum([len(word) for word in encoded], dtype=np.int64)]).astype(np.int64)
        counts = np.zeros(self.known, np.int64)
        self._table = _allocate(letters, starts, counts, max(MIN_CAPACITY, self.known), max(MIN_CAPACITY, len(letters)))

    def scan(self, text: str | bytes, line: int = LINE_BREAK) -> WordScan:
        """Return the ids of a text's words, ``UNKNOWN_WORD`` for words outside the table, and ``line`` for newlines.

        A long text is cut between words and scanned on several threads."""
        data = _bytes(text)
        parts = _slices(data, max(MIN_THREAD_BYTES, -(-len(data) // available_cores())))
        if len(parts) == 1:
            return self._scan_part(data, line, False)
        scans = _pool(available_cores()).map(lambda part: self._scan_part(part, line, False), parts)
        return _join_scans(list(scans), parts)

    def count(self, text: str | bytes) -> WordScan:
        """Scan a text, adding new words and counting all."""
        parts, scans = _slices(_bytes(text), COUNT_SLICE_BYTES), []
        for part in parts:
            self._reserve(len(part) // 2 + 1, len(part))
            scans.append(self._scan_part(part, LINE_BREAK, True))
        return _join_scans(scans, parts)

    def add(self, other: WordTable) -> None:
        """Add another table's words and counts."""
        self._reserve(other.known, int(other._table.starts[other.known]))
        self.known = merge_tables(self._table, self.known, other._table, other.known)

    @property
    def counts(self) -> Array:
        """Count of each word seen by ``count``."""
        return self._table.counts[: self.known]

    def words(self) -> list[str]:
        """Return the words in order of their ids."""
        data, starts = self._table.letters.tobytes(), self._table.starts[: self.known + 1].tolist()
        return [data[low:high].decode() for low, high in pairwise(starts)]

    def _scan_part(self, data: bytes, line: int, grow: bool) -> WordScan:
        array, half = np.frombuffer(data, np.uint8), len(data) // 2 + 1
        sizes = (len(data), (half, 2), (0 if grow else half, 2))
        buffers = ScanBuffers(*(np.empty(size, np.int32) for size in sizes))
        counts = scan_words(array, self._table, self.known, line, grow, buffers)
        self.known = counts.known
        gaps = _count_strings(data, buffers.odd[: counts.odd])
        gaps.update({gap: times for gap, times in ((" ", counts.spaces), ("\n", counts.newlines)) if times})
        head = data[: max(counts.first, 0)].decode()
        tail = data[max(counts.last, 0) :].decode()
        unknown = _count_strings(data, buffers.unknown[: counts.unknown])
        return WordScan(buffers.ids[: counts.ids], counts.words, gaps, head, tail, unknown)

    def _reserve(self, words: int, letters: int) -> None:
        """Grow the table for this many more words and letters, with 50 % spare capacity."""
        table, used = self._table, int(self._table.starts[self.known])
        if self.known + words < len(table.counts) and used + letters <= len(table.letters):
            return
        kept = (table.letters[:used], table.starts[: self.known + 1], self.counts)
        self._table = _allocate(*kept, 3 * (self.known + words) // 2, 3 * (used + letters) // 2)


def count_words_parallel(
    texts: Iterable[tuple[str | bytes, Context]], counted: WordTable
) -> Iterator[tuple[Context, WordScan]]:
    """Count words on all cores into a table that is complete at the end; yield each text's scan, in order."""
    free: queue.SimpleQueue[WordTable] = queue.SimpleQueue()
    tables = [counted, *(WordTable() for _ in range(available_cores() - 1))]
    for table in tables:
        free.put(table)

    def work(text: str | bytes) -> WordScan:
        table = free.get()
        try:
            return table.count(text)
        finally:
            free.put(table)

    waiting: deque[tuple[Context, Future[WordScan]]] = deque()
    with ThreadPoolExecutor(len(tables)) as pool:
        for text, context in texts:
            waiting.append((context, pool.submit(work, text)))
            if len(waiting) > 2 * len(tables):  # bound the number of texts in memory
                context, scan = waiting.popleft()
                yield context, scan.result()
        for context, scan in waiting:
            yield context, scan.result()
    for table in tables[1:]:
        counted.add(table)


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """Return a thread pool that is kept for reuse."""
    return ThreadPoolExecutor(threads)


in_forked_process(_pool.cache_clear)  # the threads are not there


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


def _slices(data: bytes, size: int) -> list[bytes]:
    """Cut a text into slices of about ``size`` bytes between two words; longer if there is no boundary."""
    cuts = [0]
    while len(data) - cuts[-1] > size and (border := _BORDER.search(data, cuts[-1] + size)):
        cuts.append(border.end())
    return [data[low:high] for low, high in pairwise([*cuts, len(data)])] if len(cuts) > 1 else [data]


def _join_scans(scans: Sequence[WordScan], parts: Sequence[bytes]) -> WordScan:
    """Join the scans of slices; the white space at the cuts is between words."""
    if len(scans) == 1:
        return scans[0]
    gaps, unknown = Counter(part[-1:].decode() for part in parts[:-1]), Counter[str]()
    for scan in scans:
        gaps.update(scan.gaps)
        unknown.update(scan.unknown)
    ids = np.concatenate([scan.ids for scan in scans])
    return WordScan(ids, sum(scan.words for scan in scans), gaps, scans[0].head, scans[-1].tail, unknown)


def _allocate(letters: Array, starts: Array, counts: Array, words: int, bytes_: int) -> HashTable:
    """Return a table of these words with capacity for ``words`` words of ``bytes_`` bytes in total."""
    known = len(counts)
    wide = (np.zeros(bytes_, np.uint8), np.zeros(words + 1, np.int64), np.zeros(words, np.int64))
    wide[0][: len(letters)], wide[1][: len(starts)], wide[2][:known] = letters, starts, counts
    table = HashTable(np.zeros(1 << (2 * words - 1).bit_length(), np.uint64), *wide)
    fill_slots(table, known)
    return table


def _count_strings(data: bytes, spans: Array) -> Counter[str]:
    raw = Counter(data[low:high] for low, high in spans.tolist())
    return Counter({key.decode(): times for key, times in raw.items()})


def words_by_frequency(table: WordTable) -> tuple[list[str], list[int]]:
    """Return the words, most frequent first, then alphabetically, and their counts."""
    words, counts = table.words(), table.counts
    order = np.array(sorted(range(len(words)), key=words.__getitem__), np.int64)
    order = order[np.argsort(-counts[order], kind="stable")]
    return [words[number] for number in order.tolist()], counts[order].tolist()
