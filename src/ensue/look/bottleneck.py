"""``ensue look bottleneck``: BLEU against source length, for models with and without attention.

An encoder without attention compresses every sentence, short or long, into one vector of fixed size. Attention reads
all source positions instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import altair as alt

from ensue.core.errors import InputError
from ensue.look.chart_parts import by_name, short_names, titled
from ensue.look.runs import translation_run
from ensue.look.view import View
from ensue.runs.run import Run

MIN_SENTENCES = 50
"""A bin with fewer sentences is too noisy to compare."""
NOISE = f"Bins of fewer than {MIN_SENTENCES} sentences are noisy; the tooltip counts them."


def bottleneck(runs: Sequence[Run], *, data: Sequence[Any] = ()) -> View:
    """BLEU against source length, for several runs on the same pairs."""
    if not data:
        raise InputError("BLEU by length needs pairs", hint="give them with --data test.en --data test.de")
    translators = {str(run): translation_run(run) for run in runs}
    curves = {name: run.score(*map(str, data)).by_length for name, run in translators.items()}
    rows = [{"run": name, "by_length": curve, "change": change(curve)} for name, curve in curves.items()]
    return View(partial(bottleneck_chart, dict(zip(short_names(list(curves)), curves.values()))), {"runs": rows})


def bottleneck_chart(curves: dict[str, list[dict[str, Any]]]) -> Any:
    """BLEU against the number of source words, a line per model; ``curves`` are results of ``bleu_by_length``.

    The caption says how each curve changes from its shortest to its longest sentences.
    """
    rows = [{"model": model, **row} for model, curve in curves.items() for row in curve]
    if not rows:
        raise InputError("there is no curve to draw", hint="give at least one model with one bin of lengths")
    bins = [label for _, label in sorted({(row["low"], row["label"]): None for row in rows})]
    models = list(curves)
    chart = (
        alt.Chart(alt.Data(values=rows))
        .mark_line(point=alt.OverlayMarkDef(size=90, filled=True), strokeWidth=2.5)
        .encode(
            x=alt.X("label:O", sort=bins, title="words in the source sentence", axis=alt.Axis(labelAngle=0)),
            y=alt.Y("bleu:Q", title="BLEU (higher is better)", scale=alt.Scale(zero=True, nice=True)),
            color=by_name("model:N", models, "model"),
            # shapes too, for print in grey
            shape=alt.Shape("model:N", sort=models, title="model", scale=alt.Scale(domain=models)),
            tooltip=[
                "model:N",
                alt.Tooltip("label:N", title="source words"),
                alt.Tooltip("bleu:Q", title="BLEU", format=".2f"),
                "sentences:Q",
                alt.Tooltip("words:Q", title="mean length", format=".1f"),
            ],
        )
    )
    caption = f"{changes(curves)}. {NOISE}"
    return titled(chart, "BLEU by length of the source", caption, describe(curves), width=600, height=360)


def change(curve: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The relative change of BLEU from the shortest to the longest sentences; None if there is nothing to compare.

    Bins with fewer than ``MIN_SENTENCES`` are ignored if enough others are left.

    >>> short, few = {"bleu": 30.0, "label": "up to 8", "low": 0, "sentences": 90}, {"label": "more", "sentences": 3}
    >>> long = {**short, "bleu": 24.0, "label": "9–20", "low": 9}
    >>> change([short, long, {**long, **few, "low": 21}])
    {'from': 'up to 8', 'to': '9–20', 'share': -0.2}
    """
    ordered = sorted(curve, key=lambda row: int(row["low"]))
    many = [row for row in ordered if row["sentences"] >= MIN_SENTENCES]
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
    models_by_span: dict[str, list[str]] = {}
    for model, curve in curves.items():
        moved = change(curve)
        span = f"From {moved['from']} to {moved['to']} words" if moved else "Nothing to compare"
        by = f": {100 * moved['share']:+.0f} %".replace("-", "−") if moved else ""
        models_by_span.setdefault(span, []).append(f"{model}{by}")
    return ". ".join(f"{span}, {', '.join(models)}" for span, models in models_by_span.items())


def describe(curves: dict[str, list[dict[str, Any]]]) -> str:
    """The chart as text: every curve from its shortest to its longest sentences.

    >>> describe({"lstm": [{"label": "up to 8", "bleu": 31.25, "sentences": 40}]})
    'lstm: 31.2 at up to 8 words (40 sentences)'
    """
    return "; ".join(
        f"{model}: " + ", ".join(f"{r['bleu']:.1f} at {r['label']} words ({r['sentences']} sentences)" for r in curve)
        for model, curve in curves.items()
    )
