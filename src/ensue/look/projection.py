"""Projections to two dimensions: principal components and t-SNE.

Principal components are the directions of the largest variance. The projection never increases a distance, and keeps
parallel lines parallel. t-SNE (van der Maaten and Hinton, 2008) keeps neighbours together instead:

    p_j|i = exp(−‖x_i − x_j‖² β_i) / Σ_k≠i exp(−‖x_i − x_k‖² β_i)      β_i set by the perplexity
    p_ij  = (p_j|i + p_i|j) / 2n
    q_ij  = (1 + ‖y_i − y_j‖²)⁻¹ / Σ_k≠l (1 + ‖y_k − y_l‖²)⁻¹
    C     = Σ p_ij log p_ij / q_ij
    ∂C/∂y_i = 4 Σ_j (p_ij − q_ij)(1 + ‖y_i − y_j‖²)⁻¹ (y_i − y_j)

It is computed exactly, over all pairs, and starts from the principal components, so it is deterministic.

Legend: n points, D width.
"""

from __future__ import annotations

import numpy as np

from ensue.core.errors import InputError

MAX_POINTS = 3000
"""The most points for t-SNE, whose tables have n² numbers."""
EXAGGERATED_STEPS, EXAGGERATION = 250, 12.0
"""In the first steps all p are multiplied by this factor, so that clusters form."""
TINY = 1e-12


def principal(points: np.ndarray, kept: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """The first principal components of points (n, D) → (n, kept), and each one's share of the variance.

    Missing components are zeros. The largest coordinate of each component is positive, which fixes its sign.
    """
    if not np.isfinite(points).all():
        raise InputError("vectors have values that are not finite", hint="the weights may be damaged")
    centred = points - points.mean(0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    components = (left * sizes)[:, :kept]
    components *= np.where(components[np.abs(components).argmax(0), np.arange(components.shape[1])] < 0, -1, 1)
    variance = sizes**2
    shares = variance[:kept] / max(variance.sum(), TINY)
    missing = kept - components.shape[1]
    return np.pad(components, ((0, 0), (0, missing))), np.pad(shares, (0, missing))


def tsne(points: np.ndarray, perplexity: float = 30.0, steps: int = 750) -> tuple[np.ndarray, float]:
    """Points (n, D) in two dimensions, (n, 2), and C.

    The perplexity, roughly the number of neighbours of a point, is limited by the number of points.
    """
    n = len(points)
    if n > MAX_POINTS:
        raise InputError(f"t-SNE of {n:,} words takes too long", hint=f"choose at most {MAX_POINTS:,}, or --method pca")
    if n < 4:
        raise InputError(f"t-SNE needs more than {n} words", hint="choose 4 or more, or --method pca")
    p = joint_probabilities(points, min(perplexity, (n - 1) / 3))
    y = principal(points)[0]
    y = 1e-4 * y / max(float(y[:, 0].std()), TINY)
    rate = max(n / EXAGGERATION / 4, 50.0)
    move, gain = np.zeros_like(y), np.ones_like(y)
    for step in range(steps):
        early = step < EXAGGERATED_STEPS
        slope = gradient(p * (EXAGGERATION if early else 1.0), y)
        # faster in a constant direction, slower after a change of direction
        gain = np.maximum(np.where(slope * move < 0, gain + 0.2, gain * 0.8), 0.01)
        move = (0.5 if early else 0.8) * move - rate * gain * slope
        y = y + move
    return y - y.mean(0), divergence(p, y)


def joint_probabilities(points: np.ndarray, perplexity: float) -> np.ndarray:
    """p_ij of points (n, D) at a perplexity: (n, n), with a sum of 1."""
    distances = _squared_distances(points)
    n = len(points)
    p = np.zeros((n, n))
    for i in range(n):
        others = np.delete(distances[i], i)
        p[i, np.arange(n) != i] = _conditional(others - others.min(), np.log(perplexity))
    joint: np.ndarray = np.maximum((p + p.T) / (2 * n), TINY)
    np.fill_diagonal(joint, 0.0)
    return joint


def _conditional(distances: np.ndarray, entropy: float) -> np.ndarray:
    """p_j|i from the squared distances to all others, with the β that gives this entropy, by bisection."""
    low, high, beta = 0.0, np.inf, 1.0 / max(float(distances.mean()), TINY)
    for _ in range(100):
        weights = np.exp(-distances * beta)
        total = weights.sum()
        current = np.log(total) + beta * float(distances @ weights) / total
        if abs(current - entropy) < 1e-7:
            break
        if current > entropy:
            low, beta = beta, (beta * 2 if high == np.inf else (beta + high) / 2)
        else:
            high, beta = beta, (beta + low) / 2
    p: np.ndarray = weights / total
    return p


def gradient(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    """∂C/∂y, (n, 2)."""
    closeness = _closeness(y)
    pull = (p - np.maximum(closeness / closeness.sum(), TINY)) * closeness
    slope: np.ndarray = 4 * (pull.sum(1, keepdims=True) * y - pull @ y)
    return slope


def divergence(p: np.ndarray, y: np.ndarray) -> float:
    """C, the Kullback–Leibler divergence of q from p, in nats."""
    closeness = _closeness(y)
    q = np.maximum(closeness / closeness.sum(), TINY)
    return float((p * np.log(np.maximum(p, TINY) / q)).sum())


def _closeness(y: np.ndarray) -> np.ndarray:
    """(1 + ‖y_i − y_j‖²)⁻¹, with zeros on the diagonal."""
    closeness: np.ndarray = 1 / (1 + _squared_distances(y))
    np.fill_diagonal(closeness, 0.0)
    return closeness


def _squared_distances(points: np.ndarray) -> np.ndarray:
    squares = (points**2).sum(1)
    distances: np.ndarray = np.maximum(squares[:, None] + squares[None] - 2 * points @ points.T, 0.0)
    return distances
