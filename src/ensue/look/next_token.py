"""What several models think comes next, side by side: a bar a token, as long as its probability."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from ensue.look.marks import COLOURS, heading, plain, records


def next_chart(text: str, found: Mapping[str, Sequence[tuple[str, float]]]) -> Any:
    """The likeliest next tokens by run, the likeliest on top."""
    top = max(p for pairs in found.values() for _, p in pairs)
    charts = [
        _bars(name, pairs, top, COLOURS[place % len(COLOURS)]) for place, (name, pairs) in enumerate(found.items())
    ]
    shown = text if len(text) <= 60 else f"… {text[-58:]}"
    firsts = {name: ", ".join(f"{token} {p:.3f}" for token, p in pairs[:5]) for name, pairs in found.items()}
    said = "; ".join(f"{name}: {first}" for name, first in firsts.items())
    title = f"After “{shown}”"
    caption = "P(next token) of the likeliest, all on one scale; ␣ is a space. Tokens of different runs may differ."
    return (
        alt.hconcat(*charts, spacing=28)
        .properties(title=heading(title, caption), description=plain(f"{title}. {said}"))
        .configure_view(stroke=None)
    )


def _bars(name: str, pairs: Sequence[tuple[str, float]], top: float, colour: str) -> Any:
    """One run's bars, each with its number."""
    rows = [{"place": i, "token": token, "p": p, "shown": f"{p:.3f}"} for i, (token, p) in enumerate(pairs)]
    order = alt.Y("place:O", axis=None)
    base = alt.Chart(records(rows), title=name).encode(y=order, tooltip=["token:N", alt.Tooltip("p:Q", format=".5f")])
    scale = alt.Scale(domain=[0, top], nice=False)
    bars = base.mark_bar(color=colour).encode(x=alt.X("p:Q", title="probability", scale=scale))
    words = base.mark_text(align="right", dx=-6, fontSize=13).encode(x=alt.value(0), text="token:N")
    numbers = base.mark_text(align="left", dx=4, fontSize=11, color="#555555").encode(
        x=alt.X("p:Q", title="probability"), text="shown:N"
    )
    return (bars + words + numbers).properties(width=200, height=alt.Step(20))
