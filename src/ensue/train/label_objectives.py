"""What labelling and filling in ask of a model, as losses over a batch.

    label      −log p(y | x), of whole texts, of choices, or of each token that is asked about
    number     (y − ŷ)²
    span       ½ (−log p(start) − log p(end)), over the places of the row that are real
    masked     −log P(x_i | x̂) at hidden places, and −log P(B follows A or not) where rows are pairs

Legend: B rows, T tokens, Y labels, M hidden places.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ensue.data.labelled_rows import IGNORE_INDEX
from ensue.nn.state import State
from ensue.train.loss_reduction import ALONE, Pool


@dataclass(frozen=True)
class Label:
    """−log p of what is wanted."""

    kind: str = "label"
    """label, number or span."""
    weights: Tensor | None = None
    """(Y,): how much each label counts."""
    smoothing: float = 0.0
    language: float = 0.0
    """The weight of the loss of the next token (Radford et al., 2018): L = L_label + λ L_language."""

    def __call__(self, model: nn.Module, batch: Any, state: State | None, pool: Pool = ALONE) -> tuple[Tensor, None]:
        """The mean over what is asked; no state is carried on."""
        answer = model(batch.tokens, batch.segments, batch.lengths)
        loss = pool.share(self.of(answer.logits, batch.targets, batch.lengths), self.weight_of(batch.targets))
        if self.language:
            loss = loss + self.language * next_loss(model, answer.hidden, batch, pool)
        return loss, None

    def weight_of(self, targets: Tensor) -> Tensor | float:
        """What the mean loss of these is over: how many are asked about, each as its label counts."""
        if self.kind != "label":
            return len(targets)
        asked = targets != IGNORE_INDEX
        return asked.sum() if self.weights is None else self.weights.to(targets.device)[targets[asked]].sum()

    def of(self, logits: Tensor, targets: Tensor, lengths: Tensor | None = None) -> Tensor:
        """The mean loss of given answers; spans need to know how many places are real."""
        if self.kind == "number":
            return F.mse_loss(logits[..., 0], targets.to(logits.dtype))
        if self.kind == "span":
            assert lengths is not None
            return span_loss(logits, targets, lengths)
        weights = None if self.weights is None else self.weights.to(logits.device, logits.dtype)
        return F.cross_entropy(
            logits.flatten(0, -2),
            targets.flatten(),
            weights,
            ignore_index=IGNORE_INDEX,
            label_smoothing=self.smoothing,
        )


def next_loss(model: Any, hidden: Tensor, batch: Any, pool: Pool) -> Tensor:
    """The mean loss of the next token, beside that of labels."""
    loss: Tensor = model.language_loss(hidden, batch.tokens, batch.lengths)
    return pool.share(loss, (batch.lengths - 1).clamp(min=0).sum())


def span_loss(logits: Tensor, targets: Tensor, lengths: Tensor) -> Tensor:
    """½ (−log p(start) − log p(end)) of logits (B, T, 2) and targets (B, 2)."""
    real = torch.arange(logits.shape[1], device=logits.device) < lengths[:, None]
    scores = logits.masked_fill(~real[..., None], float("-inf"))
    return (F.cross_entropy(scores[..., 0], targets[:, 0]) + F.cross_entropy(scores[..., 1], targets[:, 1])) / 2


def masked(model: nn.Module, batch: Any, state: State | None, pool: Pool = ALONE) -> tuple[Tensor, None]:
    """The masked loss, and with pairs that of the next sentence; no state is carried on."""
    fill, follow = masked_losses(model, batch)
    fill = pool.share(fill, len(batch.targets))
    return (fill if follow is None else fill + pool.share(follow, len(batch.tokens))), None


def masked_losses(model: Any, batch: Any) -> tuple[Tensor, Tensor | None]:
    """Both losses: in nats a hidden token, and in nats a pair."""
    found = model.encode(batch.tokens, batch.segments, batch.lengths, batch.positions).hidden  # (B, 1 + K, D)
    fill = model.masked_loss(found[:, 1:][batch.is_masked], batch.targets)
    follow = None if batch.not_next is None else model.next_loss(found[:, 0], batch.not_next)
    return fill, follow
