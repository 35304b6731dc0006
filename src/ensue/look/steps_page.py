"""A translation step by step, as a page of its own: one file that needs nothing else.

steps.css and steps.js go into the frame of ``ensue.look.page`` as they are. Each step is told in words here, so that
the page draws what it also says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ensue.look.page import stepped
from ensue.look.tree_text import number, readable, shortened

LABEL = 18
"""The most columns of a token that are shown."""
DIGITS = 4
"""Decimals of a weight in the page."""
NAMED = 3
"""How many of the places where a token looks are said in words."""


def steps_html(numbers: Mapping[str, Any]) -> str:
    """The page of what ``ensue.look.steps.step_numbers`` tells: nothing is fetched, so it works offline."""
    steps = [*_encoding(numbers), *_decoding(numbers)]
    above = {"source": readable(numbers["text"]), "soft": _how(numbers)}
    data = {"source": _labels(numbers["source"]), "target": _labels(numbers["target"]), "steps": steps}
    hint = '<p id="hint" class="soft"></p>\n'
    return stepped(f"{numbers['system']}, step by step", above, data, "steps", beside="choices", below=hint)


def _encoding(numbers: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One step a layer where the weights are known; else one step that says how the source is read."""
    if numbers["encoder"] is None:
        step = {"kind": "read", "title": "Encoding", "text": numbers["reading"], "passes": numbers["passes"]}
        return [step]
    source, layers = _labels(numbers["source"]), numbers["encoder"]
    return [
        {
            "kind": "encode",
            "title": f"Encoding: layer {layer} of {len(layers)}",
            "text": f"All source tokens at once (mean over heads). Each looks most: {_strongest(source, weights)}.",
            "weights": _rounded(weights),
        }
        for layer, weights in enumerate(layers, 1)
    ]


def _strongest(source: Sequence[str], weights: Sequence[Sequence[float]]) -> str:
    """For each source token the one that it looks at most."""
    at = [row.index(max(row)) for row in weights]
    return ", ".join(f"{word} at {source[i]} ({row[i]:.2f})" for word, i, row in zip(source, at, weights))


def _decoding(numbers: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One step a target token."""
    source, count = _labels(numbers["source"]), len(numbers["steps"])
    return [
        {
            "kind": "decode",
            "place": place,
            "title": f"Decoding: token {place + 1} of {count}",
            "text": f"{_cost(step)} {_looks(source, step['attention']) or numbers['without']}",
            "log_prob": number(step["log_prob"]),
            "total": number(step["total"]),
            "weights": None if step["attention"] is None else _rounded([step["attention"]])[0],
            "choices": [{**choice, "token": _label(choice["token"])} for choice in step["choices"]],
        }
        for place, step in enumerate(numbers["steps"])
    ]


def _cost(step: Mapping[str, Any]) -> str:
    """Which token was chosen, from what, and what it cost."""
    chosen = next(choice for choice in step["choices"] if choice["chosen"])
    token, first = _label(chosen["token"]), step["choices"][0]
    if chosen["rank"] == 1:
        said = f"{token} is the likeliest next token, with probability {chosen['prob']:.3f}"
    else:
        said = (
            f"{token} is written, number {chosen['rank']:,} by probability ({chosen['prob']:.3f}); "
            f"the likeliest is {_label(first['token'])} ({first['prob']:.3f})"
        )
    return f"{said}. Its log P is {number(step['log_prob'])}, the sum so far {number(step['total'])}."


def _looks(source: Sequence[str], weights: Sequence[float] | None) -> str:
    """Where a token looks most, in words; nothing where nothing looks."""
    if weights is None:
        return ""
    best = sorted(range(len(source)), key=lambda i: -weights[i])[:NAMED]
    return "It looks most at " + ", ".join(f"{source[i]} ({weights[i]:.2f})" for i in best) + "."


def _how(numbers: Mapping[str, Any]) -> str:
    """What was translated by which search, and which attention is drawn."""
    search = numbers["search"]
    made = (
        "The translation was given."
        if search is None
        else f"Written by beam search with beam {search['beam']}."
        if search["beam"] > 1
        else "Written by greedy search."
    )
    cut = "" if numbers["ended"] else " It was cut at the longest length, before an end mark."
    which = (
        "" if numbers["layer"] is None else f" Decoding shows attention of layer {numbers['layer']}, mean over heads."
    )
    return f"{made}{cut}{which}"


def _labels(tokens: Sequence[str]) -> list[str]:
    return [_label(token) for token in tokens]


def _label(token: str) -> str:
    """A token as it is shown: what cannot be seen made visible, and cut where it is long."""
    return shortened(readable(token), LABEL)


def _rounded(rows: Sequence[Sequence[float]]) -> list[list[float]]:
    return [[round(weight, DIGITS) for weight in row] for row in rows]
