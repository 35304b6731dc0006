"""Batches that are a pure function of (seed, step), so that training resumes at any step: what all share, and text.

A text of N tokens has M = N − 1 targets: every token but the first, predicted from those before it.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from ensue.core.errors import InputError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Item = TypeVar("Item")
AnyBatch = TypeVar("AnyBatch", bound="DataclassInstance")


class EpochPlan(Generic[Item]):
    """The items of endless epochs; an epoch is a pure function of (seed, epoch), and the current one is cached.

    ``arrange`` returns the items of one epoch in a random order. Epochs may differ in size unless ``size`` is given.
    """

    def __init__(
        self, arrange: Callable[[np.random.Generator], Sequence[Item]], seed: int, size: int | None = None
    ) -> None:
        self._arrange, self._seed, self._size = arrange, seed, size
        self._starts = [0]
        self._cached: tuple[int, Sequence[Item]] = (-1, ())

    def epoch(self, number: int) -> Sequence[Item]:
        """Return the items of an epoch."""
        if self._cached[0] != number:
            self._cached = number, self._arrange(_epoch_generator(self._seed, number))
        return self._cached[1]

    def item(self, index: int) -> Item:
        """Return an item, counted from 0 over all epochs."""
        if self._size is not None:
            return self.epoch(index // self._size)[index % self._size]
        while self._starts[-1] <= index:
            self._starts.append(self._starts[-1] + len(self.epoch(len(self._starts) - 1)))
        number = bisect_right(self._starts, index) - 1
        return self.epoch(number)[index - self._starts[number]]


def _epoch_generator(seed: int, epoch: int) -> np.random.Generator:
    return np.random.default_rng([seed % 2**64, epoch])


def select_rows(batch: AnyBatch, rows: slice) -> AnyBatch:
    """Return some of the rows of all tensors of a batch, with the same padding."""
    values = {field.name: getattr(batch, field.name) for field in fields(batch)}
    chosen: dict[str, Any] = {name: value[rows] for name, value in values.items() if isinstance(value, Tensor)}
    return replace(batch, **chosen)


def array_digest(*arrays: np.ndarray) -> str:
    """Return the SHA-256 of arrays."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def as_tensors(**arrays: np.ndarray) -> dict[str, Any]:
    """Return arrays as tensors, for the fields of a batch."""
    return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddedBatch:
    """B rows of tokens, padded on the right."""

    tokens: Tensor
    """(B, T), int64: the model's input."""
    lengths: Tensor
    """(B,): numbers of tokens without padding."""
    targets: Tensor
    reset_state: bool = True
    """Rows always start from an empty state."""

    @property
    def size(self) -> int:
        """Number of tokens without padding."""
        return int(self.lengths.sum())

    def __len__(self) -> int:
        """B."""
        return len(self.tokens)

    def select(self, rows: slice) -> Self:
        """Return some of the rows, with the same padding."""
        return select_rows(self, rows)


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
        return select_rows(self, rows)


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
        self.length, self.seed = length, seed
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
        self._plan = EpochPlan(self._starts, seed, self._count)
        self.rows, self.length = rows, length
        self.steps_per_epoch = -(-self._count // rows)

    def __len__(self) -> int:
        return self.steps_per_epoch

    def batch(self, step: int) -> Batch:
        """Return the batch of a step, counted from 0 over all epochs."""
        starts = [self._plan.item(step * self.rows + row) for row in range(self.rows)]
        return _make_batch([self._tokens[start : start + self.length + 1] for start in starts], reset_state=True)

    def _starts(self, generator: np.random.Generator) -> Any:
        """Return where the windows of an epoch start, shuffled."""
        offset = int(generator.integers(self._offsets))
        return generator.permutation(self._count) * self.length + offset


def _check_shape(rows: int, length: int) -> None:
    if rows < 1 or length < 1:
        raise InputError(f"a batch of {rows} rows of {length} tokens", hint="choose at least 1 of each")


def _make_batch(parts: list[np.ndarray], reset_state: bool) -> Batch:
    """Split rows of T + 1 tokens into inputs and targets."""
    block = torch.from_numpy(np.stack(parts).astype(np.int64))
    return Batch(block[:, :-1].contiguous(), block[:, 1:].contiguous(), reset_state)
