"""How well an encoder fills in what is hidden, beside what one would say who knows only how often each token occurs.

masked loss    −1/M Σ log P(x_i | x̂)          nats a hidden token
unigram loss   −1/M Σ log P(x_i)              counts of the text it learnt from, one added to each; where that is not at
                                              hand, of the text itself, which is harder to beat
accuracy       the share of hidden tokens whose likeliest filling is the true one
next           the share of pairs of which it says rightly whether the second text follows the first
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
    """What filling in showed."""

    loss: float
    """Of both objectives together, as training has it."""
    masked_loss: float
    masked_perplexity: float
    accuracy: float
    unigram_loss: float
    unigram_of: str
    """Whose counts these are: of the training text, or of this text."""
    hidden: int
    """How many tokens were hidden."""
    rows: int
    next_loss: float | None = None
    next_accuracy: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@torch.no_grad()
def masked_score(
    model: Any,
    batches: Iterable[Any],
    counts: np.ndarray,
    unigram_of: str = "training text",
    ranks: Ranks = SINGLE,
) -> MaskedScore:
    """A model's figures over batches; ``counts`` (V,) say how often each token occurs in the text ``unigram_of``.

    Several ranks read some rows of each batch.
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
    fill, right, guess, hidden, rows, follow, told, pairs = (ranks.total(float(one)) for one in sums)
    if not hidden:
        raise InputError("there is nothing to hide in this text", hint="give more text")
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
    """Over a batch: the losses of hidden tokens, how many are right, a unigram's losses, how many there are, rows; and
    the losses of pairs, how many are told right, how many there are."""
    args = (batch.tokens, batch.segments, batch.lengths, batch.positions)
    found = model.encode(*(x.to(device) for x in args)).hidden
    logits = model.head(found[:, 1:][batch.is_masked.to(device)]).float()
    targets = batch.targets.to(device)
    fill = float(torch.nn.functional.cross_entropy(logits, targets, reduction="sum"))
    right = int((logits.argmax(-1) == targets).sum())
    sums = [fill, right, -float(unigram[batch.targets].sum()), len(targets), len(batch.lengths)]
    if batch.not_next is None:
        return np.array([*sums, 0.0, 0.0, 0.0])
    said, other = model.next_logits(found[:, 0]).float(), batch.not_next.to(device)
    follow = float(torch.nn.functional.cross_entropy(said, other, reduction="sum"))
    return np.array([*sums, follow, int((said.argmax(-1) == other).sum()), len(other)])
