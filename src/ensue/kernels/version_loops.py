"""Compares versions of dicts with those remembered."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray

from ensue.kernels.compile import loop, pointer


@loop
def compare_versions(a: Any) -> None:
    """Count in ``a[0]`` which of ``a[1]`` versions, whose addresses are at ``a[2]``, differ from those at ``a[3]``."""
    N = a[1]
    addresses, known = carray(pointer(a[2]), (N,), np.int64), carray(pointer(a[3]), (N,), np.int64)
    different = 0
    for n in range(N):
        different += carray(pointer(addresses[n]), (1,), np.int64)[0] != known[n]
    a[0] = different
