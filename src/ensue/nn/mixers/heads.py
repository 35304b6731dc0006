"""Heads of different kinds in one layer, as in ``bigbird+local:span=64`` or ``linear+local``.

    MultiHead(x) = Concat(head_1 … head_H) W_O = Σ_m Mix_m(x),     Mix_m(x) = Concat(the heads of mixer m) W_O,m

The heads are divided evenly among the mixers. Each projects x for its own heads, and the outputs add up, since a matrix
times a concatenation is a sum. So local heads can stand beside global ones of any kind, as in the Routing Transformer
(Roy et al., 2021).

Legend: B rows, T tokens, S keys, H heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ensue.core.errors import InputError
from ensue.nn.layout import PADDED, Layout
from ensue.nn.mixers.mixer import Mixed, Mixer, MixerConfig, build_mixer
from ensue.nn.state import State


@dataclass(frozen=True)
class MixedHeadsState(State):
    """The state of each mixer."""

    parts: tuple[State | None, ...]

    def first(self, tokens: int, of: int) -> MixedHeadsState | None:
        """The same after fewer tokens of one row, where all mixers can tell."""
        parts = tuple(None if one is None else one.first(tokens, of) for one in self.parts)
        lost = any(old is not None and new is None for old, new in zip(self.parts, parts, strict=True))
        return None if lost else MixedHeadsState(parts)


class SomeHeads(nn.Module):
    """The score bias of some of the heads."""

    def __init__(self, bias: nn.Module, start: int, stop: int) -> None:
        super().__init__()
        self.bias, self.start, self.stop = bias, start, stop

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Positions (X, T) and (X, S) → (X, heads, T, S)."""
        bias: Tensor = self.bias(queries, keys)[:, self.start : self.stop]
        return bias


class MixedHeads(Mixer):
    """Σ_m Mix_m(x), where every mixer has an equal share of the heads."""

    paper = "Roy et al., 2021"

    def __init__(self, config: MixerConfig, texts: Sequence[str]) -> None:
        super().__init__()
        count, H, G = len(texts), config.heads, config.kv_heads or config.heads
        for name, heads in (("heads", H), ("kv_heads", G)):
            if heads % count:
                what = f"{name} = {heads} cannot be divided among {count} mixers"
                raise InputError(f"attention = {'+'.join(texts)!r}: {what}", hint=f"use a multiple of {count}")
        self.causal, each = config.causal, H // count
        shared = replace(config, heads=each, kv_heads=G // count, head_width=config.head_width or config.width // H)
        bias = config.score_bias
        biases = [None if bias is None else SomeHeads(bias, n * each, n * each + each) for n in range(count)]
        self.mixers = nn.ModuleList(
            build_mixer(text, replace(shared, score_bias=own)) for text, own in zip(texts, biases, strict=True)
        )
        self.packed = all(one.packed for one in self.parts)
        self.bounded = all(one.bounded for one in self.parts)

    @property
    def parts(self) -> list[Mixer]:
        """The mixers, in the order of their heads."""
        return [one for one in self.mixers if isinstance(one, Mixer)]

    def start(self, rows: int) -> MixedHeadsState | None:
        """The mixers' states; none in both directions."""
        return MixedHeadsState(tuple(one.start(rows) for one in self.parts)) if self.causal else None

    def forward(self, x: Tensor, state: Any = None, layout: Layout = PADDED, weights: bool = False) -> Mixed:
        """Mix x (B, T, D), by each mixer, and add the results."""
        pasts = state.parts if state is not None else (None,) * len(self.mixers)
        found = [one(x, past, layout, weights) for one, past in zip(self.parts, pasts, strict=True)]
        after = MixedHeadsState(tuple(one.state for one in found)) if self.causal else None
        return Mixed(_total([one.y for one in found]), after, _side_by_side([one.weights for one in found]))

    def at(
        self, index: Tensor, here: Tensor, x: Tensor, layout: Layout, weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """The outputs at ``index`` only."""
        found = [one.at(index, here, x, layout, weights) for one in self.parts]
        return _total([y for y, _ in found]), _side_by_side([seen for _, seen in found])


def _total(outputs: Sequence[Tensor]) -> Tensor:
    first, *rest = outputs
    return sum(rest, start=first)


def _side_by_side(weights: Sequence[Tensor | None]) -> Tensor | None:
    """The weights of all heads, (B, H, T, S); a mixer that has dropped the oldest keys gives them none."""
    known = [one for one in weights if one is not None]
    if len(known) < len(weights):
        return None
    size = max(one.shape[-1] for one in known)
    return torch.cat([F.pad(one, (size - one.shape[-1], 0)) for one in known], 1)
