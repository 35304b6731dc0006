"""Sorting the n-grams of a stream, one order after the other, compiled.

A place is where an n-gram ends in the stream. Places are kept sorted by their n-grams, so that equal ones stand
together (a group). One word longer, a group falls apart into smaller ones, and only the words that come next have to be
sorted inside it: most groups are of one place or a few. This is how suffix arrays are made, cut off at the order of the
model.

The n-gram without its first word that ends at the same place is known from the order before: ``nodes`` has it for every
place. So no n-gram is ever looked up.

Groups that begin with different words have nothing to do with each other: a stream is sorted in shards, by first word,
as many at a time as there are threads.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ensue.models.ngram_lookup import Ints, Span, compiled


class Groups(NamedTuple):
    """The n-grams of one order in one shard, sorted."""

    places: Ints
    """Where they end, those of a group together."""
    sizes: Ints
    """How many places each group has."""
    words: Ints
    """The last word of each."""


class Longer(NamedTuple):
    """The n-grams one word longer than some groups."""

    groups: Groups
    suffix: Ints
    """For each the node of the n-gram without its first word."""
    fan: Ints
    """How many each of the shorter groups has."""


@compiled
def first_places(stream: Ints, span: Span, vocabulary: int, count: int) -> Ints:
    """The places of the words from one up to another, ``count`` in all, sorted by word and by the word after it."""
    low, high = span
    size = len(stream)
    after, starts = np.zeros(vocabulary + 2, np.int64), np.zeros(high - low + 1, np.int64)
    for place in range(size):
        word = stream[place]
        if low <= word < high:
            following = stream[place + 1] if place + 1 < size else vocabulary
            after[following + 1] += 1
            starts[word - low + 1] += 1
    after, starts = np.cumsum(after), np.cumsum(starts)
    by_next = np.empty(count, np.int32)
    for place in range(size):
        if low <= stream[place] < high:
            following = stream[place + 1] if place + 1 < size else vocabulary
            by_next[after[following]] = place
            after[following] += 1
    result = np.empty(count, np.int32)
    for at in range(count):
        word = stream[by_next[at]] - low
        result[starts[word]] = by_next[at]
        starts[word] += 1
    return result


@compiled
def lengthen(stream: Ints, nodes: Ints, groups: Groups, closed: int, room: Longer) -> tuple[int, int]:
    """Sort n-grams one word longer into ``room``; its places may be those of ``groups``, which are then overwritten.

    No n-gram goes on after the word ``closed``. Answers how many groups and how many places there are.
    """
    places, sizes, words = groups
    (further, counts, last), suffix, fan = room
    following = np.empty(len(places), np.int32)
    for at in range(len(places)):  # apart from the loop below, so that the processor waits for many words at a time
        following[at] = stream[places[at] + 1] if places[at] + 1 < len(stream) else -1
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
        for at in range(begin, stop):
            if following[at] >= 0:
                keys[count] = (np.int64(following[at]) << 32) | (places[at] + 1)
                ascending = ascending and (count == 0 or keys[count - 1] <= keys[count])
                count += 1
        if not ascending:
            arrange(keys[:count])
        word = -1
        for at in range(count):
            place = keys[at] & 0xFFFFFFFF
            if keys[at] >> 32 != word:
                word = keys[at] >> 32
                last[found], counts[found], suffix[found] = word, 0, place
                found += 1
            counts[found - 1] += 1
            further[kept] = place
            kept += 1
        fan[group] = found - before
        begin = stop
    for at in range(found):
        suffix[at] = nodes[suffix[at]]
    return found, kept


@compiled
def arrange(keys: Ints) -> None:
    """Sort in place; short runs, which are most, by insertion."""
    if len(keys) > 24:
        keys.sort()
        return
    for at in range(1, len(keys)):
        key, place = keys[at], at
        while place > 0 and keys[place - 1] > key:
            keys[place] = keys[place - 1]
            place -= 1
        keys[place] = key


@compiled
def number(nodes: Ints, groups: Groups, first: int) -> None:
    """Note at every place the node of the n-gram that ends there; the first group is node ``first``."""
    at = 0
    for group in range(len(groups.sizes)):
        for place in groups.places[at : at + groups.sizes[group]]:
            nodes[place] = first + group
        at += groups.sizes[group]


@compiled
def counted_from(groups: Groups, before: int) -> Ints:
    """How many places of each group are not among the first ``before``."""
    result, at = np.zeros(len(groups.sizes), np.int32), 0
    for group in range(len(groups.sizes)):
        for place in groups.places[at : at + groups.sizes[group]]:
            result[group] += place >= before
        at += groups.sizes[group]
    return result
