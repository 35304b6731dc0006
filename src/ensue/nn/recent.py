"""The last few tokens as a state, for n-gram and fixed-window models."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ensue.nn.state import State


@dataclass(frozen=True)
class RecentTokens(State):
    """The last n tokens of each row, oldest first; −1 before the start."""

    tokens: Tensor  # (B, n)

    @staticmethod
    def empty(rows: int, size: int, device: torch.device | None = None) -> RecentTokens:
        """Return a state without tokens."""
        return RecentTokens(torch.full((rows, size), -1, dtype=torch.long, device=device))

    def extend(self, tokens: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, RecentTokens]:
        """Append tokens (B, T); return old and new tokens (B, n + T) and the next state."""
        size = self.tokens.shape[1]
        joined = torch.cat([self.tokens, tokens], dim=1)
        if lengths is None:
            return joined, RecentTokens(joined[:, joined.shape[1] - size :])
        index = lengths[:, None] + torch.arange(size, device=tokens.device)
        return joined, RecentTokens(joined.gather(1, index))
