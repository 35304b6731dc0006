"""Objectives: what a model is trained to do, as a loss over a batch.

The loss is the mean over tokens, J = −1/N Σ_t log P(x_{t+1} | x_≤t), in nats a token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ensue.nn.state import State


class Objective(Protocol):
    """A loss over a batch, and the state to carry to the next one."""

    def __call__(self, model: nn.Module, batch: Any, state: State | None) -> tuple[Tensor, State | None]:
        """The mean loss (a scalar) and the state after the batch."""
        ...


def next_token(model: nn.Module, batch: Any, state: State | None) -> tuple[Tensor, State | None]:
    """−log P of each next token."""
    log_prob, after = model.log_prob(batch.tokens, batch.targets, state, batch.lengths)  # type: ignore[operator]
    return -log_prob.sum() / _tokens(batch), after


def cloze(model: nn.Module, batch: Any, state: State | None) -> tuple[Tensor, State | None]:
    """−log P of each token given all others: the answer at a place is about that place."""
    log_prob, _ = model.log_prob(batch.targets, batch.targets, None, batch.lengths)  # type: ignore[operator]
    return -log_prob.sum() / _tokens(batch), None


@dataclass(frozen=True)
class Translate:
    """−log P of each target token, given the source and the tokens before it, smoothed (see ``Model.cross_entropy``).

    The decoder is fed the true tokens, not its own (teacher forcing).
    """

    smoothing: float = 0.0

    def __call__(self, model: nn.Module, batch: Any, state: State | None) -> tuple[Tensor, None]:
        """The mean over the real target tokens; no state is carried on."""
        start = model.start(batch.source, batch.source_lengths)  # type: ignore[operator]
        hidden = model(batch.tokens, start, batch.lengths, want=("hidden",)).hidden
        real = torch.arange(batch.tokens.shape[1], device=hidden.device) < batch.lengths[:, None]
        return model.cross_entropy(hidden[real], batch.targets[real], self.smoothing).mean(), None  # type: ignore[operator]


def _tokens(batch: Any) -> Any:
    """How many real tokens a batch predicts."""
    return batch.targets.numel() if batch.lengths is None else batch.lengths.sum()


OBJECTIVES: dict[str, Objective] = {"next": next_token, "cloze": cloze}
