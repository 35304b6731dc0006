"""The blocks of equal size that new tokens lie in, where rows may have read different numbers of tokens before them.

Legend: B rows, T new tokens, b tokens of a block, M blocks that new tokens lie in, P columns of a cache.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F


class Frame(NamedTuple):
    """The blocks that new tokens lie in."""

    block: int
    blocks: int
    """M."""
    begin: int | Tensor
    """Where the tokens begin: the position of all rows, or those of each (B,)."""

    @classmethod
    def of(cls, block: int, begin: int | Tensor, time: int) -> Frame:
        """The frame of ``time`` tokens."""
        most = begin % block if isinstance(begin, int) else int((begin % block).max())
        return cls(block, max(1, -(-(most + time) // block)), begin)

    def numbers(self, device: torch.device) -> Tensor:
        """(1 or B, M), the numbers of the blocks."""
        first, steps = self.begin // self.block, torch.arange(self.blocks, device=device)
        return (first + steps)[None] if isinstance(first, int) else first[:, None] + steps

    def columns(self, size: int, device: torch.device) -> Tensor:
        """(1 or B, M, S), the positions of the first S tokens of each block."""
        return (self.numbers(device) * self.block)[..., None] + torch.arange(size, device=device)

    def place(self, x: Tensor) -> Tensor:
        """Tokens (B, K, T, F) in their blocks, (B, K, M, b, F), zeros elsewhere."""
        size, offset = self.blocks * self.block, self.begin % self.block
        if isinstance(offset, int):
            placed = F.pad(x, (0, 0, offset, size - offset - x.shape[2]))
        else:
            placed = x.new_zeros(*x.shape[:2], size, x.shape[3]).scatter(2, _steps(offset, x), x)
        return in_blocks(placed, self.block)

    def take(self, y: Tensor, time: int) -> Tensor:
        """The tokens of blocks one after the other, (B, K, M·b, F) → (B, K, T, F)."""
        offset = self.begin % self.block
        if isinstance(offset, int):
            return y[:, :, offset : offset + time]
        return y.gather(2, _steps(offset, y[:, :, :time]))

    def cut(self, x: Tensor) -> Tensor:
        """These blocks of all columns (B, G, P, d) → (B, G, M, b, d); of even rows one block may be shorter than b."""
        size, first = self.blocks * self.block, self.begin // self.block
        if isinstance(first, int):
            x = x[:, :, first * self.block :][:, :, :size]
            if self.blocks == 1:
                return x[:, :, None]
            x = F.pad(x, (0, 0, 0, size - x.shape[2]))
        else:
            like = x[:, :, :1].expand(-1, -1, size, -1)
            x = x.gather(2, _steps(first * self.block, like).clamp(max=x.shape[2] - 1))
        return in_blocks(x, self.block)


def in_blocks(x: Tensor, block: int) -> Tensor:
    """(B, K, M·b, F) → (B, K, M, b, F)."""
    return x.reshape(*x.shape[:2], x.shape[2] // block, block, x.shape[3])


def _steps(begin: Tensor, like: Tensor) -> Tensor:
    """``begin`` (B,) and the numbers after it as an index of ``like`` (B, K, T, F)."""
    return (begin[:, None] + torch.arange(like.shape[2], device=like.device))[:, None, :, None].expand_as(like)
