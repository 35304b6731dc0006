"""The race as a picture: bits per byte against training time, the size of each model as the size of its dot."""

from __future__ import annotations

import math
from typing import Any

import altair as alt


def race_chart(race: dict[str, Any], curves: dict[str, list[dict[str, Any]]]) -> Any:
    """Each system's way down while it trained, on part of the held-out text, and where it ended, on all of it."""
    done = [s for s in race["systems"] if s["bits_per_byte"] is not None]
    tokens_per_byte = race["valid_tokens"] / race["valid_bytes"]
    lost = race["valid_surcharge_bits"] / race["valid_bytes"]
    lines = [
        {
            "system": s["system"],
            "seconds": r["seconds"],
            "bits": r["valid_loss"] / math.log(2) * tokens_per_byte + lost,
        }
        for s in done
        for name, records in curves.items()
        if name == s["system"] or name == f"{s['system']}-0"
        for r in records
        if "valid_loss" in r
    ]
    points = [
        {
            "system": s["system"],
            "seconds": s["seconds"],
            "bits": s["bits_per_byte"],
            "megabytes": s["bytes"] / 1e6,
        }
        for s in done
    ]
    order = [s["system"] for s in done]
    colour = alt.Color("system:N", sort=order, title="system, best first")
    x = alt.X("seconds:Q", title="seconds of training", scale=alt.Scale(zero=True, nice=False, padding=30))
    y = alt.Y(
        "bits:Q", title="bits per byte of held-out text (lower is better)", scale=alt.Scale(zero=False, padding=30)
    )
    way = alt.Chart(alt.Data(values=lines)).mark_line(opacity=0.6).encode(x=x, y=y, color=colour)
    size = alt.Size("megabytes:Q", title="size on disk, MB", scale=alt.Scale(range=[60, 900]))
    tips = [
        alt.Tooltip(f"{name}:{kind}")
        for name, kind in (("system", "N"), ("bits", "Q"), ("seconds", "Q"), ("megabytes", "Q"))
    ]
    ends = (
        alt.Chart(alt.Data(values=points))
        .mark_circle(opacity=0.85)
        .encode(x=x, y=y, color=colour, size=size, tooltip=tips)
    )
    names = (
        alt.Chart(alt.Data(values=points))
        .mark_text(align="center", dy=-18, fontSize=12, fontWeight="bold")
        .encode(x=x, y=y, text="system:N", color=colour)
    )
    how = "equal data" if race["match"] == "tokens" else f"{race['budget']} of training each"
    title = alt.TitleParams(
        f"Race on {', '.join(race['data'])}: {how}",
        subtitle="Lines: validation while training. Dots: the whole held-out text; a larger dot is a larger model.",
        anchor="start",
    )
    return (way + ends + names).properties(width=640, height=420, title=title)
