"""Dropout, and two forms of it for recurrent networks.

    y = x ∘ m / (1 − p),  m_i = 1 with probability 1 − p, else 0          (Srivastava et al., 2014)

On the CPU p is rounded to a multiple of 1/256 (see ensue.kernels.dropout).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ensue.kernels.dropout import dropout, dropout_add


class Dropout(nn.Module):
    """Sets units to zero at random while training; the same as ``nn.Dropout`` up to the rounding of p."""

    def __init__(self, p: float = 0.0) -> None:
        super().__init__()
        self.p = p

    def extra_repr(self) -> str:
        """The text that ``print(model)`` shows."""
        return f"p={self.p}"

    @property
    def active(self) -> bool:
        """True while training with p > 0."""
        return self.training and self.p > 0

    @property
    def rate(self) -> float:
        """The probability that applies now: p while training, else 0."""
        return self.p if self.training else 0.0

    def forward(self, x: Tensor) -> Tensor:
        """(…) → (…)."""
        return dropout(x, self.p) if self.active else x

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """x + dropout(y), the end of a residual path."""
        return dropout_add(x, y, self.rate)


class LockedDropout(Dropout):
    """One mask a row for all time steps: y_t = x_t ∘ m / (1 − p) (variational; Gal and Ghahramani, 2016).

    A dropped unit stays dropped for the whole row, so it cannot be read at the next step instead.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) → (B, T, D)."""
        if not self.active:
            return x
        return x * super().forward(torch.ones_like(x[:, :1]))


class WordDropout(Dropout):
    """Drops whole words of an embedding: E ∘ m / (1 − p), one m for each row of E (Gal and Ghahramani, 2016)."""

    def embed(self, table: nn.Embedding, tokens: Tensor) -> Tensor:
        """The rows of the table at tokens (B, T) → (B, T, D); a word is dropped everywhere in a batch, or nowhere."""
        embedded: Tensor = table(tokens)
        if not self.active:
            return embedded
        mask: Tensor = self(torch.ones_like(table.weight[:, :1]))
        return embedded * mask[tokens]
