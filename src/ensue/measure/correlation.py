"""Pearson and Spearman correlation.

    r = Σ_i (a_i − ā)(b_i − b̄) / √(Σ_i (a_i − ā)² · Σ_i (b_i − b̄)²)
    ρ = r of the ranks; equal numbers share their mean rank

GLUE scores STS-B by both.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ensue.core.errors import InputError

Numbers = Sequence[float] | np.ndarray


def pearson(a: Numbers, b: Numbers) -> float:
    """Pearson correlation, −1 to 1; 0.0 if a side is constant.

    >>> pearson([1, 2, 3], [2, 4, 6]), pearson([1, 2, 3], [5, 5, 5])
    (1.0, 0.0)
    """
    first, second = _checked(a, b)
    if (first == first[0]).all() or (second == second[0]).all():
        return 0.0
    first, second = _centred(first), _centred(second)
    return float(np.clip(first @ second / np.sqrt((first @ first) * (second @ second)), -1, 1))


def spearman(a: Numbers, b: Numbers) -> float:
    """Spearman correlation, −1 to 1; 0.0 if a side is constant.

    >>> spearman([1, 2, 3], [2, 40, 600]), spearman([1, 2, 3], [5, 5, 5])
    (1.0, 0.0)
    """
    first, second = _checked(a, b)
    return pearson(ranks(first), ranks(second))


def ranks(values: Numbers) -> np.ndarray:
    """The rank of each number, from 1; equal numbers share their mean rank.

    >>> ranks([10, 30, 20, 20]).tolist()
    [1.0, 4.0, 2.5, 2.5]
    """
    _, which, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean: np.ndarray = last - (counts - 1) / 2
    return mean[which]


def _checked(a: Numbers, b: Numbers) -> tuple[np.ndarray, np.ndarray]:
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if len(first) != len(second):
        raise InputError(f"{len(first)} numbers have {len(second)} to compare with", hint="give them in pairs")
    if not len(first):
        raise InputError("there are no numbers to compare")
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise InputError("numbers that are infinite or NaN have no correlation")
    return first, second


def _centred(values: np.ndarray) -> np.ndarray:
    """Subtract the mean, and scale by a power of two (exact), so that no square over- or underflows."""
    _, exponent = np.frexp(np.abs(values).max())
    scaled = np.ldexp(values, -exponent)
    return np.asarray(scaled - scaled.mean())
