"""What attention is equivalent to, shown in numbers: a recurrent network, a memory, a graph network, a smoother.

    linear-rnn   y_t = Σ_{s≤t} (φ(q_t)·φ(k_s)) v_s / Σ_{s≤t} φ(q_t)·φ(k_s)       parallel
                 S_t = S_{t-1} + φ(k_t) v_tᵀ,  z_t = z_{t-1} + φ(k_t)            recurrent (Katharopoulos et al., 2020)
                 With a decay, S_t = γ S_{t-1} + k_t v_tᵀ, the RNN forgets (retention; Sun et al., 2023).
    hopfield     ξ′ = Xᵀ softmax(β X ξ) is one update of a Hopfield network with continuous states, and attention with
                 query ξ and keys and values X; E(ξ) = −lse(β X ξ)/β + ‖ξ‖²/2 never rises (Ramsauer et al., 2021)
    graph        y_i = Σ_{j ∈ N(i)} a_ij v_j, a_ij = softmax_j(q_i·k_j/√d): messages along the edges of a graph; without
                 a mask it is complete, and a mask is its adjacency matrix (Veličković et al., 2018)
    kernel       y(q) = Σ_s κ(q, k_s) v_s / Σ_s κ(q, k_s), κ(q, k) = exp(q·k/√d): the smoother of Nadaraya and Watson
                 (Tsai et al., 2019); F random features estimate κ with an error ∝ F^(−1/2) (Choromanski et al., 2021)

All numbers are float64. Legend: n tokens, d width, F features, X stored patterns (rows).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ensue.kernels.attention import attention, attention_weights
from ensue.kernels.linear_scan import linear_scan
from ensue.measure.scaling import exponent
from ensue.nn.mixers.performer import orthogonal_features

DECAY = 0.9
"""γ of the recurrence that forgets."""
UPDATES = 6
"""Updates of the Hopfield network."""
FEATURES = (16, 64, 256, 1024, 4096)
"""Numbers of random features of the kernel's estimate."""
DRAWS = 100
"""Draws of random features whose errors are averaged."""


def _normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def _rows(x: Tensor) -> list[Any]:
    found: list[Any] = x.tolist()
    return found


def linear_rnn(length: int = 8, width: int = 2, seed: int = 0) -> dict[str, Any]:
    """Linear attention in its parallel, recurrent and chunked forms, and the state of the recurrence."""
    q, k, v = _normal(3, length, width, seed=seed)
    phi_q, phi_k = F.elu(q) + 1, F.elu(k) + 1
    weights = (phi_q @ phi_k.T).tril()
    parallel = weights @ v / weights.sum(-1, keepdim=True)
    S, z, recurrent, states = torch.zeros(width, width).double(), torch.zeros(width).double(), [], []
    for t in range(length):
        S, z = S + torch.outer(phi_k[t], v[t]), z + phi_k[t]
        recurrent.append(S.T @ phi_q[t] / (z @ phi_q[t]))
        states.append(S)
    four = (one[None, None] for one in (phi_q, phi_k, v, torch.zeros(width, width).double()))
    chunked = linear_scan(*four)[0][0, 0] / (phi_k.cumsum(0) * phi_q).sum(-1, keepdim=True)
    apart = torch.arange(length)[:, None] - torch.arange(length)
    faded = ((q @ k.T) * DECAY ** apart.clamp(min=0).double()).tril() @ v
    S, forgets = torch.zeros(width, width).double(), []
    for t in range(length):
        S = DECAY * S + torch.outer(k[t], v[t])
        forgets.append(S.T @ q[t])
    return {
        "equivalence": "linear-rnn",
        "outputs": {
            "parallel": _rows(parallel),
            "recurrent": _rows(torch.stack(recurrent)),
            "chunked": _rows(chunked),
        },
        "states": _rows(torch.stack(states)),
        "differences": {
            "recurrent − parallel": _largest(torch.stack(recurrent), parallel),
            "chunked − parallel": _largest(chunked, parallel),
            f"with decay {DECAY}: recurrent − parallel": _largest(torch.stack(forgets), faded),
        },
    }


def hopfield(patterns: int = 6, width: int = 16, seed: int = 0, beta: float = 1.5) -> dict[str, Any]:
    """Updates of a Hopfield network that start at a damaged pattern, beside attention, with the energy."""
    X = F.normalize(_normal(patterns, width, seed=seed), dim=1) * math.sqrt(width) / 2
    state = 0.5 * X[0] + 0.3 * _normal(width, seed=seed + 1)

    def energy(xi: Tensor) -> float:
        return float(-torch.logsumexp(beta * X @ xi, 0) / beta + xi @ xi / 2)

    energies, distances, worst = [energy(state)], [_distance(state, X[0])], 0.0
    for _ in range(UPDATES):
        updated = X.T @ torch.softmax(beta * X @ state, 0)
        query = (beta * math.sqrt(width) * state)[None]  # attention divides scores by √d
        attended = attention(query[None, None], X[None, None], X[None, None])[0, 0, 0]
        worst, state = max(worst, _largest(updated, attended)), updated
        energies.append(energy(state))
        distances.append(_distance(state, X[0]))
    return {
        "equivalence": "hopfield",
        "energies": energies,
        "distances": distances,
        "differences": {"Hopfield update − attention": worst},
        "falls": all(after <= before + 1e-12 for before, after in pairwise(energies)),
    }


def graph(length: int = 8, width: int = 4, seed: int = 0, span: int = 3) -> dict[str, Any]:
    """Messages along the edges of a complete graph and of two sparser ones, beside attention with their masks."""
    q, k, v = _normal(3, length, width, seed=seed)
    steps = torch.arange(length)
    masks = {
        "complete": torch.ones(length, length, dtype=torch.bool),
        "causal": steps[:, None] >= steps,
        f"local, span {span}": (steps[:, None] - steps).abs() < span,
    }
    differences, weights = {}, {}
    for name, mask in masks.items():
        edges = mask.nonzero()  # (E, 2): the node that gets a message, and the one that sends it
        scores = (q[edges[:, 0]] * k[edges[:, 1]]).sum(-1) / math.sqrt(width)
        shares = scores.exp()
        sums = torch.zeros(length, dtype=torch.float64).index_add(0, edges[:, 0], shares)
        messages = (shares / sums[edges[:, 0]])[:, None] * v[edges[:, 1]]
        passed = torch.zeros_like(v).index_add(0, edges[:, 0], messages)
        query, key, value = (one[None, None] for one in (q, k, v))
        differences[f"{name}: messages − attention"] = _largest(passed, attention(query, key, value, mask)[0, 0])
        weights[name] = _rows(attention_weights(query, key, mask)[0, 0])
    return {"equivalence": "graph", "weights": weights, "differences": differences}


def kernel(length: int = 12, width: int = 8, seed: int = 0) -> dict[str, Any]:
    """Attention as a kernel smoother, and how its estimate by random features improves with their number."""
    k, v = _normal(length, width, seed=seed) / 2, _normal(length, 1, seed=seed + 1)
    q = _normal(40, width, seed=seed + 2) / 2
    values = torch.exp(q @ k.T / math.sqrt(width))  # κ
    smoothed = values @ v / values.sum(-1, keepdim=True)
    attended = attention(*(one[None, None] for one in (q, k, v)))[0, 0]
    errors = [
        float(torch.stack([_estimate(q, k, v, count, seed=one) - attended for one in range(DRAWS)]).abs().mean())
        for count in FEATURES
    ]
    return {
        "equivalence": "kernel",
        "features": list(FEATURES),
        "errors": errors,
        "slope": exponent(FEATURES[-3:], errors[-3:]),
        "differences": {"smoother − attention": _largest(smoothed, attended)},
    }


def _estimate(q: Tensor, k: Tensor, v: Tensor, count: int, seed: int) -> Tensor:
    """Attention by ``count`` positive random features, as the mixer performer computes it."""
    draw = orthogonal_features(count, q.shape[-1], seed).double()

    def features(x: Tensor) -> Tensor:
        x = x * x.shape[-1] ** -0.25
        return torch.exp(x @ draw.T - x.square().sum(-1, keepdim=True) / 2)

    weights = features(q) @ features(k).T
    return weights @ v / weights.sum(-1, keepdim=True)


def _largest(left: Tensor, right: Tensor) -> float:
    return float((left - right).abs().max())


def _distance(left: Tensor, right: Tensor) -> float:
    return float((left - right).norm())


EQUIVALENCES: dict[str, Callable[..., dict[str, Any]]] = {
    "linear-rnn": linear_rnn,
    "hopfield": hopfield,
    "graph": graph,
    "kernel": kernel,
}
"""By the names that people type."""
