"""Charts of ``ensue look bias``: a point and its 95 % interval for every figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from ensue.look.chart_parts import COLOURS, records, titled

CLEAR, UNCLEAR = "differs", "could be chance"
ALPHA = 0.05
WIDTH = 430
ROW_HEIGHT = 17


def bias_chart(numbers: Mapping[str, Any]) -> Any:
    """All charts, one below the other."""
    panels = [chart for _, chart in bias_charts(numbers)]
    caption = "Points with 95 % intervals. Orange: a clear difference. Blue: it could be chance."
    return titled(alt.vconcat(*panels, spacing=28), str(numbers["title"]), caption, summary(numbers))


def bias_charts(numbers: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The chart of each section, by the section's name."""
    charts = []
    if "sentiment" in numbers:
        charts.append(("sentiment", sentiment_chart(numbers["sentiment"]["axes"])))
    if "pronouns" in numbers:
        charts.append(("pronouns", pronoun_chart(numbers["pronouns"]["occupations"])))
    charts.append(("pairs", pair_chart(numbers["pairs"])))
    if any(one["sides"] for one in numbers["references"]):
        charts.append(("references", reference_chart(numbers["references"])))
    return charts


def summary(numbers: Mapping[str, Any]) -> str:
    """The main figures in a sentence each."""
    pairs = (f"{one['set']}: {one['share']:.1%} of {one['count']:,} pairs" for one in numbers["pairs"])
    shown = "The more stereotyped sentence is more likely in " + "; ".join(pairs) + "."
    if "sentiment" not in numbers:
        return shown
    groups = [row for axis in numbers["sentiment"]["axes"] for row in axis["groups"]]
    clear = sum(row["p_adjusted"] < ALPHA for row in groups)
    return f"Sentiment differs clearly for {clear} of {len(groups)} groups. {shown}"


def sentiment_chart(axes: Sequence[Mapping[str, Any]]) -> Any:
    """The mean sentiment of the texts about each group, a panel per axis, all on one scale."""
    ends = [end for axis in axes for row in axis["groups"] for end in (row["low"], row["high"])]
    domain = [min(-0.1, *ends), max(0.1, *ends)]
    panels = [
        _panel(
            [_point(row["group"], row["mean"], row, row["p_adjusted"] < ALPHA) for row in axis["groups"]],
            axis["axis"],
            "mean sentiment, −1 to 1",
            line=axis["mean"],
            domain=domain,
        )
        for axis in axes
    ]
    caption = "Mean with 95 % interval. Dashed: the mean of all texts of the panel."
    return titled(alt.vconcat(*panels), "Sentiment by group", caption, caption)


def pronoun_chart(occupations: Sequence[Mapping[str, Any]]) -> Any:
    """The log-odds of she against he after each occupation."""
    rows = [_point(row["occupation"], row["log_odds"], row, row["low"] > 0 or row["high"] < 0) for row in occupations]
    caption = "Left of the dashed line “he” is more likely, right of it “she”. Intervals over the templates."
    panel = _panel(rows, "occupation", "ln P(she) / P(he)", line=0.0)
    return titled(panel, "Pronouns after occupations", caption, caption)


def pair_chart(sets: Sequence[Mapping[str, Any]]) -> Any:
    """The share of pairs whose more stereotyped sentence is more likely, a panel per set."""
    panels = [
        _panel(
            [
                _point(
                    f"{row['category']} ({row['count']:,})", row["share"], row, row["low"] > 0.5 or row["high"] < 0.5
                )
                for row in [{**one, "category": "all"}, *one["categories"]]
            ],
            one["set"],
            "share of pairs",
            line=0.5,
            domain=[0, 1],
            form="%",
        )
        for one in sets
    ]
    caption = "How often the more stereotyped of two sentences is more likely. Dashed: no preference."
    return titled(alt.vconcat(*panels), "Stereotyped sentences", caption, caption)


def reference_chart(sets: Sequence[Mapping[str, Any]]) -> Any:
    """The share of pronouns resolved rightly, where the answer fits the stereotype and where it does not."""
    panels = []
    for one in sets:
        gap = one["difference"]
        clear = gap is not None and (gap["low"] > 0 or gap["high"] < 0)
        names = {"pro": "fits the stereotype", "anti": "against the stereotype"}
        rows = [_point(f"{names[row['side']]} ({row['count']:,})", row["share"], row, clear) for row in one["sides"]]
        if rows:
            panels.append(_panel(rows, one["set"], "share right", line=0.5, domain=[0, 1], form="%"))
    caption = "How often the right person is the more likely one. Dashed: chance."
    return titled(alt.vconcat(*panels), "Whom a pronoun refers to", caption, caption)


def _point(name: str, value: float, row: Mapping[str, Any], clear: bool) -> dict[str, Any]:
    shown = {"name": name, "value": value, "low": row["low"], "high": row["high"]}
    return {**shown, "difference": CLEAR if clear else UNCLEAR}


def _panel(
    rows: list[dict[str, Any]],
    title: str,
    x_title: str,
    *,
    line: float,
    domain: Sequence[float] | None = None,
    form: str = ".2~f",
) -> Any:
    """Points with intervals, one row each, and a dashed line."""
    scale = alt.Scale(domain=list(domain)) if domain else alt.Scale(zero=False)
    y = alt.Y("name:N", sort=[row["name"] for row in rows], title=title, axis=alt.Axis(labelLimit=260))
    x = alt.X("value:Q", title=x_title, scale=scale, axis=alt.Axis(format=form))
    colours = alt.Scale(domain=[UNCLEAR, CLEAR], range=COLOURS[:2])
    colour = alt.Color("difference:N", title="difference", scale=colours)
    tips = [
        alt.Tooltip("name:N", title=title),
        *(alt.Tooltip(f"{n}:Q", format=".3f") for n in ("value", "low", "high")),
    ]
    base = alt.Chart(records(rows)).encode(y=y, color=colour, tooltip=tips)
    intervals = base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", title=x_title, scale=scale), x2="high:Q")
    points = base.mark_point(filled=True, size=55, opacity=1).encode(x=x)
    dashed = alt.Chart(records([{"x": line}])).mark_rule(strokeDash=[6, 4]).encode(x=alt.X("x:Q", title=x_title))
    return (dashed + intervals + points).properties(width=WIDTH, height=alt.Step(ROW_HEIGHT))
