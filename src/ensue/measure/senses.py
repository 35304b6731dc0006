"""Nearest-neighbour accuracy of word senses: does the nearest context have the same sense?

    accuracy = 1/N Σ_i (the share, among the contexts nearest to i, of those with the sense of i)

Similarity is the cosine, with leave-one-out. Ties share the answer, so static word vectors, which are equal in all
contexts, have exactly the accuracy of chance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ensue.core.errors import InputError

TOLERANCE = 1e-6
"""Cosines that differ by less are tied."""


@dataclass(frozen=True)
class SenseScore:
    """Nearest-neighbour accuracy of senses."""

    accuracy: float
    chance: float
    """The accuracy of a random neighbour."""
    identical: bool
    """True if all vectors are equal, so that they do not depend on the context."""


def similarities(vectors: np.ndarray) -> np.ndarray:
    """Cosines between vectors (N, D), with −∞ on the diagonal: (N, N)."""
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    cosines: np.ndarray = unit.astype(np.float64) @ unit.T.astype(np.float64)
    np.fill_diagonal(cosines, -np.inf)
    return cosines


def sense_score(vectors: np.ndarray, senses: Sequence[str]) -> SenseScore:
    """How often the nearest of context vectors (N, D) has the same sense.

    >>> points = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
    >>> sense_score(points, ["river", "river", "money", "money"]).accuracy
    1.0
    """
    if len(vectors) < 2 or len(set(senses)) < 2:
        raise InputError("two senses or more are needed", hint="put a sense and a tab before each sentence")
    near = similarities(vectors)
    same = np.array([[a == b for b in senses] for a in senses])
    nearest = near >= near.max(1, keepdims=True) - TOLERANCE
    right = (nearest & same).sum(1) / nearest.sum(1)
    counts, total = Counter(senses), len(senses)
    chance = sum(count * (count - 1) for count in counts.values()) / (total * (total - 1))
    unlike = np.abs(vectors - vectors[0]).max() > TOLERANCE * max(1e-12, float(np.abs(vectors).max()))
    return SenseScore(float(right.mean()), chance, not bool(unlike))
