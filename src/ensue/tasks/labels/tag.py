"""Tag: a label for every word. The model labels a word at its first token; its other tokens are ignored."""

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
from ensue.tasks.labels.kind import EncodedExamples, ExampleEncoding, LabelKind, Labels, label_index, softmax
from ensue.tasks.labels.task import LabelTask
from ensue.tasks.spec import Measure


@dataclass(frozen=True)
class Tag(LabelKind):
    """Tag each word."""

    name: str = "tag"
    head: str = "token"
    chosen_by: str = "f1"
    word_tokens: bool = True  # a vector for each word, so that only features make a difference to a tagger with them

    def read(self, files: Sequence[str], options: ReadOptions, notes: list[str]) -> list[TaggedSentence]:
        """Read the sentences of CoNLL columns."""
        return read_tagged(list(files), options, notes)

    def read_inputs(self, file: str, columns: str, notes: list[str]) -> list[TaggedSentence]:
        """Read one sentence per line, or CoNLL columns whose tags are ignored."""
        return read_untagged(file, columns, notes)

    def parse_example(self, text: str, where: str) -> TaggedSentence:
        """Return a sentence, split into words at white space."""
        return TaggedSentence(tuple(text.split()), None, where)

    def texts(self, example: TaggedSentence) -> list[str]:
        """Return the sentence."""
        return [" ".join(example.words)]

    def labels(self, examples: Sequence[TaggedSentence]) -> Labels:
        """Return O first, then the tags of each type together."""
        tags = {tag for one in examples for tag in one.tags or ()}
        return tuple(sorted(tags, key=lambda tag: (tag != "O", tag[2:] if tag[1:2] == "-" else tag, tag)))

    def encode(
        self, examples: Sequence[TaggedSentence], encoding: ExampleEncoding, with_targets: bool = True
    ) -> EncodedExamples:
        """[CLS] tokens [SEP]; the notes are the positions of the words' first tokens, without words that were cut."""
        special = encoding.special_tokens
        rows, targets, notes, cut = [], [], [], 0
        for one in examples:
            ids, word = encode_words(encoding.tokenizer, one.words)
            row = add_special_tokens(special, ids, None, encoding.length)
            kept = len(row[0]) - special.count(1)
            cut += kept < len(ids)
            firsts = special.n_start + np.flatnonzero(np.diff(word[:kept], prepend=-1))
            target = np.full(len(row[0]), IGNORE_INDEX, dtype=np.int64)
            if with_targets and one.tags is not None:
                tags = enumerate(one.tags[: len(firsts)])
                target[firsts] = [label_index(tag, encoding.labels, one.where_word(number)) for number, tag in tags]
            rows.append(row)
            targets.append(target)
            notes.append(firsts)
        flat = np.concatenate(targets) if targets else np.zeros(0, dtype=np.int64)
        return EncodedExamples(rows=make_rows(rows, flat, per_token=True), cut=cut, notes=tuple(notes))

    def predictions(
        self, examples: Sequence[TaggedSentence], encoded: EncodedExamples, logits: Sequence[np.ndarray], labels: Labels
    ) -> list[dict[str, Any]]:
        """Return a tag for each word and their entities; a word that was cut off is O, or has the first tag of all."""
        entities, results = are_entities(labels), []
        for example, firsts, one in zip(examples, encoded.notes, logits, strict=True):
            p = softmax(one[firsts]) if len(firsts) else np.zeros((0, len(labels)))
            tags = [labels[int(index)] for index in p.argmax(-1)]
            tags += ["O" if "O" in labels else labels[0]] * (len(example.words) - len(tags))
            result: dict[str, Any] = {"words": list(example.words), "tags": tags}
            if entities:
                result["entities"] = [
                    {"type": kind, "start": start, "stop": stop, "text": " ".join(example.words[start:stop])}
                    for kind, start, stop in spans_of(tags)
                ]
            results.append(result)
        return results

    def score(
        self, examples: Sequence[TaggedSentence], predictions: Sequence[dict[str, Any]], labels: Labels
    ) -> dict[str, Any]:
        """Return entity F1 as seqeval counts it if tags are entities, else the accuracy of words."""
        scores = tag_scores([list(one.tags or ()) for one in examples], [one["tags"] for one in predictions])
        return {**scores.as_dict(), "examples": len(examples)}


NAMES = {"f1": "F1", "precision": "precision", "recall": "recall", "accuracy": "accuracy"}
TAG = LabelTask(Tag(), *(Measure(key, title) for key, title in NAMES.items()))
