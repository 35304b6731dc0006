"""Attention whose pattern depends on positions only: which keys a query sees is known before anything is read.

    y_t = Σ_{s ∈ A(t)} a_ts v_s W_O,        a_ts = exp(q_t · k_s / √d) / Σ_{r ∈ A(t)} exp(q_t · k_r / √d)

A subclass says what A(t) is in three ways: ``sees`` for two positions (what the pattern is), ``parts`` for blocks of
queries (how a text is read: ``ensue.kernels.pattern_attention``), and ``columns`` for one query (how a token is
decoded: only the columns of the cache that it sees are read).

Legend: B rows, T new tokens, S keys, H heads, G key–value heads, d head width, L positions of a block, N blocks of
queries, W blocks of keys, R = B·H, K keys of a query.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ensue.kernels.attention import attend_cached, attention_weights, shared_heads
from ensue.kernels.matmul import linear
from ensue.kernels.pattern_attention import Near, Part, attend_pattern
from ensue.nn.key_value_cache import KeyValueCache
from ensue.nn.layout import Layout
from ensue.nn.mixers.full import SelfAttention
from ensue.nn.mixers.mixer import Mixed, Mixer, MixerConfig


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """Blocks of queries and of keys."""

    size: int
    """L."""
    first: int
    """Number of the first block of queries, counted from the first block of keys."""
    queries: int
    """N."""
    keys: int
    """W."""
    rows: int
    """B."""
    heads: int
    """H."""
    lengths: Tensor | None
    """(1 or B,), how many positions each row has; None: no query sees beyond."""
    device: torch.device

    @property
    def numbers(self) -> Tensor:
        """The numbers of the blocks of queries, (N,)."""
        return torch.arange(self.first, self.first + self.queries, device=self.device)

    def missing(self, positions: Tensor) -> Tensor | None:
        """Which positions of keys (…, 1 or R, 1 or L, K) rows don't have, (…, R, 1 or L, K); None: they have all."""
        if self.lengths is None:
            return None
        lengths = self.lengths if len(self.lengths) == 1 else self.lengths.repeat_interleave(self.heads)
        return positions >= lengths[:, None, None]

    def near(self, distance: int, within: Tensor | None = None) -> Near:
        """The block of keys at a distance; ``within`` (L, L) is True where a query does not see a key."""
        block = (self.numbers + distance)[:, None, None, None]
        absent = None if self.first + distance >= 0 else block < 0
        missing = self.missing(block * self.size + torch.arange(self.size, device=self.device))
        if missing is not None:
            absent = missing if absent is None else absent | missing
        return Near(first=self.first, distance=distance, within=within, absent=absent)

    def band(self, before: int, after: int) -> list[Part]:
        """All keys s of a query t with −after ≤ t − s ≤ before."""
        L, found = self.size, list[Part]()
        offset = torch.arange(L, device=self.device)
        for distance in range(-before // L, -(-after // L) + 1):
            apart = offset[:, None] - offset - distance * L  # t − s
            inside = L - 1 - distance * L <= before and distance * L + L - 1 <= after
            found.append(self.near(distance, None if inside else (apart > before) | (apart < -after)))
        return found


class PatternAttention(SelfAttention):
    """Softmax attention to the keys of a pattern."""

    caps = False
    block: int
    """L, the positions of a block."""
    near_blocks: int | None = None
    """How many blocks before its own a query sees at most; None: any number."""
    by_head = False
    """Whether heads see different keys."""

    def __init__(self, config: MixerConfig, *, base: float = 0.0) -> None:
        super().__init__(config, base=base)
        self.packed = False

    def sees(self, query: Tensor, key: Tensor, head: int = 0) -> Tensor:
        """Whether queries at positions (…, T) see keys at positions (S,), (…, T, S)."""
        raise TypeError(f"{type(self).__name__} has no sees")

    def parts(self, blocks: Blocks) -> list[Part]:
        """The keys that blocks of queries see; no key twice."""
        raise TypeError(f"{type(self).__name__} has no parts")

    def columns(self, position: Tensor, size: int) -> Tensor:
        """The positions that queries at positions (X,) below ``size`` see, (X, 1 or H, K); −1 stands for none."""
        raise TypeError(f"{type(self).__name__} has no columns")

    def _causal(self, x: Tensor, past: KeyValueCache, layout: Layout, weights: bool) -> Mixed:
        """Attend to the cache and to x itself."""
        T, past = x.shape[1], self._usable(past, x.shape[1], layout, weights)
        positions = past.positions(T) if layout.positions is None else layout.positions  # (1 or B, T)
        query, key, value = self._heads(self._rotated(self._projected(x), positions, layout))
        cache = past.append(key, value, layout.lengths)
        if T == 1:
            y = self._token(query, cache, past.positions(1)[:, 0])
        elif past.even:
            y = self._blocks(query, cache.keys, cache.values, past.used)
        else:
            y = query.new_empty(len(query), T, self.sizes[0])
            for start in torch.unique(past.lengths).tolist():  # rows that have read as much are aligned alike
                rows = (past.lengths == start).nonzero()[:, 0]
                q, k, v = (part.index_select(0, rows) for part in (query, cache.keys, cache.values))
                y = y.index_copy(0, rows, self._blocks(q, k, v, start))
        seen = self._weights(query, cache.written_keys, past.positions(T), None) if weights else None
        return Mixed(linear(self.out, y), cache, seen)

    def _both(self, parts: tuple[Tensor, ...], layout: Layout, weights: bool) -> tuple[Tensor, Tensor | None]:
        """Attend in both directions."""
        steps = torch.arange(parts[0].shape[1], device=parts[0].device)[None]
        positions = steps if layout.positions is None else layout.positions
        query, key, value = self._heads(self._rotated(parts[0], positions, layout))
        y = self._blocks(query, key, value, 0, layout.lengths)
        return linear(self.out, y), self._weights(query, key, steps, layout.lengths) if weights else None

    def _usable(self, past: KeyValueCache, time: int, layout: Layout, weights: bool) -> KeyValueCache:
        """The cache with a buffer of its own for each row."""
        return past.separate()

    def _blocks(self, query: Tensor, keys: Tensor, values: Tensor, start: int, lengths: Tensor | None = None) -> Tensor:
        """Attend from queries (B, H, T, d) at positions from ``start`` on to keys (B, G, …, d), → (B, T, D)."""
        B, H, T, d = query.shape
        if not self.causal and lengths is None:  # a query sees what is after it, but not beyond the row
            lengths = torch.tensor([start + T], device=query.device)
        L, first = self.block, start // self.block
        base = 0 if self.near_blocks is None else max(0, first - self.near_blocks)  # earlier blocks are not seen
        N, W = (-(-(start + T) // L) - number for number in (first, base))
        if not N:
            return query.new_zeros(B, T, self.sizes[0])
        skipped = start - first * L
        key, value = (
            in_blocks(shared_heads(one[:, :, base * L : start + T].to(query.dtype), H), 0, W, L)
            for one in (keys, values)
        )
        blocks = Blocks(
            size=L, first=first - base, queries=N, keys=W, rows=B, heads=H, lengths=lengths, device=query.device
        )
        dropout = self.dropout if self.training else 0.0
        parts = self.parts(blocks)
        y = attend_pattern(in_blocks(query, skipped, N, L), key, value, parts, self.score_bias, dropout)
        return y.view(N, B, H, L, d).permute(1, 0, 3, 2, 4).reshape(B, N * L, H * d)[:, skipped : skipped + T]

    def _token(self, query: Tensor, cache: KeyValueCache, position: Tensor) -> Tensor:
        """Attend from one token of each row, at positions (1 or B,), to the columns that it sees."""
        columns = self.columns(position, cache.used)  # (1 or B, 1 or H, K)
        mask = columns >= 0
        if len(columns) == columns.shape[1] == 1 and not columns.is_meta:
            columns, mask = columns[mask][None, None], None  # type: ignore[assignment]
        B, G = cache.keys.shape[:2]
        row = torch.arange(B, device=columns.device)[:, None, None]
        head = torch.arange(G, device=columns.device)[:, None]
        if columns.shape[1] > 1:
            head = head.repeat_interleave(columns.shape[1] // G, 0)
        index = columns.clamp(min=0)
        keys, values = (part[row, head, index].to(query.dtype) for part in (cache.keys, cache.values))
        bias = None
        if self.score_bias is not None:
            X, heads, K = columns.shape
            bias = self.score_bias(position.repeat_interleave(heads)[:, None], columns.reshape(-1, K))
            if heads > 1:  # each head with its own columns
                bias = bias.view(X, heads, heads, 1, K).diagonal(dim1=1, dim2=2).movedim(-1, 1)
        dropout = self.dropout if self.training else 0.0
        return attend_cached(query, keys, values, None if mask is None else mask[:, :, None], bias, dropout)

    def _weights(self, query: Tensor, keys: Tensor, positions: Tensor, lengths: Tensor | None) -> Tensor:
        """The weights of all keys, (B, H, T, S), for the view."""
        steps = torch.arange(keys.shape[2], device=query.device)
        heads = range(self.heads if self.by_head else 1)
        mask = torch.stack([self.sees(positions, steps, head) for head in heads], 1)
        if lengths is not None:
            mask = mask & (steps < lengths[:, None])[:, None, None]
        bias = None if self.score_bias is None else self.score_bias(positions, steps[None])
        return attention_weights(query, keys.to(query.dtype), mask, bias)

    def at(
        self, index: Tensor, here: Tensor, x: Tensor, layout: Layout, weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        return Mixer.at(self, index, here, x, layout, weights)


def in_blocks(x: Tensor, skipped: int, blocks: int, size: int) -> Tensor:
    """(B, H, T, d) → (N, B·H, L, d), zeros where there is nothing; the first ``skipped`` positions are not there."""
    x = F.pad(x, (0, 0, skipped, blocks * size - skipped - x.shape[2]))
    return x.view(*x.shape[:2], blocks, size, x.shape[3]).permute(2, 0, 1, 3, 4).flatten(1, 2).contiguous()
