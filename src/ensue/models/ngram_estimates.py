"""From counts to probabilities: four estimates of P(w | c) over one trie of counted n-grams.

Legend: c a context, c' the context without its first word, w a word, V vocabulary, C(·) a count, Σ_w C(cw)
the count of the context. All four return the log probability of each node and the log weight of each context,
in nats; all values are finite for any corpus.

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

from ensue.models.ngram_config import NGramConfig
from ensue.models.ngram_lookup import Floats, Ints, Trie, add_counts_of_counts, count_nodes, interpolate
from ensue.models.ngram_trie import IN_MEMORY, TableStorage

EPSILON = 1e-12
"""ε: the probability mass that mle spreads over all words, so that no probability is zero."""
FALLBACK = (0.5, 1.0, 1.5)
"""Discounts of an order with too few n-grams to estimate them, as in ``lmplz --discount_fallback``."""
SMALLEST = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True, slots=True)
class Estimate:
    """log P of every node, log weight of every context, log Z of the empty one, and notes for people."""

    probability: Floats
    backoff: Floats
    scale: float
    notes: tuple[str, ...] = ()


def estimate(trie: Trie, config: NGramConfig) -> Estimate:
    """Estimate probabilities by the method that ``config.mode`` names."""
    if config.mode == "kneser-ney":
        return kneser_ney(trie)
    if config.mode == "backoff":
        return stupid_backoff(trie, config.alpha)
    if config.mode == "add":
        return relative_frequencies(trie, config.delta, 0.0)
    return relative_frequencies(trie, 0.0, EPSILON)


def sum_children(values: Floats, child_counts: Ints) -> NDArray[np.float64]:
    """Return the sum of the values of each context's children; 0 for a context without any."""
    result = np.zeros(len(child_counts))
    filled = child_counts > 0
    if filled.any():
        first = np.cumsum(child_counts) - child_counts
        result[filled] = np.add.reduceat(values, first[filled], dtype=np.float64)
    return result


def adjusted_counts(trie: Trie, level: int, storage: TableStorage) -> Ints:
    """Return a(g) of the n-grams of a level, in place of their counts.

    a(g) is the number of different words before g, or C(g) if there is none, as at the beginning of a sentence.
    """
    nodes = trie.level(level)
    counts = trie.counts[nodes]
    if level < trie.order:
        for part in storage.chunks(slice(0, len(counts))):
            np.negative(counts[part], out=counts[part])
        for part in storage.chunks(trie.level(level + 1)):
            count_nodes(trie.suffix[part], nodes.start, counts)
        for part in storage.chunks(slice(0, len(counts))):
            np.abs(counts[part], out=counts[part])
    return counts


def discounts(adjusted: Ints, storage: TableStorage) -> tuple[NDArray[np.float64], bool]:
    """Return D for a = 0, 1, 2 and 3 or more (Chen and Goodman, equation 26), and whether they were estimated."""
    n = np.zeros(6)
    for part in storage.chunks(slice(0, len(adjusted))):
        add_counts_of_counts(adjusted[part], n)
    if n[1] and n[2] and n[3]:
        share = n[1] / (n[1] + 2 * n[2])
        estimated = [i - (i + 1) * share * n[i + 1] / n[i] for i in (1, 2, 3)]
        if all(0 < value <= i for i, value in enumerate(estimated, 1)):
            return np.array([0.0, *estimated]), True
    return np.array([0.0, *FALLBACK]), False


def kneser_ney(trie: Trie, storage: TableStorage = IN_MEMORY) -> Estimate:
    """Interpolated modified Kneser–Ney. Probabilities overwrite the counts they are computed from."""
    single = np.dtype(np.float32)
    probability = trie.counts.view(single) if trie.counts.itemsize == 4 else storage.zeros(len(trie.words), single)
    weights = storage.zeros(len(trie.offsets) - 1, single)
    poor = []
    for level in range(1, trie.order + 1):
        adjusted = adjusted_counts(trie, level, storage)
        discount, estimated = discounts(adjusted, storage)
        if level == 1:
            probability[trie.level(1)] = first_order(adjusted, discount)
        else:
            work = partial(_interpolate, trie, level, (adjusted, discount, probability, weights))
            storage.for_contexts(trie, level, work)
        if not estimated:
            poor.append(str(level))
    which = f"too few n-grams to estimate the discounts of order {', '.join(poor)}"
    notes = (f"{which}: 0.5, 1 and 1.5 stand in",) if poor else ()
    for table in (probability, weights):
        for part in storage.chunks(slice(0, len(table))):
            logarithms(table[part])
    return Estimate(probability, weights, 0.0, notes)


def first_order(adjusted: Ints, discount: Floats) -> NDArray[np.float64]:
    """Return P(w) of every word."""
    taken, total = discount[np.minimum(adjusted, 3)], int(adjusted.sum())
    weight = taken.sum() / total if total else 1.0
    result: NDArray[np.float64] = (adjusted - taken) / max(total, 1) + weight / len(adjusted)
    return result


def _interpolate(trie: Trie, level: int, parts: tuple[Ints, Floats, Floats, Floats], low: int, high: int) -> int:
    """Estimate the n-grams of ``level`` words after the contexts low ≤ c < high; one thread's work."""
    adjusted, discount, probability, weights = parts
    first, last = int(trie.offsets[low]), int(trie.offsets[high])
    start = trie.level(level).start
    own = adjusted[first - start : last - start]
    result = (probability[first:last], weights[low:high])
    interpolate(trie.offsets[low : high + 1], own, discount, (trie.suffix[first:last], probability), result)
    return last - first


def stupid_backoff(trie: Trie, alpha: float) -> Estimate:
    """Stupid backoff divided by its sum over the vocabulary."""
    score = np.empty(len(trie.words))
    words = trie.level(1)
    counts = trie.counts[words]
    score[words] = np.where(counts > 0, counts / max(int(counts.sum()), 1), alpha / len(counts))
    root = float(score[words].sum())
    mass = np.empty(len(trie.offsets) - 1)
    backoff = np.empty(len(trie.offsets) - 1)
    probability = score / root
    for level in range(2, trie.order + 1):
        nodes, contexts, children = trie.level(level), trie.level(level - 1), trie.child_counts(level)
        score[nodes] = trie.counts[nodes] / np.repeat(sum_children(trie.counts[nodes], children), children)
        below = np.full(len(children), root) if level == 2 else mass[trie.suffix[contexts]]
        left = np.maximum(below - sum_children(score[trie.suffix[nodes]], children), 0.0)
        mass[contexts] = np.where(children > 0, 1 + alpha * left, alpha * below)
        backoff[contexts] = alpha * below / mass[contexts]
        probability[nodes] = score[nodes] / np.repeat(mass[contexts], children)
    return Estimate(logarithms(probability), logarithms(backoff), float(np.log(root)))


def relative_frequencies(trie: Trie, delta: float, epsilon: float) -> Estimate:
    """(1 − ε) (C(cw) + δ) / (C(c) + δ V) + ε / V; a context's weight is the probability of a word unseen there."""
    probability = np.empty(len(trie.words))
    backoff = np.empty(len(trie.offsets) - 1)
    vocabulary = int(trie.starts[1])
    for level in range(1, trie.order + 1):
        nodes = trie.level(level)
        children = trie.child_counts(level) if level > 1 else np.array([vocabulary])
        totals = sum_children(trie.counts[nodes], children) + delta * vocabulary
        share = np.divide(1 - epsilon, totals, out=np.zeros(len(children)), where=totals > 0)
        unseen = np.where(totals > 0, share * delta + epsilon / vocabulary, 1 / vocabulary)
        probability[nodes] = trie.counts[nodes] * np.repeat(share, children) + np.repeat(unseen, children)
        if level > 1:
            backoff[trie.level(level - 1)] = unseen
    return Estimate(logarithms(probability), logarithms(backoff), 0.0)


def logarithms(values: Floats) -> Floats:
    """Return logarithms in float32, in place if the values are float32; smaller values become the smallest normal."""
    single = values.astype(np.float32, copy=False)
    np.maximum(single, SMALLEST, out=single)
    return np.log(single, out=single)
