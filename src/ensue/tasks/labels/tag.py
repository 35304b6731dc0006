"""Tag: a label for every word. A word's first token answers for it; the others are not asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ensue.data.conll import read_tagged, read_words
from ensue.data.labelled import Reading, Tagged
from ensue.data.labelled_rows import NOT_ASKED, rows_of
from ensue.data.tokenizers.spans import words_of
from ensue.data.tokenizers.special_tokens import framed
from ensue.measure.entities import are_entities, spans_of, tag_scores
from ensue.tasks.labelled import label_task
from ensue.tasks.labels.kind import Form, Written, label_number, softmax
from ensue.tasks.spec import Measure


@dataclass(frozen=True)
class Tag:
    """A tag a word."""

    name: str = "tag"
    head: str = "token"
    loss: str = "label"
    chosen_by: str = "f1"

    def read(self, files: Sequence[str], how: Reading, notes: list[str]) -> list[Tagged]:
        """The sentences of CoNLL columns."""
        return read_tagged(list(files), how, notes)

    def inputs(self, file: str, columns: str, notes: list[str]) -> list[Tagged]:
        """A sentence a line, or CoNLL columns whose tags are not looked at."""
        return read_words(file, columns, notes)

    def example(self, text: str, where: str) -> Tagged:
        """A sentence, its words between white space."""
        return Tagged(tuple(text.split()), None, where)

    def labels(self, examples: Sequence[Tagged]) -> tuple[str, ...]:
        """O first, then each kind's beginning and inside together."""
        found = {tag for one in examples for tag in one.tags or ()}
        return tuple(sorted(found, key=lambda tag: (tag != "O", tag[2:] if tag[1:2] == "-" else tag, tag)))

    def outputs(self, labels: tuple[str, ...]) -> int:
        """One for each tag."""
        return len(labels)

    def strata(self, examples: Sequence[Tagged]) -> list[Any]:
        """Sentences are not told apart."""
        return [None] * len(examples)

    def together(self, examples: Sequence[Tagged]) -> Sequence[int]:
        """Each is one by itself."""
        return range(len(examples))

    def write(self, examples: Sequence[Tagged], form: Form, wanted: bool = True) -> Written:
        """[CLS] tokens [SEP]; the notes are where each word's first token stands, for words that are there."""
        marks = form.marks
        rows, targets, notes, cut = [], [], [], 0
        for one in examples:
            ids, word = words_of(form.tokenizer, one.words)
            row = framed(marks, ids, None, form.length)
            kept = len(row[0]) - marks.around(1)
            cut += kept < len(ids)
            firsts = marks.before + np.flatnonzero(np.diff(word[:kept], prepend=-1))
            wants = np.full(len(row[0]), NOT_ASKED, dtype=np.int64)
            if wanted and one.tags is not None:
                asked = enumerate(one.tags[: len(firsts)])
                wants[firsts] = [label_number(tag, form.labels, one.at(place)) for place, tag in asked]
            rows.append(row)
            targets.append(wants)
            notes.append(firsts)
        flat = np.concatenate(targets) if targets else np.zeros(0, dtype=np.int64)
        return Written(rows=rows_of(rows, flat, by_token=True), cut=cut, notes=tuple(notes))

    def answers(
        self, examples: Sequence[Tagged], written: Written, logits: Sequence[np.ndarray], form: Form
    ) -> list[dict[str, Any]]:
        """A tag a word, and the entities they make; a word that was cut off is O, or the first tag of all."""
        spare = "O" if "O" in form.labels else form.labels[0]
        entities = are_entities(form.labels)
        found = []
        for example, firsts, one in zip(examples, written.notes, logits, strict=True):
            p = softmax(one[firsts]) if len(firsts) else np.zeros((0, len(form.labels)))
            tags = [form.labels[int(place)] for place in p.argmax(-1)]
            tags += [spare] * (len(example.words) - len(tags))
            answer: dict[str, Any] = {"words": list(example.words), "tags": tags}
            if entities:
                answer["entities"] = [
                    {"type": kind, "start": start, "stop": stop, "text": " ".join(example.words[start:stop])}
                    for kind, start, stop in spans_of(tags)
                ]
            found.append(answer)
        return found

    def score(
        self, examples: Sequence[Tagged], answers: Sequence[dict[str, Any]], labels: tuple[str, ...]
    ) -> dict[str, Any]:
        """Entity F1 as seqeval counts it where tags are entities, else the accuracy of words."""
        wanted = [list(one.tags or ()) for one in examples]
        scores = tag_scores(wanted, [answer["tags"] for answer in answers])
        return {**scores.as_dict(), "examples": len(examples)}


TAG = label_task(
    Tag(),
    Measure("f1", "F1"),
    Measure("precision", "precision"),
    Measure("recall", "recall"),
    Measure("accuracy", "accuracy"),
)
