"""Attention to a segment and to a memory of the text before it (Transformer-XL; Dai et al., 2019).

    h̃    = [SG(m); h]                                    the memory, then this segment; SG stops the gradient
    Q, K, V = h W_Q, h̃ W_K, h̃ W_V
    A_ij = Q_i·K_j + Q_i·R_{i−j} + u·K_j + v·R_{i−j}       R_k = W_R r_k, r_k the sinusoid of distance k
    y_i  = softmax_j(A_ij / √d) V W_O

The four terms are content by content, content by position, and the same two with a bias for the query: u for content,
v for position. Scores depend on distances and not on positions, so what was computed for one segment can be the memory
of the next. A text is cut into segments at every ``segment``-th position. The memory of a segment holds the inputs of
the ``memory`` positions before it. With ``window=fixed`` each position sees the last ``memory`` positions, itself
included ("same length"); segments then decide only where gradients stop.

Q_i + v is multiplied by R_k for every distance k once, and each row is shifted by its position: O(T · S), not
O(T · S · d) memory.

Legend: B rows, T new tokens, S tokens of the state, H heads, G key–value heads, D width, d head width.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ensue.core.errors import InputError
from ensue.kernels.attention import attend_cached, attention_weights
from ensue.kernels.matmul import linear
from ensue.nn.layout import PADDED, Layout
from ensue.nn.mixers.full import SelfAttention
from ensue.nn.mixers.mixer import Mixed, MixerConfig
from ensue.nn.positions import sinusoids
from ensue.nn.state import State, zeros_beside

SEGMENT = 64
"""Tokens of a segment where neither an option nor the context says."""
WINDOWS = {"segment": "its segment and the memory", "fixed": "the last ``memory`` positions"}
"""What a position sees."""
BEGINNINGS = {"empty": "nothing", "zeros": "vectors of zeros"}
"""What the memory holds before the first token."""


@dataclass(frozen=True)
class SegmentMemory(State):
    """The inputs of the last S positions, oldest first, and how many tokens each row has read.

    The last column is a row's newest token. Columns from before a row's start are masked. Outside autograd keys and
    values are kept too, as weights do not change there.
    """

    inputs: Tensor  # (B, S, D)
    read: Tensor  # (B,)
    used: int = 0
    """What every row has read, where rows are even."""
    even: bool = True
    """Whether all rows have read the same number of tokens."""
    keys: Tensor | None = None  # (B, G, S, d)
    values: Tensor | None = None  # (B, G, S, d)

    @staticmethod
    def of(inputs: Tensor, read: Tensor) -> SegmentMemory:
        """The state of rows with these inputs; ``read`` (B,) counts the tokens that each has read."""
        used = int(read[0]) if len(read) else 0
        return SegmentMemory(inputs, read, used, bool((read == used).all()))

    @property
    def counts(self) -> list[int]:
        """How many tokens rows have read, once if they are even."""
        return [self.used] if self.even else self.read.tolist()

    @classmethod
    def joined(cls, states: Sequence[SegmentMemory]) -> SegmentMemory:
        """Concatenate the rows of several states, which may have different lengths."""
        size = max(state.inputs.shape[1] for state in states)
        return cls.of(torch.cat([state._inputs(size) for state in states]), torch.cat([state.read for state in states]))

    def renewed(self, rows: Tensor, start: SegmentMemory) -> SegmentMemory:
        """This memory, with some rows taken from ``start``."""
        size = max(self.inputs.shape[1], start.inputs.shape[1])
        inputs = torch.where(rows[:, None, None], start._inputs(size), self._inputs(size))
        return self.of(inputs, torch.where(rows, start.read, self.read))

    def _inputs(self, size: int) -> Tensor:
        """The inputs with columns of zeros on the left, (B, size, D)."""
        return F.pad(self.inputs, (0, 0, size - self.inputs.shape[1], 0))


class XLAttention(SelfAttention):
    """softmax((Q + u) Kᵀ + shift((Q + v) Rᵀ)) V W_O over the memory and the segment."""

    caps = False
    caches = False
    directions = ("causal",)
    bounded = True
    paper = "Dai et al., 2019"
    complexity = "O(n · (segment + memory))"
    decoding = "O(segment + memory)"

    def __init__(
        self,
        config: MixerConfig,
        *,
        segment: int = 0,
        memory: int = 128,
        window: str = "segment",
        begin: str = "empty",
        clamp: int = 0,
    ) -> None:
        """``clamp`` is the largest distance that positions tell apart; 0 means no limit."""
        super().__init__(replace(config, bias=False, rope_base=0.0))
        if config.score_bias is not None:
            raise InputError("attention = xl has relative positions of its own, so it cannot use positions=alibi")
        for name, number in {"segment": segment, "memory": memory, "clamp": clamp}.items():
            if number < 0:
                raise InputError(f"attention = xl: {name} = {number} must be 0 or more")
        for name, value, known in (("window", window, WINDOWS), ("begin", begin, BEGINNINGS)):
            if value not in known:
                raise InputError(f"attention = xl: {name} = {value!r} must be one of {', '.join(known)}")
        self.segment = segment or config.context // 4 or SEGMENT
        self.fixed, self.zeros, self.clamp = window == "fixed", begin == "zeros", clamp
        self.memory = memory
        H, d = self.heads, self.head_width
        self.positions = nn.Linear(config.width, H * d, bias=False)  # W_R
        self.content_bias = nn.Parameter(torch.zeros(H, d))  # u
        self.position_bias = nn.Parameter(torch.zeros(H, d))  # v
        self.packed = False

    @property
    def memory(self) -> int:
        """M, positions before a segment that it sees; a model may read with more than it was trained with."""
        return self._memory

    @memory.setter
    def memory(self, size: int) -> None:
        if size < self.fixed:
            least = "1 or more, as a position sees itself" if self.fixed else "0 or more"
            raise InputError(f"attention = xl: memory = {size} must be {least}")
        self._memory = size

    def start(self, rows: int) -> SegmentMemory:  # type: ignore[override]
        """An empty memory, or one of zeros."""
        inputs = zeros_beside(self.out, rows, self.memory if self.zeros else 0, self.out.out_features)
        return SegmentMemory(inputs, torch.zeros(rows, dtype=torch.long, device=inputs.device))

    def forward(  # type: ignore[override]
        self, x: Tensor, state: SegmentMemory | None = None, layout: Layout = PADDED, weights: bool = False
    ) -> Mixed:
        """Mix x (B, T, D) one segment after the other."""
        past, T = state or self.start(len(x)), x.shape[1]
        phases = {count % self.segment for count in past.counts}
        if len(phases) > 1 and torch.is_grad_enabled():  # the gradient stops at another place in each row
            return self._row_by_row(x, past, layout, weights)
        S, found, seen = past.inputs.shape[1], [x[:, :0]], []
        for at, size, begun in self._pieces(T, phases):
            lengths = None if layout.lengths is None else (layout.lengths - at).clamp(0, size)
            before = past.inputs.shape[1]
            r = self._sinusoids(before + size, layout)
            y, past, shares = self._segment(x[:, at : at + size], past, r, begun, lengths, weights)
            found.append(y)
            if shares is not None:
                seen.append(F.pad(shares, (S + at - before, T - at - size)))
        return Mixed(torch.cat(found, dim=1), past, torch.cat(seen, dim=2) if seen else None)

    def _pieces(self, time: int, phases: set[int]) -> Iterator[tuple[int, int, int]]:
        """Parts of the new tokens: where each begins, its size, and how much of its segment was read before.

        None goes beyond the segment of rows in phase, so that the mask alone cuts segments only where rows differ.
        """
        at, begun = 0, next(iter(phases)) if len(phases) == 1 else 0
        while at < time:
            yield at, min(self.segment - begun, time - at), begun
            at, begun = at + self.segment - begun, 0

    def _row_by_row(self, x: Tensor, past: SegmentMemory, layout: Layout, weights: bool) -> Mixed:
        """Mix rows whose segments end at different positions."""
        found = []
        for b in range(len(x)):
            row = torch.tensor([b], device=x.device)
            lengths = None if layout.lengths is None else layout.lengths[row]
            own = SegmentMemory.of(past.inputs[b : b + 1], past.read[b : b + 1])
            found.append(self(x[b : b + 1], own, Layout(lengths), weights))
        y, states, seen = zip(*found, strict=True)
        return Mixed(torch.cat(y), SegmentMemory.joined(states), torch.cat(seen) if weights else None)

    def _segment(
        self, x: Tensor, past: SegmentMemory, r: Tensor, begun: int, lengths: Tensor | None, weights: bool
    ) -> tuple[Tensor, SegmentMemory, Tensor | None]:
        """Attend from x (B, T, D), a segment or the rest of one after ``begun`` tokens, to the memory and to itself."""
        T, S = x.shape[1], past.inputs.shape[1]
        memory, earlier = past.inputs.tensor_split([max(0, S - begun)], dim=1)
        h = torch.cat([memory.detach(), earlier, x], dim=1)  # h̃ = [SG(m); h]
        query, key, value = self._projected_parts(h, T, past)
        R = linear(self.positions, r).view(S + T, self.heads, -1).permute(1, 2, 0)  # (H, d, S + T)
        bias = shifted((query + self.position_bias[:, None]) / math.sqrt(self.head_width) @ R)
        mask = self.visible(past.read, T, S)
        query = query + self.content_bias[:, None]
        y = attend_cached(query, key, value, mask, bias, self.dropout if self.training else 0.0)
        seen = attention_weights(query, key, mask, bias) if weights else None
        return linear(self.out, y), self._after(past, h, key, value, T, lengths), seen

    def _projected_parts(self, h: Tensor, time: int, past: SegmentMemory) -> tuple[Tensor, Tensor, Tensor]:
        """Q (B, H, T, d) and K, V (B, G, S + T, d) of h̃; what the state keeps is not computed again."""
        kept = not torch.is_grad_enabled() and past.keys is not None
        projected = linear(self.project, h[:, h.shape[1] - time :] if kept else h)
        query, key, value = self._heads(projected)
        query = query[:, :, query.shape[2] - time :]
        query = query if self.norm_query is None else self.norm_query(query)
        key = key if self.norm_key is None else self.norm_key(key)
        if not kept:
            return query, key, value
        keys, values = torch.cat([cast(Tensor, past.keys), key], 2), torch.cat([cast(Tensor, past.values), value], 2)
        return query, keys, values

    def _sinusoids(self, size: int, layout: Layout) -> Tensor:
        """r_k for distances k = size − 1 … 0, (size, D); layers of one clamp share them."""

        def compute() -> Tensor:
            distances = torch.arange(size - 1, -1, -1, device=self.content_bias.device)
            distances = distances.clamp(max=self.clamp) if self.clamp else distances
            return sinusoids(distances, self.out.out_features).to(self.content_bias.dtype)

        return compute() if layout.positions is None else layout.once(("xl", size, self.clamp), compute)

    def visible(self, read: Tensor, time: int, size: int) -> Tensor:
        """Which of ``size`` columns of the state and T new ones each new token sees, (B, 1, T, S + T)."""
        here = read[:, None] + torch.arange(time, device=read.device)  # (B, T), positions
        oldest = here - self.memory + 1 if self.fixed else here - here % self.segment - self.memory
        oldest = oldest.clamp(min=-self.memory if self.zeros else 0)[..., None]
        columns = (read[:, None] + torch.arange(-size, time, device=read.device))[:, None]
        return ((columns <= here[..., None]) & (columns >= oldest))[:, None]

    def _after(
        self, past: SegmentMemory, h: Tensor, key: Tensor, value: Tensor, time: int, lengths: Tensor | None
    ) -> SegmentMemory:
        """The state after T new tokens, of which row b has lengths[b] real ones: what later tokens see."""
        read = past.read + (time if lengths is None else lengths)
        after = SegmentMemory(h, read, past.used + time, past.even) if lengths is None else SegmentMemory.of(h, read)
        counts = after.counts
        needed = self.memory - 1 if self.fixed else self.memory + max((n % self.segment for n in counts), default=0)
        size = min(needed, h.shape[1], max(counts, default=0) + self.memory * self.zeros)
        kept = [h] if torch.is_grad_enabled() else [h, key.transpose(1, 2), value.transpose(1, 2)]
        if lengths is None:
            kept = [one[:, one.shape[1] - size :] for one in kept]
        else:  # columns left of a row's first are never seen, whatever they hold
            last = h.shape[1] - time + lengths[:, None]
            columns = (last - size + torch.arange(size, device=h.device)).clamp(min=0)
            kept = [one[torch.arange(len(h), device=h.device)[:, None], columns] for one in kept]
        inputs, *cached = kept
        return SegmentMemory(inputs, read, after.used, after.even, *(one.transpose(1, 2) for one in cached))


def shifted(x: Tensor) -> Tensor:
    """Move row i of T rows by T − 1 − i columns to the left, (…, T, N) → (…, T, N): distances become positions.

    With one column before it, x is read as N + 1 rows of T. What comes in from the right belongs to later positions.

    >>> shifted(torch.tensor([[2, 1, 0], [2, 1, 0]])).tolist()
    [[1, 0, 0], [2, 1, 0]]
    """
    *rows, T, N = x.shape
    return F.pad(x, (1, 0)).reshape(*rows, N + 1, T)[..., 1:, :].reshape(*rows, T, N)


def use_memory(model: nn.Module, size: int) -> int:
    """Let all attention with a memory of a model see ``size`` positions before a segment; returns how many have one."""
    layers = [module for module in model.modules() if isinstance(module, XLAttention)]
    for layer in layers:
        layer.memory = size
    return len(layers)
