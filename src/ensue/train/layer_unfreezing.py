"""Discriminative learning rates and gradual unfreezing (Howard and Ruder, 2018).

A layer's depth counts from 0 (the embeddings) up to the head at depth H. With decay δ a layer at depth d trains at
δ^(H − d) of the learning rate. Layers below a boundary are frozen; the boundary sinks by one every ``every`` steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class LayerUnfreezing:
    """Sets which parameters are trained after each update; a pure function of the step."""

    depths: Mapping[str, int]
    """Depth of each parameter, by name."""
    decay: float = 1.0
    """δ: learning-rate factor from one layer to the next lower one."""
    frozen: int = 0
    """Depth below which layers are frozen at first."""
    every: int = 0
    """Steps until the next layer is unfrozen; 0 means never."""

    def scales(self) -> dict[str, float]:
        """Return each parameter's learning-rate factor."""
        top = max(self.depths.values(), default=0)
        return {name: self.decay ** (top - depth) for name, depth in self.depths.items()}

    @property
    def stages(self) -> int:
        """The number of different sets of trained layers."""
        return 1 + self.frozen if self.every else 1

    @property
    def last_stage_step(self) -> int:
        """The step from which all layers are trained."""
        return self.frozen * self.every

    def boundary(self, step: int) -> int:
        """Return the depth below which layers are frozen at a step."""
        return max(0, self.frozen - (step // self.every if self.every else 0))

    def __call__(self, model: nn.Module, step: int) -> None:
        """Freeze or unfreeze each parameter for a step; parameters without a depth are left alone."""
        boundary = self.boundary(step)
        for name, parameter in model.named_parameters():
            if name in self.depths:
                parameter.requires_grad_(self.depths[name] >= boundary)
