"""Gradient checkpointing: blocks that keep only their inputs and run again in the backward pass (Chen et al., 2016).

For its gradient a block keeps about twenty times the size of its input, which fills the memory with a long context.
Running it again takes a third of a step's time and gives bit-identical results: the random state is restored first.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from ensue.core.errors import InputError


class Recomputed(nn.Module):
    """A module that can be recomputed in the backward pass; ``recompute_blocks`` turns it on."""

    recompute = False

    def __call__(self, *inputs: Any) -> Any:
        """Run; while training with ``recompute``, keep only the inputs for the backward pass."""
        if self.recompute and self.training and torch.is_grad_enabled():
            return checkpoint(super().__call__, *inputs, use_reentrant=False)
        return super().__call__(*inputs)


def recompute_blocks(model: nn.Module) -> int:
    """Recompute all blocks of a model in the backward pass, and return their number."""
    blocks = [block for block in model.modules() if isinstance(block, Recomputed)]
    for block in blocks:
        block.recompute = True
    return len(blocks)


def recompute(model: nn.Module, system: str) -> None:
    """Apply ``train.recompute=blocks``; refuse a system without blocks."""
    if not recompute_blocks(model):
        what = f"{system} has no blocks that could be recomputed"
        raise InputError(what, hint="use train.recompute=none")
