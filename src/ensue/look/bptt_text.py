"""Backpropagation through time for a terminal: forward values, then every term with its factors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group
from rich.table import Table

from ensue.look.formatting import matrix_text, significant

OTHERS = {"u": "as many terms as w, with x(k) instead of h(k−1)", "v": "one term for each J"}


def bptt_text(numbers: Mapping[str, Any]) -> Group:
    """Tables of the result of ``ensue.look.instruments.bptt.bptt_numbers``."""
    losses = {step["t"]: step["loss"] for step in numbers["forward"]}
    names = " + ".join(f"J({t})" for t in numbers["costs"])
    values = " + ".join(significant(losses[t]) for t in numbers["costs"])
    gradients = numbers["gradients"]
    total = " + ".join(f"∂J({cost['t']})/∂w" for cost in reversed(gradients["w"]["costs"]))
    return Group(
        headline(numbers),
        "",
        _forward(numbers),
        f"E = {names} = {values} = {significant(numbers['error'])}",
        "",
        numbers["formula"],
        "",
        *(_terms(cost) for cost in gradients["w"]["costs"]),
        f"∂E/∂w = {total} = {matrix_text(gradients['w']['total'])}",
        *(f"∂E/∂{name} = {matrix_text(gradients[name]['total'])}  ({note})" for name, note in OTHERS.items()),
        f"largest difference to autograd, of any term: {numbers['largest_difference']:.1e}",
    )


def headline(numbers: Mapping[str, Any]) -> str:
    """The equations of the network and its weights."""
    weights = numbers["values"]
    given = ", ".join(f"{name} = {matrix_text(weights[name])}" for name in ("u", "w", "v"))
    line = f"s(t) = uᵀ x(t) + w h(t−1), h = tanh s, z = v h, ŷ = softmax z, J = −log ŷ[target]; {given}, "
    line += f"h(0) = {matrix_text(weights['h0'])}."
    if numbers["cut"]:
        line += f" The graph is detached after step {numbers['cut']}: the state continues, gradients stop there."
    return line


def _forward(numbers: Mapping[str, Any]) -> Table:
    """A row per step; losses that do not count are in parentheses."""
    table = Table("t", "x", "s", "h", "z", "ŷ", "target", "J", title="Forward", title_justify="left")
    for step in numbers["forward"]:
        cells = [matrix_text(step[name]) for name in ("x", "s", "h", "z", "y_hat")]
        loss = significant(step["loss"])
        counted = step["t"] in numbers["costs"]
        table.add_row(str(step["t"]), *cells, str(step["target"]), loss if counted else f"({loss})")
    return table


def _terms(cost: Mapping[str, Any]) -> Table:
    """The terms of one ∂J(t)/∂w, each with its factors."""
    t, count = cost["t"], len(cost["terms"])
    title = f"∂J({t})/∂w: {'1 term' if count == 1 else f'{count} terms'}"
    table = Table("k", "factors, from left to right", "product", "autograd", title=title, title_justify="left")
    for term in cost["terms"]:
        factors = "\n".join(f"{factor['name']} = {matrix_text(factor['value'])}" for factor in term["factors"])
        values = matrix_text(term["value"]), matrix_text(term["autograd"])
        table.add_row(str(term["k"]), factors, *values, end_section=True)
    table.add_row("", "sum", matrix_text(cost["sum"]), matrix_text(cost["autograd"]))
    return table
