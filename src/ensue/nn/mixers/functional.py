"""Self-attention with functional relative positions: sinusoids of the distance (NEZHA, Wei et al., 2019).

    e_ij = Q_i · (K_j + a_ij) / √d,   α_i = softmax(e_i),   y_i = Σ_j α_ij (V_j + a_ij)
    a_ij = PE(R + clip(j − i, −R, R))                           sinusoids of width d, the same in every head, not learnt

No position is added to the embedding. A distance above R = 64 counts as R, so texts longer than those of training have
no position that is new. It is what ``positions=functional`` makes of full attention.

Legend: B rows, T tokens, H heads, d head width.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ensue.core.errors import InputError
from ensue.kernels.attention import shared_heads
from ensue.kernels.dropout import dropout as drop
from ensue.kernels.matmul import linear
from ensue.nn.layout import Layout
from ensue.nn.mixers.full import SelfAttention
from ensue.nn.mixers.mixer import MixerConfig
from ensue.nn.positions import sinusoids

REACH = 64
"""R."""


class FunctionalAttention(SelfAttention):
    """Concat(Σ_j softmax(Q_i · (K_j + a_ij) / √d) (V_j + a_ij)) W_O, in both directions."""

    directions = ("both",)
    caps = False
    paper = "Wei et al., 2019"

    def __init__(self, config: MixerConfig) -> None:
        super().__init__(config)
        if config.causal or config.rope_base or config.score_bias is not None or config.score_cap:
            raise InputError("positions = functional is for encoders, without other positions or a cap of scores")
        self.plain = self.packed = False
        self.register_buffer("table", sinusoids(torch.arange(2 * REACH + 1), self.head_width), persistent=False)

    def _both(self, parts: tuple[Tensor, ...], layout: Layout, weights: bool) -> tuple[Tensor, Tensor | None]:
        """Attend in both directions among what was projected."""
        query, key, value = self._heads(*parts)
        key, value = (shared_heads(one, self.heads) for one in (key, value))
        steps = torch.arange(key.shape[2], device=key.device)
        a = layout.once(("functional", self.head_width, key.dtype), lambda: self._relations(steps).to(key.dtype))
        query = query / math.sqrt(self.head_width)
        scores = query @ key.transpose(-2, -1) + torch.einsum("bhtd,tsd->bhts", query, a)
        if layout.lengths is not None:
            padded = steps >= layout.lengths.clamp(min=1)[:, None]  # an empty row must see something
            scores = scores.masked_fill(padded[:, None, None], float("-inf"))
        seen = scores.softmax(-1)
        dropped = drop(seen, self.dropout) if self.training and self.dropout else seen
        y = dropped @ value + torch.einsum("bhts,tsd->bhtd", dropped, a)
        return linear(self.out, y.transpose(1, 2).flatten(2)), seen if weights else None

    def _relations(self, steps: Tensor) -> Tensor:
        """a_ij of positions (T,), (T, T, d)."""
        table: Tensor = self.table  # type: ignore[assignment]
        return table[REACH + (steps - steps[:, None]).clamp(-REACH, REACH)]
