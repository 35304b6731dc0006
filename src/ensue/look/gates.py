"""``ensue look gates``: gates and states of a recurrent layer over a text, as heat maps (tokens × units)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import altair as alt
import numpy as np
import torch

from ensue.look.chart_parts import MAX_MARKS, cut_text, label_axis, records, shades, titled
from ensue.look.instruments.gates import gates_over, most_active
from ensue.look.runs import check_text, first_tokens, label, language_run, single
from ensue.look.view import View
from ensue.runs.run import Run

MAX_UNITS = 64
"""More rows cannot be read."""
PAGE_WIDTH = 1100
"""Pixels. Maps of few tokens stand side by side."""
LABEL_WIDTH = 12
"""Pixels per token below which some labels are left out."""


def gates(runs: Sequence[Run], *, text: str = "", layer: int = 0, units: int = 0) -> View:
    """Gates and states of a recurrent layer over a text; at most ``units``, those that change most."""
    run = language_run(single(runs, "gates"))
    check_text(text, "gates")
    tokens, text_length = first_tokens(run, text)
    seen = gates_over(run.model, torch.from_numpy(tokens[1:]), layer)
    total = next(iter(seen.states.values())).shape[1]
    most = max_units(len(seen.parts), len(tokens) - 1, total)
    chosen = most_active(seen.parts, min(units or most, most))
    names = [run.tokenizer.name(int(token)) for token in tokens[1:]]
    gate_values, state_values = ({n: v[:, chosen] for n, v in part.items()} for part in (seen.gates, seen.states))
    title = f"{label(run)}: gates and states of {seen.of.partition(' of ')[2]}"
    note = cut_text(len(names), text_length)
    draw = partial(
        gates_chart, names, gate_values, state_values, chosen, title=title, legend=seen.legend, total=total, note=note
    )
    numbers = {
        "system": run.system,
        "of": seen.of,
        "tokens": names,
        "of_tokens": text_length,
        "units": chosen,
        "total_units": total,
        "gates": {name: values.round(6).tolist() for name, values in gate_values.items()},
        "states": {name: values.round(6).tolist() for name, values in state_values.items()},
        "means": {name: values.mean(axis=1).round(6).tolist() for name, values in seen.parts.items()},
    }
    return View(draw, numbers, note=note)


def max_units(parts: int, tokens: int, units: int) -> int:
    """How many units fit into the 50,000 marks of a view.

    >>> max_units(5, 40, 256), max_units(5, 400, 256)
    (64, 25)
    """
    return max(1, min(units, MAX_UNITS, MAX_MARKS // max(1, parts * tokens)))


def gates_chart(
    tokens: Sequence[str],
    gates: dict[str, np.ndarray],
    states: dict[str, np.ndarray],
    units: Sequence[int],
    *,
    title: str,
    legend: dict[str, str],
    total: int,
    note: str = "",
) -> Any:
    """Heat maps of some units: gates from 0 (white) to 1 (blue), states red below 0, blue above; then ``note``."""
    charts = [_map(tokens, units, name, values, legend, (0, 1)) for name, values in gates.items()]
    for name, values in states.items():
        top = max(float(np.abs(values).max()), 1e-9)
        charts.append(_map(tokens, units, name, values, legend, (-top, 0, top)))
    shown = f"The {len(units)} of {total:,} units whose state changes most." if len(units) < total else "All units."
    caption = f"{shown} Gates: no colour is closed (0), full colour open (1). States: red below 0, blue above. {note}"
    across = max(1, PAGE_WIDTH // (len(tokens) * _width(len(tokens)) + 140))
    means = ", ".join(f"{name} {values.mean():.2f}" for name, values in gates.items())
    sizes = ", ".join(f"{name} {np.abs(values).mean():.2f}" for name, values in states.items())
    summary = f"Mean gates: {means or 'none'}; mean absolute states: {sizes}. {note}"
    return titled(alt.concat(*charts, columns=across).resolve_scale(color="independent"), title, caption, summary)


def _map(
    tokens: Sequence[str],
    units: Sequence[int],
    name: str,
    values: np.ndarray,
    legend: dict[str, str],
    domain: tuple[float, ...],
) -> Any:
    """A heat map of one gate or state, (T, units)."""
    rows = [
        {"t": t, "u": u, "token": token, "unit": unit, "value": round(float(values[t, u]), 4)}
        for t, token in enumerate(tokens)
        for u, unit in enumerate(units)
    ]
    across = _width(len(tokens))
    down = int(np.clip(240 // max(1, len(units)), 4, 16))
    top = label_axis(tokens, orient="top", labelAngle=-55, labelAlign="left", labelOverlap=across < LABEL_WIDTH)
    return (
        alt.Chart(records(rows), title=f"{name}: {legend.get(name, '')}".rstrip(": "))
        .mark_rect()
        .encode(
            x=alt.X("t:O", title=None, axis=top),
            y=alt.Y("u:O", title="unit", axis=label_axis([str(unit) for unit in units], labelOverlap=True)),
            color=shades("value:Q", name, domain, form=".2f", gradientLength=90),
            tooltip=["token:N", "unit:O", alt.Tooltip("value:Q", title=name, format=".4f")],
        )
        .properties(width=alt.Step(across), height=alt.Step(down))
    )


def _width(tokens: int) -> int:
    """Width of a token's column in pixels."""
    return int(np.clip(900 // max(1, tokens), 6, 26))
