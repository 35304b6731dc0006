"""The loss of a batch of full rows, for each kind of training: what ``ensue cost`` counts a training step of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from ensue.data.batches import Batch
from ensue.data.spans import SpanOptions, fitting_sizes
from ensue.train.masked_objectives import MASKED_OBJECTIVES
from ensue.train.objectives import OBJECTIVES, context_loss
from ensue.train.settings import TrainSettings

MASK_SHARE = 0.15
"""The default share of masked tokens."""


def _tokens(rows: int, length: int) -> Tensor:
    return torch.zeros(rows, length, dtype=torch.long)


def language_loss(model: Any, rows: int, length: int, settings: TrainSettings | None) -> Tensor:
    """The loss of a language model."""
    tokens = _tokens(rows, length)
    return OBJECTIVES[model.objective](model, Batch(tokens, tokens, reset_state=True), None)[0]


def translation_loss(model: Any, rows: int, length: int, settings: TrainSettings | None) -> Tensor:
    """The loss of a translation model, for sources as long as the targets."""
    tokens = _tokens(rows, length)
    smoothing = float(getattr(settings, "label_smoothing", 0.0))
    loss: Tensor = model.loss(tokens, tokens, model.start(tokens), None, smoothing, keep_state=False)[0]
    return loss


def span_loss(model: Any, rows: int, length: int, settings: TrainSettings | None) -> Tensor:
    """The loss of a model that fills in spans, for sources of this length."""
    options = SpanOptions(share=getattr(settings, "lost", 0.15), mean=getattr(settings, "mean_span", 3.0))
    tokens = _tokens(rows, fitting_sizes(max(length, 8), options).target)
    loss: Tensor = model.loss(tokens, tokens, model.start(_tokens(rows, length)), None, keep_state=False)[0]
    return loss


def masked_loss(model: Any, rows: int, length: int, settings: TrainSettings | None) -> Tensor:
    """The loss of a masked language model, with that of pairs, or of replaced tokens, if it is trained on them."""
    tokens, pairs = _tokens(rows, length), model.config.next_sentence
    positions = _tokens(rows, max(1, round(length * float(getattr(settings, "mask", MASK_SHARE)))))
    batch = SimpleNamespace(
        tokens=tokens,
        positions=positions,
        is_masked=torch.ones_like(positions, dtype=torch.bool),
        targets=positions.flatten(),
        noise=torch.zeros(positions.numel()),
        segments=tokens if pairs else None,
        not_next=tokens[:, 0] if pairs else None,
        lengths=None,
    )
    return MASKED_OBJECTIVES[model.objective](model, batch, None)[0]


def contexts_loss(model: Any, rows: int, length: int, settings: TrainSettings | None) -> Tensor:
    """The loss of a model of words in context."""
    tokens = _tokens(rows, length)
    return context_loss(model, Batch(tokens, _tokens(rows, length), True, torch.full((rows,), length)), None)[0]
