"""Backpropagation through time: every term of ∂J(t)/∂w with all its factors, as numbers.

    s(t) = uᵀ x(t) + w h(t−1)
    h(t) = tanh s(t)
    z(t) = v h(t)
    ŷ(t) = softmax z(t)
    J(t) = −Σ y(t) log ŷ(t)                                       y(t) one-hot
    E    = Σ_t J(t)

    ∂J(t)/∂w = Σ_{k=1…t} ∂J(t)/∂ŷ(t) · ∂ŷ(t)/∂z(t) · ∂z(t)/∂h(t)
                         · (Π_{j=t…k+1} ∂h(j)/∂s(j) · ∂s(j)/∂h(j−1)) · ∂h(k)/∂s(k) · ∂s(k)/∂w

Factors are Jacobians and do not commute: the product begins with j = t. The product of the factors left of ∂s(k)/∂w is
a row g (1, N). As ∂s_i/∂w_ab = [i = a] h(k−1)_b, the term is the matrix gᵀ h(k−1)ᵀ. For u it is x(k) g. v has a single
term, as h does not depend on it. Everything is computed in float64 and compared with autograd term by term: there each
step uses its own copy of the weight, so that the gradient of copy k is the term of step k.

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

MAX_STEPS, MAX_HIDDEN = 12, 8
"""More cannot be read: this is 78 terms, and Jacobians of 8 × 8."""
FORMULA = (
    "∂J(t)/∂w = Σ_{k=1…t} ∂J(t)/∂ŷ(t) · ∂ŷ(t)/∂z(t) · ∂z(t)/∂h(t) · (Π_{j=t…k+1} ∂h(j)/∂s(j) · ∂s(j)/∂h(j−1)) "
    "· ∂h(k)/∂s(k) · ∂s(k)/∂w"
)
SPREAD = 0.9
"""The standard deviation of random weights and inputs."""


@dataclass(frozen=True, kw_only=True)
class Network:
    """The recurrent network of the equations, with its inputs and targets."""

    u: Tensor  # (D, N)
    w: Tensor  # (N, N)
    v: Tensor  # (K, N)
    h0: Tensor  # (N,), not 0, as ∂s(1)/∂w would then be 0
    x: Tensor  # (T, D)
    y: Tensor  # (T,), the index of the target


@dataclass(frozen=True)
class UnrolledStep:
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
    """The contribution of a weight's use at step k to the gradient of J(t)."""

    weight: str
    t: int
    k: int
    factors: tuple[Factor, ...]
    value: Tensor


def random_network(*, steps: int = 3, hidden: int = 1, inputs: int = 1, outputs: int = 2, seed: int = 0) -> Network:
    """A network with random weights, inputs and targets."""
    for name, value, most in (("steps", steps, MAX_STEPS), ("hidden", hidden, MAX_HIDDEN)):
        if not 1 <= value <= most:
            raise InputError(f"--{name} {value} cannot be written out", hint=f"use 1 to {most}")
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return SPREAD * torch.randn(*shape, dtype=torch.float64, generator=generator)

    return Network(
        u=normal(inputs, hidden),
        w=normal(hidden, hidden) / hidden**0.5,
        v=normal(outputs, hidden),
        h0=normal(hidden).tanh(),
        x=normal(steps, inputs),
        y=torch.randint(outputs, (steps,), generator=generator),
    )


def with_values(network: Network, values: Mapping[str, Sequence[float]]) -> Network:
    """The network with some of u, w, v, h0, x and y replaced by given values, row by row."""
    names, changed = ("u", "w", "v", "h0", "x", "y"), {}
    for name, numbers in values.items():
        if name not in names:
            raise unknown_name("value", name, names)
        before: Tensor = getattr(network, name)
        if len(numbers) != before.numel():
            shape = " × ".join(map(str, before.shape))
            raise InputError(f"{name} has {before.numel()} numbers ({shape}), not {len(numbers)}")
        changed[name] = torch.tensor(list(numbers), dtype=torch.float64).view(before.shape).to(before.dtype)
        if name == "y" and not all(n in range(len(network.v)) for n in numbers):
            raise InputError(f"y must be indices of the {len(network.v)} outputs", hint="count them from 0")
    return replace(network, **changed)


def forward(network: Network) -> list[UnrolledStep]:
    """s, h, z, ŷ and J of every step."""
    steps, h = [], network.h0
    for t, (x, target) in enumerate(zip(network.x, network.y.tolist()), start=1):
        s = network.u.T @ x + network.w @ h
        h = torch.tanh(s)
        z = network.v @ h
        y_hat = torch.softmax(z, dim=0)
        steps.append(UnrolledStep(t, x, s, h, z, y_hat, target, -torch.log(y_hat[target])))
    return steps


def terms(network: Network, steps: Sequence[UnrolledStep], t: int, weight: str = "w", cut: int = 0) -> list[Term]:
    """The terms of ∂J(t)/∂(weight), the nearest first; none across ``cut``, the step after which the graph is cut."""
    last = steps[t - 1]
    one_hot = torch.nn.functional.one_hot(torch.tensor(last.target), len(last.y_hat))
    top = [
        Factor(f"∂J({t})/∂ŷ({t})", (one_hot * (-1 / last.y_hat))[None]),
        Factor(f"∂ŷ({t})/∂z({t})", torch.diag(last.y_hat) - torch.outer(last.y_hat, last.y_hat)),
    ]
    if weight == "v":
        return [_term("v", t, t, [*top, Factor(f"∂z({t})/∂v", last.h[None])])]
    chain, result = [*top, Factor(f"∂z({t})/∂h({t})", network.v)], []
    for k in range(t, cut if t > cut else 0, -1):
        chain = [*chain, Factor(f"∂h({k})/∂s({k})", torch.diag(1 - steps[k - 1].h ** 2))]
        before = steps[k - 2].h if k > 1 else network.h0
        used = before if weight == "w" else network.x[k - 1]
        result.append(_term(weight, t, k, [*chain, Factor(f"∂s({k})/∂{weight}", used[None])]))
        chain = [*chain, Factor(f"∂s({k})/∂h({k - 1})", network.w)]
    return result


def _term(weight: str, t: int, k: int, factors: Sequence[Factor]) -> Term:
    """The product of the factors: of the row g and the vector that the weight multiplies."""
    *chain, last = factors
    g = reduce(torch.matmul, [factor.value for factor in chain])
    value = last.value.T @ g if weight == "u" else g.T @ last.value  # u is transposed in its equation
    return Term(weight, t, k, tuple(factors), value)


def by_autograd(network: Network, t: int, cut: int = 0) -> dict[str, list[Tensor]]:
    """∂J(t) with respect to the copies of u, w and v of each step 1 … t, by autograd."""
    copies = {name: [getattr(network, name).clone().requires_grad_() for _ in range(t)] for name in ("u", "w", "v")}
    h = network.h0
    for step in range(t):
        h = torch.tanh(copies["u"][step].T @ network.x[step] + copies["w"][step] @ h)
        z = copies["v"][step] @ h
        if step + 1 == cut:
            h = h.detach()
    loss = torch.nn.functional.cross_entropy(z[None], network.y[t - 1 : t])
    flat = [copy for copies_of_one in copies.values() for copy in copies_of_one]
    grads = torch.autograd.grad(loss, flat, allow_unused=True, materialize_grads=True)
    return {name: list(grads[i * t : (i + 1) * t]) for i, name in enumerate(copies)}


def bptt_numbers(network: Network, *, costs: Sequence[int] = (), cut: int = 0) -> dict[str, Any]:
    """Forward values, every term with its factors, the sums, and the largest difference to autograd, for JSON.

    ``costs`` are the steps whose J counts (default: all); after step ``cut`` the graph is cut.
    """
    steps, T = forward(network), len(network.x)
    counted = sorted(set(costs)) or list(range(1, T + 1))
    for name, value in (("--costs", counted[0]), ("--costs", counted[-1]), ("--cut", cut or 1)):
        if not 1 <= value <= T:
            raise InputError(f"{name} {value} is not a step", hint=f"steps are 1 to {T}")
    gradients = {weight: _gradients(network, steps, weight, counted, cut) for weight in ("w", "u", "v")}
    return {
        "steps": T,
        "hidden": len(network.h0),
        "costs": counted,
        "cut": cut or None,
        "formula": FORMULA,
        "values": {name: getattr(network, name).tolist() for name in ("u", "w", "v", "h0", "x", "y")},
        "forward": [_step_numbers(step) for step in steps],
        "error": float(sum(steps[t - 1].loss for t in counted)),
        "gradients": {weight: numbers for weight, (numbers, _) in gradients.items()},
        "largest_difference": max(difference for _, difference in gradients.values()),
    }


def _gradients(
    network: Network, steps: Sequence[UnrolledStep], weight: str, counted: Sequence[int], cut: int
) -> tuple[dict[str, Any], float]:
    """The terms of all ∂J(t)/∂(weight) and their sums for JSON, and the largest difference of a term to autograd."""
    rows, total, largest = [], torch.zeros_like(getattr(network, weight)), 0.0
    for t in counted:
        by_hand = {term.k: term for term in terms(network, steps, t, weight, cut)}
        reference = by_autograd(network, t, cut)[weight]
        for k, grad in enumerate(reference, start=1):
            difference = grad - by_hand[k].value if k in by_hand else grad
            largest = max(largest, float(difference.abs().max()))
        gradient = torch.stack([term.value for term in by_hand.values()]).sum(0)
        total = total + gradient
        numbers = [_term_numbers(term, reference[term.k - 1]) for term in by_hand.values()]
        whole = torch.stack(reference).sum(0)
        rows.append({"t": t, "terms": numbers, "sum": gradient.tolist(), "autograd": whole.tolist()})
    return {"costs": rows, "total": total.tolist()}, largest


def _term_numbers(term: Term, reference: Tensor) -> dict[str, Any]:
    """A term for JSON."""
    factors = [{"name": factor.name, "value": factor.value.tolist()} for factor in term.factors]
    return {"k": term.k, "factors": factors, "value": term.value.tolist(), "autograd": reference.tolist()}


def _step_numbers(step: UnrolledStep) -> dict[str, Any]:
    """A step for JSON."""
    parts = {name: getattr(step, name).tolist() for name in ("x", "s", "h", "z", "y_hat")}
    return {"t": step.t, **parts, "target": step.target, "loss": float(step.loss)}
