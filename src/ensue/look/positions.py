"""Encodings of positions as a heat map: a row a position, a column a dimension."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np

from ensue.look.marks import heading, records

SHADES = ["#b2182b", "#f7f7f7", "#2166ac"]


def positions_chart(table: np.ndarray, *, title: str, caption: str) -> Any:
    """(positions, dimensions): below 0 red, above it blue."""
    rows = [{"position": p, "dimension": d, "value": round(float(value), 5)} for (p, d), value in np.ndenumerate(table)]
    top = max(float(np.abs(table).max()), 1e-9)
    across = int(np.clip(1000 // table.shape[1], 3, 18))
    down = int(np.clip(500 // table.shape[0], 4, 24))
    places = {"labelOverlap": True, "labelAngle": 0, "ticks": False, "domain": False}
    shade = alt.Scale(domain=[-top, 0, top], range=SHADES, interpolate="lab")
    return (
        alt.Chart(records(rows))
        .mark_rect()
        .encode(
            x=alt.X("dimension:O", title="dimension", axis=alt.Axis(**places)),
            y=alt.Y("position:O", title="position", axis=alt.Axis(**places)),
            color=alt.Color("value:Q", scale=shade, legend=alt.Legend(title="value", format=".2f")),
            tooltip=["position:O", "dimension:O", alt.Tooltip("value:Q", format=".4f")],
        )
        .properties(
            width=alt.Step(across),
            height=alt.Step(down),
            title=heading(title, caption),
            description=f"{title}. {len(table)} positions by {table.shape[1]} dimensions, from {table.min():.2f} to "
            f"{table.max():.2f}",
        )
    )
