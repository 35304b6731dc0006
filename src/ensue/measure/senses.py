"""Whether the contexts of a word part by its senses: does a context's nearest neighbour have the same sense?

    accuracy = 1/N Σ_i (the share, among the contexts nearest to i, of those with the sense of i)

Nearness is the cosine, each context is looked up among all others (leave one out), and contexts that are equally near
share the answer: so a table of word vectors, whose vector of a word is the same everywhere, has exactly what chance
has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ensue.core.errors import InputError

SAME = 1e-6
"""Cosines that differ by less are the same."""


@dataclass(frozen=True)
class SenseScore:
    """What neighbours show."""

    accuracy: float
    chance: float
    """The accuracy of a neighbour that is taken at random."""
    identical: bool
    """Whether all vectors are the same: then nothing of the context is in them."""


def similarities(vectors: np.ndarray) -> np.ndarray:
    """Cosines between vectors (N, D), with −∞ for each and itself: (N, N)."""
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    found: np.ndarray = unit.astype(np.float64) @ unit.T.astype(np.float64)
    np.fill_diagonal(found, -np.inf)
    return found


def sense_score(vectors: np.ndarray, senses: Sequence[str]) -> SenseScore:
    """How often a neighbour has the same sense, of contexts (N, D).

    >>> points = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
    >>> sense_score(points, ["river", "river", "money", "money"]).accuracy
    1.0
    """
    if len(vectors) < 2 or len(set(senses)) < 2:
        raise InputError("two senses or more are needed", hint="put a sense and a tab before each sentence")
    near = similarities(vectors)
    same = np.array([[a == b for b in senses] for a in senses])
    nearest = near >= near.max(1, keepdims=True) - SAME
    right = (nearest & same).sum(1) / nearest.sum(1)
    counts, total = Counter(senses), len(senses)
    chance = sum(count * (count - 1) for count in counts.values()) / (total * (total - 1))
    unlike = np.abs(vectors - vectors[0]).max() > SAME * max(1e-12, float(np.abs(vectors).max()))
    return SenseScore(float(right.mean()), chance, not bool(unlike))
