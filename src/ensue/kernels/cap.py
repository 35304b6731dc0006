"""A cap of scores: c tanh(x / c), which is close to x for small x and never beyond ±c (Gemma 2)."""

from __future__ import annotations

from torch import Tensor


def capped(x: Tensor, cap: float) -> Tensor:
    """c tanh(x / c) with c = ``cap``; x itself where it is 0.

    >>> import torch
    >>> [round(x, 4) for x in capped(torch.tensor([0.1, 3.0, 1000.0]), 30.0).tolist()]
    [0.1, 2.99, 30.0]
    """
    return cap * (x / cap).tanh() if cap else x
