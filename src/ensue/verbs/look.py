"""``ensue look``: a view, drawn to a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError, unknown_name
from ensue.look.alignment import alignment_chart, alignment_grid
from ensue.look.bottleneck import bottleneck_chart
from ensue.look.curves import curves_chart, ngram_chart
from ensue.look.saving import save_chart
from ensue.models.ngram import NGram, NGramConfig
from ensue.search.beam import Search
from ensue.tasks import language_modelling as lm
from ensue.tasks.settings import DataSettings, TokenizerSettings, data_files
from ensue.train.counting import count
from ensue.train.metrics import read_metrics
from ensue.verbs.cost import cost
from ensue.verbs.run import TranslationRun, load

Files = Sequence[str | Path]


def look(view: str, what: Files, *, out: str | Path, **how: Any) -> Path:
    """Draw a view; the ending of ``out`` says as what. See the functions of ``VIEWS`` for what each can be told."""
    if view not in VIEWS:
        raise unknown_name("view", view, VIEWS)
    return save_chart(VIEWS[view](what, **how), out)


def curves(runs: Files, **how: Any) -> Any:
    """Learning curves of runs."""
    return curves_chart({str(run): read_metrics(load(run).folder.path) for run in runs})


def ngrams(texts: Files, *, tokenizer: str = "word", **how: Any) -> Any:
    """How the number of different n-grams grows with n (the sparsity and storage problem)."""
    corpus = lm.prepare(DataSettings(files=data_files(texts), holdout=0.0), TokenizerSettings(kind=tokenizer))
    size, end = corpus.tokenizer.size, corpus.tokenizer.end
    counter = NGram(NGramConfig(vocabulary=size, order=7, mode="mle", end=end)).counter()
    count(counter, corpus.train.tokens)
    model = counter.finish()
    neural = {name: cost(name, vocabulary=size)["parameters"] for name in ("lstm", "gpt")}
    return ngram_chart(model.counts, len(corpus.train) - 1, size, neural)


def alignment(
    runs: Files, *, text: str = "", target: str = "", beam: int = 5, layer: int = 0, head: int = 0, **how: Any
) -> Any:
    """Where each word of a translation looks in its source: the model's own translation, or ``target``.

    ``layer`` and ``head`` count from 1. Without them it is the mean over the heads of the last layer but one, where
    Transformers align best (Garg et al., 2019), or of the only one there is; ``layer`` alone shows all its heads.
    """
    if len(runs) != 1:
        raise InputError(f"an alignment is of one run, not {len(runs)}", mend="name one")
    run = _translating(runs[0])
    if not text.strip():
        raise InputError("an alignment is of a sentence", mend='give it with --text "…"')
    source, words, weights = run.alignment(text, target=target, search=Search(beam=beam))
    if not 0 <= layer <= len(weights):
        raise InputError(f"there is no layer {layer}", mend=f"there are {len(weights)}")
    chosen = weights[layer - 1 if layer else max(0, len(weights) - 2)]  # (H, T, S)
    if head:
        if not 0 < head <= len(chosen):
            raise InputError(f"there is no head {head}", mend=f"there are {len(chosen)}")
        return alignment_chart(source, words, chosen[head - 1], title=f"{run.system}: head {head}")
    if layer and len(chosen) > 1:
        names = [f"head {number}" for number in range(1, len(chosen) + 1)]
        return alignment_grid(source, words, chosen, names, title=f"{run.system}, layer {layer}: where each head looks")
    return alignment_chart(source, words, chosen.mean(0), title=f"{run.system}: where each word looks in the source")


def bottleneck(runs: Files, *, data: Files = (), **how: Any) -> Any:
    """BLEU against the length of the source, for several runs on the same pairs."""
    if not data:
        raise InputError("BLEU by length is of pairs", mend="give them with --data test.en --data test.de")
    return bottleneck_chart({str(run): _translating(run).score(*data).by_length for run in runs})


def _translating(path: str | Path) -> TranslationRun:
    """A run that translates."""
    run = load(path)
    if not isinstance(run, TranslationRun):
        raise InputError(f"{run.system} translates nothing", where=str(path), mend="name a run of a translation system")
    return run


VIEWS: dict[str, Callable[..., Any]] = {
    "curves": curves,
    "ngrams": ngrams,
    "alignment": alignment,
    "bottleneck": bottleneck,
}
