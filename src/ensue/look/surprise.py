"""A text coloured by surprise: the bits that each token cost a model, −log₂ P(token | what came before)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np

from ensue.look.marks import heading, plain, records

SHADES = ["#ffffff", "#d94801"]
WIDE = 88
"""Letters in a line."""
LETTER, LINE = 8.4, 24
"""Pixels of a letter and of a line."""


def laid_out(tokens: Sequence[str], wide: int = WIDE) -> list[tuple[int, int]]:
    """The line and the column at which each token begins; what ends with a newline ends its line.

    >>> laid_out(["a", "bc", "d\\\\n", "e"], wide=3)
    [(0, 0), (0, 1), (1, 0), (2, 0)]
    """
    places, line, column = [], 0, 0
    for token in tokens:
        if column and column + len(token) > wide:
            line, column = line + 1, 0
        places.append((line, column))
        column += len(token)
        if token.endswith("\\n"):
            line, column = line + 1, 0
    return places


def surprise_chart(found: Mapping[str, tuple[Sequence[str], Sequence[float]]], *, title: str, caption: str) -> Any:
    """Tokens and bits by run, as they stand in the text, stronger in colour where they cost more.

    A panel a run, one under the other; all on one scale, which ends at the largest cost, so that runs can be compared.
    """
    top = max(1.0, *(float(np.max(bits)) for _, bits in found.values()))
    panels = [
        _panel(tokens, bits, top).properties(
            **({"title": alt.TitleParams(name, anchor="start")} if len(found) > 1 else {})
        )
        for name, (tokens, bits) in found.items()
    ]
    drawn = alt.vconcat(*panels).resolve_scale(color="shared") if len(panels) > 1 else panels[0]
    worst = "; ".join(f"{name}: {_dearest(tokens, bits)}" for name, (tokens, bits) in found.items())
    return drawn.properties(
        title=heading(title, caption), description=plain(f"{title}. {caption} Dearest, in bits: {worst}")
    ).configure_view(stroke=None)


def _panel(tokens: Sequence[str], bits: Sequence[float], top: float) -> Any:
    """One run's text."""
    places = laid_out(tokens)
    rows = [
        {"x": column, "x2": column + len(token), "y": line, "y2": line + 1, "token": token, "bits": round(cost, 4)}
        for token, cost, (line, column) in zip(tokens, bits, places)
    ]
    lines = 1 + max(line for line, _ in places)
    across = alt.Scale(domain=[0, WIDE], nice=False)
    down = alt.Scale(domain=[0, lines], reverse=True, nice=False)
    shade = alt.Scale(domain=[0, top], range=SHADES, interpolate="lab")
    base = alt.Chart(records(rows)).encode(tooltip=["token:N", alt.Tooltip("bits:Q", format=".2f")])
    boxes = base.mark_rect(stroke="#ffffff", strokeWidth=1).encode(
        x=alt.X("x:Q", scale=across, axis=None),
        x2="x2:Q",
        y=alt.Y("y:Q", scale=down, axis=None),
        y2="y2:Q",
        color=alt.Color("bits:Q", scale=shade, legend=alt.Legend(title="bits", format=".0f")),
    )
    words = base.mark_text(align="left", baseline="middle", font="monospace", fontSize=13, dx=1, dy=LINE / 2).encode(
        x=alt.X("x:Q", scale=across, axis=None), y=alt.Y("y:Q", scale=down, axis=None), text="token:N"
    )
    return (boxes + words).properties(width=int(WIDE * LETTER), height=LINE * lines)


def _dearest(tokens: Sequence[str], bits: Sequence[float]) -> str:
    """The tokens that cost most."""
    worst = sorted(zip(bits, tokens), reverse=True)[:5]
    return ", ".join(f"{token} {cost:.1f}" for cost, token in worst)
