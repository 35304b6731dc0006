"""The bottleneck: how BLEU changes with the length of the source, for models with and without attention.

An encoder without attention must put a whole sentence, short or long, into one vector of fixed size; what does not fit
is lost. Attention looks back at every source word instead.
"""

from __future__ import annotations

import textwrap
from typing import Any

import altair as alt

from ensue.core.errors import InputError
from ensue.look.marks import COLOURS  # dots have shapes too, for print in grey

MANY = 50
"""Sentences that a bin has at least, if its BLEU is to say something."""
CHANCE = f"Bins of fewer than {MANY} sentences vary by chance; the tooltip counts them."


def bottleneck_chart(
    curves: dict[str, list[dict[str, Any]]],
    *,
    title: str = "BLEU by length of the source",
    caption: str = "",
) -> Any:
    """A line for each model from what ``bleu_by_length`` gives: BLEU against the words of the source.

    Without a ``caption`` it is how each curve changes from its shortest to its longest sentences.
    """
    rows = [{"model": model, **row} for model, curve in curves.items() for row in curve]
    if not rows:
        raise InputError("there is no curve to draw", hint="give at least one model with one bin of lengths")
    bins = [label for _, label in sorted({(row["low"], row["label"]): None for row in rows})]
    models, caption = list(curves), caption or f"{changes(curves)}. {CHANCE}"
    colours = [COLOURS[i % len(COLOURS)] for i in range(len(models))]
    return (
        alt.Chart(alt.Data(values=rows))
        .mark_line(point=alt.OverlayMarkDef(size=90, filled=True), strokeWidth=2.5)
        .encode(
            x=alt.X("label:O", sort=bins, title="words in the source sentence", axis=alt.Axis(labelAngle=0)),
            y=alt.Y("bleu:Q", title="BLEU (higher is better)", scale=alt.Scale(zero=True, nice=True)),
            color=alt.Color("model:N", sort=models, title="model", scale=alt.Scale(domain=models, range=colours)),
            shape=alt.Shape("model:N", sort=models, title="model", scale=alt.Scale(domain=models)),
            tooltip=[
                alt.Tooltip("model:N"),
                alt.Tooltip("label:N", title="source words"),
                alt.Tooltip("bleu:Q", title="BLEU", format=".2f"),
                alt.Tooltip("sentences:Q", format=","),
                alt.Tooltip("words:Q", title="mean length", format=".1f"),
            ],
        )
        .properties(
            width=600,
            height=360,
            title=alt.TitleParams(title, subtitle=textwrap.wrap(caption, 105), anchor="start", offset=12),
            description=f"{title}. {describe(curves)}",
        )
    )


def change(curve: list[dict[str, Any]]) -> dict[str, Any] | None:
    """By what share BLEU changes from the shortest sentences to the longest; None where there is nothing to compare.

    The longest are those of the last bin that has at least ``MANY`` sentences: a few show chance, not length.

    >>> short, few = {"bleu": 30.0, "label": "up to 8", "low": 0, "sentences": 90}, {"label": "more", "sentences": 3}
    >>> long = {**short, "bleu": 24.0, "label": "9–20", "low": 9}
    >>> change([short, long, {**long, **few, "low": 21}])
    {'from': 'up to 8', 'to': '9–20', 'share': -0.2}
    """
    ordered = sorted(curve, key=lambda row: int(row["low"]))
    many = [row for row in ordered if row["sentences"] >= MANY]
    first, last = (many[0], many[-1]) if len(many) > 1 else (ordered[0], ordered[-1]) if ordered else ({}, {})
    if first is last or not first.get("bleu"):
        return None
    share = last["bleu"] / first["bleu"] - 1
    return {"from": first["label"], "to": last["label"], "share": round(float(share), 4)}


def changes(curves: dict[str, list[dict[str, Any]]]) -> str:
    """How each curve changes from its shortest to its longest sentences.

    >>> short = {"low": 0, "label": "up to 8", "bleu": 30.0, "sentences": 70}
    >>> changes({"en-de": [short, {"low": 9, "label": "9 or more", "bleu": 20.0, "sentences": 70}]})
    'From up to 8 to 9 or more words, en-de: −33 %'
    """
    said: dict[str, list[str]] = {}
    for model, curve in curves.items():
        moved = change(curve)
        span = f"From {moved['from']} to {moved['to']} words" if moved else "Nothing to compare"
        by = f": {100 * moved['share']:+.0f} %".replace("-", "−") if moved else ""
        said.setdefault(span, []).append(f"{model}{by}")
    return ". ".join(f"{span}, {', '.join(models)}" for span, models in said.items())


def describe(curves: dict[str, list[dict[str, Any]]]) -> str:
    """The picture in words: every curve from its shortest to its longest sentences.

    >>> describe({"lstm": [{"label": "up to 8", "bleu": 31.25, "sentences": 40}]})
    'lstm: 31.2 at up to 8 words (40 sentences)'
    """
    return "; ".join(
        f"{model}: " + ", ".join(f"{r['bleu']:.1f} at {r['label']} words ({r['sentences']} sentences)" for r in curve)
        for model, curve in curves.items()
    )
