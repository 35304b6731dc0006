"""The loops of word2vec, compiled by numba on first use and kept on disk.

One window of skip-gram with negative sampling is a small product of matrices. The n words near a centre are rows v_j,
the centre and the K words drawn as noise are rows u_k, and all n words share the noise (Ji et al., 2016), so that every
row is fetched once and stays in the cache:

    p_jk = σ(v_j · u_k),   g_jk = η (y_k − p_jk),   y = 1 for the centre, 0 for noise
    u_k ← u_k + Σ_j g_jk v_j,   v_j ← v_j + Σ_k g_jk u_k           (both with the rows as they were)

CBOW is the same with one row, the mean of the v_j, whose gradient each v_j gets an nth of. The loops of the exact
softmax go over the whole vocabulary for every centre, and take either precision.

A stream of words has −1 where a window may not reach on. All loops stand in one file because a compiled function is
kept on disk until its own file changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core.cgutils import get_or_insert_function
from numba.extending import intrinsic
from numpy.typing import NDArray

from ensue.core.compile_notice import watch

watch()

OPTIONS: dict[str, Any] = {
    "cache": True,
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"reassoc", "contract", "nsz", "arcp"},
}
"""Threads run beside each other; sums may be taken in any order, or they would go number by number."""
TOLD_EVERY = 16
"""The loss is summed over one window of so many: logarithms take their time."""
WHOLE = 1 << 31
"""A threshold of so much is a probability of one."""
LINE = 64
"""Bytes that come from memory at once."""

Matrix = NDArray[Any]
Words = NDArray[np.int32]
Random = NDArray[np.uint64]

f32, u64 = np.float32, np.uint64
LOG2_E = f32(math.log2(math.e))
C1, C2, C3, C4, C5, C6 = (f32(math.log(2) ** k / math.factorial(k)) for k in range(1, 7))
"""The series of 2^f; on |f| ≤ ½ what is left out is below the precision of single numbers."""


def loop(function: Callable[..., Any]) -> Any:
    """Compile a loop."""
    return numba.njit(**OPTIONS)(function)


@intrinsic  # type: ignore[untyped-decorator]
def prefetch(context: Any, matrix: Any, row: Any, byte: Any) -> Any:
    """Ask for the bytes of a row before they are needed."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        whole, small, pointer = ir.IntType(64), ir.IntType(32), ir.IntType(8).as_pointer()
        begin = builder.mul(arguments[1], builder.extract_value(array.strides, 0))
        place = builder.add(builder.add(builder.ptrtoint(array.data, whole), begin), arguments[2])
        kind = ir.FunctionType(ir.VoidType(), [pointer, small, small, small])
        call = get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        how = [ir.Constant(small, value) for value in (0, 3, 1)]  # to read, keep it near, data
        builder.call(call, [builder.inttoptr(place, pointer), *how])
        return context.get_dummy_value()

    return types.void(matrix, types.int64, types.int64), make


@loop
def fetch(matrix: Matrix, row: int) -> None:
    """Ask for a whole row."""
    for byte in range(0, matrix.shape[1] * matrix.itemsize, LINE):
        prefetch(matrix, np.int64(row), np.int64(byte))


@loop
def draw(random: Random) -> Any:
    """64 random bits (xorshift64*, Vigna 2016)."""
    x = random[0]
    x ^= x >> u64(12)
    x ^= x << u64(25)
    x ^= x >> u64(27)
    random[0] = x
    return x * u64(0x2545F4914F6CDD1D)


@loop
def below(bits: Any, size: int) -> Any:
    """The upper half of random bits as a number from 0 to size − 1."""
    return np.int64(((bits >> u64(32)) * u64(size)) >> u64(32))


@loop
def thin(words: Words, keep: NDArray[np.int64], random: Random, kept: Words) -> Any:
    """Leave frequent words out by chance: word w stays with probability keep_w / 2³¹. How many places are left."""
    count = 0
    for word in words:
        if word < 0 or keep[word] >= WHOLE or np.int64(draw(random) >> u64(33)) < keep[word]:
            kept[count] = word
            count += 1
    return count


@loop
def company(kept: Words, count: int, place: int, reach: int, near: Words) -> Any:
    """The words at most ``reach`` places from one, up to the ends of its sentence; how many there are."""
    n = 0
    at = place - 1
    while at >= 0 and at >= place - reach and kept[at] >= 0:
        near[n] = kept[at]
        n, at = n + 1, at - 1
    at = place + 1
    while at < count and at <= place + reach and kept[at] >= 0:
        near[n] = kept[at]
        n, at = n + 1, at + 1
    return n


@loop
def noise(centre: int, negative: int, table: NDArray[np.int64], random: Random, outputs: Words) -> Any:
    """The centre, and words drawn as noise in one step each (Walker's alias method); how many there are.

    A row of the table is a threshold and, in its lower half, the word to take above it in place of its own. A drawn
    word that is the centre itself is left out.
    """
    outputs[0] = centre
    m = 1
    for _ in range(negative):
        bits = draw(random)
        word = below(bits, len(table))
        if np.int64(bits & u64(WHOLE - 1)) >= (table[word] >> 32):
            word = table[word] & (WHOLE - 1)
        if word != centre:
            outputs[m] = word
            m += 1
    return m


@loop
def products(inputs: Matrix, places: Words, n: int, rows: Matrix, m: int, scores: Matrix) -> None:
    """s_jk = v_j · u_k, in blocks of two by three, so that a number that is loaded is used more than once."""
    D = inputs.shape[1]
    for j in range(0, n, 2):
        v, w = inputs[places[j]], inputs[places[min(j + 1, n - 1)]]
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
    """σ(s) = 1 / (1 + 2^t), t = −s log₂ e, written over s: 2^t = 2^w 2^f, w whole, |f| ≤ ½.

    2^w has w in the exponent of its bits, so no library is called and the loop is done eight numbers at a time.
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
def add(row: Matrix, matrix: Matrix, places: Words, n: int, weights: Matrix, first: int, step: int) -> None:
    """row ← row + Σ_j weight_j · matrix_j, three rows at a time."""
    j = 0
    while j + 2 < n:
        a, b, c = matrix[places[j]], matrix[places[j + 1]], matrix[places[j + 2]]
        x, y, z = weights[first + j * step], weights[first + (j + 1) * step], weights[first + (j + 2) * step]
        for i in range(len(row)):
            row[i] += x * a[i] + y * b[i] + z * c[i]
        j += 3
    while j < n:
        a, x = matrix[places[j]], weights[first + j * step]
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
    places: Words,
    rows: Matrix,
    order: Words,
    weights: Matrix,
    bits: Words,
) -> None:
    """One step down the loss of a window: the equations above.

    Row ``near_j`` of ``inputs`` is v_j, and its step goes to row ``places_j`` of ``into``. The other arrays are room to
    work in: ``rows`` (m, D), ``order`` 0, 1 …, ``weights`` and ``bits`` (n m), in which the g_jk are left.
    """
    for k in range(m):
        row, u = rows[k], U[outputs[k]]
        for i in range(len(u)):
            row[i] = u[i]
    products(inputs, near, n, rows, m, weights)
    logistic(weights, n * m, bits)
    for j in range(n):
        weights[j * m] -= f32(1)
    for at in range(n * m):
        weights[at] *= -rate
    for k in range(m):
        add(U[outputs[k]], inputs, near, n, weights, k, m)
    for j in range(n):
        add(into[places[j]], rows, order, m, weights, j * m, 1)


@loop
def tell(weights: Matrix, n: int, m: int, rate: float, told: Matrix) -> None:
    """Add to the loss what a window cost: −log of the probability of what is so, which is 1 − |g| / η."""
    for at in range(n * m):
        told[0] -= math.log(max(1 - abs(weights[at]) / rate, 1e-7))
    told[1] += n


@loop
def skipgram(
    words: Words,
    V: Matrix,
    U: Matrix,
    keep: NDArray[np.int64],
    table: NDArray[np.int64],
    window: int,
    dynamic: bool,
    negative: int,
    rate: float,
    fall: float,
    random: Random,
    told: Matrix,
) -> None:
    """Skip-gram over a stretch of words; the rate falls by ``fall`` on the way. ``told``: loss, pairs it is of."""
    kept = np.empty(len(words), np.int32)
    count = thin(words, keep, random, kept)
    most = 2 * window
    rows, order = np.empty((negative + 1, V.shape[1]), np.float32), np.arange(negative + 1).astype(np.int32)
    weights, bits = np.empty(most * (negative + 1), np.float32), np.empty(most * (negative + 1), np.int32)
    near, outputs, coming = np.empty(most, np.int32), np.empty(negative + 1, np.int32), np.empty(negative + 1, np.int32)
    m = next_m = 0
    for place in range(count):
        outputs, coming, m = coming, outputs, next_m
        if place + 1 < count and kept[place + 1] >= 0:  # what comes next is asked for while this is worked on
            next_m = noise(kept[place + 1], negative, table, random, coming)
            for k in range(next_m):
                fetch(U, coming[k])
            if place + window + 1 < count and kept[place + window + 1] >= 0:
                fetch(V, kept[place + window + 1])
        if kept[place] < 0:
            continue
        if place == 0:
            m = noise(kept[0], negative, table, random, outputs)
        reach = 1 + below(draw(random), window) if dynamic else window
        n = company(kept, count, place, reach, near)
        now = f32(rate - fall * place / count)
        if n:
            update(V, near, n, U, outputs, m, now, V, near, rows, order, weights, bits)
            if place % TOLD_EVERY == 0:
                tell(weights, n, m, now, told)


@loop
def mean(V: Matrix, near: Words, n: int, row: Matrix) -> None:
    """The mean of n rows."""
    row[:] = 0
    for j in range(n):
        v = V[near[j]]
        for i in range(len(row)):
            row[i] += v[i]
    for i in range(len(row)):
        row[i] /= n


@loop
def share(V: Matrix, near: Words, n: int, change: Matrix) -> None:
    """Give each of n rows an nth of a change."""
    for j in range(n):
        v = V[near[j]]
        for i in range(len(change)):
            v[i] += change[i] / n


@loop
def cbow(
    words: Words,
    V: Matrix,
    U: Matrix,
    keep: NDArray[np.int64],
    table: NDArray[np.int64],
    window: int,
    dynamic: bool,
    negative: int,
    rate: float,
    fall: float,
    random: Random,
    told: Matrix,
) -> None:
    """CBOW over a stretch of words: the mean of the words near a centre against the centre and noise."""
    kept = np.empty(len(words), np.int32)
    count = thin(words, keep, random, kept)
    rows, order = np.empty((negative + 1, V.shape[1]), np.float32), np.arange(negative + 1).astype(np.int32)
    weights, bits = np.empty(negative + 1, np.float32), np.empty(negative + 1, np.int32)
    near, outputs = np.empty(2 * window, np.int32), np.empty(negative + 1, np.int32)
    middle, change = np.empty((1, V.shape[1]), np.float32), np.empty((1, V.shape[1]), np.float32)
    for place in range(count):
        if kept[place] < 0:
            continue
        m = noise(kept[place], negative, table, random, outputs)
        for k in range(m):
            fetch(U, outputs[k])
        reach = 1 + below(draw(random), window) if dynamic else window
        n = company(kept, count, place, reach, near)
        now = f32(rate - fall * place / count)
        if n:
            mean(V, near, n, middle[0])
            change[:] = 0
            update(middle, order, 1, U, outputs, m, now, change, order, rows, order, weights, bits)
            share(V, near, n, change[0])
            if place % TOLD_EVERY == 0:
                tell(weights, 1, m, now, told)


@loop
def descend(h: Matrix, wanted: Words, n: int, U: Matrix, rate: float, change: Matrix, weights: Matrix) -> Any:
    """One step down −Σ_o log P(o | h) over the n words wanted, P the exact softmax; answers the loss.

    P(w | h) = exp(u_w · h) / Σ_w' exp(u_w' · h),   g_w = η (how often w is wanted − n P(w | h))
    u_w ← u_w + g_w h,   and Σ_w g_w u_w goes to ``change``
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
        loss -= weights[wanted[k]] - top
    for w in range(len(U)):
        weights[w] = np.exp(weights[w] - top)
        total += weights[w]
    for w in range(len(U)):
        weights[w] *= -rate * n / total
    for k in range(n):
        weights[wanted[k]] += rate
    change[:] = 0
    for w in range(len(U)):
        g = weights[w]
        for i in range(len(h)):
            change[i] += g * U[w, i]
            U[w, i] += g * h[i]
    return loss + n * np.log(total)


@loop
def softmax_skipgram(
    words: Words,
    V: Matrix,
    U: Matrix,
    keep: NDArray[np.int64],
    window: int,
    dynamic: bool,
    rate: float,
    fall: float,
    random: Random,
    told: Matrix,
) -> None:
    """Skip-gram by the exact softmax: each centre says which words are near it."""
    kept = np.empty(len(words), np.int32)
    count = thin(words, keep, random, kept)
    near = np.empty(2 * window, np.int32)
    change, weights = np.empty(V.shape[1], V.dtype), np.empty(len(U), V.dtype)
    for place in range(count):
        centre = kept[place]
        if centre < 0:
            continue
        reach = 1 + below(draw(random), window) if dynamic else window
        n = company(kept, count, place, reach, near)
        if n:
            told[0] += descend(V[centre], near, n, U, rate - fall * place / count, change, weights)
            told[1] += n
            V[centre] += change


@loop
def softmax_cbow(
    words: Words,
    V: Matrix,
    U: Matrix,
    keep: NDArray[np.int64],
    window: int,
    dynamic: bool,
    rate: float,
    fall: float,
    random: Random,
    told: Matrix,
) -> None:
    """CBOW by the exact softmax: the mean of the words near a centre says which it is."""
    kept = np.empty(len(words), np.int32)
    count = thin(words, keep, random, kept)
    near, centre = np.empty(2 * window, np.int32), np.empty(1, np.int32)
    middle, change, weights = np.empty(V.shape[1], V.dtype), np.empty(V.shape[1], V.dtype), np.empty(len(U), V.dtype)
    for place in range(count):
        centre[0] = kept[place]
        if kept[place] < 0:
            continue
        reach = 1 + below(draw(random), window) if dynamic else window
        n = company(kept, count, place, reach, near)
        if n:
            mean(V, near, n, middle)
            told[0] += descend(middle, centre, 1, U, rate - fall * place / count, change, weights)
            told[1] += 1
            share(V, near, n, change)
