"""Training objectives of masked language modelling.

    masked     −log P(x_i | x̂) at masked positions, and −log P(B follows A, or not) if rows are pairs
    replaced   −log P_G(x_i | x̂) at masked positions, and λ times the loss of telling which tokens were replaced by
               draws from P_G (ELECTRA)

Legend: B rows, T tokens, K masked positions of a row, M masked positions in all.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ensue.nn.state import State
from ensue.train.loss_reduction import LOCAL, LossAndState, LossReduction
from ensue.train.objectives import Objective


def masked_language_loss(model: Any, batch: Any, state: State | None, reduction: LossReduction = LOCAL) -> LossAndState:
    """The masked language modelling loss, plus the loss of pairs if rows are pairs."""
    fill, follow = masked_losses(model, batch)
    fill = reduction.scale_mean(fill, len(batch.targets))
    return (fill if follow is None else fill + reduction.scale_mean(follow, len(batch.tokens))), None


def masked_losses(model: Any, batch: Any) -> tuple[Tensor, Tensor | None]:
    """Return both losses: in nats a masked token, and in nats a pair."""
    hidden = model.encode(batch.tokens, batch.segments, batch.lengths, batch.positions).hidden  # (B, 1 + K, D)
    fill = model.masked_loss(hidden[:, 1:][batch.is_masked], batch.targets)
    follow = None if batch.not_next is None else model.next_loss(hidden[:, 0], batch.not_next)
    return fill, follow


class Replaced(NamedTuple):
    """Rows of which some tokens were replaced."""

    tokens: Tensor
    """(B, T)."""
    replaced: Tensor
    """(B, T), bool: which differ from the text."""


def replace_tokens(batch: Any, drawn: Tensor) -> Replaced:
    """Put what was drawn (M,) where a batch is masked; a draw that equals the text replaces nothing."""
    rows = torch.arange(len(batch.tokens), device=drawn.device)[:, None].expand_as(batch.positions)
    where = rows[batch.is_masked], batch.positions[batch.is_masked]
    tokens, replaced = batch.tokens.clone(), torch.zeros_like(batch.tokens, dtype=torch.bool)
    tokens[where], replaced[where] = drawn, drawn != batch.targets
    return Replaced(tokens, replaced)


def replaced_token_loss(model: Any, batch: Any, state: State | None, reduction: LossReduction = LOCAL) -> LossAndState:
    """The generator's loss plus λ times the discriminator's."""
    fill, detect = replaced_token_losses(model, batch)
    count = len(batch.tokens) * batch.tokens.shape[1] if batch.lengths is None else batch.lengths.sum()
    fill = reduction.scale_mean(fill, len(batch.targets))
    return fill + model.config.detection * reduction.scale_mean(detect, count), None


def replaced_token_losses(model: Any, batch: Any) -> tuple[Tensor, Tensor]:
    """Return both losses: in nats a masked token, and in nats a token."""
    hidden = model.encode(batch.tokens, batch.segments, batch.lengths, batch.positions).hidden[:, 1:][batch.is_masked]
    fill = model.masked_loss(hidden, batch.targets)
    tokens, replaced = replace_tokens(batch, model.sample(hidden, batch.noise))
    return fill, model.replaced_loss(tokens, batch.segments, batch.lengths, replaced)


MASKED_OBJECTIVES: dict[str, Objective] = {"masked": masked_language_loss, "replaced": replaced_token_loss}
"""Objectives by the name in a model's ``objective``."""
