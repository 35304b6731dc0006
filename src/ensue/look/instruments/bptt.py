"""Backpropagation through time, written out: every term of ∂J(t)/∂w with all its factors, as numbers.

    s(t) = uᵀ x(t) + w h(t−1)
    h(t) = tanh s(t)
    z(t) = v h(t)
    ŷ(t) = softmax z(t)
    J(t) = −Σ y(t) log ŷ(t)                                       y(t) one-hot
    E    = Σ_t J(t)

    ∂J(t)/∂w = Σ_{k=1…t} ∂J(t)/∂ŷ(t) · ∂ŷ(t)/∂z(t) · ∂z(t)/∂h(t)
                         · (Π_{j=t…k+1} ∂h(j)/∂s(j) · ∂s(j)/∂h(j−1)) · ∂h(k)/∂s(k) · ∂s(k)/∂w

A factor is a Jacobian, and Jacobians do not commute: the product begins with j = t. What stands left of ∂s(k)/∂w is a
row g (1, N); as ∂s_i/∂w_ab = [i = a] h(k−1)_b, the term is the matrix gᵀ h(k−1)ᵀ. For u it is x(k) g, and v, which h
does not depend on, has one term only. Everything is computed in float64 and compared with autograd, term by term: the
weight that step k uses is a copy of its own there, so that its gradient is the term of step k alone.

Legend: T steps, D inputs, N hidden width, K outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from ensue.core.errors import InputError, unknown_name

MOST_STEPS, MOST_HIDDEN = 12, 8
"""What can still be read: 78 terms, and Jacobians of 8 × 8."""
FORMULA = (
    "∂J(t)/∂w = Σ_{k=1…t} ∂J(t)/∂ŷ(t) · ∂ŷ(t)/∂z(t) · ∂z(t)/∂h(t) · (Π_{j=t…k+1} ∂h(j)/∂s(j) · ∂s(j)/∂h(j−1)) "
    "· ∂h(k)/∂s(k) · ∂s(k)/∂w"
)
SPREAD = 0.9
"""Weights and inputs are drawn from N(0, 0.9²)."""


@dataclass(frozen=True, kw_only=True)
class Network:
    """The recurrent network of the equations, with what it reads and what it should say."""

    u: Tensor  # (D, N)
    w: Tensor  # (N, N)
    v: Tensor  # (K, N)
    h0: Tensor  # (N,), not zero: with h(0) = 0 every first term ∂s(1)/∂w would be 0
    x: Tensor  # (T, D)
    y: Tensor  # (T,), which output is right

    @property
    def steps(self) -> int:
        """T."""
        return len(self.x)


@dataclass(frozen=True)
class Step:
    """The forward values of one step."""

    t: int
    x: Tensor
    s: Tensor
    h: Tensor
    z: Tensor
    y_hat: Tensor
    target: int
    loss: Tensor


@dataclass(frozen=True)
class Factor:
    """A Jacobian in a product."""

    name: str
    value: Tensor


@dataclass(frozen=True)
class Term:
    """What the appearance of a weight at step k adds to the gradient of J(t)."""

    weight: str
    t: int
    k: int
    factors: tuple[Factor, ...]
    value: Tensor


def draw_network(*, steps: int = 3, hidden: int = 1, inputs: int = 1, outputs: int = 2, seed: int = 0) -> Network:
    """A network with weights, inputs and targets drawn at random."""
    for name, value, most in (("steps", steps, MOST_STEPS), ("hidden", hidden, MOST_HIDDEN)):
        if not 1 <= value <= most:
            raise InputError(f"--{name} {value} cannot be written out", hint=f"use 1 to {most}")
    chance = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return SPREAD * torch.randn(*shape, dtype=torch.float64, generator=chance)

    return Network(
        u=draw(inputs, hidden),
        w=draw(hidden, hidden) / hidden**0.5,
        v=draw(outputs, hidden),
        h0=draw(hidden).tanh(),
        x=draw(steps, inputs),
        y=torch.randint(outputs, (steps,), generator=chance),
    )


def with_values(network: Network, values: Mapping[str, Sequence[float]]) -> Network:
    """The network with some of u, w, v, h0, x and y given, row by row, instead of drawn."""
    names, changed = ("u", "w", "v", "h0", "x", "y"), {}
    for name, numbers in values.items():
        if name not in names:
            raise unknown_name("value", name, names)
        held: Tensor = getattr(network, name)
        if len(numbers) != held.numel():
            shape = " × ".join(map(str, held.shape))
            raise InputError(f"{name} has {held.numel()} numbers ({shape}), not {len(numbers)}")
        changed[name] = torch.tensor(list(numbers), dtype=torch.float64).view(held.shape).to(held.dtype)
        if name == "y" and not all(n in range(len(network.v)) for n in numbers):
            raise InputError(f"y says which of {len(network.v)} outputs is right", hint="count them from 0")
    return replace(network, **changed)


def forward(network: Network) -> list[Step]:
    """s, h, z, ŷ and J of every step."""
    made, h = [], network.h0
    for t, (x, target) in enumerate(zip(network.x, network.y.tolist()), start=1):
        s = network.u.T @ x + network.w @ h
        h = torch.tanh(s)
        z = network.v @ h
        y_hat = torch.softmax(z, dim=0)
        made.append(Step(t, x, s, h, z, y_hat, target, -torch.log(y_hat[target])))
    return made


def terms(network: Network, made: Sequence[Step], t: int, weight: str = "w", cut: int = 0) -> list[Term]:
    """Every term of ∂J(t)/∂(weight), the nearest first; behind a ``cut`` of the graph after that step there is none."""
    at = made[t - 1]
    top = [
        Factor(f"∂J({t})/∂ŷ({t})", _one_hot(at) * (-1 / at.y_hat)[None]),
        Factor(f"∂ŷ({t})/∂z({t})", torch.diag(at.y_hat) - torch.outer(at.y_hat, at.y_hat)),
    ]
    if weight == "v":
        return [_term("v", t, t, [*top, Factor(f"∂z({t})/∂v", at.h[None])])]
    chain, found = [*top, Factor(f"∂z({t})/∂h({t})", network.v)], []
    for k in range(t, cut if t > cut else 0, -1):
        chain = [*chain, Factor(f"∂h({k})/∂s({k})", torch.diag(1 - made[k - 1].h ** 2))]
        before = made[k - 2].h if k > 1 else network.h0
        last = before if weight == "w" else network.x[k - 1]
        found.append(_term(weight, t, k, [*chain, Factor(f"∂s({k})/∂{weight}", last[None])]))
        chain = [*chain, Factor(f"∂s({k})/∂h({k - 1})", network.w)]
    return found


def _one_hot(step: Step) -> Tensor:
    """y(t) as a row, (1, K)."""
    row = torch.zeros_like(step.y_hat)
    row[step.target] = 1
    return row[None]


def _term(weight: str, t: int, k: int, factors: Sequence[Factor]) -> Term:
    """The product of the factors: a row g, and what the weight is multiplied with at its appearance."""
    *chain, last = factors
    g = reduce(torch.matmul, [factor.value for factor in chain])
    value = last.value.T @ g if weight == "u" else g.T @ last.value  # u stands transposed in its equation
    return Term(weight, t, k, tuple(factors), value)


def by_autograd(network: Network, t: int, cut: int = 0) -> dict[str, list[Tensor]]:
    """∂J(t) with respect to the copy of u, w and v that each step 1 … t uses, as autograd has it."""
    copies = {name: [getattr(network, name).clone().requires_grad_() for _ in range(t)] for name in ("u", "w", "v")}
    h = network.h0
    for step in range(t):
        h = torch.tanh(copies["u"][step].T @ network.x[step] + copies["w"][step] @ h)
        z = copies["v"][step] @ h
        if step + 1 == cut:
            h = h.detach()  # the value goes on, the graph does not
    loss = torch.nn.functional.cross_entropy(z[None], network.y[t - 1 : t])
    flat = [copy for held in copies.values() for copy in held]
    grads = iter(torch.autograd.grad(loss, flat, allow_unused=True))
    return {
        name: [torch.zeros_like(copy) if (g := next(grads)) is None else g for copy in held]
        for name, held in copies.items()
    }


def bptt_numbers(network: Network, *, costs: Sequence[int] = (), cut: int = 0) -> dict[str, Any]:
    """All of it for JSON: the forward values, every term with its factors, the sums, and how far autograd is from them.

    ``costs`` are the steps whose J counts (all, where none is named); after step ``cut`` the graph is cut.
    """
    made, T = forward(network), network.steps
    counted = sorted(set(costs)) or list(range(1, T + 1))
    for name, value in (("--costs", counted[0]), ("--costs", counted[-1]), ("--cut", cut or 1)):
        if not 1 <= value <= T:
            raise InputError(f"{name} {value} is no step", hint=f"steps are 1 to {T}")
    found = {weight: _gradients(network, made, weight, counted, cut) for weight in ("w", "u", "v")}
    return {
        "steps": T,
        "hidden": len(network.h0),
        "costs": counted,
        "cut": cut or None,
        "formula": FORMULA,
        "values": {name: getattr(network, name).tolist() for name in ("u", "w", "v", "h0", "x", "y")},
        "forward": [_step_numbers(step) for step in made],
        "error": float(sum(made[t - 1].loss for t in counted)),
        "gradients": {weight: told for weight, (told, _) in found.items()},
        "largest_difference": max(gap for _, gap in found.values()),
    }


def _gradients(
    network: Network, made: Sequence[Step], weight: str, counted: Sequence[int], cut: int
) -> tuple[dict[str, Any], float]:
    """The terms of all ∂J(t)/∂(weight) and their sums for JSON, and the largest difference of a term to autograd."""
    rows, total, farthest = [], torch.zeros_like(getattr(network, weight)), 0.0
    for t in counted:
        own = {term.k: term for term in terms(network, made, t, weight, cut)}
        theirs = by_autograd(network, t, cut)[weight]
        for k, grad in enumerate(theirs, start=1):
            gap = grad - own[k].value if k in own else grad
            farthest = max(farthest, float(gap.abs().max()))
        whole = torch.stack([term.value for term in own.values()]).sum(0)
        total = total + whole
        told = [_term_numbers(term, theirs[term.k - 1]) for term in own.values()]
        rows.append({"t": t, "terms": told, "sum": whole.tolist(), "autograd": torch.stack(theirs).sum(0).tolist()})
    return {"costs": rows, "total": total.tolist()}, farthest


def _term_numbers(term: Term, theirs: Tensor) -> dict[str, Any]:
    """A term for JSON."""
    factors = [{"name": factor.name, "value": factor.value.tolist()} for factor in term.factors]
    return {"k": term.k, "factors": factors, "value": term.value.tolist(), "autograd": theirs.tolist()}


def _step_numbers(step: Step) -> dict[str, Any]:
    """A step for JSON."""
    parts = {name: getattr(step, name).tolist() for name in ("x", "s", "h", "z", "y_hat")}
    return {"t": step.t, **parts, "target": step.target, "loss": float(step.loss)}
