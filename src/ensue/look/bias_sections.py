"""The sections of ``ensue look bias``: what is asked of a run, and the numbers that come of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from ensue.core.events import Report, silent
from ensue.data.bias_items import BiasSet, GroupPrompt, Reference, StereotypePair
from ensue.data.bias_material import builtin_pairs, group_prompts, pronoun_frames, pronoun_words, stop_words
from ensue.measure.bias import (
    adjust_together,
    associated_words,
    group_means,
    preference,
    pronoun_odds,
    reference_accuracy,
)
from ensue.measure.probes import text_log_probs
from ensue.measure.pseudo_likelihood import pair_log_probs, word_log_probs
from ensue.measure.sentiment import WordList
from ensue.runs.completions import complete
from ensue.runs.language import LanguageRun
from ensue.runs.masked import MaskedRun
from ensue.runs.sentiment import ClassifierSentiment
from ensue.search.sampling import Sampling

CHARACTERS = 75
"""The length of a continuation, about, whatever the tokenizer."""
TEXTS_AT_ONCE = 64
"""Continuations that are written together: more gain little."""
MAX_ITEMS = 400
"""Prompts, or sentences with a pronoun, that are used of a set where no limit is given."""
Item = TypeVar("Item")


class Scorer(Protocol):
    """Gives each text a sentiment from −1 to 1."""

    def scores(self, texts: Sequence[str]) -> np.ndarray:
        """The scores of texts, (N,)."""
        ...


@dataclass(frozen=True)
class Request:
    """What was asked for."""

    sets: Sequence[BiasSet]
    samples: int
    limit: int
    seed: int
    classifier: ClassifierSentiment | None
    report: Report = silent

    @property
    def scorer(self) -> Scorer:
        """The classifier, or without one the built-in word list."""
        return self.classifier or WordList.built_in()

    def phase(self, name: str) -> None:
        """Report that a section begins."""
        self.report("phase", {"name": name})


def thinned(items: Sequence[Item], limit: int) -> list[Item]:
    """At most ``limit`` items, evenly spaced; all if it is 0.

    >>> thinned([1, 2, 3, 4, 5, 6], 3), thinned([1, 2], 0)
    ([1, 3, 5], [1, 2])
    """
    if not limit or len(items) <= limit:
        return list(items)
    return [items[number * len(items) // limit] for number in range(limit)]


# Continuations, their sentiment and their words.


@dataclass(frozen=True)
class WrittenText:
    """A continuation, and what is scored of it."""

    prompt: GroupPrompt
    text: str

    @property
    def scored(self) -> str:
        """The continuation after the neutral beginning, so that the scorer does not see the group."""
        return f"{self.prompt.neutral} {self.text}".strip()


def token_count(run: LanguageRun, prompts: Sequence[GroupPrompt]) -> int:
    """The number of tokens in about ``CHARACTERS`` characters; fewer where the context would overflow."""
    lengths = [len(run.tokenizer.encode(prompt.text)) for prompt in prompts]
    wanted = math.ceil(CHARACTERS * sum(lengths) / sum(len(prompt.text) for prompt in prompts))
    context = run.model.traits.context
    return max(1, wanted if context is None else min(wanted, context - 1 - max(lengths)))


def write_texts(run: LanguageRun, prompts: Sequence[GroupPrompt], samples: int, request: Request) -> list[WrittenText]:
    """The run's continuations of prompts, each up to its first line break, with single spaces."""
    how = Sampling(tokens=token_count(run, prompts), n=samples, seed=request.seed)
    drawn = complete(run, [prompt.text for prompt in prompts], how, batch=TEXTS_AT_ONCE, report=request.report)
    return [
        WrittenText(prompt, " ".join(one.text.strip("\n").partition("\n")[0].split()))
        for prompt, group in zip(prompts, drawn)
        for one in group
    ]


def axes_of(texts: Sequence[WrittenText]) -> dict[str, list[int]]:
    """The texts of each axis, by index."""
    axes: dict[str, list[int]] = {}
    for index, text in enumerate(texts):
        axes.setdefault(text.prompt.axis, []).append(index)
    return axes


def set_prompts(sets: Sequence[BiasSet], limit: int) -> list[GroupPrompt]:
    """The prompts of the sets, equally many of each group of a set."""
    chosen = []
    for one in sets:
        groups: dict[str, list[GroupPrompt]] = {}
        for prompt in one.prompts:
            groups.setdefault(prompt.group, []).append(prompt)
        share = max(2, (limit or MAX_ITEMS) // max(1, len(groups)))
        chosen += [prompt for prompts in groups.values() for prompt in thinned(prompts, share)]
    return chosen


def text_sections(run: LanguageRun, request: Request) -> dict[str, Any]:
    """Sentiment by group, words by group, and all texts."""
    request.phase("writing texts")
    texts = write_texts(run, group_prompts(), request.samples, request)
    if more := set_prompts(request.sets, request.limit):
        request.phase("writing texts for prompts of the data")
        texts += write_texts(run, more, 1, request)
    request.phase("scoring sentiment")
    scores = request.scorer.scores([text.scored for text in texts])
    axes = axes_of(texts)
    sentiment = [_sentiment(axis, [texts[i] for i in own], scores[own], request) for axis, own in axes.items()]
    adjust_together([axis["groups"] for axis in sentiment])
    request.phase("counting words")
    from_templates = {axis: own for axis, own in axes.items() if texts[own[0]].prompt.template}
    words = [_words(axis, [texts[i] for i in own], request.seed) for axis, own in from_templates.items()]
    return {
        "sentiment": {"scorer": scorer_facts(request), "axes": sentiment},
        "words": words,
        "texts": [
            {
                "axis": t.prompt.axis,
                "group": t.prompt.group,
                "template": t.prompt.template,
                "prompt": t.prompt.text,
                "text": t.text,
                "score": score,
            }
            for t, score in zip(texts, scores.round(4).tolist())
        ],
    }


def _sentiment(axis: str, texts: list[WrittenText], scores: np.ndarray, request: Request) -> dict[str, Any]:
    """The sentiment of the texts of an axis, by group, beside that of the prompts alone."""
    rows = group_means(scores, [t.prompt.group for t in texts], [t.prompt.template for t in texts], seed=request.seed)
    prompts = list({text.prompt.text: text.prompt for text in texts}.values())
    bare = request.scorer.scores([prompt.text for prompt in prompts])
    for row in rows:
        row["low"], row["high"] = max(-1.0, row["low"]), min(1.0, row["high"])  # one text has no interval but the scale
        row["bare"] = float(bare[[prompt.group == row["group"] for prompt in prompts]].mean())
    unscored = float((scores == 0).mean())
    return {"axis": axis, "texts": len(texts), "mean": float(scores.mean()), "zero": unscored, "groups": rows}


def _words(axis: str, texts: list[WrittenText], seed: int) -> dict[str, Any]:
    groups, templates = [t.prompt.group for t in texts], [t.prompt.template for t in texts]
    rows = associated_words([t.text for t in texts], groups, templates, stop_words(axis), seed=seed)
    return {"axis": axis, "texts": len(texts), "groups": rows}


def scorer_facts(request: Request) -> dict[str, Any]:
    """What scores sentiment, and its own accuracy on held-out data where its run knows it."""
    if request.classifier is None:
        built = WordList.built_in()
        return {"name": "word list", "positive": len(built.positive), "negative": len(built.negative)}
    run = request.classifier.run
    accuracy = run.config.get("figures", {}).get("valid", {}).get("accuracy")
    return {"name": str(run), "system": run.system, "accuracy": accuracy}


# Likelihoods.


def pair_scores(run: LanguageRun | MaskedRun, pairs: Sequence[StereotypePair], report: Report) -> Any:
    """log P of both sentences of each pair; of an encoder, pseudo-log-likelihoods."""
    texts = [(pair.more, pair.less) for pair in pairs]
    if isinstance(run, MaskedRun):
        return pair_log_probs(run.model, run.tokenizer, texts, report)
    backward = run.direction == "backward"
    flat = [text for pair in texts for text in pair]
    log_p = text_log_probs(run.model, run.tokenizer, flat, backward=backward, report=report)
    return log_p[::2], log_p[1::2]


def pair_sections(run: LanguageRun | MaskedRun, request: Request) -> list[dict[str, Any]]:
    """How often the more stereotyped sentence is more likely: of the built-in pairs and of each set."""
    sets = [BiasSet("built-in pairs", "", builtin_pairs()), *request.sets]
    rows = []
    for one in (one for one in sets if one.pairs):
        request.phase(f"comparing sentences: {one.name}")
        pairs = thinned(one.pairs, request.limit)
        more, less = pair_scores(run, pairs, request.report)
        rows.append({"set": one.name, "source": one.source, "of": len(one.pairs), **preference(pairs, more, less)})
    return rows


def reference_sections(run: LanguageRun, request: Request) -> list[dict[str, Any]]:
    """How often the run finds whom a pronoun refers to, where the answer fits the stereotype and where it does not."""
    rows = []
    for one in (one for one in request.sets if one.references):
        request.phase(f"resolving pronouns: {one.name}")
        numbers = set(thinned(sorted({r.number for r in one.references}), request.limit or MAX_ITEMS))
        references = [reference for reference in one.references if reference.number in numbers]
        texts = [_question(r, person) for r in references for person in (r.answer, r.other)]
        backward = run.direction == "backward"
        log_p = text_log_probs(run.model, run.tokenizer, texts, backward=backward, report=request.report)
        right = np.where(log_p[::2] == log_p[1::2], 0.5, (log_p[::2] > log_p[1::2]).astype(float))
        figures = reference_accuracy(references, right)
        rows.append({"set": one.name, "source": one.source, "of": len(one.references), **figures})
    return rows


def _question(reference: Reference, person: str) -> str:
    """A sentence, and whom its pronoun refers to."""
    pronoun = reference.pronoun[:1].upper() + reference.pronoun[1:]
    whom = person if person == "someone" else f"the {person}"
    return f'{reference.text} "{pronoun}" refers to {whom}.'


def pronoun_section(run: LanguageRun | MaskedRun, request: Request) -> dict[str, Any]:
    """How likely he, she and they are after each occupation."""
    request.phase("pronouns by occupation")
    frames, words = pronoun_frames(), pronoun_words()
    if isinstance(run, MaskedRun):
        gaps = [(frame.before, frame.after) for frame in frames]
        log_p = word_log_probs(run.model, run.tokenizer, gaps, words, request.report)
    else:
        log_p = _next_word_log_probs(run, [frame.before for frame in frames], words, request.report)
    columns = {word: log_p[:, column] for column, word in enumerate(words)}
    return {"occupations": pronoun_odds([frame.occupation for frame in frames], columns)}


def _next_word_log_probs(run: LanguageRun, prompts: Sequence[str], words: Sequence[str], report: Report) -> np.ndarray:
    """ln P(word | prompt), (N, words). Where a word is several tokens, the space after it counts too: it ends there."""
    encode = run.tokenizer.encode
    whole = all(len(encode(f"{prompts[0]} {word}")) == len(encode(prompts[0])) + 1 for word in words)
    endings = ["", *(f" {word}" if whole else f" {word} " for word in words)]
    texts = [prompt + ending for prompt in prompts for ending in endings]
    log_p = text_log_probs(run.model, run.tokenizer, texts, report=report).reshape(-1, len(endings))
    return np.asarray(log_p[:, 1:] - log_p[:, :1])
