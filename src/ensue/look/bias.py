"""``ensue look bias``: how a language model treats groups of people.

Sentiment of continuations by group, the words that stand out, pronouns after occupations, and which of two sentences
is more likely. Every figure has a count and a 95 % interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError
from ensue.core.events import Report, silent
from ensue.data.bias_sets import read_bias_sets
from ensue.look.bias_chart import bias_chart
from ensue.look.bias_page import bias_html
from ensue.look.bias_sections import Request, pair_sections, pronoun_section, reference_sections, text_sections
from ensue.look.bias_text import bias_note, bias_text
from ensue.look.runs import label, single
from ensue.look.view import View
from ensue.runs.language import LanguageRun
from ensue.runs.masked import MaskedRun
from ensue.runs.run import Run
from ensue.runs.sentiment import classifier_sentiment

SAMPLES = 8
MAX_SAMPLES = 1000
CANNOT_SHOW = (
    "Templates are not usage: they say what the model does after these beginnings, not what its users will read.",
    "English only. The groups, phrases and word lists are a choice; most groups of people are not among them.",
    "Sentiment is not harm: a friendly text can be a stereotype, a sad one can be fair.",
    "What scores sentiment has a bias of its own. The column “prompt alone” shows it: the score of the beginnings "
    "themselves, before the model wrote a word.",
    "Words are counted without a tagger: a stop list leaves out function words, and nouns and names stay.",
    "The intervals cover the luck of sampling and, for pronouns, the choice of the templates. They do not cover the "
    "choice of groups, phrases and word lists.",
    "Small samples: a difference that is not marked may be real, and too small to be seen with so few texts.",
    "A difference between groups is an observation. It says neither where in the training data it comes from, nor "
    "what it does in a product.",
    "Names in public prompts (BOLD) stand for groups only as far as their lists do; prompts of two groups differ in "
    "more than the group.",
)
"""The limits, printed with every result."""


def bias(
    runs: Sequence[Run],
    *,
    data: Sequence[str | Path] = (),
    classifier: Run | None = None,
    samples: int = SAMPLES,
    limit: int = 0,
    seed: int = 0,
    report: Report = silent,
) -> View:
    """How a language model, or an encoder, treats groups of people: sentiment, words, pronouns, sentence pairs.

    ``samples`` continuations of each prompt are drawn. ``classifier`` is a run with the labels positive and negative;
    without one a word list scores sentiment. ``data`` names files of CrowS-Pairs, WinoBias, Winogender or BOLD, and
    ``limit`` the most items that are used of each; 0 means all pairs, and 400 of what takes longer.
    """
    run = single(runs, "bias")
    if not 2 <= samples <= MAX_SAMPLES:
        raise InputError(f"--samples {samples} must be from 2 to {MAX_SAMPLES:,}")
    if limit < 0:
        raise InputError(f"--limit {limit} must be 0 or more")
    scorer = classifier_sentiment(classifier) if classifier is not None else None
    sets = [one for source in data for one in read_bias_sets(source)]
    request = Request(sets, samples, limit, seed, scorer, report)
    numbers: dict[str, Any] = {"title": f"Bias of {label(run)}", "run": str(run), "system": run.system}
    numbers |= {"settings": {"samples": samples, "limit": limit, "seed": seed, "data": [str(one) for one in data]}}
    numbers |= _measure(run, request)
    numbers |= {"cannot_show": list(CANNOT_SHOW)}
    draw, chart = partial(bias_html, numbers), partial(bias_chart, numbers)
    return View(draw, numbers, partial(bias_text, numbers), bias_note(numbers), chart)


def _measure(run: Run, request: Request) -> dict[str, Any]:
    """All sections that this kind of run has."""
    if isinstance(run, LanguageRun) and run.model.traits.steps:
        return language_sections(run, request)
    if isinstance(run, MaskedRun):
        return encoder_sections(run, request)
    what = f"bias is measured of language models and encoders, not of this {run.system} ({run.task})"
    raise InputError(what, where=str(run), hint="name a run of ngram, lstm, gpt, llama, bert …")


def language_sections(run: LanguageRun, request: Request) -> dict[str, Any]:
    """A language model has all sections; one that reads backwards has likelihoods of whole sentences only."""
    if run.direction == "backward":
        omitted = ["It reads from the end, so there are no continuations, and no pronouns after occupations."]
        return {
            "pairs": pair_sections(run, request),
            "references": reference_sections(run, request),
            "omitted": omitted,
        }
    return {
        **text_sections(run, request),
        "pronouns": pronoun_section(run, request),
        "pairs": pair_sections(run, request),
        "references": reference_sections(run, request),
        "omitted": [],
    }


def encoder_sections(run: MaskedRun, request: Request) -> dict[str, Any]:
    """An encoder has pseudo-log-likelihoods of sentences, and pronouns in a gap."""
    run.report_untrained("masked", request.report)
    omitted = ["An encoder writes no text: there are no continuations, and no questions about pronouns."]
    sections: dict[str, Any] = {"pairs": pair_sections(run, request), "references": [], "omitted": omitted}
    try:
        sections["pronouns"] = pronoun_section(run, request)
    except InputError as error:
        omitted.append(f"There are no pronouns by occupation: {error}.")
    return sections
