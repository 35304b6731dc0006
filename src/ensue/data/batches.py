"""Batches of text that are a pure function of (seed, step), so that training resumes at any step.

A text of N tokens has M = N − 1 targets: every token but the first, predicted from those before it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ensue.core.errors import InputError


@dataclass(frozen=True, slots=True)
class Batch:
    """B rows of T tokens, each with the token that follows it."""

    tokens: Tensor
    """(B, T), int64."""
    targets: Tensor
    """(B, T): the tokens shifted by one position."""
    reset_state: bool
    """True if the rows start from an empty state; False if they continue the previous batch."""
    lengths: Tensor | None = None
    """(B,), if rows are padded on the right."""
    keep_state: bool = False
    """True if the next batch continues this one, so that the state after it is needed."""

    @property
    def size(self) -> int:
        """Number of targets without padding."""
        return self.targets.numel() if self.lengths is None else int(self.lengths.sum())

    def __len__(self) -> int:
        """B."""
        return len(self.tokens)

    def select(self, rows: slice) -> Batch:
        """Return some of the rows, with the same padding."""
        lengths = None if self.lengths is None else self.lengths[rows]
        return replace(self, tokens=self.tokens[rows], targets=self.targets[rows], lengths=lengths)


class StreamBatches:
    """B parallel streams through the text, cut into batches of T; the state carries over from batch to batch.

    An epoch starts at a random position of the text, which is read as a circle: its first and last token are the same
    end token. Every target occurs exactly once per epoch, except the M mod B targets left over at the cut. The last
    batch of an epoch may be shorter. A small text gets fewer ``rows``, so that each has at least ``length`` tokens; a
    text shorter than ``length`` is one row.
    """

    def __init__(self, tokens: np.ndarray, rows: int, length: int, seed: int = 0) -> None:
        _check_shape(rows, length)
        self._tokens = tokens
        self._targets = len(tokens) - 1
        if self._targets < 1:
            raise InputError(f"a text of {len(tokens)} tokens has nothing to predict", hint="give more text")
        self.rows = max(1, min(rows, self._targets // length))
        self.length = length
        self.seed = seed
        self._row_targets = self._targets // self.rows
        self.steps_per_epoch = -(-self._row_targets // length)

    def __len__(self) -> int:
        return self.steps_per_epoch

    def batch(self, step: int) -> Batch:
        """Return the batch of a step, counted from 0 over all epochs."""
        epoch, index = divmod(step, self.steps_per_epoch)
        start = int(_epoch_generator(self.seed, epoch).integers(self._targets))
        at = index * self.length
        length = min(self.length, self._row_targets - at)
        starts = (start + at + row * self._row_targets for row in range(self.rows))
        batch = _make_batch([self._read(begin % self._targets, length) for begin in starts], reset_state=index == 0)
        return replace(batch, keep_state=index + 1 < self.steps_per_epoch)

    def _read(self, start: int, length: int) -> np.ndarray:
        """Return ``length`` tokens and the one after them, wrapping around at the end of the text."""
        part = self._tokens[start : start + length + 1]
        missing = length + 1 - len(part)
        return np.concatenate([part, self._tokens[1 : 1 + missing]]) if missing else part


class WindowBatches:
    """B windows of T tokens from random positions of the text, none twice in an epoch.

    Each epoch cuts the text into windows at another offset and shuffles them. Every target occurs exactly once, except
    fewer than 2 T at the ends. A batch may take its last rows from the next epoch.
    """

    def __init__(self, tokens: np.ndarray, rows: int, length: int, seed: int = 0) -> None:
        _check_shape(rows, length)
        targets = len(tokens) - 1
        if targets < length:
            hint = f"choose a smaller context or train.length (at most {targets}), or give more text"
            what = f"the text has {len(tokens)} tokens, fewer than a window of {length} and its last target"
            raise InputError(what, hint=hint)
        self._tokens = tokens
        self._count = max(1, (targets - length + 1) // length)
        self._offsets = min(length, targets - self._count * length + 1)
        self._order: tuple[int, np.ndarray] = (-1, np.zeros(0, dtype=np.int64))
        self.rows = rows
        self.length = length
        self.seed = seed
        self.steps_per_epoch = -(-self._count // rows)

    def __len__(self) -> int:
        return self.steps_per_epoch

    def batch(self, step: int) -> Batch:
        """Return the batch of a step, counted from 0 over all epochs."""
        windows = (divmod(step * self.rows + row, self._count) for row in range(self.rows))
        starts = [int(self._starts(epoch)[index]) for epoch, index in windows]
        return _make_batch([self._tokens[start : start + self.length + 1] for start in starts], reset_state=True)

    def _starts(self, epoch: int) -> np.ndarray:
        """Return where the windows of an epoch start; the current epoch is cached."""
        if self._order[0] != epoch:
            generator = _epoch_generator(self.seed, epoch)
            offset = int(generator.integers(self._offsets))
            self._order = epoch, generator.permutation(self._count) * self.length + offset
        return self._order[1]


def _epoch_generator(seed: int, epoch: int) -> np.random.Generator:
    """Return a random generator that depends on the seed and the epoch only."""
    return np.random.default_rng([seed % 2**64, epoch])


def _check_shape(rows: int, length: int) -> None:
    if rows < 1 or length < 1:
        raise InputError(f"a batch of {rows} rows of {length} tokens", hint="choose at least 1 of each")


def _make_batch(parts: list[np.ndarray], reset_state: bool) -> Batch:
    """Split rows of T + 1 tokens into inputs and targets."""
    block = torch.from_numpy(np.stack(parts).astype(np.int64))
    return Batch(block[:, :-1].contiguous(), block[:, 1:].contiguous(), reset_state)
