"""The rotation of queries and keys by their positions, compiled by numba on first use and kept on disk.

Legend: M tokens of all rows, W width, R width of what is rotated, d head width. A loop is given ``a``, the row of
numbers that ``ensue.kernels.threads.run`` makes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray

from ensue.kernels.compile import exact_loop, next_chunk, pointer
from ensue.kernels.threads import PART

f32 = np.float32


@exact_loop
def rotate(a: Any) -> None:
    """The first R columns of x (M, W) rotated, or rotated back; cos and sin have d columns, of two equal halves.

    With ``apart`` token m has the angles m mod ``apart``, else m.
    """
    M, W, R, d, apart, back = a[1], a[2], a[3], a[4], a[5], a[6]
    x, y = carray(pointer(a[7]), (M, W), np.float32), carray(pointer(a[10]), (M, W), np.float32)
    many = apart if apart else M
    cosines, sines = carray(pointer(a[8]), (many, d), np.float32), carray(pointer(a[9]), (many, d), np.float32)
    half, sign = d // 2, f32(-1) if back else f32(1)
    start = next_chunk(a) * PART
    while start < M:
        for m in range(start, min(start + PART, M)):
            cos, sin = cosines[m % many], sines[m % many]
            for first in range(0, R, d):
                left, right = x[m, first : first + half], x[m, first + half : first + d]
                new_left, new_right = y[m, first : first + half], y[m, first + half : first + d]
                for j in range(half):
                    c, s = cos[j], sign * sin[j]
                    new_left[j] = left[j] * c - right[j] * s
                    new_right[j] = right[j] * c + left[j] * s
            for j in range(R, W):
                y[m, j] = x[m, j]
        start = next_chunk(a) * PART
