"""The result of ``ensue look bias`` for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group
from rich.table import Table

from ensue.look.bias_chart import ALPHA, summary
from ensue.look.formatting import readable

EXTREMES = 5
"""Occupations that are printed at either end."""


def bias_note(numbers: Mapping[str, Any]) -> str:
    """The main figures in a line."""
    return summary(numbers)


def bias_text(numbers: Mapping[str, Any]) -> Group:
    """Tables of every section, and what they cannot show."""
    parts: list[Any] = [numbers["title"], ""]
    if "sentiment" in numbers:
        parts += [_sentiment(axis) for axis in numbers["sentiment"]["axes"]] + [_words(numbers["words"])]
    if "pronouns" in numbers:
        parts.append(_pronouns(numbers["pronouns"]["occupations"]))
    parts += [_pairs(one) for one in numbers["pairs"]]
    parts += [_references(one) for one in numbers["references"]]
    limits = [*numbers["omitted"], "What this cannot show:", *(f"- {line}" for line in numbers["cannot_show"])]
    return Group(*parts, *limits)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right")
    return table


def signed(value: float) -> str:
    """A number with its sign and two decimals.

    >>> signed(0.123), signed(-0.5)
    ('+0.12', '−0.50')
    """
    return f"{value:+.2f}".replace("-", "−")


def span(row: Mapping[str, Any], *, share: bool = False) -> str:
    """An interval as text.

    >>> span({"low": -0.1, "high": 0.25}), span({"low": 0.5, "high": 0.62}, share=True)
    ('−0.10 to +0.25', '50.0–62.0 %')
    """
    if share:
        return f"{100 * row['low']:.1f}–{100 * row['high']:.1f} %"
    return f"{signed(row['low'])} to {signed(row['high'])}"


def p_text(value: float) -> str:
    """A p-value.

    >>> p_text(0.0005), p_text(0.4)
    ('0.001', '0.40')
    """
    return f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def _sentiment(axis: Mapping[str, Any]) -> Table:
    table = _table(
        f"sentiment: {axis['axis']}", "group", "texts", "mean", "95 % interval", "− others", "p (Holm)", "prompt alone"
    )
    for row in axis["groups"]:
        mark = " *" if row["p_adjusted"] < ALPHA else ""
        p = p_text(row["p_adjusted"]) + mark
        cells = (f"{row['count']:,}", signed(row["mean"]), span(row), signed(row["difference"]), p, signed(row["bare"]))
        table.add_row(row["group"], *cells)
    return table


def _words(axes: list[dict[str, Any]]) -> Table:
    table = Table(
        title="words by group: PMI in bits (texts with the word of all texts); * p < 0.05", title_justify="left"
    )
    for column in ("group", "texts", "words"):
        table.add_column(column)
    for axis in axes:
        for row in axis["groups"]:
            words = (
                f"{readable(w['word'])} {w['pmi']:.1f} ({w['count']} of {w['count'] + w['others']})"
                + ("*" if w["p"] < ALPHA else "")
                for w in row["words"][:5]
            )
            table.add_row(row["group"], f"{row['texts']:,}", ", ".join(words))
    return table


def _pronouns(rows: list[dict[str, Any]]) -> Table:
    table = _table("pronouns after occupations", "occupation", "ln she/he", "95 % interval", "he", "she", "they")
    shown = rows if len(rows) <= 2 * EXTREMES else [*rows[:EXTREMES], *rows[-EXTREMES:]]
    for row in shown:
        shares = (f"{share:.0%}" for share in row["shares"].values())
        table.add_row(row["occupation"], signed(row["log_odds"]), span(row), *shares)
    if len(shown) < len(rows):
        table.caption = f"the ends of {len(rows)} occupations"
    return table


def _pairs(one: Mapping[str, Any]) -> Table:
    title = f"{one['set']}: the more stereotyped sentence is more likely"
    table = _table(title, "category", "pairs", "share", "95 % interval")
    for row in [{**one, "category": "all"}, *one["categories"]]:
        table.add_row(row["category"], f"{row['count']:,}", f"{row['share']:.1%}", span(row, share=True))
    return table


def _references(one: Mapping[str, Any]) -> Table:
    table = _table(f"{one['set']}: whom a pronoun refers to", "sentences", "count", "right", "95 % interval")
    rows = [("all", one), *((row["side"], row) for row in one["sides"])]
    rows += [(f"{row['gender']} pronouns", row) for row in one["genders"]]
    for name, row in rows:
        table.add_row(name, f"{row['count']:,}", f"{row['share']:.1%}", span(row, share=True))
    if gap := one["difference"]:
        points = f"{signed(100 * gap['mean'])} points, {signed(100 * gap['low'])} to {signed(100 * gap['high'])}"
        table.caption = f"pro − anti: {points} ({gap['count']:,} matched sentences)"
    return table
