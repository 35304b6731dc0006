"""The table of views, and ``show``, which draws one from loaded runs and saves it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from inspect import signature
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError
from ensue.core.events import Report, silent
from ensue.core.table import Entry, Table
from ensue.look.saving import PAGE_SUFFIXES, check_suffix, save_chart, save_page
from ensue.look.view import View

VIEWS = Table(
    "view",
    "ensue.views",
    {
        "curves": Entry("ensue.look.curves:curves", "learning curves of runs"),
        "race": Entry("ensue.look.race:race", "a race: its measure against training time or labels"),
        "ngrams": Entry("ensue.look.ngrams:ngrams", "distinct n-grams of a text against n"),
        "attention": Entry("ensue.look.attention:attention", "attention weights"),
        "pattern": Entry("ensue.look.pattern:pattern", "which positions an attention lets each position see"),
        "equivalence": Entry("ensue.look.equivalence:equivalence", "what attention is equivalent to"),
        "next": Entry("ensue.look.next_token:next_tokens", "the most probable next tokens"),
        "context": Entry("ensue.look.context:context", "loss against how far back a model may look"),
        "surprise": Entry("ensue.look.surprise:surprise", "a text coloured by bits per token"),
        "positions": Entry("ensue.look.positions:positions", "position encodings"),
        "alignment": Entry("ensue.look.alignment:alignment", "cross-attention as an alignment"),
        "steps": Entry("ensue.look.steps:steps", "a translation step by step"),
        "bottleneck": Entry("ensue.look.bottleneck:bottleneck", "BLEU against source length"),
        "senses": Entry("ensue.look.senses:senses", "one word in its contexts"),
        "layers": Entry("ensue.look.layers:layers", "the weight of each feature layer"),
        "words": Entry("ensue.look.word_map:words", "a map of word vectors"),
        "bptt": Entry("ensue.look.bptt:bptt", "backpropagation through time, term by term"),
        "gradients": Entry("ensue.look.gradients:gradients", "gradient norm against distance"),
        "gates": Entry("ensue.look.gates:gates", "gates and states of a recurrent layer"),
        "training": Entry("ensue.look.training:training", "gradient norms during training"),
        "copying": Entry("ensue.look.copying:copying", "accuracy of copying over a gap"),
        "bias": Entry("ensue.look.bias:bias", "sentiment, words and likelihoods by group of people"),
        "forecast": Entry("ensue.look.forecast:forecast", "past, forecast and truth of a series"),
    },
)
"""Each view is a function: loaded subjects first, then its options by name. Most take runs."""
PAGES = ("steps", "bptt", "bias")
"""Views that are HTML pages, not charts."""
CHARTED_PAGES = ("bias",)
"""Pages whose charts can also be saved as a picture."""
TEXT_VIEWS = ("bptt", "bias", "context", "equivalence")
"""Views that a terminal can print, so that they need no file."""
WITHOUT_RUN = ("bptt", "equivalence", "ngrams", "pattern", "race")
"""Views that do not take a run."""


def show(
    view: str, subjects: Sequence[Any], *, out: str | Path | None = None, report: Report = silent, **options: Any
) -> View:
    """Compute a view of loaded subjects, and save it where ``out`` is given. The suffix of ``out`` is the format.

    Views that take long call ``report``.
    """
    check_request(view, options, out)
    function = VIEWS.load(view)
    if "report" in signature(function).parameters:
        options["report"] = report
    result: View = function(subjects, **options)
    if out is not None:
        save_view(result, out, page=view in PAGES)
    return result


def save_view(view: View, out: str | Path, *, page: bool) -> None:
    """Write a chart, a page, or the charts of a page, as the suffix of ``out`` says."""
    if page and Path(out).suffix in PAGE_SUFFIXES:
        save_page(view.draw(), view.numbers, out)
    else:
        save_chart(view.draw() if view.chart is None else view.chart(), out)


def check_request(view: str, options: Iterable[str], out: str | Path | None) -> None:
    """Refuse an unknown view, an option that the view does not have, and a suffix that cannot be written."""
    known = signature(VIEWS.load(view)).parameters
    for name in options:
        if name not in known:
            takers = [other for other in VIEWS if name in signature(VIEWS.load(other)).parameters]
            hint = f"it is for {', '.join(takers)}" if takers else "leave it out"
            raise InputError(f"{view} cannot use --{name}", hint=hint)
    if out is not None:
        check_suffix(out, page=view in PAGES and view not in CHARTED_PAGES)
