"""Evaluate a masked language model, beside a unigram baseline.

masked loss    −1/M Σ log P(x_i | x̂)          nats per masked token
unigram loss   −1/M Σ log P(x_i)              from counts of the training text with add-one smoothing; without it, of
                                              the text itself, which is harder to beat
accuracy       the share of masked tokens whose most probable token is the true one
next           the accuracy of next-sentence prediction
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ensue.core.errors import InputError
from ensue.train.ranks import SINGLE, Ranks


@dataclass(frozen=True)
class MaskedScore:
    """Figures of a masked language model."""

    loss: float
    """The sum of both objectives, as in training."""
    masked_loss: float
    masked_perplexity: float
    accuracy: float
    unigram_loss: float
    unigram_of: str
    """The text that was counted: training text or this text."""
    hidden: int
    """The number of masked tokens."""
    rows: int
    next_loss: float | None = None
    next_accuracy: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@torch.no_grad()
def masked_score(
    model: Any, batches: Iterable[Any], counts: np.ndarray, unigram_of: str = "training text", ranks: Ranks = SINGLE
) -> MaskedScore:
    """Evaluate a model over batches; ``counts`` (V,) are token counts of the text ``unigram_of``.

    With several ranks, each evaluates some rows of each batch.
    """
    unigram = torch.from_numpy(np.log((counts + 1) / (counts + 1).sum()))
    device = next(model.parameters()).device
    sums = np.zeros(8)
    was_training = model.training
    model.eval()
    try:
        for whole in batches:
            batch, reduction = ranks.local_batch(whole)
            found = _sums(model, batch, unigram, device)
            sums += 0.0 if reduction.idle else found
    finally:
        model.train(was_training)
    fill, right, guess, hidden, rows, follow, told, pairs = (ranks.total(float(value)) for value in sums)
    if not hidden:
        raise InputError("this text has no token to mask", hint="give more text")
    each = fill / hidden
    return MaskedScore(
        loss=each + (follow / pairs if pairs else 0.0),
        masked_loss=each,
        masked_perplexity=math.exp(min(each, 700.0)),
        accuracy=right / hidden,
        unigram_loss=guess / hidden,
        unigram_of=unigram_of,
        hidden=int(hidden),
        rows=int(rows),
        next_loss=follow / pairs if pairs else None,
        next_accuracy=told / pairs if pairs else None,
    )


def _sums(model: Any, batch: Any, unigram: Tensor, device: torch.device) -> np.ndarray:
    """Sums over a batch: masked loss, right tokens, unigram loss, masked tokens, rows; and for pairs their loss, right
    ones, number."""
    args = (batch.tokens, batch.segments, batch.lengths, batch.positions)
    hidden = model.encode(*(x.to(device) for x in args)).hidden
    logits = model.head(hidden[:, 1:][batch.is_masked.to(device)]).float()
    targets = batch.targets.to(device)
    fill = float(torch.nn.functional.cross_entropy(logits, targets, reduction="sum"))
    right = int((logits.argmax(-1) == targets).sum())
    sums = [fill, right, -float(unigram[batch.targets].sum()), len(targets), len(batch.lengths)]
    if batch.not_next is None:
        return np.array([*sums, 0.0, 0.0, 0.0])
    logits, not_next = model.next_logits(hidden[:, 0]).float(), batch.not_next.to(device)
    follow = float(torch.nn.functional.cross_entropy(logits, not_next, reduction="sum"))
    return np.array([*sums, follow, int((logits.argmax(-1) == not_next).sum()), len(not_next)])
