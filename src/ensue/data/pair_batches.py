"""Batches of sentence pairs of similar lengths, each a pure function of (seed, step)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from torch import Tensor

from ensue.data.batches import PaddedBatch, as_tensors
from ensue.data.length_grouping import LENGTH_NOISE, group_by_length, pad_rows
from ensue.data.pair_tokens import PairTokens

LENGTH_LAYERS = 60
"""Number of layers of nearly equal longer side. More layers pad the shorter side when there are many batches, fewer pad
the longer side when there are few; this is near the optimum from 30 to 500 batches per epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairBatch(PaddedBatch):
    """B sentence pairs, padded with 0.

    ``targets`` (B, T) are the target sentences, each with its end token; ``tokens``, the decoder's input, are the start
    token (the end token, unless a model has another), then the target without its last token.
    """

    source: Tensor
    """(B, S), int64: source sentences, each with its end token."""
    source_lengths: Tensor
    """(B,)."""


class PairBatches:
    """Batches of at most ``tokens`` padded tokens on the longer side: rows × max(S, T) ≤ ``tokens``.

    A pair that exceeds this alone is its own batch. With a ``limit``, each task has at most that number of pairs in an
    epoch, others each time: mixing in proportion to size, up to a limit (Raffel et al., 2020).
    """

    def __init__(
        self, pairs: PairTokens, tokens: int, end: int, seed: int = 0, *, first: int | None = None, limit: int = 0
    ) -> None:
        self._pairs = pairs
        self._source, self._target = np.diff(pairs.source_at), np.diff(pairs.target_at)
        self.end, self.first = end, end if first is None else first
        longer = np.maximum(self._source, self._target)
        order = partial(_order, self._source, self._target)
        if limit and len(pairs.tasks):
            order = partial(_order_of_some, self._source, self._target, pairs.tasks, limit)
        self._plan = group_by_length(longer, tokens, seed, order)
        first_epoch = self._plan.epoch(0)
        self.rows = max(map(len, first_epoch))
        """Largest number of rows of a batch in the first epoch."""
        self.steps_per_epoch = len(first_epoch)
        """Batches of the first epoch; other epochs may have a few more or fewer."""
        chosen = np.concatenate(first_epoch)
        real = int(self._source[chosen].sum() + self._target[chosen].sum())
        padded = sum(len(rows) * int(self._source[rows].max() + self._target[rows].max()) for rows in first_epoch)
        self.padding = 1 - real / padded
        """Fraction of padding over source and target in the first epoch."""

    def __len__(self) -> int:
        return self.steps_per_epoch

    def batch(self, step: int) -> PairBatch:
        """Return the batch of a step, counted from 0 over all epochs."""
        rows = self._plan.item(step)
        source, _ = pad_rows(self._pairs.source, self._pairs.source_at[rows], self._source[rows])
        targets, is_token = pad_rows(self._pairs.target, self._pairs.target_at[rows], self._target[rows])
        tokens = np.full_like(targets, self.first)
        tokens[:, 1:] = targets[:, :-1]
        tokens[~is_token] = 0
        lengths = {"source_lengths": self._source[rows], "lengths": self._target[rows]}
        return PairBatch(**as_tensors(source=source, tokens=tokens, targets=targets, **lengths))


def _order_of_some(
    source: np.ndarray, target: np.ndarray, tasks: np.ndarray, limit: int, generator: np.random.Generator
) -> np.ndarray:
    """Order at most ``limit`` random pairs of each task."""
    kept = [generator.permutation(np.flatnonzero(tasks == task))[:limit] for task in np.unique(tasks)]
    rows = np.sort(np.concatenate(kept))
    chosen: np.ndarray = rows[_order(source[rows], target[rows], generator)]
    return chosen


def _order(source: np.ndarray, target: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Order pairs so that neighbours are similar on both sides.

    The longer side limits the rows of a batch, so it comes first: layers with equal numbers of tokens and nearly the
    same longer side. Inside a layer pairs are sorted by how much longer the source is, ascending in one layer and
    descending in the next. Noise breaks ties, perturbs lengths a little, and shifts the layers.
    """
    count, longer = len(source), np.maximum(source, target)
    noise = generator.random((2, count)) + LENGTH_NOISE * longer * generator.random((2, count))
    first = np.argsort(longer + noise[0])
    share = np.cumsum(longer[first]) / longer.sum()
    layer = (LENGTH_LAYERS * share + generator.random()).astype(np.int64)
    excess = (source - target + noise[1])[first]
    order: np.ndarray = first[np.lexsort((np.where(layer % 2, -excess, excess), layer))]
    return order
