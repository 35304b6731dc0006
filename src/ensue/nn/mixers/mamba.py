"""Mamba-2: a state-space model whose state is a matrix, updated as linear attention's is (Dao and Gu, 2024).

    z, u, Δ     = x W_in                          u is what is mixed, Δ one number a head
    x̂, B, C     = silu(conv(u))                   a causal convolution over the last k inputs of each channel
    Δ_t         = softplus(Δ_t + b),   a_t = exp(−Δ_t exp(A))
    S_t         = a_t S_{t-1} + B_t (Δ_t x̂_t)ᵀ,      y_t = S_tᵀ C_t + D ∘ x̂_t
    output      = RMSNorm(y ∘ silu(z)) W_out

With C as queries, B as keys and Δ x̂ as values this is linear attention with a decay (the paper's state-space duality).
The state is S and the last k − 1 inputs of the convolution. Positions are implied by the recurrence, so rotary ones are
not used; key–value heads are ``groups`` here: heads of a group share B and C.

Legend: B rows, T tokens, D width, H heads, p head width, N width of the state, G groups, k width of the convolution.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ensue.core.errors import InputError
from ensue.kernels.linear_scan import linear_scan
from ensue.kernels.matmul import linear
from ensue.nn.convolution import ConvolutionState
from ensue.nn.layout import PADDED, Layout
from ensue.nn.mixers.mixer import Mixed, Mixer, MixerConfig
from ensue.nn.mixers.retention import mixing_weights
from ensue.nn.state import State, zeros_beside


@dataclass(frozen=True)
class MambaState(State):
    """S of every head, and the last inputs of the convolution."""

    matrix: Tensor  # (B, H, N, p)
    inputs: ConvolutionState


class Mamba(Mixer):
    """RMSNorm(y ∘ silu(z)) W_out,  y_t = S_tᵀ C_t + D ∘ x̂_t,  S_t = a_t S_{t-1} + B_t (Δ_t x̂_t)ᵀ."""

    directions = ("causal",)
    bounded = True
    paper = "Dao and Gu, 2024"
    complexity = "O(n)"
    decoding = "O(1)"

    def __init__(
        self, config: MixerConfig, *, state: int = 64, expand: int = 2, groups: int = 1, convolution: int = 4
    ) -> None:
        """``state`` is N, ``expand`` the inner width over D, ``groups`` G, ``convolution`` k."""
        super().__init__()
        inner, H = expand * config.width, config.heads
        for name, value in (("state", state), ("expand", expand), ("groups", groups), ("convolution", convolution)):
            if value < 1:
                raise InputError(f"attention = mamba: {name} = {value} must be 1 or more")
        if inner % H or H % groups:
            raise InputError(f"attention = mamba: heads = {H} must divide {inner}, and groups = {groups} divide heads")
        self.heads, self.head_width, self.states, self.groups = H, inner // H, state, groups
        self.sizes = [inner, inner + 2 * groups * state, H]  # z, u, Δ
        self.project = nn.Linear(config.width, sum(self.sizes), bias=config.bias)  # W_in
        self.convolution = nn.Conv1d(self.sizes[1], self.sizes[1], convolution, groups=self.sizes[1])
        steps = torch.empty(H).uniform_(math.log(1e-3), math.log(1e-1)).exp()
        self.step = nn.Parameter(steps + torch.log(-torch.expm1(-steps)))  # b, such that softplus(b) = steps
        self.decay = nn.Parameter(torch.empty(H).uniform_(1, 16).log())  # A
        self.skip = nn.Parameter(torch.ones(H))  # D
        self.norm = nn.RMSNorm(inner, eps=1e-5)
        self.out = nn.Linear(inner, config.width, bias=config.bias)  # W_out

    def start(self, rows: int) -> MambaState:
        inputs = zeros_beside(self.convolution, rows, self.convolution.kernel_size[0] - 1, self.sizes[1])
        matrix = zeros_beside(self.convolution, rows, self.heads, self.states, self.head_width)
        return MambaState(matrix, ConvolutionState(inputs))

    def forward(
        self, x: Tensor, state: MambaState | None = None, layout: Layout = PADDED, weights: bool = False
    ) -> Mixed:
        """Mix x (B, T, D)."""
        (B, T, _), state, H = x.shape, state or self.start(len(x)), self.heads
        z, u, step = torch.split(linear(self.project, x), self.sizes, -1)
        joined, inputs = state.inputs.extend(u, layout.lengths)
        u = F.silu(self.convolution(joined.transpose(1, 2))).transpose(1, 2)
        mixed, key, query = torch.split(u, [self.sizes[0], *[self.groups * self.states] * 2], -1)
        mixed = mixed.reshape(B, T, H, self.head_width).transpose(1, 2)  # x̂ (B, H, T, p)
        key, query = (one.reshape(B, T, self.groups, -1).transpose(1, 2) for one in (key, query))
        key, query = (one.repeat_interleave(H // self.groups, 1) for one in (key, query))  # B, C (B, H, T, N)
        step = F.softplus(step + self.step).transpose(1, 2)[..., None]  # Δ (B, H, T, 1)
        if layout.lengths is not None:  # padding changes no state
            padding = torch.arange(T, device=x.device) >= layout.lengths[:, None]
            step = step.masked_fill(padding[:, None, :, None], 0.0)
        fall = -step * self.decay.exp()[:, None, None]
        y, matrix = linear_scan(query, key, step * mixed, state.matrix, fall)
        y = (y + self.skip[:, None, None] * mixed).transpose(1, 2).flatten(2)
        seen = mixing_weights(query, step * key, fall) if weights else None
        return Mixed(linear(self.out, self.norm(y * F.silu(z))), MambaState(matrix, inputs), seen)
