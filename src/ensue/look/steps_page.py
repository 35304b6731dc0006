"""A translation step by step as an offline page, with steps.css and steps.js.

Each step is also described in words, so that the page can be read without the drawing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ensue.look.formatting import decimals, readable, shortened
from ensue.look.page import step_page

MAX_COLUMNS = 18
"""Longer tokens are cut."""
NAMED = 3
"""How many source tokens are named for a target token."""


def steps_html(numbers: Mapping[str, Any]) -> str:
    """The page of the result of ``ensue.look.steps.step_numbers``: one file that fetches nothing."""
    source = [_label(token) for token in numbers["source"]]
    steps = [*_encoding(numbers, source), *_decoding(numbers, source)]
    above = {"source": readable(numbers["text"]), "soft": _method(numbers)}
    data = {"source": source, "target": [_label(token) for token in numbers["target"]], "steps": steps}
    hint = '<p id="hint" class="soft"></p>\n'
    return step_page(f"{numbers['system']}, step by step", above, data, "steps", beside="choices", below=hint)


def _encoding(numbers: Mapping[str, Any], source: Sequence[str]) -> list[dict[str, Any]]:
    """A step for each layer with self-attention; for other encoders one step that describes them."""
    layers = numbers["encoder"]
    if layers is None:
        return [{"kind": "read", "title": "Encoding", "text": numbers["reading"], "passes": numbers["passes"]}]
    return [
        {
            "kind": "encode",
            "title": f"Encoding: layer {layer} of {len(layers)}",
            "text": f"All source tokens at once, mean over heads. Largest weights: {_strongest(source, weights)}.",
            "weights": [_rounded(row) for row in weights],
        }
        for layer, weights in enumerate(layers, 1)
    ]


def _strongest(source: Sequence[str], weights: Sequence[Sequence[float]]) -> str:
    """The largest weight of each source token."""
    best = [max(range(len(row)), key=row.__getitem__) for row in weights]
    return ", ".join(f"{word} to {source[i]} ({row[i]:.2f})" for word, i, row in zip(source, best, weights))


def _decoding(numbers: Mapping[str, Any], source: Sequence[str]) -> list[dict[str, Any]]:
    """A step for each target token."""
    return [
        {
            "kind": "decode",
            "place": index,
            "title": f"Decoding: token {index + 1} of {len(numbers['steps'])}",
            "text": f"{_choice(step)} {_attention(source, step['attention']) or numbers['without']}",
            "log_prob": decimals(step["log_prob"]),
            "total": decimals(step["total"]),
            "weights": None if step["attention"] is None else _rounded(step["attention"]),
            "choices": [{**choice, "token": _label(choice["token"])} for choice in step["choices"]],
        }
        for index, step in enumerate(numbers["steps"])
    ]


def _choice(step: Mapping[str, Any]) -> str:
    """The chosen token, its probability, and the sum of log-probabilities so far."""
    chosen = next(choice for choice in step["choices"] if choice["chosen"])
    token, best = _label(chosen["token"]), step["choices"][0]
    if chosen["rank"] == 1:
        text = f"{token} is the most probable next token, with probability {chosen['prob']:.3f}"
    else:
        text = (
            f"{token} is chosen, number {chosen['rank']:,} by probability ({chosen['prob']:.3f}); "
            f"the most probable is {_label(best['token'])} ({best['prob']:.3f})"
        )
    return f"{text}. Its log P is {decimals(step['log_prob'])}, the sum so far {decimals(step['total'])}."


def _attention(source: Sequence[str], weights: Sequence[float] | None) -> str:
    """The source tokens with the largest weights, in words; empty without attention."""
    if weights is None:
        return ""
    best = sorted(range(len(source)), key=lambda i: -weights[i])[:NAMED]
    return "It attends most to " + ", ".join(f"{source[i]} ({weights[i]:.2f})" for i in best) + "."


def _method(numbers: Mapping[str, Any]) -> str:
    """The search that found the translation, and the layer whose attention is shown."""
    search, sentences = numbers["search"], ["The translation was given."]
    if search is not None:
        greedy, beam = "Found by greedy search.", f"Found by beam search with beam {search['beam']}."
        sentences = [greedy if search["beam"] == 1 else beam]
    if not numbers["ended"]:
        sentences.append("It was cut at the maximum length, before an end token.")
    if numbers["layer"] is not None:
        sentences.append(f"Decoding shows the attention of layer {numbers['layer']}, mean over heads.")
    return " ".join(sentences)


def _label(token: str) -> str:
    """A token with invisible characters made visible, cut if it is long."""
    return shortened(readable(token), MAX_COLUMNS)


def _rounded(weights: Sequence[float]) -> list[float]:
    return [round(weight, 4) for weight in weights]
