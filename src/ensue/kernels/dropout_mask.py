"""Dropout masks with cheap random numbers: one byte decides about one unit, so p is a multiple of 1/256.

    m_i = 1 / (1 − p) with probability 1 − p, else 0

A mask depends on its seed and its shape alone, so a backward pass can compute it again instead of keeping it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ensue.kernels.threads import reachable, run

STEPS = 256


def limit(p: float) -> int:
    """The byte below which a unit is switched off."""
    return min(max(round(p * STEPS), 1), STEPS - 1)


def mask(like: Tensor, p: float) -> Tensor:
    """m / (1 − p) in the shape of ``like``: zeros and one other value, of mean 1."""
    off, count = limit(p), like.numel()
    if reachable(like) and like.dim():
        return drawn_mask(like.shape, off, new_seed())
    draws = torch.empty(-(-count // 8), dtype=torch.int64).random_(-(2**63), None)  # all 64 bits
    bytes_ = draws.view(torch.uint8)[:count].view(like.shape)
    kept = torch.empty(like.shape, dtype=like.dtype)  # a comparison can write numbers: no truth values in between
    return torch.ge(bytes_, off, out=kept).mul_(STEPS / (STEPS - off))


def new_seed() -> int:
    """A number of torch's generator: whoever restores that draws the same masks."""
    return int(torch.empty((), dtype=torch.int64).random_(-(2**63), None))


def drawn_mask(shape: torch.Size, off: int, seed: int) -> Tensor:
    """The mask of a seed, the same each time."""
    from ensue.kernels import elementwise_loops as loops  # numba takes a while to import

    kept = torch.empty(shape, dtype=torch.float32)
    run(loops.masks, kept.numel() // max(shape[-1], 1), shape[-1], seed, off, kept)
    return kept
