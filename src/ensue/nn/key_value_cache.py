"""The key–value cache of attention.

Outside autograd keys and values live in a buffer that is written in place, and grows by a share of its size; under
autograd they are appended. Rows may have different lengths.

A beam search makes k rows of one and then, at every step, picks which of them continue: a row's past is a path through
what all k have written. So the k rows of a group write into one buffer, and a mask says which columns are a row's own:

    rows      1  2            1  2 (both from 1)
    buffer    a₁ a₂      →    a₁ a₂ b₁ b₂
    seen 1    ●  ○            ●  ○  ●  ○
    seen 2    ○  ●            ●  ○  ○  ●

Their queries stand side by side, as one longer row. Picking rows then costs a few bits instead of a copy of all keys
and values. Attention to the other k − 1 rows' columns is wasted, which for few rows and short texts is much cheaper.

Legend: B rows, T new tokens, C capacity, H heads, d head width, G groups of k rows, P columns of a buffer that are
written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from ensue.kernels.decode_caches import CACHED
from ensue.kernels.decode_program import CacheView
from ensue.nn.state import State

SHARED = 1024
"""Rows of a group share a buffer of at most 1,024 columns; beyond that each has its own."""
CAPACITY = 32
"""Smallest capacity of a buffer, so that the first steps need not grow it."""
DOUBLED = 128
"""A buffer doubles up to twice this capacity. A larger one grows by this many columns or a quarter, whichever is more:
doubling would leave half of a long text's buffer empty. Copying takes less than a hundredth of the steps' time."""


@dataclass(frozen=True)
class KeyValueCache(State):
    """Keys and values so far. Row b has its ``lengths[b]`` tokens in columns 0 … lengths[b] − 1 of C.

    Where rows share a buffer, every k of them in order, they are equally long and ``seen`` says where their tokens are.
    """

    keys: Tensor  # (G, H, C, d); G = B where nothing is shared
    values: Tensor  # (G, H, C, d)
    lengths: Tensor  # (B,)
    used: int = 0
    """Length of the longest row."""
    even: bool = True
    """Whether all rows are equally long, so that no mask by row is needed."""
    each: int = 1
    """k, the number of rows that share a buffer."""
    seen: Tensor | None = None  # (B, P), which columns are a row's own past; None where nothing is shared

    @property
    def count(self) -> int:
        """B, which a shared buffer does not show."""
        return len(self.lengths)

    @property
    def written(self) -> int:
        """P, the columns of the buffer that hold something."""
        return self.used if self.seen is None else self.seen.shape[1]

    @property
    def fresh(self) -> bool:
        """Whether nothing was read yet."""
        return self.used == 0 and self.even and self.seen is None

    @property
    def written_keys(self) -> Tensor:
        """(G, H, P, d)."""
        return self.keys[:, :, : self.written]

    @property
    def written_values(self) -> Tensor:
        """(G, H, P, d)."""
        return self.values[:, :, : self.written]

    def whole(self, span: int) -> bool:
        """Whether the next token of every row sees all columns."""
        return self.seen is None and self.even and not 0 < span <= self.used

    def key_positions(self, positions: Tensor, size: int) -> Tensor:
        """Positions of ``size`` columns, (1 or B, S), where the next tokens have ``positions`` (1 or B, T)."""
        first = positions[:, :1] - (self.used if self.even else self.lengths[:, None])
        return first + torch.arange(size, device=positions.device)

    def positions(self, time: int) -> Tensor:
        """The positions of the next ``time`` tokens: (1, T) where rows are even, else (B, T)."""
        steps = torch.arange(time, device=self.keys.device)
        return (self.used + steps)[None] if self.even else self.lengths[:, None] + steps

    def append(self, keys: Tensor, values: Tensor, lengths: Tensor | None) -> KeyValueCache:
        """The state after new keys and values (G, H, k·T, d), of which row b has lengths[b] real ones."""
        time = keys.shape[2] // self.each
        columns = None if self.even else self.positions(time)
        after = self.lengths + (time if lengths is None else lengths)
        return KeyValueCache(
            _put(self.keys, keys, self.written, columns),
            _put(self.values, values, self.written, columns),
            after,
            self.used + time if lengths is None else int(after.max()),
            self.even and lengths is None,
            self.each,
            None if self.seen is None else torch.cat([self.seen, self._own_columns(time)], dim=1),
        )

    def with_room(self, span: int = 0) -> KeyValueCache:
        """The same with capacity for one more token of each row, which sees ``span`` tokens or, with 0, all.

        Tokens that no later one sees are dropped when the buffer is full, so that a step costs the same on average
        however long the text is. It is for steps outside autograd.
        """
        beyond = 0 < span <= self.used
        if self.seen is not None and (beyond or self.written + self.each > SHARED):
            return self.separate().with_room(span)
        if self.keys.dtype != self.values.dtype or self.keys.dtype not in CACHED or not self._regular:
            keys, values = (part.float().contiguous() for part in (self.keys, self.values))  # autograd left them so
            return replace(self, keys=keys, values=values).with_room(span)
        if self.written + self.each <= self.keys.shape[2]:
            return self
        if beyond and self.used > 2 * (span - 1):
            return self.last(span - 1).with_room(span)
        grown = 2 * span if 0 < span <= self.used + 1 else _grown(self.keys.shape[2])
        size = max(grown, self.written + self.each, CAPACITY)
        return replace(self, keys=_wide(self.keys, size), values=_wide(self.values, size))

    @property
    def room(self) -> int:
        """How many more tokens of each row the buffer has room for; 0 where rows share one and so take turns."""
        return 0 if self.seen is not None else self.keys.shape[2] - self.used

    @property
    def _regular(self) -> bool:
        """Whether a decode program may write keys and values: strides are the same, and columns are contiguous."""
        if self.keys.is_contiguous() and self.values.is_contiguous():
            return True
        return self.keys.stride() == self.values.stride() and self.keys.stride()[2:] == (self.keys.shape[3], 1)

    def view(self, rotation: tuple[Tensor, Tensor] | None = None) -> CacheView:
        """The cache as a decode program reads and writes it; ``rotation`` is that of the next tokens."""
        return CacheView(self.keys, self.values, self.lengths, each=self.each, seen=self.seen, rotation=rotation)

    def single(self) -> KeyValueCache:
        """The same of one row, which is as long as the longest."""
        return replace(self, used=int(self.lengths[0]), even=True)

    def first(self, tokens: int, of: int) -> KeyValueCache | None:
        """The same after fewer tokens of one row; None where older ones were dropped."""
        if self.count != 1 or self.seen is not None or int(self.lengths[0]) != of:
            return None
        keys, values = self.keys[:, :, :tokens], self.values[:, :, :tokens]
        return KeyValueCache(keys, values, torch.full_like(self.lengths, tokens), tokens)

    def last(self, most: int) -> KeyValueCache:
        """The same with only the last ``most`` tokens of a row.

        Uneven rows have to be moved for that, so it is done when they hold twice as many.
        """
        if self.seen is not None or self.used <= (most if self.even else 2 * most):
            return self
        if self.even:
            keys, values = (part[:, :, self.used - most :] for part in (self.keys, self.values))
            return replace(self, keys=keys, values=values, lengths=torch.full_like(self.lengths, most), used=most)
        kept = self.lengths.clamp(max=most)
        columns = (self.lengths - kept)[:, None] + torch.arange(most, device=kept.device)
        index = columns[:, None, :, None].expand(-1, self.keys.shape[1], -1, self.keys.shape[3])
        keys, values = (part.gather(2, index) for part in (self.keys, self.values))
        return KeyValueCache(keys, values, kept, most, bool((kept == most).all()))

    def visible(self, time: int, size: int, span: int = 0) -> Tensor:
        """Which of S columns each of T new tokens may see, its own and all before it: (1 or B, 1, T, S).

        With a ``span`` only the last ones. In a shared buffer it is (G, 1, k·T, S).
        """
        if self.seen is None:
            columns, own = torch.arange(size, device=self.keys.device), self.positions(time)[..., None]
            seen = columns <= own
            if span:  # padding must see something too, or it would be NaN
                seen = seen & (columns > own.clamp(max=size - 1) - span)
            return seen[:, None]
        before = self.seen.view(-1, self.each, 1, self.written).expand(-1, -1, time, -1).flatten(1, 2)
        causal = torch.ones(time, time, dtype=torch.bool, device=self.keys.device).tril()
        own = torch.eye(self.each, dtype=torch.bool, device=self.keys.device)
        fresh = torch.kron(own, causal)[None].expand(len(before), -1, -1)
        return torch.cat([before, fresh], dim=2)[:, None]

    def _own_columns(self, time: int) -> Tensor:
        """Which of the next k·T columns a row writes, (B, k·T)."""
        own = torch.eye(self.each, dtype=torch.bool, device=self.keys.device).repeat_interleave(time, dim=1)
        return own.repeat(len(self.keys), 1)

    def rows(self, index: Tensor) -> KeyValueCache:
        """Other rows. Where they are equally many of each group, in order, they share the group's buffer."""
        groups, counts = torch.unique_consecutive(index.div(self.each, rounding_mode="floor"), return_counts=True)
        each = int(counts[0]) if len(counts) else 1
        regular = bool((counts == each).all()) and bool((groups[1:] > groups[:-1]).all())
        if each == 1 or not self.even or not self.used or not regular:
            own = self.separate()
            keys, values, lengths = (part.index_select(0, index) for part in (own.keys, own.values, own.lengths))
            used = own.used if own.even or not len(lengths) else int(lengths.max())  # the longest may have left
            return KeyValueCache(keys, values, lengths, used, own.even)
        keys, values = self.keys, self.values
        if len(groups) < len(keys):
            keys, values = keys.index_select(0, groups), values.index_select(0, groups)
        seen = self.seen
        if seen is None:
            seen = torch.ones(1, self.used, dtype=torch.bool, device=keys.device).expand(len(self.lengths), -1)
        return KeyValueCache(
            keys, values, self.lengths.index_select(0, index), self.used, True, each, seen.index_select(0, index)
        )

    def separate(self) -> KeyValueCache:
        """The same with a buffer of its own for each row."""
        if self.seen is None:
            return self
        columns = self.seen.nonzero()[:, 1].view(-1, 1, self.used)  # in order of time
        group = torch.arange(len(self.seen), device=columns.device).div(self.each, rounding_mode="floor")[:, None, None]
        head = torch.arange(self.keys.shape[1], device=columns.device)[:, None]
        keys, values = self.keys[group, head, columns], self.values[group, head, columns]
        return KeyValueCache(keys, values, self.lengths, self.used, True)

    def renewed(self, rows: Tensor, start: KeyValueCache) -> KeyValueCache:
        """This cache, with some rows taken from ``start``, which may have read more or less."""
        if not bool(rows.any()):
            return self
        own, fresh = self.separate(), start.separate()
        capacity, here = max(own.keys.shape[2], fresh.keys.shape[2]), rows[:, None, None, None]
        lengths = torch.where(rows, fresh.lengths, own.lengths)
        used = int(lengths.max())
        return KeyValueCache(
            torch.where(here, _wide(fresh.keys, capacity), _wide(own.keys, capacity)),
            torch.where(here, _wide(fresh.values, capacity), _wide(own.values, capacity)),
            lengths,
            used,
            bool((lengths == used).all()),
        )

    @classmethod
    def joined(cls, states: Sequence[KeyValueCache]) -> KeyValueCache:
        """Rows of several caches as one; they may have different lengths.

        A buffer of more than twice the longest row is cut: longer rows were there once, and rows may join for ever.
        """
        states = [state.separate() for state in states]
        used = max(state.used for state in states)
        capacity = min(max(state.keys.shape[2] for state in states), max(2 * used, CAPACITY))
        return KeyValueCache(
            torch.cat([_wide(state.keys, capacity) for state in states]),
            torch.cat([_wide(state.values, capacity) for state in states]),
            torch.cat([state.lengths for state in states]),
            used,
            even=False,
        )


def all_advanced(blocks: Sequence[KeyValueCache], spans: Sequence[int]) -> tuple[KeyValueCache, ...]:
    """The caches of a model's blocks after one more token of each row was written into each of them.

    Blocks of the same span have dropped the same tokens, and share what is computed here.
    """
    kinds: dict[tuple[int, int], tuple[Tensor, Tensor | None]] = {}
    after = []
    for one, span in zip(blocks, spans, strict=True):
        kind = (span, one.used)
        if kind not in kinds:
            seen = None if one.seen is None else torch.cat([one.seen, one._own_columns(1)], dim=1)
            kinds[kind] = one.lengths + 1, seen
        lengths, seen = kinds[kind]
        after.append(one.changed(lengths=lengths, used=one.used + 1, seen=seen))
    return tuple(after)


def _grown(capacity: int) -> int:
    """The next capacity of a buffer."""
    return max(CAPACITY, capacity + max(min(capacity, DOUBLED), capacity // 4))


def _wide(buffer: Tensor, capacity: int) -> Tensor:
    """(B, H, …, d) → (B, H, C, d), with zeros at the end, or cut."""
    return F.pad(buffer, (0, 0, 0, capacity - buffer.shape[2]))


def _put(buffer: Tensor, new: Tensor, used: int, columns: Tensor | None) -> Tensor:
    """The buffer with ``new`` (B, H, T, d) at ``used`` …, or at each row's own ``columns`` (B, T)."""
    time = new.shape[2]
    if torch.is_grad_enabled():
        old = buffer[:, :, :used].to(new.dtype)
        if columns is None:
            return torch.cat([old, new], dim=2) if used else new
        return F.pad(old, (0, 0, 0, time)).scatter(2, columns[:, None, :, None].expand_as(new), new)
    if used + time > buffer.shape[2]:
        size = max(used + time, _grown(buffer.shape[2]))
        buffer = F.pad(buffer, (0, 0, 0, size - buffer.shape[2]))  # zeros: weight 0 times whatever was there may be NaN
    if columns is None:
        buffer[:, :, used : used + time] = new
    else:
        buffer.scatter_(2, columns[:, None, :, None].expand_as(new), new.to(buffer.dtype))
    return buffer
