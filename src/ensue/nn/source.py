"""The encoded source, stored once per sentence for any number of hypotheses.

Beam search turns each of N sentences into k hypotheses. The decoder's state has B = N·k rows; the source keeps N
sentences, and ``index`` maps rows to sentences. Queries of cross-attention do not interact, so the k hypotheses of a
sentence are folded into one longer row of queries:

    (B, T, …)  ⇄  (N, k·T, …)          fold and unfold

Legend: N sentences, k rows of each, B = N·k rows, T target time, S source time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ensue.nn.state import State


@dataclass(frozen=True)
class Source(State):
    """The encoded source of every row; ``parts`` are the encoder's tensors, sentences first."""

    parts: tuple[Tensor, ...]
    lengths: Tensor  # (N,)
    index: Tensor  # (B,), the sentence of each row
    each: int = 1
    """k if every sentence has k consecutive rows, in order; otherwise 0."""
    ragged: bool = True
    """Whether sentences differ in length, so that a mask is needed."""

    @staticmethod
    def of(parts: tuple[Tensor, ...], lengths: Tensor | None, time: int) -> Source:
        """Build a source with one row per sentence; ``time`` is S."""
        sentences = torch.arange(len(parts[0]), device=parts[0].device)
        if lengths is None:
            return Source(parts, torch.full_like(sentences, time), sentences, ragged=False)
        return Source(parts, lengths, sentences, ragged=bool((lengths < time).any()))

    @property
    def count(self) -> int:
        """B."""
        return len(self.index)

    def rows(self, index: Tensor) -> Source:
        """Select rows; sentences without rows are dropped."""
        chosen = self.index.index_select(0, index)
        sentences, counts = torch.unique_consecutive(chosen, return_counts=True)
        each = int(counts[0]) if len(counts) else 0
        if not len(counts) or bool((counts != each).any()) or len(torch.unique(sentences)) < len(sentences):
            return replace(self, index=chosen, each=0)
        if len(sentences) < len(self.lengths) or bool((sentences[1:] < sentences[:-1]).any()):
            parts = tuple(part.index_select(0, sentences) for part in self.parts)
            own = torch.arange(len(sentences), device=index.device).repeat_interleave(each)
            return Source(parts, self.lengths.index_select(0, sentences), own, each, self.ragged)
        return replace(self, index=chosen, each=each)

    @classmethod
    def joined(cls, states: Sequence[Source]) -> Source:
        """Not supported: sources are padded to their longest sentence, so they must be encoded together."""
        raise TypeError("sources that were encoded separately cannot be joined")

    def fork(self) -> Source:
        """Return itself: no step writes to a source."""
        return self

    def detach(self) -> Source:
        """Return itself: truncated backpropagation detaches the recurrence, not the encoder."""
        return self

    def even(self) -> Source:
        """Return a source with equally many consecutive rows for every sentence, copied for each row if needed."""
        if self.each:
            return self
        parts = tuple(part.index_select(0, self.index) for part in self.parts)
        own = torch.arange(len(self.index), device=self.index.device)
        return Source(parts, self.lengths.index_select(0, self.index), own, 1, self.ragged)

    def mask(self, time: int) -> Tensor | None:
        """Return a mask of positions that are not padding (N, S); None if there is no padding."""
        if not self.ragged:
            return None
        return torch.arange(time, device=self.lengths.device) < self.lengths[:, None]

    def fold(self, x: Tensor) -> Tensor:
        """Fold the rows of a sentence into one, (B, T, …) → (N, k·T, …); call ``even`` first."""
        return x.reshape(len(self.lengths), self.each * x.shape[1], *x.shape[2:]) if self.each > 1 else x

    def unfold(self, y: Tensor, dim: int = 1) -> Tensor:
        """Undo ``fold``, (N, …, k·T, …) → (B, …, T, …), with time at ``dim``."""
        if self.each == 1:
            return y
        shape = (*y.shape[:dim], self.each, y.shape[dim] // self.each, *y.shape[dim + 1 :])
        return y.reshape(shape).movedim(dim, 1).flatten(0, 1)
