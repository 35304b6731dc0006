"""What a decoder sees of the source: kept once a sentence, whatever the number of hypotheses.

A beam search turns each of N sentences into k hypotheses. The decoder's own state is theirs, B = N·k rows of it; the
source stays N sentences, and ``index`` says which of them a row belongs to. Attention to a source has no order among
its queries, so the k hypotheses of a sentence stand side by side as one longer row of queries:

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
    """The encoded source of every row. ``parts`` are what the model made of it, sentences first."""

    parts: tuple[Tensor, ...]
    lengths: Tensor  # (N,)
    index: Tensor  # (B,), the sentence of each row
    each: int = 1
    """k, where every sentence has so many rows side by side in order; 0 where it is not so."""
    ragged: bool = True
    """Whether some sentence is shorter than the longest, so that a mask is needed."""

    @staticmethod
    def of(parts: tuple[Tensor, ...], lengths: Tensor | None, time: int) -> Source:
        """A source for as many rows as there are sentences; ``time`` is S."""
        sentences = torch.arange(len(parts[0]), device=parts[0].device)
        if lengths is None:
            return Source(parts, torch.full_like(sentences, time), sentences, ragged=False)
        return Source(parts, lengths, sentences, ragged=bool((lengths < time).any()))

    @property
    def count(self) -> int:
        """B."""
        return len(self.index)

    def rows(self, index: Tensor) -> Source:
        """The same sentences for other rows; sentences that have no rows any more leave."""
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
        """Sources are as wide as their longest sentence, each: they are encoded together, not put together later."""
        raise TypeError("sources that were encoded apart cannot be joined")

    def fork(self) -> Source:
        """Itself: no step ever writes to a source."""
        return self

    def detach(self) -> Source:
        """Itself: truncated backpropagation cuts the recurrence, not the way to the encoder."""
        return self

    def even(self) -> Source:
        """The same with every sentence having the same number of rows in order: where it is not so, one each."""
        if self.each:
            return self
        parts = tuple(part.index_select(0, self.index) for part in self.parts)
        own = torch.arange(len(self.index), device=self.index.device)
        return Source(parts, self.lengths.index_select(0, self.index), own, 1, self.ragged)

    def mask(self, time: int) -> Tensor | None:
        """Which of ``time`` places of each sentence are real, (N, S); None where all are."""
        if not self.ragged:
            return None
        return torch.arange(time, device=self.lengths.device) < self.lengths[:, None]

    def fold(self, x: Tensor) -> Tensor:
        """Rows of a sentence side by side in time, (B, T, …) → (N, k·T, …); the source must be even."""
        return x.reshape(len(self.lengths), self.each * x.shape[1], *x.shape[2:]) if self.each > 1 else x

    def unfold(self, y: Tensor, dim: int = 1) -> Tensor:
        """Back to one row a hypothesis, (N, …, k·T, …) → (B, …, T, …), time at ``dim``."""
        if self.each == 1:
            return y
        shape = (*y.shape[:dim], self.each, y.shape[dim] // self.each, *y.shape[dim + 1 :])
        return y.reshape(shape).movedim(dim, 1).flatten(0, 1)
