"""``ensue look equivalence``: what attention is equivalent to, in numbers and as a chart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import altair as alt

from ensue.core.errors import InputError, unknown_name
from ensue.look.chart_parts import by_name, records, shades, titled
from ensue.look.instruments.equivalence import EQUIVALENCES
from ensue.look.view import View

TITLES = {
    "linear-rnn": "Linear attention is a recurrent network",
    "hopfield": "Softmax attention is one update of a Hopfield network",
    "graph": "Attention passes messages on a graph, and a mask is the graph",
    "kernel": "Attention is a kernel smoother, and random features estimate the kernel",
}
CAPTIONS = {
    "linear-rnn": "S_t = S_{t-1} + φ(k_t) ⊗ v_t after each token: the state of the network, a matrix. Read out by "
    "φ(q_t), it gives the outputs of the parallel form.",
    "hopfield": "The state starts at a damaged pattern. Each update is attention to the stored patterns; the energy "
    "never rises, and the state comes to rest at the pattern.",
    "graph": "A row for each node, shaded by the share of each neighbour in what it gets.",
    "kernel": "Mean difference of attention by F random features from exact attention. Dashed: F^(−1/2).",
}


def equivalence(names: Sequence[str], *, seed: int = 0) -> View:
    """One of the equivalences: linear-rnn, hopfield, graph or kernel."""
    if len(names) != 1:
        hint = f"one of {', '.join(EQUIVALENCES)}"
        raise InputError(f"equivalence shows one thing, not {len(names)}", hint=hint)
    (name,) = names
    if name not in EQUIVALENCES:
        raise unknown_name("equivalence", name, EQUIVALENCES)
    numbers = EQUIVALENCES[name](seed=seed)
    return View(partial(equivalence_chart, numbers), numbers, partial(equivalence_text, numbers))


def equivalence_text(numbers: dict[str, Any]) -> str:
    """The differences, for a terminal."""
    name = numbers["equivalence"]
    lines = [TITLES[name], "", *(f"{what}: {value:.1e}" for what, value in numbers["differences"].items())]
    if name == "hopfield":
        lines.append("energy: " + " → ".join(f"{value:.4f}" for value in numbers["energies"]))
        lines.append("distance to the pattern: " + " → ".join(f"{value:.4f}" for value in numbers["distances"]))
    if name == "kernel":
        pairs = zip(numbers["features"], numbers["errors"], strict=True)
        lines.append("error by features: " + ", ".join(f"{count}: {error:.3f}" for count, error in pairs))
        lines.append(f"the error falls as features^{numbers['slope']:.2f}")
    return "\n".join(lines)


def equivalence_chart(numbers: dict[str, Any]) -> Any:
    """The chart of an equivalence."""
    name = numbers["equivalence"]
    differences = "; ".join(f"{what} {value:.1e}" for what, value in numbers["differences"].items())
    chart = CHARTS[name](numbers)
    return titled(chart, TITLES[name], f"{CAPTIONS[name]} Largest differences: {differences}.", differences, wrap=90)


def _heat_maps(matrices: dict[str, Any], row: str, column: str, columns: int, size: int) -> Any:
    """Small heat maps side by side."""
    marks = [
        {"panel": panel, row: r, column: c, "value": value}
        for panel, matrix in matrices.items()
        for r, values in enumerate(matrix)
        for c, value in enumerate(values)
    ]
    axis = alt.Axis(labelAngle=0, ticks=False, domain=False)
    base = alt.Chart(records(marks)).mark_rect()
    low = min(mark["value"] for mark in marks)
    top = max(abs(mark["value"]) for mark in marks) or 1.0
    colour = shades("value:Q", "", (-top, 0, top) if low < 0 else (0, top))
    chart = base.encode(
        x=alt.X(f"{column}:O", axis=axis), y=alt.Y(f"{row}:O", axis=axis), color=colour, tooltip=["value:Q"]
    )
    panel = alt.Facet("panel:N", title=None, sort=list(matrices))
    return chart.properties(width=size, height=size).facet(facet=panel, columns=columns)


def _states(numbers: dict[str, Any]) -> Any:
    matrices = {f"after token {t + 1}": matrix for t, matrix in enumerate(numbers["states"])}
    return _heat_maps(matrices, "feature", "channel", 4, 110)


def _weights(numbers: dict[str, Any]) -> Any:
    return _heat_maps(numbers["weights"], "node", "neighbour", 3, 200)


def _energy(numbers: dict[str, Any]) -> Any:
    charts = []
    for key, title in (("energies", "energy"), ("distances", "distance to the pattern")):
        points = [{"update": n, "value": value} for n, value in enumerate(numbers[key])]
        base = alt.Chart(records(points)).encode(
            x=alt.X("update:O", title="updates", axis=alt.Axis(labelAngle=0)),
            y=alt.Y("value:Q", title=title, scale=alt.Scale(zero=False)),
            tooltip=["update:O", "value:Q"],
        )
        charts.append((base.mark_line() + base.mark_point(filled=True, size=60)).properties(width=300, height=240))
    return alt.hconcat(*charts)


def _errors(numbers: dict[str, Any]) -> Any:
    counts, errors = numbers["features"], numbers["errors"]
    first = errors[0]
    points = [{"features": n, "error": e, "line": "measured"} for n, e in zip(counts, errors, strict=True)]
    points += [{"features": n, "error": first * (counts[0] / n) ** 0.5, "line": "F^(−1/2)"} for n in counts]
    log = alt.Scale(type="log", nice=False, padding=12)
    base = alt.Chart(records(points)).encode(
        x=alt.X("features:Q", title="random features F", scale=log, axis=alt.Axis(values=counts, format="d")),
        y=alt.Y("error:Q", title="mean difference from attention", scale=log),
        color=by_name("line:N", ["measured", "F^(−1/2)"], ""),
        strokeDash=alt.condition("datum.line === 'measured'", alt.value([1, 0]), alt.value([5, 4])),
    )
    return (base.mark_line() + base.mark_point(filled=True, size=50)).properties(width=420, height=300)


CHARTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "linear-rnn": _states,
    "hopfield": _energy,
    "graph": _weights,
    "kernel": _errors,
}
