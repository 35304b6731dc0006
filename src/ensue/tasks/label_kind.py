"""What a task that labels is: how its examples are read, written as rows, answered and measured."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from ensue.core.errors import InputError
from ensue.data.column_inference import parse_number
from ensue.data.labelled import ReadOptions
from ensue.data.labelled_rows import LabelledRows
from ensue.data.tokenizers.protocol import Tokenizer
from ensue.data.tokenizers.special_tokens import SpecialTokens, special_tokens_of


@dataclass(frozen=True, kw_only=True)
class Written:
    """Examples as rows, and what is needed to read answers back."""

    rows: LabelledRows
    cut: int = 0
    """How many texts were too long and lost their end."""
    notes: tuple[Any, ...] = ()
    """For each row what its task remembers of it: words of tokens, the window of a passage."""


@dataclass(frozen=True, kw_only=True)
class Form:
    """How examples become rows."""

    tokenizer: Tokenizer
    labels: tuple[str, ...]
    length: int
    """The most tokens of a row."""
    stride: int = 0
    """How many tokens the windows of a long passage share."""
    bare: bool = False
    """Whether texts stand without marks around them."""

    @property
    def marks(self) -> SpecialTokens:
        """What stands around texts."""
        return replace(special_tokens_of(self.tokenizer), omitted=self.bare)


class LabelKind(Protocol):
    """The functions of a task that labels."""

    @property
    def name(self) -> str:
        """What people type."""

    @property
    def head(self) -> str:
        """What is labelled: whole, choice, token or span."""

    @property
    def loss(self) -> str:
        """label, number or span; see ensue.train.label_objectives."""

    @property
    def chosen_by(self) -> str:
        """The measure that chooses the best weights."""

    def read(self, files: Sequence[str], how: ReadOptions, notes: list[str]) -> list[Any]:
        """The examples of files."""

    def inputs(self, file: str, columns: str, notes: list[str]) -> list[Any]:
        """What a file holds to be labelled: one text a line, or a table whose labels are not looked at."""

    def example(self, text: str, where: str) -> Any:
        """A line that somebody typed, as an example without a label."""

    def labels(self, examples: Sequence[Any]) -> tuple[str, ...]:
        """The labels of examples in their order; () where there are none."""

    def outputs(self, labels: tuple[str, ...]) -> int:
        """How many numbers the head gives."""

    def strata(self, examples: Sequence[Any]) -> list[Any]:
        """What a draw of some examples is to keep the shares of."""

    def together(self, examples: Sequence[Any]) -> Sequence[Hashable]:
        """What examples that are held out together have in common; a number of its own each where that is nothing."""

    def write(self, examples: Sequence[Any], form: Form, wanted: bool = True) -> Written:
        """Examples as rows; with ``wanted`` also what is to be answered."""

    def answers(self, examples: Sequence[Any], written: Written, logits: Sequence[np.ndarray], form: Form) -> list[Any]:
        """What a model's logits (one array a row of ``written``) say of each example."""

    def score(self, examples: Sequence[Any], answers: Sequence[Any], labels: tuple[str, ...]) -> dict[str, Any]:
        """The task's own measures."""


def label_number(label: str | None, labels: Sequence[str], where: str) -> int:
    """Which of the labels one is; one that is not among them is named with its line."""
    if label is None or label not in labels:
        shown = ", ".join(labels[:8]) + (" …" if len(labels) > 8 else "")
        raise InputError(f"the label {label!r} is none of {shown}", where=where, hint="train with it, or hint the line")
    return list(labels).index(label)


def in_order(labels: set[str]) -> tuple[str, ...]:
    """Labels in the order of numbers where they all are, else of the alphabet.

    >>> in_order({"10", "9"}), in_order({"b", "a"})
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
