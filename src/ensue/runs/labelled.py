"""A run that labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError
from ensue.core.events import Report, silent
from ensue.core.wording import table_lines
from ensue.data.labelled import ReadOptions
from ensue.data.sources import Source
from ensue.data.tables import matching_columns
from ensue.runs.run import Run
from ensue.tasks.example_encoding import texts_of
from ensue.tasks.label_kind import LabelKind
from ensue.tasks.labelled import with_known_labels
from ensue.tasks.labeller import Labeller, quantised
from ensue.tasks.labels.whole import Whole
from ensue.tasks.load_model import form_in

FIGURES = {
    "accuracy": "accuracy",
    "f1": "F1",
    "exact_match": "exact match",
    "matthews": "Matthews",
    "pearson": "Pearson",
    "spearman": "Spearman",
    "precision": "precision",
    "recall": "recall",
    "mse": "mean squared error",
    "majority": "majority baseline",
    "chance": "chance",
    "best_f1": "F1 at the best threshold",
}
"""The figures of labels in the order they are shown, with their names."""
MOST_LABELS = 60
"""Labels whose own figures are shown."""


@dataclass(frozen=True)
class LabelScore:
    """What ``score`` answers for a model that labels."""

    figures: dict[str, Any]
    answers: list[Any]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return self.figures


class LabelRun(Run):
    """A model that labels: it predicts, and is scored by its task's measures."""

    labels = eighths = True
    refused = {
        "text": "a model that labels is scored on labelled examples: name a file",
        "field": "use --columns to say which fields hold text and label",
        "per_token": "it labels, and says nothing of single tokens",
        "streams": "examples are no stream",
    }

    def check_options(self, options: Iterable[str]) -> None:
        """Refuse options that would do nothing: only labels are taken for each other."""
        given = list(options)
        if "out" in given and (self.kind.loss != "label" or self.kind.head == "choice"):
            raise InputError(
                f"{self.task} has no confusion to draw", where=str(self.folder.path), hint="leave out --out"
            )
        super().check_options(given)

    capabilities = ("predict",)

    @property
    def loss_unit(self) -> str:
        """The unit of its loss, if it is a mean over tokens."""
        return "nats per token" if self.kind.head == "token" else ""

    @staticmethod
    def score_lines(score: Mapping[str, Any]) -> list[str]:
        """The measures, then those of each label."""
        lines = [" · ".join(f"{name} {score[key]:.4f}" for key, name in FIGURES.items() if score.get(key) is not None)]
        if "teacher" in score:
            (key, value), size = next(iter(score["teacher"].items())), score["teacher"]["parameters"]
            lines.append(f"teacher: {FIGURES[key]} {value:.4f}, {size:,} parameters")
        rows = score.get("per_class") or score.get("per_type") or []
        if 0 < len(rows) <= MOST_LABELS:
            keys = ("precision", "recall", "f1")
            cells = [[str(row["name"]), *(f"{row[key]:.4f}" for key in keys), f"{row['count']:,}"] for row in rows]
            lines += table_lines(["label", *keys, "examples"], cells)
        return [*lines, f"{score.get('examples', score.get('total', 0)):,} examples"]

    @classmethod
    def card_lines(cls, score: Mapping[str, Any]) -> list[str]:
        """The measures, and the teacher's."""
        names = ("accuracy", "f1", "exact_match", "matthews", "pearson", "spearman", "majority")
        shown = [f"| {name.replace('_', ' ')} | {score[name]:.4f} |" for name in names if score.get(name) is not None]
        if "teacher" in score:
            name, value = next(iter(score["teacher"].items()))
            shown.append(f"| the teacher's {name} | {value:.4f}, with {score['teacher']['parameters']:,} parameters |")
        return [f"| validation examples | {score.get('examples', score.get('total', 0)):,} |", *shown]

    def labeller(self, int8: bool = False) -> Labeller:
        """The model between its tokenizer and its task."""
        form = form_in(self.config, self.tokenizer)
        threshold = self.config["figures"].get("valid", {}).get("threshold")
        return Labeller(quantised(self.model) if int8 else self.model, self.kind, form, threshold)

    @property
    def kind(self) -> LabelKind:
        """Its task, with as many texts as its examples had."""
        kind: LabelKind = self.spec.kind
        texts = self.config["data"].get("texts")
        return replace(kind, texts=texts) if isinstance(kind, Whole) and texts is not None else kind

    @property
    def _columns(self) -> str:
        """The columns it learnt from, where they were said."""
        return str(self.settings.get("data.columns", ""))

    def predict(
        self,
        texts: Sequence[str] = (),
        *,
        file: str | Path | None = None,
        columns: str = "",
        int8: bool = False,
        report: Report = silent,
    ) -> list[dict[str, Any]]:
        """What the model says of texts, or of what a file holds, in that order.

        Where no ``columns`` are said, a file that has those the model learnt from is read as it did.
        """
        labeller, kind = self.labeller(int8), self.kind
        notes: list[str] = []
        if file is not None:
            examples = kind.inputs(str(file), columns or matching_columns(file, self._columns), notes)
        else:
            examples = [kind.example(text, f"text {number}") for number, text in enumerate(texts, start=1)]
        for note in notes:
            report("note", {"text": note})
        full = [place for place, one in enumerate(examples) if any(text.strip() for text in texts_of([one]))]
        found = iter(labeller.answers([examples[place] for place in full], report))
        kept = set(full)
        return [next(found) if place in kept else {"empty": True} for place in range(len(examples))]

    def score(self, *files: Source, columns: str = "", int8: bool = False, report: Report = silent) -> LabelScore:
        """The task's own measures on labelled examples."""
        if not files:
            raise InputError(self.refused["text"])
        labeller = self.labeller(int8)
        notes: list[str] = []
        skip = self.settings.get("data.bad_lines") == "skip"
        names = [str(file) for file in files]
        examples = labeller.kind.read(
            names, ReadOptions(columns or self._columns, for_training=False, skip_short=skip), notes
        )
        if skip:
            examples = with_known_labels(labeller.kind, examples, labeller.form.labels, notes)
        for note in notes:
            report("note", {"text": note})
        return LabelScore(*labeller.score(examples, report))
