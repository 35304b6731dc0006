"""Evaluate classification: accuracy, F1, Matthews correlation, figures per class and the confusion matrix.

    precision_k = right_k / given_k        right_k: rows of class k that were predicted k
    recall_k    = right_k / wanted_k       given_k: rows predicted k, wanted_k: rows of class k
    F1_k        = 2 · right_k / (given_k + wanted_k), the harmonic mean of the two
    MCC         = (c·n − Σ_k given_k·wanted_k) / √((n² − Σ_k given_k²) · (n² − Σ_k wanted_k²))
                  c: rows that are right, n: all rows        (Gorodkin, 2004; for two classes Matthews, 1975)

A figure with denominator 0 is 0: precision of a class never predicted, recall of a class without rows, MCC if one side
is constant. These are scikit-learn's figures with ``zero_division=0``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ensue.core.errors import InputError

ClassIds = Sequence[int] | np.ndarray
"""The class of each row, counted from 0."""


@dataclass(frozen=True, slots=True)
class LabelScores:
    """Figures of a classifier."""

    accuracy: float
    f1: float
    """For two classes the F1 of the second, as in GLUE's MRPC and QQP; else ``macro_f1``."""
    macro_f1: float
    """The unweighted mean F1 of the classes that occur or were predicted."""
    matthews: float
    majority: float
    """The share of the largest class: the accuracy of always predicting it."""
    per_class: list[dict[str, Any]]
    """For each class ``name``, ``precision``, ``recall``, ``f1``, ``count`` and ``predicted``."""
    confusion: list[list[int]]
    """``confusion[k][j]``: rows of class k that were predicted j."""
    labels: tuple[str, ...]
    """The names of the classes, in the order of rows and columns."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "labels": list(self.labels)}


def label_scores(wanted: ClassIds, given: ClassIds, names: Sequence[str]) -> LabelScores:
    """All figures of predicted labels (``given``) against true ones (``wanted``), both indices into ``names``.

    >>> scores = label_scores([0, 0, 0, 1], [0, 0, 1, 1], ["no", "yes"])
    >>> scores.accuracy, round(scores.f1, 4), scores.majority, scores.confusion
    (0.75, 0.6667, 0.75, [[2, 1], [0, 1]])
    """
    table = confusion_table(wanted, given, names)
    rows, columns, right = table.sum(1), table.sum(0), table.diagonal()
    per_class = [rates(*figures) for figures in zip(names, right.tolist(), rows.tolist(), columns.tolist())]
    present = [row["f1"] for row in per_class if row["count"] or row["predicted"]]
    macro = math.fsum(present) / len(present)
    total = int(table.sum())
    return LabelScores(
        accuracy=int(right.sum()) / total,
        f1=per_class[1]["f1"] if len(names) == 2 else macro,
        macro_f1=macro,
        matthews=_matthews(table.tolist()),
        majority=int(rows.max()) / total,
        per_class=per_class,
        confusion=table.tolist(),
        labels=tuple(names),
    )


def confusion_table(wanted: ClassIds, given: ClassIds, names: Sequence[str]) -> np.ndarray:
    """The confusion matrix (K, K): rows of class k that were predicted j.

    >>> confusion_table([0, 1, 1], [0, 0, 1], ["no", "yes"]).tolist()
    [[1, 0], [1, 1]]
    """
    if len(wanted) != len(given):
        raise InputError(f"{len(wanted)} labels are wanted and {len(given)} given", hint="give one for each row")
    if len(wanted) == 0:
        raise InputError("there are no labels to score")
    classes, pairs = len(names), np.array([wanted, given], dtype=np.int64)
    if pairs.min() < 0 or pairs.max() >= classes:
        outside = pairs[(pairs < 0) | (pairs >= classes)][0]
        raise InputError(f"label {outside} is none of the {classes} classes, which are counted from 0")
    return np.bincount(pairs[0] * classes + pairs[1], minlength=classes**2).reshape(classes, classes)


def rates(name: str, right: int, count: int, predicted: int) -> dict[str, Any]:
    """Precision, recall and F1 of a class from its counts of right, true and predicted rows.

    >>> rates("yes", 1, 1, 2)
    {'name': 'yes', 'precision': 0.5, 'recall': 1.0, 'f1': 0.6666666666666666, 'count': 1, 'predicted': 2}
    """
    return {
        "name": name,
        "precision": right / predicted if predicted else 0.0,
        "recall": right / count if count else 0.0,
        "f1": 2 * right / (count + predicted) if count + predicted else 0.0,
        "count": count,
        "predicted": predicted,
    }


def _matthews(table: list[list[int]]) -> float:
    """Computed with Python integers: 64 bits overflow from 55,000 rows on."""
    wanted, given = [sum(row) for row in table], [sum(column) for column in zip(*table)]
    total, right = sum(wanted), sum(row[k] for k, row in enumerate(table))
    covariance = right * total - sum(w * g for w, g in zip(wanted, given))
    spreads = [total**2 - sum(count**2 for count in side) for side in (wanted, given)]
    return covariance / math.sqrt(spreads[0] * spreads[1]) if all(spreads) else 0.0
