"""Low-rank adapters beside frozen weights (LoRA, Hu et al., 2021).

    W' = W + (α / r) B A,     B (out × r) initialised to 0, A (r × in)

Only A and B are trained. Beside weights in floats they are a parametrisation, and ``merge`` replaces W by W', so saved
weights contain no adapters. Weights in groups of 4 or 8 bits cannot hold W' (QLoRA, Dettmers et al., 2023): there an
``AdaptedLinear`` stands around the layer, and is saved with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from ensue.kernels.grouped import GroupedLinear
from ensue.kernels.low_rank import low_rank_linear, updated


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
        return updated(weight, self.down, self.up, self.scale)


class AdaptedLinear(nn.Module):
    """y = (W + (α / r) B A) x + b around a layer y = W x + b, whose weights do not change."""

    scale: Tensor

    def __init__(self, base: GroupedLinear | nn.Linear, rank: int, alpha: float) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Parameter(torch.empty(rank, base.in_features))  # A
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))  # B
        self.register_buffer("scale", torch.tensor(alpha / rank))
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))

    @property
    def in_features(self) -> int:
        """Number of inputs."""
        return self.base.in_features

    @property
    def out_features(self) -> int:
        """Number of outputs."""
        return self.base.out_features

    @property
    def weight(self) -> Tensor:
        """W' (out, in) in float32."""
        return updated(self.base.weight, self.down, self.up, float(self.scale))

    @property
    def bias(self) -> Tensor | None:
        """b."""
        return cast("Tensor | None", self.base.bias)

    def own_tensors(self) -> dict[str, Tensor]:
        """A, B and their scale, by name."""
        return {"down": self.down.detach(), "up": self.up.detach(), "scale": self.scale}

    def forward(self, x: Tensor) -> Tensor:
        """(…, in) → (…, out)."""
        return low_rank_linear(self.base, x, self.down, self.up, float(self.scale))


def adaptable(module: nn.Module, where: Callable[[str], bool] = lambda name: True) -> list[str]:
    """Return the names of a module's linear layers that satisfy ``where``."""
    kinds = (nn.Linear, GroupedLinear, AdaptedLinear)
    inside = {f"{name}.base" for name, layer in module.named_modules() if isinstance(layer, AdaptedLinear)}
    return [
        name for name, layer in module.named_modules() if type(layer) in kinds and where(name) and name not in inside
    ]


def adapt(module: nn.Module, rank: int, alpha: float, where: Callable[[str], bool] = lambda name: True) -> int:
    """Freeze a module, add adapters to its linear layers whose names satisfy ``where``, and return their number.

    A layer that has adapters keeps them, and they are trained further.
    """
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    names = adaptable(module, where)
    for name in names:
        layer = module.get_submodule(name)
        if isinstance(layer, AdaptedLinear):
            layer.down.requires_grad_(True)
            layer.up.requires_grad_(True)
        elif isinstance(layer, GroupedLinear):
            replace_layer(module, name, AdaptedLinear(layer, rank, alpha))
        else:
            assert isinstance(layer, nn.Linear)
            rows, columns = layer.weight.shape
            adapter = LowRank(rows, columns, rank, alpha).to(layer.weight.device, layer.weight.dtype)
            parametrize.register_parametrization(layer, "weight", adapter)
    return len(names)


def replace_layer(module: nn.Module, name: str, layer: nn.Module) -> None:
    """Put a layer in the place of a module's layer of this name."""
    parent, _, own = name.rpartition(".")
    setattr(module.get_submodule(parent), own, layer)


def adapters(module: nn.Module) -> Iterator[tuple[str, AdaptedLinear]]:
    """Yield the layers with adapters that stand beside their weights, and their names."""
    for name, layer in module.named_modules():
        if isinstance(layer, AdaptedLinear):
            yield name, layer


def trained_state(module: nn.Module) -> dict[str, Tensor]:
    """Return what training changes in a module: its adapters if they stand beside their weights, else everything."""
    found = {
        f"{name}.{part}": tensor for name, layer in adapters(module) for part, tensor in layer.own_tensors().items()
    }
    return found or dict(module.state_dict())


def load_trained_state(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Load what ``trained_state`` returned."""
    own = set(trained_state(module))
    frozen = {name: tensor for name, tensor in module.state_dict().items() if name not in own}
    module.load_state_dict({**frozen, **tensors})


def merge(module: nn.Module) -> None:
    """Replace every W in floats by W' and remove its adapter."""
    for layer in list(module.modules()):
        if parametrize.is_parametrized(layer, "weight"):
            held = cast(parametrize.ParametrizationList, layer.parametrizations["weight"])  # type: ignore[index]
            if isinstance(held[0], LowRank):
                parametrize.remove_parametrizations(layer, "weight", leave_parametrized=True)
