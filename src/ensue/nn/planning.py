"""Build a model without storage: to see its tensors and their sizes before there is memory for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

INITIALISERS = frozenset(
    [
        "normal_",
        "uniform_",
        "trunc_normal_",
        "xavier_uniform_",
        "xavier_normal_",
        "kaiming_uniform_",
        "kaiming_normal_",
        "orthogonal_",
        "zeros_",
        "ones_",
        "constant_",
        "fill_",
        "zero_",
        "eye_",
        "bernoulli_",
        "exponential_",
        "random_",
        "copy_",
        "mul_",
        "add_",
        "__setitem__",
    ]
)
"""Functions that set the values of a tensor, which a tensor without storage does not have."""
ELEMENTWISE = frozenset(
    [
        "add",
        "sub",
        "mul",
        "div",
        "neg",
        "pow",
        "__rpow__",
        "__rsub__",
        "sin",
        "cos",
        "exp",
        "expm1",
        "log",
        "log1p",
        "double",
        "float",
    ]
)
"""Functions whose result is as large as their arguments together."""


class _WithoutValues(TorchFunctionMode):
    """Leaves out what gives tensors their values: on ``meta`` torch imports its compiler for that, for seconds."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        name, options = getattr(func, "__name__", ""), kwargs or {}
        if name in INITIALISERS:
            return args[0] if args else next(iter(options.values()))
        if name in ELEMENTWISE:
            tensors = [part for part in args if isinstance(part, torch.Tensor)]
            return torch.empty(_broadcast(*(part.shape for part in tensors)), dtype=tensors[0].dtype)
        if func in (torch.randn, torch.rand):
            return torch.empty(*args, **options)
        if func in SHAPED:
            return SHAPED[func](*args, **options)
        return func(*args, **options)


def _broadcast(*shapes: Sequence[int]) -> list[int]:
    """Return the shape of tensors that are combined element by element."""
    return [max(sizes) for sizes in zip_longest(*(shape[::-1] for shape in shapes), fillvalue=1)][::-1]


def _arange(*bounds: float, dtype: torch.dtype | None = None, **options: Any) -> torch.Tensor:
    first, last, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    whole = all(isinstance(bound, int) for bound in bounds)
    kind = dtype or (torch.int64 if whole else torch.get_default_dtype())
    return torch.empty(max(0, math.ceil((last - first) / step)), dtype=kind)


def _stack(tensors: Sequence[torch.Tensor], dim: int = 0) -> torch.Tensor:
    shape = list(tensors[0].shape)
    shape.insert(dim % (len(shape) + 1), len(tensors))
    return torch.empty(shape, dtype=tensors[0].dtype)


def _randint(*args: Any, **options: Any) -> torch.Tensor:
    return torch.empty(options.get("size", args[-1]), dtype=options.get("dtype") or torch.int64)


SHAPED: dict[Callable[..., Any], Callable[..., torch.Tensor]] = {
    torch.arange: _arange,
    torch.stack: _stack,
    torch.randint: _randint,
}
"""Functions whose results have a shape that follows from their arguments."""


@contextmanager
def without_storage() -> Iterator[None]:
    """Create tensors and modules on the device ``meta`` and leave them uninitialised.

    >>> with without_storage():
    ...     layer = torch.nn.Linear(10**6, 10**6)
    >>> layer.weight.shape, layer.weight.device.type
    (torch.Size([1000000, 1000000]), 'meta')
    """
    with torch.device("meta"), _WithoutValues():
        yield
