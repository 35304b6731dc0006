"""``ensue look surprise``: a text coloured by the bits of each token, −log₂ P(token | tokens before)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import altair as alt
import numpy as np

from ensue.core.errors import InputError
from ensue.look.chart_parts import cut_text, records, shades, titled
from ensue.look.runs import label, named
from ensue.look.view import View
from ensue.runs.language import LanguageRun
from ensue.runs.run import Run

MAX_TOKENS = 2000
"""Longer texts are cut."""
SHADES = ["#ffffff", "#d94801"]
LINE_LENGTH = 88
"""Characters per line."""
CHARACTER_WIDTH, LINE_HEIGHT = 8.4, 24
"""In pixels."""
FONT = "DejaVu Sans Mono, Menlo, Consolas, monospace"
"""Those that have the mark of a space come first: without it a picture's token is drawn in a font of other widths."""


def surprise(runs: Sequence[Run], *, text: str = "", data: Sequence[Any] = ()) -> View:
    """A text, or the start of a file, coloured by the bits of each token; several runs share one scale."""
    if bool(text.strip()) == bool(data):
        raise InputError("surprise needs a text", hint='give it with --text "…" or --data FILE')
    rows, notes, texts = [], [], {}
    for name, run in named(runs, "surprise"):
        row, total = token_bits(run, text, data)
        rows.append(row)
        bits, cut = row["bits"], cut_text(len(row["bits"]), total)
        texts[name] = row["tokens"], bits
        notes.append(f"{sum(bits):,.0f} bits in {len(bits):,} tokens, {np.mean(bits):.2f} per token. {cut}".strip())
    caption = "Bits of each token given those before it (minus log P to base 2): the stronger the colour, the more."
    if len(runs) == 1:
        title = f"{label(runs[0])}: surprise of each token"
        return View(partial(surprise_chart, texts, title=title, caption=f"{notes[0]} {caption}"), rows[0])
    caption = f"{caption} All runs on one scale. " + " ".join(f"{name}: {note}" for name, note in zip(texts, notes))
    numbers = {"runs": [{"run": str(run), **row} for run, row in zip(runs, rows)]}
    return View(partial(surprise_chart, texts, title="Surprise of each token, by run", caption=caption), numbers)


def token_bits(run: Run, text: str, data: Sequence[Any]) -> tuple[dict[str, Any], int]:
    """The bits of the first tokens, and how many tokens there are."""
    if not isinstance(run, LanguageRun):
        what = f"{run.system} has no probability for each token"
        raise InputError(what, where=str(run), hint="name a language model")
    log_probs = run.per_token(*map(str, data), text=text if text.strip() else None)
    shown = log_probs[:MAX_TOKENS]
    bits = [-log_prob / math.log(2) for _, log_prob in shown]
    row = {"system": run.system, "tokens": [token for token, _ in shown], "bits": bits, "total_bits": sum(bits)}
    return row, len(log_probs)


def layout(tokens: Sequence[str], length: int = LINE_LENGTH) -> list[tuple[int, int]]:
    """The line and column of each token; a token that ends with a newline ends its line.

    >>> layout(["a", "bc", "d\\\\n", "e"], length=3)
    [(0, 0), (0, 1), (1, 0), (2, 0)]
    """
    positions, line, column = [], 0, 0
    for token in tokens:
        if column and column + len(token) > length:
            line, column = line + 1, 0
        positions.append((line, column))
        column += len(token)
        if token.endswith("\\n"):
            line, column = line + 1, 0
    return positions


def surprise_chart(texts: Mapping[str, tuple[Sequence[str], Sequence[float]]], *, title: str, caption: str) -> Any:
    """Tokens and bits by run, as running text: the stronger the colour, the more bits.

    A panel per run, one below the other, all on one colour scale, so that runs can be compared.
    """
    top = max(1.0, *(float(np.max(bits)) for _, bits in texts.values()))
    panels = [_panel(name, tokens, bits, top) for name, (tokens, bits) in texts.items()]
    chart = alt.vconcat(*panels).resolve_scale(color="shared") if len(panels) > 1 else panels[0]
    worst = []
    for name, (tokens, bits) in texts.items():
        most = sorted(zip(bits, tokens), reverse=True)[:5]
        worst.append(f"{name}: " + ", ".join(f"{token} {cost:.1f}" for cost, token in most))
    return titled(chart, title, caption, f"{caption} Most bits: {'; '.join(worst)}").configure_view(stroke=None)


def _panel(name: str, tokens: Sequence[str], bits: Sequence[float], top: float) -> Any:
    """The text of one run."""
    positions = layout(tokens)
    rows = [
        {"x": column, "x2": column + len(token), "y": line, "y2": line + 1, "token": token, "bits": round(cost, 4)}
        for token, cost, (line, column) in zip(tokens, bits, positions)
    ]
    lines = 1 + max(line for line, _ in positions)
    x = alt.X("x:Q", scale=alt.Scale(domain=[0, LINE_LENGTH], nice=False), axis=None)
    y = alt.Y("y:Q", scale=alt.Scale(domain=[0, lines], reverse=True, nice=False), axis=None)
    base = alt.Chart(records(rows)).encode(tooltip=["token:N", alt.Tooltip("bits:Q", format=".2f")])
    colour = shades("bits:Q", "bits", (0, top), colours=SHADES, form=".0f")
    boxes = base.mark_rect(stroke="#ffffff", strokeWidth=1).encode(x=x, x2="x2:Q", y=y, y2="y2:Q", color=colour)
    font = {"font": FONT, "fontSize": 13, "dx": 1, "dy": LINE_HEIGHT / 2}
    words = base.mark_text(align="left", baseline="middle", **font).encode(x=x, y=y, text="token:N")
    size = {"width": int(LINE_LENGTH * CHARACTER_WIDTH), "height": LINE_HEIGHT * lines}
    return (boxes + words).properties(title=alt.TitleParams(name, anchor="start"), **size)
