"""Answer: the span of a passage that answers a question, or none.

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
from ensue.tasks.label_kind import Form, Written
from ensue.tasks.labelled import label_task
from ensue.tasks.spec import Measure

LONGEST_ANSWER = 30
"""Tokens an answer has at most."""
LONGEST_QUESTION = 64
"""Tokens of a question that are read."""


@dataclass(frozen=True)
class Window:
    """A row of a passage: which question it belongs to, and where its tokens stand."""

    question: int
    begin: int
    """The place of the passage's first token in the row."""
    spans: np.ndarray
    """(tokens of the passage in this row, 2): their characters."""


@dataclass(frozen=True)
class Span:
    """A span of a passage."""

    name: str = "answer"
    head: str = "span"
    loss: str = "span"
    chosen_by: str = "f1"

    def read(self, files: Sequence[str], how: ReadOptions, notes: list[str]) -> list[Question]:
        """The questions of SQuAD's JSON or of tables."""
        return read_questions(list(files), how, notes)

    def inputs(self, file: str, columns: str, notes: list[str]) -> list[Question]:
        """The same; answers are not looked at."""
        return read_questions([file], ReadOptions(columns, require_labels=False, for_training=False), notes)

    def example(self, text: str, where: str) -> Question:
        """A question and its passage, with a tab between."""
        question, tab, passage = text.partition("\t")
        if not tab:
            raise InputError("there is no passage", where=where, hint="put a tab between question and passage")
        return Question(where, question, passage, (), False, where)

    def labels(self, examples: Sequence[Question]) -> tuple[str, ...]:
        """None."""
        return ()

    def outputs(self, labels: tuple[str, ...]) -> int:
        """Start and end."""
        return 2

    def strata(self, examples: Sequence[Question]) -> list[Any]:
        """Whether there is an answer."""
        return [one.impossible for one in examples]

    def together(self, examples: Sequence[Question]) -> Sequence[str]:
        """The passage: who has read it knows more than the question asks."""
        return [one.passage for one in examples]

    def write(self, examples: Sequence[Question], form: Form, wanted: bool = True) -> Written:
        """Windows of each passage after its question; an answer outside of a window is none there."""
        marks = form.marks
        if form.stride >= form.length // 2:
            what = f"data.stride = {form.stride} is too much of rows of {form.length} tokens"
            raise InputError(what, hint=f"use less than {form.length // 2}")
        questions = encode_texts(form.tokenizer, [one.question for one in examples])
        rows, targets, notes = [], [], []
        for number, one in enumerate(examples):
            asked = questions[number][: min(LONGEST_QUESTION, form.length // 2)]
            ids, spans = token_spans(form.tokenizer, one.passage)
            room = form.length - len(asked) - marks.count(2)
            for start, stop in windows(len(ids), room, form.stride or room // 3):
                begin = marks.n_start + len(asked) + marks.n_between
                rows.append(add_special_tokens(marks, asked, ids[start:stop]))
                notes.append(Window(number, begin, spans[start:stop]))
                targets.append(_target(one, spans[start:stop], begin) if wanted else (0, 0))
        wants = np.array(targets, dtype=np.int64).reshape(-1, 2)
        return Written(rows=make_rows(rows, wants), notes=tuple(notes))

    def answers(
        self, examples: Sequence[Question], written: Written, logits: Sequence[np.ndarray], form: Form
    ) -> list[dict[str, Any]]:
        """The best span of each question's windows with its score, and how much better no answer is."""
        best: list[tuple[float, int, int]] = [(-np.inf, 0, 0)] * len(examples)
        none = np.full(len(examples), np.inf)
        for window, one in zip(written.notes, logits, strict=True):
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
                "no_answer": float(none[place] - score) if np.isfinite(score) else 1e9,
            }
            for place, (example, (score, start, stop)) in enumerate(zip(examples, best, strict=True))
        ]

    def score(
        self, examples: Sequence[Question], answers: Sequence[dict[str, Any]], labels: tuple[str, ...]
    ) -> dict[str, Any]:
        """Exact match and F1 as SQuAD's script counts them, where some have no answer at the threshold that answers
        carry (training's choice), else at the best."""
        given = {one["id"]: one["answer"] for one in answers}
        wanted = {one.id: [answer.text for answer in one.answers] for one in examples}
        thresholds = [one["threshold"] for one in answers if "threshold" in one]
        if not thresholds and not any(one.impossible for one in examples):
            return answer_scores(given, wanted).as_dict()
        none = {one["id"]: one["no_answer"] for one in answers}
        free = answer_scores(given, wanted, none)
        at = thresholds[0] if thresholds else free.best_f1_threshold
        assert at is not None
        return {**answer_scores(given, wanted, none, threshold=at).as_dict(), "threshold": at}


def windows(count: int, room: int, shared: int) -> Iterator[tuple[int, int]]:
    """Stretches of at most ``room`` of ``count`` tokens, neighbours with so many in common.

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
    """The places of the first answer's first and last token in a row; (0, 0) where it is not all there."""
    if question.impossible or not question.answers or not len(spans):
        return 0, 0
    answer = question.answers[0]
    if answer.start < 0:
        return 0, 0
    start, stop = answer.start, answer.start + len(answer.text)
    inside = np.flatnonzero((spans[:, 1] > start) & (spans[:, 0] < stop) & (spans[:, 1] > spans[:, 0]))
    if not len(inside) or spans[0][0] > start or spans[-1][1] < stop:
        return 0, 0
    return begin + int(inside[0]), begin + int(inside[-1])


def best_span(logits: np.ndarray) -> tuple[float, int, int]:
    """The highest s_i + e_j with i ≤ j < i + 30, of logits (T, 2), and its i and j."""
    if not len(logits):
        return -np.inf, 0, 0
    scores = logits[:, None, 0] + logits[None, :, 1]
    ahead = np.arange(len(logits))[None] - np.arange(len(logits))[:, None]
    scores = np.where((ahead >= 0) & (ahead < LONGEST_ANSWER), scores, -np.inf)
    start, stop = np.unravel_index(int(scores.argmax()), scores.shape)
    return float(scores[start, stop]), int(start), int(stop)


ANSWER = label_task(Span(), Measure("f1", "F1", ".1f"), Measure("exact_match", "exact match", ".1f"))
