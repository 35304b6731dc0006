"""Trunk: blocks one after the other, the only loop over layers; and Clock, which knows the positions.

    h_l, s_l = Block_l(h_{l-1}, s_l)         l = 1 … L

Layers can share blocks (ALBERT): with G blocks, layer i of 0 … L − 1 runs block ⌊i G / L⌋. A shared block is one
module: its weights exist once, its states once for each layer.

Reversible blocks (``ensue.nn.reversible``) have two streams h and run all at once in training.

The state of a trunk is the clock (how much of each row was read) and one state for each block, whatever its mixer
keeps: keys and values, a matrix, a few last inputs. Positions come from the clock, so that every kind of position works
with every mixer.

Legend: B rows, T tokens, D width, L layers, G blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from ensue.nn.blocks import Block
from ensue.nn.cross_attention import Memory
from ensue.nn.layout import Layout
from ensue.nn.reversible import reversible, run_reversibly
from ensue.nn.state import State


@dataclass(frozen=True)
class Clock(State):
    """How many tokens of each row were read."""

    lengths: Tensor  # (B,)
    used: int = 0
    """Length of the longest row."""
    even: bool = True
    """Whether all rows are equally long."""

    @staticmethod
    def start(rows: int, device: torch.device) -> Clock:
        """Nothing was read."""
        return Clock(torch.zeros(rows, dtype=torch.long, device=device))

    def positions(self, time: int) -> Tensor:
        """Positions of the next ``time`` tokens: (1, T) where rows are even, else (B, T)."""
        steps = torch.arange(time, device=self.lengths.device)
        return (self.used + steps)[None] if self.even else self.lengths[:, None] + steps

    def after(self, time: int, lengths: Tensor | None = None) -> Clock:
        """The clock after ``time`` tokens, of which row b has lengths[b] real ones."""
        if lengths is None:
            return Clock(self.lengths + time, self.used + time, self.even)
        read = self.lengths + lengths
        return Clock(read, int(read.max()) if len(read) else 0, False)

    def first(self, tokens: int, of: int) -> Clock | None:
        """The clock after fewer tokens of one row."""
        whole = len(self.lengths) == 1 and int(self.lengths[0]) == of
        return Clock(torch.full_like(self.lengths, tokens), tokens) if whole else None

    def renewed(self, rows: Tensor, start: Clock) -> Clock:
        """This clock, with the rows where the mask ``rows`` (B,) is true taken from ``start``."""
        return Clock.of(torch.where(rows, start.lengths, self.lengths))

    @classmethod
    def joined(cls, states: Sequence[Clock]) -> Clock:
        """Rows of several clocks as one."""
        return Clock.of(torch.cat([state.lengths for state in states]))

    @staticmethod
    def of(lengths: Tensor) -> Clock:
        """The clock of rows that were read to ``lengths`` (B,)."""
        used = int(lengths.max()) if len(lengths) else 0
        return Clock(lengths, used, bool((lengths == used).all()))


@dataclass(frozen=True)
class TrunkState(State):
    """The positions, and the state of every block."""

    clock: Clock
    blocks: tuple[State | None, ...]

    def first(self, tokens: int, of: int) -> TrunkState | None:
        """The same after fewer tokens of one row, where all blocks can tell."""
        clock = self.clock.first(tokens, of)
        blocks = tuple(None if one is None else one.first(tokens, of) for one in self.blocks)
        lost = any(old is not None and new is None for old, new in zip(self.blocks, blocks))
        return None if clock is None or lost else TrunkState(clock, blocks)

    @property
    def count(self) -> int:
        """B."""
        return len(self.clock.lengths)


LastBlock = Callable[[Block, Tensor, Tensor, Layout, bool], tuple[Tensor, Tensor | None]]
"""(block, x, index, layout, weights) → the output of the last block, and the weights, at ``index`` (B, K) only."""


class Through(NamedTuple):
    """What a trunk returns."""

    h: Tensor
    """(B, T, D), the last block's output."""
    state: TrunkState | None
    """The state after these tokens; None where none was asked for."""
    weights: tuple[Tensor, ...] | None
    """Attention weights of every block, where they were asked for and all blocks have some."""
    layers: tuple[Tensor, ...] | None
    """h_0 … h_L, where they were asked for."""


def block_of(layer: int, layers: int, groups: int) -> int:
    """The block of a layer where ``layers`` share ``groups`` blocks; both are counted from 0.

    >>> [block_of(layer, 6, 3) for layer in range(6)]
    [0, 0, 1, 1, 2, 2]
    """
    return layer * groups // layers


class Trunk(nn.ModuleList):
    """h_L of h_0: blocks in order. Norms before the first and after the last block belong to the model.

    As a module list it has every block once; ``blocks`` has one for each layer.
    """

    def __init__(self, blocks: Sequence[Block] = (), layers: int = 0) -> None:
        super().__init__(blocks)
        self.layers = layers
        """L; 0 means that each block is one layer."""

    @property
    def blocks(self) -> list[Block]:
        """The block of each layer, in order."""
        own = cast(list[Block], list(self))
        return [own[block_of(layer, self.layers, len(own))] for layer in range(self.layers)] if self.layers else own

    @property
    def shares(self) -> bool:
        """Whether layers share blocks."""
        return self.layers > len(self)

    @property
    def bounded(self) -> bool:
        """Whether no block's state grows with the text."""
        return all(block.attention.bounded for block in self.blocks)

    @property
    def streams(self) -> int:
        """How many streams go from block to block; the first block gets x in each."""
        return self.blocks[0].streams if len(self) else 1

    def _mean(self, x: Tensor) -> Tensor:
        """The mean of streams (…, n · D) → (…, D)."""
        return x if self.streams == 1 else x.view(*x.shape[:-1], self.streams, -1).mean(-2)

    def start(self, rows: int) -> TrunkState:
        """The state before the first token."""
        device = next(self.parameters()).device
        return TrunkState(Clock.start(rows, device), tuple(block.start(rows) for block in self.blocks))

    def forward(
        self,
        x: Tensor,
        state: TrunkState | None = None,
        layout: Layout | None = None,
        memory: Memory | None = None,
        *,
        weights: bool = False,
        keep_state: bool = True,
        at: Tensor | None = None,
        last: LastBlock | None = None,
        layers: bool = False,
    ) -> Through:
        """Run x (B, T, D), or packed rows (M, D), through all blocks.

        ``memory`` is what cross-attention attends to. Without ``keep_state`` no block's state is kept, not even until
        the last block: it is most of what recomputed blocks would hold. With ``at`` (B, K) the last block computes
        these positions only; packed rows then come in the packed order. ``last`` may say how, instead of ``Block.at``.
        """
        layout = layout or Layout()
        hidden, blocks, first = [x], self.blocks, 0
        pasts: tuple[Any, ...] = (None,) * len(blocks)
        if state is not None:
            pasts = state.blocks
            layout = layout.at(state.clock.positions(x.shape[1]))
        after: list[State | None] = []
        seen: list[Tensor | None] = []
        if self.streams > 1:
            x, whole = torch.cat([x] * self.streams, dim=-1), len(blocks) - (at is not None)
            plain = not (weights or layers or (keep_state and state is not None))
            if plain and reversible(blocks[:whole], pasts[:whole]):
                x, first = run_reversibly(blocks[:whole], x, pasts, layout, memory), whole
        for number in range(first, len(blocks)):
            block, past = blocks[number], pasts[number]
            if at is not None and number == len(blocks) - 1:
                own_at = block.at if last is None else partial(last, block)  # a sharded block has an ``at`` of its own
                x, seen_here = own_at(x, at, layout, weights)
            else:
                own = None if memory is None else Memory(memory.layers[number : number + 1], memory.source)
                x, new, seen_here = block(x, past, layout, own, weights)
                after += [new] if keep_state else []
                del new
            seen.append(seen_here)
            hidden += [self._mean(x)] if layers else []
        left = None
        if state is not None and keep_state:
            left = replace(state, clock=state.clock.after(hidden[0].shape[1], layout.lengths), blocks=tuple(after))
        shown = cast(tuple[Tensor, ...], tuple(seen)) if weights and all(one is not None for one in seen) else None
        return Through(self._mean(x), left, shown, tuple(hidden) if layers else None)
