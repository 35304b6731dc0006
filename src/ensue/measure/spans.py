"""Evaluate a model that fills in spans, beside a unigram baseline.

loss           −1/N Σ log P(y_t | y_<t, x̂)     nats per target token: sentinels, tokens left out, the end
span loss      the same for tokens that were left out only
unigram loss   −1/M Σ log P(y_t)                from counts of the training text with add-one smoothing
accuracy       the share of these whose most probable token, given the true ones before it, is the true one
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from ensue.core.errors import InputError
from ensue.nn.eval_mode import eval_mode
from ensue.train.ranks import SINGLE, Ranks


@dataclass(frozen=True)
class SpanScore:
    """Figures of a model that fills in spans."""

    loss: float
    span_loss: float
    unigram_loss: float
    unigram_of: str
    """The text that was counted: training text or this text."""
    accuracy: float
    lost: int
    """The number of tokens that were left out."""
    rows: int

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@torch.no_grad()
def span_score(
    model: Any,
    batches: Iterable[Any],
    counts: np.ndarray,
    special: list[int],
    unigram_of: str = "training text",
    ranks: Ranks = SINGLE,
) -> SpanScore:
    """Evaluate a model over batches; ``counts`` (V,) are token counts of the text ``unigram_of``.

    ``special`` are the tokens that no text has: sentinels, and the end of a target.
    """
    unigram = torch.from_numpy(np.log((counts + 1) / (counts + 1).sum()))
    device, not_text = next(model.parameters()).device, torch.tensor(special)
    sums = np.zeros(7)
    with eval_mode(model):
        for whole in batches:
            batch, reduction = ranks.local_batch(whole)
            state = model.start(batch.source.to(device), batch.source_lengths.to(device))
            logits = model(batch.tokens.to(device), state).logits.float()
            targets = batch.targets.to(device)
            losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
            lost = ~torch.isin(batch.targets, not_text).flatten()
            right = (logits.argmax(-1) == targets).flatten().cpu()
            known = unigram[batch.targets.flatten()[lost]]
            of_lost = (losses.cpu()[lost].sum(), -known.sum(), right[lost].sum(), lost.sum())
            found = (losses.sum(), *of_lost, len(losses), len(targets))
            sums += 0.0 if reduction.idle else np.array([float(one) for one in found])
    total, span_loss, unigram_loss, right_ones, count, tokens, rows = map(ranks.total, sums.tolist())
    if not count:
        raise InputError("this text has no token to leave out", hint="give more text")
    return SpanScore(
        loss=total / tokens,
        span_loss=span_loss / count,
        unigram_loss=unigram_loss / count,
        unigram_of=unigram_of,
        accuracy=right_ones / count,
        lost=int(count),
        rows=int(rows),
    )
