"""Attention score functions between a decoder state and source positions.

    e_{t,i} = score(s_t, h_i)
    α_t     = softmax(e_t)               attention weights: sum to one over the source
    a_t     = Σ_i α_{t,i} h_i            context vector; keys and values are both h

Each class has ``remember``, which computes keys once per source, and ``forward``, the scores of all queries.

Legend: N sentences, T queries of each, S source positions, D size of s, E size of h.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ensue.core.errors import InputError


class Score(nn.Module):
    """Base class of score functions, for queries of size D and sources of size E."""

    def __init__(self, query: int, source: int, positions: int) -> None:
        super().__init__()

    def remember(self, h: Tensor) -> Tensor:
        """Compute keys once per source, (N, S, E) → (N, S, K)."""
        return h

    def forward(self, s: Tensor, keys: Tensor) -> Tensor:
        """score(s_t, h_i) for all t and i: (N, T, D), (N, S, K) → (N, T, S)."""
        raise TypeError(f"{type(self).__name__} does not implement forward")


class Content(Score):
    """β cos(s_t, h_i): content-based addressing (Graves et al., 2014, eq. 5 and 6).

    β > 0 is the strength: with β = 1, as lectures write it, a cosine can never make a softmax sharp. It is learnt.
    """

    def __init__(self, query: int, source: int, positions: int) -> None:
        super().__init__(query, source, positions)
        _same("content", query, source)
        self.strength = nn.Parameter(torch.tensor(1.0))  # log β

    def remember(self, h: Tensor) -> Tensor:
        return F.normalize(h, dim=-1)

    def forward(self, s: Tensor, keys: Tensor) -> Tensor:
        return self.strength.exp() * F.normalize(s, dim=-1) @ keys.transpose(1, 2)


class Additive(Score):
    """v_aᵀ tanh(W_a [s_t; h_i]) (Bahdanau et al., 2015); W_a = [W_s, W_h], so each half is computed once."""

    def __init__(self, query: int, source: int, positions: int) -> None:
        super().__init__(query, source, positions)
        self.of_query = nn.Linear(query, query, bias=False)  # W_s
        self.of_source = nn.Linear(source, query)  # W_h
        self.v = nn.Linear(query, 1, bias=False)  # v_a

    def remember(self, h: Tensor) -> Tensor:
        keys: Tensor = self.of_source(h)
        return keys

    def forward(self, s: Tensor, keys: Tensor) -> Tensor:
        mixed = torch.tanh(self.of_query(s)[:, :, None] + keys[:, None])  # (N, T, S, D)
        scores: Tensor = self.v(mixed)[..., 0]
        return scores


class Location(Score):
    """(W_a s_t)_i: the score depends on the decoder state alone, not on h (Luong et al., 2015).

    W_a has a row per position, so a source must not be longer than ``positions``.
    """

    def __init__(self, query: int, source: int, positions: int) -> None:
        super().__init__(query, source, positions)
        self.place = nn.Linear(query, positions, bias=False)  # W_a

    def forward(self, s: Tensor, keys: Tensor) -> Tensor:
        size, positions = keys.shape[1], self.place.out_features
        if size > positions:
            what = f"location attention has {positions} positions; this source has {size}"
            raise InputError(what, hint="train with a larger context")
        scores: Tensor = self.place(s)[..., :size]
        return scores


class General(Score):
    """s_tᵀ W_a h_i (Luong et al., 2015)."""

    def __init__(self, query: int, source: int, positions: int) -> None:
        super().__init__(query, source, positions)
        self.weight = nn.Linear(source, query, bias=False)  # W_a

    def remember(self, h: Tensor) -> Tensor:
        keys: Tensor = self.weight(h)
        return keys

    def forward(self, s: Tensor, keys: Tensor) -> Tensor:
        return s @ keys.transpose(1, 2)


class Dot(Score):
    """s_tᵀ h_i (Luong et al., 2015)."""

    def __init__(self, query: int, source: int, positions: int) -> None:
        super().__init__(query, source, positions)
        _same("dot", query, source)

    def forward(self, s: Tensor, keys: Tensor) -> Tensor:
        return s @ keys.transpose(1, 2)


class ScaledDot(Dot):
    """s_tᵀ h_i / √D (Vaswani et al., 2017): the variance of a score does not grow with the width."""

    def forward(self, s: Tensor, keys: Tensor) -> Tensor:
        return super().forward(s, keys) / math.sqrt(s.shape[-1])


def _same(name: str, query: int, source: int) -> None:
    if query != source:
        raise InputError(f"{name} attention compares vectors of one width, not {query} and {source}")


SCORES: dict[str, type[Score]] = {
    "content": Content,
    "additive": Additive,
    "location": Location,
    "general": General,
    "dot": Dot,
    "scaled-dot": ScaledDot,
}


def attend(scores: Tensor, values: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return a = Σ α_i h_i (N, T, E) and α = softmax(e) without padding (N, T, S); both are 0 for an empty source."""
    if mask is None:
        weights = scores.softmax(dim=-1)
    else:  # the smallest number instead of −∞, whose gradient is NaN where all positions are padding
        padded = ~mask[:, None]
        weights = scores.masked_fill(padded, torch.finfo(scores.dtype).min).softmax(dim=-1).masked_fill(padded, 0.0)
    return weights @ values, weights
