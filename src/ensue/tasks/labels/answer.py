"""Answer: the span of a passage that answers a question, or no answer.

    [CLS] question [SEP] passage [SEP]          score(i, j) = s · T_i + e · T_j,  i ≤ j < i + 30, both in the passage

A passage that is too long is read in windows that overlap; the best span of all windows answers. No answer is scored by
the first token, score(1, 1), the lowest of all windows (Devlin et al., 2019, section 4.3); it is given where it
exceeds the best span's score by more than a threshold, which training chooses on held-out questions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ensue.core.errors import InputError
from ensue.data.labelled import Question, ReadOptions
from ensue.data.labelled_rows import make_rows
from ensue.data.squad import read_questions
from ensue.data.tokenizers.protocol import encode_texts
from ensue.data.tokenizers.spans import token_spans
from ensue.data.tokenizers.special_tokens import add_special_tokens
from ensue.measure.answers import answer_scores
from ensue.tasks.labels.kind import EncodedExamples, ExampleEncoding, LabelKind, Labels
from ensue.tasks.labels.task import LabelTask
from ensue.tasks.spec import Measure

LONGEST_ANSWER = 30
"""Tokens of an answer, at most."""
LONGEST_QUESTION = 64
"""Tokens of a question that are read."""


@dataclass(frozen=True)
class Window:
    """The part of a passage in a row."""

    question: int
    """The index of its question."""
    begin: int
    """The position of the passage's first token in the row."""
    spans: np.ndarray
    """(tokens of the passage in this row, 2): their characters."""


@dataclass(frozen=True)
class Span(LabelKind):
    """Answer a question by a span of a passage."""

    name: str = "answer"
    head: str = "span"
    loss: str = "span"
    chosen_by: str = "f1"

    def read(self, files: Sequence[str], options: ReadOptions, notes: list[str]) -> list[Question]:
        """Read the questions of SQuAD's JSON or of tables."""
        return read_questions(list(files), options, notes)

    def read_inputs(self, file: str, columns: str, notes: list[str]) -> list[Question]:
        """Read questions; their answers are ignored."""
        return read_questions([file], ReadOptions(columns, require_labels=False, for_training=False), notes)

    def parse_example(self, text: str, where: str) -> Question:
        """Return a question and its passage, which have a tab between them."""
        question, tab, passage = text.partition("\t")
        if not tab:
            raise InputError("there is no passage", where=where, hint="put a tab between question and passage")
        return Question(where, question, passage, (), False, where)

    def texts(self, example: Question) -> list[str]:
        """Return the question and the passage."""
        return [example.question, example.passage]

    def labels(self, examples: Sequence[Question]) -> Labels:
        """Return (): there are none."""
        return ()

    def outputs(self, labels: Labels) -> int:
        """Return 2: start and end."""
        return 2

    def strata(self, examples: Sequence[Question]) -> list[Any]:
        """Return whether a question has no answer."""
        return [one.impossible for one in examples]

    def groups(self, examples: Sequence[Question]) -> Sequence[str]:
        """Return the passages: a model that was trained on one would know the answers to other questions about it."""
        return [one.passage for one in examples]

    def encode(
        self, examples: Sequence[Question], encoding: ExampleEncoding, with_targets: bool = True
    ) -> EncodedExamples:
        """Windows of each passage after its question; the target is (0, 0) if the answer is outside of a window."""
        special, length = encoding.special_tokens, encoding.length
        if encoding.stride >= length // 2:
            what = f"data.stride = {encoding.stride} is too much of rows of {length} tokens"
            raise InputError(what, hint=f"use less than {length // 2}")
        questions = encode_texts(encoding.tokenizer, [one.question for one in examples])
        rows, targets, notes = [], [], []
        for number, one in enumerate(examples):
            question = questions[number][: min(LONGEST_QUESTION, length // 2)]
            ids, spans = token_spans(encoding.tokenizer, one.passage)
            room = length - len(question) - special.count(2)
            begin = special.n_start + len(question) + special.n_between
            for start, stop in windows(len(ids), room, encoding.stride or room // 3):
                rows.append(add_special_tokens(special, question, ids[start:stop]))
                notes.append(Window(number, begin, spans[start:stop]))
                targets.append(_target(one, spans[start:stop], begin) if with_targets else (0, 0))
        return EncodedExamples(
            rows=make_rows(rows, np.array(targets, dtype=np.int64).reshape(-1, 2)), notes=tuple(notes)
        )

    def predictions(
        self, examples: Sequence[Question], encoded: EncodedExamples, logits: Sequence[np.ndarray], labels: Labels
    ) -> list[dict[str, Any]]:
        """Return the best span of each question's windows with its score, and how much better no answer is."""
        best: list[tuple[float, int, int]] = [(-np.inf, 0, 0)] * len(examples)
        none = np.full(len(examples), np.inf)
        for window, one in zip(encoded.notes, logits, strict=True):
            none[window.question] = min(none[window.question], float(one[0].sum()))
            score, start, stop = best_span(one[window.begin : window.begin + len(window.spans)])
            if score > best[window.question][0]:
                best[window.question] = score, int(window.spans[start][0]), int(window.spans[stop][1])
        return [
            {
                "id": example.id,
                "answer": example.passage[start:stop],
                "start": start,
                "stop": stop,
                "score": score,
                "no_answer": float(null - score) if np.isfinite(score) else 1e9,
            }
            for example, null, (score, start, stop) in zip(examples, none, best, strict=True)
        ]

    def score(
        self, examples: Sequence[Question], predictions: Sequence[dict[str, Any]], labels: Labels
    ) -> dict[str, Any]:
        """Return exact match and F1 as SQuAD's script counts them.

        If some questions have no answer: at the threshold that predictions carry (training chose it), else at the best.
        """
        given = {one["id"]: one["answer"] for one in predictions}
        wanted = {one.id: [answer.text for answer in one.answers] for one in examples}
        thresholds = [one["threshold"] for one in predictions if "threshold" in one]
        if not thresholds and not any(one.impossible for one in examples):
            return answer_scores(given, wanted).as_dict()
        none = {one["id"]: one["no_answer"] for one in predictions}
        threshold = thresholds[0] if thresholds else answer_scores(given, wanted, none).best_f1_threshold
        assert threshold is not None
        return {**answer_scores(given, wanted, none, threshold=threshold).as_dict(), "threshold": threshold}


def windows(count: int, room: int, shared: int) -> Iterator[tuple[int, int]]:
    """Yield windows (start, stop) of at most ``room`` of ``count`` tokens; neighbours have ``shared`` in common.

    >>> list(windows(10, 6, 2))
    [(0, 6), (4, 10)]
    """
    start = 0
    while True:
        yield start, min(start + room, count)
        if start + room >= count:
            return
        start += max(1, room - shared)


def _target(question: Question, spans: np.ndarray, begin: int) -> tuple[int, int]:
    """Return the positions of the answer's first and last token in a row; (0, 0) if it is not all there."""
    answer = question.answers[0] if question.answers else None
    if question.impossible or answer is None or answer.start < 0 or not len(spans):
        return 0, 0
    start, stop = answer.start, answer.start + len(answer.text)
    inside = np.flatnonzero((spans[:, 1] > start) & (spans[:, 0] < stop) & (spans[:, 1] > spans[:, 0]))
    if not len(inside) or spans[0][0] > start or spans[-1][1] < stop:
        return 0, 0
    return begin + int(inside[0]), begin + int(inside[-1])


def best_span(logits: np.ndarray) -> tuple[float, int, int]:
    """Return the highest s_i + e_j with i ≤ j < i + 30, of logits (T, 2), and its i and j."""
    if not len(logits):
        return -np.inf, 0, 0
    scores = logits[:, None, 0] + logits[None, :, 1]
    ahead = np.arange(len(logits))[None] - np.arange(len(logits))[:, None]
    scores = np.where((ahead >= 0) & (ahead < LONGEST_ANSWER), scores, -np.inf)
    start, stop = np.unravel_index(int(scores.argmax()), scores.shape)
    return float(scores[start, stop]), int(start), int(stop)


ANSWER = LabelTask(Span(), Measure("f1", "F1", ".1f"), Measure("exact_match", "exact match", ".1f"))
