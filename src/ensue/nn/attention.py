"""Scaled dot-product attention: over a growing memory of keys and values, in both directions, and to a source.

    Attention(Q, K, V) = softmax(Q Kᵀ / √d) V          row-wise softmax; (T × d)(d × S)(S × d)
    MultiHead(x, m)    = Concat(head_1 … head_H) W_O,  head_i = Attention(x W_Q,i, m W_K,i, m W_V,i)

m is x and what came before it (SelfAttention), all of x (FullAttention), or an encoded source (CrossAttention).

The state is the keys and values so far. Outside autograd they live in a buffer that grows by doubling and is written
in place; under autograd they are appended. Rows may have different lengths.

A beam search makes k rows of one and then, at every step, picks which of them go on: a row's past is a path through
what all k have written. So the k rows of a group write into one memory, and each remembers by a mask which places of
it are its own past:

    rows      1  2            1  2 (both from 1)
    memory    a₁ a₂      →    a₁ a₂ b₁ b₂
    seen 1    ●  ○            ●  ○  ●  ○
    seen 2    ○  ●            ●  ○  ○  ●

Their queries stand side by side, as one longer row. Picking then costs a few bits instead of a copy of all keys and
values; the k − 1 others' places are computed in vain, which for few rows and short texts is much cheaper.

Legend: B rows, T new tokens, S tokens in memory (new ones included), C capacity, H heads, d width of a head, D = H·d,
N sentences, of which rows may share one, G groups of k rows, P places of a memory that are written.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ensue.nn import blocked_attention, short_attention
from ensue.nn.dropout import mask as dropout_mask
from ensue.nn.kernels import plain
from ensue.nn.packing import Packing, Rows
from ensue.nn.positions import Rotary, rotate
from ensue.nn.products import linear
from ensue.nn.quantised import part
from ensue.nn.source import Source
from ensue.nn.state import State, zeros_beside
from ensue.nn.tape import Memory, Tape, Unwritten

SHARED = 1024
"""Rows of a group share a memory of at most so many places; with more, each has its own."""
ROOM = 32
"""Places of a buffer at least, so that the first steps need not make a larger one."""


@dataclass(frozen=True)
class AttentionState(State):
    """Keys and values so far. Row b holds its ``lengths[b]`` tokens at places 0 … lengths[b] − 1 of C.

    Where rows share a memory, every k of them in order, they are equally long and ``seen`` says where their tokens are.
    """

    keys: Tensor  # (G, H, C, d); G = B where nothing is shared
    values: Tensor  # (G, H, C, d)
    lengths: Tensor  # (B,)
    used: int = 0
    """The longest row."""
    even: bool = True
    """All rows are as long as the longest, so no mask by row is needed."""
    each: int = 1
    """k, how many rows share a memory."""
    seen: Tensor | None = None  # (B, P), which places are a row's own past; None where nothing is shared

    @property
    def count(self) -> int:
        """B, which a shared memory does not show."""
        return len(self.lengths)

    @property
    def written(self) -> int:
        """P, the places of the memory that hold something."""
        return self.used if self.seen is None else self.seen.shape[1]

    def places(self, time: int) -> Tensor:
        """The positions of the next ``time`` tokens: (1, T) where rows are even, else (B, T)."""
        steps = torch.arange(time, device=self.keys.device)
        return (self.used + steps)[None] if self.even else self.lengths[:, None] + steps

    def append(self, keys: Tensor, values: Tensor, lengths: Tensor | None) -> AttentionState:
        """The state after new keys and values (G, H, k·T, d), of which row b has lengths[b] real ones."""
        time = keys.shape[2] // self.each
        places = None if self.even else self.places(time)
        after = self.lengths + (time if lengths is None else lengths)
        return AttentionState(
            _put(self.keys, keys, self.written, places),
            _put(self.values, values, self.written, places),
            after,
            self.used + time if lengths is None else int(after.max()),
            self.even and lengths is None,
            self.each,
            None if self.seen is None else torch.cat([self.seen, self._own_places(time)], dim=1),
        )

    def roomy(self) -> AttentionState:
        """The same with room for one more token of each row; outside autograd."""
        if self.seen is not None and self.written + self.each > SHARED:
            return self.alone().roomy()
        if not all(part.is_contiguous() and part.dtype == torch.float32 for part in (self.keys, self.values)):
            keys, values = (part.float().contiguous() for part in (self.keys, self.values))  # what autograd left
            return replace(self, keys=keys, values=values).roomy()
        if self.written + self.each <= self.keys.shape[2]:
            return self
        size = max(2 * self.keys.shape[2], self.written + self.each, ROOM)
        return replace(self, keys=_wide(self.keys, size), values=_wide(self.values, size))

    @property
    def memory(self) -> Memory:
        """What a tape reads and writes."""
        return Memory(self.keys, self.values, self.lengths, each=self.each, seen=self.seen)

    def recent(self, most: int) -> AttentionState:
        """The same without what is further back than the last ``most`` tokens of a row.

        Uneven rows have to be moved for that, so it is done when they hold twice as many.
        """
        if self.seen is not None or self.used <= (most if self.even else 2 * most):
            return self
        if self.even:
            keys, values = (part[:, :, self.used - most :] for part in (self.keys, self.values))
            return replace(self, keys=keys, values=values, lengths=torch.full_like(self.lengths, most), used=most)
        kept = self.lengths.clamp(max=most)
        places = (self.lengths - kept)[:, None] + torch.arange(most, device=kept.device)
        index = places[:, None, :, None].expand(-1, self.keys.shape[1], -1, self.keys.shape[3])
        keys, values = (part.gather(2, index) for part in (self.keys, self.values))
        return AttentionState(keys, values, kept, most, bool((kept == most).all()))

    def visible(self, time: int, size: int, span: int = 0) -> Tensor:
        """Which of S places each of T new tokens may see, its own and all before it: (1 or B, 1, T, S).

        With a ``span`` that is the last so many. In a shared memory, in which no row is longer, it is (G, 1, k·T, S).
        """
        if self.seen is None:
            places, own = torch.arange(size, device=self.keys.device), self.places(time)[..., None]
            seen = places <= own
            if span:  # what is padded sees something too, or it would be NaN
                seen = seen & (places > own.clamp(max=size - 1) - span)
            return seen[:, None]
        before = self.seen.view(-1, self.each, 1, self.written).expand(-1, -1, time, -1).flatten(1, 2)
        causal = torch.ones(time, time, dtype=torch.bool, device=self.keys.device).tril()
        own = torch.eye(self.each, dtype=torch.bool, device=self.keys.device)
        fresh = torch.kron(own, causal)[None].expand(len(before), -1, -1)
        return torch.cat([before, fresh], dim=2)[:, None]

    def _own_places(self, time: int) -> Tensor:
        """Which of the next k·T places a row writes, (B, k·T)."""
        own = torch.eye(self.each, dtype=torch.bool, device=self.keys.device).repeat_interleave(time, dim=1)
        return own.repeat(len(self.keys), 1)

    def rows(self, index: Tensor) -> AttentionState:
        """Other rows. Where they are as many of each group, in order, they share what the group remembers."""
        groups, counts = torch.unique_consecutive(index.div(self.each, rounding_mode="floor"), return_counts=True)
        each = int(counts[0]) if len(counts) else 1
        regular = bool((counts == each).all()) and bool((groups[1:] > groups[:-1]).all())
        if each == 1 or not self.even or not self.used or not regular:
            own = self.alone()
            keys, values, lengths = (part.index_select(0, index) for part in (own.keys, own.values, own.lengths))
            return AttentionState(keys, values, lengths, own.used, own.even)
        keys, values = self.keys, self.values
        if len(groups) < len(keys):
            keys, values = keys.index_select(0, groups), values.index_select(0, groups)
        seen = self.seen
        if seen is None:
            seen = torch.ones(1, self.used, dtype=torch.bool, device=keys.device).expand(len(self.lengths), -1)
        return AttentionState(
            keys, values, self.lengths.index_select(0, index), self.used, True, each, seen.index_select(0, index)
        )

    def alone(self) -> AttentionState:
        """The same with a memory of its own for each row."""
        if self.seen is None:
            return self
        places = self.seen.nonzero()[:, 1].view(-1, 1, self.used)  # in order of time
        group = torch.arange(len(self.seen), device=places.device).div(self.each, rounding_mode="floor")[:, None, None]
        head = torch.arange(self.keys.shape[1], device=places.device)[:, None]
        keys, values = self.keys[group, head, places], self.values[group, head, places]
        return AttentionState(keys, values, self.lengths, self.used, True)

    def renewed(self, rows: Tensor, start: AttentionState) -> AttentionState:
        """This state, with some rows taken from ``start``, which may have read more or less."""
        if not bool(rows.any()):
            return self
        own, fresh = self.alone(), start.alone()
        capacity, here = max(own.keys.shape[2], fresh.keys.shape[2]), rows[:, None, None, None]
        lengths = torch.where(rows, fresh.lengths, own.lengths)
        used = int(lengths.max())
        return AttentionState(
            torch.where(here, _wide(fresh.keys, capacity), _wide(own.keys, capacity)),
            torch.where(here, _wide(fresh.values, capacity), _wide(own.values, capacity)),
            lengths,
            used,
            bool((lengths == used).all()),
        )

    @classmethod
    def joined(cls, states: Sequence[AttentionState]) -> AttentionState:
        """Rows of several states as one state; they may have read differently much."""
        states = [state.alone() for state in states]
        capacity = max(state.keys.shape[2] for state in states)
        return AttentionState(
            torch.cat([_wide(state.keys, capacity) for state in states]),
            torch.cat([_wide(state.values, capacity) for state in states]),
            torch.cat([state.lengths for state in states]),
            max(state.used for state in states),
            even=False,
        )


def all_longer(blocks: Sequence[AttentionState]) -> tuple[AttentionState, ...]:
    """The states of a model's blocks after one more token of each row was put into every memory."""
    first = blocks[0]
    seen = None if first.seen is None else torch.cat([first.seen, first._own_places(1)], dim=1)
    lengths, used = first.lengths + 1, first.used + 1
    return tuple(replace(block, lengths=lengths, used=used, seen=seen) for block in blocks)


def _wide(buffer: Tensor, capacity: int) -> Tensor:
    """(B, H, …, d) → (B, H, C, d), zeros at the end."""
    return F.pad(buffer, (0, 0, 0, capacity - buffer.shape[2]))


def _put(buffer: Tensor, new: Tensor, used: int, places: Tensor | None) -> Tensor:
    """The buffer with ``new`` (B, H, T, d) at ``used`` …, or at each row's own ``places`` (B, T)."""
    time = new.shape[2]
    if torch.is_grad_enabled():
        old = buffer[:, :, :used]
        if places is None:
            return torch.cat([old, new], dim=2) if used else new
        return F.pad(old, (0, 0, 0, time)).scatter(2, places[:, None, :, None].expand_as(new), new)
    if used + time > buffer.shape[2]:
        size = max(used + time, 2 * buffer.shape[2], ROOM)
        buffer = F.pad(buffer, (0, 0, 0, size - buffer.shape[2]))  # zeros: weight 0 times whatever was there may be NaN
    if places is None:
        buffer[:, :, used : used + time] = new
    else:
        buffer.scatter_(2, places[:, None, :, None].expand_as(new), new)
    return buffer


def attention_weights(query: Tensor, key: Tensor, mask: Tensor | None = None) -> Tensor:
    """softmax(Q Kᵀ / √d), (B, H, T, d), (B, H, S, d) → (B, H, T, S): the reference, and what one looks at."""
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    if mask is None:
        return scores.softmax(dim=-1)
    return (
        scores.masked_fill(~mask, float("-inf")).softmax(dim=-1).masked_fill(~mask, 0.0)
    )  # who sees none looks nowhere


def attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    """softmax(Q Kᵀ / √d) V, plainly: what the fused kernel is tested against."""
    return attention_weights(query, key, mask) @ value


def attention_with_dropout(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, p: float) -> Tensor:
    """The same with weights switched off at random.

    Where weights are dropped the fused kernel makes them one by one too, and draws a random number for each; here a
    byte decides (see ``ensue.nn.dropout``).
    """
    scores = (query / math.sqrt(query.shape[-1])) @ key.transpose(-2, -1)
    if mask is not None:
        with torch.no_grad():  # what is not seen has weight 0, and so has its gradient
            scores.masked_fill_(~mask, float("-inf"))
    weights = scores.softmax(dim=-1)
    return (weights * dropout_mask(weights, p)) @ value


def _heads(x: Tensor, heads: int) -> Tensor:
    """(B, T, D) → (B, H, T, d)."""
    return x.view(*x.shape[:-1], heads, x.shape[-1] // heads).transpose(1, 2)


class SelfAttention(nn.Module):
    """Causal multi-head self-attention with a memory: of all that was before, or of the last ``span`` tokens.

    With a span a token sees itself and the span − 1 before it, wherever a text is cut, and the memory stays small.
    """

    def __init__(self, width: int, heads: int, dropout: float = 0.0, rotary: bool = False, span: int = 0) -> None:
        super().__init__()
        assert not (rotary and span), "what is forgotten would move the positions of the rest"
        self.heads, self.dropout, self.span = heads, dropout, span
        self.project = nn.Linear(width, 3 * width)  # W_Q, W_K, W_V side by side
        self.out = nn.Linear(width, width)  # W_O
        self.rotary = Rotary(width // heads) if rotary else None

    def start(self, rows: int) -> AttentionState:
        """An empty memory."""
        bias = self.out.bias
        empty = zeros_beside(bias, rows, self.heads, 0, len(bias) // self.heads)
        return AttentionState(empty, empty, torch.zeros(rows, dtype=torch.long, device=bias.device))

    def forward(
        self,
        x: Tensor,
        state: AttentionState | None = None,
        lengths: Tensor | Rows | None = None,
        weights: bool = False,
    ) -> tuple[Tensor, AttentionState | None, Tensor | None]:
        """Attend from x (B, T, D) to what was before and to x itself; with ``weights`` also say where to.

        With rows in place of lengths x is (M, D), nothing was before and no state is left.
        """
        if isinstance(lengths, Rows):
            y = short_attention.packed((linear(self.project, x),), self.heads, lengths, causal=True)
            return linear(self.out, y), None, None
        state = state or self.start(len(x))
        T, k, span = x.shape[1], state.each, self.span
        if 0 < span < T and not weights:
            return self._in_parts(x, state, lengths)
        far = 0 < span < state.used + T
        if state.seen is not None and (lengths is not None or weights or far or state.written + k * T > SHARED):
            state, k = state.alone(), 1
        state = state.recent(span - 1) if far else state
        side_by_side = x.reshape(x.shape[0] // k, k * T, x.shape[2])  # (G, k·T, D)
        projected = linear(self.project, side_by_side)
        query, key, value = (_heads(part, self.heads) for part in projected.chunk(3, dim=-1))
        if self.rotary is not None:
            turn = [one.transpose(1, 2) for one in self.rotary(state.places(T).repeat(1, k), x)]
            query, key = (rotate(one.transpose(1, 2), *turn).transpose(1, 2) for one in (query, key))  # as they lie
        new = state.append(key, value, lengths)
        S = new.written
        keys, values = new.keys[:, :, :S], new.values[:, :, :S]  # (G, H, S, d)
        simple = state.seen is None and state.even and (state.used == 0 or T == 1) and not 0 < span < state.used + T
        mask, dropout = None if simple else state.visible(T, S, span), self.dropout if self.training else 0.0
        own = simple and not state.used and torch.is_grad_enabled()  # all there is to see was projected just now
        parts: short_attention.Parts = (projected,)
        if own and self.rotary is not None:
            parts = tuple(one.transpose(1, 2).flatten(2) for one in (query, key, value))
        if own and not dropout and short_attention.fits(parts, self.heads):
            y = short_attention.attend(parts, self.heads, causal=True)
        elif own and blocked_attention.fits(parts, self.heads):
            y = blocked_attention.attend(parts, self.heads, None, True, dropout)
        else:
            y = F.scaled_dot_product_attention(
                query, keys, values, mask, dropout, is_causal=mask is None and bool(T > 1)
            ).transpose(1, 2)
        seen = attention_weights(query, keys, state.visible(T, S, span)) if weights else None
        return linear(self.out, y.reshape(x.shape)), new, seen

    def write(self, tape: Tape, x: Tensor) -> Tensor:
        """Attend from one token of each row, before W_O, as instructions."""
        if self.span:
            raise Unwritten("a span")
        D = x.shape[1]
        projected = tape.linear(self.project, x)
        query, key, value = (projected[:, at : at + D] for at in (0, D, 2 * D))
        return tape.attend(query, key, value, self.heads, D)

    def _in_parts(
        self, x: Tensor, state: AttentionState, lengths: Tensor | None
    ) -> tuple[Tensor, AttentionState | None, None]:
        """A text longer than the span, a span at a time: what it costs grows with its length, not with the square."""
        found, after = [], state
        for at in range(0, x.shape[1], self.span):
            here = x[:, at : at + self.span]
            y, after, _ = self(here, after, None if lengths is None else (lengths - at).clamp(0, here.shape[1]))
            found.append(y)
        return torch.cat(found, dim=1), after, None


class FullAttention(nn.Module):
    """Multi-head self-attention in both directions, for encoders: each token sees all of its text. It has no state."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.project = nn.Linear(width, 3 * width)  # W_Q, W_K, W_V side by side
        self.out = nn.Linear(width, width)  # W_O

    def start(self, rows: int) -> None:
        """Nothing is carried on."""

    def forward(
        self, x: Tensor, state: None = None, lengths: Tensor | Packing | Rows | None = None, weights: bool = False
    ) -> tuple[Tensor, None, Tensor | None]:
        """Attend from each place of x (B, T, D) to every real one; with ``weights`` also say where to.

        With a packing in place of lengths x is (M, D), and with rows where it learns.
        """
        if isinstance(lengths, Rows):
            y = short_attention.packed((linear(self.project, x),), self.heads, lengths)
            return linear(self.out, y), None, None
        if isinstance(lengths, Packing):
            return self._packed(None, linear(self.project, x), lengths), None, None
        y, seen = self._attend((linear(self.project, x),), lengths, weights)
        return y, None, seen

    def at(
        self, here: Tensor, x: Tensor, lengths: Tensor | Packing | None = None, weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from some places ``here`` (B, K, D) to every real one of x (B, T, D); rows of a packing as it has
        them.
        """
        D = here.shape[-1]
        query, rest = part(self.project, here, 0, D), part(self.project, x, D, 3 * D)
        if isinstance(lengths, Packing):
            return self._packed(query, rest, lengths), None
        return self._attend((query, rest), lengths, weights)

    def _packed(self, query: Tensor | None, projected: Tensor, packing: Packing) -> Tensor:
        """The same for packed rows: (M, 3D) → (M, D), or from queries (B, K, D) to keys and values (M, 2D)."""
        D = len(self.out.bias)
        y = projected.new_empty(len(projected), D) if query is None else torch.empty_like(query)
        row = start = 0
        for rows, time in packing.groups:
            stop = start + rows * time
            held = projected[start:stop].view(rows, time, -1, self.heads, D // self.heads).transpose(1, 3)
            k, v = held[:, :, -2], held[:, :, -1]  # (rows, H, T, d)
            q = held[:, :, 0] if query is None else _heads(query[row : row + rows], self.heads)
            found = F.scaled_dot_product_attention(q, k, v, None, self.dropout if self.training else 0.0)
            into = y[start:stop] if query is None else y[row : row + rows]
            into.copy_(found.transpose(1, 2).reshape(into.shape))
            row, start = row + rows, stop
        result: Tensor = linear(self.out, y)
        return result

    def _attend(
        self, parts: short_attention.Parts, lengths: Tensor | None, weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        q, k, v = short_attention.split(parts, self.heads)
        mask, dropout = None, self.dropout if self.training else 0.0
        if lengths is not None:  # a row of no tokens sees its padding: there is nothing else, and nobody asks
            lengths = lengths.clamp(min=1)
            mask = (torch.arange(k.shape[2], device=k.device) < lengths[:, None])[:, None, None]
        if not dropout and short_attention.fits(parts, self.heads):
            y = short_attention.attend(parts, self.heads, lengths)
        elif blocked_attention.fits(parts, self.heads):
            y = blocked_attention.attend(parts, self.heads, lengths, dropout=dropout)
        elif dropout and q.device.type == "cpu" and plain(q, k, v):
            y = attention_with_dropout(q, k, v, mask, dropout).transpose(1, 2).flatten(2)
        else:
            y = F.scaled_dot_product_attention(q, k, v, mask, dropout).transpose(1, 2).flatten(2)
        seen = attention_weights(q, k, mask) if weights else None
        return linear(self.out, y), seen


class CrossAttention(nn.Module):
    """Multi-head attention from a decoder to an encoded source, whose keys and values are made once a sentence."""

    entries: ClassVar[tuple[str, ...]] = ("remember",)
    """What is used from outside a block, beside ``forward``."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.query = nn.Linear(width, width)  # W_Q
        self.remember = nn.Linear(width, 2 * width)  # W_K, W_V side by side
        self.out = nn.Linear(width, width)  # W_O

    def memory(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of a source (N, S, D), each (N, H, S, d)."""
        key, value = (_heads(part, self.heads) for part in linear(self.remember, source).chunk(2, dim=-1))
        return key, value

    def write(self, tape: Tape, x: Tensor) -> Tensor:
        """Attend from one token of each row, before W_O, as instructions."""
        return tape.attend(tape.linear(self.query, x), None, None, self.heads, x.shape[1])

    def forward(
        self, x: Tensor, memory: tuple[Tensor, ...], source: Source | Rows, weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from x (B, T, D) to its rows' sentences; with ``weights`` also say where to, (B, H, T, S).

        With rows in place of a source x is (M, D), and the memory is what ``remember`` made of packed sentences.
        """
        if isinstance(source, Rows):
            y = short_attention.packed((linear(self.query, x), *memory), self.heads, source)
            return linear(self.out, y), None
        query, (key, value) = source.fold(linear(self.query, x)), memory  # (N, k·T, D)
        q, dropout = _heads(query, self.heads), self.dropout if self.training else 0.0  # (N, H, k·T, d)
        mask = source.mask(key.shape[2])
        if mask is not None:
            mask = mask[:, None, None]
        learns = torch.is_grad_enabled()  # else keys and values may lie in a way that has to be copied here
        parts = (query, *(one.transpose(1, 2).flatten(2) for one in memory)) if learns else ()
        if parts and not dropout and short_attention.fits(parts, self.heads):
            y = short_attention.attend(parts, self.heads, source.lengths)
        elif parts and blocked_attention.fits(parts, self.heads):
            y = blocked_attention.attend(parts, self.heads, source.lengths, dropout=dropout)
        else:
            y = F.scaled_dot_product_attention(q, key, value, mask, dropout).transpose(1, 2)
        seen = source.unfold(attention_weights(q, key, mask), dim=2) if weights else None
        return linear(self.out, y.reshape(x.shape)), seen
