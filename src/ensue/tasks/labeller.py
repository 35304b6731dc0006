"""A labelling model between its tokenizer and its task: examples in, answers out, in the order they came.

Rows of similar lengths are read together, the longest first, so nearly nothing is padded. With ``int8`` the linear
layers compute in eight bits (dynamic quantisation: weights once, activations as they come).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ensue.core.events import Abandoned, Report, silent
from ensue.data.labelled_rows import LabelledRows, evaluation_batches, make_batch
from ensue.models.labelled import Labelled
from ensue.tasks.label_kind import Form, LabelKind, Written

AT_ONCE = 2048
"""Tokens that are read at once: enough for the matrix products; more gains nothing and takes memory."""


@dataclass(frozen=True)
class Labeller:
    """A model that answers about examples."""

    model: Labelled
    kind: LabelKind
    form: Form
    threshold: float | None = None
    """Of no answer (answer), as training chose it."""

    def answers(self, examples: Sequence[Any], report: Report = silent) -> list[Any]:
        """What the model says of each example."""
        written = self.kind.write(examples, self.form, wanted=False)
        tell_cut([written], self.form, report)
        found = self.kind.answers(examples, written, self.logits(written, report), self.form)
        if self.threshold is None:
            return found
        none = {"answer": "", "start": 0, "stop": 0}
        return [{**one, **(none if one["no_answer"] > self.threshold else {})} for one in found]

    def logits(self, written: Written, report: Report = silent) -> list[np.ndarray]:
        """The model's logits of every row (of every example, where it has several rows)."""
        return logits_of(self.model, written.rows, report=report)

    def score(self, examples: Sequence[Any], report: Report = silent) -> tuple[dict[str, Any], list[Any]]:
        """The task's measures on examples with labels, and what the model said."""
        written = self.kind.write(examples, self.form)
        tell_cut([written], self.form, report)
        found = self.kind.answers(examples, written, self.logits(written, report), self.form)
        if self.threshold is not None:
            found = [{**one, "threshold": self.threshold} for one in found]
        return self.kind.score(examples, found, self.form.labels), found


def tell_cut(parts: Sequence[Written], form: Form, report: Report) -> None:
    """Say how many texts were too long and lost their end."""
    count, total = sum(part.cut for part in parts), sum(len(part.rows) for part in parts)
    if count:
        what = f"{count:,} of {total:,} texts are longer than {form.length} tokens and were cut"
        report("note", {"text": f"{what} (data.length)"})


@torch.inference_mode()
def logits_of(
    model: Labelled,
    rows: LabelledRows,
    at_once: int = AT_ONCE,
    report: Report = silent,
    stop: Callable[[], bool] = lambda: False,
) -> list[np.ndarray]:
    """Logits of every example, in order: (Y,), or (T, Y) at the tokens of its row."""
    model.choices = rows.rows_per_example  # a folder of another tool does not say how many choices there were
    result: list[np.ndarray] = [np.zeros(0)] * len(rows)
    done = 0
    for examples, logits, lengths in _batches(model, rows, at_once):
        if stop():
            raise Abandoned
        for place, example in enumerate(examples.tolist()):
            one = logits[place]
            result[example] = one[: int(lengths[place])] if one.ndim > 1 else one
        done += len(examples)
        report("progress", {"done": done, "total": len(rows)})
    return result


def _batches(model: Labelled, rows: LabelledRows, at_once: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    try:
        for examples in evaluation_batches(rows, at_once) if len(rows) else ():
            batch = make_batch(rows, examples)
            even = bool((batch.lengths == batch.tokens.shape[1]).all())
            lengths = None if even else batch.lengths.to(device)
            answer = model(batch.tokens.to(device), batch.segments.to(device), lengths)
            yield examples, answer.logits.float().cpu().numpy(), batch.lengths.numpy()
    finally:
        model.train(was_training)
