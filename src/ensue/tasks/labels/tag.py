"""Tag: a label for every word. A word's first token answers for it; the others are not asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ensue.data.conll import read_tagged, read_untagged
from ensue.data.labelled import ReadOptions, TaggedSentence
from ensue.data.labelled_rows import IGNORE_INDEX, make_rows
from ensue.data.tokenizers.spans import encode_words
from ensue.data.tokenizers.special_tokens import add_special_tokens
from ensue.measure.entities import are_entities, spans_of, tag_scores
from ensue.tasks.label_kind import Form, Written, label_number, softmax
from ensue.tasks.labelled import label_task
from ensue.tasks.spec import Measure


@dataclass(frozen=True)
class Tag:
    """A tag a word."""

    name: str = "tag"
    head: str = "token"
    loss: str = "label"
    chosen_by: str = "f1"

    def read(self, files: Sequence[str], how: ReadOptions, notes: list[str]) -> list[TaggedSentence]:
        """The sentences of CoNLL columns."""
        return read_tagged(list(files), how, notes)

    def inputs(self, file: str, columns: str, notes: list[str]) -> list[TaggedSentence]:
        """A sentence a line, or CoNLL columns whose tags are not looked at."""
        return read_untagged(file, columns, notes)

    def example(self, text: str, where: str) -> TaggedSentence:
        """A sentence, its words between white space."""
        return TaggedSentence(tuple(text.split()), None, where)

    def labels(self, examples: Sequence[TaggedSentence]) -> tuple[str, ...]:
        """O first, then each kind's beginning and inside together."""
        found = {tag for one in examples for tag in one.tags or ()}
        return tuple(sorted(found, key=lambda tag: (tag != "O", tag[2:] if tag[1:2] == "-" else tag, tag)))

    def outputs(self, labels: tuple[str, ...]) -> int:
        """One for each tag."""
        return len(labels)

    def strata(self, examples: Sequence[TaggedSentence]) -> list[Any]:
        """Sentences are not told apart."""
        return [None] * len(examples)

    def together(self, examples: Sequence[TaggedSentence]) -> Sequence[int]:
        """Each is one by itself."""
        return range(len(examples))

    def write(self, examples: Sequence[TaggedSentence], form: Form, wanted: bool = True) -> Written:
        """[CLS] tokens [SEP]; the notes are where each word's first token stands, for words that are there."""
        marks = form.marks
        rows, targets, notes, cut = [], [], [], 0
        for one in examples:
            ids, word = encode_words(form.tokenizer, one.words)
            row = add_special_tokens(marks, ids, None, form.length)
            kept = len(row[0]) - marks.count(1)
            cut += kept < len(ids)
            firsts = marks.n_start + np.flatnonzero(np.diff(word[:kept], prepend=-1))
            wants = np.full(len(row[0]), IGNORE_INDEX, dtype=np.int64)
            if wanted and one.tags is not None:
                asked = enumerate(one.tags[: len(firsts)])
                wants[firsts] = [label_number(tag, form.labels, one.where_word(place)) for place, tag in asked]
            rows.append(row)
            targets.append(wants)
            notes.append(firsts)
        flat = np.concatenate(targets) if targets else np.zeros(0, dtype=np.int64)
        return Written(rows=make_rows(rows, flat, per_token=True), cut=cut, notes=tuple(notes))

    def answers(
        self, examples: Sequence[TaggedSentence], written: Written, logits: Sequence[np.ndarray], form: Form
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
        self, examples: Sequence[TaggedSentence], answers: Sequence[dict[str, Any]], labels: tuple[str, ...]
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
