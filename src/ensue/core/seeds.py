"""Seeds derived from one seed, and the state of torch's random number generators."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def derive(seed: int, *names: str | int) -> int:
    """Derive the seed of a named purpose; the same on every machine.

    >>> derive(1, "data") == derive(1, "data"), derive(1, "data") == derive(1, "model")
    (True, False)
    """
    text = "/".join([str(seed), *map(str, names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def seed_everything(seed: int) -> None:
    """Seed torch's generators of all devices."""
    import torch

    torch.manual_seed(seed)


def get_random_state() -> dict[str, Tensor]:
    """The state of torch's generators, for a checkpoint."""
    import torch

    state = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state |= {f"cuda.{n}": s for n, s in enumerate(torch.cuda.get_rng_state_all())}
    return state


def set_random_state(state: dict[str, Tensor]) -> None:
    """Restore a state from ``get_random_state``."""
    import torch

    torch.set_rng_state(state["cpu"])
    for name, value in state.items():
        if name.startswith("cuda.") and torch.cuda.is_available():
            torch.cuda.set_rng_state(value, int(name.removeprefix("cuda.")))


@contextmanager
def isolated_rng(seed: int) -> Iterator[None]:
    """Seed the generators inside a block, and restore their state after it."""
    before = get_random_state()
    try:
        seed_everything(seed)
        yield
    finally:
        set_random_state(before)
