"""``ensue look gates``: gates and states of a recurrent layer over a text, as heat maps (tokens × units)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import altair as alt
import numpy as np
import torch

from ensue.look.chart_parts import MAX_MARKS, cut_text, label_axis, records, shades, titled
from ensue.look.instruments.gates import Gates, gates_over, most_active
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
    recorded = gates_over(run.model, torch.from_numpy(tokens[1:]), layer)
    total = recorded.states["h"].shape[1]
    most = max_units(len(recorded.parts), len(tokens) - 1, total)
    chosen = most_active(recorded.parts, min(units or most, most))
    names = [run.tokenizer.name(int(token)) for token in tokens[1:]]
    title = f"{label(run)}: gates and states of {recorded.of.partition(' of ')[2]}"
    note = cut_text(len(names), text_length)
    draw = partial(gates_chart, names, recorded, chosen, title=title, note=note)
    numbers: dict[str, Any] = {"system": run.system, "of": recorded.of, "tokens": names, "of_tokens": text_length}
    numbers |= {"units": chosen, "total_units": total}
    for key, parts in (("gates", recorded.gates), ("states", recorded.states)):
        numbers[key] = {name: values[:, chosen].round(6).tolist() for name, values in parts.items()}
    numbers["means"] = {name: values.mean(axis=1).round(6).tolist() for name, values in recorded.parts.items()}
    return View(draw, numbers, note=note)


def max_units(parts: int, tokens: int, units: int) -> int:
    """How many units fit into the 50,000 marks of a view.

    >>> max_units(5, 40, 256), max_units(5, 400, 256)
    (64, 25)
    """
    return max(1, min(units, MAX_UNITS, MAX_MARKS // max(1, parts * tokens)))


def gates_chart(tokens: Sequence[str], recorded: Gates, units: Sequence[int], *, title: str, note: str = "") -> Any:
    """Heat maps of some units: gates from 0 (white) to 1 (blue), states red below 0, blue above; then ``note``."""
    gates, states = ({n: v[:, units] for n, v in parts.items()} for parts in (recorded.gates, recorded.states))
    sizes = {name: np.abs(values) for name, values in states.items()}
    tops = {name: max(float(values.max()), 1e-9) for name, values in sizes.items()}
    domains = {**dict.fromkeys(gates, (0.0, 1.0)), **{name: (-top, 0.0, top) for name, top in tops.items()}}
    charts = [
        _map(tokens, units, name, f"{name}: {recorded.legend.get(name, '')}".rstrip(": "), values, domains[name])
        for name, values in {**gates, **states}.items()
    ]
    total = recorded.states["h"].shape[1]
    shown = f"The {len(units)} of {total:,} units whose state changes most." if len(units) < total else "All units."
    caption = f"{shown} Gates: no colour is closed (0), full colour open (1). States: red below 0, blue above. {note}"
    across = max(1, PAGE_WIDTH // (len(tokens) * _width(len(tokens)) + 140))
    mean_gates, mean_states = (
        ", ".join(f"{name} {values.mean():.2f}" for name, values in parts.items()) for parts in (gates, sizes)
    )
    summary = f"Mean gates: {mean_gates or 'none'}; mean absolute states: {mean_states}. {note}"
    return titled(alt.concat(*charts, columns=across).resolve_scale(color="independent"), title, caption, summary)


def _map(
    tokens: Sequence[str], units: Sequence[int], name: str, title: str, values: np.ndarray, domain: tuple[float, ...]
) -> Any:
    """A heat map of one gate or state, (T, units)."""
    rows = [
        {"t": t, "u": u, "token": tokens[t], "unit": units[u], "value": round(float(value), 4)}
        for (t, u), value in np.ndenumerate(values)
    ]
    across = _width(len(tokens))
    down = int(np.clip(240 // max(1, len(units)), 4, 16))
    top = label_axis(tokens, orient="top", labelAngle=-55, labelAlign="left", labelOverlap=across < LABEL_WIDTH)
    return (
        alt.Chart(records(rows), title=title)
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
