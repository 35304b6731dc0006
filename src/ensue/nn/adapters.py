"""Low-rank adapters beside frozen weights (LoRA, Hu et al., 2021).

    W' = W + (α / r) B A,     B (out × r) initialised to 0, A (r × in)

Only A and B are trained. ``merge`` replaces W by W', so saved weights contain no adapters.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize


class LowRank(nn.Module):
    """W ↦ W + (α / r) B A."""

    def __init__(self, rows: int, columns: int, rank: int, alpha: float) -> None:
        super().__init__()
        self.scale = alpha / rank
        self.down = nn.Parameter(torch.empty(rank, columns))  # A
        self.up = nn.Parameter(torch.zeros(rows, rank))  # B
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))

    def forward(self, weight: Tensor) -> Tensor:
        """(out, in) → (out, in)."""
        return torch.addmm(weight, self.up, self.down, alpha=self.scale)


def adaptable(module: nn.Module, where: Callable[[str], bool] = lambda name: True) -> list[nn.Linear]:
    """Return a module's linear layers whose names satisfy ``where``."""
    return [layer for name, layer in module.named_modules() if type(layer) is nn.Linear and where(name)]


def adapt(module: nn.Module, rank: int, alpha: float, where: Callable[[str], bool] = lambda name: True) -> int:
    """Freeze a module, add adapters to its linear layers whose names satisfy ``where``, and return their number."""
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    layers = adaptable(module, where)
    for layer in layers:
        rows, columns = layer.weight.shape
        adapter = LowRank(rows, columns, rank, alpha).to(layer.weight.device, layer.weight.dtype)
        parametrize.register_parametrization(layer, "weight", adapter)
    return len(layers)


def merge(module: nn.Module) -> None:
    """Replace every W by W' and remove the adapters."""
    for layer in list(module.modules()):
        if parametrize.is_parametrized(layer, "weight"):
            held = cast(parametrize.ParametrizationList, layer.parametrizations["weight"])  # type: ignore[index]
            if isinstance(held[0], LowRank):
                parametrize.remove_parametrizations(layer, "weight", leave_parametrized=True)
