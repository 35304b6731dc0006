"""Scaled dot-product attention: over a growing memory of keys and values, in both directions, and to a source.

    Attention(Q, K, V) = softmax(Q Kᵀ / √d) V          row-wise softmax; (T × d)(d × S)(S × d)
    MultiHead(x, m)    = Concat(head_1 … head_H) W_O,  head_i = Attention(x W_Q,i, m W_K,i, m W_V,i)

m is x and what came before it (SelfAttention), all of x (FullAttention), or an encoded source (CrossAttention).

The state is the keys and values so far (ensue.nn.attention_state). Rows may have different lengths.

Legend: B rows, T new tokens, S tokens in memory (new ones included), C capacity, H heads, d width of a head, D = H·d,
N sentences, of which rows may share one, G groups of k rows, P places of a memory that are written.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ensue.kernels import blocked_attention, short_attention
from ensue.kernels.autograd_guards import plain
from ensue.kernels.decode_program import Tape, Unwritten
from ensue.kernels.dropout import mask as dropout_mask
from ensue.kernels.int8 import part
from ensue.kernels.matmul import linear
from ensue.kernels.packing import Packing, Rows
from ensue.nn.attention_state import SHARED, AttentionState
from ensue.nn.positions import Rotary, rotate
from ensue.nn.source import Source
from ensue.nn.state import zeros_beside


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
