"""The training objective of a language model that learns from another one (Hinton et al., 2015; Sanh et al., 2019).

J = (1 − w) mean_t −log P(x_{t+1} | x_≤t) + w τ² mean_t KL(P'_τ ‖ P_τ),     P_τ = softmax(z / τ), P' the teacher's
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ensue.kernels.cross_entropy import full_precision
from ensue.nn.state import State
from ensue.train.loss_reduction import LOCAL, LossAndState, LossReduction

LOGITS_AT_ONCE = 1 << 23
"""Logits of a slice of tokens: 32 MB in float32 for each of the two models."""


@dataclass(frozen=True)
class TokenDistillation:
    """The mean loss of next tokens and of a teacher's distributions of them."""

    teacher: Any
    weight: float = 0.5
    """w."""
    temperature: float = 1.0
    """τ."""

    def __call__(self, model: Any, batch: Any, state: State | None, reduction: LossReduction = LOCAL) -> LossAndState:
        """Return the mean over tokens, and the student's state."""
        output = model(batch.tokens, state, want=("hidden",))
        with torch.no_grad():
            known = self.teacher(batch.tokens, want=("hidden", "end")).hidden.flatten(0, 1)
        hidden, targets = output.hidden.flatten(0, 1), batch.targets.flatten()
        step = max(1, LOGITS_AT_ONCE // model.config.vocabulary)
        slices = zip(hidden.split(step), known.split(step), targets.split(step), strict=True)
        total = torch.stack([self._slice(model, *one) for one in slices]).sum() / len(targets)
        return reduction.scale_mean(total, len(targets)), output.state

    def _slice(self, model: Any, hidden: Tensor, known: Tensor, targets: Tensor) -> Tensor:
        """The sum over some tokens."""
        logits = full_precision(model.logits(hidden))
        with torch.no_grad():
            theirs = full_precision(self.teacher.logits(known))[:, : logits.shape[1]] / self.temperature
        own = F.log_softmax(logits / self.temperature, dim=-1)
        apart = F.kl_div(own, F.log_softmax(theirs, dim=-1), reduction="sum", log_target=True)
        usual = F.cross_entropy(logits, targets, reduction="sum")
        return (1 - self.weight) * usual + self.weight * self.temperature**2 * apart
