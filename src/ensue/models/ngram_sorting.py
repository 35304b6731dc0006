"""Compiled sorting of the n-grams of a token stream, one order after the other.

The position of an n-gram is where it ends in the stream. Positions are kept sorted by n-gram, so that equal n-grams are
adjacent (a group). For n-grams one word longer a group splits into smaller ones, and only the next words have to be
sorted within it; most groups have one position or a few. This is suffix sorting, cut off at the order of the model.

The suffix of an n-gram (without its first word) ends at the same position and is known from the order before: ``nodes``
has it for every position. So no n-gram is ever looked up.

Groups that begin with different words are independent: a stream is sorted in shards by first word, in parallel.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ensue.models.ngram_lookup import Ints, compiled

MAX_RUNS = 64
"""Arrays with at most this number of ascending runs are sorted by merging."""


class Groups(NamedTuple):
    """The n-grams of one order in one shard, sorted."""

    positions: Ints
    """Where they end, group by group."""
    sizes: Ints
    """The number of positions of each group."""
    words: Ints
    """The last word of each group."""


class Extension(NamedTuple):
    """The n-grams one word longer than some groups."""

    groups: Groups
    suffix: Ints
    """The node of each one's suffix."""
    child_counts: Ints
    """The number of them that each of the shorter groups has."""


@compiled
def first_positions(stream: Ints, span: tuple[int, int], vocabulary: int, count: int) -> Ints:
    """Return the ``count`` positions of the words low ≤ word < high, sorted by word and then by the next word."""
    low, high = span
    size = len(stream)
    after, starts = np.zeros(vocabulary + 2, np.int64), np.zeros(high - low + 1, np.int64)
    for position in range(size):
        word = stream[position]
        if low <= word < high:
            following = stream[position + 1] if position + 1 < size else vocabulary
            after[following + 1] += 1
            starts[word - low + 1] += 1
    after, starts = np.cumsum(after), np.cumsum(starts)
    by_next = np.empty(count, np.int32)
    for position in range(size):
        if low <= stream[position] < high:
            following = stream[position + 1] if position + 1 < size else vocabulary
            by_next[after[following]] = position
            after[following] += 1
    result = np.empty(count, np.int32)
    for next_sorted in by_next:
        word = stream[next_sorted] - low
        result[starts[word]] = next_sorted
        starts[word] += 1
    return result


@compiled
def extend_groups(stream: Ints, nodes: Ints, groups: Groups, closed: int, result: Extension) -> tuple[int, int]:
    """Sort n-grams one word longer into ``result``, which may share its positions with ``groups``.

    No n-gram continues after the word ``closed``. Returns the number of groups and of positions.
    """
    positions, sizes, words = groups
    (new_positions, counts, last), suffix, child_counts = result
    following = np.empty(len(positions), np.int32)
    for i in range(len(positions)):  # a loop of its own, so that the processor loads many words at once
        following[i] = stream[positions[i] + 1] if positions[i] + 1 < len(stream) else -1
    largest = 0
    for group in range(len(sizes)):
        largest = max(largest, sizes[group])
    keys = np.empty(largest, np.int64)
    begin, kept, found = 0, 0, 0
    for group in range(len(sizes)):
        stop, before = begin + sizes[group], found
        if words[group] == closed:
            begin = stop
        count, ascending = 0, True
        for i in range(begin, stop):
            if following[i] >= 0:
                keys[count] = (np.int64(following[i]) << 32) | (positions[i] + 1)
                ascending = ascending and (count == 0 or keys[count - 1] <= keys[count])
                count += 1
        if not ascending:
            sort_keys(keys[:count])
        word = -1
        for i in range(count):
            position = keys[i] & 0xFFFFFFFF
            if keys[i] >> 32 != word:
                word = keys[i] >> 32
                last[found], counts[found], suffix[found] = word, 0, position
                found += 1
            counts[found - 1] += 1
            new_positions[kept] = position
            kept += 1
        child_counts[group] = found - before
        begin = stop
    for i in range(found):
        suffix[i] = nodes[suffix[i]]
    return found, kept


@compiled
def merge_runs(keys: Ints, runs: int) -> None:
    """Sort in place by merging pairs of ascending runs until one is left."""
    size, source, target = len(keys), keys, np.empty_like(keys)
    while runs > 1:
        begin, runs = 0, 0
        while begin < size:
            middle = run_end(source, begin)
            stop = run_end(source, middle)
            left, right = begin, middle
            for i in range(begin, stop):
                if right == stop or (left < middle and source[left] <= source[right]):
                    target[i] = source[left]
                    left += 1
                else:
                    target[i] = source[right]
                    right += 1
            begin, runs = stop, runs + 1
        source, target = target, source
    keys[:] = source


@compiled
def run_end(keys: Ints, begin: int) -> int:
    """Return where the ascending run that starts at ``begin`` ends."""
    end = min(begin + 1, len(keys))
    while end < len(keys) and keys[end - 1] <= keys[end]:
        end += 1
    return end


@compiled
def sort_keys(keys: Ints) -> None:
    """Sort in place: short arrays, which are most, by insertion, and a few ascending runs by merging.

    A repetitive text gives long arrays of few runs, for which numba's quicksort takes quadratic time.
    """
    if len(keys) > 24:
        runs = 1
        for i in range(1, len(keys)):
            runs += keys[i - 1] > keys[i]
        if runs > MAX_RUNS:
            keys.sort()
        else:
            merge_runs(keys, runs)
        return
    for end in range(1, len(keys)):
        key, i = keys[end], end
        while i > 0 and keys[i - 1] > key:
            keys[i] = keys[i - 1]
            i -= 1
        keys[i] = key


@compiled
def set_nodes(nodes: Ints, groups: Groups, first: int) -> None:
    """Set the node of the n-gram that ends at each position; the first group is node ``first``."""
    begin = 0
    for group in range(len(groups.sizes)):
        for position in groups.positions[begin : begin + groups.sizes[group]]:
            nodes[position] = first + group
        begin += groups.sizes[group]


@compiled
def counts_from(groups: Groups, start: int) -> Ints:
    """Return how many positions of each group are not before ``start``."""
    result, begin = np.zeros(len(groups.sizes), np.int32), 0
    for group in range(len(groups.sizes)):
        for position in groups.positions[begin : begin + groups.sizes[group]]:
            result[group] += position >= start
        begin += groups.sizes[group]
    return result
