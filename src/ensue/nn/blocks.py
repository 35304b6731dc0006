"""Transformer blocks: a mixer and a feed-forward network, each on a residual path with a norm.

    pre-norm     x = x + Mix(Norm(x));    x = x + Cross(Norm(x), memory);    x = x + FFN(Norm(x))
    post-norm    x = Norm(x + Mix(x));    x = Norm(x + Cross(x, memory));    x = Norm(x + FFN(x))
    sandwich     x = x + Norm(Mix(Norm(x)));    x = x + Norm(Cross(Norm(x), memory));    x = x + Norm(FFN(Norm(x)))

The step in the middle is there where a block has cross-attention. Pre-norm (GPT-2) never normalises the residual path,
so deep models train without a warm-up; post-norm is the order of the Transformer paper, of GPT and of BERT. The
sandwich (Ding et al., 2021; Gemma 2 and 3) also bounds what each part adds to the residual path.

Legend: B rows, T tokens, K positions of a row that are asked for, D width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from torch import Tensor, nn

from ensue.nn.cross_attention import CrossAttention, Memory
from ensue.nn.dropout import Dropout
from ensue.nn.layout import PADDED, Layout
from ensue.nn.mixers.mixer import Mixed, Mixer
from ensue.nn.recompute import Recomputed
from ensue.nn.residual import add_norm
from ensue.nn.state import State

Norm = Callable[[], nn.Module]
"""Makes a new norm of the model's width."""


class Block(Recomputed):
    """The parts of a block; its subclasses put them together. The mixer's weights are named ``attention``."""

    entries: ClassVar[tuple[str, ...]] = ("at",)
    """Methods that are called from outside, beside ``forward``."""
    streams: ClassVar[int] = 1
    """How many streams of width D its inputs and outputs are, side by side (``ensue.nn.reversible``)."""

    def __init__(
        self,
        mixer: Mixer,
        feed: nn.Module,
        norm: Norm,
        dropout: float = 0.0,
        cross: CrossAttention | None = None,
    ) -> None:
        super().__init__()
        self.norm_attention = norm()
        self.attention = mixer
        if cross is not None:
            self.norm_cross = norm()
        self.cross = cross
        self.norm_feed = norm()
        self.feed = feed
        self.dropout = Dropout(dropout)

    def start(self, rows: int) -> State | None:
        """The mixer's state before the first token."""
        return self.attention.start(rows)

    def mix(self, x: Tensor, state: Any, layout: Layout, weights: bool) -> Mixed:
        """Mix positions; a mixer that cannot take packed rows gets padded ones."""
        if layout.packing is None or self.attention.packed:
            mixed: Mixed = self.attention(x, state, layout, weights)
            return mixed
        padded, inner = layout.pad(x)
        y, state, seen = self.attention(padded, state, inner, weights)
        return Mixed(layout.packing.pack(y), state, seen)

    def mix_at(
        self, index: Tensor, here: Tensor, x: Tensor, layout: Layout, weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Mix positions, and answer at ``index`` (B, K) only; ``here`` is x there."""
        if layout.packing is None or self.attention.packed:
            return self.attention.at(index, here, x, layout, weights)
        padded, inner = layout.pad(x)
        y, seen = self.attention.at(index, layout.packing.restore(here), padded, inner, weights)
        return y.index_select(0, layout.packing.order), seen

    def forward(
        self, x: Tensor, state: Any = None, layout: Layout = PADDED, memory: Memory | None = None, weights: bool = False
    ) -> Mixed:
        """(B, T, D) → (B, T, D). Weights are those of the cross-attention where there is one, else the mixer's."""
        raise TypeError(f"{type(self).__name__} has no forward")

    def at(
        self,
        x: Tensor,
        index: Tensor,
        layout: Layout = PADDED,
        weights: bool = False,
        here: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """The output at ``index`` (B, K) only, (B, K, D), and the weights there; packed rows in the packed order.

        What these positions see is still computed for every position. It is exact in a last block. ``here`` (B, K, D)
        takes the place of x at these positions, but not in what they see.
        """
        raise TypeError(f"{type(self).__name__} has no at")


class PreNormBlock(Block):
    """x = x + Mix(Norm(x));  x = x + Cross(Norm(x), memory);  x = x + FFN(Norm(x))."""

    def forward(
        self, x: Tensor, state: Any = None, layout: Layout = PADDED, memory: Memory | None = None, weights: bool = False
    ) -> Mixed:
        y, state, seen = self.mix(self.norm_attention(x), state, layout, weights and self.cross is None)
        x = self.dropout.add(x, y)
        if self.cross is not None:
            assert memory is not None
            y, seen = self.cross(self.norm_cross(x), memory.layers[0], memory.source, weights)
            x = self.dropout.add(x, y)
        return Mixed(self.dropout.add(x, self.feed(self.norm_feed(x))), state, seen)

    def at(
        self,
        x: Tensor,
        index: Tensor,
        layout: Layout = PADDED,
        weights: bool = False,
        here: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        z = self.norm_attention(x)
        asked = layout.pick(z, index) if here is None else self.norm_attention(here)
        y, seen = self.mix_at(index, asked, z, layout, weights)
        x = self.dropout.add(layout.pick(x, index) if here is None else here, y)
        return self.dropout.add(x, self.feed(self.norm_feed(x))), seen


class PostNormBlock(Block):
    """x = Norm(x + Mix(x));  x = Norm(x + Cross(x, memory));  x = Norm(x + FFN(x))."""

    def forward(
        self, x: Tensor, state: Any = None, layout: Layout = PADDED, memory: Memory | None = None, weights: bool = False
    ) -> Mixed:
        y, state, seen = self.mix(x, state, layout, weights and self.cross is None)
        x = add_norm(x, y, self.dropout, self.norm_attention)
        if self.cross is not None:
            assert memory is not None
            y, seen = self.cross(x, memory.layers[0], memory.source, weights)
            x = add_norm(x, y, self.dropout, self.norm_cross)
        return Mixed(add_norm(x, self.feed(x), self.dropout, self.norm_feed), state, seen)

    def at(
        self,
        x: Tensor,
        index: Tensor,
        layout: Layout = PADDED,
        weights: bool = False,
        here: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        here = layout.pick(x, index) if here is None else here
        y, seen = self.mix_at(index, here, x, layout, weights)
        x = add_norm(here, y, self.dropout, self.norm_attention)
        return add_norm(x, self.feed(x), self.dropout, self.norm_feed), seen


class SandwichNormBlock(Block):
    """x = x + Norm(Mix(Norm(x)));  x = x + Norm(Cross(Norm(x), memory));  x = x + Norm(FFN(Norm(x)))."""

    def __init__(
        self,
        mixer: Mixer,
        feed: nn.Module,
        norm: Norm,
        dropout: float = 0.0,
        cross: CrossAttention | None = None,
    ) -> None:
        super().__init__(mixer, feed, norm, dropout, cross)
        self.norm_mixed = norm()
        if cross is not None:
            self.norm_crossed = norm()
        self.norm_fed = norm()

    def forward(
        self, x: Tensor, state: Any = None, layout: Layout = PADDED, memory: Memory | None = None, weights: bool = False
    ) -> Mixed:
        y, state, seen = self.mix(self.norm_attention(x), state, layout, weights and self.cross is None)
        x = self.dropout.add(x, self.norm_mixed(y))
        if self.cross is not None:
            assert memory is not None
            y, seen = self.cross(self.norm_cross(x), memory.layers[0], memory.source, weights)
            x = self.dropout.add(x, self.norm_crossed(y))
        return Mixed(self._fed(x), state, seen)

    def at(
        self,
        x: Tensor,
        index: Tensor,
        layout: Layout = PADDED,
        weights: bool = False,
        here: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        z = self.norm_attention(x)
        asked = layout.pick(z, index) if here is None else self.norm_attention(here)
        y, seen = self.mix_at(index, asked, z, layout, weights)
        here = layout.pick(x, index) if here is None else here
        return self._fed(self.dropout.add(here, self.norm_mixed(y))), seen

    def _fed(self, x: Tensor) -> Tensor:
        return self.dropout.add(x, self.norm_fed(self.feed(self.norm_feed(x))))
