"""Intervals and tests for small samples.

Wilson        of a share k/n: (p + z²/2n ± z √(p(1−p)/n + z²/4n²)) / (1 + z²/n)
Student       of a mean of a few values: m ± t s/√n
bootstrap     of a mean: quantiles of the means of resampled values
permutation   p = (1 + shuffles with a difference at least as large) / (1 + shuffles); values are shuffled within
              strata, so that what differs between strata does not count
Holm          p-values of several tests, adjusted so that one false finding among all has the stated chance
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

Z = 1.959964
"""The 97.5 % quantile of the normal distribution."""
STUDENT = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281)
"""The 97.5 % quantiles of Student's t with 1, 2 … degrees of freedom."""


def wilson(successes: float, n: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson, 1927).

    >>> low, high = wilson(56, 100)
    >>> round(low, 3), round(high, 3)
    (0.462, 0.653)
    """
    if n == 0:
        return 0.0, 1.0
    p = successes / n
    middle = p + Z**2 / (2 * n)
    half = Z * math.sqrt(p * (1 - p) / n + Z**2 / (4 * n * n))
    scale = 1 + Z**2 / n
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


def student_quantile(degrees: int) -> float:
    """The 97.5 % quantile of Student's t.

    >>> student_quantile(5), round(student_quantile(40), 3)
    (2.5706, 2.021)
    """
    if degrees <= len(STUDENT):
        return STUDENT[degrees - 1]
    g1, g2 = (Z**3 + Z) / 4, (5 * Z**5 + 16 * Z**3 + 3 * Z) / 96
    return Z + g1 / degrees + g2 / degrees**2


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean of a few values, and its 95 % interval by Student's t; one value has an infinite interval."""
    array = np.asarray(values, float)
    mean = float(array.mean())
    if len(array) < 2:
        return mean, -math.inf, math.inf
    half = student_quantile(len(array) - 1) * float(array.std(ddof=1)) / math.sqrt(len(array))
    return mean, mean - half, mean + half


def bootstrap_mean(values: np.ndarray, *, samples: int = 2000, seed: int = 0) -> tuple[float, float]:
    """The 95 % bootstrap interval of the mean of values (N,).

    The resampled means are spread by √(N/(N−1)) around the mean, which removes the bias of small samples.
    """
    n, random = len(values), np.random.default_rng(seed)
    if n < 2:
        return -math.inf, math.inf
    weights = random.multinomial(n, np.full(n, 1 / n), size=samples)
    mean = float(values.mean())
    means = mean + (weights @ values / n - mean) * math.sqrt(n / (n - 1))
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def shuffled_within(strata: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Indices that shuffle values (N,) within strata (N,) of whole numbers."""
    places = np.argsort(strata, kind="stable")
    drawn = np.argsort(strata + random.random(len(strata)), kind="stable")
    order = np.empty(len(strata), np.int64)
    order[places] = drawn
    return order


def permutation_p(
    values: np.ndarray, groups: np.ndarray, strata: np.ndarray, *, samples: int = 2000, seed: int = 0
) -> np.ndarray:
    """For each group, the two-sided p of its mean against that of all others: (G,).

    ``groups`` (N,) are numbers from 0, ``strata`` (N,) too.
    """
    members = np.eye(int(groups.max()) + 1)[groups]  # (N, G)
    random = np.random.default_rng(seed)
    observed = np.abs(_differences(values, members))
    count = np.zeros(members.shape[1])
    for _ in range(samples):
        shuffled = values[shuffled_within(strata, random)]
        count += np.abs(_differences(shuffled, members)) >= observed - 1e-12
    return np.asarray((1 + count) / (1 + samples))


def _differences(values: np.ndarray, members: np.ndarray) -> np.ndarray:
    """The mean of each group minus that of all others, (G,)."""
    sizes, sums = members.sum(0), values @ members
    others = len(values) - sizes
    return np.asarray(sums / sizes - (values.sum() - sums) / np.maximum(others, 1))


def holm(p: Sequence[float]) -> list[float]:
    """p-values adjusted for their number (Holm, 1979), in their order.

    >>> [round(value, 4) for value in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    adjusted, worst = [0.0] * len(p), 0.0
    for rank, index in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        worst = max(worst, min(1.0, (len(p) - rank) * p[index]))
        adjusted[index] = worst
    return adjusted
