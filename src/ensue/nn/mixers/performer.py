"""Performer: softmax attention by positive orthogonal random features, FAVOR+ (Choromanski et al., 2021).

    exp(q · k) = E_w[φ_w(q) φ_w(k)],     φ_w(x) = exp(w · x − ‖x‖² / 2),     w ~ N(0, I)

With F draws of w the expectation is a mean, so softmax attention is linear attention (``FeatureAttention``) with F
features; q and k are divided by d^(1/4), as softmax's scores are by √d. Every d of the w are orthogonal to each other,
with the lengths of independent draws, which lowers the variance. The error falls as F^(−1/2).

The draw belongs to the model and is saved with it; in training it is renewed every ``redraw`` updates, each time from
the run's seed and the number of the update, so that a resumed training has the same draws.

Legend: B rows, T tokens, H heads, d head width, F features.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ensue.core.errors import InputError
from ensue.nn.mixers.linear import FeatureAttention
from ensue.nn.mixers.mixer import MixerConfig


class Performer(FeatureAttention):
    """Linear attention with φ_w(x) = exp(w · x − ‖x‖² / 2) for F random w."""

    paper = "Choromanski et al., 2021"

    def __init__(self, config: MixerConfig, *, features: int = 0, redraw: int = 1000) -> None:
        """``features`` 0 means d ln d; ``redraw`` 0 means that the first draw is kept."""
        super().__init__(config)
        if features < 0 or redraw < 0:
            raise InputError(f"attention = performer: features = {features} and redraw = {redraw} must be 0 or more")
        d = self.head_width
        self.redraw = redraw
        self._features = features or max(1, round(d * math.log(d)))
        seed = torch.randint(1 << 24, (1,)).float()  # a float, so that checkpoints can be averaged
        self.register_buffer("seed", seed)
        self.register_buffer("draw", torch.empty(self._features, d))
        if not seed.is_meta:  # else the model is built without storage
            self.get_buffer("draw").copy_(orthogonal_features(self._features, d, int(seed)))

    @property
    def features(self) -> int:
        return self._features

    def after_update(self, updates: int) -> None:
        """Draw again, every ``redraw`` updates."""
        if self.redraw and updates % self.redraw == 0 and updates:
            draw = self.get_buffer("draw")
            seed = int(self.get_buffer("seed")) + (updates // self.redraw << 24)
            draw.copy_(orthogonal_features(self._features, self.head_width, seed))

    def query_features(self, query: Tensor) -> Tensor:
        logs = self._log_features(query)
        return (logs - logs.detach().amax(-1, keepdim=True)).exp()

    def log_key_features(self, key: Tensor) -> Tensor:
        return self._log_features(key)

    def _log_features(self, x: Tensor) -> Tensor:
        """w · x − ‖x‖² / 2, (B, H, T, d) → (B, H, T, F)."""
        x = x * self.head_width**-0.25
        logs: Tensor = x @ self.get_buffer("draw").to(x.dtype).T - x.square().sum(-1, keepdim=True) / 2
        return logs


def orthogonal_features(count: int, width: int, seed: int) -> Tensor:
    """``count`` vectors of N(0, I) of this width, (F, d); every d of them are orthogonal to each other."""
    generator = torch.Generator().manual_seed(seed)
    blocks = -(-count // width)
    directions, upper = torch.linalg.qr(torch.randn(blocks, width, width, generator=generator, dtype=torch.float64))
    directions = directions * upper.diagonal(dim1=-2, dim2=-1).sign()[:, None]  # QR prefers one of two signs
    lengths = torch.randn(blocks * width, width, generator=generator, dtype=torch.float64).norm(dim=1)
    drawn: Tensor = directions.mT.reshape(-1, width) * lengths[:, None]
    return drawn[:count].float()
