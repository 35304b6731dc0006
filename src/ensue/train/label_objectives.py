"""Training objectives of classification, tagging, regression and span extraction.

    label      −log p(y | x), of whole texts, of choices, or of each labelled token
    number     (y − ŷ)²
    span       ½ (−log p(start) − log p(end)), over positions that are not padding

Legend: B rows, T tokens, Y labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ensue.data.labelled_rows import IGNORE_INDEX
from ensue.nn.state import State
from ensue.train.loss_reduction import LOCAL, LossAndState, LossReduction


@dataclass(frozen=True)
class LabelLoss:
    """The loss of labels, numbers or spans."""

    kind: str = "label"
    """label, number or span."""
    weights: Tensor | None = None
    """Weight of each label (Y,)."""
    smoothing: float = 0.0
    """Label smoothing."""
    language: float = 0.0
    """λ in L = L_label + λ L_language, with the loss of the next token (Radford et al., 2018)."""

    def __call__(self, model: Any, batch: Any, state: State | None, reduction: LossReduction = LOCAL) -> LossAndState:
        """Return the mean over targets that are not ignored."""
        answer = model(batch.tokens, batch.segments, batch.lengths)
        loss = reduction.scale_mean(self.of(answer.logits, batch.targets, batch.lengths), self.weight_of(batch.targets))
        if self.language:
            loss = loss + self.language * next_loss(model, answer.hidden, batch, reduction)
        return loss, None

    def weight_of(self, targets: Tensor) -> Tensor | float:
        """Return the denominator of the mean: the number of targets that are not ignored, or the sum of weights."""
        if self.kind != "label":
            return len(targets)
        counted = targets != IGNORE_INDEX
        return counted.sum() if self.weights is None else self.weights.to(targets.device)[targets[counted]].sum()

    def of(self, logits: Tensor, targets: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return the mean loss of given logits; spans need the lengths of rows."""
        if self.kind == "number":
            return F.mse_loss(logits[..., 0], targets.to(logits.dtype))
        if self.kind == "span":
            assert lengths is not None
            return span_loss(logits, targets, lengths)
        weights = None if self.weights is None else self.weights.to(logits.device, logits.dtype)
        return F.cross_entropy(
            logits.flatten(0, -2), targets.flatten(), weights, ignore_index=IGNORE_INDEX, label_smoothing=self.smoothing
        )


def next_loss(model: Any, hidden: Tensor, batch: Any, reduction: LossReduction) -> Tensor:
    """Return the mean loss of the next token, an auxiliary loss beside that of labels."""
    loss: Tensor = model.language_loss(hidden, batch.tokens, batch.lengths)
    return reduction.scale_mean(loss, (batch.lengths - 1).clamp(min=0).sum())


def span_loss(logits: Tensor, targets: Tensor, lengths: Tensor) -> Tensor:
    """½ (−log p(start) − log p(end)) of logits (B, T, 2) and targets (B, 2)."""
    real = torch.arange(logits.shape[1], device=logits.device) < lengths[:, None]
    scores = logits.masked_fill(~real[..., None], float("-inf"))
    return (F.cross_entropy(scores[..., 0], targets[:, 0]) + F.cross_entropy(scores[..., 1], targets[:, 1])) / 2
