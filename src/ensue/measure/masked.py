"""Evaluate a masked language model, beside a unigram baseline.

masked loss    −1/M Σ log P(x_i | x̂)          nats per masked token
unigram loss   −1/M Σ log P(x_i)              from counts of the training text with add-one smoothing; without it, of
                                              the text itself, which is harder to beat
accuracy       the share of masked tokens whose most probable token is the true one
next           the accuracy of next-sentence prediction
order          the accuracy of sentence-order prediction
replaced       of telling which tokens a generator replaced: the loss in nats a token, the accuracy over all tokens, and
               F1, the harmonic mean of the precision and recall of replaced ones; always saying "not replaced" has the
               accuracy 1 − share, and an F1 of 0
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
from ensue.nn.eval_mode import eval_mode
from ensue.train.masked_objectives import replace_tokens
from ensue.train.ranks import SINGLE, Ranks

PAIR_FIGURES = {"random": "next", "swapped": "order"}
"""How the names of a pair's figures begin, by what the second text is where it does not follow."""


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
    order_loss: float | None = None
    order_accuracy: float | None = None
    generator_bits: float | None = None
    """The masked loss of a generator in bits."""
    replaced_loss: float | None = None
    replaced_accuracy: float | None = None
    replaced_f1: float | None = None
    replaced_share: float | None = None

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
    sums, kind = np.zeros(14), PAIR_FIGURES[model.config.not_next]
    with eval_mode(model):
        for whole in batches:
            batch, reduction = ranks.local_batch(whole)
            batch_sums = _sums(model, batch, unigram, device)
            sums += 0.0 if reduction.idle else batch_sums
    totals = list(map(ranks.total, sums.tolist()))
    masked_loss, right, unigram_loss, masked, rows, pair_loss, pair_right, pairs = totals[:8]
    if not masked:
        raise InputError("this text has no token to mask", hint="give more text")
    mean = masked_loss / masked
    replaced = _replaced_figures(mean, *totals[8:])
    weight = model.config.detection if replaced else 0.0
    return MaskedScore(
        loss=mean + (pair_loss / pairs if pairs else 0.0) + weight * replaced.get("replaced_loss", 0.0),
        masked_loss=mean,
        masked_perplexity=math.exp(min(mean, 700.0)),
        accuracy=right / masked,
        unigram_loss=unigram_loss / masked,
        unigram_of=unigram_of,
        hidden=int(masked),
        rows=int(rows),
        **({f"{kind}_loss": pair_loss / pairs, f"{kind}_accuracy": pair_right / pairs} if pairs else {}),
        **replaced,
    )


def _replaced_figures(
    mean: float, loss: float, right: float, found: float, said: float, tokens: float, replaced: float
) -> dict[str, float]:
    """The figures of a discriminator, none without one; ``found`` are replaced tokens of which it ``said`` so."""
    if not tokens:
        return {}
    return {
        "generator_bits": mean / math.log(2),
        "replaced_loss": loss / tokens,
        "replaced_accuracy": right / tokens,
        "replaced_f1": 2 * found / max(said + replaced, 1.0),
        "replaced_share": replaced / tokens,
    }


def _sums(model: Any, batch: Any, unigram: Tensor, device: torch.device) -> np.ndarray:
    """Sums over a batch: masked loss, right tokens, unigram loss, masked tokens, rows; loss, right ones and number of
    sentence pairs; those of ``_replaced_sums``."""
    args = (batch.tokens, batch.segments, batch.lengths, batch.positions)
    hidden = model.encode(*(x.to(device) for x in args)).hidden
    masked = hidden[:, 1:][batch.is_masked.to(device)]
    logits, targets = model.head(masked).float(), batch.targets.to(device)
    loss, right = _loss_and_right(logits, targets)
    sums = [loss, right, -float(unigram[batch.targets].sum()), len(targets), len(batch.lengths)]
    pairs = [0.0, 0.0, 0]
    if batch.not_next is not None:
        found = _loss_and_right(model.next_logits(hidden[:, 0]).float(), batch.not_next.to(device))
        pairs = [*found, len(batch.not_next)]
    return np.array([*sums, *pairs, *_replaced_sums(model, batch, masked, device)])


def _replaced_sums(model: Any, batch: Any, masked: Tensor, device: torch.device) -> list[float]:
    """Loss, right tokens, replaced ones that are found, tokens that are called replaced, tokens, replaced ones."""
    if not hasattr(model, "replaced_logits"):
        return [0.0] * 6
    drawn = model.sample(masked, batch.noise.to(device)).cpu()
    tokens, replaced = replace_tokens(batch, drawn)
    parts = (tokens, batch.segments, batch.lengths)
    logits = model.replaced_logits(*(x.to(device) for x in parts)).float().cpu()
    real = torch.arange(tokens.shape[1]) < batch.lengths[:, None]
    logits, wanted = logits[real], replaced[real]
    loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, wanted.float(), reduction="sum")
    said = logits > 0
    counts = (said == wanted, said & wanted, said, torch.ones_like(said), wanted)
    return [float(loss), *(float(one.sum()) for one in counts)]


def _loss_and_right(logits: Tensor, targets: Tensor) -> tuple[float, int]:
    """The summed cross-entropy, and the number of right predictions."""
    loss = float(torch.nn.functional.cross_entropy(logits, targets, reduction="sum"))
    return loss, int((logits.argmax(-1) == targets).sum())
