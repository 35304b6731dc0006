"""Gates and states of a recurrent layer over a text, as heat maps: a column a token, a row a unit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np

from ensue.look.marks import MOST_MARKS, heading, inline, records, words

GATE_COLOURS = ["#ffffff", "#08306b"]
STATE_COLOURS = ["#b2182b", "#f7f7f7", "#2166ac"]
MOST_UNITS = 64
"""More rows than this say nothing more."""
ACROSS = 1100
"""Pixels of a page: maps of few tokens stand side by side."""
ROOM = 12
"""Pixels that a token's name needs; where there are fewer some names are left out."""


def room_for(parts: int, tokens: int, units: int) -> int:
    """How many units can be drawn: views have at most 50,000 marks.

    >>> room_for(5, 40, 256), room_for(5, 400, 256)
    (64, 25)
    """
    return max(1, min(units, MOST_UNITS, MOST_MARKS // max(1, parts * tokens)))


def gates_chart(
    tokens: Sequence[str],
    gates: dict[str, np.ndarray],
    states: dict[str, np.ndarray],
    units: Sequence[int],
    *,
    title: str,
    senses: dict[str, str],
    total: int,
    more: str = "",
) -> Any:
    """Heat maps of some units: gates from 0 (pale) to 1 (blue), states below 0 red, above it blue; ``more`` ends it."""
    charts = [_map(tokens, units, name, values, senses, (0.0, 1.0), GATE_COLOURS) for name, values in gates.items()]
    for name, values in states.items():
        top = max(float(np.abs(values).max()), 1e-9)
        charts.append(_map(tokens, units, name, values, senses, (-top, top), STATE_COLOURS))
    shown = f"The {len(units)} of {total:,} units whose state changes most." if len(units) < total else "All units."
    caption = f"{shown} Gates: no colour is shut (0), full colour open (1). States: red below 0, blue above. {more}"
    across = max(1, ACROSS // (len(tokens) * _width(len(tokens)) + 140))
    return (
        alt.concat(*charts, columns=across)
        .resolve_scale(color="independent")
        .properties(title=heading(title, caption), description=f"{title}. {_said(gates, states)}. {more}".strip())
    )


def _map(
    tokens: Sequence[str],
    units: Sequence[int],
    name: str,
    values: np.ndarray,
    senses: dict[str, str],
    ends: tuple[float, float],
    colours: list[str],
) -> Any:
    """One gate or state: (T, units)."""
    rows = [
        {"t": t, "u": u, "token": token, "unit": unit, "value": round(float(values[t, u]), 4)}
        for t, token in enumerate(tokens)
        for u, unit in enumerate(units)
    ]
    across = _width(len(tokens))
    down = int(np.clip(240 // max(1, len(units)), 4, 16))
    along = alt.Axis(
        orient="top",
        labelAngle=-55,
        labelAlign="left",
        labelExpr=words(tokens),
        labelOverlap=across < ROOM,
        ticks=False,
        domain=False,
    )
    aside = alt.Axis(labelExpr=words([str(unit) for unit in units]), labelOverlap=True, ticks=False, domain=False)
    scale = alt.Scale(domain=_stops(ends, len(colours)), range=colours, interpolate="lab", clamp=True)
    legend = alt.Legend(title=name, format=".2f", gradientLength=90)
    return (
        alt.Chart(records(rows), title=f"{name}: {senses.get(name, '')}".rstrip(": "))
        .mark_rect()
        .encode(
            x=alt.X("t:O", title=None, axis=along),
            y=alt.Y("u:O", title="unit", axis=aside),
            color=alt.Color("value:Q", scale=scale, legend=legend),
            tooltip=[alt.Tooltip("token:N"), alt.Tooltip("unit:O"), alt.Tooltip("value:Q", title=name, format=".4f")],
        )
        .properties(width=alt.Step(across), height=alt.Step(down))
    )


def _width(tokens: int) -> int:
    """Pixels of a token's column."""
    return int(np.clip(900 // max(1, tokens), 6, 26))


def _stops(ends: tuple[float, float], count: int) -> list[float]:
    """Ends, and between them the middle where there are three colours."""
    return [float(stop) for stop in np.linspace(*ends, count)]


def _said(gates: dict[str, np.ndarray], states: dict[str, np.ndarray]) -> str:
    """The picture in words."""
    means = ", ".join(f"{name} {values.mean():.2f}" for name, values in gates.items())
    sizes = ", ".join(f"{name} {np.abs(values).mean():.2f}" for name, values in states.items())
    return inline(f"Mean gates: {means or 'none'}; mean size of states: {sizes}")[1:-1]
