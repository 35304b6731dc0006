"""Evaluate question answering: exact match and word F1, as in the official SQuAD scripts.

    common = Σ_words min(count in the prediction, count in the reference)
    P = common / words predicted   R = common / words in the reference       F1 = 2PR / (P + R)

of normalised texts: lower case, without punctuation and without a, an, the. A question counts by the best of its
references; figures are means over questions, in percent (Rajpurkar et al., 2016).

Version 2.0 has questions without an answer (Rajpurkar et al., 2018), whose reference is the empty text. A model gives
each question a no-answer score, and its prediction counts as empty if that is above a threshold t:

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
    """Figures of some of the questions, in percent."""

    exact_match: float
    f1: float
    total: int
    """Questions."""


@dataclass(frozen=True, slots=True)
class AnswerScores(AnswerPart):
    """Figures of all questions."""

    has_answer: AnswerPart | None = None
    """Of the questions with an answer, if there are others too (version 2.0)."""
    no_answer: AnswerPart | None = None
    """Of the questions without one."""
    best_exact: float | None = None
    best_exact_threshold: float | None = None
    """A prediction counts as empty if its no-answer score is above this."""
    best_f1: float | None = None
    best_f1_threshold: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """For JSON, without figures that do not apply."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def answer_scores(
    predictions: Mapping[str, str],
    wanted: Mapping[str, Sequence[str]],
    no_answer: Mapping[str, float] | None = None,
    *,
    threshold: float = math.inf,
) -> AnswerScores:
    """Exact match and F1 of all ``wanted`` questions; a question without references wants the empty text.

    ``no_answer`` holds the no-answer score of each question, on any scale; for the best thresholds, predictions should
    be the best non-empty texts. Predictions with a score above ``threshold`` count as empty.

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
    for index, name in enumerate(("best_exact", "best_f1") if no_answer else ()):
        gains = {question: both[index] - (not answerable[question]) for question, both in raw.items()}
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
    """Lower-cased, without ASCII punctuation and articles, with single spaces.

    >>> normalised("The  Cat's   whiskers!")
    'cats whiskers'
    """
    return " ".join(ARTICLES.sub(" ", text.lower().translate(NO_PUNCTUATION)).split())


def exact(given: str, wanted_texts: Sequence[str]) -> bool:
    """True if a prediction equals a reference, both normalised.

    >>> exact("the Nile", ["Nile.", "Nile River"]), exact("", [])
    (True, True)
    """
    return normalised(given) in _choices(wanted_texts)


def overlap_f1(given: str, wanted_texts: Sequence[str]) -> float:
    """Word F1 of a prediction and its best reference, 0 to 1; 1 if both are empty.

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
    """The normalised references that are not empty; the empty text if there are none."""
    return [text for text in map(normalised, wanted_texts) if text] or [""]


def _part(figures: Mapping[str, tuple[float, ...]], questions: Sequence[str]) -> AnswerPart:
    means = [100 * math.fsum(figures[question][index] for question in questions) / len(questions) for index in (0, 1)]
    return AnswerPart(means[0], means[1], len(questions))


def _best_threshold(gains: Mapping[str, float], no_answer: Mapping[str, float]) -> tuple[float, float]:
    """The largest gain of answering over not answering, and the lowest threshold that reaches it.

    Questions with equal scores are grouped, since no threshold separates them. To answer none, the threshold is the
    official 0 if that is below all scores, which need not be probabilities.
    """
    order = sorted(gains, key=no_answer.__getitem__)
    lowest = no_answer[order[0]]
    gained, most, at = 0.0, 0.0, 0.0 if lowest > 0 else math.nextafter(lowest, -math.inf)
    for score, group in groupby(order, key=no_answer.__getitem__):
        gained += sum(gains[question] for question in group)
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
        what = f"{len(unscored)} of {len(wanted)} questions have no no-answer score, first {unscored[0]!r}"
        raise InputError(what, hint="give each question a number")
