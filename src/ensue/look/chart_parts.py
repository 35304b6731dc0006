"""Parts that charts share: colours, titles, legends, and data in the form that Vega-Lite takes."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from itertools import cycle
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
DASHES = [[1, 0], [6, 4], [2, 3], [10, 3, 2, 3]]
"""Lengths of dashes and gaps in pixels."""


def records(rows: Sequence[dict[str, Any]]) -> Any:
    """Rows as chart data, as text: Altair would validate each of many records, which is slow."""
    return alt.Data(values=inline(list(rows)), format=alt.DataFormat(type="json"))


def inline(value: Any) -> str:
    """JSON without <, so that no text can end the script element that the chart is put into."""
    return json.dumps(value).replace("<", "\\u003c")


def plain(text: str) -> str:
    """Text without angle brackets, so that tokens such as </s> are not taken for markup."""
    return text.replace("<", "‹").replace(">", "›")


def heading(title: str, caption: str, width: int = 105) -> Any:
    """A title with a caption below it, wrapped at ``width`` characters."""
    return alt.TitleParams(title, subtitle=textwrap.wrap(caption, max(40, width)), anchor="start", offset=12)


def titled(chart: Any, title: str, caption: str, summary: str, *, wrap: int = 105, **size: Any) -> Any:
    """The chart with its title, its caption, and the title and ``summary`` as text alternative; and its size."""
    return chart.properties(title=heading(title, caption, wrap), description=plain(f"{title}. {summary}"), **size)


def cut_text(shown: int, total: int) -> str:
    """A note if only the first tokens of a text are shown.

    >>> cut_text(128, 1506), cut_text(5, 5)
    ('The first 128 of 1,506 tokens.', '')
    """
    return f"The first {shown:,} of {total:,} tokens." if shown < total else ""


def cycled(names: Sequence[str], values: Sequence[Any] = COLOURS) -> Any:
    """A scale that gives each name a colour (or another of ``values``), starting over after the last."""
    return alt.Scale(domain=list(names), range=[value for _, value in zip(names, cycle(values))])


def by_name(field: str, names: Sequence[str], title: str | None, **legend: Any) -> Any:
    """A colour for each name; the legend has the same order."""
    look = alt.Legend(**{"labelLimit": 320, **legend})
    return alt.Color(field, sort=list(names), title=title, scale=cycled(names), legend=look)


def by_run(names: Sequence[str]) -> Any:
    """A colour for each run."""
    return by_name("run:N", names, "run")


def dashes(field: str, names: Sequence[str], title: str) -> Any:
    """A dash pattern for each name, solid for the first; the legend shows lines, not dots."""
    symbol = {"symbolType": "stroke", "symbolSize": 900, "symbolStrokeWidth": 2}
    legend = alt.Legend(**symbol, symbolFillColor="transparent", symbolStrokeColor="black")
    return alt.StrokeDash(field, title=title, sort=list(names), scale=cycled(names, DASHES), legend=legend)


def shades(
    field: str,
    title: str,
    domain: Sequence[float] = (0, 1),
    *,
    colours: Sequence[str] = (),
    kind: str = "linear",
    form: str = ".1f",
    **legend: Any,
) -> Any:
    """A continuous colour for a number: white to blue, or with a ``domain`` of three numbers red, white, blue.

    ``kind`` is the type of the scale, ``form`` the number format of its legend.
    """
    colours = colours or (SEQUENTIAL if len(domain) == 2 else DIVERGING)
    scale = alt.Scale(type=kind, domain=list(domain), range=list(colours), interpolate="lab", clamp=True)
    return alt.Color(field, scale=scale, legend=alt.Legend(title=title, format=form, **legend))


def label_axis(labels: Sequence[str], **style: Any) -> Any:
    """An axis of indices that shows a label for each. Indices are unique, labels need not be."""
    return alt.Axis(**{"ticks": False, "domain": False, "labelExpr": f"{inline(list(labels))}[datum.value]", **style})


def component_axes(variance: Sequence[float]) -> tuple[str, str]:
    """The axis titles of the first two principal components, from their shares of the variance."""
    first, second = (f"principal component ({share:.0%} of the variance)" for share in variance)
    return f"first {first}", f"second {second}"


def short_names(runs: Sequence[str]) -> list[str]:
    """The last part of each run's path if those are distinct, else the whole paths.

    >>> short_names(["runs/a", "runs/b"]), short_names(["x/a", "y/a"])
    (['a', 'b'], ['x/a', 'y/a'])
    """
    ends = [run.rstrip("/").rpartition("/")[2] for run in runs]
    return ends if len(set(ends)) == len(runs) else list(runs)
