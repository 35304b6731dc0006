"""The result of ``ensue look bias`` as an offline page: charts as SVG, a table below each, and the texts themselves."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import vl_convert

from ensue.look.bias_chart import ALPHA, bias_charts, summary
from ensue.look.bias_text import p_text, signed, span
from ensue.look.formatting import readable
from ensue.look.page import filled, page

SHOWN_TEXTS = 8
"""Texts of each group that the page shows: the first that were drawn. The JSON has all."""


def bias_html(numbers: Mapping[str, Any]) -> str:
    """The page: one file that fetches nothing."""
    drawings = {name: _svg(chart) for name, chart in bias_charts(numbers)}
    sections = [_pairs(numbers["pairs"], drawings["pairs"])]
    if "sentiment" in numbers:
        sections = [_sentiment(numbers, drawings["sentiment"]), _words(numbers["words"]), *sections]
    if "pronouns" in numbers:
        sections.insert(-1, _pronouns(numbers["pronouns"]["occupations"], drawings["pronouns"]))
    if numbers["references"]:
        sections.append(_references(numbers["references"], drawings.get("references", "")))
    if "texts" in numbers:
        sections.append(_texts(numbers["texts"]))
    body = filled(
        "bias.html",
        summary=html.escape(summary(numbers)),
        settings=html.escape(_settings(numbers)),
        limits="\n".join(f"<li>{html.escape(line)}" for line in [*numbers["omitted"], *numbers["cannot_show"]]),
        sections="\n".join(sections),
    )
    return page(str(numbers["title"]), body, numbers, ("bias",))


def _settings(numbers: Mapping[str, Any]) -> str:
    """What was run, in a sentence."""
    settings = numbers["settings"]
    data = ", ".join(one.rpartition("/")[2] for one in settings["data"]) or "built-in material only"
    parts = [f"Run {numbers['run']} ({numbers['system']})", f"data: {data}"]
    if "texts" in numbers:
        parts.append(f"{len(numbers['texts']):,} texts, {settings['samples']} of each prompt, seed {settings['seed']}")
    return " · ".join(parts)


def _svg(chart: Any) -> str:
    """A chart as SVG inside HTML; Vega-Lite escapes the texts in it."""
    spec = json.loads(json.dumps({**chart.to_dict(), "background": "white"}))
    return f'<figure tabindex="0">{vl_convert.vegalite_to_svg(spec)}</figure>'


def _section(name: str, title: str, explained: str, *parts: str) -> str:
    return (
        f'<section id="{name}"><h2>{html.escape(title)}</h2><p>{html.escape(explained)}</p>{"".join(parts)}</section>'
    )


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "", numbers_from: int = 1) -> str:
    """A table with escaped cells; columns from ``numbers_from`` are aligned as numbers."""
    head = "".join(f"<th scope=col>{html.escape(column)}" for column in columns)
    lines = []
    for cells in rows:
        first, *rest = (html.escape(cell) for cell in cells)
        shown = "".join(f"<td{' class=n' if at >= numbers_from else ''}>{cell}" for at, cell in enumerate(rest, 1))
        lines.append(f"<tr><th scope=row>{first}{shown}")
    title = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    return f'<div class="wide"><table>{title}<thead><tr>{head}<tbody>{"".join(lines)}</table></div>'


def _folded(title: str, content: str) -> str:
    return f"<details><summary>{html.escape(title)}</summary>{content}</details>"


def _sentiment(numbers: Mapping[str, Any], drawing: str) -> str:
    scorer = numbers["sentiment"]["scorer"]
    if scorer["name"] == "word list":
        how = f"a list of {scorer['positive']} positive and {scorer['negative']} negative words, which is crude"
    else:
        known = f", {scorer['accuracy']:.1%} right on its held-out data" if scorer["accuracy"] is not None else ""
        how = f"the classifier {scorer['name']} ({scorer['system']}{known})"
    explained = (
        f"The model continues sentences about each group; {how}, scores each text from −1 to 1. In the sentences from "
        "templates the group is replaced by “the person” before they are scored. p: how often shuffled groups "
        "differ as much, corrected for the number of all groups here (Holm). “Prompt alone” is the score of the "
        f"beginnings without a continuation: the scorer’s own bias. {scorer_bias(numbers['sentiment']['axes'])}"
    )
    columns = ("group", "texts", "mean", "95 % interval", "minus others", "p", "prompt alone")
    tables = []
    for axis in numbers["sentiment"]["axes"]:
        rows = [
            (
                row["group"],
                f"{row['count']:,}",
                signed(row["mean"]),
                span(row),
                signed(row["difference"]),
                p_text(row["p_adjusted"]) + (" *" if row["p_adjusted"] < ALPHA else ""),
                signed(row["bare"]),
            )
            for row in axis["groups"]
        ]
        tables.append(_table(columns, rows, f"{axis['axis']}: {axis['texts']:,} texts, {axis['zero']:.0%} score 0"))
    return _section("sentiment", "Sentiment by group", explained, drawing, _folded("The numbers", "".join(tables)))


def scorer_bias(axes: Sequence[Mapping[str, Any]]) -> str:
    """The two groups of an axis whose prompts alone are scored most differently, in a sentence."""
    gaps = []
    for axis in axes:
        rows = sorted(axis["groups"], key=lambda row: float(row["bare"]))
        gaps.append((rows[-1]["bare"] - rows[0]["bare"], rows[0], rows[-1]))
    gap, low, high = max(gaps, key=lambda one: float(one[0]))
    if gap == 0:
        return "Here it is 0 for all groups."
    ends = f"{low['group']} {signed(low['bare'])}, {high['group']} {signed(high['bare'])}"
    return f"It differs most between {ends}: a difference of texts that is smaller than this may be the scorer’s."


def _words(axes: Sequence[Mapping[str, Any]]) -> str:
    explained = (
        "Words in the continuations that stand out for a group, by pointwise mutual information: PMI = log₂ of the "
        "share of the group’s texts with the word over the share of all texts with it (0.5 added on either side; words "
        "in at least 5 texts). Marked words (*) stand out more than any word does in 95 % of shuffles; the others "
        "could be chance. There is no tagger: a stop list leaves out function words, pronouns and the words of "
        "the prompts."
    )
    tables = []
    for axis in axes:
        rows = [
            (
                f"{row['group']} ({row['texts']:,} texts)",
                ", ".join(_word(word) for word in row["words"]) or "no word stands out",
            )
            for row in axis["groups"]
        ]
        tables.append(_table((axis["axis"], "words: texts of the group and of all, PMI [95 % interval]"), rows, "", 2))
    return _section("words", "Words by group", explained, *tables)


def _word(word: Mapping[str, Any]) -> str:
    mark = "*" if word["p"] < ALPHA else ""
    counts = f"{word['count']} of {word['count'] + word['others']}"
    pmi = f"{word['pmi']:.1f} [{word['low']:.1f}, {word['high']:.1f}]".replace("-", "−")
    return f"{readable(word['word'])}{mark} ({counts}; {pmi})"


def _pronouns(rows: Sequence[Mapping[str, Any]], drawing: str) -> str:
    explained = (
        f"How likely “he”, “she” and “they” are after sentences such as “The nurse said that”, for {len(rows)} "
        f"occupations in {rows[0]['templates']} templates. ln P(she)/P(he) is 0 where both are equally likely and 0.7 "
        "where “she” is twice as likely. The interval is Student’s, over the templates."
    )
    words = list(rows[0]["shares"])
    cells = [
        (row["occupation"], signed(row["log_odds"]), span(row), *(f"{row['shares'][word]:.1%}" for word in words))
        for row in rows
    ]
    columns = ("occupation", "ln she/he", "95 % interval", *(f"share of {word}" for word in words))
    return _section(
        "pronouns", "Pronouns after occupations", explained, drawing, _folded("The numbers", _table(columns, cells))
    )


def _pairs(sets: Sequence[Mapping[str, Any]], drawing: str) -> str:
    explained = (
        "Two sentences differ in the group only. The share is how often the more stereotyped one is the more likely "
        "one: 50 % means no preference. Intervals are Wilson’s."
    )
    columns = ("category", "pairs", "share", "95 % interval")
    tables = [
        _table(
            columns,
            [
                (row["category"], f"{row['count']:,}", f"{row['share']:.1%}", span(row, share=True))
                for row in [{**one, "category": "all"}, *one["categories"]]
            ],
            f"{one['set']}: {one['count']:,} of {one['of']:,} pairs",
        )
        for one in sets
    ]
    return _section("pairs", "Stereotyped sentences", explained, drawing, _folded("The numbers", "".join(tables)))


def _references(sets: Sequence[Mapping[str, Any]], drawing: str) -> str:
    explained = (
        "A sentence names two people and has a pronoun; the model finds the right person more likely than the other "
        "after “… ‘She’ refers to”, or not. Each sentence has both pronouns: one fits the stereotype of the "
        "occupation (pro), the other does not (anti). A model without such a stereotype is right equally often."
    )
    tables = []
    for one in sets:
        rows = [("all", one), *((row["side"], row) for row in one["sides"])]
        rows += [(f"{row['gender']} pronouns", row) for row in one["genders"]]
        cells = [(name, f"{row['count']:,}", f"{row['share']:.1%}", span(row, share=True)) for name, row in rows]
        caption = f"{one['set']}: {one['count']:,} of {one['of']:,} sentences"
        if gap := one["difference"]:
            low, mean, high = (signed(100 * gap[name]) for name in ("low", "mean", "high"))
            caption += f"; pro minus anti {mean} points ({low} to {high})"
        tables.append(_table(("sentences", "count", "right", "95 % interval"), cells, caption))
    return _section("references", "Whom a pronoun refers to", explained, drawing, *tables)


def _texts(texts: Sequence[Mapping[str, Any]]) -> str:
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for text in texts:
        groups.setdefault((text["axis"], text["group"]), []).append(text)
    folded = []
    for (axis, group), own in groups.items():
        # evenly spaced, so that all templates appear
        chosen = (
            [own[number * len(own) // SHOWN_TEXTS] for number in range(SHOWN_TEXTS)] if len(own) > SHOWN_TEXTS else own
        )
        items = "".join(
            f"<li><b>{html.escape(readable(t['prompt']))}</b> {html.escape(readable(t['text']))} "
            f"<i>{signed(t['score'])}</i>"
            for t in chosen
        )
        folded.append(_folded(f"{axis}: {group} ({len(chosen)} of {len(own):,} texts)", f"<ul>{items}</ul>"))
    explained = "Some texts as the model wrote them, evenly spaced over the prompts, with their scores. Read them."
    return _section("texts", "The texts", explained, *folded)
