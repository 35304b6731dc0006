"""pass@k: the probability that at least one of k programs is right (Chen et al., 2021).

    pass@k = 1 − C(n − c, k) / C(n, k)        n programs drawn, c of them right, 1 ≤ k ≤ n

This is unbiased; 1 − (1 − c/n)^k is too low. The figure of a data set is the mean over its problems.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, sqrt

from ensue.core.errors import InputError

Z = 1.959963984540054
"""Standard normal quantile of a 95 % interval."""


@dataclass(frozen=True, slots=True)
class PassRate:
    """The mean pass@k over problems, its standard error and its 95 % interval."""

    k: int
    value: float
    error: float
    low: float
    high: float


def pass_at_k(n: int, c: int, k: int) -> float:
    """The unbiased estimate of pass@k from n programs of which c are right.

    >>> pass_at_k(5, 2, 1), pass_at_k(5, 2, 2)
    (0.4, 0.7)
    """
    if not 1 <= k <= n:
        raise InputError(f"pass@{k} needs at least {max(k, 1)} samples of a problem, not {n}")
    return 1 - comb(n - c, k) / comb(n, k)


def mean_pass_rate(counts: Sequence[tuple[int, int]], k: int) -> PassRate:
    """The mean pass@k of problems, given as (n, c)."""
    values = [pass_at_k(n, c, k) for n, c in counts]
    value = sum(values) / len(values)
    variance = sum((one - value) ** 2 for one in values) / max(1, len(values) - 1)
    return PassRate(k, value, sqrt(variance / len(values)), *wilson(value, len(values)))


def wilson(mean: float, n: int) -> tuple[float, float]:
    """The 95 % score interval of a mean of n values between 0 and 1 (Wilson, 1927).

    The variance is that of values that are 0 or 1; for others the interval is too wide. It also works for a mean of 0.

    >>> [round(bound, 3) for bound in wilson(0.5, 100)]
    [0.404, 0.596]
    """
    centre, spread = mean + Z**2 / (2 * n), Z * sqrt(mean * (1 - mean) / n + Z**2 / (4 * n**2))
    low, high = ((centre + sign * spread) / (1 + Z**2 / n) for sign in (-1, 1))
    return max(0.0, low), min(1.0, high)
