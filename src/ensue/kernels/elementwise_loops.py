"""The loops themselves, compiled by numba on first use and kept on disk: dropout masks, residual path and layer
norm, RMSNorm, bias and relu. Gelu, softmax and attention have files of their own.

    z_i = mix(seed + i γ),  γ the odd number next to 2⁶⁴ / golden ratio            (SplitMix64: Steele et al., 2014)

Random bits depend on the seed and their position alone. So the backward pass draws them again, and no mask is stored.
Each byte decides about one unit.

Legend: M rows, D width. A loop is given ``a``, the row of numbers that ``ensue.kernels.threads.run`` makes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray
from numpy.typing import NDArray

from ensue.kernels.compile import inner, loop, next_chunk, pointer
from ensue.kernels.threads import PART

GAMMA, FIRST, SECOND = (np.uint64(number) for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))

Floats = NDArray[np.float32]
f32 = np.float32


@inner
def random_words(words: NDArray[np.uint64], seed: int, first: int) -> None:
    """Words ``first`` … of a seed."""
    for i in range(len(words)):
        z = np.uint64(seed) + np.uint64(first + i + 1) * GAMMA
        z = (z ^ (z >> np.uint64(30))) * FIRST
        z = (z ^ (z >> np.uint64(27))) * SECOND
        words[i] = z ^ (z >> np.uint64(31))


@loop
def masks(a: Any) -> None:
    """m / (1 − p), (M, D): 0 with probability ``off`` / 256."""
    M, D, seed, off = a[1], a[2], a[3], np.uint8(a[4])
    mask = carray(pointer(a[5]), (M, D), np.float32)
    on = f32(256 / (256 - a[4]))
    words = np.empty((D + 7) // 8, np.uint64)
    bytes_ = words.view(np.uint8)
    start = next_chunk(a) * PART
    while start < M:
        for r in range(start, min(start + PART, M)):
            random_words(words, seed, r * len(words))
            for i in range(D):
                mask[r, i] = on if bytes_[i] >= off else f32(0)
        start = next_chunk(a) * PART


@inner
def moments(x: Floats, epsilon: float, centred: bool) -> Any:
    """mean x and 1 / √(var x + ε) of a row; uncentred 0 and 1 / √(mean x² + ε)."""
    total, square = f32(0), f32(0)
    if centred:
        for i in range(len(x)):
            total += x[i]
    mean = total / f32(len(x))
    for i in range(len(x)):
        square += (x[i] - mean) * (x[i] - mean)
    return mean, f32(1) / np.sqrt(square / f32(len(x)) + epsilon)


@loop
def add_norm(a: Any) -> None:
    """z = LN(x + y ∘ m); n and 1 / √(var s + ε) for the backward pass."""
    M, D, seed, off = a[1], a[2], a[3], np.uint8(a[4])
    x, y = carray(pointer(a[5]), (M, D), np.float32), carray(pointer(a[6]), (M, D), np.float32)
    weight, bias = carray(pointer(a[7]), (D,), np.float32), carray(pointer(a[8]), (D,), np.float32)
    epsilon = carray(pointer(a[9]), (1,), np.float32)[0]
    z, normal = carray(pointer(a[10]), (M, D), np.float32), carray(pointer(a[11]), (M, D), np.float32)
    scale = carray(pointer(a[12]), (M,), np.float32)
    on = f32(256 / (256 - a[4]))
    words, s = np.empty((D + 7) // 8, np.uint64), np.empty(D, np.float32)
    bytes_ = words.view(np.uint8)
    start = next_chunk(a) * PART
    while start < M:
        for r in range(start, min(start + PART, M)):
            random_words(words, seed, r * len(words))
            for i in range(D):
                s[i] = x[r, i] + (y[r, i] * on if bytes_[i] >= off else f32(0))
            mean, scale[r] = moments(s, epsilon, True)
            for i in range(D):
                normal[r, i] = (s[i] - mean) * scale[r]
                z[r, i] = normal[r, i] * weight[i] + bias[i]
        start = next_chunk(a) * PART


@inner
def norm_sums(by_z: Floats, normal: Floats, weight: Floats, by_weight: Floats, by_bias: Floats) -> Any:
    """Add a row's share of ∂γ and ∂β; mean ∂n and mean(∂n ∘ n)."""
    plain, along = f32(0), f32(0)
    for i in range(len(by_z)):
        by_weight[i] += by_z[i] * normal[i]
        by_bias[i] += by_z[i]
        plain += by_z[i] * weight[i]
        along += by_z[i] * weight[i] * normal[i]
    return plain / f32(len(by_z)), along / f32(len(by_z))


@loop
def add_norm_backward(a: Any) -> None:
    """∂x, ∂y, and ∂γ and ∂β of each chunk, (chunks, 2, D)."""
    M, D, seed, off = a[1], a[2], a[3], np.uint8(a[4])
    by_z, normal = carray(pointer(a[5]), (M, D), np.float32), carray(pointer(a[6]), (M, D), np.float32)
    scale, weight = carray(pointer(a[7]), (M,), np.float32), carray(pointer(a[8]), (D,), np.float32)
    by_x, by_y = carray(pointer(a[9]), (M, D), np.float32), carray(pointer(a[10]), (M, D), np.float32)
    sums = carray(pointer(a[11]), ((M + PART - 1) // PART, 2, D), np.float32)
    on = f32(256 / (256 - a[4]))
    words = np.empty((D + 7) // 8, np.uint64)
    bytes_ = words.view(np.uint8)
    chunk = next_chunk(a)
    while chunk * PART < M:
        sums[chunk] = f32(0)
        for r in range(chunk * PART, min((chunk + 1) * PART, M)):
            random_words(words, seed, r * len(words))
            plain, along = norm_sums(by_z[r], normal[r], weight, sums[chunk, 0], sums[chunk, 1])
            for i in range(D):
                by = (by_z[r, i] * weight[i] - plain - normal[r, i] * along) * scale[r]
                by_x[r, i] = by
                by_y[r, i] = by * on if bytes_[i] >= off else f32(0)
        chunk = next_chunk(a)


@loop
def rms_norm(a: Any) -> None:
    """z = x / √(mean x² + ε) ∘ γ, (M, D), and 1 / √(mean x² + ε) for the backward pass."""
    M, D = a[1], a[2]
    x, weight = carray(pointer(a[3]), (M, D), np.float32), carray(pointer(a[4]), (D,), np.float32)
    epsilon = carray(pointer(a[5]), (1,), np.float32)[0]
    z, scale = carray(pointer(a[6]), (M, D), np.float32), carray(pointer(a[7]), (M,), np.float32)
    start = next_chunk(a) * PART
    while start < M:
        for r in range(start, min(start + PART, M)):
            _, by = moments(x[r], epsilon, False)
            scale[r] = by
            for i in range(D):
                z[r, i] = x[r, i] * by * weight[i]
        start = next_chunk(a) * PART


@loop
def rms_norm_backward(a: Any) -> None:
    """∂x, and ∂γ of each chunk, (chunks, D)."""
    M, D = a[1], a[2]
    by_z, x = carray(pointer(a[3]), (M, D), np.float32), carray(pointer(a[4]), (M, D), np.float32)
    scale, weight = carray(pointer(a[5]), (M,), np.float32), carray(pointer(a[6]), (D,), np.float32)
    by_x = carray(pointer(a[7]), (M, D), np.float32)
    sums = carray(pointer(a[8]), ((M + PART - 1) // PART, D), np.float32)
    chunk = next_chunk(a)
    while chunk * PART < M:
        total = sums[chunk]
        total[:] = f32(0)
        for r in range(chunk * PART, min((chunk + 1) * PART, M)):
            above, row, to, by, along = by_z[r], x[r], by_x[r], scale[r], f32(0)
            for i in range(D):
                share = above[i] * row[i]
                total[i] += share * by
                along += share * weight[i]
            along = along * by * by / f32(D)
            for i in range(D):
                to[i] = (above[i] * weight[i] - row[i] * along) * by
        chunk = next_chunk(a)


@loop
def add_relu(a: Any) -> None:
    """max(v + b, 0), written over v (M, D)."""
    M, D = a[1], a[2]
    v, bias = carray(pointer(a[3]), (M, D), np.float32), carray(pointer(a[4]), (D,), np.float32)
    start = next_chunk(a) * PART
    while start < M:
        for r in range(start, min(start + PART, M)):
            for i in range(D):
                u = v[r, i] + bias[i]
                v[r, i] = f32(0) if u < f32(0) else u  # NaN stays NaN
        start = next_chunk(a) * PART


@loop
def relu_backward(a: Any) -> None:
    """∂u, written over ∂h (M, D), and its sum over each chunk, (chunks, D)."""
    M, D = a[1], a[2]
    by, h = carray(pointer(a[3]), (M, D), np.float32), carray(pointer(a[4]), (M, D), np.float32)
    sums = carray(pointer(a[5]), ((M + PART - 1) // PART, D), np.float32)
    chunk = next_chunk(a)
    while chunk * PART < M:
        sums[chunk] = f32(0)
        for r in range(chunk * PART, min((chunk + 1) * PART, M)):
            for i in range(D):
                by_u = f32(0) if h[r, i] <= f32(0) else by[r, i]
                by[r, i] = by_u
                sums[chunk, i] += by_u
        chunk = next_chunk(a)
