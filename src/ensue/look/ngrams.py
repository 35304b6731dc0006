"""``ensue look ngrams``: how the number of distinct n-grams grows with n (sparsity and storage)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import altair as alt
import torch

from ensue.data.sources import absolute_sources
from ensue.look.chart_parts import by_name, titled
from ensue.look.view import View
from ensue.models.ngram import NGram, NGramConfig
from ensue.models.table import SYSTEMS
from ensue.tasks.language_modelling import TextSettings, read_text_corpus
from ensue.tasks.settings import TokenizerSettings
from ensue.train.counting import count

ORDER = 7
"""The largest n that is counted."""


def ngrams(texts: Sequence[Any], *, tokenizer: str = "word") -> View:
    """Distinct n-grams of text files against n, beside the size of an LSTM and a GPT."""
    data = TextSettings(files=absolute_sources([str(text) for text in texts]), holdout=0.0)
    corpus = read_text_corpus(data, TokenizerSettings(kind=tokenizer))
    size, end = corpus.tokenizer.size, corpus.tokenizer.end
    counter = NGram(NGramConfig(vocabulary=size, order=ORDER, mode="mle", end=end)).counter()
    count(counter, corpus.train.tokens)
    counts = counter.finish().counts
    neural = {name: _parameters(name, size) for name in ("lstm", "gpt")}
    tokens = len(corpus.train) - 1
    rows = [
        {"n": n, "different": different, "entries": sum(counts[:n]), "possible": float(size) ** n}
        for n, different in enumerate(counts, 1)
    ]
    numbers = {"tokens": tokens, "vocabulary": size, "ngrams": rows, "parameters": neural}
    return View(partial(ngram_chart, counts, tokens, size, neural), numbers)


def _parameters(system: str, vocabulary: int) -> int:
    """The number of parameters of a system with default settings."""
    cls = SYSTEMS.load(system)
    with torch.device("meta"):
        return sum(p.numel() for p in cls(cls.Config(vocabulary=vocabulary)).parameters())


def ngram_chart(counts: list[int], tokens: int, vocabulary: int, neural: dict[str, int]) -> Any:
    """Distinct n-grams of a text against n, beside all possible ones (Vⁿ) and the size of neural models."""
    orders = range(1, len(counts) + 1)
    lines: dict[str, list[Any]] = {
        "distinct n-grams seen": counts,
        "entries of an n-gram model": [sum(counts[:n]) for n in orders],
        "possible n-grams (Vⁿ)": [float(vocabulary) ** n for n in orders],
        **{f"parameters of {name}": [size] * len(counts) for name, size in neural.items()},
    }
    rows = [
        {"n": n, "number": value, "what": name} for name, values in lines.items() for n, value in zip(orders, values)
    ]
    title = f"N-grams in {tokens:,} tokens, vocabulary {vocabulary:,}"
    seen = ", ".join(f"{count:,} distinct {n}-grams" for n, count in enumerate(counts, 1))
    sizes = ", ".join(f"{name} has {size:,} parameters" for name, size in neural.items())
    chart = (
        alt.Chart(alt.Data(values=rows))
        .mark_line(point=True)
        .encode(
            x=alt.X("n:O", title="n (tokens in an n-gram)", axis=alt.Axis(labelAngle=0)),
            y=alt.Y("number:Q", title="count (logarithmic)", scale=alt.Scale(type="log"), axis=alt.Axis(format="~e")),
            color=by_name("what:N", list(lines), None),
            tooltip=["what:N", "n:O", alt.Tooltip("number:Q", format=",.0f")],
        )
    )
    caption = "Tables grow with n until most n-grams occur once; the size of a neural model is fixed."
    return titled(chart, title, caption, f"{seen}; {sizes}", width=560, height=400)
