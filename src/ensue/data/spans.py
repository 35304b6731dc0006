"""Span corruption: rows of a text with spans left out, to be filled in (T5; Raffel et al., 2020).

    text      Thank you for inviting me to your party last week
    source    Thank you <extra_id_0> me to your party <extra_id_1> week </s>
    target    <extra_id_0> for inviting <extra_id_1> last </s>

A text is cut into rows of equal length, across the ends of documents. Every row loses the same share of its tokens in
the same number of spans, so sources are all equally long, and so are targets: there is no padding. The lengths of
spans, and of what is between them, are a random division of their totals. The rows of a batch and their spans are a
pure function of (seed, step).

Legend: B rows, R tokens of a row of text, n tokens that are left out, k spans.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ensue.core.errors import InputError
from ensue.data.batches import EpochPlan, as_tensors
from ensue.data.pair_batches import PairBatch


@dataclass(frozen=True, kw_only=True, slots=True)
class SpanOptions:
    """How much of a text is left out."""

    share: float = 0.15
    """Share of a row's tokens."""
    mean: float = 3.0
    """Mean length of spans in tokens."""


class SpanSizes(NamedTuple):
    """Sizes of a row."""

    row: int
    """R."""
    lost: int
    """n."""
    spans: int
    """k."""

    @property
    def source(self) -> int:
        """Tokens of a source, with its end token."""
        return self.row - self.lost + self.spans + 1

    @property
    def target(self) -> int:
        """Tokens of a target, with its end token."""
        return self.lost + self.spans + 1

    @staticmethod
    def of(row: int, options: SpanOptions) -> SpanSizes:
        """The sizes of rows of ``row`` tokens."""
        lost = min(max(round(row * options.share), 1), row - 1)
        spans = min(max(round(lost / options.mean), 1), row - lost)
        return SpanSizes(row, lost, spans)


def fitting_sizes(length: int, options: SpanOptions) -> SpanSizes:
    """The sizes of the longest rows whose source and target have at most ``length`` tokens.

    >>> fitting_sizes(512, SpanOptions())
    SpanSizes(row=568, lost=85, spans=28)
    """
    if length < 8:
        raise InputError(f"rows of {length} tokens are too short to leave a span out", hint="use at least 8")
    row = 2
    while max((longer := SpanSizes.of(row + 1, options)).source, longer.target) <= length:
        row += 1
    return SpanSizes.of(row, options)


class SpanBatches:
    """Batches of ``rows`` rows of a text with spans left out."""

    def __init__(
        self,
        tokens: np.ndarray,
        sentinels: list[int],
        *,
        rows: int,
        length: int,
        options: SpanOptions,
        end: int,
        first: int,
        seed: int = 0,
    ) -> None:
        """``length`` is the most tokens of a source or target, ``first`` the token before a target's first."""
        self.sizes = fitting_sizes(length, options)
        if len(tokens) < 8:
            raise InputError(f"a text of {len(tokens)} tokens has no spans to leave out", hint="give more text")
        if len(tokens) < self.sizes.row:  # a short text is one row
            self.sizes = SpanSizes.of(len(tokens), options)
        if self.sizes.spans > len(sentinels):
            what = f"rows of {self.sizes.row} tokens have {self.sizes.spans} spans, the tokenizer {len(sentinels)}"
            raise InputError(f"{what} sentinels", hint="use a shorter train.length, or a longer train.mean_span")
        self._tokens, self._sentinels = tokens, np.array(sentinels[: self.sizes.spans], dtype=np.int64)
        self._end, self._first, self._seed = end, first, seed
        self.rows, self._count = rows, len(tokens) // self.sizes.row
        self._spare = len(tokens) - self._count * self.sizes.row
        self._plan = EpochPlan(self._arrange, seed, -(-self._count // rows))
        self.steps_per_epoch = -(-self._count // rows)
        self.padding = 0.0

    def __len__(self) -> int:
        return self.steps_per_epoch

    def _arrange(self, generator: np.random.Generator) -> list[np.ndarray]:
        """Return where the rows of each batch of an epoch begin: at another offset each epoch, shuffled."""
        offset = int(generator.integers(self._spare + 1))
        starts = generator.permutation(self._count) * self.sizes.row + offset
        return np.split(starts, range(self.rows, len(starts), self.rows))

    def batch(self, step: int) -> PairBatch:
        """Return the batch of a step, counted from 0 over all epochs."""
        starts = self._plan.item(step)
        text = self._tokens[starts[:, None] + np.arange(self.sizes.row)].astype(np.int64)
        generator = np.random.default_rng([self._seed % 2**64, 1 << 33, step])
        source, targets = self._corrupt(text, generator)
        tokens = np.full_like(targets, self._first)
        tokens[:, 1:] = targets[:, :-1]
        sizes = {"source_lengths": np.full(len(text), source.shape[1]), "lengths": np.full(len(text), targets.shape[1])}
        return PairBatch(**as_tensors(source=source, tokens=tokens, targets=targets, **sizes))

    def _corrupt(self, text: np.ndarray, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return sources and targets of rows of text (B, R): kept and lost parts take turns, a kept one first."""
        R, n, k = self.sizes
        kept, lost = (random_parts(len(text), total, k, generator) for total in (R - n, n))
        lengths = np.stack([kept, lost], axis=2).reshape(len(text), 2 * k)
        part = np.repeat(np.tile(np.arange(2 * k), len(text)), lengths.reshape(-1)).reshape(len(text), R)
        is_lost = part % 2 == 1
        begins = np.diff(part, axis=1, prepend=-1) > 0
        sentinels = self._sentinels[part // 2]
        ends = np.full((len(text), 1), self._end)
        # of a source each lost part is one sentinel; of a target each kept part is that of the lost part after it
        source = np.where(is_lost, sentinels, text)[~is_lost | begins].reshape(len(text), -1)
        target = np.where(is_lost, text, sentinels)[is_lost | begins].reshape(len(text), -1)
        return np.concatenate([source, ends], axis=1), np.concatenate([target, ends], axis=1)


def random_parts(rows: int, total: int, parts: int, generator: np.random.Generator) -> np.ndarray:
    """Divide ``total`` into parts of at least 1, each division equally likely, for each row: (rows, parts).

    >>> random_parts(2, 5, 2, np.random.default_rng(0)).sum(1).tolist()
    [5, 5]
    """
    cuts = np.argsort(generator.random((rows, total - 1)), axis=1)[:, : parts - 1] + 1
    bounds = np.concatenate([np.zeros((rows, 1)), np.sort(cuts, axis=1), np.full((rows, 1), total)], axis=1)
    return np.diff(bounds, axis=1).astype(np.int64)
