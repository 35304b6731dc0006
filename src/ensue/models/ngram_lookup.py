"""Compiled look-up in a trie of n-grams.

The nodes of the trie are in breadth-first order. Nodes 0 … V-1 are the words (level 1), then come levels 2, 3 …; within
a level nodes are sorted by context and then by last word. Hence

    words[i]                      the last word of node i
    offsets[c] … offsets[c+1]-1   the children of context c (the n-grams one word longer), sorted by last word
    suffix[i]                     the node of the same n-gram without its first word (-1: the empty one)

and a child is found by binary search. Contexts are the nodes above the last level; -1 is the empty context. All
functions are in one file because numba caches a function until its own file changes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.core.compile_cache import Function, compile_cached
from ensue.core.compile_notice import watch

watch()

Ints = NDArray[Any]
"""An array of integers, 32 or 64 bits wide."""
Floats = NDArray[Any]
"""An array of floating-point numbers."""

BACKOFF, ADD, MLE = 0, 1, 2
"""The probability of a word never seen after a context: that after the shorter context, or a constant. In an unseen
context ADD gives every word 1/V; MLE uses the longest suffix that was seen."""
UNSEEN, CONSTANT = -2, -3
"""Node numbers for an unseen context of ADD, and for a context's constant."""


class Trie(NamedTuple):
    """Counted n-grams. ``starts`` (n+1) has where each level begins and where the last one ends."""

    words: Ints
    offsets: Ints
    suffix: Ints
    starts: Ints
    counts: Ints

    @property
    def order(self) -> int:
        """The number of words in the longest n-grams."""
        return len(self.starts) - 1

    def level(self, words: int) -> slice:
        """The nodes of the n-grams with ``words`` words."""
        return slice(int(self.starts[words - 1]), int(self.starts[words]))

    def child_counts(self, level: int) -> Ints:
        """The number of n-grams of ``level`` words that each of their contexts has."""
        contexts = self.level(level - 1)
        return np.diff(self.offsets[contexts.start : contexts.stop + 1])


class Tables(NamedTuple):
    """Estimated n-grams: log probability of every node, log back-off weight of every context."""

    words: Ints
    offsets: Ints
    suffix: Ints
    starts: Ints
    probability: Floats
    backoff: Floats


Contexts = tuple[Ints, Ints]
"""Contexts as nodes, and the number of words of each, which is larger than the node's if the context is unseen."""


def compiled(function: Function) -> Function:
    """Compile on the first call and cache on disk; releases the global interpreter lock while it runs."""
    return compile_cached(function, nogil=True)


@compiled
def child(words: Ints, offsets: Ints, node: int, word: int) -> int:
    """Return the child of ``node`` with last word ``word``, or -1."""
    if node < 0:
        return word
    low, high = int(offsets[node]), int(offsets[node + 1])
    last = high
    while low < high:
        middle = (low + high) >> 1
        if words[middle] < word:
            low = middle + 1
        else:
            high = middle
    if low < last and words[low] == word:
        return low
    return -1


@compiled
def advance(tables: Tables, node: int, word: int, end: int) -> int:
    """Return the longest context in the trie after ``word`` is read in context ``node``; none crosses ``end``."""
    contexts = len(tables.offsets) - 1
    if contexts == 0:
        return -1
    if word == end:
        return word
    found = child(tables.words, tables.offsets, node, word)
    while found < 0:
        node = int(tables.suffix[node])
        found = child(tables.words, tables.offsets, node, word)
    while found >= contexts:
        found = int(tables.suffix[found])
    return found


@compiled
def fill_suffixes(trie: Trie, first: int, last: int) -> int:
    """Fill ``suffix`` for the children of contexts ``first`` … ``last``-1: suffix(c w) = child(suffix(c), w).

    Returns the first node without a suffix in the trie, or -1 (counted tries always have it).
    """
    words, offsets, suffix = trie.words, trie.offsets, trie.suffix
    for context in range(first, last):
        shorter = int(suffix[context])
        for node in range(offsets[context], offsets[context + 1]):
            word = int(words[node])
            if shorter < 0:
                suffix[node] = word
                continue
            found, size = int(offsets[shorter]), int(offsets[shorter + 1]) - int(offsets[shorter])
            while size > 1:
                half = size >> 1
                found = found + half if words[found + half] <= word else found
                size -= half
            if size == 0 or words[found] != word:
                return node
            suffix[node] = found
    return -1


@compiled
def count_nodes(nodes: Ints, first: int, counts: Ints) -> None:
    """Replace the count of each node in ``nodes`` by how often it occurs there; ``counts`` begins with node ``first``.

    Counts are negative at first, which tells nodes that do not occur from those that do.
    """
    for node in nodes:
        counts[node - first] = max(counts[node - first], 0) + 1


@compiled
def add_counts_of_counts(counts: Ints, total: Floats) -> None:
    """Add to ``total`` how many of the counts are 0, 1, 2 …; larger ones are added to the last entry."""
    for count in counts:
        total[min(count, len(total) - 1)] += 1


@compiled
def interpolate(
    offsets: Ints, adjusted: Ints, discount: Floats, below: tuple[Ints, Floats], result: tuple[Floats, Floats]
) -> None:
    """P = (a − D) / Σ a + γ P' for the children of some contexts; writes their P and the contexts' γ to ``result``.

    ``offsets`` has where the children of each context begin and the last ones end; ``adjusted`` has their a and may
    share memory with P. ``below`` has the suffix of each child, and P of all nodes (P' is that of the suffix).
    """
    suffix, shorter = below
    probability, gamma = result
    for context in range(len(offsets) - 1):
        first, last = offsets[context] - offsets[0], offsets[context + 1] - offsets[0]
        total, taken = 0, 0.0
        for node in range(first, last):
            total += adjusted[node]
            taken += discount[min(adjusted[node], 3)]
        weight = taken / total if total > 0 else 1.0
        gamma[context] = weight
        for node in range(first, last):
            left = adjusted[node] - discount[min(adjusted[node], 3)]
            probability[node] = left / total + weight * shorter[suffix[node]]


@compiled
def descend(words: Ints, offsets: Ints, grams: Ints) -> Ints:
    """Return the node of every row of word ids ``grams`` (N, k), or -1 if there is none."""
    nodes = np.empty(len(grams), np.int64)
    for row in range(len(grams)):
        node = int(grams[row, 0])
        for i in range(1, grams.shape[1]):
            if node >= 0:
                node = child(words, offsets, node, int(grams[row, i]))
        nodes[row] = node
    return nodes


@compiled
def read(tables: Tables, end: int, before: Contexts, tokens: Ints, lengths: Ints) -> Contexts:
    """Return the contexts (B, T+1) before the first token and after each token.

    ``before`` has the last tokens of each row, right-aligned (B, n-1), and how many of them are real (B,). Beyond a
    row's length its context stays the same.
    """
    past, known = before
    rows, steps, most = tokens.shape[0], tokens.shape[1], past.shape[1]
    nodes, sizes = np.empty((rows, steps + 1), np.int64), np.empty((rows, steps + 1), np.int64)
    for row in range(rows):
        node, size = -1, int(known[row])
        for i in range(most - size, most):
            node = advance(tables, node, int(past[row, i]), end)
        nodes[row, 0], sizes[row, 0] = node, size
        for step in range(steps):
            if step < lengths[row]:
                word = int(tokens[row, step])
                node = advance(tables, node, word, end)
                size = min(1 if word == end else size + 1, most)
            nodes[row, step + 1], sizes[row, step + 1] = node, size
    return nodes, sizes


@compiled
def level_of(starts: Ints, node: int) -> int:
    """Return the number of words of the n-gram of ``node``; 0 for the empty one."""
    level = 0
    while level < len(starts) - 1 and node >= starts[level]:
        level += 1
    return level


@compiled
def effective_context(tables: Tables, kind: int, node: int, size: int) -> int:
    """Return the context to look up in: for ADD the whole one or ``UNSEEN``, for MLE the longest with children."""
    if kind == ADD and level_of(tables.starts, node) < size:
        return UNSEEN
    if kind == MLE:
        while node >= 0 and tables.offsets[node] == tables.offsets[node + 1]:
            node = int(tables.suffix[node])
    return node


@compiled
def look_up(tables: Tables, kind: int, contexts: Contexts, targets: Ints) -> Floats:
    """Return log P(target | context) for N contexts and targets (N,), without computing whole distributions."""
    nodes, sizes = contexts
    result = np.empty(len(nodes), np.float32)
    for i in range(len(nodes)):
        word = int(targets[i])
        node = effective_context(tables, kind, int(nodes[i]), int(sizes[i]))
        total, found = 0.0, -1
        while node >= 0 and found < 0:
            found = child(tables.words, tables.offsets, node, word)
            if found < 0:
                total += tables.backoff[node]
                node = int(tables.suffix[node]) if kind == BACKOFF else CONSTANT
        if node == UNSEEN:
            total = -np.log(float(tables.starts[1]))
        elif node != CONSTANT:
            total += tables.probability[found if found >= 0 else word]
        result[i] = total
    return result


@compiled
def distributions(tables: Tables, kind: int, contexts: Contexts, result: Floats) -> None:
    """Fill ``result`` (N, V) with log P(· | context) for N contexts."""
    nodes, sizes = contexts
    vocabulary, levels = int(tables.starts[1]), len(tables.starts)
    chain, weights = np.empty(levels, np.int64), np.empty(levels, np.float64)
    for i in range(len(nodes)):
        row = result[i]
        node = effective_context(tables, kind, int(nodes[i]), int(sizes[i]))
        size, total = 0, 0.0
        while node >= 0:
            chain[size], weights[size] = node, total
            total += tables.backoff[node]
            size += 1
            node = int(tables.suffix[node]) if kind == BACKOFF else CONSTANT
        if node == UNSEEN:
            row[:] = -np.log(float(vocabulary))
        elif node == CONSTANT:
            row[:] = total
        else:
            for word in range(vocabulary):
                row[word] = total + tables.probability[word]
        for longer in range(size - 1, -1, -1):
            context = chain[longer]
            for found in range(tables.offsets[context], tables.offsets[context + 1]):
                row[tables.words[found]] = weights[longer] + tables.probability[found]
