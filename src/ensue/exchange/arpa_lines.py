"""Compiled writer for the lines of an ARPA file.

A line is log10 P, the words of the n-gram, and log10 of its back-off weight if it is a context. N-grams come in the
order of the trie, so one cursor for each order follows the contexts of the current line.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ensue.models.ngram import NGram
from ensue.models.ngram_lookup import Floats, Ints, compiled

BUFFER_BYTES = 1 << 22
"""Bytes written at once."""
MAX_NUMBER_BYTES = 48
"""Maximum size of the two numbers of a line, with separators."""
SIGNIFICANT_DIGITS = 9
"""Enough to tell any two float32 numbers apart."""
LN_10 = math.log(10)
SPACE, TAB, NEWLINE, ZERO, POINT, MINUS = (ord(sign) for sign in " \t\n0.-")


class WordBytes(NamedTuple):
    """Words as bytes: word ``i`` is ``letters[starts[i]:starts[i+1]]``."""

    letters: Ints
    starts: Ints


class NGramLevel(NamedTuple):
    """N-grams of one order, from node ``first`` to ``last``."""

    words: Ints
    offsets: Ints
    first: int
    last: int
    logs: Floats
    weights: Floats
    """Log P and log weights in nats; the highest order has no weights."""


def word_bytes(words: Sequence[str]) -> WordBytes:
    """Return words as bytes."""
    encoded = [word.encode() for word in words]
    starts = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    return WordBytes(np.frombuffer(b"".join(encoded), np.uint8), starts)


@compiled
def write_number(buffer: Ints, at: int, value: float) -> int:
    """Write a number with nine significant digits, without trailing zeros; return its end."""
    if value < 0:
        buffer[at] = MINUS
        at += 1
        value = -value
    if value == 0:
        buffer[at] = ZERO
        return at + 1
    decimals = SIGNIFICANT_DIGITS - 1 - int(np.floor(np.log10(value)))
    whole = np.int64(np.rint(value * 10.0**decimals))
    while decimals > 0 and whole % 10 == 0:
        whole //= 10
        decimals -= 1
    digits, rest = 1, whole // 10
    while rest:
        digits, rest = digits + 1, rest // 10
    size = max(digits, decimals + 1) + (1 if decimals > 0 else 0)
    for digit in range(size):  # from the last to the first
        if digit == decimals and decimals > 0:
            buffer[at + size - 1 - digit] = POINT
        else:
            buffer[at + size - 1 - digit] = ZERO + whole % 10
            whole //= 10
    return at + size


@compiled
def write_lines(
    level: NGramLevel, cursors: Ints, openings: WordBytes, closings: WordBytes, node: int, buffer: Ints
) -> tuple[int, int]:
    """Write lines from ``node`` on while they fit; return the number of bytes and the next node.

    ``cursors`` has the node of each order in the last line, and is updated; the last one is the line's own node.
    """
    order, at = len(cursors), 0
    while node < level.last:
        cursors[order - 1] = node
        for shorter in range(order - 2, -1, -1):
            while level.offsets[cursors[shorter] + 1] <= cursors[shorter + 1]:
                cursors[shorter] += 1
        size = MAX_NUMBER_BYTES + order
        for index in range(order):
            names, word = openings if index == 0 and order > 1 else closings, level.words[cursors[index]]
            size += names.starts[word + 1] - names.starts[word]
        if at + size > len(buffer):
            break
        at = write_number(buffer, at, min(level.logs[node - level.first], 0.0) / LN_10)
        for index in range(order):
            buffer[at] = SPACE if index else TAB
            at += 1
            names, word = openings if index == 0 and order > 1 else closings, level.words[cursors[index]]
            for letter in range(names.starts[word], names.starts[word + 1]):
                buffer[at] = names.letters[letter]
                at += 1
        if len(level.weights):
            buffer[at] = TAB
            at = write_number(buffer, at + 1, level.weights[node - level.first] / LN_10)
        buffer[at] = NEWLINE
        at += 1
        node += 1
    return at, node


def level_lines(model: NGram, order: int, openings: WordBytes, closings: WordBytes) -> Iterator[memoryview]:
    """Yield the lines of one order; ``openings`` are names at the start of an n-gram, ``closings`` elsewhere."""
    starts, end = model.starts.tolist(), model.config.end
    first, last = starts[order - 1 : order + 1]
    weights = model.backoff[first:last].numpy()
    if order == 1 and end >= 0 and len(weights):
        weights = weights.copy()
        weights[end] = 0  # the weight belongs to <s>
    tables = (model.words.numpy(), model.offsets.numpy())
    level = NGramLevel(*tables, first, last, model.probability[first:last].numpy(), weights)
    longest = max(int(np.diff(names.starts).max()) for names in (openings, closings))
    buffer = np.empty(max(BUFFER_BYTES, MAX_NUMBER_BYTES + order * (longest + 1)), np.uint8)
    cursors, node = np.array(starts[:order]), first
    while node < last:
        size, node = write_lines(level, cursors, openings, closings, node, buffer)
        yield buffer[:size].data
