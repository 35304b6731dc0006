"""Rows of tokens with what is to be answered about them, and batches of rows of similar lengths.

An example is one row, or as many rows as it has choices. What is wanted is a number or a few an example, or a token.

Legend: N rows, E examples of N / E rows each, B rows of a batch, T its longest row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ensue.data.length_grouping import Grouping, padded

NOT_ASKED = -100
"""What is wanted of a token that nobody asks about."""


@dataclass(frozen=True)
class Rows:
    """Rows one after the other."""

    tokens: np.ndarray
    """(Σ lengths,), int32."""
    segments: np.ndarray
    """(Σ lengths,), int8: of which text a token is."""
    at: np.ndarray
    """(N + 1,): where each row begins, and the end of the last."""
    targets: np.ndarray
    """(E,) or (E, …), or with ``by_token`` (Σ lengths,) or (Σ lengths, …); whole numbers, or numbers with NaN where
    nothing is wanted."""
    each: int = 1
    """Rows an example has."""
    by_token: bool = False
    """Whether something is wanted of every token."""

    def __len__(self) -> int:
        """E."""
        return (len(self.at) - 1) // self.each

    @property
    def lengths(self) -> np.ndarray:
        """(N,)."""
        return np.diff(self.at)

    @property
    def hash(self) -> str:
        """Of all that is here."""
        whole = hashlib.sha256()
        for array in (self.tokens, self.segments, self.at, self.targets):
            whole.update(np.ascontiguousarray(array).tobytes())
        return whole.hexdigest()

    def chosen(self, examples: Sequence[int] | np.ndarray) -> Rows:
        """Some of the examples, in the order given."""
        rows = (np.asarray(examples, dtype=np.int64)[:, None] * self.each + np.arange(self.each)).ravel()
        parts = [np.arange(self.at[row], self.at[row + 1]) for row in rows]
        index = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
        at = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64)
        targets = self.targets[index] if self.by_token else self.targets[np.asarray(examples, dtype=np.int64)]
        return Rows(self.tokens[index], self.segments[index], at, targets, self.each, self.by_token)


def rows_of(
    rows: Iterable[tuple[np.ndarray, np.ndarray]], targets: np.ndarray, each: int = 1, by_token: bool = False
) -> Rows:
    """Rows from tokens and segments of each."""
    held = list(rows)
    at = np.concatenate([[0], np.cumsum([len(tokens) for tokens, _ in held])]).astype(np.int64)
    flat = [np.concatenate([row[part] for row in held]) if held else np.zeros(0) for part in range(2)]
    return Rows(flat[0].astype(np.int32), flat[1].astype(np.int8), at, targets, each, by_token)


@dataclass(frozen=True, slots=True)
class RowBatch:
    """B rows, padded on the right."""

    tokens: Tensor
    """(B, T), int64."""
    segments: Tensor
    """(B, T), int64."""
    lengths: Tensor
    """(B,)."""
    targets: Tensor
    """(B / each, …), or (B, T, …) where something is wanted of every token."""
    examples: Tensor
    """(B / each,): their numbers."""
    fresh: bool = True
    """Rows always start anew."""

    @property
    def size(self) -> int:
        """How many tokens there are, padding not counted."""
        return int(self.lengths.sum())

    def __len__(self) -> int:
        """How many examples there are, B / each."""
        return len(self.examples)

    def some(self, examples: slice) -> RowBatch:
        """Some of the examples, their rows as long as they are here."""
        each = len(self.tokens) // len(self)
        rows = slice(examples.start * each, examples.stop * each)
        targets = self.targets[rows if len(self.targets) == len(self.tokens) else examples]
        return RowBatch(self.tokens[rows], self.segments[rows], self.lengths[rows], targets, self.examples[examples])


def batch_of(rows: Rows, examples: np.ndarray) -> RowBatch:
    """Some examples as one batch."""
    index = (examples[:, None] * rows.each + np.arange(rows.each)).ravel()
    at, lengths = rows.at[index], rows.lengths[index]
    tokens, real = padded(rows.tokens, at, lengths)
    segments, _ = padded(rows.segments, at, lengths)
    if rows.by_token:
        nothing = np.nan if rows.targets.dtype.kind == "f" else NOT_ASKED
        targets = np.full((*real.shape, *rows.targets.shape[1:]), nothing, dtype=rows.targets.dtype)
        targets[real] = rows.targets[(at[:, None] + np.arange(real.shape[1]))[real]]
    else:
        targets = rows.targets[examples]
    arrays = (tokens, segments, lengths, targets, examples)
    block = [torch.from_numpy(np.ascontiguousarray(array)) for array in arrays]
    return RowBatch(block[0], block[1], block[2], block[3], block[4])


class RowBatches:
    """Batches of at most ``tokens`` padded tokens: rows × longest ≤ ``tokens``; a longer example is alone."""

    def __init__(self, rows: Rows, tokens: int, seed: int = 0) -> None:
        longest = rows.lengths.reshape(-1, rows.each).max(1) * rows.each
        self._rows, self._grouping = rows, Grouping(longest, tokens, seed)
        first = self._grouping.first
        self.rows = max(map(len, first)) * rows.each
        """The most rows that a batch of the first epoch has."""
        self.steps_per_epoch = len(first)
        """Of the first epoch; others may have a few more or less."""
        self.padding = 1 - float(rows.lengths.sum()) / sum(len(one) * int(longest[one].max()) for one in first)
        """The share of places that are padded, in the first epoch."""

    def batch(self, step: int) -> RowBatch:
        """The batch of a step, counted from 0 over all epochs."""
        return batch_of(self._rows, self._grouping.rows(step))


def in_order(rows: Rows, tokens: int) -> list[np.ndarray]:
    """All examples once, similar lengths together, the longest first: so memory is known from the start."""
    longest = rows.lengths.reshape(-1, rows.each).max(1) * rows.each
    order = np.argsort(-longest, kind="stable")
    found, start = [], 0
    while start < len(order):
        count = max(1, tokens // int(longest[order[start]]))
        found.append(order[start : start + count])
        start += count
    return found
