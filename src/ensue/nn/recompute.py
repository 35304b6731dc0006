"""Blocks that remember what went into them only, and are run again on the way back (Chen et al., 2016).

A block keeps some twenty times what goes into it for its gradient; over a long context that is what fills the memory.
Run again it costs a third of a step's time, and gives the same to the bit: random numbers are drawn again from where
they were.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from ensue.core.errors import InputError


class Recomputed(nn.Module):
    """A module that can be run again instead of remembering; ``recompute_blocks`` says which are."""

    recompute = False

    def __call__(self, *inputs: Any) -> Any:
        """Run, and remember the inputs only where that was asked for and something is learnt."""
        if self.recompute and self.training and torch.is_grad_enabled():
            return checkpoint(super().__call__, *inputs, use_reentrant=False)
        return super().__call__(*inputs)


def recompute_blocks(model: nn.Module) -> int:
    """Have all blocks of a model run again on the way back; answer how many there are."""
    blocks = [block for block in model.modules() if isinstance(block, Recomputed)]
    for block in blocks:
        block.recompute = True
    return len(blocks)


def recompute(model: nn.Module, system: str) -> None:
    """The same as a setting of training asks for; a system that has no blocks is refused."""
    if not recompute_blocks(model):
        what = f"{system} has no blocks of attention that could be computed again"
        raise InputError(what, hint="use train.recompute=none")
