"""What the machine can do at its best: products of matrices and passes over memory, measured at the start of a run.

A speed in tokens a second says little by itself. Work that cannot be done without so many FLOPs, or without reading so
many bytes, has a limit here; its share of that limit says how much is left to gain.

python -m benchmarks.machine
"""

from __future__ import annotations

import time
from functools import cache
from typing import NamedTuple

import torch

TRIES = 5


class Limits(NamedTuple):
    """The best of a few tries, with the threads that torch has."""

    flops: float
    """FLOP/s of a product of float32 matrices of 2048 × 2048."""
    bandwidth: float
    """Bytes a second that are read where 256 MB are summed."""


@cache
def limits() -> Limits:
    """Measure both, a second or so."""
    size = 2048
    a, b, c = torch.randn(size, size), torch.randn(size, size), torch.empty(size, size)
    product = min(_timed(lambda: torch.mm(a, b, out=c)) for _ in range(TRIES))
    wide = torch.ones(1 << 26)
    read = min(_timed(wide.sum) for _ in range(TRIES))
    return Limits(2 * size**3 / product, wide.nbytes / read)


def _timed(work: object) -> float:
    assert callable(work)
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


if __name__ == "__main__":
    found = limits()
    print(f"{found.flops / 1e9:.0f} GFLOP/s, {found.bandwidth / 1e9:.1f} GB/s, {torch.get_num_threads()} threads")
