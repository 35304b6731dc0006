"""A run that labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError
from ensue.core.events import Report, report_all, silent
from ensue.core.wording import table_lines
from ensue.data.labelled import ReadOptions
from ensue.data.sources import Source
from ensue.data.tables import matching_columns
from ensue.runs.run import Run
from ensue.tasks.labels.encoding import encoding_from_config
from ensue.tasks.labels.kind import LabelKind
from ensue.tasks.labels.labeller import Labeller
from ensue.tasks.labels.task import with_known_labels
from ensue.tasks.labels.whole import Whole

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
"""The figures of labels in the order they are printed, with their names."""
MAX_LABELS = 60
"""The figures of single labels are printed for at most this number of labels."""


@dataclass(frozen=True)
class LabelScore:
    """The result of ``score`` for a model that labels."""

    figures: dict[str, Any]
    answers: list[Any]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return self.figures


class LabelRun(Run):
    """A model that labels: it predicts, and is scored by the measures of its task."""

    labels = supports_int8 = True
    capabilities = ("predict",)
    refused = {
        "text": "a model that labels is scored on labelled examples: name a file",
        "field": "use --columns to say which fields hold text and label",
        "per_token": "it labels, and does not score tokens",
        "streams": "it reads examples, not a stream",
    }

    def check_options(self, options: Iterable[str]) -> None:
        """Refuse options that have no effect: only tasks with labels have a confusion matrix."""
        given = list(options)
        if "out" in given and (self.kind.loss != "label" or self.kind.head == "choice"):
            raise InputError(f"{self.task} has no confusion matrix", where=str(self), hint="leave out --out")
        super().check_options(given)

    @property
    def loss_unit(self) -> str:
        """The unit of its loss, if it is a mean over tokens."""
        return "nats per token" if self.kind.head == "token" else ""

    @staticmethod
    def score_lines(score: Mapping[str, Any]) -> list[str]:
        """The measures of all examples, then those of each label."""
        lines = [" · ".join(f"{name} {score[key]:.4f}" for key, name in FIGURES.items() if score.get(key) is not None)]
        if "teacher" in score:
            (key, value), size = next(iter(score["teacher"].items())), score["teacher"]["parameters"]
            lines.append(f"teacher: {FIGURES[key]} {value:.4f}, {size:,} parameters")
        rows = score.get("per_class") or score.get("per_type") or []
        if 0 < len(rows) <= MAX_LABELS:
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
        """The model with its tokenizer and its task."""
        with self.folder.config_errors():
            encoding = encoding_from_config(self.config, self.tokenizer)
            threshold = self.config["figures"].get("valid", {}).get("threshold")
        return Labeller(self.model_for(int8), self.kind, encoding, threshold)

    @property
    def kind(self) -> LabelKind:
        """The kind of its labels, with the number of texts that its examples had."""
        kind: LabelKind = self.spec.kind
        texts = self.config.get("data", {}).get("texts")
        return replace(kind, text_count=texts) if isinstance(kind, Whole) and texts is not None else kind

    @property
    def _columns(self) -> str:
        """The columns it was trained on, if they were given."""
        return str(self.settings.get("data.columns", ""))

    def read_examples(self, file: str | Path, columns: str, notes: list[str]) -> list[Any]:
        """The examples of a file; without ``columns``, those the model was trained on if the file has them."""
        return self.kind.read_inputs(str(file), columns or matching_columns(file, self._columns), notes)

    def make_example(self, text: str, where: str) -> Any:
        """A line as an example without a label."""
        return self.kind.parse_example(text, where)

    def predict_examples(self, examples: list[Any], int8: bool, report: Report) -> list[dict[str, Any]]:
        """The predictions of the task; those of empty texts are ``{"empty": True}``."""
        full = [any(text.strip() for text in self.kind.texts(one)) for one in examples]
        answers = iter(self.labeller(int8).predict(list(compress(examples, full)), report))
        return [next(answers) if has_text else {"empty": True} for has_text in full]

    def score(self, *files: Source, columns: str = "", int8: bool = False, report: Report = silent) -> LabelScore:
        """The measures of the task on labelled examples."""
        self.check_files(files)
        labeller = self.labeller(int8)
        notes: list[str] = []
        skip = self.settings.get("data.bad_lines") == "skip"
        options = ReadOptions(columns or self._columns, for_training=False, skip_short=skip)
        examples = labeller.kind.read([str(file) for file in files], options, notes)
        if skip:
            examples = with_known_labels(labeller.kind, examples, labeller.encoding.labels, notes)
        report_all(notes, report)
        return LabelScore(*labeller.score(examples, report))
