"""From counts to probabilities: four estimates of P(w | c) over one trie of counted n-grams.

Legend: c a context, c' the context without its first word, w a word, V vocabulary, C(·) a count, Σ_w C(cw)
the count of the context. All four answer (log probability of each node, log weight of each context), in
nats; nothing is infinite, whatever the corpus.

kneser-ney  interpolated modified Kneser–Ney (Chen and Goodman 1998; as lmplz does it, Heafield et al. 2013)
    a(g)    = C(g) at the highest order and where g begins a sentence,
              else the number of different words before g
    Y       = n1 / (n1 + 2 n2),   D_i = i − (i+1) Y n_{i+1} / n_i,   n_i the number of n-grams with a = i
    P(w|c)  = (a(cw) − D(a(cw))) / Σ_w a(cw) + γ(c) P(w|c'),   γ(c) = Σ_w D(a(cw)) / Σ_w a(cw)
    P(w)    = (a(w) − D(a(w))) / Σ_w a(w) + γ / V;   P is kept in single precision, as lmplz keeps it
backoff     stupid backoff (Brants et al. 2007), divided by its sum
    S(w|c)  = C(cw) / C(c) if seen, else α S(w|c');   S(w) = C(w) / C() if seen, else α / V
    Z(c)    = Σ_w S(w|c) = 1 + α (Z(c') − Σ_{w seen} S(w|c')),   P = S / Z,   weight α Z(c') / Z(c)
add         P(w|c) = (C(cw) + δ) / (C(c) + δ V);  an unseen context gives 1 / V
mle         P(w|c) = (1 − ε) C(cw) / C(c) + ε / V, ε = 1e-12;  an unseen context is shortened
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ensue.models.ngram_lookup import Floats, Ints, Trie, interpolate, tally, tell_small
from ensue.models.ngram_trie import AT_ONCE, Pace, at, fan_of, order_of

EPSILON = 1e-12
"""What relative frequencies give away so that no probability is zero."""
FALLBACK = (0.5, 1.0, 1.5)
"""Discounts for an order with too few n-grams to estimate its own, those of ``lmplz --discount_fallback``."""
SMALLEST = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True, slots=True)
class Estimate:
    """log P of every node, log weight of every context, log Z of the empty one, and notes for people."""

    probability: Floats
    backoff: Floats
    scale: float
    notes: tuple[str, ...] = ()


def sums(values: Floats, fan: Ints) -> NDArray[np.float64]:
    """Σ of the values of each context's children; 0 for a context without any."""
    result = np.zeros(len(fan))
    filled = fan > 0
    if filled.any():
        first = np.cumsum(fan) - fan
        result[filled] = np.add.reduceat(values, first[filled], dtype=np.float64)
    return result


def adjusted_counts(trie: Trie, level: int, pace: Pace) -> Ints:
    """a(g) for the n-grams of a level, in the place of their counts: the number of different words before g, or C(g)
    where there is none, as before what begins a sentence."""
    here = at(trie, level)
    counts = trie.counts[here]
    if level < order_of(trie):
        parts = slice(0, len(counts))
        for part in pace.parts(parts):
            np.negative(counts[part], out=counts[part])
        for part in pace.parts(at(trie, level + 1)):
            tally(trie.suffix[part], here.start, counts)
        for part in pace.parts(parts):
            np.abs(counts[part], out=counts[part])
    return counts


def discounts(adjusted: Ints, pace: Pace) -> tuple[NDArray[np.float64], bool]:
    """D for a = 0, 1, 2 and 3 or more (Chen and Goodman, equation 26), and whether they were estimated."""
    n = np.zeros(6)
    for part in pace.parts(slice(0, len(adjusted))):
        tell_small(adjusted[part], n)
    if n[1] and n[2] and n[3]:
        share = n[1] / (n[1] + 2 * n[2])
        found = [i - (i + 1) * share * n[i + 1] / n[i] for i in (1, 2, 3)]
        if all(0 < value <= i for i, value in enumerate(found, 1)):
            return np.array([0.0, *found]), True
    return np.array([0.0, *FALLBACK]), False


def kneser_ney(trie: Trie, pace: Pace = AT_ONCE) -> Estimate:
    """Interpolated modified Kneser–Ney. Probabilities take the place of the counts they are made from."""
    single = np.dtype(np.float32)
    found = trie.counts.view(single) if trie.counts.itemsize == 4 else pace.zeros(len(trie.words), single)
    weights = pace.zeros(len(trie.offsets) - 1, single)
    poor = []
    for level in range(1, order_of(trie) + 1):
        adjusted = adjusted_counts(trie, level, pace)
        discount, estimated = discounts(adjusted, pace)
        if level == 1:
            found[at(trie, 1)] = first_order(adjusted, discount)
        else:
            pace.spread(trie, level, partial(_interpolate, trie, level, (adjusted, discount, found, weights)))
        if not estimated:
            poor.append(str(level))
    which = f"too few n-grams to estimate the discounts of order {', '.join(poor)}"
    notes = (f"{which}: 0.5, 1 and 1.5 stand in",) if poor else ()
    for table in (found, weights):
        for part in pace.parts(slice(0, len(table))):
            logarithms(table[part])
    return Estimate(found, weights, 0.0, notes)


def first_order(adjusted: Ints, discount: Floats) -> NDArray[np.float64]:
    """P(w) of every word."""
    taken, total = discount[np.minimum(adjusted, 3)], int(adjusted.sum())
    weight = taken.sum() / total if total else 1.0
    result: NDArray[np.float64] = (adjusted - taken) / max(total, 1) + weight / len(adjusted)
    return result


def _interpolate(trie: Trie, level: int, parts: tuple[Ints, Floats, Floats, Floats], low: int, high: int) -> int:
    """The part of a thread: the n-grams of ``level`` words after the contexts from ``low`` up to ``high``."""
    adjusted, discount, found, weights = parts
    first, last = int(trie.offsets[low]), int(trie.offsets[high])
    start = at(trie, level).start
    own = adjusted[first - start : last - start]
    result = (found[first:last], weights[low:high])
    interpolate(trie.offsets[low : high + 1], own, discount, (trie.suffix[first:last], found), result)
    return last - first


def stupid_backoff(trie: Trie, alpha: float) -> Estimate:
    """Stupid backoff divided by its sum over the vocabulary."""
    score = np.empty(len(trie.words))
    first = trie.counts[at(trie, 1)]
    score[at(trie, 1)] = np.where(first > 0, first / max(int(first.sum()), 1), alpha / int(trie.starts[1]))
    root = float(score[at(trie, 1)].sum())
    mass = np.empty(len(trie.offsets) - 1)
    backoff = np.empty(len(trie.offsets) - 1)
    probability = score / root
    for level in range(2, order_of(trie) + 1):
        here, inner, fan = at(trie, level), at(trie, level - 1), fan_of(trie, level)
        score[here] = trie.counts[here] / np.repeat(sums(trie.counts[here], fan), fan)
        below = np.full(len(fan), root) if level == 2 else mass[trie.suffix[inner]]
        left = np.maximum(below - sums(score[trie.suffix[here]], fan), 0.0)
        mass[inner] = np.where(fan > 0, 1 + alpha * left, alpha * below)
        backoff[inner] = alpha * below / mass[inner]
        probability[here] = score[here] / np.repeat(mass[inner], fan)
    return Estimate(logarithms(probability), logarithms(backoff), float(np.log(root)))


def relative_frequencies(trie: Trie, delta: float, epsilon: float) -> Estimate:
    """(1 − ε) (C(cw) + δ) / (C(c) + δ V) + ε / V; a context's weight is that of a word unseen there."""
    probability = np.empty(len(trie.words))
    backoff = np.empty(len(trie.offsets) - 1)
    uniform = epsilon / int(trie.starts[1])
    for level in range(1, order_of(trie) + 1):
        here = at(trie, level)
        fan = fan_of(trie, level) if level > 1 else np.array([int(trie.starts[1])])
        totals = sums(trie.counts[here], fan) + delta * int(trie.starts[1])
        share = np.divide(1 - epsilon, totals, out=np.zeros(len(fan)), where=totals > 0)
        unseen = np.where(totals > 0, share * delta + uniform, 1 / int(trie.starts[1]))
        probability[here] = trie.counts[here] * np.repeat(share, fan) + np.repeat(unseen, fan)
        if level > 1:
            backoff[at(trie, level - 1)] = unseen
    return Estimate(logarithms(probability), logarithms(backoff), 0.0)


def logarithms(values: Floats) -> Floats:
    """Logarithms in single precision, in place where it was that already; what it cannot hold becomes the smallest it
    can."""
    single = values.astype(np.float32, copy=False)
    np.maximum(single, SMALLEST, out=single)
    return np.log(single, out=single)
