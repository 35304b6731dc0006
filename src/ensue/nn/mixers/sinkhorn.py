"""Sinkhorn attention: each block attends to itself and to a block that a soft permutation brings it (Tay et al., 2020).

    R      = Sinkhorn((s + Gumbel noise) / τ),   s_ij = (A x̄_i) · (C x̄_j) / √d         noise in training only
    K′_i   = Σ_j R_ij K_j,   V′_i = Σ_j R_ij V_j                                        the sorted blocks
    y_t    = softmax(q_t [K_i; K′_i]ᵀ / √d) [V_i; V′_i]                                 t in block i

x̄_i is the mean of block i's real tokens, and A, C are the sorting network, of each key–value head. Sinkhorn divides
rows and columns in turn by their sums, in log space (Sinkhorn, 1964). One block, or a text no longer than it, is full
attention. SortCut (``cut``) lets every token attend to the first ``cut`` sorted blocks alone. A position of the last
block that has no token counts as zero in a sorted block.

Causal: block i receives complete earlier blocks only, and R_ij may not depend on later tokens. In the paper a column is
divided by the sum of all its rows, later ones too, and x̄_i contains tokens of block i. Here the last complete block
asks, s_ij = (A x̄_{i−1}) · (C x̄_j) for j < i, a column is divided by the sum of its rows so far, and a row is divided
last, so that a sorted block is a mean. The first block sees only itself.

Rotary positions are applied before sorting; with score biases a sorted position stands at the mean of its blocks'.
The weights that are shown are a token's own ones and, for each position of a sorted block, its weight times R. In both
directions they sum to one as far as the rows of R do, and positions without a token take a share too.

Legend: B rows, T tokens, H heads, G key–value heads, d head width, b block, N blocks, M blocks of the new tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ensue.core.errors import InputError
from ensue.kernels.attention import attend_cached, attention_weights, shared_heads
from ensue.kernels.matmul import linear
from ensue.nn.block_frame import Frame, in_blocks
from ensue.nn.key_value_cache import KeyValueCache
from ensue.nn.layout import PADDED, Layout
from ensue.nn.mixers.full import SelfAttention
from ensue.nn.mixers.mixer import Mixed, Mixer, MixerConfig, block_size
from ensue.nn.state import State, zeros_beside

HIDDEN = -1e9
"""A score that no block is chosen by; finite, so that a row of them is not NaN."""
FAINT = -40.0
"""The logarithm of the smallest share, where shares are not in log space."""


class Sorted(NamedTuple):
    """Sorted blocks."""

    keys: Tensor  # (B, G, M, b, d), K′
    values: Tensor  # (B, G, M, b, d), V′
    place: Tensor  # (B, G, M), Σ_j R_ij j, the mean number of the blocks that are sorted there
    share: Tensor | None = None  # (B, G, M, N), R; None if it was not computed now

    @classmethod
    def of(cls, share: Tensor, keys: Tensor, values: Tensor) -> Sorted:
        """Σ_j R_ij K_j of blocks (B, G, N, b, d)."""
        size = (*share.shape[:3], *keys.shape[3:])
        keys, values = ((share @ blocks.flatten(3)).view(size) for blocks in (keys, values))
        numbers = torch.arange(share.shape[3], device=share.device, dtype=share.dtype)
        return cls(keys, values, (share @ numbers) / share.sum(-1).clamp(min=1e-6), share)


@dataclass(frozen=True)
class SinkhornState(State):
    """Keys and values, what the sorting network makes of complete blocks, and the sorted block of the current one."""

    cache: KeyValueCache
    blocks: KeyValueCache
    """C x̄ as keys and A x̄ as values, a column for each complete block."""
    total: Tensor  # (B, D), the sum of x in the block that is not complete
    sorted: Tensor  # (B, 2, G, b, d), K′ and V′
    place: Tensor  # (B, G), Σ_j R_j j, the mean number of the blocks that are sorted there


class SinkhornAttention(SelfAttention):
    """Softmax attention within a block and to a sorted one."""

    caps = False
    lengths = ("block",)
    paper = "Tay et al., 2020"
    complexity = "O(n · block + n² / block)"
    decoding = "O(block), and O(n) once a block"

    def __init__(
        self, config: MixerConfig, *, block: int = 0, cut: int = 0, iterations: int = 8, temperature: float = 0.75
    ) -> None:
        """``block`` 0 means a sixteenth of the context, from 8 to 64.

        ``iterations`` are those of Sinkhorn; ``temperature`` is τ.
        """
        super().__init__(config)
        if block < 0 or iterations < 1 or not temperature > 0:
            what = (
                f"block = {block} must be 0 or more, iterations = {iterations} and temperature = {temperature} positive"
            )
            raise InputError(f"attention = sinkhorn: {what}")
        block = block or block_size(config.context)
        if cut < 0 or (cut and config.causal):
            raise InputError(f"attention = sinkhorn: cut = {cut} must be 0 or more, and 0 in a causal model")
        if cut and config.score_bias is not None:
            raise InputError(
                "attention = sinkhorn: sorted blocks have no positions with cut, so not with positions=alibi"
            )
        self.block, self.cut, self.iterations, self.temperature = block, cut, iterations, temperature
        self.sort = nn.Linear(config.width, 2 * self.sizes[1], bias=False)  # A, C side by side
        self.packed = False

    def start(self, rows: int) -> SinkhornState | None:  # type: ignore[override]
        """Empty caches; none in both directions."""
        cache = super().start(rows)
        if cache is None:
            return None
        empty = zeros_beside(self.out, rows, self.kv_heads, 0, self.head_width)
        blocks = KeyValueCache(empty, empty, torch.zeros_like(cache.lengths))
        total = zeros_beside(self.out, rows, self.out.out_features)
        now = zeros_beside(self.out, rows, 2, self.kv_heads, self.block, self.head_width)
        return SinkhornState(cache, blocks, total, now, now[:, 0, :, 0, 0])

    def forward(  # type: ignore[override]
        self, x: Tensor, state: SinkhornState | None = None, layout: Layout = PADDED, weights: bool = False
    ) -> Mixed:
        """Attend from x (B, T, D) to each token's block and its sorted block."""
        if self.causal:
            return self._in_order(x, state or self.start(len(x)), layout, weights)  # type: ignore[arg-type]
        T, b = x.shape[1], self.block
        frame = Frame.of(b, 0, T)
        N, steps = frame.blocks, torch.arange(frame.blocks * b, device=x.device)
        positions = steps[None, :T] if layout.positions is None else layout.positions
        query, key, value = self._heads(self._rotated(self._projected(x), positions, layout))
        ends = torch.full((1,), T, device=x.device) if layout.lengths is None else layout.lengths
        real = steps.view(N, b) < ends.clamp(min=1)[:, None, None]  # (1 or B, N, b); an empty row must see something
        if layout.lengths is not None:
            x = x.masked_fill(~real.flatten(1)[:, :T, None], 0.0)
            key, value = (part.masked_fill(~real.flatten(1)[:, None, :T, None], 0.0) for part in (key, value))
        key, value = frame.place(key), frame.place(value)
        there = real[..., 0]  # (1 or B, N), the blocks that have tokens
        found = None
        if N > 1 or self.cut:
            means = frame.place(x[:, None])[:, 0].sum(2) / real.sum(2).clamp(min=1)[..., None]
            asking, asked = self._asking(means)
            share = self._shares(asking, asked, there)
            found = Sorted.of(share[:, :, : self.cut or N], key, value)
        if self.cut:
            y, seen = self._sort_cut(query, found, real, weights)  # type: ignore[arg-type]
        else:
            masks = None
            if layout.lengths is not None or T % b:  # a block of padding sees itself, and what the first block
                masks = (real | ~there[..., None])[:, :, None], real[:, :1, None]  # does not have, no block has
            at = frame.columns(b, x.device)
            y, seen = self._attend(frame, frame.place(query), (key, value), found, masks, at, weights)
        if seen is not None:
            seen = seen.masked_fill(~real.flatten(1)[:, None, None], 0.0)[:, :, :T, :T]
        return Mixed(linear(self.out, y[:, :T]), None, seen)

    def _sort_cut(self, query: Tensor, found: Sorted, real: Tensor, weights: bool) -> tuple[Tensor, Tensor | None]:
        """Attend to the first sorted blocks."""
        k = min(self.cut, real.shape[1])
        keys, values = (part.flatten(2, 3) for part in found[:2])
        mask = (real[:, :k, :1] & real[:, :1]).flatten(1)[:, None, None]  # (1 or B, 1, 1, k·b)
        y = attend_cached(query, keys, values, mask, None, self.dropout if self.training else 0.0)
        seen = None
        if weights and found.share is not None:
            by_block = attention_weights(query, keys, mask)
            by_block = by_block.view(*by_block.shape[:3], k, self.block)  # (B, H, T, k, b)
            share = shared_heads(found.share, self.heads)
            seen = torch.einsum("bhtkc,bhkn->bhtnc", by_block, share).flatten(3)
        return y, seen

    def _in_order(self, x: Tensor, state: SinkhornState, layout: Layout, weights: bool) -> Mixed:
        """Causal: attend to one's own block up to oneself, and to complete blocks before it, sorted."""
        T, past = x.shape[1], state.cache.separate()
        columns = past.positions(T)
        positions = columns if layout.positions is None else layout.positions
        query, key, value = self._heads(self._rotated(self._projected(x), positions, layout))
        cache = past.append(key, value, layout.lengths)
        frame = Frame.of(self.block, past.used if past.even else past.lengths, T)
        blocks, total = self._summarised(x, state, frame, layout.lengths)
        keys, values = (part.to(query.dtype) for part in (cache.written_keys, cache.written_values))
        found = self._sorted(state, blocks, frame, (keys, values), weights)
        parts = frame.cut(keys), frame.cut(values)
        if frame.blocks == 1:
            query, at = query[:, :, None], columns[:, None]
        else:
            query, at = frame.place(query), frame.columns(self.block, x.device)
        own = frame.columns(parts[0].shape[3], x.device)[:, :, None] <= at[..., None]  # (1 or B, M, t, S)
        filled = (frame.numbers(x.device) > 0)[..., None, None]
        y, seen = self._attend(frame, query, parts, found, (own, filled), at, weights)
        if frame.blocks > 1:
            y, seen = frame.take(y[:, None], T)[:, 0], None if seen is None else frame.take(seen, T)
        after = SinkhornState(cache, blocks, total, *self._current(state, frame, found, cache.lengths))
        return Mixed(linear(self.out, y), after, None if seen is None else seen[..., : cache.written])

    def _summarised(
        self, x: Tensor, state: SinkhornState, frame: Frame, lengths: Tensor | None
    ) -> tuple[KeyValueCache, Tensor]:
        """What the sorting network makes of complete blocks, and the sum of x in the block that is not complete."""
        (B, T, D), blocks = x.shape, state.blocks.separate()
        if lengths is not None:
            x = x.masked_fill((torch.arange(T, device=x.device) >= lengths[:, None])[..., None], 0.0)
        sums = x.sum(1, keepdim=True) if frame.blocks == 1 else frame.place(x[:, None])[:, 0].sum(2)  # (B, M, D)
        sums = torch.cat([sums[:, :1] + state.total[:, None], sums[:, 1:], torch.zeros_like(sums[:, :1])], dim=1)
        complete = (frame.begin % frame.block + (T if lengths is None else lengths)) // frame.block
        most = complete if isinstance(complete, int) else int(complete.max())
        if most:
            asking, asked = self._asking(sums[:, :most] / frame.block)
            blocks = blocks.append(asked, asking, None if isinstance(complete, int) else complete)
        if isinstance(complete, int):
            return blocks, sums[:, complete]
        return blocks, sums.gather(1, complete[:, None, None].expand(B, 1, D))[:, 0]

    def _asking(self, means: Tensor) -> tuple[Tensor, Tensor]:
        """A x̄ and C x̄ of blocks (B, N, D), each (B, G, N, d)."""
        both = linear(self.sort, means).view(*means.shape[:2], 2, self.kv_heads, self.head_width)
        return both[:, :, 0].transpose(1, 2), both[:, :, 1].transpose(1, 2)

    def _shares(self, asking: Tensor, asked: Tensor, there: Tensor | None = None) -> Tensor:
        """R, (B, G, N, d) → (B, G, N, N); in both directions among the blocks that are ``there`` (1 or B, N)."""
        scores = asking @ asked.transpose(-2, -1) / self.head_width**0.5
        logs = scores.to(torch.promote_types(scores.dtype, torch.float32))
        if self.training:
            logs = logs - torch.empty_like(logs).exponential_().log()  # Gumbel noise
        logs = logs / self.temperature
        share = causal_sinkhorn(logs, self.iterations) if there is None else sinkhorn(logs, self.iterations, there)
        return share.to(scores.dtype)

    def _sorted(
        self, state: SinkhornState, blocks: KeyValueCache, frame: Frame, parts: tuple[Tensor, Tensor], weights: bool
    ) -> Sorted | None:
        """The sorted blocks, of keys and values in all columns; that of the state while tokens stay in its block."""
        N = blocks.used
        if not N:
            return None
        offset = frame.begin % frame.block
        inside = offset > 0 if isinstance(offset, int) else bool((offset > 0).all())
        if frame.blocks == 1 and inside and not weights:
            return Sorted(state.sorted[:, 0, :, None], state.sorted[:, 1, :, None], state.place[..., None])
        share = self._shares(blocks.written_values, blocks.written_keys)
        rows = (frame.numbers(share.device) - 1).clamp(0, N - 1)
        if len(rows) == 1:
            share = share[:, :, rows[0]]
        else:
            share = share.gather(2, rows[:, None, :, None].expand(-1, share.shape[1], -1, N))
        keys, values = (in_blocks(part[:, :, : N * frame.block], frame.block) for part in parts)
        return Sorted.of(share, keys, values)

    def _current(
        self, state: SinkhornState, frame: Frame, found: Sorted | None, lengths: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The sorted block of each row's last token, and its place."""
        if found is None:
            return state.sorted, state.place
        last = ((lengths - 1) // frame.block - frame.begin // frame.block).clamp(0, frame.blocks - 1)
        row = torch.arange(len(lengths), device=lengths.device)
        return torch.stack([part[row, :, last] for part in found[:2]], dim=1), found.place[row, :, last]

    def _attend(
        self,
        frame: Frame,
        query: Tensor,
        own: tuple[Tensor, Tensor],
        found: Sorted | None,
        masks: tuple[Tensor, Tensor] | None,
        at: Tensor,
        weights: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """Attention of each block (B, H, M, t, d) to its own columns and the sorted ones → (B, M·t, D), weights.

        ``masks`` (1 or B, M, 1 or t, S) say which of both a query sees, None all; ``at`` (1 or B, M, t) where it is.
        """
        B, S = len(query), own[0].shape[3]
        (keys, values), mask = own, None if masks is None else masks[0]
        if found is not None:
            keys, values = torch.cat([keys, found.keys], dim=3), torch.cat([values, found.values], dim=3)
            if mask is not None and masks is not None:
                mask = torch.cat([mask, masks[1].expand(*mask.shape[:3], frame.block)], dim=3)
        query, keys, values = (part.transpose(1, 2).flatten(0, 1) for part in (query, keys, values))  # (B·M, …)
        mask = None if mask is None else mask.expand(B, -1, -1, -1).flatten(0, 1)[:, None]
        bias = None if self.score_bias is None else self._bias(frame, at.expand(B, -1, -1), S, found)
        y = attend_cached(query, keys, values, mask, bias, self.dropout if self.training else 0.0)
        y = y.view(B, -1, y.shape[2])
        if not weights:
            return y, None
        seen = attention_weights(query, keys, mask, bias)
        seen = seen.view(B, frame.blocks, *seen.shape[1:]).transpose(1, 2)
        return y, self._spread(frame, seen, S, found)

    def _bias(self, frame: Frame, at: Tensor, size: int, found: Sorted | None) -> Tensor:
        """The score bias of own columns and of sorted ones at their mean positions, (B·M, H, t, S)."""
        assert self.score_bias is not None
        own = frame.columns(size, at.device).expand(len(at), -1, -1)
        bias: Tensor = self.score_bias(at.flatten(0, 1), own.flatten(0, 1))
        if found is None:
            return bias
        where = found.place[..., None] * frame.block + torch.arange(frame.block, device=at.device)  # (B, G, M, b)
        each = self.heads // self.kv_heads
        sorted_ = [
            self.score_bias(at.flatten(0, 1), where[:, g].flatten(0, 1))[:, g * each : (g + 1) * each]
            for g in range(self.kv_heads)
        ]
        return torch.cat([bias, torch.cat(sorted_, dim=1)], dim=3)

    def _spread(self, frame: Frame, seen: Tensor, size: int, found: Sorted | None) -> Tensor:
        """Weights of own and sorted columns (B, H, M, t, S) as those of all positions, (B, H, M·t, P)."""
        columns = frame.columns(size, seen.device)
        whole = seen.new_zeros(*seen.shape[:4], int(columns.max()) + 1 if size else 0)
        whole = whole.scatter(4, columns[:, None, :, None].expand_as(seen[..., :size]), seen[..., :size])
        if found is not None and found.share is not None:
            share = shared_heads(found.share, self.heads)
            more = torch.einsum("bhmtc,bhmn->bhmtnc", seen[..., size:], share).flatten(4)
            wide = max(whole.shape[4], more.shape[4])
            whole, more = (F.pad(part, (0, wide - part.shape[4])) for part in (whole, more))
            whole = whole + more
        return whole.flatten(2, 3)

    def at(
        self, index: Tensor, here: Tensor, x: Tensor, layout: Layout, weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        return Mixer.at(self, index, here, x, layout, weights)


def sinkhorn(logs: Tensor, iterations: int, there: Tensor | None = None) -> Tensor:
    """exp(logs) (…, N, N) with rows, then columns divided by their sums, again and again.

    Only the rows and columns that are ``there`` (…, N) count, the others are 0.
    """
    absent = None if there is None else ~(there[:, None, :, None] & there[:, None, None])
    for _ in range(iterations):
        for dim in (-1, -2):
            logs = logs if absent is None else logs.masked_fill(absent, HIDDEN)
            logs = logs - logs.logsumexp(dim, keepdim=True)
    return logs.exp() if absent is None else logs.exp().masked_fill(absent, 0.0)


def causal_sinkhorn(logs: Tensor, iterations: int) -> Tensor:
    """The same of lower triangles (…, N, N): column sums run over the rows so far, and rows are divided last.

    A share is at least e^−40 of a row's largest one, so that no sum is zero.
    """
    later = torch.ones(logs.shape[-2:], dtype=torch.bool, device=logs.device).triu(1)
    most = logs.masked_fill(later, HIDDEN).amax(-1, keepdim=True)
    share = (logs - most).clamp(FAINT, 0.0).exp().masked_fill(later, 0.0)
    for _ in range(iterations):
        share = share / share.cumsum(-2).masked_fill(later, 1.0)
        share = share / share.sum(-1, keepdim=True)
        share = share.clamp(min=math.exp(FAINT)).masked_fill(later, 0.0)
    return share
