"""Choose: which of several continuations fits a context (SWAG's format). Each is read with the context, as a pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ensue.core.errors import InputError
from ensue.data.choices import read_choices
from ensue.data.labelled import ChoiceQuestion, ReadOptions
from ensue.data.labelled_rows import make_rows
from ensue.data.tokenizers.protocol import encode_texts
from ensue.data.tokenizers.special_tokens import add_special_tokens
from ensue.tasks.labels.kind import EncodedExamples, ExampleEncoding, LabelKind, Labels, softmax
from ensue.tasks.labels.task import LabelTask
from ensue.tasks.spec import Measure


@dataclass(frozen=True)
class Choose(LabelKind):
    """Choose one of several continuations."""

    name: str = "choose"
    head: str = "choice"

    def read(self, files: Sequence[str], options: ReadOptions, notes: list[str]) -> list[ChoiceQuestion]:
        """Read the examples of tables; all must have the same number of choices."""
        examples = read_choices(list(files), options, notes)
        for one in examples:
            if len(one.choices) != len(examples[0].choices):
                what = f"{len(one.choices)} choices where the first example has {len(examples[0].choices)}"
                raise InputError(what, where=one.where, hint="give as many to every context")
        return examples

    def read_inputs(self, file: str, columns: str, notes: list[str]) -> list[ChoiceQuestion]:
        """Read the examples of a table; labels are ignored."""
        return self.read([file], ReadOptions(columns, require_labels=False), notes)

    def parse_example(self, text: str, where: str) -> ChoiceQuestion:
        """Return a context and its choices, which have tabs between them."""
        context, *choices = text.split("\t")
        if len(choices) < 2:
            hint = "put tabs between context and choices"
            raise InputError("there is nothing to choose from", where=where, hint=hint)
        return ChoiceQuestion(context, tuple(choices), None, where)

    def texts(self, example: ChoiceQuestion) -> list[str]:
        """Return the context and the choices."""
        return [example.context, *example.choices]

    def labels(self, examples: Sequence[ChoiceQuestion]) -> Labels:
        """Return the numbers of the choices."""
        return tuple(map(str, range(len(examples[0].choices))))

    def outputs(self, labels: Labels) -> int:
        """Return 1: how well a choice fits."""
        return 1

    def encode(
        self, examples: Sequence[ChoiceQuestion], encoding: ExampleEncoding, with_targets: bool = True
    ) -> EncodedExamples:
        """[CLS] context [SEP] choice [SEP], a row for each choice."""
        special, each = encoding.special_tokens, len(encoding.labels) or len(examples[0].choices)
        rows, cut = [], 0
        contexts = encode_texts(encoding.tokenizer, [one.context for one in examples])
        choices = encode_texts(encoding.tokenizer, [choice for one in examples for choice in one.choices])
        for i, one in enumerate(examples):
            if len(one.choices) != each:
                raise InputError(f"{len(one.choices)} choices where the model has {each}", where=one.where)
            for ids in choices[i * each : (i + 1) * each]:
                rows.append(add_special_tokens(special, contexts[i], ids, encoding.length))
                cut += len(contexts[i]) + len(ids) + special.count(2) > encoding.length
        targets = np.array([one.label or 0 for one in examples], dtype=np.int64)
        return EncodedExamples(rows=make_rows(rows, targets, each), cut=cut)

    def predictions(
        self, examples: Sequence[ChoiceQuestion], encoded: EncodedExamples, logits: Sequence[np.ndarray], labels: Labels
    ) -> list[dict[str, Any]]:
        """Return the number of the best choice, from 0, and the probabilities of all."""
        results = []
        for example, one in zip(examples, logits, strict=True):
            p = softmax(one)
            best = int(p.argmax())
            results.append({"choice": best, "text": example.choices[best], "probabilities": p.tolist()})
        return results

    def score(
        self, examples: Sequence[ChoiceQuestion], predictions: Sequence[dict[str, Any]], labels: Labels
    ) -> dict[str, Any]:
        """Return the accuracy, and that of guessing."""
        right = sum(one.label == predicted["choice"] for one, predicted in zip(examples, predictions, strict=True))
        chance = sum(1 / len(one.choices) for one in examples) / len(examples)
        return {"accuracy": right / len(examples), "chance": chance, "examples": len(examples)}


CHOOSE = LabelTask(Choose(), Measure("accuracy", "accuracy"))
