"""Which layers learn, how fast, and when: rates that fall towards the embeddings, frozen layers, gradual unfreezing.

A layer's ``depth`` counts from 0, what reads tokens, to the head. With decay δ a layer at depth d of a head at depth H
learns at δ^(H − d) of the rate (discriminative rates, Howard and Ruder, 2018); with freezing, layers below a depth do
not learn, and that depth sinks by one every so many steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class Thawing:
    """What the loop asks before each update; a pure function of the step."""

    depths: Mapping[str, int]
    """Of each parameter by name."""
    decay: float = 1.0
    frozen: int = 0
    """Layers at depths below this do not learn at first."""
    every: int = 0
    """Steps after which one more layer is let go; 0 means never."""

    def scales(self) -> dict[str, float]:
        """What each parameter's rate is multiplied by."""
        top = max(self.depths.values(), default=0)
        return {name: self.decay ** (top - depth) for name, depth in self.depths.items()}

    @property
    def stages(self) -> int:
        """How many different sets of layers learn, one after the other."""
        return 1 + self.frozen if self.every else 1

    @property
    def thawed(self) -> int:
        """The step from which on no more layers are let go."""
        return self.frozen * self.every

    def boundary(self, step: int) -> int:
        """The depth below which nothing learns at a step."""
        return max(0, self.frozen - (step // self.every if self.every else 0))

    def apply(self, model: nn.Module, step: int) -> None:
        """Let each parameter learn or not, as it is at this step; those with no depth here are left alone."""
        boundary = self.boundary(step)
        for name, parameter in model.named_parameters():
            if name in self.depths:
                parameter.requires_grad_(self.depths[name] >= boundary)
