"""Batches of sentence pairs of similar lengths, each a pure function of (seed, step)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ensue.data.length_grouping import BLUR, Grouping, padded
from ensue.data.pair_tokens import PairTokens

LAYERS = 60
"""Into how many layers of nearly the same longer side pairs are put. With many batches more would pad the shorter side,
with few batches fewer would pad the longer one; this is near the best from 30 batches an epoch to 500."""


@dataclass(frozen=True, slots=True)
class PairBatch:
    """B sentence pairs, padded on the right with 0."""

    source: Tensor
    """(B, S), int64: the source sentences, each with its end mark."""
    source_lengths: Tensor
    """(B,)."""
    tokens: Tensor
    """(B, T): what the decoder reads, the end mark as begin mark, then the target without its last token."""
    targets: Tensor
    """(B, T): what it is to say, the target and its end mark."""
    lengths: Tensor
    """(B,): of the targets."""
    fresh: bool = True
    """Rows always start anew."""

    @property
    def size(self) -> int:
        """How many target tokens there are, padding not counted."""
        return int(self.lengths.sum())

    def __len__(self) -> int:
        """B."""
        return len(self.tokens)

    def some(self, rows: slice) -> PairBatch:
        """Some of the pairs, as long as they are here."""
        return PairBatch(
            source=self.source[rows],
            source_lengths=self.source_lengths[rows],
            tokens=self.tokens[rows],
            targets=self.targets[rows],
            lengths=self.lengths[rows],
        )


class Buckets:
    """Batches of at most ``tokens`` padded tokens on the longer side: rows × max(S, T) ≤ ``tokens``.

    A pair that alone is longer is a batch of its own.
    """

    def __init__(self, pairs: PairTokens, tokens: int, end: int, seed: int = 0) -> None:
        self._pairs = pairs
        self._source, self._target = np.diff(pairs.source_at), np.diff(pairs.target_at)
        self.tokens, self.end, self.seed = tokens, end, seed
        longer = np.maximum(self._source, self._target)
        self._grouping = Grouping(longer, tokens, seed, lambda chance: _order(self._source, self._target, chance))
        first = self._grouping.first
        self.rows = max(map(len, first))
        """The most rows that a batch of the first epoch has."""
        self.steps_per_epoch = len(first)
        """Of the first epoch; others may have a few more or less."""
        real = int(self._source.sum() + self._target.sum())
        places = sum(len(rows) * int(self._source[rows].max() + self._target[rows].max()) for rows in first)
        self.padding = 1 - real / places
        """The share of places that are padded, over source and target, in the first epoch."""

    def __len__(self) -> int:
        return self.steps_per_epoch

    def batch(self, step: int) -> PairBatch:
        """The batch of a step, counted from 0 over all epochs."""
        rows = self._grouping.rows(step)
        source, _ = padded(self._pairs.source, self._pairs.source_at[rows], self._source[rows])
        targets, real = padded(self._pairs.target, self._pairs.target_at[rows], self._target[rows])
        tokens = np.full_like(targets, self.end)
        tokens[:, 1:] = targets[:, :-1]
        tokens[~real] = 0
        arrays = (source, self._source[rows], tokens, targets, self._target[rows])
        block = [torch.from_numpy(array) for array in arrays]
        return PairBatch(source=block[0], source_lengths=block[1], tokens=block[2], targets=block[3], lengths=block[4])


def _order(source: np.ndarray, target: np.ndarray, chance: np.random.Generator) -> np.ndarray:
    """Pairs in an order in which neighbours are alike on both sides.

    The longer side decides how many rows a batch can have, so it comes first: layers of as many tokens each, with
    nearly the same longer side. Inside a layer pairs are ordered by how much longer the source is, up in one layer and
    down in the next. Chance decides between equal lengths, blurs others a little, and shifts the layers.
    """
    count, longer = len(source), np.maximum(source, target)
    blur = chance.random((2, count)) + BLUR * longer * chance.random((2, count))
    first = np.argsort(longer + blur[0])
    share = np.cumsum(longer[first]) / longer.sum()
    layer = (LAYERS * share + chance.random()).astype(np.int64)
    excess = (source - target + blur[1])[first]
    order: np.ndarray = first[np.lexsort((np.where(layer % 2, -excess, excess), layer))]
    return order
