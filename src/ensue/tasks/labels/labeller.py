"""Run a labelling model on examples, in batches of rows of similar lengths, the longest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ensue.core.events import Report, silent
from ensue.data.labelled_rows import LabelledRows, evaluation_batches, make_batch
from ensue.models.labelled import Labelled
from ensue.nn.eval_mode import eval_mode
from ensue.tasks.labels.kind import EncodedExamples, ExampleEncoding, LabelKind

BATCH_TOKENS = 2048
"""Tokens of a batch: enough for matrix multiplication; more gains nothing and needs memory."""


@dataclass(frozen=True)
class Labeller:
    """A model that labels examples."""

    model: Labelled
    kind: LabelKind
    encoding: ExampleEncoding
    threshold: float | None = None
    """Above it a question has no answer (answer); training chose it."""

    def predict(self, examples: Sequence[Any], report: Report = silent) -> list[Any]:
        """Return a prediction for each example."""
        predictions = self._predictions(examples, False, report)
        if self.threshold is None:
            return predictions
        none = {"answer": "", "start": 0, "stop": 0}
        return [{**one, **(none if one["no_answer"] > self.threshold else {})} for one in predictions]

    def score(self, examples: Sequence[Any], report: Report = silent) -> tuple[dict[str, Any], list[Any]]:
        """Return the task's measures on labelled examples, and the predictions."""
        predictions = self._predictions(examples, True, report)
        if self.threshold is not None:
            predictions = [{**one, "threshold": self.threshold} for one in predictions]
        return self.kind.score(examples, predictions, self.encoding.labels), predictions

    def _predictions(self, examples: Sequence[Any], with_targets: bool, report: Report) -> list[Any]:
        encoded = self.kind.encode(examples, self.encoding, with_targets)
        report_cut([encoded], self.encoding, report)
        logits = compute_logits(self.model, encoded.rows, report=report)
        return self.kind.predictions(examples, encoded, logits, self.encoding.labels)


def report_cut(parts: Sequence[EncodedExamples], encoding: ExampleEncoding, report: Report) -> None:
    """Report how many texts were too long and lost their end."""
    count, total = sum(part.cut for part in parts), sum(len(part.rows) for part in parts)
    if count:
        what = f"{count:,} of {total:,} texts are longer than {encoding.length} tokens and were cut"
        report("note", {"text": f"{what} (data.length)"})


@torch.inference_mode()
def compute_logits(
    model: Labelled, rows: LabelledRows, batch_tokens: int = BATCH_TOKENS, report: Report = silent
) -> list[np.ndarray]:
    """Return the logits of every example in order: (Y,), or (T, Y) at the tokens of its row."""
    model.choices = rows.rows_per_example  # folders of other tools do not name the number of choices
    result: list[np.ndarray] = [np.zeros(0)] * len(rows)
    done, device = 0, next(model.parameters()).device
    with eval_mode(model):
        for examples in evaluation_batches(rows, batch_tokens) if len(rows) else ():
            batch = make_batch(rows, examples)
            even = bool((batch.lengths == batch.tokens.shape[1]).all())
            lengths = None if even else batch.lengths.to(device)
            logits = model(batch.tokens.to(device), batch.segments.to(device), lengths).logits.float().cpu().numpy()
            for example, one, length in zip(examples.tolist(), logits, batch.lengths.tolist()):
                result[example] = one[:length] if one.ndim > 1 else one
            done += len(examples)
            report("progress", {"done": done, "total": len(rows)})
    return result
