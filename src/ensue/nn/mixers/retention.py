"""Retention: linear attention that forgets at a fixed rate, without a normaliser (RetNet; Sun et al., 2023).

    S_t = γ_h S_{t-1} + k_t v_tᵀ,      γ_h = 1 − 2^{−5−h},  h = 0 … H − 1
    y_t = (silu(x_t W_G) ∘ Norm(S_tᵀ q_t / √d)) W_O                 Norm: RMS over each head, without weights

So q_t · k_s counts γ^{t−s}: near tokens more than far ones. It is a recurrent network whose state is a matrix; time and
memory are O(n), and one more token costs the same however long the text is. ``DecayAttention`` is this equation with
any decay; ``gated-linear`` computes its own from the input.

Legend: B rows, T tokens, H heads, d head width, D width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ensue.core.errors import InputError
from ensue.kernels.attention import shared_heads
from ensue.kernels.linear_scan import linear_scan
from ensue.kernels.matmul import linear
from ensue.nn.layout import PADDED, Layout
from ensue.nn.mixers.full import SelfAttention
from ensue.nn.mixers.mixer import Mixed, Mixer, MixerConfig
from ensue.nn.state import State, zeros_beside

EPSILON = 1e-6
"""Added to the mean square in the norm of heads."""


@dataclass(frozen=True)
class DecayState(State):
    """S of every head, and how many tokens were read."""

    matrix: Tensor  # (B, H, d, d)
    tokens: Tensor  # (B,)


class DecayAttention(SelfAttention):
    """(silu(x W_G) ∘ Norm(S_tᵀ q_t / √d)) W_O,  S_t = g_t S_{t-1} + k_t v_tᵀ, with the decay g_t of a subclass."""

    caps = False
    caches = False
    directions = ("causal",)
    bounded = True
    complexity = "O(n)"
    decoding = "O(1)"

    def __init__(self, config: MixerConfig) -> None:
        super().__init__(config)
        if config.score_bias is not None:
            raise InputError("attention without a softmax has no scores, so it cannot use positions=alibi")
        self.gate = nn.Linear(config.width, self.heads * self.head_width, bias=config.bias)  # W_G
        self.packed = False

    def log_decays(self, x: Tensor) -> Tensor:
        """log g of each token, (B, T, D) → (B or 1, H, T, 1 or d)."""
        raise TypeError(f"{type(self).__name__} has no log_decays")

    def start(self, rows: int) -> DecayState:  # type: ignore[override]
        """An empty matrix."""
        matrix = zeros_beside(self.out, rows, self.heads, self.head_width, self.head_width)
        return DecayState(matrix, torch.zeros(rows, dtype=torch.long, device=matrix.device))

    def forward(  # type: ignore[override]
        self, x: Tensor, state: DecayState | None = None, layout: Layout = PADDED, weights: bool = False
    ) -> Mixed:
        """Mix x (B, T, D)."""
        (B, T, _), state = x.shape, state or self.start(len(x))
        steps = torch.arange(T, device=x.device)
        positions = state.tokens[:, None] + steps if layout.positions is None else layout.positions
        query, key, value = self._heads(self._rotated(self._projected(x), positions, layout))
        key, value = (shared_heads(part, self.heads) for part in (key, value))
        query, read = query / math.sqrt(self.head_width), torch.full_like(state.tokens, T)
        fall = self.log_decays(x).expand(B, -1, -1, -1)
        if layout.lengths is not None:  # padding changes no state
            padding, read = (steps >= layout.lengths[:, None])[:, None, :, None], layout.lengths
            key, fall = key.masked_fill(padding, 0.0), fall.masked_fill(padding, 0.0)
        y, matrix = linear_scan(query, key, value, state.matrix, fall)
        y = F.rms_norm(y, (self.head_width,), eps=EPSILON).transpose(1, 2).flatten(2)
        y = F.silu(linear(self.gate, x)) * y
        seen = mixing_weights(query, key, fall) if weights else None
        return Mixed(linear(self.out, y), DecayState(matrix, state.tokens + read), seen)

    def at(
        self, index: Tensor, here: Tensor, x: Tensor, layout: Layout, weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        return Mixer.at(self, index, here, x, layout, weights)


def mixing_weights(query: Tensor, key: Tensor, log_decay: Tensor) -> Tensor:
    """The share that each v_s has in S_tᵀ q_t, (B, H, T, T).

    v_s is multiplied by q_t · k_s with its decays, which may be negative: the share is of absolute values.
    """
    (B, H, T, d), one_hot = query.shape, torch.eye(query.shape[2], dtype=query.dtype, device=query.device)
    seen, _ = linear_scan(query, key, one_hot.expand(B, H, T, T), query.new_zeros(B, H, d, T), log_decay)
    return F.normalize(seen, p=1, dim=-1).abs()


class Retention(DecayAttention):
    """Linear attention with a decay γ_h = 1 − 2^{−5−h} of each head."""

    paper = "Sun et al., 2023"

    def __init__(self, config: MixerConfig) -> None:
        super().__init__(config)
        decays = torch.log1p(-(2.0 ** (-5.0 - torch.arange(self.heads, dtype=torch.float64))))
        self.register_buffer("decays", decays.float()[None, :, None, None], persistent=False)

    def log_decays(self, x: Tensor) -> Tensor:
        return self.get_buffer("decays").to(x.dtype).expand(-1, -1, x.shape[1], -1)
