"""The LSTM with a projection as one operation on the CPU, where torch has no kernel for it.

    a_t = W x_t + b + U h_{t-1},   c_t = f ∘ c_{t-1} + i ∘ c̃,   m_t = o ∘ tanh(c_t),   h_t = W_p m_t
    ∂m = ∂h W_p,   ∂c = ∂m ∘ o ∘ (1 − tanh² c),   ∂a = the gates' own slopes,   ∂h_{t-1} = ∂a_t U
    ∂U = Σ_t ∂a_tᵀ h_{t-1},   ∂W_p = Σ_t ∂h_tᵀ m_t,   ∂W = Σ_t ∂a_tᵀ x_t

Only what depends on the previous step is computed step by step. The gradient of each weight is one product over all
steps, where autograd would compute one product a step and add them up.

Legend: B rows, T time, N cell width, P output width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ensue.kernels.autograd_guards import differentiable, plain
from ensue.kernels.kernel import Fast, Kernel


def _reference(
    x: Tensor, weight_x: Tensor, weight_h: Tensor, bias: Tensor, weight_p: Tensor, h: Tensor, c: Tensor
) -> tuple[Tensor, Tensor]:
    """The equation, step by step."""
    outputs, cells = [], []
    for a in F.linear(x, weight_x, bias).unbind(1):
        i, f, candidate, o = torch.addmm(a, h, weight_h.T).chunk(4, dim=-1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(candidate)
        h = (torch.sigmoid(o) * torch.tanh(c)) @ weight_p.T
        outputs.append(h)
        cells.append(c)
    return torch.stack(outputs, 1), torch.stack(cells, 1)


def _fused(
    x: Tensor, weight_x: Tensor, weight_h: Tensor, bias: Tensor, weight_p: Tensor, h: Tensor, c: Tensor
) -> tuple[Tensor, Tensor]:
    y, cells = _Projected.apply(x, weight_x, weight_h, bias, weight_p, h, c)  # type: ignore[no-untyped-call]
    return y, cells


def _can_fuse(
    x: Tensor, weight_x: Tensor, weight_h: Tensor, bias: Tensor, weight_p: Tensor, h: Tensor, c: Tensor
) -> bool:
    return x.device.type == "cpu" and plain(x, weight_x)


lstmp = Kernel("lstmp", _reference, Fast("fused", _fused, _can_fuse))
"""h of every step (B, T, P) and c of every step (B, T, N): (x (B, T, D), W, U, b, W_p, h_0 (B, P), c_0 (B, N))."""


class _Projected(torch.autograd.Function):
    """Forward keeps the gates; backward walks them from the end."""

    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """h and c of every step."""
        x, weight_x, weight_h, bias, weight_p, h, c = inputs
        B, T, N, P = *x.shape[:2], c.shape[1], h.shape[1]
        gates = F.linear(x.transpose(0, 1), weight_x, bias)  # (T, B, 4 N); each step is written over by its gates
        outputs, cells = x.new_empty(T + 1, B, P), x.new_empty(T + 1, B, N)
        activated, inner = x.new_empty(T, B, N), x.new_empty(T, B, N)  # tanh c, and m
        outputs[0], cells[0] = h, c
        for t in range(T):
            a = gates[t].addmm_(outputs[t], weight_h.T)
            i, f, candidate, o = a.chunk(4, dim=-1)
            a[:, : 2 * N].sigmoid_()
            candidate.tanh_()
            o.sigmoid_()
            torch.mul(f, cells[t], out=cells[t + 1]).addcmul_(i, candidate)
            torch.tanh(cells[t + 1], out=activated[t])
            torch.mul(o, activated[t], out=inner[t])
            torch.mm(inner[t], weight_p.T, out=outputs[t + 1])
        ctx.save_for_backward(*inputs, gates, outputs, cells, activated, inner)
        return outputs[1:].transpose(0, 1), cells[1:].transpose(0, 1)

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> Any:
        """Gradients of x, the weights, h_0 and c_0."""
        inputs, kept = ctx.saved_tensors[:7], ctx.saved_tensors[7:]
        if torch.is_grad_enabled():  # a gradient of this gradient is needed: autograd must see the operations
            return differentiable(_reference, inputs, ctx.needs_input_grad, above)
        x, weight_x, weight_h, _, weight_p, _, _ = inputs
        gates, outputs, cells, activated, inner = kept
        T, B, N = inner.shape
        by_shown, by_cells = (part.transpose(0, 1) for part in above)
        by_gates, by_h = torch.empty_like(gates), by_shown.contiguous().clone()  # ∂h of each step is added up in place
        by_c = torch.zeros_like(cells[0])
        for t in reversed(range(T)):
            i, f, candidate, o = gates[t].chunk(4, dim=-1)
            by_i, by_f, by_candidate, by_o = by_gates[t].chunk(4, dim=-1)
            by_m = by_h[t] @ weight_p
            torch.mul(by_m, activated[t], out=by_o).mul_(o).mul_(1 - o)
            by_c.add_(by_cells[t]).add_(by_m.mul_(o).mul_(1 - activated[t].square()))
            torch.mul(by_c, candidate, out=by_i).mul_(i).mul_(1 - i)
            torch.mul(by_c, cells[t], out=by_f).mul_(f).mul_(1 - f)
            torch.mul(by_c, i, out=by_candidate).mul_(1 - candidate.square())
            before = by_gates[t] @ weight_h
            if t:
                by_h[t - 1] += before
            by_c.mul_(f)
        flat = by_gates.view(T * B, 4 * N)
        by_x = (flat @ weight_x).view(T, B, -1).transpose(0, 1) if ctx.needs_input_grad[0] else None
        by_weight_x = flat.T @ x.transpose(0, 1).reshape(T * B, -1)
        by_weight_h = flat.T @ outputs[:-1].reshape(T * B, -1)
        by_weight_p = by_h.view(T * B, -1).T @ inner.view(T * B, N)
        return by_x, by_weight_x, by_weight_h, flat.sum(0), by_weight_p, before, by_c
