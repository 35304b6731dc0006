"""An operation with a plain reference and faster implementations of it.

A layer calls the kernel; the kernel picks the implementation. The reference is the equation in plain torch operations:
it runs anywhere, and every other implementation is tested against it.

>>> import torch
>>> double = Kernel("double", lambda x: x + x, Fast("shift", lambda x: x << 1, lambda x: not x.is_floating_point()))
>>> double.choice(torch.tensor(3)), double.choice(torch.tensor(3.0))
('shift', 'reference')
>>> with use("reference"):
...     double.choice(torch.tensor(3))
'reference'
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
_forced: ContextVar[tuple[str, str | None] | None] = ContextVar("forced", default=None)
"""The implementation that ``use`` forces, and the kernel it is for (None: all). Each thread has its own value."""


@dataclass(frozen=True)
class Fast(Generic[P, R]):
    """A faster implementation, and when it can stand in for the reference."""

    name: str
    run: Callable[P, R]
    can_run: Callable[P, bool]
    """True where the implementation gives what the reference gives, and is faster."""


class Kernel(Generic[P, R]):
    """A reference and its faster implementations, the preferred one first."""

    def __init__(self, name: str, reference: Callable[P, R], *fast: Fast[P, R]) -> None:
        self.name, self.reference, self.fast = name, reference, fast
        self.implementations = {"reference": reference} | {one.name: one.run for one in fast}

    def __repr__(self) -> str:
        return f"Kernel({self.name}: {', '.join(self.implementations)})"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the first implementation that can run, else the reference."""
        if _forced.get() is not None:
            return self.implementations[self.choice(*args, **kwargs)](*args, **kwargs)
        for one in self.fast:
            if one.can_run(*args, **kwargs):
                return one.run(*args, **kwargs)
        return self.reference(*args, **kwargs)

    def choice(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """The name of the implementation that these arguments get."""
        forced = _forced.get()
        if forced is not None and forced[1] in (None, self.name) and forced[0] in self.implementations:
            return forced[0]
        return next((one.name for one in self.fast if one.can_run(*args, **kwargs)), "reference")


@contextmanager
def use(implementation: str, kernel: str | None = None) -> Iterator[None]:
    """Force an implementation inside a ``with`` block, in this thread: of one kernel, or of all that have it."""
    token = _forced.set((implementation, kernel))
    try:
        yield
    finally:
        _forced.reset(token)


def forced(kernel: str) -> str | None:
    """The implementation that ``use`` forces for a kernel in this thread; None: the kernel chooses."""
    value = _forced.get()
    return None if value is None or value[1] not in (None, kernel) else value[0]
