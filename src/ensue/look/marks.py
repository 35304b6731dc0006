"""What charts of many marks share: how many there may be, and words and rows as Vega-Lite takes them."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from typing import Any

import altair as alt

MOST_MARKS = 50_000
# Okabe and Ito's colours, which colour-blind eyes can tell apart
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"]


def records(rows: Sequence[dict[str, Any]]) -> Any:
    """Rows as data of a chart: as text, for Altair would check each of many against its schema, for a long time."""
    return alt.Data(values=inline(list(rows)), format=alt.DataFormat(type="json"))


def words(labels: Sequence[str]) -> str:
    """An expression that turns a place into its word; places never repeat, words do."""
    return f"{inline(list(labels))}[datum.value]"


def inline(value: Any) -> str:
    """JSON without a <, so that no word can end the script of a page that the chart is put into."""
    return json.dumps(value).replace("<", "\\u003c")


def plain(text: str) -> str:
    """Text for a description, where marks such as </s> cannot be taken for markup."""
    return text.replace("<", "‹").replace(">", "›")


def heading(title: str, caption: str, letters: int = 105) -> Any:
    """A title, and under it what one sees, in lines of so many letters."""
    return alt.TitleParams(title, subtitle=textwrap.wrap(caption, max(40, letters)), anchor="start", offset=12)


def cut_text(shown: int, total: int) -> str:
    """What is said where only the beginning of a text is shown.

    >>> cut_text(128, 1506), cut_text(5, 5)
    ('The first 128 of 1,506 tokens.', '')
    """
    return f"The first {shown:,} of {total:,} tokens." if shown < total else ""


def by_name(field: str, names: Sequence[str], title: str | None, **legend: Any) -> Any:
    """A colour for each of some names, in their order, which is the legend's too."""
    shades = [COLOURS[i % len(COLOURS)] for i in range(len(names))]
    scale, told = alt.Scale(domain=list(names), range=shades), alt.Legend(**{"labelLimit": 320, **legend})
    return alt.Color(field, sort=list(names), title=title, scale=scale, legend=told)


def by_run(names: Sequence[str]) -> Any:
    """A colour for each run, in their order."""
    return by_name("run:N", names, "run")


def dashes(field: str, names: Sequence[str], title: str) -> Any:
    """A whole line and a dashed one, by the names of what they are; the legend shows lines, not dots."""
    line = alt.Legend(
        symbolType="stroke",
        symbolSize=900,
        symbolStrokeWidth=2,
        symbolFillColor="transparent",
        symbolStrokeColor="black",
    )
    scale = alt.Scale(domain=list(names), range=[[1, 0], [6, 4]])
    return alt.StrokeDash(field, title=title, sort=list(names), scale=scale, legend=line)


def short_names(runs: Sequence[str]) -> list[str]:
    """The last part of each run's path where those differ, else the paths.

    >>> short_names(["runs/a", "runs/b"]), short_names(["x/a", "y/a"])
    (['a', 'b'], ['x/a', 'y/a'])
    """
    ends = [run.rstrip("/").rpartition("/")[2] for run in runs]
    return ends if len(set(ends)) == len(runs) else list(runs)
