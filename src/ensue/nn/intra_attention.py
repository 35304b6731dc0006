"""Attention within a recurrent network: a layer that attends to its own outputs (intra-attention, Cheng et al., 2016).

    h_t = layer(h_{t-1}, x_t)                         any layer; from t back to i a path of t − i steps
    n_t = h_t, or LayerNorm(h_t)
    c_t = Σ_i a_{t,i} W_V n_i,  a_t = softmax_i(W_Q n_t · W_K n_i / √d)
    y_t = h_t + W_O c_t                               from t to every i that it sees a path of one step

The mixer that is passed in decides what t sees: a causal one itself and earlier positions, for language models; one in
both directions the whole text, so that in *the bank … of that wide river* the vector of *bank* depends on the last
word. The recurrence runs on h, not on y, so a fused kernel can run it.

The norm (Merity, 2019) is optional. Outputs of an untrained network are so small that all scores are nearly equal:
taggers found distant words more often with a norm, and language models learned running text faster without one.

Legend: B rows, T time, D input width, N the layer's output width, H heads, S positions that are seen.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from ensue.nn.layout import Layout
from ensue.nn.mixers.mixer import Mixed, Mixer
from ensue.nn.state import State


@dataclass(frozen=True)
class IntraState(State):
    """The state of the layer, and that of the mixer; None for a mixer in both directions."""

    layer: State
    memory: State | None


class IntraAttention(nn.Module):
    """y_t = h_t + W_O c_t: (B, T, D) → (B, T, N), as wide as the layer's own outputs."""

    def __init__(self, layer: nn.Module, attention: Mixer, norm: nn.Module | None = None) -> None:
        super().__init__()
        self.layer, self.attention = layer, attention
        self.output = int(layer.output)  # type: ignore[arg-type]
        self.norm = norm or nn.Identity()

    def start(self, rows: int) -> IntraState:
        """The initial states of the layer and of the mixer."""
        return IntraState(self.layer.start(rows), self.attention.start(rows))  # type: ignore[operator]

    def forward(
        self,
        x: Tensor,
        state: IntraState | None = None,
        lengths: Tensor | None = None,
        weights: bool = False,
    ) -> Mixed:
        """Run over x (B, T, D); weights are a_t of each head, (B, H, T, S)."""
        state = state or self.start(len(x))
        h, inner = self.layer(x, state.layer, lengths)
        if not x.shape[1]:
            return Mixed(h, IntraState(inner, state.memory), None)
        c, memory, a = self.attention(self.norm(h), state.memory, Layout(lengths), weights)
        return Mixed(h + c, IntraState(inner, memory), a)
