"""The bottleneck: how BLEU changes with the length of the source, for models with and without attention.

An encoder without attention must put a whole sentence, short or long, into one vector of fixed size; what does not fit
is lost. Attention looks back at every source word instead.
"""

from __future__ import annotations

import textwrap
from typing import Any

import altair as alt

from ensue.core.errors import InputError

# Okabe and Ito's colours, which colour-blind eyes can tell apart; dots have shapes too, for print in grey
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"]
CHANCE = "Bins of few sentences vary by chance; the tooltip counts them."


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
        raise InputError("there is no curve to draw", mend="give at least one model with one bin of lengths")
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


def change(curve: list[dict[str, Any]]) -> float | None:
    """BLEU of the longest sentences less that of the shortest; None where there is one bin, or none.

    >>> change([{"low": 11, "bleu": 20.0}, {"low": 1, "bleu": 30.0}])
    -10.0
    """
    ordered = sorted(curve, key=lambda row: int(row["low"]))
    return float(ordered[-1]["bleu"] - ordered[0]["bleu"]) if len(ordered) > 1 else None


def changes(curves: dict[str, list[dict[str, Any]]]) -> str:
    """How each curve changes from its shortest to its longest sentences.

    >>> short, long = {"low": 0, "label": "up to 8", "bleu": 30.0}, {"low": 9, "label": "9 or more", "bleu": 20.0}
    >>> changes({"en-de": [short, long]})
    'en-de: −10.0 BLEU from up to 8 to 9 or more words'
    """
    said = []
    for model, curve in curves.items():
        ordered, moved = sorted(curve, key=lambda row: int(row["low"])), change(curve)
        if moved is not None:
            by = f"{round(moved, 1) + 0.0:+.1f}".replace("-", "−")  # + 0.0: no −0.0
            said.append(f"{model}: {by} BLEU from {ordered[0]['label']} to {ordered[-1]['label']} words")
        elif ordered:
            said.append(f"{model}: all sentences are of {ordered[0]['label']} words")
    return "; ".join(said)


def describe(curves: dict[str, list[dict[str, Any]]]) -> str:
    """The picture in words: every curve from its shortest to its longest sentences.

    >>> describe({"lstm": [{"label": "up to 8", "bleu": 31.25, "sentences": 40}]})
    'lstm: 31.2 at up to 8 words (40 sentences)'
    """
    return "; ".join(
        f"{model}: " + ", ".join(f"{r['bleu']:.1f} at {r['label']} words ({r['sentences']} sentences)" for r in curve)
        for model, curve in curves.items()
    )
