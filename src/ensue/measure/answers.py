"""How good answers to questions are: exact match and F1 of words, as the official scripts of SQuAD count them.

    common = Σ_words min(count in the answer given, count in the answer wanted)
    P = common / words given       R = common / words wanted       F1 = 2PR / (P + R)

of normalised texts: lower case, without punctuation and without a, an, the. A question counts by the best of its wanted
answers; figures are means over questions, in percent (Rajpurkar et al., 2016).

Version 2.0 has questions without an answer (Rajpurkar et al., 2018); they want the empty text. A model gives each
question a score of having none, and its answer counts as empty where that is above a threshold t:

    figure(t) = Σ_{score ≤ t} figure of the answer + Σ_{score > t} (1 if the question has no answer)

The best figure over all t, and the t that reaches it, are for choosing t on held-out data, not for reporting.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from ensue.core.errors import InputError

ARTICLES = re.compile(r"\b(a|an|the)\b")
NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True, slots=True)
class AnswerPart:
    """The figures of some of the questions."""

    exact_match: float
    f1: float
    total: int


@dataclass(frozen=True, slots=True)
class AnswerScores:
    """What ``ensue score`` answers for a model that answers questions; figures are in percent, as in the literature."""

    exact_match: float
    f1: float
    total: int
    """Questions."""
    has_answer: AnswerPart | None = None
    """Of the questions with an answer, where the data has others too (version 2.0)."""
    no_answer: AnswerPart | None = None
    """Of the questions without one."""
    best_exact: float | None = None
    best_exact_threshold: float | None = None
    """An answer counts as empty where its score of having none is above this."""
    best_f1: float | None = None
    best_f1_threshold: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """The same for JSON, without what does not apply."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def answer_scores(
    predictions: Mapping[str, str],
    wanted: Mapping[str, Sequence[str]],
    no_answer: Mapping[str, float] | None = None,
    *,
    threshold: float = math.inf,
) -> AnswerScores:
    """Exact match and F1 of the answers to all ``wanted`` questions; a question without wanted answers wants "".

    ``no_answer`` is each question's score of having none, on any scale: for the best thresholds the predictions should
    be the best texts that are not empty. With a ``threshold`` the figures are those of answers emptied above it.

    >>> scores = answer_scores({"q": "the Nile river", "r": ""}, {"q": ["Nile", "Nile River"], "r": []})
    >>> scores.exact_match, scores.has_answer.total, scores.no_answer.f1
    (100.0, 1, 100.0)
    """
    _check_questions(predictions, wanted, no_answer)
    answerable = {question: any(texts) for question, texts in wanted.items()}
    raw = {
        question: (float(exact(predictions[question], texts)), overlap_f1(predictions[question], texts))
        for question, texts in wanted.items()
    }
    figures = {
        question: (float(not answerable[question]),) * 2 if no_answer and no_answer[question] > threshold else both
        for question, both in raw.items()
    }
    whole = _part(figures, list(wanted))
    with_answer = [question for question, has in answerable.items() if has]
    without = [question for question, has in answerable.items() if not has]
    best: dict[str, float] = {}
    for place, name in enumerate(("best_exact", "best_f1") if no_answer else ()):
        gains = {question: both[place] - (not answerable[question]) for question, both in raw.items()}
        gained, at = _best_threshold(gains, no_answer or {})
        best |= {name: 100 * (len(without) + gained) / len(raw), f"{name}_threshold": at}
    return AnswerScores(
        exact_match=whole.exact_match,
        f1=whole.f1,
        total=whole.total,
        has_answer=_part(figures, with_answer) if with_answer and without else None,
        no_answer=_part(figures, without) if without else None,
        **best,
    )


def normalised(text: str) -> str:
    """In lower case, without punctuation (ASCII's), without articles, words one space apart.

    >>> normalised("The  Cat's   whiskers!")
    'cats whiskers'
    """
    return " ".join(ARTICLES.sub(" ", text.lower().translate(NO_PUNCTUATION)).split())


def exact(given: str, wanted_texts: Sequence[str]) -> bool:
    """Whether an answer is one of the wanted ones, normalised.

    >>> exact("the Nile", ["Nile.", "Nile River"]), exact("", [])
    (True, True)
    """
    return normalised(given) in _choices(wanted_texts)


def overlap_f1(given: str, wanted_texts: Sequence[str]) -> float:
    """F1 of the words of an answer and of the nearest wanted one, 0 to 1; without words 1 where both have none.

    >>> overlap_f1("Nile River", ["Nile", "the White Nile"]), overlap_f1("Nile", [])
    (0.6666666666666666, 0.0)
    """
    words = normalised(given).split()
    return max(_overlap(words, choice.split()) for choice in _choices(wanted_texts))


def _overlap(given: list[str], wanted: list[str]) -> float:
    if not given or not wanted:
        return float(given == wanted)
    common = (Counter(given) & Counter(wanted)).total()
    return 2 * common / (len(given) + len(wanted))


def _choices(wanted_texts: Sequence[str]) -> list[str]:
    """The wanted answers, normalised; those of which nothing is left do not count, and none at all is the empty one."""
    return [text for text in map(normalised, wanted_texts) if text] or [""]


def _part(figures: Mapping[str, tuple[float, ...]], questions: Sequence[str]) -> AnswerPart:
    means = [100 * math.fsum(figures[question][place] for question in questions) / len(questions) for place in (0, 1)]
    return AnswerPart(means[0], means[1], len(questions))


def _best_threshold(gains: Mapping[str, float], no_answer: Mapping[str, float]) -> tuple[float, float]:
    """The most that answering instead of staying silent gains, and the lowest threshold that gains it.

    Questions with equal scores are taken together, since no threshold tells them apart. To answer none the threshold
    is the official 0, where that is below all scores: those need not be probabilities here.
    """
    order = sorted(gains, key=no_answer.__getitem__)
    lowest = no_answer[order[0]]
    gained, most, at = 0.0, 0.0, 0.0 if lowest > 0 else math.nextafter(lowest, -math.inf)
    for score, together in groupby(order, key=no_answer.__getitem__):
        gained += sum(gains[question] for question in together)
        if gained > most:
            most, at = gained, score
    return most, at


def _check_questions(
    predictions: Mapping[str, str], wanted: Mapping[str, Sequence[str]], no_answer: Mapping[str, float] | None
) -> None:
    if not wanted:
        raise InputError("there are no questions to score")
    unanswered = [question for question in wanted if question not in predictions]
    if unanswered:
        what = f"{len(unanswered)} of {len(wanted)} questions have no prediction, first {unanswered[0]!r}"
        raise InputError(what, hint="give each one, also an empty one")
    unscored = [question for question in wanted if not math.isfinite((no_answer or {}).get(question, math.nan))]
    if no_answer is not None and unscored:
        what = f"{len(unscored)} of {len(wanted)} questions have no score of having no answer, first {unscored[0]!r}"
        raise InputError(what, hint="give each question a number")
