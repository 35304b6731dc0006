"""``ensue look positions``: position encodings as a heat map (positions × dimensions)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import altair as alt
import numpy as np
import torch

from ensue.core.errors import InputError
from ensue.look.chart_parts import MAX_MARKS, records, shades, titled
from ensue.look.runs import label
from ensue.look.view import View
from ensue.nn.positions import LearnedPositions, sinusoids
from ensue.runs.run import Run

SINUSOIDS = (
    "PE(p, 2i) = sin(p / 10000^(2i/d)), PE(p, 2i + 1) = cos(p / 10000^(2i/d)): wavelengths grow with the dimension, so "
    "every position has a distinct pattern."
)


def positions(runs: Sequence[Run] = (), *, rows: int = 20, width: int = 100) -> View:
    """Encodings of the first positions, by dimension: sinusoids, or the learned ones of a run."""
    if min(rows, width) < 1 or rows * width > MAX_MARKS:
        raise InputError(f"a map of {rows} × {width} cannot be drawn", hint=f"give 1 to {MAX_MARKS:,} cells")
    if len(runs) > 1:
        raise InputError(f"positions shows one run or none, not {len(runs)}", hint="name one")
    if not runs:
        table = sinusoids(torch.arange(rows), width).numpy()
        return _view(table, f"Sinusoids: {rows} positions, {width} dimensions", SINUSOIDS)
    (run,) = runs
    learned = next((part for part in run.model.modules() if isinstance(part, LearnedPositions)), None)
    if learned is None:
        hint = "bert has them, and gpt with positions=learned; without a run there are sinusoids"
        raise InputError(f"this {run.system} has no learned positions", where=str(run), hint=hint)
    table = learned.weight.detach()[:rows, :width].numpy()
    return _view(table, f"{label(run)}: learned positions", "A row per position, a column per dimension.")


def _view(table: np.ndarray, title: str, caption: str) -> View:
    draw = partial(positions_chart, table, title=title, caption=f"{caption} Red below 0, blue above.")
    return View(draw, {"positions": len(table), "dimensions": table.shape[1], "values": table.round(6).tolist()})


def positions_chart(table: np.ndarray, *, title: str, caption: str) -> Any:
    """A heat map of a table (positions, dimensions): red below 0, blue above."""
    rows = [{"position": p, "dimension": d, "value": round(float(value), 5)} for (p, d), value in np.ndenumerate(table)]
    top = max(float(np.abs(table).max()), 1e-9)
    across = int(np.clip(1000 // table.shape[1], 3, 18))
    down = int(np.clip(500 // table.shape[0], 4, 24))
    axis = alt.Axis(labelOverlap=True, labelAngle=0, ticks=False, domain=False)
    chart = (
        alt.Chart(records(rows))
        .mark_rect()
        .encode(
            x=alt.X("dimension:O", title="dimension", axis=axis),
            y=alt.Y("position:O", title="position", axis=axis),
            color=shades("value:Q", "value", (-top, 0, top), form=".2f"),
            tooltip=["position:O", "dimension:O", alt.Tooltip("value:Q", format=".4f")],
        )
    )
    shape, ends = f"{len(table)} positions by {table.shape[1]} dimensions", f"{table.min():.2f} to {table.max():.2f}"
    return titled(chart, title, caption, f"{shape}, from {ends}", width=alt.Step(across), height=alt.Step(down))
