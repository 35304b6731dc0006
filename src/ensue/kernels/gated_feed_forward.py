"""A feed-forward network with a gate (Shazeer, 2020).

    g = W_g x,  u = W_1 x,  h = f(g) ∘ u,  FFN(x) = W_2 h                                 D → I → D
    ∂h = W_2ᵀ ∂y,  ∂g = ∂h ∘ u ∘ f′(g),  ∂u = ∂h ∘ f(g),  ∂x = W_gᵀ ∂g + W_1ᵀ ∂u

One by one these operations keep four tensors of width I for the backward pass and pass over them eleven times. The
fused implementation keeps g and u; one loop computes h in the forward pass, one computes h, ∂g and ∂u in the backward
pass. ``gate`` is the same for h alone, where the layers are more than matrices (adapters, weights in groups).

Legend: M tokens, D width, I inner width.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ensue.kernels.autograd_guards import differentiable, plain
from ensue.kernels.kernel import Fast, Kernel
from ensue.kernels.loops import Loops
from ensue.kernels.matmul import linear, matmul, unhooked, weight_gradient
from ensue.kernels.threads import LANES, loopable, run

loops = Loops("ensue.kernels.gate_loops")

GATES: dict[str, Callable[[Tensor], Tensor]] = {"swiglu": F.silu, "geglu": partial(F.gelu, approximate="tanh")}


def _gate_reference(g: Tensor, u: Tensor, activation: str) -> Tensor:
    """f(g) ∘ u."""
    return GATES[activation](g) * u


def _gate_one_pass(g: Tensor, u: Tensor, activation: str) -> Tensor:
    h: Tensor = _Gate.apply(g.contiguous(), u.contiguous(), activation)  # type: ignore[no-untyped-call]
    return h


def _can_gate(g: Tensor, u: Tensor, activation: str) -> bool:
    return _can_loop(g, u) and plain(g, u)


def _can_loop(g: Tensor, u: Tensor) -> bool:
    return loopable(g, u) and g.shape == u.shape and g.numel() >= LANES


gate = Kernel("gate", _gate_reference, Fast("one_pass", _gate_one_pass, _can_gate))
"""f(g) ∘ u: (g, u, activation), two tensors of one shape."""


def _gated(g: Tensor, u: Tensor, activation: str) -> Tensor:
    """h outside autograd; g and u are contiguous."""
    if not _can_loop(g, u):
        return _gate_reference(g, u, activation)
    h = torch.empty_like(g)
    run(loops.gate, g.numel() // g.shape[-1], g.numel(), int(activation == "geglu"), g, u, h)
    return h


def _gated_backward(above: Tensor, g: Tensor, u: Tensor, activation: str, again: bool) -> tuple[Tensor, ...]:
    """∂g and ∂u; with ``again`` also h."""
    if not _can_loop(g, u):
        with torch.enable_grad():
            held = g.detach().requires_grad_()
            f = GATES[activation](held)
        (by_g,) = torch.autograd.grad(f, held, above * u)
        f = f.detach()
        return (by_g, above * f, f * u) if again else (by_g, above * f)
    by_g, by_u = torch.empty_like(g), torch.empty_like(g)
    h = torch.empty_like(g) if again else by_g
    rows = g.numel() // g.shape[-1]
    run(loops.gate_backward, rows, g.numel(), int(activation == "geglu"), above, g, u, by_g, by_u, h)
    return (by_g, by_u, h) if again else (by_g, by_u)


class _Gate(torch.autograd.Function):
    """A compiled loop for each direction."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, u: Tensor, activation: str) -> Tensor:
        """h."""
        ctx.save_for_backward(g, u)
        ctx.activation = activation
        return _gated(g, u, activation)

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> Any:
        """∂g, ∂u."""
        g, u = ctx.saved_tensors
        if torch.is_grad_enabled():  # a gradient of this gradient is needed: autograd must see the operations
            plainly = partial(_gate_reference, activation=ctx.activation)
            return *differentiable(plainly, (g, u), ctx.needs_input_grad[:2], above), None
        by_g, by_u = _gated_backward(above[0].contiguous(), g, u, ctx.activation, again=False)
        return by_g, by_u, None


def _reference(x: Tensor, gate_layer: nn.Module, up: nn.Module, down: nn.Module, activation: str) -> Tensor:
    """down(f(gate(x)) ∘ up(x)), (…, D) → (…, D)."""
    return linear(down, gate(linear(gate_layer, x), linear(up, x), activation))


def _fused(x: Tensor, gate_layer: Any, up: Any, down: Any, activation: str) -> Tensor:
    """The same with a backward pass of its own."""
    weights = (field for layer in (gate_layer, up, down) for field in (layer.weight, layer.bias))
    y: Tensor = _GatedFeedForward.apply(x.reshape(-1, x.shape[-1]), *weights, activation)  # type: ignore[no-untyped-call]
    return y.view(x.shape)


def _can_fuse(x: Tensor, gate_layer: nn.Module, up: nn.Module, down: nn.Module, activation: str) -> bool:
    """True for linear layers without hooks, under plain autograd. Weights have x's type, or nothing runs."""
    return torch.is_grad_enabled() and all(unhooked(layer) for layer in (gate_layer, up, down)) and plain(x)


gated_feed_forward = Kernel("gated_feed_forward", _reference, Fast("fused", _fused, _can_fuse))
"""down(f(gate(x)) ∘ up(x)): (x, gate, up, down, activation)."""


def equation(
    x: Tensor,
    w_gate: Tensor,
    b_gate: Tensor | None,
    w_up: Tensor,
    b_up: Tensor | None,
    w_down: Tensor,
    b_down: Tensor | None,
    activation: str,
) -> Tensor:
    """FFN(x) of its weights and biases, in plain operations."""
    h = _gate_reference(F.linear(x, w_gate, b_gate), F.linear(x, w_up, b_up), activation)
    return F.linear(h, w_down, b_down)


class _GatedFeedForward(torch.autograd.Function):
    """FFN(x) on matrices (M, …); a bias may be None."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *rest: Any) -> Tensor:
        """y of x, each layer's weight and bias, and the activation."""
        w_gate, b_gate, w_up, b_up, w_down, b_down, activation = rest
        g, u = matmul(x, w_gate, b_gate), matmul(x, w_up, b_up)
        ctx.save_for_backward(x, *rest[:6], g, u)
        ctx.activation = activation
        return matmul(_gated(g, u, activation), w_down, b_down)

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> Any:
        """∂x, and ∂W and ∂b of each layer."""
        *inputs, g, u = ctx.saved_tensors
        needed = ctx.needs_input_grad[:7]
        if torch.is_grad_enabled():  # a gradient of this gradient is needed: autograd must see the operations
            return *differentiable(partial(equation, activation=ctx.activation), inputs, needed, above), None
        x, w_gate, _, w_up, _, w_down, _ = inputs
        by_y = above[0].contiguous()
        by_g, by_u, h = _gated_backward(matmul(by_y, w_down.T), g, u, ctx.activation, again=True)
        layers = ((by_g, x), (by_u, x), (by_y, h))
        gradients = [field for by, into in layers for field in (partial(weight_gradient, by, into), partial(by.sum, 0))]
        by_x = matmul(by_g, w_gate.T).add_(matmul(by_u, w_up.T)) if needed[0] else None
        return by_x, *(make() if need else None for make, need in zip(gradients, needed[1:])), None
