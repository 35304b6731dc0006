"""``ensue look race``: a race's measure against training time, or against the number of labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import altair as alt

from ensue.core.errors import InputError
from ensue.look.chart_parts import COLOURS, DASHES, by_name, cycled, titled
from ensue.look.label_curve import label_curve
from ensue.look.view import View


@dataclass(frozen=True)
class RaceRecord:
    """A finished race: its race.json, and what decided it."""

    race: dict[str, Any]
    metrics: dict[str, list[dict[str, Any]]]
    """The metrics of each entrant while it trained, by name."""
    task: str
    measure: str
    """The key of the measure that decides."""
    title: str
    """The name of that measure, for people."""
    lower: bool
    """True if lower is better."""


def race(races: Sequence[RaceRecord]) -> View:
    """A race: its measure against training time, or against the number of labels."""
    if len(races) != 1:
        raise InputError(f"race shows one race, not {len(races)}", hint="name the folder of one")
    (record,) = races
    chart = labels_chart if record.race.get("shares") else race_chart
    return View(partial(chart, record), record.race)


def labels_chart(record: RaceRecord) -> Any:
    """The measure against the number of labels, a line for each system and start."""
    points = []
    for entrant in record.race["systems"]:
        value = entrant[record.measure]
        if value is not None:
            values = [seed[record.measure] for seed in entrant["seeds"]]
            spread = {"low": min(values), "high": max(values)} if len(values) > 1 else {}
            name = f"{entrant['system']} {entrant.get('attention', '')}".strip()
            known = {"system": name, "start": entrant["start"], "labels": entrant["labels"]}
            points.append({**known, "value": value, **spread})
    title = f"Score by number of labels: {record.task} on {', '.join(record.race['data'])}"
    return label_curve(points, record.title, title=title)


def entrant_name(race: dict[str, Any], entrant: dict[str, Any]) -> str:
    """The name of an entrant: its system, its start if some entrants were initialised from another run, its attention.

    >>> entrant_name({"from": {"run": "minilm"}}, {"system": "bert", "start": "pre-trained"})
    'bert pre-trained'
    >>> entrant_name({}, {"system": "gpt", "attention": "local:span=64"})
    'gpt local:span=64'
    """
    start = entrant.get("start", "") if race.get("from") else ""
    return " ".join(filter(None, (str(entrant["system"]), start, entrant.get("attention", ""))))


def race_chart(record: RaceRecord) -> Any:
    """The measure against training time: validation during training as lines, the final score as dots."""
    race, measure, title = record.race, record.measure, record.title
    points = [
        {"system": entrant_name(race, s), "seconds": s["seconds"], "value": s[measure], "megabytes": s["bytes"] / 1e6}
        for s in race["systems"]
        if None not in (s[measure], s["seconds"], s["bytes"])
    ]
    if not points:
        raise InputError("the race has no result with its time and size", hint="`ensue race … --resume` continues it")
    order = [point["system"] for point in points]
    lines = [
        {"system": name, "seconds": row["seconds"], "value": value}
        for name in order
        for row in record.metrics.get(name, ())
        if "seconds" in row and (value := _measured(race, row, measure)) is not None
    ]
    repeats = len(order) > len(COLOURS)  # some lines have the same colour, and another dash
    legend = {"symbolType": "stroke", "symbolSize": 300} if repeats else {}
    colour = by_name("system:N", order, "system, best first", **legend)
    x = alt.X("seconds:Q", title="seconds of training", scale=alt.Scale(zero=True, nice=False, padding=30))
    axis = f"{title}, held out ({'lower' if record.lower else 'higher'} is better)"
    y = alt.Y("value:Q", title=axis, scale=alt.Scale(zero=False, padding=30))
    progress = alt.Chart(alt.Data(values=lines)).mark_line(opacity=0.6).encode(x=x, y=y, color=colour)
    if repeats:
        looks = cycled(order, [DASHES[at // len(COLOURS) % len(DASHES)] for at in range(len(order))])
        progress = progress.encode(strokeDash=alt.StrokeDash("system:N", sort=order, scale=looks, legend=None))
    size = alt.Size("megabytes:Q", title="size on disk, MB", scale=alt.Scale(range=[60, 900]))
    tips = ["system:N", alt.Tooltip("value:Q", title=title), "seconds:Q", "megabytes:Q"]
    dots = alt.Chart(alt.Data(values=points)).mark_circle(opacity=0.85)
    layers = progress + dots.encode(x=x, y=y, color=colour, size=size, tooltip=tips)
    for side, dx in (("left", 24), ("right", -24)):
        named = [point for point in _with_labels(points, lines) if point["side"] == side]
        text = alt.Chart(alt.Data(values=named)).mark_text(align=side, dx=dx, fontSize=12, fontWeight="bold")
        layers += text.encode(x=x, y=alt.Y("at:Q", title=axis), text="system:N", color=colour)
    summary = "; ".join(
        f"{p['system']}: {p['value']:.4g} after {p['seconds']:.0f} seconds, {p['megabytes']:.1f} MB" for p in points
    )
    alike = matched_in_words(race)
    caption = "Lines: validation during training. " if lines else ""
    caption += "Dots: score on all held-out data; a larger dot is a larger model."
    return titled(
        layers, f"Race on {', '.join(race['data'])}: {alike}", caption, f"{title}: {summary}", width=640, height=420
    )


def matched_in_words(race: dict[str, Any]) -> str:
    """What all systems of a race had alike.

    >>> matched_in_words({"match": "cpu", "budget": "40s"})
    '40s of CPU time each'
    >>> matched_in_words({"match": "time", "budget": "", "settings": {"train.steps": "200"}})
    '200 steps each'
    """
    match, budget = race["match"], race["budget"]
    if match == "tokens":
        return "equal data"
    if not budget:
        for unit in ("steps", "epochs"):
            if number := race["settings"].get(f"train.{unit}"):
                return f"{number} {unit} each"
        return "the task's epochs, at least about 60 updates"
    if match == "params":
        return f"equal size, {budget} each"
    return f"{budget} of {'CPU time' if match == 'cpu' else 'training'} each"


def _with_labels(points: list[dict[str, Any]], lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Points with the positions of their labels: beside the dot, towards the middle, stacked where dots overlap.

    >>> two = [{"seconds": 10, "value": 0.50}, {"seconds": 10, "value": 0.51}, {"seconds": 0, "value": 0.0}]
    >>> [(point["side"], round(point["at"], 2)) for point in _with_labels(two, [])]
    [('left', 0.0), ('right', 0.5), ('right', 0.53)]
    """
    values = [row["value"] for row in (*points, *lines)]
    gap, last = 0.05 * (max(values) - min(values)), max(point["seconds"] for point in points)
    placed: list[dict[str, Any]] = []
    for point in sorted(points, key=lambda point: float(point["value"])):
        near = [other["at"] for other in placed if abs(other["seconds"] - point["seconds"]) < 0.2 * last]
        side = "left" if point["seconds"] < 0.4 * last else "right"
        placed.append({**point, "side": side, "at": max([point["value"], *(at + gap for at in near)])})
    return placed


def _measured(race: dict[str, Any], record: dict[str, Any], measure: str) -> float | None:
    """The measure of an evaluation during training; bits per byte of a text follow from the loss."""
    if "task" not in race and "valid_loss" in record:
        surcharge = race["valid_surcharge_bits"] / race["valid_bytes"]
        return float(record["valid_loss"] / math.log(2) * race["valid_tokens"] / race["valid_bytes"] + surcharge)
    return record.get(measure)
