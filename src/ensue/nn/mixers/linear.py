"""Linear attention: a feature map in place of the softmax makes attention a recurrence (Katharopoulos et al., 2020).

    y_t = Σ_s (φ(q_t) · φ(k_s)) v_s / Σ_s φ(q_t) · φ(k_s),     φ(x) = elu(x) + 1
        = S_tᵀ φ(q_t) / (z_t · φ(q_t)),                        S_t = Σ_s φ(k_s) v_sᵀ,   z_t = Σ_s φ(k_s)

Causal sums run over s ≤ t. Then (S_t, z_t) is the state of a recurrent network: S_t = S_{t-1} + φ(k_t) v_tᵀ. Time and
memory are O(n), and one more token costs the same however long the text is. ``FeatureAttention`` is this equation with
any φ; ``performer`` has another one.

Rotary positions are applied to queries and keys before φ.

Legend: B rows, T tokens, H heads, d head width, F features.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ensue.core.errors import InputError
from ensue.kernels.attention import shared_heads
from ensue.kernels.autograd_guards import visible
from ensue.kernels.linear_scan import linear_scan
from ensue.kernels.matmul import linear
from ensue.nn.layout import PADDED, Layout
from ensue.nn.mixers.full import SelfAttention
from ensue.nn.mixers.mixer import Mixed, Mixer, MixerConfig
from ensue.nn.state import State, zeros_beside

RISE = 40.0
"""How much larger than the first token's the largest logarithm of a feature may be: more, and sums of the first tokens
would lose digits or be zero because of later ones."""


@dataclass(frozen=True)
class FeatureState(State):
    """Σ φ(k) vᵀ and Σ φ(k) of the tokens so far, divided by exp(scale)."""

    matrix: Tensor  # (B, H, F, d)
    total: Tensor  # (B, H, F)
    scale: Tensor  # (B, H), logarithm of what φ(k) was divided by
    tokens: Tensor  # (B,), how many were read


class FeatureAttention(SelfAttention):
    """φ(q)ᵀ Σ φ(k) vᵀ / φ(q)ᵀ Σ φ(k), with the feature map φ of a subclass."""

    caps = False
    caches = False
    bounded = True
    complexity = "O(n)"
    decoding = "O(1)"

    def __init__(self, config: MixerConfig) -> None:
        super().__init__(config)
        if config.score_bias is not None:
            raise InputError("attention without a softmax has no scores, so it cannot use positions=alibi")
        self.packed = False

    @property
    def features(self) -> int:
        """F, the number of features."""
        return self.head_width

    def query_features(self, query: Tensor) -> Tensor:
        """φ(q), (B, H, T, d) → (B, H, T, F), up to a factor for each query, which cancels."""
        raise TypeError(f"{type(self).__name__} has no query_features")

    def log_key_features(self, key: Tensor) -> Tensor | None:
        """log φ(k), (B, H, T, d) → (B, H, T, F), for a φ whose values need scaling; None if ``key_features`` is φ."""
        return None

    def key_features(self, key: Tensor) -> Tensor:
        """φ(k), (B, H, T, d) → (B, H, T, F)."""
        raise TypeError(f"{type(self).__name__} has no key_features")

    def start(self, rows: int) -> FeatureState | None:  # type: ignore[override]
        """Empty sums; none in both directions."""
        if not self.causal:
            return None
        matrix = zeros_beside(self.out, rows, self.heads, self.features, self.head_width)
        tokens = torch.zeros(rows, dtype=torch.long, device=matrix.device)
        return FeatureState(matrix, matrix[..., 0], matrix[..., 0, 0], tokens)

    def forward(  # type: ignore[override]
        self, x: Tensor, state: FeatureState | None = None, layout: Layout = PADDED, weights: bool = False
    ) -> Mixed:
        """Mix x (B, T, D)."""
        B, T, _ = x.shape
        state = state or self.start(B)
        positions = layout.positions
        if positions is None:
            steps = torch.arange(T, device=x.device)
            positions = steps[None] if state is None else state.tokens[:, None] + steps
        query, key, value = self._heads(self._rotated(self._projected(x), positions, layout))
        key, value = (shared_heads(part, self.heads) for part in (key, value))
        real = None if layout.lengths is None else torch.arange(T, device=x.device) < layout.lengths[:, None]
        phi_q = self.query_features(query)
        phi_k, scale, rise = self._scaled_keys(key, real, state)
        halves = None
        if state is not None and rise is not None and T > 1 and not visible() and not rise.is_meta and rise > RISE:
            halves = self._in_halves(x, state, layout)
            if not weights:
                return halves
        if state is None:
            matrix, total = phi_k.transpose(-2, -1) @ value, phi_k.sum(2)
            y, size, after = phi_q @ matrix, phi_q @ total[..., None], None
        else:
            fall = (state.scale - scale).clamp(max=0.0).exp()[..., None]  # an empty state has no scale
            matrix, total = state.matrix * fall[..., None], state.total * fall
            y, matrix = linear_scan(phi_q, phi_k, value, matrix)
            sums = total[:, :, None] + phi_k.cumsum(2)
            size = (phi_q * sums).sum(-1, keepdim=True)
            total = sums[:, :, -1] if T else total
            after = FeatureState(matrix, total, scale, state.tokens + (T if real is None else real.sum(1)))
        y = (y / size.clamp(min=torch.finfo(y.dtype).tiny)).transpose(1, 2).flatten(2)
        seen = self._weights(phi_q, phi_k, size) if weights else None
        return Mixed(linear(self.out, y), after, seen) if halves is None else halves._replace(weights=seen)

    def _in_halves(self, x: Tensor, state: FeatureState, layout: Layout) -> Mixed:
        """Mix the first half of the tokens, then the second: each has a scale of its own."""
        T, found = x.shape[1], list[Tensor]()
        after: FeatureState | None = state
        for part in (slice(0, T // 2), slice(T // 2, T)):
            size = part.stop - part.start
            lengths = None if layout.lengths is None else (layout.lengths - part.start).clamp(0, size)
            positions = None if layout.positions is None else layout.positions[:, part]
            y, after, _ = self.forward(x[:, part], after, Layout(lengths, positions))
            found.append(y)
        return Mixed(torch.cat(found, 1), after, None)

    def _scaled_keys(
        self, key: Tensor, real: Tensor | None, state: FeatureState | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """φ(k) / exp(scale), zero at padding, the scale (B, H), which keeps the largest feature so far at 1, and how
        much it rises after the first token; None where nothing is scaled."""
        hidden = None if real is None else ~real[:, None, :, None]
        logs = self.log_key_features(key)
        before = key.new_zeros(key.shape[:2]) if state is None else state.scale
        if logs is None:
            phi = self.key_features(key)
            return (phi if hidden is None else phi.masked_fill(hidden, 0.0)), before, None
        logs = logs if hidden is None else logs.masked_fill(hidden, float("-inf"))
        scale, rise = before, None
        if logs.numel():
            most = logs.detach().amax((-2, -1))
            fresh = torch.ones_like(most, dtype=torch.bool) if state is None else state.tokens[:, None] == 0
            scale = torch.where(fresh, most, torch.maximum(most, before))
            scale = torch.where(scale.isfinite(), scale, before)  # a row of padding
            first = logs.detach()[:, :, 0].amax(-1)
            first = torch.where(fresh, first, torch.maximum(first, before))
            rise = torch.where(first.isfinite(), scale - first, 0.0).max()
        return (logs - scale[..., None, None]).exp(), scale, rise

    def _weights(self, phi_q: Tensor, phi_k: Tensor, size: Tensor) -> Tensor:
        """φ(q_t) · φ(k_s) / Σ, the weights among these tokens, (B, H, T, T)."""
        seen = phi_q @ phi_k.transpose(-2, -1)
        return (seen.tril() if self.causal else seen) / size.clamp(min=torch.finfo(seen.dtype).tiny)

    def at(
        self, index: Tensor, here: Tensor, x: Tensor, layout: Layout, weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        return Mixer.at(self, index, here, x, layout, weights)


class LinearAttention(FeatureAttention):
    """Linear attention with φ(x) = elu(x) + 1."""

    paper = "Katharopoulos et al., 2020"

    def query_features(self, query: Tensor) -> Tensor:
        return F.elu(query) + 1

    def key_features(self, key: Tensor) -> Tensor:
        return F.elu(key) + 1
