"""Labels and numbers of whole texts: classify one, classify a pair, predict a number for a pair."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ensue.core.errors import InputError
from ensue.data.labelled import LabelledText, ReadOptions, read_labelled, read_texts
from ensue.data.labelled_rows import make_rows
from ensue.data.tokenizers.protocol import encode_texts
from ensue.data.tokenizers.special_tokens import add_special_tokens
from ensue.measure.correlation import pearson, spearman
from ensue.measure.labels import label_scores
from ensue.tasks.labels.kind import (
    EncodedExamples,
    ExampleEncoding,
    LabelKind,
    Labels,
    label_index,
    softmax,
    sort_labels,
)
from ensue.tasks.labels.task import LabelTask
from ensue.tasks.spec import Measure


@dataclass(frozen=True)
class Whole(LabelKind):
    """What classify, pair and regress share: one or two texts, and one label or number for all of it."""

    name: Literal["classify", "pair", "regress"]
    text_count: int
    """The number of texts of an example; 0 if it is not known, and one or two will do. Numbers may be of one text too,
    as the examples say."""
    head: str = "whole"

    def read(self, files: Sequence[str], options: ReadOptions, notes: list[str]) -> list[LabelledText]:
        """Read the examples of tables."""
        return read_labelled(list(files), self.name, options, notes)

    def read_inputs(self, file: str, columns: str, notes: list[str]) -> list[LabelledText]:
        """Read the texts of a file."""
        return read_texts(file, columns, self.text_count, notes, self.loss == "number", keep_empty=True)

    def parse_example(self, text: str, where: str) -> LabelledText:
        """Return a line as an example; a pair has a tab between its texts."""
        parts = [text] if self.text_count == 1 else text.split("\t")
        wanted = self.text_count or min(len(parts), 2)
        if len(parts) != wanted:
            raise InputError(f"{len(parts)} texts where {wanted} are needed", where=where, hint="put a tab between")
        return LabelledText(tuple(parts), None, where)

    def texts(self, example: LabelledText) -> list[str]:
        """Return its text, or both."""
        return list(example.texts)

    @abstractmethod
    def targets(self, examples: Sequence[LabelledText], labels: Labels) -> np.ndarray:
        """Return the targets of examples."""

    def encode(
        self, examples: Sequence[LabelledText], encoding: ExampleEncoding, with_targets: bool = True
    ) -> EncodedExamples:
        """[CLS] A [SEP], or [CLS] A [SEP] B [SEP]."""
        special = encoding.special_tokens
        ids = iter(encode_texts(encoding.tokenizer, [text for one in examples for text in one.texts]))
        rows, cut = [], 0
        for one in examples:
            parts = [next(ids) for _ in one.texts]
            rows.append(add_special_tokens(special, parts[0], parts[1] if len(parts) > 1 else None, encoding.length))
            cut += sum(map(len, parts)) + special.count(len(parts)) > encoding.length
        targets = self.targets(examples, encoding.labels) if with_targets else np.zeros(len(rows), dtype=np.int64)
        return EncodedExamples(rows=make_rows(rows, targets), cut=cut)


class Classify(Whole):
    """A label for a text or a pair."""

    def labels(self, examples: Sequence[LabelledText]) -> Labels:
        """Return the labels that occur."""
        return sort_labels({one.label for one in examples if one.label is not None})

    def strata(self, examples: Sequence[LabelledText]) -> list[Any]:
        """Return the labels."""
        return [one.label for one in examples]

    def targets(self, examples: Sequence[LabelledText], labels: Labels) -> np.ndarray:
        """Return the index of each label."""
        return np.array([label_index(one.label, labels, one.where) for one in examples], dtype=np.int64)

    def predictions(
        self, examples: Sequence[LabelledText], encoded: EncodedExamples, logits: Sequence[np.ndarray], labels: Labels
    ) -> list[dict[str, Any]]:
        """Return the most probable label and the probabilities of all."""
        probabilities = [softmax(one) for one in logits]
        return [
            {"label": labels[int(p.argmax())], "probabilities": dict(zip(labels, p.tolist(), strict=True))}
            for p in probabilities
        ]

    def score(
        self, examples: Sequence[LabelledText], predictions: Sequence[dict[str, Any]], labels: Labels
    ) -> dict[str, Any]:
        """Return accuracy, F1, Matthews and the figures of each label."""
        index = {label: i for i, label in enumerate(labels)}
        true = [index[one.label or ""] for one in examples]
        scores = label_scores(true, [index[one["label"]] for one in predictions], labels)
        return {**scores.as_dict(), "examples": len(examples)}


class Regress(Whole):
    """A number for a text or a pair."""

    loss = "number"
    chosen_by = "pearson"

    def labels(self, examples: Sequence[LabelledText]) -> Labels:
        """Return (): numbers have none."""
        return ()

    def outputs(self, labels: Labels) -> int:
        """Return 1: the number."""
        return 1

    def targets(self, examples: Sequence[LabelledText], labels: Labels) -> np.ndarray:
        """Return the numbers."""
        return np.array([float(one.label or "nan") for one in examples], dtype=np.float32)

    def predictions(
        self, examples: Sequence[LabelledText], encoded: EncodedExamples, logits: Sequence[np.ndarray], labels: Labels
    ) -> list[dict[str, Any]]:
        """Return the number."""
        return [{"value": float(one[0])} for one in logits]

    def score(
        self, examples: Sequence[LabelledText], predictions: Sequence[dict[str, Any]], labels: Labels
    ) -> dict[str, Any]:
        """Return the correlations and the mean squared error."""
        true = np.array([float(one.label or "nan") for one in examples])
        given = np.array([one["value"] for one in predictions])
        figures = {"pearson": pearson(true, given), "spearman": spearman(true, given)}
        return {**figures, "mse": float(((true - given) ** 2).mean()), "examples": len(examples)}


SCORES = (Measure("accuracy", "accuracy"), Measure("f1", "F1"), Measure("matthews", "Matthews"))
CLASSIFY = LabelTask(Classify("classify", 1), *SCORES)
PAIR = LabelTask(Classify("pair", 2), *SCORES)
REGRESS = LabelTask(
    Regress("regress", 2),
    Measure("pearson", "Pearson"),
    Measure("spearman", "Spearman"),
    Measure("mse", "squared error"),
)
