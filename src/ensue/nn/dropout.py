"""Dropout with cheap random numbers: on the CPU, drawing a mask by itself took a sixth of a small model's training.

    y = x ∘ m / (1 − p),  m_i = 1 with probability 1 − p, else 0          (Srivastava et al., 2014)

A byte decides about a unit, so eight of them come from one 64-bit draw, and p is a multiple of 1/256. Where a loop of
our own can run, torch draws but one number, which seeds the rest (see ensue.kernels.dropout_mask).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ensue.kernels.autograd_guards import plain
from ensue.kernels.dropout_mask import mask


class Dropout(nn.Module):
    """Switches units off at random while training; the same as ``nn.Dropout`` up to the rounding of p."""

    def __init__(self, p: float = 0.0) -> None:
        super().__init__()
        self.p = p

    def extra_repr(self) -> str:
        """What ``print(model)`` says of it."""
        return f"p={self.p}"

    @property
    def active(self) -> bool:
        """Whether anything is switched off."""
        return self.training and self.p > 0

    def forward(self, x: Tensor) -> Tensor:
        """(…) → (…)."""
        if not self.active:
            return x
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            return F.dropout(x, self.p)
        return x * mask(x, self.p)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """x + dropout(y), in one pass over both: what every residual path does."""
        if not self.active:
            return x + y
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            return x + F.dropout(y, self.p)
        drawn = mask(y, self.p)
        if not plain(x, y):
            return torch.addcmul(x, y, drawn)
        result: Tensor = _Added.apply(x, y, drawn)  # type: ignore[no-untyped-call]
        return result


class LockedDropout(Dropout):
    """One mask a row for all of its time steps: y_t = x_t ∘ m / (1 − p) (variational; Gal and Ghahramani, 2016).

    What is switched off stays off for the whole stretch, so a unit cannot be read at the next step instead.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) → (B, T, D)."""
        if not self.active:
            return x
        return x * super().forward(torch.ones_like(x[:, :1]))


class WordDropout(Dropout):
    """An embedding that forgets whole words: E ∘ m / (1 − p), one m for each row of E (Gal and Ghahramani, 2016)."""

    def embed(self, table: nn.Embedding, tokens: Tensor) -> Tensor:
        """The rows of the table at tokens (B, T) → (B, T, D); a word is there everywhere in a batch, or nowhere."""
        found: Tensor = table(tokens)
        if not self.active:
            return found
        kept: Tensor = self(torch.ones_like(table.weight[:, :1]))
        return found * kept[tokens]


class _Added(torch.autograd.Function):
    """x + y ∘ m. Torch's own gradient of this multiplies m by a number first, which is a pass for nothing."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, drawn: Tensor) -> Tensor:
        """x + y ∘ m."""
        ctx.save_for_backward(drawn)
        return torch.addcmul(x, y, drawn)

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> Any:
        """∂x, ∂y."""
        (drawn,) = ctx.saved_tensors
        return above[0], above[0] * drawn, None
