"""``ensue look``: a view, drawn to a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ensue.core.errors import unknown_name
from ensue.look.curves import curves_chart, ngram_chart
from ensue.look.saving import save_chart
from ensue.models.ngram import NGram, NGramConfig
from ensue.tasks import language_modelling as lm
from ensue.tasks.settings import DataSettings, TokenizerSettings
from ensue.train.counting import count
from ensue.train.metrics import read_metrics
from ensue.verbs.cost import cost
from ensue.verbs.run import load


def look(view: str, what: Sequence[str | Path], *, out: str | Path, tokenizer: str = "word") -> Path:
    """Draw ``curves`` of runs or ``ngrams`` of a text; the ending of ``out`` says as what."""
    if view not in VIEWS:
        raise unknown_name("view", view, VIEWS)
    return save_chart(VIEWS[view](what, tokenizer), out)


def curves(runs: Sequence[str | Path], tokenizer: str) -> Any:
    """Learning curves of runs."""
    return curves_chart({str(run): read_metrics(load(run).folder.path) for run in runs})


def ngrams(data: Sequence[str | Path], tokenizer: str) -> Any:
    """How the number of different n-grams grows with n (the sparsity and storage problem)."""
    corpus = lm.prepare(DataSettings(files=lm.data_files(data), holdout=0.0), TokenizerSettings(kind=tokenizer))
    size, end = corpus.tokenizer.size, corpus.tokenizer.end
    counter = NGram(NGramConfig(vocabulary=size, order=7, mode="mle", end=end)).counter()
    count(counter, corpus.train.tokens)
    model = counter.finish()
    neural = {name: cost(name, vocabulary=size)["parameters"] for name in ("lstm", "gpt")}
    return ngram_chart(model.counts, len(corpus.train) - 1, size, neural)


VIEWS: dict[str, Callable[[Sequence[str | Path], str], Any]] = {"curves": curves, "ngrams": ngrams}
