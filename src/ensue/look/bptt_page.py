"""Backpropagation through time as an offline page with steps: the unrolled graph, and the numbers of each term.

First the forward values step by step, then every term of ∂J(t)/∂w with its path through the graph, the sum for each
J(t), and last the total. A path is a list of edges between nodes; a node is its letter and its step: ["h", 2].
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ensue.look.bptt_text import headline
from ensue.look.formatting import matrix_rows, matrix_text, significant
from ensue.look.page import step_page

Edge = list[list[Any]]


def bptt_html(numbers: Mapping[str, Any]) -> str:
    """The page of the result of ``ensue.look.instruments.bptt.bptt_numbers``: one file that fetches nothing."""
    steps = [*_forward(numbers), _error(numbers), *_backward(numbers), _total(numbers)]
    above = {"soft": headline(numbers), "formula": numbers["formula"]}
    data = {"T": numbers["steps"], "costs": numbers["costs"], "cut": numbers["cut"], "values": _node_values(numbers)}
    title = "Backpropagation through time, step by step"
    return step_page(title, above, {**data, "steps": steps}, "bptt", beside="numbers")


def _node_values(numbers: Mapping[str, Any]) -> dict[str, str]:
    """Numbers beside the nodes of the graph: J, and states of width 1."""
    values = {f"J{step['t']}": significant(step["loss"]) for step in numbers["forward"]}
    if numbers["hidden"] == 1:
        values["h0"] = significant(numbers["values"]["h0"][0])
        for step in numbers["forward"]:
            values |= {f"{name}{step['t']}": significant(step[name][0]) for name in ("s", "h")}
    return values


def _forward(numbers: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A step of the page for each time step: s, h, z, ŷ, J."""
    steps = []
    for step in numbers["forward"]:
        t, target = step["t"], step["target"]
        lines = [
            _line(f"s({t}) = uᵀ x({t}) + w h({t - 1})", step["s"]),
            _line(f"h({t}) = tanh s({t})", step["h"]),
            _line(f"z({t}) = v h({t})", step["z"]),
            _line(f"ŷ({t}) = softmax z({t})", step["y_hat"]),
        ]
        text = f"The input is x({t}) = {matrix_text(step['x'])} and the target is output {target}: "
        text += f"J({t}) = −log ŷ({t})[{target}] = {significant(step['loss'])}."
        title = f"Forward: step {t} of {numbers['steps']}"
        result = _line(f"J({t})", step["loss"])
        steps.append(_step(title, text, _forward_path(t, t), lines, result, known=t, backward=False))
    return steps


def _error(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """E, the sum of the losses that count."""
    losses = {step["t"]: step["loss"] for step in numbers["forward"]}
    counted = numbers["costs"]
    lines = [_line(f"J({t})", losses[t]) for t in counted]
    terms = " + ".join(f"J({t})" for t in counted)
    text = f"The error of the sequence is the sum of the losses of its steps: E = {terms}."
    if len(counted) < numbers["steps"]:
        text += " The other losses do not count and contribute no gradient."
    path = [edge for t in counted for edge in _forward_path(t, t)[-1:]]
    return _step("The error", text, path, lines, _line(f"E = {terms}", numbers["error"]), backward=False)


def _backward(numbers: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A step of the page for each term of ∂J(t)/∂w, and one for each sum."""
    steps = []
    for cost in numbers["gradients"]["w"]["costs"]:
        t, terms = cost["t"], cost["terms"]
        for number, term in enumerate(terms, start=1):
            k = term["k"]
            lines = [_line(factor["name"], factor["value"]) for factor in term["factors"]]
            text = f"How J({t}) depends on w at step {k}: {len(lines)} factors, from J({t}) back to s({k})"
            text += f" over {t - k} time step{'s' if t - k > 1 else ''}." if t > k else "."
            title = f"∂J({t})/∂w: term {number} of {len(terms)} (k = {k})"
            result = _line(f"∂J({t})/∂w at step {k}", term["value"])
            steps.append(_step(title, text, _backward_path(t, k), lines, result, weight=k))
        lines = [_line(f"term k = {term['k']}", term["value"]) for term in terms]
        text = "The gradient of a repeated weight is the sum over its occurrences. "
        text += f"Autograd computes {matrix_text(cost['autograd'])}."
        path = [edge for term in terms for edge in _backward_path(t, term["k"])]
        steps.append(_step(f"∂J({t})/∂w: the sum", text, path, lines, _line(f"∂J({t})/∂w", cost["sum"])))
    return steps


def _total(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """∂E/∂w, and the gradients of the other two weights."""
    w, u, v = (numbers["gradients"][name] for name in ("w", "u", "v"))
    lines = [_line(f"∂J({cost['t']})/∂w", cost["sum"]) for cost in w["costs"]]
    lines += [_line("∂E/∂u, computed the same way", u["total"]), _line("∂E/∂v", v["total"])]
    text = "The gradient of E is the sum over all J that count. v has one term per step, as h does not depend on it. "
    text += f"The largest difference to autograd, of any term, is {numbers['largest_difference']:.1e}."
    path = [edge for cost in w["costs"] for term in cost["terms"] for edge in _backward_path(cost["t"], term["k"])]
    return _step("∂E/∂w", text, path, lines, _line("∂E/∂w", w["total"]))


def _step(
    title: str,
    text: str,
    path: list[Edge],
    lines: list[dict[str, Any]],
    result: dict[str, Any],
    *,
    weight: int | None = None,
    known: int | None = None,
    backward: bool = True,
) -> dict[str, Any]:
    """A step of the page. ``weight`` is the time step whose w is highlighted, ``known`` the last computed one."""
    step = {"title": title, "text": text, "way": path, "lines": lines, "result": result}
    return {**step, "weight": weight, "known": known, "backward": backward}


def _forward_path(first: int, t: int) -> list[Edge]:
    """The edges from the input of step ``first`` to J(t)."""
    path: list[Edge] = [[["x", first], ["s", first]], [["h", first - 1], ["s", first]]]
    for step in range(first, t + 1):
        path.append([["s", step], ["h", step]])
        path += [[["h", step], ["s", step + 1]]] if step < t else []
    return [*path, [["h", t], ["z", t]], [["z", t], ["ŷ", t]], [["ŷ", t], ["J", t]]]


def _backward_path(t: int, k: int) -> list[Edge]:
    """The edges of a term: from J(t) back to s(k), and the edge of w at step k."""
    return [edge for edge in _forward_path(k, t) if edge[0][0] != "x"]


def _line(name: str, value: Any) -> dict[str, Any]:
    return {"name": name, "value": matrix_rows(value)}
