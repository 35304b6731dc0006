"""Choose: which of several continuations fits a context (SWAG's form). Each is read with the context, as a pair."""

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
from ensue.tasks.label_kind import Form, Written, softmax
from ensue.tasks.labelled import label_task
from ensue.tasks.spec import Measure


@dataclass(frozen=True)
class Choose:
    """One of several."""

    name: str = "choose"
    head: str = "choice"
    loss: str = "label"
    chosen_by: str = "accuracy"

    def read(self, files: Sequence[str], how: ReadOptions, notes: list[str]) -> list[ChoiceQuestion]:
        """The examples of tables; all have as many choices."""
        found = read_choices(list(files), how, notes)
        for one in found:
            if len(one.choices) != len(found[0].choices):
                what = f"{len(one.choices)} choices where the first example has {len(found[0].choices)}"
                raise InputError(what, where=one.where, hint="give as many to every context")
        return found

    def inputs(self, file: str, columns: str, notes: list[str]) -> list[ChoiceQuestion]:
        """The examples of a table; labels are not looked at."""
        return self.read([file], ReadOptions(columns, require_labels=False), notes)

    def example(self, text: str, where: str) -> ChoiceQuestion:
        """A context and its choices, with tabs between."""
        context, *choices = text.split("\t")
        if len(choices) < 2:
            raise InputError(
                "there is nothing to choose from", where=where, hint="put tabs between context and choices"
            )
        return ChoiceQuestion(context, tuple(choices), None, where)

    def labels(self, examples: Sequence[ChoiceQuestion]) -> tuple[str, ...]:
        """The choices by their numbers."""
        return tuple(str(place) for place in range(len(examples[0].choices)))

    def outputs(self, labels: tuple[str, ...]) -> int:
        """How well a choice fits."""
        return 1

    def strata(self, examples: Sequence[ChoiceQuestion]) -> list[Any]:
        """Which is right is chance."""
        return [None] * len(examples)

    def together(self, examples: Sequence[ChoiceQuestion]) -> Sequence[int]:
        """Each is one by itself."""
        return range(len(examples))

    def write(self, examples: Sequence[ChoiceQuestion], form: Form, wanted: bool = True) -> Written:
        """[CLS] context [SEP] choice [SEP], a row for each choice."""
        marks, each = form.marks, len(form.labels) or len(examples[0].choices)
        rows, cut = [], 0
        contexts = encode_texts(form.tokenizer, [one.context for one in examples])
        choices = encode_texts(form.tokenizer, [choice for one in examples for choice in one.choices])
        for place, one in enumerate(examples):
            if len(one.choices) != each:
                raise InputError(f"{len(one.choices)} choices where the model has {each}", where=one.where)
            for ids in choices[place * each : (place + 1) * each]:
                rows.append(add_special_tokens(marks, contexts[place], ids, form.length))
                cut += len(contexts[place]) + len(ids) + marks.count(2) > form.length
        targets = [0 if one.label is None else one.label for one in examples]
        return Written(rows=make_rows(rows, np.array(targets, dtype=np.int64), each), cut=cut)

    def answers(
        self, examples: Sequence[ChoiceQuestion], written: Written, logits: Sequence[np.ndarray], form: Form
    ) -> list[dict[str, Any]]:
        """The number of the best choice, from 0, and the probabilities of all."""
        found = []
        for example, one in zip(examples, logits, strict=True):
            p = softmax(one)
            best = int(p.argmax())
            found.append({"choice": best, "text": example.choices[best], "probabilities": [float(x) for x in p]})
        return found

    def score(
        self, examples: Sequence[ChoiceQuestion], answers: Sequence[dict[str, Any]], labels: tuple[str, ...]
    ) -> dict[str, Any]:
        """The share that is right."""
        right = sum(one.label == answer["choice"] for one, answer in zip(examples, answers, strict=True))
        chance = sum(1 / len(one.choices) for one in examples) / len(examples)
        return {"accuracy": right / len(examples), "chance": chance, "examples": len(examples)}


CHOOSE = label_task(Choose(), Measure("accuracy", "accuracy"))
