"""Sentiment by a classifier run: P(positive) − P(negative)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ensue.core.errors import InputError
from ensue.core.events import Report, silent
from ensue.runs.labelled import LabelRun
from ensue.runs.run import Run
from ensue.tasks.labels.whole import Whole

POSITIVE = ("positive", "pos", "1", "good")
NEGATIVE = ("negative", "neg", "0", "bad")
"""Names of the two labels, in lower case."""


@dataclass(frozen=True)
class ClassifierSentiment:
    """A classifier with a positive and a negative label."""

    run: LabelRun
    positive: str
    negative: str

    def scores(self, texts: Sequence[str], report: Report = silent) -> np.ndarray:
        """P(positive) − P(negative) of each text, −1 to 1; 0 for an empty text."""
        answers = self.run.predict(texts, report=report)
        probabilities = [answer.get("probabilities", {}) for answer in answers]
        return np.array([float(p.get(self.positive, 0.0)) - float(p.get(self.negative, 0.0)) for p in probabilities])


def classifier_sentiment(run: Run) -> ClassifierSentiment:
    """The run as a scorer; it must be a classifier of single texts with a positive and a negative label."""
    if not isinstance(run, LabelRun) or run.task != "classify":
        raise InputError("is not a classifier", where=str(run), hint="train one: ensue fit classify reviews.tsv")
    if isinstance(run.kind, Whole) and run.kind.text_count != 1:
        raise InputError("classifies pairs of texts", where=str(run), hint="use one of single texts")
    labels = [str(label) for label in run.labeller().encoding.labels]
    named = {label.lower(): label for label in labels}
    found = [next((named[name] for name in names if name in named), None) for names in (POSITIVE, NEGATIVE)]
    if found[0] is None or found[1] is None:
        what = f"its labels are {', '.join(labels[:5])}, not positive and negative"
        raise InputError(what, where=str(run), hint="train one with the labels positive and negative")
    return ClassifierSentiment(run, found[0], found[1])
