"""Forecasts as a picture: the past, the forecast with its band, and what came."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

import altair as alt

from ensue.look.marks import heading, plain

COLOURS = {"past": "#7f7f7f", "what came": "#222222", "forecast": "#d95f02"}


def forecast_chart(numbers: dict[str, Any]) -> Any:
    """A panel for each series or target, one under the other."""
    levels, panels = numbers["quantiles"], numbers["panels"]
    wide = len(panels) == 1
    charts = [_panel(panel, levels, 640 if wide else 560, 320 if wide else 150) for panel in panels]
    band = f"; the band should hold {100 * (levels[-1] - levels[0]):.0f} % of what comes" if len(levels) > 1 else ""
    title = f"What {numbers['system']} expects"
    name = PurePath(numbers["run"]).name
    caption = f"{name}: grey is what it saw, black what came, dashes of colour what it expected{band}."
    return alt.vconcat(*charts).properties(
        title=heading(title, caption), description=plain(f"{title}. {'; '.join(map(_said, panels))}")
    )


def _said(panel: dict[str, Any]) -> str:
    """A panel in words: where it stood, what was expected at the end, and what came."""
    came = f", {panel['truth'][-1]['value']:.4g} came" if panel["truth"] else ""
    ahead = panel["forecast"]
    return (
        f"{panel['title']}: last seen {panel['past'][-1]['value']:.4g}; after {len(ahead)} steps "
        f"{ahead[-1]['value']:.4g} was expected{came}"
    )


def _panel(panel: dict[str, Any], levels: list[float], width: int, height: int) -> Any:
    """The past in grey, what came in black, the forecast in colour with its band."""
    joint = panel["past"][-1]
    lines = [{**point, "what": "past"} for point in panel["past"]]
    lines += [{**point, "what": "what came"} for point in (joint, *panel["truth"])]
    lines += [{"at": p["at"], "value": p["value"], "what": "forecast"} for p in (joint, *panel["forecast"])]
    kind = "T" if panel["dated"] else "Q"
    x = (
        alt.X("at:T", title="date", axis=alt.Axis(format="%d %b %Y", labelOverlap=True))
        if panel["dated"]
        else alt.X("at:Q", title="steps from the last one that was seen (0)")
    )
    y = alt.Y("value:Q", title=panel["title"], scale=alt.Scale(zero=False))
    colour = alt.Color("what:N", title=None, scale=alt.Scale(domain=list(COLOURS), range=list(COLOURS.values())))
    dash = alt.StrokeDash("what:N", scale=alt.Scale(domain=list(COLOURS), range=[[1, 0], [1, 0], [6, 3]]), legend=None)
    tips = ["what:N", f"at:{kind}", alt.Tooltip("value:Q", format=".5g")]
    drawn = (
        alt.Chart(alt.Data(values=lines))
        .mark_line(point=len(panel["truth"]) < 3)
        .encode(x=x, y=y, color=colour, strokeDash=dash, tooltip=tips)
    )
    if len(levels) > 1:
        first = {"at": joint["at"], "low": joint["value"], "high": joint["value"]}
        area = alt.Chart(alt.Data(values=[first, *panel["forecast"]])).mark_area(
            opacity=0.25, color=COLOURS["forecast"]
        )
        drawn = (
            area.encode(x=x, y=alt.Y("low:Q", title=panel["title"], scale=alt.Scale(zero=False)), y2="high:Q") + drawn
        )
    return drawn.properties(width=width, height=height)
