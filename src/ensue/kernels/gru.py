"""GRU layers on the CPU while training: a compiled loop over time, and one product a weight for the rest.

    a_t = W x_t + b,  u_t = U h_{t-1},  r, z = σ(a + u),  h̃ = tanh(a + r ∘ u),  h_t = z ∘ h_{t-1} + (1 − z) ∘ h̃
    ∂h_{t-1} = z ∘ ∂h_t + ∂u_t U,   ∂W = Σ_t ∂a_tᵀ x_t,   ∂U = Σ_t ∂u_tᵀ h_{t-1},   ∂x = ∂a W,   ∂b = Σ_t ∂a_t

What depends on the step before is computed step by step (ensue.kernels.gru_loops); W x + b, ∂W, ∂U and ∂x are
products over all steps (ensue.kernels.matmul). Torch's GRU is some twenty operations a step in each direction, and
multiplies once a step for each weight's gradient.

Legend: B rows, T time, D input width, N hidden width.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ensue.kernels.autograd_guards import differentiable, plain
from ensue.kernels.loops import Loops
from ensue.kernels.matmul import matmul, weight_gradient
from ensue.kernels.threads import LANES, PART, barrier, loopable, run

loops = Loops("ensue.kernels.gru_loops")

PANEL = 2 * LANES
"""Hidden units that a thread takes at once; N is a multiple of it (ensue.kernels.panels)."""
LEAST = 64
"""The least N: below, a step is too little work for threads to wait for each other."""
ROWS = 4
"""The fewest rows: a tile's."""


@cache
def _avx512() -> bool:
    """True for processors whose registers hold a tile of 12 by PANEL sums."""
    return bool(torch.backends.cpu.get_cpu_capability() == "AVX512")


def able(x: Tensor, weight_x: Tensor, weight_h: Tensor, bias: Tensor, h: Tensor) -> bool:
    """True while training a layer that the loops can run."""
    return (
        torch.is_grad_enabled()
        and len(x) >= ROWS
        and h.shape[1] >= LEAST
        and h.shape[1] % PANEL == 0
        and weight_h.is_contiguous()
        and loopable(x, weight_x, weight_h, bias, h)
        and plain(x, weight_x, weight_h, bias, h)
        and _avx512()
        and barrier() != 0
    )


def equation(x: Tensor, weight_x: Tensor, weight_h: Tensor, bias: Tensor, h: Tensor) -> Tensor:
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
    N = weight_h.shape[1]
    shared = x.new_empty(2, len(x), columns * N + LANES)  # rows that begin in different sets of the cache
    return torch.empty_like(weight_h), shared, x.new_empty(N // PANEL, len(x) + 3, 3 * PANEL)


def _run(loop: Any, x: Tensor, N: int, *arrays: Tensor) -> None:
    """Run a loop on as many threads as there are, but no more than chunks of units."""
    run(loop, PART * (N // PANEL), len(x), x.shape[1], N, barrier(), *arrays)


def _weight_gradients(
    needed: tuple[bool, ...], inputs: tuple[Tensor, ...], before: Tensor, by_a: Tensor, by_u: Tensor
) -> tuple[Tensor | None, ...]:
    """∂x, ∂W, ∂U and ∂b of ∂a and ∂u, (B, T, 3 N) each."""
    x, weight_x = inputs[:2]
    flat = by_a.view(-1, by_a.shape[-1])
    return (
        matmul(flat, weight_x.T).view(x.shape) if needed[0] else None,
        weight_gradient(flat, x.reshape(len(flat), -1)) if needed[1] else None,
        weight_gradient(by_u.view(flat.shape), before.view(len(flat), -1)) if needed[2] else None,
        flat.sum(0) if needed[3] else None,
    )


class _GRU(torch.autograd.Function):
    """Forward keeps the gates; backward walks them from the end."""

    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> Tensor:
        """h of every step."""
        x, weight_x, weight_h, bias, h = inputs
        (B, T), N = x.shape[:2], h.shape[1]
        gates = matmul(x.reshape(B * T, -1), weight_x, bias)
        inner, y = x.new_empty(B, T, N), x.new_empty(B, T, N)
        panels, shared, workspace = _buffers(x, weight_h, 1)
        shared[0, :, :N] = h
        _run(loops.gru_steps, x, N, weight_h, panels, gates, inner, y, shared, workspace)
        ctx.save_for_backward(*inputs, gates, inner, y)
        return y

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> Any:
        """Gradients of x, W, U, b and h_0."""
        inputs, (gates, inner, y) = ctx.saved_tensors[:5], ctx.saved_tensors[5:]
        if torch.is_grad_enabled():  # a gradient of this gradient is needed: autograd must see the operations
            return differentiable(equation, inputs, ctx.needs_input_grad, above)
        x, _, weight_h, _, h = inputs
        by_a, by_u = (torch.empty_like(gates).view(*x.shape[:2], -1) for _ in range(2))
        by_h, by_kept = h.new_zeros(h.shape), h.new_zeros(h.shape)
        panels, shared, workspace = _buffers(x, weight_h, 3)
        before = torch.cat([h[:, None], y[:, :-1]], dim=1)
        kept, found = (gates, inner, before, above[0].contiguous()), (by_h, by_a, by_u, shared, workspace, by_kept)
        _run(loops.gru_steps_backward, x, h.shape[1], weight_h, panels, *kept, *found)
        return *_weight_gradients(ctx.needs_input_grad, inputs, before, by_a, by_u), by_h.add_(by_kept)


def gru(x: Tensor, weight_x: Tensor, weight_h: Tensor, bias: Tensor, h: Tensor) -> Tensor:
    """h of every step: (B, T, D), (3 N, D), (3 N, N), (3 N,), (B, N) → (B, T, N)."""
    y: Tensor = _GRU.apply(x.contiguous(), weight_x, weight_h, bias, h)  # type: ignore[no-untyped-call]
    return y
