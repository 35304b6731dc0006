"""Gradient flow: ‖∂J_t/∂h_k‖ by distance t − k, and its bound from the Jacobians.

    J_t = −log P(x_{t+1} | x_1 … x_t)

    ∂J_t/∂h_k = ∂J_t/∂h_t · ∂h_t/∂h_{t−1} · … · ∂h_{k+1}/∂h_k
    ‖∂J_t/∂h_k‖ ≤ ‖∂J_t/∂h_t‖ ∏_{j=k+1…t} ‖∂h_j/∂h_{j−1}‖                        any recurrent layer
                ≤ ‖∂J_t/∂h_t‖ ‖W_h‖^{t−k} ∏_{j=k+1…t} ‖diag f′(s_j)‖             h_j = f(s_j), s_j = W_h h_{j−1} + …

If f′ ≤ γ, gradients must vanish where the largest singular value of W_h is below 1/γ (Pascanu et al., 2013): 1 for tanh
and relu, 4 for the sigmoid. Norms are the Euclidean one, and of matrices the largest singular value.

What h_k is depends on the model: the state of a recurrent layer after step k (h, or h and c of an LSTM as one vector
of independent parts), the input of a Transformer block at position k, or else the embedding of token k.

All J_t are differentiated in one pass: every row of a batch holds the same text, and row t contributes J_t alone.
Everything is computed in float64.

Legend: T time, B rows, N width of the state.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ensue.core.errors import InputError
from ensue.kernels.int8 import QuantisedLinear
from ensue.kernels.recurrent import CellState
from ensue.nn.blocks import Block
from ensue.nn.intra_attention import IntraAttention
from ensue.nn.recurrent import Cell, Recurrent, ReluCell, SigmoidCell, TanhCell, watched

ROWS = 32
"""The batch size: losses J_t differentiated at once."""
MAX_WIDTH = 512
"""For wider states the singular values of every Jacobian take too long, so there is no bound."""
MIN_COUNT = 5
"""Distances with fewer pairs (t, k) are left out, except for very short texts."""
SLOPES: dict[type[Cell], tuple[Callable[[Tensor], Tensor], float]] = {
    TanhCell: (lambda h: 1 - h * h, 1.0),
    SigmoidCell: (lambda h: h * (1 - h), 0.25),
    ReluCell: (lambda h: (h > 0).to(h.dtype), 1.0),
}
"""f′(s) as a function of h = f(s), and its maximum γ."""


@dataclass(frozen=True)
class Flow:
    """Norms of gradients on one text."""

    norms: np.ndarray  # (T, T): [t, k] is ‖∂J_t/∂h_k‖; 0 where k > t
    of: str
    """What h_k is, in words."""
    bound: np.ndarray | None = None  # (T, T): upper bound of the norms, if there is one
    bound_of: str = ""
    """The formula of the bound, or why there is none."""
    weight: dict[str, float] | None = None
    """For a plain recurrent layer: W_h's largest singular value and eigenvalue; 1/γ, below which gradients vanish."""


def gradient_flow(model: Any, tokens: Tensor, layer: int = 0) -> Flow:
    """‖∂J_t/∂h_k‖ for a text: x_0 … x_T (T + 1,), of which x_0 is only read.

    ``layer`` counts from 1; the default is the last layer of a recurrent model and the first block of a Transformer.
    """
    if not model.traits.causal:
        raise InputError("a model that sees both sides of a word has no gradient against distance", hint="leave it out")
    if any(isinstance(part, QuantisedLinear) for part in model.modules()):
        raise InputError("an int8 model has no gradients", hint="leave out --int8")
    find_probe(model, layer)  # raise errors before the model is copied
    model = copy.deepcopy(model).double().eval().requires_grad_(True)
    probe = find_probe(model, layer)
    read, targets, T = tokens[:-1], tokens[1:], len(tokens) - 1
    norms = np.zeros((T, T))
    for first in range(0, T, ROWS):
        end = min(first + ROWS, T)
        rows = torch.arange(first, end)
        with torch.enable_grad(), probe.recorded() as states:
            block = (piece[None, :end].expand(len(rows), -1) for piece in (read, targets))
            log_p = model.log_prob(*block)[0]
            grads = torch.autograd.grad(-log_p[rows - first, rows].sum(), states, allow_unused=True)
        row_norms = probe.norms(states, grads)[:, -end:]  # a window also reads positions before the text
        norms[first:end, :end] = row_norms.numpy()
    bound, bound_of, weight = probe.bound(model, read, norms)
    return Flow(norms, probe.of, bound, bound_of, weight)


class GradientProbe:
    """Records a value at every position of a text, and the norms of its gradients."""

    of: str

    def recorded(self) -> AbstractContextManager[list[Tensor]]:
        """A context in which the model runs; the list then holds the recorded values."""
        raise TypeError(f"{type(self).__name__} does not record")

    def norms(self, states: list[Tensor], grads: tuple[Tensor | None, ...]) -> Tensor:
        """The norm of the gradient at each position, (B, T)."""
        (grad,) = grads
        return torch.zeros(states[0].shape[:2]) if grad is None else grad.norm(dim=-1)

    def bound(self, model: Any, read: Tensor, norms: np.ndarray) -> tuple[np.ndarray | None, str, Any]:
        """An upper bound of the norms, its formula, and figures of the recurrent weight."""
        return None, "no recurrence, so no product of Jacobians", None


class HookProbe(GradientProbe):
    """The input of a Transformer block, or the embeddings of tokens; ``hook`` registers a hook on that module."""

    def __init__(self, hook: Callable[[Any], RemovableHandle], of: str) -> None:
        self.hook, self.of = hook, of

    @contextmanager
    def recorded(self) -> Iterator[list[Tensor]]:
        states: list[Tensor] = []

        def keep(module: Any, inputs: tuple[Tensor, ...], output: Tensor | None = None) -> None:
            """Keep the input of a pre-hook, or the output of a hook."""
            state = inputs[0] if output is None else output
            states.append(state if state.requires_grad else state.requires_grad_())  # embeddings may be frozen

        with self.hook(keep):
            yield states


class RecurrentStateProbe(GradientProbe):
    """The state of a recurrent layer."""

    def __init__(self, layers: list[Recurrent], layer: int) -> None:
        self.layer, self.last = layers[layer - 1], layer == len(layers)
        self.parts = len(self.layer.start(1).memory)
        what = "the state h" if self.parts == 1 else "the state (h, c)"
        self.of = f"{what} of recurrent layer {layer} of {len(layers)} after token k"

    @contextmanager
    def recorded(self) -> Iterator[list[Tensor]]:
        states: list[Tensor] = []

        def keep(a: Tensor, before: CellState, after: CellState) -> CellState:
            copies = tuple(part.clone() for part in after)  # else the gradient of c would include that of h
            states.extend(copies)
            return copies

        with watched(self.layer, keep):
            yield states

    def norms(self, states: list[Tensor], grads: tuple[Tensor | None, ...]) -> Tensor:
        zero = torch.zeros_like(states[0][:, 0])
        parts = [zero if grad is None else grad.square().sum(-1) for grad in grads]
        squares = torch.stack(parts, dim=1)  # (B, T·parts)
        return squares.view(len(zero), -1, self.parts).sum(-1).sqrt()

    def bound(self, model: Any, read: Tensor, norms: np.ndarray) -> tuple[np.ndarray | None, str, Any]:
        if not self.last:
            return None, "none: gradients of a lower layer also flow through the layers above it", None
        if any(isinstance(part, IntraAttention) for part in model.modules()):
            return None, "none: gradients also flow through attention, past intermediate steps", None
        cell = self.layer.cell
        steps = self._steps(model, read)
        if type(cell) in SLOPES:
            slope, most = SLOPES[type(cell)]
            size = largest_singular_value(cell.weight_h.detach())
            each = [size * float(slope(after[0]).abs().max()) for _, _, after in steps]
            radius = float(torch.linalg.eigvals(cell.weight_h.detach()).abs().max())
            weight = {"singular_value": size, "eigenvalue": radius, "vanishes_below": 1 / most}
            return bounds(norms, each), "‖∂J_t/∂h_t‖ ‖W_h‖^(t−k) ∏ ‖diag f′‖", weight
        if sum(part.shape[-1] for part in steps[0][1]) > MAX_WIDTH:
            return None, f"none: the state is wider than {MAX_WIDTH:,}", None
        each = [largest_singular_value(jacobian(cell, a, before)) for a, before, _ in steps]
        return bounds(norms, each), "‖∂J_t/∂h_t‖ ∏ ‖∂h_j/∂h_{j−1}‖", None

    @torch.no_grad()
    def _steps(self, model: Any, read: Tensor) -> list[tuple[Tensor, CellState, CellState]]:
        """The input, the state before and the state after each step."""
        steps: list[tuple[Tensor, CellState, CellState]] = []

        def keep(a: Tensor, before: CellState, after: CellState) -> CellState:
            steps.append((a, before, after))
            return after

        with watched(self.layer, keep):
            model(read[None], want=("hidden",))
        return steps


def find_probe(model: Any, layer: int = 0) -> GradientProbe:
    """The probe for h_k in a model."""
    parts = list(model.modules())
    recurrent = [part for part in parts if isinstance(part, Recurrent)]
    blocks = [part for part in parts if isinstance(part, Block)]
    layers = recurrent or blocks
    if not 0 <= layer <= max(1, len(layers)):
        raise InputError(f"there is no layer {layer}", hint=f"there are {len(layers)}" if layers else "leave it out")
    if recurrent:
        return RecurrentStateProbe(recurrent, layer or len(recurrent))
    if blocks:
        layer = layer or 1
        source = "the embedding" if layer == 1 else f"the output of block {layer - 1}"
        of = f"the input of block {layer} of {len(blocks)} at position k ({source})"
        return HookProbe(blocks[layer - 1].register_forward_pre_hook, of)
    if not isinstance(getattr(model, "embed", None), nn.Module):
        raise InputError("a count-based model has no gradients", hint="name a neural one")
    return HookProbe(model.embed.register_forward_hook, "the embedding of token k")


def jacobian(cell: Cell, a: Tensor, memory: CellState) -> Tensor:
    """∂(state after a step)/∂(state before it), (N, N); of an LSTM both h and c."""
    width = sum(part.shape[-1] for part in memory)
    with torch.enable_grad():
        rows = tuple(part.detach().expand(width, -1).clone().requires_grad_() for part in memory)
        after = torch.cat(cell.step(a.expand(width, -1), rows), dim=-1)  # row i differentiates output i alone
        grads = torch.autograd.grad(after, rows, torch.eye(width, dtype=after.dtype, device=after.device))
    return torch.cat(grads, dim=-1)


def largest_singular_value(matrix: Tensor) -> float:
    """√λ_max(AᵀA), in a third of the time of an SVD."""
    return float(torch.linalg.eigvalsh(matrix.T @ matrix)[-1].clamp(min=0).sqrt())


def bounds(norms: np.ndarray, each: list[float]) -> np.ndarray:
    """‖∂J_t/∂h_t‖ ∏_{j=k+1…t} each_j, (T, T); it may be infinite."""
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.maximum(each[1:], np.finfo(float).tiny)))])  # Σ_{j=2…t}
    with np.errstate(over="ignore"):
        return np.tril(np.diag(norms)[:, None] * np.exp(np.minimum(logs[:, None] - logs[None], 1e3)))


def by_distance(norms: np.ndarray) -> list[dict[str, float]]:
    """Mean, median and the 10 % and 90 % quantiles over all t, for each distance t − k.

    >>> by_distance(np.array([[1.0, 0.0], [0.25, 3.0]]))[1]
    {'distance': 1, 'mean': 0.25, 'median': 0.25, 'low': 0.25, 'high': 0.25, 'places': 1}
    """
    T, rows = len(norms), []
    least = MIN_COUNT if 2 * MIN_COUNT <= T else 1
    for distance in range(T - least + 1):
        values = np.diagonal(norms, -distance)
        low, median, high = (float(value) for value in np.quantile(values, [0.1, 0.5, 0.9]))
        figures = {"mean": float(values.mean()), "median": median, "low": low, "high": high}
        rows.append({"distance": distance, **figures, "places": T - distance})
    return rows


def factor_per_step(rows: list[dict[str, float]]) -> float | None:
    """The factor by which the median changes per step, from a least-squares fit of log medians at distances ≥ 1.

    >>> round(factor_per_step([{"distance": d, "median": 0.5**d} for d in range(9)]), 6)
    0.5
    """
    kept = [row for row in rows if row["distance"] and 0 < row["median"] < math.inf]
    points = [(row["distance"], math.log(row["median"])) for row in kept]
    if len(points) < 3:
        return None
    x, y = np.array(points).T
    return float(np.exp(np.polyfit(x, y, 1)[0]))
