"""LSTM and GRU layers on the CPU while training: compiled loops over time, and one product a weight for the rest.

    LSTM   a = W x_t + b + U h,  i, f, o = σ(a),  c̃ = tanh(a),  c_t = f ∘ c + i ∘ c̃,  h_t = o ∘ tanh(c_t)
    GRU    a = W x_t + b,  u = U h,  r, z = σ(a + u),  h̃ = tanh(a + r ∘ u),  h_t = z ∘ h + (1 − z) ∘ h̃
    both   ∂h_{t-1} = ∂u_t U + …,   ∂W = Σ_t ∂a_tᵀ x_t,   ∂U = Σ_t ∂u_tᵀ h_{t-1},   ∂x = ∂a W,   ∂b = Σ_t ∂a_t

What depends on the step before is computed step by step (ensue.kernels.recurrent_loops); W x + b, ∂W, ∂U and ∂x are
products over all steps (ensue.kernels.matmul). Torch's GRU is some twenty operations a step in each direction.

Legend: B rows, T time, D input width, N hidden width, G gates.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ensue.kernels.autograd_guards import differentiable, plain
from ensue.kernels.matmul import matmul, weight_gradient
from ensue.kernels.threads import LANES, PART, barrier, loopable, run

PANEL = 2 * LANES
"""Hidden units that a thread takes at once; N is a multiple of it (ensue.kernels.panels)."""
LEAST, MOST = 64, 512
"""Hidden widths: below, a step is too little work for threads to wait for each other; beyond, weights do not stay in a
core's cache, and torch's kernels are as fast."""
ROWS = 4
"""The fewest rows: a tile's."""


def able(name: str, x: Tensor, state: tuple[Tensor, ...], *weights: Tensor) -> bool:
    """True while training a layer that the loops can run, on a processor whose registers hold a tile."""
    return (
        name in SCANS
        and torch.is_grad_enabled()
        and len(x) >= ROWS
        and LEAST <= state[0].shape[1] <= MOST
        and state[0].shape[1] % PANEL == 0
        and weights[1].is_contiguous()
        and loopable(x, *state, *weights)
        and plain(x, *state, *weights)
        and torch.backends.cpu.get_cpu_capability() == "AVX512"
        and barrier() != 0
    )


def lstm_equation(x: Tensor, weight_x: Tensor, weight_h: Tensor, bias: Tensor, h: Tensor, c: Tensor) -> Any:
    """h of every step (B, T, N), and the last c, in plain operations."""
    outputs = []
    for a in F.linear(x, weight_x, bias).unbind(1):
        i, f, candidate, o = torch.addmm(a, h, weight_h.T).chunk(4, dim=-1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(candidate)
        h = torch.sigmoid(o) * torch.tanh(c)
        outputs.append(h)
    return torch.stack(outputs, 1), c


def gru_equation(x: Tensor, weight_x: Tensor, weight_h: Tensor, bias: Tensor, h: Tensor) -> Tensor:
    """h of every step (B, T, N), in plain operations."""
    outputs = []
    for a in F.linear(x, weight_x, bias).unbind(1):
        (a_r, a_z, a_n), (u_r, u_z, u_n) = a.chunk(3, dim=-1), (h @ weight_h.T).chunk(3, dim=-1)
        z = torch.sigmoid(a_z + u_z)
        h = z * h + (1 - z) * torch.tanh(a_n + torch.sigmoid(a_r + u_r) * u_n)
        outputs.append(h)
    return torch.stack(outputs, 1)


def _buffers(x: Tensor, weight_h: Tensor, columns: int) -> tuple[Tensor, Tensor, Tensor]:
    """Panels of U, what two steps share, and the threads' workspaces; ``columns`` is how much a row of one holds."""
    gates, N = len(weight_h) // weight_h.shape[1], weight_h.shape[1]
    shared = x.new_empty(2, len(x), columns * N + LANES)
    return torch.empty_like(weight_h), shared, x.new_empty(N // PANEL, len(x) + 3, gates * PANEL)


def _run(loop: Any, x: Tensor, N: int, *arrays: Tensor) -> None:
    """Run a loop on as many threads as there are, but no more than chunks of units."""
    run(loop, PART * (N // PANEL), len(x), x.shape[1], N, barrier(), *arrays)


def _weight_gradients(
    needed: tuple[bool, ...], inputs: tuple[Tensor, ...], before: Tensor, by_a: Tensor, by_u: Tensor
) -> tuple[Tensor | None, ...]:
    """∂x, ∂W, ∂U and ∂b of ∂a and ∂u, (B, T, G N) each."""
    x, weight_x = inputs[:2]
    flat = by_a.view(-1, by_a.shape[-1])
    return (
        matmul(flat, weight_x.T).view(x.shape) if needed[0] else None,
        weight_gradient(flat, x.reshape(len(flat), -1)) if needed[1] else None,
        weight_gradient(by_u.view(flat.shape), before.view(len(flat), -1)) if needed[2] else None,
        flat.sum(0) if needed[3] else None,
    )


class _LSTM(torch.autograd.Function):
    """Forward keeps the gates; backward walks them from the end."""

    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """h of every step, and the last c."""
        from ensue.kernels import recurrent_loops as loops  # importing numba takes long

        x, weight_x, weight_h, bias, h, c = inputs
        (B, T), N = x.shape[:2], h.shape[1]
        gates = matmul(x.reshape(B * T, -1), weight_x, bias)
        cells, tanh, y = x.new_empty(T + 1, B, N), x.new_empty(B, T, N), x.new_empty(B, T, N)
        panels, shared, workspace = _buffers(x, weight_h, 1)
        cells[0], shared[0, :, :N] = c, h
        _run(loops.lstm, x, N, weight_h, panels, gates, cells, tanh, y, shared, workspace)
        ctx.save_for_backward(*inputs, gates, cells, tanh, y)
        return y, cells[T].clone()

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> Any:
        """Gradients of x, W, U, b, h_0 and c_0."""
        from ensue.kernels import recurrent_loops as loops

        inputs, (gates, cells, tanh, y) = ctx.saved_tensors[:6], ctx.saved_tensors[6:]
        if torch.is_grad_enabled():  # a gradient of this gradient is needed: autograd must see the operations
            return differentiable(lstm_equation, inputs, ctx.needs_input_grad, above)
        x, _, weight_h, _, h, _ = inputs
        by_gates, by_h = torch.empty_like(gates).view(*x.shape[:2], -1), h.new_zeros(h.shape)
        by_c = above[1].clone(memory_format=torch.contiguous_format)  # written over
        panels, shared, workspace = _buffers(x, weight_h, 4)
        kept, found = (gates, cells, tanh, above[0].contiguous()), (by_h, by_gates, shared, workspace, by_c)
        _run(loops.lstm_backward, x, h.shape[1], weight_h, panels, *kept, *found)
        before = torch.cat([h[:, None], y[:, :-1]], dim=1)
        return *_weight_gradients(ctx.needs_input_grad, inputs, before, by_gates, by_gates), by_h, by_c


class _GRU(torch.autograd.Function):
    """The same for the GRU."""

    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> Tensor:
        """h of every step."""
        from ensue.kernels import recurrent_loops as loops

        x, weight_x, weight_h, bias, h = inputs
        (B, T), N = x.shape[:2], h.shape[1]
        gates = matmul(x.reshape(B * T, -1), weight_x, bias)
        inner, y = x.new_empty(B, T, N), x.new_empty(B, T, N)
        panels, shared, workspace = _buffers(x, weight_h, 1)
        shared[0, :, :N] = h
        _run(loops.gru, x, N, weight_h, panels, gates, inner, y, shared, workspace)
        ctx.save_for_backward(*inputs, gates, inner, y)
        return y

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> Any:
        """Gradients of x, W, U, b and h_0."""
        from ensue.kernels import recurrent_loops as loops

        inputs, (gates, inner, y) = ctx.saved_tensors[:5], ctx.saved_tensors[5:]
        if torch.is_grad_enabled():
            return differentiable(gru_equation, inputs, ctx.needs_input_grad, above)
        x, _, weight_h, _, h = inputs
        by_a, by_u = (torch.empty_like(gates).view(*x.shape[:2], -1) for _ in range(2))
        by_h, by_kept = h.new_zeros(h.shape), h.new_zeros(h.shape)
        panels, shared, workspace = _buffers(x, weight_h, 3)
        before = torch.cat([h[:, None], y[:, :-1]], dim=1)
        kept, found = (gates, inner, before, above[0].contiguous()), (by_h, by_a, by_u, shared, workspace, by_kept)
        _run(loops.gru_backward, x, h.shape[1], weight_h, panels, *kept, *found)
        return *_weight_gradients(ctx.needs_input_grad, inputs, before, by_a, by_u), by_h.add_(by_kept)


def lstm(x: Tensor, weights: tuple[Tensor, ...], state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
    """h of every step (B, T, N), and the last h and c."""
    y, c = _LSTM.apply(x, *weights, *state)  # type: ignore[no-untyped-call]
    return y, (y[:, -1], c)


def gru(x: Tensor, weights: tuple[Tensor, ...], state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
    """h of every step (B, T, N), and the last h."""
    y: Tensor = _GRU.apply(x, *weights, *state)  # type: ignore[no-untyped-call]
    return y, (y[:, -1],)


SCANS = {"lstm": lstm, "gru": gru}
"""By the name of torch's layer for the same equation."""
