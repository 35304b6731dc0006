"""Convolutions over time: a causal one, whose state is its last inputs, and a symmetric one.

    y_t = b + Σ_{j=0}^{k-1} W_j x_{t - (k-1-j)·r}          causal: its own position and (k−1)·r before it
    y_t = b + Σ_{j=0}^{k-1} W_j x_{t - l + j·r}            both sides: l = ⌊(k−1)·r / 2⌋ before it, the rest after it

k is the kernel size and r the dilation. Positions outside the text are zero.

The k inputs of a position are concatenated and multiplied by [W_0 … W_{k-1}] at once: on a CPU this is faster than
torch's convolution for short sentences, and most of all for a single token.

Legend: B rows, T time, D input width, N output width.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ensue.nn.source import Source
from ensue.nn.state import State, zeros_beside
from ensue.nn.trunk import Clock


@dataclass(frozen=True)
class ConvolutionState(State):
    """The last n = (k−1)·r inputs of each row, oldest first; zeros before the start."""

    inputs: Tensor  # (B, n, D)

    def extend(self, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, ConvolutionState]:
        """Append inputs (B, T, D); return all inputs (B, n + T, D) and the state after each row's last one."""
        size = self.inputs.shape[1]
        joined = torch.cat([self.inputs, x], dim=1)
        if lengths is None:
            return joined, ConvolutionState(joined[:, joined.shape[1] - size :])
        index = lengths[:, None] + torch.arange(size, device=x.device)
        return joined, ConvolutionState(joined.gather(1, index[..., None].expand(-1, -1, x.shape[-1])))


class Convolution(nn.Module):
    """Base class of both convolutions; ``reach`` is n = (k−1)·r."""

    def __init__(self, inputs: int, outputs: int, width: int, dilation: int = 1) -> None:
        super().__init__()
        self.inputs, self.dilation = inputs, dilation
        self.reach = (width - 1) * dilation
        self.weight = nn.Parameter(torch.randn(outputs, width, inputs) * (width * inputs) ** -0.5)  # W_0 … W_{k-1}
        self.bias = nn.Parameter(torch.zeros(outputs))

    def convolve(self, x: Tensor) -> Tensor:
        """(B, n + T, D) → (B, T, N), without padding."""
        width, time = self.weight.shape[1], x.shape[1] - self.reach
        shifted = [x[:, at : at + time] for at in range(0, width * self.dilation, self.dilation)]
        return F.linear(torch.cat(shifted, dim=-1), self.weight.flatten(1), self.bias)


class CausalConvolution(Convolution):
    """Causal convolution, for decoders."""

    def start(self, rows: int) -> ConvolutionState:
        """Zeros."""
        return ConvolutionState(zeros_beside(self.weight, rows, self.reach, self.inputs))

    def forward(
        self, x: Tensor, state: ConvolutionState | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, ConvolutionState]:
        """(B, T, D) → (B, T, N), and each row's last inputs."""
        joined, after = (state or self.start(len(x))).extend(x, lengths)
        return self.convolve(joined), after


class FullConvolution(Convolution):
    """Symmetric convolution, for encoders; it has no state."""

    def forward(self, x: Tensor, state: None = None, lengths: Tensor | None = None) -> tuple[Tensor, None]:
        """(B, T, D) → (B, T, N); padding counts as zero."""
        if lengths is not None:
            real = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
            x = x.masked_fill(~real[..., None], 0.0)
        before = self.reach // 2
        return self.convolve(F.pad(x, (0, 0, before, self.reach - before))), None


@dataclass(frozen=True)
class ConvolutionalDecoderState(State):
    """The state of a decoder of causal convolutions: their last inputs, the positions, and the encoded source."""

    blocks: tuple[ConvolutionState, ...]
    clock: Clock
    source: Source

    @staticmethod
    def start(blocks: Iterable[Any], source: Source) -> ConvolutionalDecoderState:
        """Return the state before the first token; each block has a causal ``convolution``."""
        states = tuple(block.convolution.start(source.count) for block in blocks)
        return ConvolutionalDecoderState(states, Clock.start(source.count, source.index.device), source)
