"""Scaled dot-product attention: over a growing memory of keys and values, in both directions, and to a source.

    Attention(Q, K, V) = softmax(Q Kᵀ / √d) V          row-wise softmax; (T × d)(d × S)(S × d)
    MultiHead(x, m)    = Concat(head_1 … head_H) W_O,  head_i = Attention(x W_Q,i, m W_K,i, m W_V,i)

m is x and what came before it (SelfAttention), all of x (FullAttention), or an encoded source (CrossAttention).

The state is the keys and values so far. Outside autograd they live in a buffer that grows by doubling and is written
in place; under autograd they are appended. Rows may have different lengths.

Legend: B rows, T new tokens, S tokens in memory (new ones included), C capacity, H heads, d width of a head, D = H·d,
N sentences, of which rows may share one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ensue.nn.positions import Rotary, rotate
from ensue.nn.source import Source
from ensue.nn.state import State


@dataclass(frozen=True)
class AttentionState(State):
    """Keys and values so far. Row b holds its ``lengths[b]`` tokens at places 0 … lengths[b] − 1 of C."""

    keys: Tensor  # (B, H, C, d)
    values: Tensor  # (B, H, C, d)
    lengths: Tensor  # (B,)
    used: int = 0
    """The longest row."""
    even: bool = True
    """All rows are as long as the longest, so no mask by row is needed."""

    def places(self, time: int) -> Tensor:
        """The positions of the next ``time`` tokens: (1, T) where rows are even, else (B, T)."""
        steps = torch.arange(time, device=self.keys.device)
        return (self.used + steps)[None] if self.even else self.lengths[:, None] + steps

    def append(self, keys: Tensor, values: Tensor, lengths: Tensor | None) -> AttentionState:
        """The state after new keys and values (B, H, T, d), of which row b has lengths[b] real ones."""
        time = keys.shape[2]
        places = None if self.even else self.places(time)
        after = self.lengths + (time if lengths is None else lengths)
        return AttentionState(
            _put(self.keys, keys, self.used, places),
            _put(self.values, values, self.used, places),
            after,
            self.used + time if lengths is None else int(after.max()),
            self.even and lengths is None,
        )

    @staticmethod
    def joined(states: list[AttentionState]) -> AttentionState:
        """Rows of several states as one state."""
        capacity = max(state.keys.shape[2] for state in states)

        def wide(x: Tensor) -> Tensor:
            return F.pad(x, (0, 0, 0, capacity - x.shape[2]))

        return AttentionState(
            torch.cat([wide(state.keys) for state in states]),
            torch.cat([wide(state.values) for state in states]),
            torch.cat([state.lengths for state in states]),
            max(state.used for state in states),
            even=False,
        )


def _put(buffer: Tensor, new: Tensor, used: int, places: Tensor | None) -> Tensor:
    """The buffer with ``new`` (B, H, T, d) at ``used`` …, or at each row's own ``places`` (B, T)."""
    time = new.shape[2]
    if torch.is_grad_enabled():
        old = buffer[:, :, :used]
        if places is None:
            return torch.cat([old, new], dim=2) if used else new
        return F.pad(old, (0, 0, 0, time)).scatter(2, places[:, None, :, None].expand_as(new), new)
    if used + time > buffer.shape[2]:
        buffer = F.pad(buffer, (0, 0, 0, max(used + time, 2 * buffer.shape[2]) - buffer.shape[2]))
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


def _heads(x: Tensor, heads: int) -> Tensor:
    """(B, T, D) → (B, H, T, d)."""
    return x.view(*x.shape[:-1], heads, x.shape[-1] // heads).transpose(1, 2)


class SelfAttention(nn.Module):
    """Causal multi-head self-attention with a memory."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0, rotary: bool = False) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.project = nn.Linear(width, 3 * width)  # W_Q, W_K, W_V side by side
        self.out = nn.Linear(width, width)  # W_O
        self.rotary = Rotary(width // heads) if rotary else None

    def start(self, rows: int) -> AttentionState:
        """An empty memory."""
        weight = self.out.weight
        empty = weight.new_zeros(rows, self.heads, 0, weight.shape[0] // self.heads)
        return AttentionState(empty, empty, torch.zeros(rows, dtype=torch.long, device=weight.device))

    def forward(
        self,
        x: Tensor,
        state: AttentionState | None = None,
        lengths: Tensor | None = None,
        weights: bool = False,
    ) -> tuple[Tensor, AttentionState, Tensor | None]:
        """Attend from x (B, T, D) to what was before and to x itself; with ``weights`` also say where to."""
        state = state or self.start(len(x))
        T = x.shape[1]
        q, k, v = (_heads(part, self.heads) for part in self.project(x).chunk(3, dim=-1))
        if self.rotary is not None:
            turn = self.rotary(state.places(T), x)
            q, k = rotate(q, *turn), rotate(k, *turn)
        new = state.append(k, v, lengths)
        keys, values = new.keys[:, :, : new.used], new.values[:, :, : new.used]  # (B, H, S, d)
        mask = None if state.even and (state.used == 0 or T == 1) else _visible(state, T, new.used)
        y = F.scaled_dot_product_attention(
            q, keys, values, mask, self.dropout if self.training else 0.0, is_causal=mask is None and T > 1
        )
        seen = attention_weights(q, keys, _visible(state, T, new.used)) if weights else None
        return self.out(y.transpose(1, 2).flatten(2)), new, seen


def _visible(before: AttentionState, time: int, size: int) -> Tensor:
    """Which of S places each of T new tokens may see, (1 or B, 1, T, S): its own and all before it."""
    return (torch.arange(size, device=before.keys.device) <= before.places(time)[..., None])[:, None]


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
        self, x: Tensor, state: None = None, lengths: Tensor | None = None, weights: bool = False
    ) -> tuple[Tensor, None, Tensor | None]:
        """Attend from each place of x (B, T, D) to every real one; with ``weights`` also say where to."""
        q, k, v = (_heads(part, self.heads) for part in self.project(x).chunk(3, dim=-1))
        mask = None
        if lengths is not None:  # a row of no tokens sees its padding: there is nothing else, and nobody asks
            mask = (torch.arange(x.shape[1], device=x.device) < lengths.clamp(min=1)[:, None])[:, None, None]
        y = F.scaled_dot_product_attention(q, k, v, mask, self.dropout if self.training else 0.0)
        seen = attention_weights(q, k, mask) if weights else None
        return self.out(y.transpose(1, 2).flatten(2)), None, seen


class CrossAttention(nn.Module):
    """Multi-head attention from a decoder to an encoded source, whose keys and values are made once a sentence."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.query = nn.Linear(width, width)  # W_Q
        self.remember = nn.Linear(width, 2 * width)  # W_K, W_V side by side
        self.out = nn.Linear(width, width)  # W_O

    def memory(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of a source (N, S, D), each (N, H, S, d)."""
        key, value = (_heads(part, self.heads) for part in self.remember(source).chunk(2, dim=-1))
        return key, value

    def forward(
        self, x: Tensor, memory: tuple[Tensor, Tensor], source: Source, weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from x (B, T, D) to its rows' sentences; with ``weights`` also say where to, (B, H, T, S)."""
        q = _heads(source.fold(self.query(x)), self.heads)  # (N, H, k·T, d)
        mask = source.mask(memory[0].shape[2])
        if mask is not None:
            mask = mask[:, None, None]
        y = F.scaled_dot_product_attention(q, *memory, mask, self.dropout if self.training else 0.0)
        seen = source.unfold(attention_weights(q, memory[0], mask), dim=2) if weights else None
        return self.out(y.transpose(1, 2).flatten(2).reshape(x.shape)), seen
