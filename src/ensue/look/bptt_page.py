"""Backpropagation through time as a page that one steps through: the unrolled graph, and a term with its numbers.

First the forward values step by step, then every term of ∂J(t)/∂w with the way that it takes through the graph, the
sum for each J(t), and at last the sum of all. bptt.css and bptt.js go into the frame of ``ensue.look.page`` as they
are. A way is a list of edges between nodes, a node its letter and its step: ["h", 2].
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ensue.look.bptt_text import figures, headline, written
from ensue.look.page import stepped

Edge = list[list[Any]]


def bptt_html(numbers: Mapping[str, Any]) -> str:
    """The page of what ``ensue.look.instruments.bptt.bptt_numbers`` tells: nothing is fetched, so it works offline."""
    steps = [*_forward(numbers), _error(numbers), *_backward(numbers), _total(numbers)]
    above = {"soft": headline(numbers), "formula": numbers["formula"]}
    data = {"T": numbers["steps"], "costs": numbers["costs"], "cut": numbers["cut"], "values": _shown(numbers)}
    title = "Backpropagation through time, step by step"
    return stepped(title, above, {**data, "steps": steps}, "bptt", beside="numbers")


def _shown(numbers: Mapping[str, Any]) -> dict[str, str]:
    """What is written beside a node of the graph: J, and the states where they are single numbers."""
    shown = {f"J{step['t']}": written(step["loss"]) for step in numbers["forward"]}
    if numbers["hidden"] == 1:
        shown["h0"] = written(numbers["values"]["h0"][0])
        for step in numbers["forward"]:
            shown |= {f"{name}{step['t']}": written(step[name][0]) for name in ("s", "h")}
    return shown


def _forward(numbers: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One step a step: s, h, z, ŷ, J."""
    made = []
    for step in numbers["forward"]:
        t = step["t"]
        lines = [
            _line(f"s({t}) = uᵀ x({t}) + w h({t - 1})", step["s"]),
            _line(f"h({t}) = tanh s({t})", step["h"]),
            _line(f"z({t}) = v h({t})", step["z"]),
            _line(f"ŷ({t}) = softmax z({t})", step["y_hat"]),
        ]
        way = _up(t, t)
        text = f"x({t}) = {figures(step['x'])} is read, output {step['target']} is right: J({t}) = −log ŷ({t})"
        text += f"[{step['target']}] = {written(step['loss'])}."
        title = f"Forward: step {t} of {numbers['steps']}"
        made.append(_step(title, text, way, lines, _line(f"J({t})", step["loss"]), known=t, backward=False))
    return made


def _error(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """E, the sum of the J that count."""
    losses = {step["t"]: step["loss"] for step in numbers["forward"]}
    counted = numbers["costs"]
    lines = [_line(f"J({t})", losses[t]) for t in counted]
    said = " + ".join(f"J({t})" for t in counted)
    text = f"The error of the whole sequence is the sum of the errors of its steps: E = {said}."
    if len(counted) < numbers["steps"]:
        text += " The other outputs do not count, so no gradient comes from them."
    way = [edge for t in counted for edge in _up(t, t)[-1:]]
    return _step("The error", text, way, lines, _line(f"E = {said}", numbers["error"]), backward=False)


def _backward(numbers: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One step a term of ∂J(t)/∂w, and one for each sum."""
    made = []
    for cost in numbers["gradients"]["w"]["costs"]:
        t, found = cost["t"], cost["terms"]
        for number, term in enumerate(found, start=1):
            k = term["k"]
            lines = [_line(factor["name"], factor["value"]) for factor in term["factors"]]
            text = f"How w, as step {k} uses it, changes J({t}): {len(lines)} factors, from J({t}) back to s({k})"
            text += f" over {_steps(t - k)}." if t > k else "."
            title = f"∂J({t})/∂w: term {number} of {len(found)} (k = {k})"
            result = _line(f"∂J({t})/∂w at step {k}", term["value"])
            made.append(_step(title, text, _down(t, k), lines, result, weight=k))
        lines = [_line(f"term k = {term['k']}", term["value"]) for term in found]
        text = (
            f"A repeated weight's gradient is the sum over its appearances. Autograd says {figures(cost['autograd'])}."
        )
        way = [edge for term in found for edge in _down(t, term["k"])]
        result = _line(f"∂J({t})/∂w", cost["sum"])
        made.append(_step(f"∂J({t})/∂w: the sum", text, way, lines, result))
    return made


def _total(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """∂E/∂w, and the other two weights."""
    held = numbers["gradients"]
    lines = [_line(f"∂J({cost['t']})/∂w", cost["sum"]) for cost in held["w"]["costs"]]
    lines += [_line("∂E/∂u, computed the same way", held["u"]["total"]), _line("∂E/∂v", held["v"]["total"])]
    text = "The gradient of E is the sum over all J that count. v has one term a step: h does not depend on it. "
    text += f"The largest difference to autograd, of any term, is {numbers['largest_difference']:.1e}."
    way = [edge for cost in held["w"]["costs"] for term in cost["terms"] for edge in _down(cost["t"], term["k"])]
    return _step("∂E/∂w", text, way, lines, _line("∂E/∂w", held["w"]["total"]))


def _step(
    title: str,
    text: str,
    way: list[Edge],
    lines: list[dict[str, Any]],
    result: dict[str, Any],
    *,
    weight: int | None = None,
    known: int | None = None,
    backward: bool = True,
) -> dict[str, Any]:
    """A step of the page. ``weight`` is the step whose w is meant, ``known`` how many steps have been computed."""
    step = {"title": title, "text": text, "way": way, "lines": lines, "result": result}
    return {**step, "weight": weight, "known": known, "backward": backward}


def _steps(count: int) -> str:
    return "1 step of time" if count == 1 else f"{count} steps of time"


def _up(first: int, t: int) -> list[Edge]:
    """The way forward: from what step ``first`` reads to J(t)."""
    way: list[Edge] = [[["x", first], ["s", first]], [["h", first - 1], ["s", first]]]
    for step in range(first, t + 1):
        way.append([["s", step], ["h", step]])
        way += [[["h", step], ["s", step + 1]]] if step < t else []
    return [*way, [["h", t], ["z", t]], [["z", t], ["ŷ", t]], [["ŷ", t], ["J", t]]]


def _down(t: int, k: int) -> list[Edge]:
    """The way of a term: from J(t) down to s(k), and along the w that step k uses."""
    return [edge for edge in _up(k, t) if edge[0][0] != "x"]


def _line(name: str, value: Any) -> dict[str, Any]:
    """A name and a value: rows of figures, as they are shown."""
    if not isinstance(value, list):
        return {"name": name, "value": [[written(value)]]}
    rows = value if value and isinstance(value[0], list) else [value]
    return {"name": name, "value": [[written(number) for number in row] for row in rows]}
