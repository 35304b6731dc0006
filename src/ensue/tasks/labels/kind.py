"""The kinds of tasks that label: how examples are read, encoded as rows, predicted and scored."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ensue.core.errors import InputError
from ensue.data.column_inference import parse_number
from ensue.data.labelled import ReadOptions
from ensue.data.labelled_rows import LabelledRows
from ensue.data.tokenizers.protocol import Tokenizer
from ensue.data.tokenizers.special_tokens import SpecialTokens, special_tokens_of

Labels = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class EncodedExamples:
    """Examples as rows, and what is needed to read predictions."""

    rows: LabelledRows
    cut: int = 0
    """The number of texts that were too long and lost their end."""
    notes: tuple[Any, ...] = ()
    """What the task keeps of each row: the first tokens of words, or the window of a passage."""


@dataclass(frozen=True, kw_only=True)
class ExampleEncoding:
    """How examples become rows."""

    tokenizer: Tokenizer
    labels: Labels
    length: int
    """The most tokens of a row."""
    stride: int = 0
    """How many tokens the windows of a long passage share."""
    bare: bool = False
    """True if there are no special tokens around texts."""

    @property
    def special_tokens(self) -> SpecialTokens:
        """The special tokens around texts."""
        return replace(special_tokens_of(self.tokenizer), omitted=self.bare)


class LabelKind(ABC):
    """A kind of labelling; subclasses are dataclasses with these attributes."""

    name: str
    """The task's name."""
    head: str
    """What gets a label: whole, choice, token or span."""
    loss: str = "label"
    """label, number or span; see ensue.train.label_objectives."""
    chosen_by: str = "accuracy"
    """The measure that chooses the best weights."""
    word_tokens: bool = False
    """True if a recurrent network reads whole words where no tokenizer is chosen."""

    @abstractmethod
    def read(self, files: Sequence[str], options: ReadOptions, notes: list[str]) -> list[Any]:
        """Read labelled examples."""

    @abstractmethod
    def read_inputs(self, file: str, columns: str, notes: list[str]) -> list[Any]:
        """Read examples to label: one text per line, or a table whose labels are ignored."""

    @abstractmethod
    def parse_example(self, text: str, where: str) -> Any:
        """Return a typed line as an example without a label."""

    @abstractmethod
    def texts(self, example: Any) -> list[str]:
        """Return all texts of an example."""

    @abstractmethod
    def labels(self, examples: Sequence[Any]) -> Labels:
        """Return the labels of examples in their order; () if the task has none."""

    def outputs(self, labels: Labels) -> int:
        """Return the number of outputs of the head."""
        return len(labels)

    def strata(self, examples: Sequence[Any]) -> list[Any]:
        """Return the stratification key of each example: a sample of examples keeps the share of each key."""
        return [None] * len(examples)

    def groups(self, examples: Sequence[Any]) -> Sequence[Hashable]:
        """Return the group of each example: examples of one group are held out together."""
        return range(len(examples))

    @abstractmethod
    def encode(self, examples: Sequence[Any], encoding: ExampleEncoding, with_targets: bool = True) -> EncodedExamples:
        """Encode examples as rows, with their targets if ``with_targets``."""

    @abstractmethod
    def predictions(
        self, examples: Sequence[Any], encoded: EncodedExamples, logits: Sequence[np.ndarray], labels: Labels
    ) -> list[dict[str, Any]]:
        """Return a prediction for each example from a model's logits, one array per row of ``encoded``."""

    @abstractmethod
    def score(self, examples: Sequence[Any], predictions: Sequence[dict[str, Any]], labels: Labels) -> dict[str, Any]:
        """Return the task's measures of predictions."""


def label_index(label: str | None, labels: Sequence[str], where: str) -> int:
    """Return the index of a label; raise InputError with its line if it is unknown."""
    if label is None or label not in labels:
        shown = ", ".join(labels[:8]) + (" …" if len(labels) > 8 else "")
        raise InputError(
            f"the label {label!r} is none of {shown}", where=where, hint="train with it, or correct the line"
        )
    return list(labels).index(label)


def sort_labels(labels: set[str]) -> Labels:
    """Sort labels as numbers if they all are numbers, else alphabetically.

    >>> sort_labels({"10", "9"}), sort_labels({"b", "a"})
    (('9', '10'), ('a', 'b'))
    """
    numbers = {label: parse_number(label) for label in labels}
    if None in numbers.values():
        return tuple(sorted(labels))
    return tuple(sorted(labels, key=lambda label: (numbers[label], label)))


def softmax(logits: np.ndarray) -> np.ndarray:
    """exp(z) / Σ exp(z) over the last axis, in double precision."""
    z = np.asarray(logits, dtype=np.float64)
    e = np.exp(z - z.max(-1, keepdims=True))
    result: np.ndarray = e / e.sum(-1, keepdims=True)
    return result
