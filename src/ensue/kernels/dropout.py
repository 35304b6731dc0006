"""Dropout with cheap random numbers: one byte decides about one unit, so p is a multiple of 1/256.

    y = x ∘ m,   m_i = 1 / (1 − p) with probability 1 − p, else 0            (Srivastava et al., 2014)

Drawing a number for each unit took a sixth of a small model's training. Eight bytes come from one 64-bit draw; a
compiled loop needs but one draw, a seed. Its mask depends on the seed and the shape alone, so that a backward pass can
compute it again instead of keeping it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ensue.kernels.autograd_guards import plain
from ensue.kernels.kernel import Fast, Kernel
from ensue.kernels.loops import Loops
from ensue.kernels.threads import loopable, run

loops = Loops("ensue.kernels.elementwise_loops")

STEPS = 256


def dropout(x: Tensor, p: float) -> Tensor:
    """x ∘ m."""
    return x * mask(x, p) if _by_bytes(x) else F.dropout(x, p)


def _by_bytes(x: Tensor) -> bool:
    """True on the CPU, unless a compiler looks on."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def mask(like: Tensor, p: float, seed: int | None = None) -> Tensor:
    """m in the shape of ``like``: zeros and one other value, of mean 1. With a ``seed`` it is the same each time."""
    off, count = limit(p), like.numel()
    if loopable(like) and like.dim():
        return seeded_mask(like.shape, off, new_seed() if seed is None else seed)
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    draws = torch.empty(-(-count // 8), dtype=torch.int64)
    draws.random_(-(2**63), None, generator=generator)  # all 64 bits
    bytes_ = draws.view(torch.uint8)[:count].view(like.shape)
    kept = torch.empty(like.shape, dtype=like.dtype)  # a comparison can write floats: no booleans in between
    return torch.ge(bytes_, off, out=kept).mul_(STEPS / (STEPS - off))


def limit(p: float) -> int:
    """The byte below which a unit is switched off."""
    return min(max(round(p * STEPS), 1), STEPS - 1)


def new_seed() -> int:
    """A seed from torch's generator: restoring the generator's state repeats the masks."""
    return int(torch.empty((), dtype=torch.int64).random_(-(2**63), None))


def seeded_mask(shape: torch.Size, off: int, seed: int) -> Tensor:
    """The mask of a seed, the same each time."""
    kept = torch.empty(shape, dtype=torch.float32)
    run(loops.masks, kept.numel() // max(shape[-1], 1), shape[-1], seed, off, kept)
    return kept


def _reference(x: Tensor, y: Tensor, p: float) -> Tensor:
    """x + dropout(y)."""
    if not p:
        return x + y
    return torch.addcmul(x, y, mask(y, p)) if _by_bytes(x) else x + F.dropout(y, p)


def _one_pass(x: Tensor, y: Tensor, p: float) -> Tensor:
    result: Tensor = _DropoutAdd.apply(x, y, mask(y, p))  # type: ignore[no-untyped-call]
    return result


def _can_run(x: Tensor, y: Tensor, p: float) -> bool:
    return p > 0 and _by_bytes(x) and plain(x, y)


dropout_add = Kernel("dropout_add", _reference, Fast("one_pass", _one_pass, _can_run))
"""x + y ∘ m, the end of a residual path; (x, y, p)."""


class _DropoutAdd(torch.autograd.Function):
    """x + y ∘ m. Torch's own gradient of ``addcmul`` first multiplies m by 1, a pass over memory for nothing."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, drawn: Tensor) -> Tensor:
        """x + y ∘ m."""
        ctx.save_for_backward(drawn)
        return torch.addcmul(x, y, drawn)

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> Any:
        """∂x, ∂y."""
        (drawn,) = ctx.saved_tensors
        return above[0], above[0] * drawn, None
