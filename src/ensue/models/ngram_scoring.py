"""Scoring with an n-gram model, with rows interleaved to hide memory latency.

Look-up in a large model mostly waits for memory: nearly every access misses the caches, and the next address depends on
the value. Rows are independent, so while one waits the others proceed: each row prefetches the address it needs next
and continues when it is its turn again (asynchronous memory access chaining: Kocberber, Falsafi and Grot 2015).
``ngram_lookup.read`` and ``look_up`` give the same scores row by row.
"""

from __future__ import annotations

import numpy as np

from ensue.kernels.prefetch import CACHE_LINE, prefetch
from ensue.models.ngram_lookup import Floats, Ints, Tables, compiled

OPENED, SEARCHED, FOUND = 0, 1, 2
"""What a row waits for: the offsets of its context's children; a word among them; the entry of the child found."""


@compiled
def score_interleaved(  # noqa: PLR0912, PLR0915 — one walk, and calls cost
    tables: Tables, end: int, before: Ints, tokens: Ints, targets: Ints, lengths: Ints, result: Floats
) -> None:
    """Write log P(target | context) to ``result`` (B, T) by backing off; ``before`` (B,) is each row's first context.

    A row looks up one word after the other: each target, and before it the token, unless that was the previous target
    and has been found already.
    """
    words, offsets, suffix, _, probability, backoff = tables
    rows, contexts = tokens.shape[0], len(offsets) - 1
    stages, steps, reads = np.full(rows, FOUND), np.full(rows, -1), np.zeros(rows, np.bool_)
    here, asked = before.copy(), before.copy()  # the context after the last token, and the one being searched
    wanted, found, totals = np.full(rows, -1), np.full(rows, -1), np.zeros(rows)
    lows, highs, stops = np.zeros(rows, np.int64), np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    active, count, turn = np.arange(rows), rows, 0
    while count:
        turn = turn + 1 if turn + 1 < count else 0
        row = active[turn]
        if stages[row] != FOUND:
            word, context = wanted[row], asked[row]
            low, high, stop = lows[row], highs[row], stops[row]
            if stages[row] == OPENED:
                low, stop = np.int64(offsets[context]), np.int64(offsets[context + 1])
                high = stop
            else:
                near = high - low <= CACHE_LINE  # no further prefetch is needed
                while low < high:
                    middle = (low + high) >> 1
                    less = words[middle] < word
                    low, high = middle + 1 if less else low, high if less else middle  # branch-free
                    if not near:
                        break
            if low < high:
                prefetch(words, (low + high) >> 1)
                lows[row], highs[row], stops[row], stages[row] = low, high, stop, SEARCHED
                continue
            if low < stop and words[low] == word:
                prefetch(probability, low)
                prefetch(suffix, low)
                found[row], stages[row] = low, FOUND
                continue
            totals[row] += backoff[context]
            context = np.int64(suffix[context])
        else:
            step, token = steps[row], -1
            shorter = found[row]
            while shorter >= contexts:
                shorter = np.int64(suffix[shorter])
            if reads[row]:
                here[row], reads[row] = shorter, False
            else:
                if step >= 0:
                    result[row, step] = totals[row] + probability[found[row]]
                step += 1
                steps[row] = step
                if step >= lengths[row]:
                    count -= 1
                    active[turn] = active[count]
                    continue
                token = tokens[row, step]
                if token == end:
                    here[row] = token if contexts else -1
                elif step > 0 and token == targets[row, step - 1]:
                    here[row] = shorter
                else:
                    reads[row] = True
            wanted[row] = token if reads[row] else targets[row, step]
            totals[row], context = 0.0, here[row]
        asked[row] = context
        if context >= 0:
            prefetch(offsets, context)
            prefetch(backoff, context)
            prefetch(suffix, context)
            stages[row] = OPENED
        else:
            prefetch(probability, wanted[row])
            found[row], stages[row] = wanted[row], FOUND


@compiled
def sizes_after(end: int, known: Ints, tokens: Ints, lengths: Ints, most: int) -> Ints:
    """Return the size of the context after each row (B,), which does not cross the end token; ``known``: before it."""
    result = np.empty(len(tokens), np.int64)
    for row in range(len(tokens)):
        size = known[row]
        for step in range(max(0, lengths[row] - most), lengths[row]):
            size = 1 if tokens[row, step] == end else size + 1
        result[row] = min(size, most)
    return result
