"""A running mean: the simplest mixer, and the worked example of docs/how-to/add-a-mixer.md.

    y_t = W (1/t) Σ_{s ≤ t} x_s

Its state is the sum so far and the number of tokens in it, so a token costs the same however long the text is.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ensue.nn.layout import PADDED, Layout
from ensue.nn.mixers.mixer import Mixed, Mixer, MixerConfig
from ensue.nn.state import State, zeros_beside


@dataclass(frozen=True)
class MeanState(State):
    """The sum of the inputs so far, and how many they are."""

    total: Tensor  # (B, D)
    tokens: Tensor  # (B, 1)


class RunningMean(Mixer):
    """y_t = W (1/t) Σ_{s ≤ t} x_s."""

    directions = ("causal",)
    bounded = True
    complexity = "O(n)"
    decoding = "O(1)"

    def __init__(self, config: MixerConfig) -> None:
        super().__init__()
        self.out = nn.Linear(config.width, config.width, bias=config.bias)

    def start(self, rows: int) -> MeanState:
        return MeanState(zeros_beside(self.out, rows, self.out.in_features), zeros_beside(self.out, rows, 1))

    def forward(
        self, x: Tensor, state: MeanState | None = None, layout: Layout = PADDED, weights: bool = False
    ) -> Mixed:
        state = state or self.start(len(x))
        real = torch.ones_like(x[..., :1])  # (B, T, 1), 0 at padding
        if layout.lengths is not None:
            real = real * (torch.arange(x.shape[1], device=x.device) < layout.lengths[:, None])[..., None]
        total = state.total[:, None] + (x * real).cumsum(1)  # (B, T, D)
        count = state.tokens[:, None] + real.cumsum(1)  # (B, T, 1)
        after = MeanState(total[:, -1], count[:, -1]) if x.shape[1] else state
        size = count.clamp(min=1)
        seen = (real.mT.expand(-1, x.shape[1], -1).tril() / size)[:, None] if weights else None  # within this chunk
        return Mixed(self.out(total / size), after, seen)
