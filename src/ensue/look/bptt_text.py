"""Backpropagation through time for a terminal: forward values, then every term with its factors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group
from rich.table import Table

OTHERS = {"u": "as many terms as w, with x(k) where w has h(k−1)", "v": "one term for each J"}


def bptt_text(numbers: Mapping[str, Any]) -> Group:
    """Tables of what ``ensue.look.instruments.bptt.bptt_numbers`` tells."""
    losses = {step["t"]: step["loss"] for step in numbers["forward"]}
    sum_of = " + ".join(f"J({t})" for t in numbers["costs"])
    values = " + ".join(written(losses[t]) for t in numbers["costs"])
    held = numbers["gradients"]
    total = " + ".join(f"∂J({cost['t']})/∂w" for cost in reversed(held["w"]["costs"]))
    return Group(
        headline(numbers),
        "",
        _forward(numbers),
        f"E = {sum_of} = {values} = {written(numbers['error'])}",
        "",
        numbers["formula"],
        "",
        *(_terms(cost) for cost in held["w"]["costs"]),
        f"∂E/∂w = {total} = {figures(held['w']['total'])}",
        *(f"∂E/∂{name} = {figures(held[name]['total'])}  ({said})" for name, said in OTHERS.items()),
        f"largest difference to autograd, of any term: {numbers['largest_difference']:.1e}",
    )


def headline(numbers: Mapping[str, Any]) -> str:
    """Which network it is."""
    held = numbers["values"]
    given = ", ".join(f"{name} = {figures(held[name])}" for name in ("u", "w", "v"))
    line = f"s(t) = uᵀ x(t) + w h(t−1), h = tanh s, z = v h, ŷ = softmax z, J = −log ŷ of what is right; {given}, "
    line += f"h(0) = {figures(held['h0'])}."
    if numbers["cut"]:
        line += f" The graph is cut after step {numbers['cut']}: the state goes on, no gradient comes back."
    return line


def _forward(numbers: Mapping[str, Any]) -> Table:
    """A row a step."""
    table = Table("t", "x", "s", "h", "z", "ŷ", "right", "J", title="Forward", title_justify="left")
    for step in numbers["forward"]:
        cells = [figures(step[name]) for name in ("x", "s", "h", "z", "y_hat")]
        counts = written(step["loss"]) if step["t"] in numbers["costs"] else f"({written(step['loss'])})"
        table.add_row(str(step["t"]), *cells, str(step["target"]), counts)
    return table


def _terms(cost: Mapping[str, Any]) -> Table:
    """The terms of one ∂J(t)/∂w, each with its factors."""
    t, count = cost["t"], len(cost["terms"])
    title = f"∂J({t})/∂w: {'1 term' if count == 1 else f'{count} terms'}"
    table = Table("k", "factors, from the left", "their product", "autograd", title=title, title_justify="left")
    for term in cost["terms"]:
        factors = "\n".join(f"{factor['name']} = {figures(factor['value'])}" for factor in term["factors"])
        table.add_row(str(term["k"]), factors, figures(term["value"]), figures(term["autograd"]), end_section=True)
    table.add_row("", "their sum", figures(cost["sum"]), figures(cost["autograd"]))
    return table


def figures(value: Any) -> str:
    """A number, a row or a matrix in one line; rows of a matrix stand apart by semicolons.

    >>> figures(-0.5), figures([1, 0.25]), figures([[1, 2], [3, -4]]), figures([[0.125]])
    ('−0.5', '(1, 0.25)', '(1, 2; 3, −4)', '0.125')
    """
    if not isinstance(value, list):
        return written(value)
    rows = value if value and isinstance(value[0], list) else [value]
    if len(rows) == 1 and len(rows[0]) == 1:
        return written(rows[0][0])
    return "(" + "; ".join(", ".join(map(written, row)) for row in rows) + ")"


def written(value: float) -> str:
    """A number to four digits, with a true minus.

    >>> written(-0.000123456), written(0.0), written(12)
    ('−0.0001235', '0', '12')
    """
    return f"{value + 0.0:.4g}".replace("-", "−")
