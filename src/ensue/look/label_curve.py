"""The value of pre-training: a measure against the number of labelled examples, from scratch and pre-trained.

Pre-training helps most where labels are few: its curve starts higher, and the curves meet where labels are many.
Compare the curves horizontally: how many labels does each need for the same score?
"""

from __future__ import annotations

from typing import Any

import altair as alt

from ensue.core.errors import InputError
from ensue.look.chart_parts import by_name, cycled, dashes, titled

SCRATCH = "from scratch"
SHAPES = ["circle", "square", "triangle-up", "diamond"]


def label_curve(points: list[dict[str, Any]], measure: str, *, title: str = "Score by number of labels") -> Any:
    """A line for each system and start: ``measure`` (higher is better) against the number of labels, logarithmic.

    A point has ``start`` ("from scratch", "pre-trained" …), ``system``, ``labels`` and ``value``; where it has ``low``
    and ``high``, the range over seeds, a band shows them. The caption says how many labels a start saves.
    """
    if not points:
        raise InputError("there is no curve to draw", hint="give at least one point")
    for point in points:
        if point["labels"] < 1:
            what = f"{point['system']}, {point['start']}, has a point at {point['labels']} labels"
            raise InputError(what, hint="a logarithmic axis begins at 1 label")
    systems = list(dict.fromkeys(point["system"] for point in points))
    # from scratch last, so that what it is compared with gets the solid line
    starts = sorted(dict.fromkeys(point["start"] for point in points), key=lambda start: start == SCRATCH)
    counts = sorted({point["labels"] for point in points})
    x = alt.X(
        "labels:Q",
        title="labelled examples (logarithmic)",
        scale=alt.Scale(type="log", domain=[counts[0] / 1.15, counts[-1] * 1.15], nice=False),
        axis=alt.Axis(values=counts, format="~s" if counts[-1] >= 100_000 else ",", labelOverlap=True),
    )
    y = {"title": f"{measure} (higher is better)", "scale": alt.Scale(zero=False, nice=True, padding=10)}
    colour = by_name("system:N", systems, "system", symbolType="square", symbolOpacity=1)
    chart = alt.Chart(alt.Data(values=points)).encode(x=x, color=colour, detail="start:N")
    lines = chart.encode(y=alt.Y("value:Q", **y))
    band = chart.encode(y=alt.Y("low:Q", **y), y2="high:Q").transform_filter("isValid(datum.low)")
    tips = [
        alt.Tooltip("value:Q", title=measure, format=".4~g"),
        alt.Tooltip("low:Q", title="lowest seed", format=".4~g"),
        alt.Tooltip("high:Q", title="highest seed", format=".4~g"),
    ]
    layers = (
        band.mark_area(opacity=0.15)
        + lines.mark_line(strokeWidth=2.5).encode(strokeDash=dashes("start:N", starts, "start"))
        + lines.mark_point(size=80, filled=True, opacity=1).encode(
            shape=alt.Shape("start:N", scale=cycled(starts, SHAPES), legend=None),
            tooltip=["system:N", "start:N", alt.Tooltip("labels:Q", format=","), *tips],
        )
    ).resolve_scale(shape="independent")  # else the legend of dashes would show shapes
    return titled(layers, title, f"{savings(points)}.", describe(points, measure), width=600, height=360)


def savings(points: list[dict[str, Any]]) -> str:
    """How few labels each other start needs to reach the score from scratch with the most labels.

    >>> two = [{"start": "from scratch", "system": "bert", "labels": n, "value": n / 1000} for n in (100, 800)]
    >>> savings([*two, {"start": "pre-trained", "system": "bert", "labels": 100, "value": 0.85}])
    'bert, pre-trained, reaches with 100 labels what it reaches from scratch with 800'

    If more labels do not help from scratch, it says so instead.
    """
    sentences, curves = [], _curves(points)
    for (system, start), curve in curves.items():
        scratch = curves.get((system, SCRATCH))
        if start == SCRATCH or not scratch:
            continue
        fewest, most = f"{scratch[0]['labels']:,}", f"{scratch[-1]['labels']:,}"
        enough = [point["labels"] for point in curve if point["value"] >= scratch[-1]["value"]]
        if len(scratch) > 1 and scratch[-1]["value"] <= scratch[0]["value"]:  # at chance level no labels are saved
            text = f"{system} from scratch gains nothing from {fewest} to {most} labels, so none are saved here"
        elif enough:
            text = f"{system}, {start}, reaches with {enough[0]:,} labels what it reaches from scratch with {most}"
        else:
            text = f"{system}, {start}, never reaches what it reaches from scratch with {most} labels"
        sentences.append(text)
    return "; ".join(sentences) or "A line for each system and start"


def describe(points: list[dict[str, Any]], measure: str) -> str:
    """The chart as text: every curve from its fewest to its most labels.

    >>> describe([{"start": "from scratch", "system": "gpt", "labels": 100, "value": 0.5}], "accuracy")
    'gpt, from scratch: accuracy 0.5 with 100 labels'
    """
    return "; ".join(
        f"{system}, {start}: {measure} " + ", ".join(f"{p['value']:.3g} with {p['labels']:,} labels" for p in curve)
        for (system, start), curve in _curves(points).items()
    )


def _curves(points: list[dict[str, Any]]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Points by system and start, sorted by the number of labels."""
    curves: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for point in sorted(points, key=lambda point: int(point["labels"])):
        curves.setdefault((point["system"], point["start"]), []).append(point)
    return curves
