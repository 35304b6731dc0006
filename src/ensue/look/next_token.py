"""``ensue look next``: the most probable next tokens of several runs, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import altair as alt

from ensue.core.errors import InputError
from ensue.look.chart_parts import COLOURS, records, titled
from ensue.look.runs import named
from ensue.look.view import View
from ensue.runs.run import Run


def next_tokens(runs: Sequence[Run], *, text: str = "", top: int = 10) -> View:
    """The most probable next tokens after a text, run by run."""
    if top < 1:
        raise InputError(f"{top} tokens cannot be shown", hint="give --top 1 or more")
    predictions = [(name, str(run), run.next(text, top)) for name, run in named(runs, "next")]
    rows = [
        {"run": run, "next": [{"token": token, "probability": p} for token, p in pairs]}
        for _, run, pairs in predictions
    ]
    draw = partial(next_chart, text, {name: pairs for name, _, pairs in predictions})
    return View(draw, {"text": text, "runs": rows})


def next_chart(text: str, predictions: Mapping[str, Sequence[tuple[str, float]]]) -> Any:
    """Bars of probabilities by run, the most probable token on top."""
    top = max(p for pairs in predictions.values() for _, p in pairs)
    charts = [_bars(name, pairs, top, COLOURS[i % len(COLOURS)]) for i, (name, pairs) in enumerate(predictions.items())]
    shown = text if len(text) <= 60 else f"… {text[-58:]}"
    summary = "; ".join(
        f"{name}: {', '.join(f'{token} {p:.3f}' for token, p in pairs[:5])}" for name, pairs in predictions.items()
    )
    caption = "Probabilities of the next token, all on one scale; ␣ is a space. Tokenizers of runs may differ."
    chart = alt.hconcat(*charts, spacing=28).configure_view(stroke=None)
    return titled(chart, f"The next token after “{shown}”", caption, summary)


def _bars(name: str, pairs: Sequence[tuple[str, float]], top: float, colour: str) -> Any:
    """The bars of one run, labelled with tokens and probabilities."""
    rows = [{"rank": i, "token": token, "p": p, "shown": f"{p:.3f}"} for i, (token, p) in enumerate(pairs)]
    order = alt.Y("rank:O", axis=None)
    base = alt.Chart(records(rows), title=name).encode(y=order, tooltip=["token:N", alt.Tooltip("p:Q", format=".5f")])
    scale = alt.Scale(domain=[0, top], nice=False)
    bars = base.mark_bar(color=colour).encode(x=alt.X("p:Q", title="probability", scale=scale))
    words = base.mark_text(align="right", dx=-6, fontSize=13).encode(x=alt.value(0), text="token:N")
    numbers = base.mark_text(align="left", dx=4, fontSize=11, color="#555555").encode(
        x=alt.X("p:Q", title="probability"), text="shown:N"
    )
    return (bars + words + numbers).properties(width=200, height=alt.Step(20))
