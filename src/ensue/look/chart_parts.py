"""Parts that charts share: colours, titles, legends, and data in the form that Vega-Lite takes."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from typing import Any

import altair as alt

MAX_MARKS = 50_000
"""The most marks (cells, points, lines) of a chart."""
SEQUENTIAL = ["#ffffff", "#08306b"]
"""White to dark blue, in even steps of lightness when interpolated in CIELAB; it also reads well in grey."""
DIVERGING = ["#b2182b", "#f7f7f7", "#2166ac"]
"""Red below 0, blue above."""
# Okabe and Ito's palette, which is safe for colour-blind readers
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"]


def records(rows: Sequence[dict[str, Any]]) -> Any:
    """Rows as chart data, as text: Altair would validate each of many records, which is slow."""
    return alt.Data(values=inline(list(rows)), format=alt.DataFormat(type="json"))


def words(labels: Sequence[str]) -> str:
    """A Vega expression from an index to its label. Indices are unique, labels need not be."""
    return f"{inline(list(labels))}[datum.value]"


def inline(value: Any) -> str:
    """JSON without <, so that no text can end the script element that the chart is put into."""
    return json.dumps(value).replace("<", "\\u003c")


def plain(text: str) -> str:
    """Text without angle brackets, so that tokens such as </s> are not taken for markup."""
    return text.replace("<", "‹").replace(">", "›")


def heading(title: str, caption: str, width: int = 105) -> Any:
    """A title with a caption below it, wrapped at ``width`` characters."""
    return alt.TitleParams(title, subtitle=textwrap.wrap(caption, max(40, width)), anchor="start", offset=12)


def cut_text(shown: int, total: int) -> str:
    """A note if only the first tokens of a text are shown.

    >>> cut_text(128, 1506), cut_text(5, 5)
    ('The first 128 of 1,506 tokens.', '')
    """
    return f"The first {shown:,} of {total:,} tokens." if shown < total else ""


def by_name(field: str, names: Sequence[str], title: str | None, **legend: Any) -> Any:
    """A colour for each name; the legend has the same order."""
    shades = [COLOURS[i % len(COLOURS)] for i in range(len(names))]
    scale = alt.Scale(domain=list(names), range=shades)
    return alt.Color(
        field, sort=list(names), title=title, scale=scale, legend=alt.Legend(**{"labelLimit": 320, **legend})
    )


def by_run(names: Sequence[str]) -> Any:
    """A colour for each run."""
    return by_name("run:N", names, "run")


def dashes(field: str, names: Sequence[str], title: str) -> Any:
    """A solid and a dashed line for two names; the legend shows lines, not dots."""
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
    """The last part of each run's path if those are distinct, else the whole paths.

    >>> short_names(["runs/a", "runs/b"]), short_names(["x/a", "y/a"])
    (['a', 'b'], ['x/a', 'y/a'])
    """
    ends = [run.rstrip("/").rpartition("/")[2] for run in runs]
    return ends if len(set(ends)) == len(runs) else list(runs)
