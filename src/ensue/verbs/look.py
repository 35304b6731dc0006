"""``ensue look``: a view, drawn to a file or given as numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError, unknown_name
from ensue.look.alignment import alignment_chart, alignment_grid
from ensue.look.bottleneck import bottleneck_chart, change
from ensue.look.confusion import confusion_chart
from ensue.look.curves import curves_chart, ngram_chart
from ensue.look.forecast import forecast_chart
from ensue.look.layers import layers_chart
from ensue.look.marks import short_names
from ensue.look.saving import check_ending, check_page_ending, save_chart, save_page
from ensue.look.senses import senses_chart
from ensue.look.steps_page import steps_html
from ensue.models.ngram import NGram, NGramConfig
from ensue.runs.forecast import forecasting
from ensue.runs.load import load
from ensue.runs.run import Run
from ensue.runs.translation import TranslationRun, aligning_layer
from ensue.search.beam import Search
from ensue.tasks import language_modelling as lm
from ensue.tasks.data_settings import DataSettings
from ensue.tasks.machine import data_files
from ensue.tasks.settings import TokenizerSettings
from ensue.train.counting import count
from ensue.train.forecast_objectives import loss_unit
from ensue.train.metrics import read_metrics
from ensue.verbs.attention import attention
from ensue.verbs.cost import cost
from ensue.verbs.gradients import bptt, copying, gates, gradients, training
from ensue.verbs.race_view import race_view
from ensue.verbs.senses import layer_shares
from ensue.verbs.senses import senses as word_senses
from ensue.verbs.steps import step_numbers
from ensue.verbs.token_views import next_tokens, positions, surprise
from ensue.verbs.view import Files, Place, View
from ensue.verbs.word_map import word_view


def look(view: str, what: Files, *, out: str | Path | None = None, **how: Any) -> View:
    """A view, drawn to ``out`` where that is given; its ending says as what.

    See the functions of ``VIEWS`` for what each can be told.
    """
    if view not in VIEWS:
        raise unknown_name("view", view, VIEWS)
    _check_options(view, how)
    if out is not None:
        check_page_ending(out) if view in PAGES else check_ending(out)  # before there is anything to compute
    seen = VIEWS[view](what, **how)
    if out is not None:
        save_page(seen.draw(), seen.numbers, out) if view in PAGES else save_chart(seen.draw(), out)
    return seen


def _check_options(view: str, options: Iterable[str]) -> None:
    """Refuse options that would do nothing for a view."""
    for name in options:
        takers = [other for other, function in VIEWS.items() if name in signature(function).parameters]
        if view not in takers:
            hint = f"it is for {', '.join(takers)}" if takers else "leave it out"
            raise InputError(f"{view} cannot use --{name}", hint=hint)


def curves(runs: Files) -> View:
    """Learning curves of runs."""
    opened = [load(run) for run in runs]
    records = {str(path): read_metrics(run.folder.path) for path, run in zip(runs, opened)}
    numbers = {"runs": [{"run": run, "records": own} for run, own in records.items()]}
    units = {_unit_of(run) for run in opened}
    named = dict(zip(short_names(list(records)), records.values()))
    return View(partial(curves_chart, named, () if "" in units else sorted(units)), numbers)


def _unit_of(run: Run) -> str:
    """What the loss of a run is in, where it has one unit."""
    if run.task == "forecast":
        return loss_unit(str(run.settings["train.loss"]), str(run.settings["data.scale"]))
    return "nats a token" if run.task in ("language", "translation", "masked", "tag") else ""


def race(folders: Files) -> View:
    """A race: the measure against training time, or against labels."""
    if len(folders) != 1:
        raise InputError(f"one race is looked at, not {len(folders)}", hint="name the folder of one")
    return race_view(folders[0])


def ngrams(texts: Files, *, tokenizer: str = "word") -> View:
    """How the number of different n-grams grows with n (the sparsity and storage problem)."""
    corpus = lm.prepare(
        DataSettings(files=data_files([str(text) for text in texts]), holdout=0.0), TokenizerSettings(kind=tokenizer)
    )
    size, end = corpus.tokenizer.size, corpus.tokenizer.end
    counter = NGram(NGramConfig(vocabulary=size, order=7, mode="mle", end=end)).counter()
    count(counter, corpus.train.tokens)
    model = counter.finish()
    neural = {name: cost(name, vocabulary=size)["parameters"] for name in ("lstm", "gpt")}
    tokens, counts = len(corpus.train) - 1, model.counts
    rows = [
        {"n": n, "different": count, "entries": sum(counts[:n]), "possible": float(size) ** n}
        for n, count in enumerate(counts, 1)
    ]
    numbers = {"tokens": tokens, "vocabulary": size, "ngrams": rows, "parameters": neural}
    return View(partial(ngram_chart, counts, tokens, size, neural), numbers)


def alignment(
    runs: Files, *, text: str = "", target: str = "", beam: int | None = None, layer: int = 0, head: int = 0
) -> View:
    """Where each word of a translation looks in its source: ``target``, or what a search with ``beam`` finds.

    ``layer`` and ``head`` count from 1. Without them it is the mean over the heads of the last layer but one, where
    Transformers align best (Garg et al., 2019), or of the only one there is; ``layer`` alone shows all its heads.
    """
    run, how = _one_sentence("an alignment is", runs, text, target, beam)
    source, words, weights = run.alignment(text, target=target, search=how)
    if not 0 <= layer <= len(weights):
        raise InputError(f"there is no layer {layer}", hint=f"there are {len(weights)}")
    number = layer or aligning_layer(len(weights))
    heads = weights[number - 1]  # (H, T, S)
    if not 0 <= head <= len(heads):
        raise InputError(f"there is no head {head}", hint=f"there are {len(heads)}")
    shown = heads[head - 1] if head else heads.mean(0)
    numbers = {"system": run.system, "text": text, "source": source, "target": words, "layer": number}
    numbers |= {"head": head or None, "weights": shown.tolist()}
    if layer and not head and len(heads) > 1:
        names = [f"head {one}" for one in range(1, len(heads) + 1)]
        title = f"{run.folder.path.name} ({run.system}), layer {layer}: where each head looks"
        draw = partial(alignment_grid, source, words, heads, names, title=title)
        return View(draw, {**numbers, "heads": heads.tolist()})
    looks = f"head {head}" if head else "mean of the heads" if len(heads) > 1 else "its attention"
    title = f"{run.folder.path.name} ({run.system}), layer {number}, {looks}: where each word looks in the source"
    return View(partial(alignment_chart, source, words, shown, title=title), numbers)


def steps(runs: Files, *, text: str = "", target: str = "", beam: int | None = None) -> View:
    """How a sentence is translated, step by step: ``target``, or what a search with ``beam`` finds; a page."""
    run, how = _one_sentence("steps are", runs, text, target, beam)
    numbers = step_numbers(run, text, target=target, search=how)
    return View(partial(steps_html, numbers), numbers)


def _one_sentence(said: str, runs: Files, text: str, target: str, beam: int | None) -> tuple[TranslationRun, Search]:
    """The run and the search, where one sentence is looked at; ``said`` begins what is said of other wishes."""
    if len(runs) != 1:
        raise InputError(f"{said} of one run, not {len(runs)}", hint="name one")
    run = _translating(runs[0])
    if not text.strip():
        raise InputError(f"{said} of a sentence", hint='give it with --text "…"')
    if target and beam is not None:
        raise InputError("a given --target is not searched for", hint="leave out --beam or --target")
    return run, Search() if beam is None else Search(beam=beam)


def bottleneck(runs: Files, *, data: Files = ()) -> View:
    """BLEU against the length of the source, for several runs on the same pairs."""
    if not data:
        raise InputError("BLEU by length is of pairs", hint="give them with --data test.en --data test.de")
    held = {str(run): _translating(run) for run in runs}
    found = {name: run.score(*map(str, data)).by_length for name, run in held.items()}
    rows = [{"run": name, "by_length": curve, "change": change(curve)} for name, curve in found.items()]
    named = dict(zip(short_names(list(found)), found.values()))
    return View(partial(bottleneck_chart, named), {"runs": rows})


def senses(what: Files, *, word: str | None = None, layer: int = 0, text: str = "") -> View:
    """One word in its contexts.

    ``what`` is a run, the word, and perhaps files of sentences. With ``word`` it is one run and nothing else, so no
    file is ever opened. ``text`` gives sentences, one a line.
    """
    if word is not None and len(what) != 1:
        raise InputError(f"senses are of one run, not {len(what)}", hint="name one")
    run, typed, files = what[0] if what else "", str(what[1]) if len(what) > 1 else "", what[2:]
    found = word_senses(run, typed if word is None else word, files, layer, text)
    return View(partial(senses_chart, found.numbers, found.title, found.caption), found.numbers, said=found.caption)


def layers(runs: Files) -> View:
    """What runs with features take of each layer."""
    found = layer_shares(runs)
    return View(partial(layers_chart, found), {"runs": found})


def words(runs: Files, *, words: str = "", pairs: str = "", method: str = "pca") -> View:
    """Words of a run or a vector file on a map: ``words`` (else the commonest), arrows for ``pairs`` (king:queen)."""
    if len(runs) != 1:
        raise InputError(f"a map is of the words of one run, not {len(runs)}", hint="name one")
    numbers, draw = word_view(runs[0], words, pairs, method)
    return View(draw, numbers)


def forecast(runs: Files, *, data: Files = (), target: str = "") -> View:
    """What a run expects of series it was not trained on: the past, the forecast with its band, and what came."""
    if len(runs) != 1:
        raise InputError(f"a forecast is of one run, not {len(runs)}", hint="name one")
    numbers = forecasting(runs[0], load(runs[0])).chart_numbers(data, target)
    return View(partial(forecast_chart, numbers), numbers)


def _translating(path: Place) -> TranslationRun:
    """A run that translates."""
    run = load(path)
    if not isinstance(run, TranslationRun):
        raise InputError(f"{run.system} translates nothing", where=str(path), hint="name a run of a translation system")
    return run


def draw_confusion(figures: Mapping[str, Any], path: Path) -> None:
    """Which labels were taken for which, from what ``score`` answered, to a file."""
    if "confusion" not in figures:
        raise InputError("only labels have a confusion to draw", hint="leave out --out")
    save_chart(confusion_chart(figures["confusion"], figures["labels"]), path)


VIEWS: dict[str, Callable[..., View]] = {
    "curves": curves,
    "race": race,
    "ngrams": ngrams,
    "attention": attention,
    "next": next_tokens,
    "surprise": surprise,
    "positions": positions,
    "alignment": alignment,
    "steps": steps,
    "bottleneck": bottleneck,
    "senses": senses,
    "layers": layers,
    "words": words,
    "bptt": bptt,
    "gradients": gradients,
    "gates": gates,
    "training": training,
    "copying": copying,
    "forecast": forecast,
}
PAGES = ("steps", "bptt")
"""Views that are pages of their own and no charts."""
TOLD = ("bptt",)
"""Views that a terminal can show: they need no file."""
