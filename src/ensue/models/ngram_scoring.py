"""Scoring with an n-gram model, several rows at a time: while one row waits for memory, others go on.

What takes time in a large model is not the search but waiting for it: nearly every number that is looked at lies in a
part of memory that no cache has, and the next place to look at follows from it. A row cannot be hurried, but rows have
nothing to do with each other. So each row is a lane: it says which place of memory it wants next (``prefetch``), and by
the time it is its turn again that has come (asynchronous memory access chaining: Kocberber, Falsafi and Grot 2015).
``ngram_lookup.score`` is the same walk row by row, and says what must come out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from ensue.models.ngram_lookup import Floats, Ints, Tables, compiled

OPENED, SEARCHED, FOUND = 0, 1, 2
"""What a lane waits for: where the n-grams of its context are; a word among them; what is known of the one it found."""
LINE = 16
"""So many words lie together in a line of the cache: a search among them asks for no more memory."""


@intrinsic  # type: ignore[untyped-decorator]
def prefetch(typing: Any, array: Any, place: Any) -> Any:
    """Ask for ``array[place]`` without waiting for it. A place outside of the array does no harm."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind, index = signature.args
        data = context.make_array(kind)(context, builder, values[0]).data
        wanted = builder.gep(data, [context.cast(builder, values[1], index, types.intp)])
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        function = builder.module.declare_intrinsic(
            "llvm.prefetch", [pointer], ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        )
        read, everywhere, data_cache = (number(value) for value in (0, 3, 1))
        builder.call(function, [builder.bitcast(wanted, pointer), read, everywhere, data_cache])
        return context.get_dummy_value()

    return types.void(array, place), generate


@compiled
def score_in_lanes(  # noqa: PLR0912, PLR0915 — one walk, and calls cost
    tables: Tables, end: int, before: Ints, tokens: Ints, targets: Ints, lengths: Ints, result: Floats
) -> None:
    """log P(target | context) into ``result`` (B, T) by backing off. ``before`` (B,) is each row's context as a node.

    A row asks for words one after the other: for each target, and before it for the token, unless that was the target
    before and so has been found already.
    """
    words, offsets, suffix, _, probability, backoff = tables
    rows, contexts = tokens.shape[0], len(offsets) - 1
    stages, steps, reads = np.full(rows, FOUND), np.full(rows, -1), np.zeros(rows, np.bool_)
    here, asked = before.copy(), before.copy()  # the context after the last token, and the one that is searched
    wanted, found, totals = np.full(rows, -1), np.full(rows, -1), np.zeros(rows)
    lows, highs, stops = np.zeros(rows, np.int64), np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    lanes, going, turn = np.arange(rows), rows, 0
    while going:
        turn = turn + 1 if turn + 1 < going else 0
        row = lanes[turn]
        if stages[row] != FOUND:
            word, context = wanted[row], asked[row]
            low, high, stop = lows[row], highs[row], stops[row]
            if stages[row] == OPENED:
                low, stop = np.int64(offsets[context]), np.int64(offsets[context + 1])
                high = stop
            else:
                near = high - low <= LINE
                while low < high:
                    middle = (low + high) >> 1
                    less = words[middle] < word
                    low, high = middle + 1 if less else low, high if less else middle  # without a branch to guess
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
                    going -= 1
                    lanes[turn] = lanes[going]
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
    """How many words the context after each row has, none from before the end mark (B,); ``known``: before it."""
    result = np.empty(len(tokens), np.int64)
    for row in range(len(tokens)):
        size = known[row]
        for step in range(max(0, lengths[row] - most), lengths[row]):
            size = 1 if tokens[row, step] == end else size + 1
        result[row] = min(size, most)
    return result
