"""The last few tokens as a state: what an n-gram and a fixed window remember."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ensue.nn.state import State


@dataclass(frozen=True)
class RecentTokens(State):
    """The last n tokens of each row, oldest first; −1 where there was none yet."""

    tokens: Tensor  # (B, n)

    @staticmethod
    def empty(rows: int, size: int, device: torch.device | None = None) -> RecentTokens:
        """Nothing seen so far."""
        return RecentTokens(torch.full((rows, size), -1, dtype=torch.long, device=device))

    def extend(self, tokens: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, RecentTokens]:
        """Old and new tokens side by side (B, n + T), and the state after the new ones (B, T)."""
        size = self.tokens.shape[1]
        joined = torch.cat([self.tokens, tokens], dim=1)
        if lengths is None:
            return joined, RecentTokens(joined[:, joined.shape[1] - size :])
        index = lengths[:, None] + torch.arange(size, device=tokens.device)
        return joined, RecentTokens(joined.gather(1, index))
