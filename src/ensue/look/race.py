"""The race as a picture: the measure against training time, the size of each model as the size of its dot."""

from __future__ import annotations

import math
from typing import Any

import altair as alt

from ensue.look.marks import by_name, heading, plain


def entrant_name(race: dict[str, Any], entrant: dict[str, Any]) -> str:
    """What one is called in a race: its system, and how it began where some began with another run.

    >>> entrant_name({"from": {"run": "minilm"}}, {"system": "bert", "start": "pre-trained"})
    'bert pre-trained'
    """
    return f"{entrant['system']} {entrant['start']}" if race.get("from") else str(entrant["system"])


def race_chart(
    race: dict[str, Any],
    ways: dict[str, list[dict[str, Any]]],
    measure: str = "bits_per_byte",
    title: str = "bits per byte",
    lower: bool = True,
) -> Any:
    """Each one's way while it trained, by name, on part of what is held out, and where it ended, on all of it."""
    points = [
        {
            "system": entrant_name(race, s),
            "seconds": s["seconds"],
            "value": s[measure],
            "megabytes": s["bytes"] / 1e6,
        }
        for s in race["systems"]
        if s[measure] is not None
    ]
    order = [point["system"] for point in points]
    lines = [
        {"system": name, "seconds": record["seconds"], "value": value}
        for name in order
        for record in ways.get(name, ())
        if (value := _measured(race, record, measure)) is not None
    ]
    colour = by_name("system:N", order, "system, best first")
    x = alt.X("seconds:Q", title="seconds of training", scale=alt.Scale(zero=True, nice=False, padding=30))
    axis = f"{title}, held out ({'lower' if lower else 'higher'} is better)"
    y = alt.Y("value:Q", title=axis, scale=alt.Scale(zero=False, padding=30))
    way = alt.Chart(alt.Data(values=lines)).mark_line(opacity=0.6).encode(x=x, y=y, color=colour)
    size = alt.Size("megabytes:Q", title="size on disk, MB", scale=alt.Scale(range=[60, 900]))
    tips = [
        alt.Tooltip("system:N"),
        alt.Tooltip("value:Q", title=title),
        alt.Tooltip("seconds:Q"),
        alt.Tooltip("megabytes:Q"),
    ]
    dots = alt.Chart(alt.Data(values=points)).encode(x=x, y=y, color=colour)
    ends = dots.mark_circle(opacity=0.85).encode(size=size, tooltip=tips)
    layers = way + ends
    for side, dx in (("left", 24), ("right", -24)):
        named = [point for point in _named(points, lines) if point["side"] == side]
        text = alt.Chart(alt.Data(values=named)).mark_text(align=side, dx=dx, fontSize=12, fontWeight="bold")
        layers += text.encode(x=x, y=alt.Y("at:Q", title=axis), text="system:N", color=colour)
    said = "; ".join(
        f"{p['system']}: {p['value']:.4g} after {p['seconds']:.0f} seconds, {p['megabytes']:.1f} MB" for p in points
    )
    name = _name(race)
    what = "Lines: validation while training. " if lines else ""
    caption = f"{what}Dots: the whole of what is held out; a larger dot is a larger model."
    return layers.properties(
        width=640, height=420, title=heading(name, caption), description=plain(f"{name}, {title}. {said}")
    )


def _named(points: list[dict[str, Any]], lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Points with where their names stand: beside the dot, toward the middle, and one above the other where dots meet.

    >>> two = [{"seconds": 10, "value": 0.50}, {"seconds": 10, "value": 0.51}, {"seconds": 0, "value": 0.0}]
    >>> [(point["side"], round(point["at"], 2)) for point in _named(two, [])]
    [('left', 0.0), ('right', 0.5), ('right', 0.53)]
    """
    values = [one["value"] for one in (*points, *lines)]
    gap, last = 0.05 * (max(values) - min(values)), max(point["seconds"] for point in points)
    placed: list[dict[str, Any]] = []
    for point in sorted(points, key=lambda point: float(point["value"])):
        near = [one["at"] for one in placed if abs(one["seconds"] - point["seconds"]) < 0.2 * last]
        side = "left" if point["seconds"] < 0.4 * last else "right"
        placed.append({**point, "side": side, "at": max([point["value"], *(at + gap for at in near)])})
    return placed


def _measured(race: dict[str, Any], record: dict[str, Any], measure: str) -> float | None:
    """What an evaluation during training says of the measure; bits per byte of a text follow from the loss."""
    if "task" not in race and "valid_loss" in record:
        lost = race["valid_surcharge_bits"] / race["valid_bytes"]
        return float(record["valid_loss"] / math.log(2) * race["valid_tokens"] / race["valid_bytes"] + lost)
    return record.get(measure)


def _name(race: dict[str, Any]) -> str:
    how = "equal data" if race["match"] == "tokens" else f"{race['budget']} of training each"
    return f"Race on {', '.join(race['data'])}: {how}"
