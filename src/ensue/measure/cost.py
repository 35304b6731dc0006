"""Parameters and FLOPs, counted by running a model on the meta device: shapes only, no numbers."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from ensue.nn.recurrent import Recurrent


def parameter_parts(model: torch.nn.Module) -> dict[str, int]:
    """Parameters by the model's direct parts; what two parts share counts once, in the first."""
    seen: set[int] = set()
    parts: dict[str, int] = {}
    for name, child in model.named_children():
        own = [p for p in child.parameters() if id(p) not in seen]
        seen |= {id(p) for p in own}
        if own:
            parts[name] = sum(p.numel() for p in own)
    return parts


def flops_per_token(model: Any, time: int = 0) -> int:
    """FLOPs (two for a multiply-add) of reading one token and predicting the next, averaged over a stretch of text.

    Where there is a source, it is as long as the target, and reading it counts.
    """
    conditional = hasattr(model.config, "source_vocabulary")
    length = time or (64 if conditional else model.traits.context or 64)
    reference = [layer for layer in model.modules() if isinstance(layer, Recurrent)]
    kernels = [layer.kernel for layer in reference]
    for layer in reference:
        layer.kernel = "reference"  # counted by the equation: fused kernels hide their products
    tokens = torch.zeros(1, length, dtype=torch.long, device="meta")
    try:
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            model.eval()
            model(tokens, model.start(tokens)) if conditional else model(tokens)
    finally:
        for layer, kernel in zip(reference, kernels):
            layer.kernel = kernel
    return int(counter.get_total_flops()) // length
