"""Walks over an n-gram trie, compiled: the only loops of the n-gram model that go token by token.

The trie is one array of nodes in breadth-first order. Nodes 0 … V-1 are the words (level 1), whatever follows
is level 2, then level 3 …; inside a level the nodes are sorted by context and then by last word. Hence

    words[i]                        the last word of node i
    offsets[c] … offsets[c+1]-1   the nodes one word longer than context c, sorted by that word
    suffix[i]                       the node of the same n-gram without its first word (-1: the empty one)

and a child is found by a binary search among its siblings. Contexts are nodes below the last level; -1 is the
empty context. All functions here stand in one file because a compiled function is kept on disk until its own
file changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

from ensue.core.compile_notice import watch

watch()

Ints = NDArray[Any]
"""An array of whole numbers, of whatever width is enough."""
Floats = NDArray[Any]
"""An array of floating-point numbers."""

BACKOFF, ADD, MLE = 0, 1, 2
"""What answers for a word never seen after a context: the shorter context, or a constant. The last two
differ in what they do with a context never seen."""
UNSEEN, CONSTANT = -2, -3
"""Where a walk ends that finds its context was never seen, or takes a context's constant."""

Function = TypeVar("Function", bound=Callable[..., Any])


class Trie(NamedTuple):
    """Counted n-grams. ``starts`` (n+1) says where each level begins, and where the last one ends."""

    words: Ints
    offsets: Ints
    suffix: Ints
    starts: Ints
    counts: Ints


class Tables(NamedTuple):
    """Estimated n-grams: log probability of every node, log back-off weight of every context."""

    words: Ints
    offsets: Ints
    suffix: Ints
    starts: Ints
    probability: Floats
    backoff: Floats


Span = tuple[int, int]
"""Contexts from one up to another."""
Contexts = tuple[Ints, Ints]
"""Contexts as nodes, and how many words each truly has: a node is shorter if the context is unseen."""


def compiled(function: Function) -> Function:
    """Compile on the first call and keep the result on disk; the global lock is let go while it runs."""
    result: Function = numba.njit(cache=True, nogil=True)(function)
    return result


@compiled
def child(words: Ints, offsets: Ints, node: int, word: int) -> int:
    """The node that follows ``node`` by ``word``, or -1."""
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
    """The longest context in the trie after ``word`` is read in context ``node``; none goes over ``end``."""
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

    Answers the first node without a suffix in the trie, or -1 (counted tries always have it).
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
def tally(nodes: Ints, first: int, counts: Ints) -> None:
    """How often each node is among ``nodes``, in the place of its count; that of node ``first`` comes first.

    Counts are negative, so that those of nodes that are never met are known from those that are.
    """
    for node in nodes:
        counts[node - first] = max(counts[node - first], 0) + 1


@compiled
def tell_small(counts: Ints, found: Floats) -> None:
    """Add to ``found`` how many of the counts are 0, 1, 2 …; the last entry stands for all that are larger too."""
    for count in counts:
        found[min(count, len(found) - 1)] += 1


@compiled
def interpolate(
    offsets: Ints, adjusted: Ints, discount: Floats, below: tuple[Ints, Floats], result: tuple[Floats, Floats]
) -> None:
    """P = (a − D) / Σ a + γ P', for the children of some contexts; ``result`` has their P and the contexts' γ.

    ``offsets`` has where the children of each context begin and the last ones end; ``adjusted`` has a for the children
    and may be the same memory as P. ``below`` says where P' is: the nodes of the n-grams without their first words, and
    P of these.
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
    """The node of every row of word ids ``grams`` (N, k), or -1 where there is none."""
    nodes = np.empty(len(grams), np.int64)
    for row in range(len(grams)):
        node = int(grams[row, 0])
        for place in range(1, grams.shape[1]):
            if node >= 0:
                node = child(words, offsets, node, int(grams[row, place]))
        nodes[row] = node
    return nodes


@compiled
def read(tables: Tables, end: int, before: Contexts, tokens: Ints, lengths: Ints) -> Contexts:
    """The context after each token (B, T+1), at place 0 that of the past alone.

    ``before`` has the last tokens of each row flush right (B, n-1) and how many of them are real (B,).
    After a row's own length its context stays.
    """
    past, known = before
    rows, steps, most = tokens.shape[0], tokens.shape[1], past.shape[1]
    nodes, sizes = np.empty((rows, steps + 1), np.int64), np.empty((rows, steps + 1), np.int64)
    for row in range(rows):
        node, size = -1, int(known[row])
        for place in range(most - size, most):
            node = advance(tables, node, int(past[row, place]), end)
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
    """How many words the n-gram of ``node`` has; 0 for the empty one."""
    level = 0
    while level < len(starts) - 1 and node >= starts[level]:
        level += 1
    return level


@compiled
def usable(tables: Tables, kind: int, node: int, size: int) -> int:
    """The context that answers: for ADD the whole one or ``UNSEEN``, for MLE the longest with children."""
    if kind == ADD and level_of(tables.starts, node) < size:
        return UNSEEN
    if kind == MLE:
        while node >= 0 and tables.offsets[node] == tables.offsets[node + 1]:
            node = int(tables.suffix[node])
    return node


@compiled
def look_up(tables: Tables, kind: int, contexts: Contexts, targets: Ints) -> Floats:
    """log P(target | context) for N contexts and targets (N,), without going through the vocabulary."""
    nodes, sizes = contexts
    result = np.empty(len(nodes), np.float32)
    for place in range(len(nodes)):
        word = int(targets[place])
        node = usable(tables, kind, int(nodes[place]), int(sizes[place]))
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
        result[place] = total
    return result


@compiled
def score(  # noqa: PLR0912 — one walk, and calls cost
    tables: Tables, end: int, before: Contexts, tokens: Ints, targets: Ints, lengths: Ints, result: Floats
) -> Ints:
    """log P(target | context) into ``result`` (B, T) by backing off, and how many words the last contexts have (B,).

    ``before`` is as in ``read``. Where a target is read as the next token, which is the rule, looking it up has found
    the next context as well.
    """
    past, known = before
    words, offsets, suffix = tables.words, tables.offsets, tables.suffix
    rows, most, contexts = tokens.shape[0], past.shape[1], len(tables.offsets) - 1
    last = np.empty(rows, np.int64)
    for row in range(rows):
        node, size, found = -1, int(known[row]), -1
        for place in range(most - size, most):
            node = advance(tables, node, int(past[row, place]), end)
        for step in range(lengths[row]):
            word = int(tokens[row, step])
            if contexts == 0:
                node = -1
            elif word == end:
                node = word
            elif step > 0 and word == targets[row, step - 1]:
                node = found
                while node >= contexts:
                    node = int(suffix[node])
            else:
                node = advance(tables, node, word, end)
            size = min(1 if word == end else size + 1, most)
            wanted, total, context = int(targets[row, step]), 0.0, node
            found = -1
            while context >= 0:
                # the search of ``child``, written out: a call costs more than it here
                low, high = int(offsets[context]), int(offsets[context + 1])
                stop = high
                while low < high:
                    middle = (low + high) >> 1
                    if words[middle] < wanted:
                        low = middle + 1
                    else:
                        high = middle
                if low < stop and words[low] == wanted:
                    found = low
                    break
                total += tables.backoff[context]
                context = int(suffix[context])
            if found < 0:
                found = wanted
            result[row, step] = total + tables.probability[found]
        last[row] = size
    return last


@compiled
def distributions(tables: Tables, kind: int, contexts: Contexts, result: Floats) -> None:
    """Fill ``result`` (N, V) with log P(· | context) for N contexts."""
    nodes, sizes = contexts
    vocabulary, levels = int(tables.starts[1]), len(tables.starts)
    chain, weights = np.empty(levels, np.int64), np.empty(levels, np.float64)
    for place in range(len(nodes)):
        row = result[place]
        node = usable(tables, kind, int(nodes[place]), int(sizes[place]))
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
