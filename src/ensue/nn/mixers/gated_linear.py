"""Gated linear attention: each channel of the state forgets at a rate computed from the input (GLA; Yang et al., 2024).

    S_t = diag(α_t) S_{t-1} + k_t v_tᵀ,      α_t = sigmoid(x_t W_1 W_2 + b)^{1/16}            α_t: d numbers a head
    y_t = (silu(x_t W_G) ∘ Norm(S_tᵀ q_t / √d)) W_O

W_1 W_2 has a low rank. The 16th root keeps decays near 1, so that the model remembers long texts from the start.

Legend: B rows, T tokens, H heads, d head width, D width.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from ensue.core.errors import InputError
from ensue.nn.mixers.mixer import MixerConfig
from ensue.nn.mixers.retention import DecayAttention

ROOT = 16
"""Decays are this root of a sigmoid."""


class GatedLinearAttention(DecayAttention):
    """Linear attention with decays α_t = sigmoid(x_t W_1 W_2 + b)^{1/16} of each channel."""

    paper = "Yang et al., 2024"

    def __init__(self, config: MixerConfig, *, rank: int = 16) -> None:
        super().__init__(config)
        if rank < 1:
            raise InputError(f"attention = gated-linear: rank = {rank} must be 1 or more")
        self.decay_in = nn.Linear(config.width, rank, bias=False)  # W_1
        self.decay_out = nn.Linear(rank, self.heads * self.head_width)  # W_2, b

    def log_decays(self, x: Tensor) -> Tensor:
        logs = F.logsigmoid(self.decay_out(self.decay_in(x))) / ROOT
        return logs.view(*x.shape[:2], self.heads, self.head_width).transpose(1, 2)
