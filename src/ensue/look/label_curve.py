"""What pre-training saves: a measure against the number of labelled examples, from scratch and pre-trained.

Transfer shows where labels are few: the pre-trained curve begins higher, and the two meet where labels are plenty. Read
it sideways: how many labels does each start need for the same figure?
"""

from __future__ import annotations

import textwrap
from typing import Any

import altair as alt

from ensue.core.errors import InputError
from ensue.look.chart_parts import COLOURS

SCRATCH = "from scratch"
DASHES = [[1, 0], [6, 4], [2, 3], [10, 3, 2, 3]]
SHAPES = ["circle", "square", "triangle-up", "diamond"]


def label_curve(
    points: list[dict[str, Any]],
    measure: str,
    *,
    title: str = "What labels bring",
    caption: str = "",
) -> Any:
    """A line for each system and start: ``measure`` (higher is better) against the number of labels, logarithmic.

    A point has ``start`` ("from scratch", "pre-trained" …), ``system``, ``labels`` and ``value``; where it has ``low``
    and ``high``, the spread over seeds, a band spans them. Without a ``caption`` it is how many labels a start saves.
    """
    _check(points)
    return _layers(points, f"{measure} (higher is better)", _tips(measure)).properties(
        width=600,
        height=360,
        title=alt.TitleParams(
            title, subtitle=textwrap.wrap(caption or f"{savings(points)}.", 105), anchor="start", offset=12
        ),
        description=f"{title}. {describe(points, measure)}",
    )


def savings(points: list[dict[str, Any]]) -> str:
    """With how few labels each other start does at least as well as from scratch with the most labels it was given.

    >>> two = [{"start": "from scratch", "system": "bert", "labels": n, "value": n / 1000} for n in (100, 800)]
    >>> savings([*two, {"start": "pre-trained", "system": "bert", "labels": 100, "value": 0.85}])
    'bert, pre-trained, reaches with 100 labels what it reaches from scratch with 800'

    Where more labels bring nothing from scratch, that is said instead.
    """
    said = []
    for (system, start), curve in _curves(points).items():
        scratch = _curves(points).get((system, SCRATCH))
        if start == SCRATCH or not scratch:
            continue
        if len(scratch) > 1 and scratch[-1]["value"] <= scratch[0]["value"]:  # what chance says saves no labels
            fewest, most = f"{scratch[0]['labels']:,}", f"{scratch[-1]['labels']:,}"
            said.append(f"{system} from scratch gains nothing from {fewest} to {most} labels, so none are saved here")
            continue
        enough = [point["labels"] for point in curve if point["value"] >= scratch[-1]["value"]]
        most = f"{scratch[-1]['labels']:,}"
        if enough:
            said.append(
                f"{system}, {start}, reaches with {enough[0]:,} labels what it reaches from scratch with {most}"
            )
        else:
            said.append(f"{system}, {start}, nowhere reaches what it reaches from scratch with {most} labels")
    return "; ".join(said) or "A line for each system and start"


def describe(points: list[dict[str, Any]], measure: str) -> str:
    """The picture in words: every curve from its fewest to its most labels.

    >>> describe([{"start": "from scratch", "system": "gpt", "labels": 100, "value": 0.5}], "accuracy")
    'gpt, from scratch: accuracy 0.5 with 100 labels'
    """
    return "; ".join(
        f"{system}, {start}: {measure} " + ", ".join(f"{p['value']:.3g} with {p['labels']:,} labels" for p in curve)
        for (system, start), curve in _curves(points).items()
    )


def _layers(points: list[dict[str, Any]], axis: str, tips: list[Any]) -> Any:
    """Bands of spread, lines on them, dots on those; colour is the system, dashes and the shape of dots the start."""
    systems = list(dict.fromkeys(point["system"] for point in points))
    # from scratch last: what it is compared with gets the whole line
    starts = sorted(dict.fromkeys(point["start"] for point in points), key=lambda start: start == SCRATCH)
    colour = alt.Color(
        "system:N",
        scale=_scale(systems, COLOURS),
        legend=alt.Legend(title="system", symbolType="square", symbolOpacity=1),
    )
    dash = alt.StrokeDash(
        "start:N",
        scale=_scale(starts, DASHES),
        legend=alt.Legend(title="start", symbolType="stroke", symbolSize=900, symbolStrokeWidth=2.5),
    )
    shape = alt.Shape("start:N", scale=_scale(starts, SHAPES), legend=None)
    y = alt.Scale(zero=False, nice=True, padding=10)
    chart = alt.Chart(alt.Data(values=points)).encode(x=_across(points), color=colour, detail="start:N")
    lines = chart.encode(y=alt.Y("value:Q", title=axis, scale=y))
    spread = chart.encode(y=alt.Y("low:Q", title=axis, scale=y), y2="high:Q").transform_filter("isValid(datum.low)")
    layers = (
        spread.mark_area(opacity=0.15)
        + lines.mark_line(strokeWidth=2.5).encode(strokeDash=dash)
        + lines.mark_point(size=80, filled=True, opacity=1).encode(shape=shape, tooltip=tips)
    )
    return layers.resolve_scale(shape="independent")  # else the legend of dashes would draw shapes


def _across(points: list[dict[str, Any]]) -> Any:
    numbers = sorted({point["labels"] for point in points})
    return alt.X(
        "labels:Q",
        title="labelled examples (logarithmic)",
        scale=alt.Scale(type="log", domain=[numbers[0] / 1.15, numbers[-1] * 1.15], nice=False),
        axis=alt.Axis(values=numbers, format="~s" if numbers[-1] >= 100_000 else ",", labelOverlap=True),
    )


def _scale(names: list[str], looks: list[Any]) -> Any:
    return alt.Scale(domain=names, range=[looks[place % len(looks)] for place in range(len(names))])


def _curves(points: list[dict[str, Any]]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    curves: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for point in sorted(points, key=lambda point: int(point["labels"])):
        curves.setdefault((point["system"], point["start"]), []).append(point)
    return curves


def _check(points: list[dict[str, Any]]) -> None:
    if not points:
        raise InputError("there is no curve to draw", hint="give at least one point")
    for point in points:
        if point["labels"] < 1:
            what = f"{point['system']}, {point['start']}, has a point at {point['labels']} labels"
            raise InputError(what, hint="a logarithmic axis begins at 1 label")


def _tips(measure: str) -> list[Any]:
    return [
        alt.Tooltip("system:N"),
        alt.Tooltip("start:N"),
        alt.Tooltip("labels:Q", format=","),
        alt.Tooltip("value:Q", title=measure, format=".4~g"),
        alt.Tooltip("low:Q", title="lowest seed", format=".4~g"),
        alt.Tooltip("high:Q", title="highest seed", format=".4~g"),
    ]
