"""Build a model without storage: to see its tensors and their sizes before there is memory for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

INITIALISERS = frozenset(
    """normal_ uniform_ trunc_normal_ xavier_uniform_ xavier_normal_ kaiming_uniform_ kaiming_normal_ orthogonal_
    zeros_ ones_ constant_ fill_ zero_ eye_ bernoulli_ exponential_ random_ copy_ mul_ add_""".split()
)
"""Functions that set the values of a tensor, which a tensor without storage does not have."""


class _WithoutValues(TorchFunctionMode):
    """Leaves out what gives tensors their values: on ``meta`` torch imports its compiler for that, which takes seconds."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        if getattr(func, "__name__", "") in INITIALISERS:
            return args[0] if args else next(iter((kwargs or {}).values()))
        if func in (torch.randn, torch.rand):
            return torch.empty(*args, **(kwargs or {}))
        if func is torch.arange:
            first, last, step = (0, args[0], 1) if len(args) == 1 else (*args, 1)[:3]
            whole = all(isinstance(part, int) for part in args)
            dtype = (kwargs or {}).get("dtype") or (torch.int64 if whole else torch.get_default_dtype())
            return torch.empty(max(0, math.ceil((last - first) / step)), dtype=dtype)
        return func(*args, **(kwargs or {}))


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
