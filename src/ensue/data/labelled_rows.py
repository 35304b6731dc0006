"""Rows of tokens with targets, and batches of rows of similar lengths.

An example is one row, or one row per choice. A target is one or more numbers per example or per token.

Legend: N rows, E examples of N / E rows each, B rows of a batch, T its longest row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from ensue.data.batches import PaddedBatch, array_digest, as_tensors, select_rows
from ensue.data.length_grouping import group_by_length, pad_rows

IGNORE_INDEX = -100
"""Target of tokens that do not count in the loss."""


@dataclass(frozen=True)
class LabelledRows:
    """Rows of tokens, concatenated, with their targets."""

    tokens: np.ndarray
    """(Σ lengths,), int32."""
    segments: np.ndarray
    """(Σ lengths,), int8: which text a token belongs to."""
    starts: np.ndarray
    """(N + 1,): where each row begins, and the end of the last."""
    targets: np.ndarray
    """(E,) or (E, …), or with ``per_token`` (Σ lengths,) or (Σ lengths, …); integers, or floats with NaN where there is
    no target."""
    rows_per_example: int = 1
    per_token: bool = False
    """True if every token has a target."""

    def __len__(self) -> int:
        """E."""
        return (len(self.starts) - 1) // self.rows_per_example

    @property
    def lengths(self) -> np.ndarray:
        """(N,)."""
        return np.diff(self.starts)

    @property
    def example_sizes(self) -> np.ndarray:
        """(E,): padded tokens of each example, its longest row times its number of rows."""
        sizes: np.ndarray = self.lengths.reshape(-1, self.rows_per_example).max(1) * self.rows_per_example
        return sizes

    @property
    def hash(self) -> str:
        """SHA-256 of all arrays."""
        return array_digest(self.tokens, self.segments, self.starts, self.targets)

    def row_indices(self, examples: np.ndarray) -> np.ndarray:
        """Return the rows of some examples."""
        return (examples[:, None] * self.rows_per_example + np.arange(self.rows_per_example)).ravel()

    def select(self, examples: Sequence[int] | np.ndarray) -> LabelledRows:
        """Return some of the examples, in the order given."""
        chosen = np.asarray(examples, dtype=np.int64)
        parts = [np.arange(self.starts[row], self.starts[row + 1]) for row in self.row_indices(chosen)]
        index = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
        starts = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64)
        targets = self.targets[index if self.per_token else chosen]
        arrays = (self.tokens[index], self.segments[index], starts, targets)
        return LabelledRows(*arrays, self.rows_per_example, self.per_token)


def make_rows(
    rows: Iterable[tuple[np.ndarray, np.ndarray]],
    targets: np.ndarray,
    rows_per_example: int = 1,
    per_token: bool = False,
) -> LabelledRows:
    """Concatenate rows given as (tokens, segments)."""
    pairs = list(rows)
    starts = np.concatenate([[0], np.cumsum([len(tokens) for tokens, _ in pairs])]).astype(np.int64)
    tokens, segments = (np.concatenate([row[part] for row in pairs]) if pairs else np.zeros(0) for part in range(2))
    arrays = (tokens.astype(np.int32), segments.astype(np.int8), starts, targets)
    return LabelledRows(*arrays, rows_per_example, per_token)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBatch(PaddedBatch):
    """B rows with ``targets`` (B / rows_per_example, …), or (B, T, …) if every token has a target."""

    segments: Tensor
    """(B, T), int64."""
    examples: Tensor
    """(B / rows_per_example,): indices of the examples."""

    def __len__(self) -> int:
        """Number of examples, B / rows_per_example."""
        return len(self.examples)

    def select(self, examples: slice) -> RowBatch:
        """Return some of the examples, with the same padding."""
        per_example = len(self.tokens) // len(self)
        rows = slice(examples.start * per_example, examples.stop * per_example)
        targets = self.targets[rows if len(self.targets) == len(self.tokens) else examples]
        return replace(select_rows(self, rows), targets=targets, examples=self.examples[examples])


def make_batch(rows: LabelledRows, examples: np.ndarray) -> RowBatch:
    """Pad some examples into one batch."""
    index = rows.row_indices(examples)
    starts, lengths = rows.starts[index], rows.lengths[index]
    tokens, is_token = pad_rows(rows.tokens, starts, lengths)
    segments, _ = pad_rows(rows.segments, starts, lengths)
    targets = rows.targets[examples] if not rows.per_token else _pad_targets(rows.targets, starts, is_token)
    return RowBatch(**as_tensors(tokens=tokens, segments=segments, lengths=lengths, targets=targets, examples=examples))


def _pad_targets(targets: np.ndarray, starts: np.ndarray, is_token: np.ndarray) -> np.ndarray:
    """Gather targets per token (B, T, …), with NaN or ``IGNORE_INDEX`` as padding."""
    fill = np.nan if targets.dtype.kind == "f" else IGNORE_INDEX
    padded = np.full((*is_token.shape, *targets.shape[1:]), fill, dtype=targets.dtype)
    padded[is_token] = targets[(starts[:, None] + np.arange(is_token.shape[1]))[is_token]]
    return padded


class RowBatches:
    """Batches of at most ``tokens`` padded tokens: rows × longest ≤ ``tokens``; a longer example is its own batch."""

    def __init__(self, rows: LabelledRows, tokens: int, seed: int = 0) -> None:
        sizes = rows.example_sizes
        self._rows, self._plan = rows, group_by_length(sizes, tokens, seed)
        first = self._plan.epoch(0)
        self.rows = max(map(len, first)) * rows.rows_per_example
        """Largest number of rows of a batch in the first epoch."""
        self.steps_per_epoch = len(first)
        """Batches of the first epoch; other epochs may have a few more or fewer."""
        self.padding = 1 - float(rows.lengths.sum()) / sum(len(batch) * int(sizes[batch].max()) for batch in first)
        """Fraction of padding in the first epoch."""

    def batch(self, step: int) -> RowBatch:
        """Return the batch of a step, counted from 0 over all epochs."""
        return make_batch(self._rows, self._plan.item(step))


def evaluation_batches(rows: LabelledRows, tokens: int) -> list[np.ndarray]:
    """Return all examples once, grouped by length, longest first, so that the first batch has the peak memory."""
    sizes = rows.example_sizes
    order = np.argsort(-sizes, kind="stable")
    batches, start = [], 0
    while start < len(order):
        count = max(1, tokens // int(sizes[order[start]]))
        batches.append(order[start : start + count])
        start += count
    return batches
