"""The training loops of word2vec, compiled by numba on first use and cached on disk.

A window of skip-gram with negative sampling is a small matrix product. The n words near a centre are rows v_j; the
centre and the K noise words are rows u_k. All n words share the noise (Ji et al., 2016), so every row is fetched once
and stays in the cache:

    p_jk = σ(v_j · u_k),   g_jk = η (y_k − p_jk),   y = 1 for the centre, 0 for noise
    u_k ← u_k + Σ_j g_jk v_j,   v_j ← v_j + Σ_k g_jk u_k           (both from the rows before the update)

CBOW is the same with a single row, the mean of the v_j; each v_j gets 1/n of its gradient. The exact softmax goes over
the whole vocabulary for every centre, in float32 or float64.

All loops are in one file because numba caches a function until its own file changes.

Legend: V, U the vectors (vocabulary, D), n words near a centre, m = 1 + K outputs, D width.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.core.compile_cache import compile_cached
from ensue.core.compile_notice import watch
from ensue.kernels.prefetch import CACHE_LINE, prefetch

watch()

OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"reassoc", "contract", "nsz", "arcp"},
}
"""Threads run in parallel; sums may be reordered, so that they use vectors."""
LOSS_EVERY = 16
"""The loss is computed for one window of this many: logarithms are slow."""
WHOLE = 1 << 31
"""The threshold that stands for probability 1."""

Matrix = NDArray[Any]
Words = NDArray[np.int32]
Random = NDArray[np.uint64]
"""The state of the random generator, one number."""

f32, u64 = np.float32, np.uint64
LOG2_E = f32(math.log2(math.e))
C1, C2, C3, C4, C5, C6 = (f32(math.log(2) ** k / math.factorial(k)) for k in range(1, 7))
"""The series of 2^f; for |f| ≤ ½ the remainder is below float32 precision."""


class Chunk(NamedTuple):
    """A chunk of text, the vectors to train, and the settings."""

    words: Words
    """The text; −1 where a sentence ends, which no window crosses."""
    V: Matrix
    U: Matrix
    keep: NDArray[np.int64]
    """Of each word, the probability that subsampling keeps it, times 2³¹."""
    window: int
    dynamic: bool
    rate: float
    decay: float
    """How much the rate falls over the chunk."""
    random: Random
    loss: Matrix
    """Results: the sum of losses, and the number of pairs (CBOW: windows) it is over."""


class Workspace(NamedTuple):
    """Arrays that ``update`` works in."""

    rows: Matrix  # (m, D)
    order: Words  # 0, 1, … m − 1
    weights: Matrix  # (n · m), holds the g_jk after an update
    bits: Words  # (n · m)


def loop(function: Callable[..., Any]) -> Any:
    """Compile a loop."""
    return compile_cached(function, **OPTIONS)


@loop
def workspace(n: int, m: int, width: int) -> Workspace:
    """Allocate a workspace."""
    rows, order = np.empty((m, width), np.float32), np.arange(m).astype(np.int32)
    return Workspace(rows, order, np.empty(n * m, np.float32), np.empty(n * m, np.int32))


@loop
def prefetch_row(matrix: Matrix, row: int) -> None:
    """Prefetch a row of a float32 matrix."""
    width = matrix.shape[1]
    for i in range(0, width, CACHE_LINE):
        prefetch(matrix, row * width + i)


@loop
def draw(random: Random) -> Any:
    """Draw 64 random bits (xorshift64*, Vigna 2016)."""
    x = random[0]
    x ^= x >> u64(12)
    x ^= x << u64(25)
    x ^= x >> u64(27)
    random[0] = x
    return x * u64(0x2545F4914F6CDD1D)


@loop
def below(bits: Any, size: int) -> Any:
    """Turn the upper half of random bits into a number from 0 to size − 1."""
    return np.int64(((bits >> u64(32)) * u64(size)) >> u64(32))


@loop
def subsample(words: Words, keep: NDArray[np.int64], random: Random) -> Words:
    """Drop frequent words at random: word w stays with probability keep_w / 2³¹."""
    kept, count = np.empty(len(words), np.int32), 0
    for word in words:
        if word < 0 or keep[word] >= WHOLE or np.int64(draw(random) >> u64(33)) < keep[word]:
            kept[count] = word
            count += 1
    return kept[:count]


@loop
def neighbours(kept: Words, position: int, window: int, dynamic: bool, random: Random, near: Words) -> int:
    """Write the words around a position, within its sentence, to ``near``; return their number.

    A dynamic window reaches a random distance, from 1 to ``window``.
    """
    reach = 1 + below(draw(random), window) if dynamic else window
    n = 0
    i = position - 1
    while i >= 0 and i >= position - reach and kept[i] >= 0:
        near[n] = kept[i]
        n, i = n + 1, i - 1
    i = position + 1
    while i < len(kept) and i <= position + reach and kept[i] >= 0:
        near[n] = kept[i]
        n, i = n + 1, i + 1
    return n


@loop
def sample_noise(centre: int, table: NDArray[np.int64], random: Random, outputs: Words) -> int:
    """Write the centre and K random noise words to ``outputs`` (1 + K); return their number.

    Each word takes one step (Walker's alias method). An entry of the table is a threshold and, in its lower half, the
    word to take above it instead of the entry's own. Noise that equals the centre is dropped.
    """
    outputs[0] = centre
    m = 1
    for _ in range(len(outputs) - 1):
        bits = draw(random)
        word = below(bits, len(table))
        if np.int64(bits & u64(WHOLE - 1)) >= (table[word] >> 32):
            word = table[word] & (WHOLE - 1)
        if word != centre:
            outputs[m] = word
            m += 1
    return m


@loop
def products(inputs: Matrix, indices: Words, n: int, rows: Matrix, m: int, scores: Matrix) -> None:
    """s_jk = v_j · u_k, in blocks of two by three, so that every loaded number is used more than once."""
    D = inputs.shape[1]
    for j in range(0, n, 2):
        v, w = inputs[indices[j]], inputs[indices[min(j + 1, n - 1)]]
        both = j + 1 < n
        k = 0
        while k + 2 < m:
            a, b, c = rows[k], rows[k + 1], rows[k + 2]
            va, vb, vc, wa, wb, wc = f32(0), f32(0), f32(0), f32(0), f32(0), f32(0)
            for i in range(D):
                va += v[i] * a[i]
                vb += v[i] * b[i]
                vc += v[i] * c[i]
                wa += w[i] * a[i]
                wb += w[i] * b[i]
                wc += w[i] * c[i]
            scores[j * m + k], scores[j * m + k + 1], scores[j * m + k + 2] = va, vb, vc
            if both:
                scores[j * m + m + k], scores[j * m + m + k + 1], scores[j * m + m + k + 2] = wa, wb, wc
            k += 3
        while k < m:
            a = rows[k]
            va, wa = f32(0), f32(0)
            for i in range(D):
                va += v[i] * a[i]
                wa += w[i] * a[i]
            scores[j * m + k] = va
            if both:
                scores[j * m + m + k] = wa
            k += 1


@loop
def logistic(scores: Matrix, size: int, bits: Words) -> None:
    """σ(s) = 1 / (1 + 2^t) in place, t = −s log₂ e = w + f with w whole and |f| ≤ ½.

    2^w is built from w as exponent bits, so no library function is called and the loop can be vectorised.
    """
    powers = bits.view(np.float32)
    for i in range(size):
        t = min(max(-scores[i] * LOG2_E, f32(-100)), f32(100))
        w = np.floor(t + f32(0.5))
        f = t - w
        bits[i] = (np.int32(w) + np.int32(127)) << np.int32(23)
        scores[i] = f32(1) + f * (C1 + f * (C2 + f * (C3 + f * (C4 + f * (C5 + f * C6)))))
    for i in range(size):
        scores[i] = f32(1) / (f32(1) + scores[i] * powers[i])


@loop
def add(row: Matrix, matrix: Matrix, indices: Words, n: int, weights: Matrix, first: int, step: int) -> None:
    """row ← row + Σ_j weight_j · matrix_j, three rows at a time."""
    j = 0
    while j + 2 < n:
        a, b, c = matrix[indices[j]], matrix[indices[j + 1]], matrix[indices[j + 2]]
        x, y, z = weights[first + j * step], weights[first + (j + 1) * step], weights[first + (j + 2) * step]
        for i in range(len(row)):
            row[i] += x * a[i] + y * b[i] + z * c[i]
        j += 3
    while j < n:
        a, x = matrix[indices[j]], weights[first + j * step]
        for i in range(len(row)):
            row[i] += x * a[i]
        j += 1


@loop
def update(
    inputs: Matrix,
    near: Words,
    n: int,
    U: Matrix,
    outputs: Words,
    m: int,
    rate: float,
    into: Matrix,
    targets: Words,
    work: Workspace,
) -> None:
    """Make a gradient step on the loss of a window (see the equations above).

    Row ``near_j`` of ``inputs`` is v_j, j < n; its step is added to row ``targets_j`` of ``into``.
    """
    rows, order, weights, bits = work
    for k in range(m):
        row, u = rows[k], U[outputs[k]]
        for i in range(len(u)):
            row[i] = u[i]
    products(inputs, near, n, rows, m, weights)
    logistic(weights, n * m, bits)
    for j in range(n):
        weights[j * m] -= f32(1)
    for i in range(n * m):
        weights[i] *= -rate
    for k in range(m):
        add(U[outputs[k]], inputs, near, n, weights, k, m)
    for j in range(n):
        add(into[targets[j]], rows, order, m, weights, j * m, 1)


@loop
def add_loss(weights: Matrix, n: int, m: int, rate: float, loss: Matrix) -> None:
    """Add the loss of a window: −log of the probability of each correct answer, which is 1 − |g| / η."""
    for i in range(n * m):
        loss[0] -= math.log(max(1 - abs(weights[i]) / rate, 1e-7))
    loss[1] += n


@loop
def skipgram(chunk: Chunk, negative: int, table: NDArray[np.int64]) -> None:
    """Skip-gram with negative sampling; ``table`` is the noise distribution (``alias_table``)."""
    words, V, U, keep, window, dynamic, first_rate, decay, random, loss = chunk
    kept = subsample(words, keep, random)
    count, work = len(kept), workspace(2 * window, negative + 1, V.shape[1])
    near, m, next_m = np.empty(2 * window, np.int32), 0, 0
    outputs, next_outputs = np.empty(negative + 1, np.int32), np.empty(negative + 1, np.int32)
    for position in range(count):
        outputs, next_outputs, m = next_outputs, outputs, next_m
        if position + 1 < count and kept[position + 1] >= 0:  # prefetched during the update of this window
            next_m = sample_noise(kept[position + 1], table, random, next_outputs)
            for k in range(next_m):
                prefetch_row(U, next_outputs[k])
            if position + window + 1 < count and kept[position + window + 1] >= 0:
                prefetch_row(V, kept[position + window + 1])
        if kept[position] < 0:
            continue
        if position == 0:
            m = sample_noise(kept[0], table, random, outputs)
        n = neighbours(kept, position, window, dynamic, random, near)
        rate = f32(first_rate - decay * position / count)
        if n:
            update(V, near, n, U, outputs, m, rate, V, near, work)
            if position % LOSS_EVERY == 0:
                add_loss(work.weights, n, m, rate, loss)


@loop
def mean(V: Matrix, near: Words, n: int, row: Matrix) -> None:
    """Write the mean of n rows to ``row``."""
    row[:] = 0
    for j in range(n):
        v = V[near[j]]
        for i in range(len(row)):
            row[i] += v[i]
    for i in range(len(row)):
        row[i] /= n


@loop
def add_shares(V: Matrix, near: Words, n: int, change: Matrix) -> None:
    """Add 1/n of a change to each of n rows."""
    for j in range(n):
        v = V[near[j]]
        for i in range(len(change)):
            v[i] += change[i] / n


@loop
def cbow(chunk: Chunk, negative: int, table: NDArray[np.int64]) -> None:
    """CBOW with negative sampling: the mean of the words near a centre against the centre and noise."""
    words, V, U, keep, window, dynamic, first_rate, decay, random, loss = chunk
    kept = subsample(words, keep, random)
    count, work = len(kept), workspace(1, negative + 1, V.shape[1])
    near, outputs = np.empty(2 * window, np.int32), np.empty(negative + 1, np.int32)
    middle, change = np.empty((1, V.shape[1]), np.float32), np.empty((1, V.shape[1]), np.float32)
    for position in range(count):
        if kept[position] < 0:
            continue
        m = sample_noise(kept[position], table, random, outputs)
        for k in range(m):
            prefetch_row(U, outputs[k])
        n = neighbours(kept, position, window, dynamic, random, near)
        rate = f32(first_rate - decay * position / count)
        if n:
            mean(V, near, n, middle[0])
            change[:] = 0
            update(middle, work.order, 1, U, outputs, m, rate, change, work.order, work)
            add_shares(V, near, n, change[0])
            if position % LOSS_EVERY == 0:
                add_loss(work.weights, 1, m, rate, loss)


@loop
def softmax_step(h: Matrix, targets: Words, n: int, U: Matrix, rate: float, change: Matrix, weights: Matrix) -> Any:
    """Make a gradient step on −Σ_o log P(o | h) over n target words, P the exact softmax; return the loss.

    P(w | h) = exp(u_w · h) / Σ_w' exp(u_w' · h),   g_w = η (count of w in the targets − n P(w | h))
    u_w ← u_w + g_w h,   and Σ_w g_w u_w is written to ``change``
    """
    top = -np.inf
    for w in range(len(U)):
        score = h[0] * U[w, 0]
        for i in range(1, len(h)):
            score += h[i] * U[w, i]
        weights[w] = score
        top = max(top, score)
    total, loss = 0.0, 0.0
    for k in range(n):
        loss -= weights[targets[k]] - top
    for w in range(len(U)):
        weights[w] = np.exp(weights[w] - top)
        total += weights[w]
    for w in range(len(U)):
        weights[w] *= -rate * n / total
    for k in range(n):
        weights[targets[k]] += rate
    change[:] = 0
    for w in range(len(U)):
        g = weights[w]
        for i in range(len(h)):
            change[i] += g * U[w, i]
            U[w, i] += g * h[i]
    return loss + n * np.log(total)


@loop
def softmax_skipgram(chunk: Chunk) -> None:
    """Skip-gram with the exact softmax: each centre predicts the words near it."""
    V, U = chunk.V, chunk.U
    kept, near = subsample(chunk.words, chunk.keep, chunk.random), np.empty(2 * chunk.window, np.int32)
    change, weights = np.empty(V.shape[1], V.dtype), np.empty(len(U), V.dtype)
    for position in range(len(kept)):
        centre = kept[position]
        if centre < 0:
            continue
        n = neighbours(kept, position, chunk.window, chunk.dynamic, chunk.random, near)
        if n:
            rate = chunk.rate - chunk.decay * position / len(kept)
            chunk.loss[0] += softmax_step(V[centre], near, n, U, rate, change, weights)
            chunk.loss[1] += n
            V[centre] += change


@loop
def softmax_cbow(chunk: Chunk) -> None:
    """CBOW with the exact softmax: the mean of the words near a centre predicts it."""
    V, U = chunk.V, chunk.U
    kept, near = subsample(chunk.words, chunk.keep, chunk.random), np.empty(2 * chunk.window, np.int32)
    middle, change, weights = np.empty(V.shape[1], V.dtype), np.empty(V.shape[1], V.dtype), np.empty(len(U), V.dtype)
    for position in range(len(kept)):
        if kept[position] < 0:
            continue
        n = neighbours(kept, position, chunk.window, chunk.dynamic, chunk.random, near)
        if n:
            mean(V, near, n, middle)
            rate = chunk.rate - chunk.decay * position / len(kept)
            chunk.loss[0] += softmax_step(middle, kept[position : position + 1], 1, U, rate, change, weights)
            chunk.loss[1] += 1
            add_shares(V, near, n, change)
