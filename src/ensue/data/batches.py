"""Batches that are a pure function of (seed, step), so that training can go on at any step.

A text of N tokens has M = N − 1 targets: each token but the first, predicted from those before it.
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
    """(B, T): the tokens one place later."""
    fresh: bool
    """Whether the rows start anew; if not, they go on where the batch before stopped."""
    lengths: Tensor | None = None
    """(B,), where rows are padded on the right."""
    goes_on: bool = False
    """Whether the next batch goes on where this one stops, so that the state after it is wanted."""

    @property
    def size(self) -> int:
        """How many targets there are, padding not counted."""
        return self.targets.numel() if self.lengths is None else int(self.lengths.sum())

    def __len__(self) -> int:
        """B."""
        return len(self.tokens)

    def some(self, rows: slice) -> Batch:
        """Some of the rows, as long as they are here."""
        lengths = None if self.lengths is None else self.lengths[rows]
        return replace(self, tokens=self.tokens[rows], targets=self.targets[rows], lengths=lengths)


class Streams:
    """B parallel streams through the text, cut into batches of T; the state is carried from one to the next.

    An epoch starts at a random place of the text, which is read in a circle: its first and its last token
    are the same end mark. Every target comes exactly once an epoch, but for the M mod B left over at the
    cut. The last batch of an epoch may be shorter. In a small text there are fewer ``rows``, so that each is
    at least ``length`` long; a text shorter than ``length`` is one row.
    """

    def __init__(self, tokens: np.ndarray, rows: int, length: int, seed: int = 0) -> None:
        _check(rows, length)
        self._tokens = tokens
        self._targets = len(tokens) - 1
        if self._targets < 1:
            raise InputError(f"a text of {len(tokens)} tokens has nothing to predict", hint="give more text")
        self.rows = max(1, min(rows, self._targets // length))
        self.length = length
        self.seed = seed
        self._each = self._targets // self.rows
        self.steps_per_epoch = -(-self._each // length)

    def __len__(self) -> int:
        return self.steps_per_epoch

    def batch(self, step: int) -> Batch:
        """The batch of a step, counted from 0 over all epochs."""
        epoch, place = divmod(step, self.steps_per_epoch)
        start = int(_chance(self.seed, epoch).integers(self._targets))
        at = place * self.length
        length = min(self.length, self._each - at)
        starts = (start + at + row * self._each for row in range(self.rows))
        batch = _batch([self._read(begin % self._targets, length) for begin in starts], fresh=place == 0)
        return replace(batch, goes_on=place + 1 < self.steps_per_epoch)

    def _read(self, start: int, length: int) -> np.ndarray:
        """``length`` tokens and the one after them, past the end on from the beginning."""
        part = self._tokens[start : start + length + 1]
        missing = length + 1 - len(part)
        return np.concatenate([part, self._tokens[1 : 1 + missing]]) if missing else part


class Windows:
    """B windows of T tokens from anywhere in the text, none twice in an epoch.

    Each epoch the text is cut into windows at another offset and they are shuffled; every target comes
    exactly once, but for fewer than 2 T at the ends. A batch may take its last rows from the next epoch.
    """

    def __init__(self, tokens: np.ndarray, rows: int, length: int, seed: int = 0) -> None:
        _check(rows, length)
        targets = len(tokens) - 1
        if targets < length:
            hint = f"choose a smaller context or train.length (at most {targets}), or give more text"
            what = f"the text has {len(tokens)} tokens, fewer than a window of {length} and its last target"
            raise InputError(what, hint=hint)
        self._tokens = tokens
        self._count = max(1, (targets - length + 1) // length)
        self._slack = min(length, targets - self._count * length + 1)
        self._order: tuple[int, np.ndarray] = (-1, np.zeros(0, dtype=np.int64))
        self.rows = rows
        self.length = length
        self.seed = seed
        self.steps_per_epoch = -(-self._count // rows)

    def __len__(self) -> int:
        return self.steps_per_epoch

    def batch(self, step: int) -> Batch:
        """The batch of a step, counted from 0 over all epochs."""
        places = (divmod(step * self.rows + row, self._count) for row in range(self.rows))
        starts = [int(self._starts(epoch)[place]) for epoch, place in places]
        return _batch([self._tokens[start : start + self.length + 1] for start in starts], fresh=True)

    def _starts(self, epoch: int) -> np.ndarray:
        """Where the windows of an epoch start; remembered for the epoch at hand."""
        if self._order[0] != epoch:
            chance = _chance(self.seed, epoch)
            offset = int(chance.integers(self._slack))
            self._order = epoch, chance.permutation(self._count) * self.length + offset
        return self._order[1]


def _chance(seed: int, epoch: int) -> np.random.Generator:
    """Random numbers that depend on the seed and the epoch only."""
    return np.random.default_rng([seed % 2**64, epoch])


def _check(rows: int, length: int) -> None:
    """Rows and length as people give them."""
    if rows < 1 or length < 1:
        raise InputError(f"a batch of {rows} rows of {length} tokens", hint="choose at least 1 of each")


def _batch(parts: list[np.ndarray], fresh: bool) -> Batch:
    """Rows of T + 1 tokens as inputs and targets."""
    block = torch.from_numpy(np.stack(parts).astype(np.int64))
    return Batch(block[:, :-1].contiguous(), block[:, 1:].contiguous(), fresh)
