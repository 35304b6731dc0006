"""Labels and numbers of whole texts: classify one, classify a pair, give a pair a number."""

from __future__ import annotations

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
from ensue.tasks.label_kind import Form, Written, in_order, label_number, softmax
from ensue.tasks.labelled import label_task
from ensue.tasks.spec import Measure


@dataclass(frozen=True)
class Whole:
    """What classify, pair and regress share: a text or two, and one answer about all of it."""

    name: Literal["classify", "pair", "regress"]
    texts: int
    """How many an example has; 0 where that is not known, and one or two will do. Numbers may be of one text too, as
    the examples say."""
    loss: str = "label"
    chosen_by: str = "accuracy"
    head: str = "whole"

    def read(self, files: Sequence[str], how: ReadOptions, notes: list[str]) -> list[LabelledText]:
        """The examples of tables."""
        return read_labelled(list(files), self.name, how, notes)

    def inputs(self, file: str, columns: str, notes: list[str]) -> list[LabelledText]:
        """The texts of a file."""
        return read_texts(file, columns, self.texts, notes, self.loss == "number", keep_empty=True)

    def example(self, text: str, where: str) -> LabelledText:
        """A line as an example; a pair has a tab between its texts."""
        parts = [text] if self.texts == 1 else text.split("\t")
        wanted = self.texts or min(len(parts), 2)
        if len(parts) != wanted:
            raise InputError(f"{len(parts)} texts where {wanted} are needed", where=where, hint="put a tab between")
        return LabelledText(tuple(parts), None, where)

    def labels(self, examples: Sequence[LabelledText]) -> tuple[str, ...]:
        """Those that occur; numbers have none."""
        return () if self.loss == "number" else in_order({one.label for one in examples if one.label is not None})

    def outputs(self, labels: tuple[str, ...]) -> int:
        """One for each label, or the number."""
        return 1 if self.loss == "number" else len(labels)

    def strata(self, examples: Sequence[LabelledText]) -> list[Any]:
        """Labels; numbers are not told apart."""
        return [None if self.loss == "number" else one.label for one in examples]

    def together(self, examples: Sequence[LabelledText]) -> Sequence[int]:
        """Each is one by itself."""
        return range(len(examples))

    def write(self, examples: Sequence[LabelledText], form: Form, wanted: bool = True) -> Written:
        """[CLS] A [SEP], or [CLS] A [SEP] B [SEP]."""
        marks = form.marks
        ids = encode_texts(form.tokenizer, [text for one in examples for text in one.texts])
        rows, cut, place = [], 0, 0
        for one in examples:
            parts = ids[place : place + len(one.texts)]
            place += len(parts)
            row = add_special_tokens(marks, parts[0], parts[1] if len(parts) > 1 else None, form.length)
            cut += sum(map(len, parts)) + marks.count(len(parts)) > form.length
            rows.append(row)
        targets = self._targets(examples, form.labels) if wanted else np.zeros(len(rows), dtype=np.int64)
        return Written(rows=make_rows(rows, targets), cut=cut)

    def _targets(self, examples: Sequence[LabelledText], labels: tuple[str, ...]) -> np.ndarray:
        if self.loss == "number":
            return np.array([float(one.label or "nan") for one in examples], dtype=np.float32)
        return np.array([label_number(one.label, labels, one.where) for one in examples], dtype=np.int64)

    def answers(
        self, examples: Sequence[LabelledText], written: Written, logits: Sequence[np.ndarray], form: Form
    ) -> list[dict[str, Any]]:
        """The likeliest label and the probabilities of all, or the number."""
        if self.loss == "number":
            return [{"value": float(one[0])} for one in logits]
        found = []
        for one in logits:
            p = softmax(one)
            shares = dict(zip(form.labels, map(float, p), strict=True))
            found.append({"label": form.labels[int(p.argmax())], "probabilities": shares})
        return found

    def score(
        self, examples: Sequence[LabelledText], answers: Sequence[dict[str, Any]], labels: tuple[str, ...]
    ) -> dict[str, Any]:
        """Accuracy, F1, Matthews and each label's own figures; or the correlations of numbers."""
        if self.loss == "number":
            wanted = np.array([float(one.label or "nan") for one in examples])
            given = np.array([one["value"] for one in answers])
            figures = {"pearson": pearson(wanted, given), "spearman": spearman(wanted, given)}
            return {**figures, "mse": float(((wanted - given) ** 2).mean()), "examples": len(examples)}
        places = {label: place for place, label in enumerate(labels)}
        wanted_places = [places[one.label or ""] for one in examples]
        scores = label_scores(wanted_places, [places[one["label"]] for one in answers], labels)
        return {**scores.as_dict(), "examples": len(examples)}


SCORES = (Measure("accuracy", "accuracy"), Measure("f1", "F1"), Measure("matthews", "Matthews"))
CLASSIFY = label_task(Whole("classify", 1), *SCORES)
PAIR = label_task(Whole("pair", 2), *SCORES)
REGRESS = label_task(
    Whole("regress", 2, loss="number", chosen_by="pearson"),
    Measure("pearson", "Pearson"),
    Measure("spearman", "Spearman"),
    Measure("mse", "squared error"),
)
