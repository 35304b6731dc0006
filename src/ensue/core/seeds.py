"""Random numbers that can be saved, restored and derived from one seed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def derive(seed: int, *names: str | int) -> int:
    """A seed of its own for a named purpose; the same everywhere.

    >>> derive(1, "data") == derive(1, "data"), derive(1, "data") == derive(1, "model")
    (True, False)
    """
    text = "/".join([str(seed), *map(str, names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def seed_everything(seed: int) -> None:
    """Set torch's generators, of all devices."""
    import torch

    torch.manual_seed(seed)


def random_state() -> dict[str, Tensor]:
    """The state of torch's generators, for a checkpoint."""
    import torch

    state = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state |= {f"cuda.{n}": s for n, s in enumerate(torch.cuda.get_rng_state_all())}
    return state


def restore_random_state(state: dict[str, Tensor]) -> None:
    """Take up the generators where ``random_state`` found them."""
    import torch

    torch.set_rng_state(state["cpu"])
    for name, value in state.items():
        if name.startswith("cuda.") and torch.cuda.is_available():
            torch.cuda.set_rng_state(value, int(name.removeprefix("cuda.")))


@contextmanager
def own_randomness(seed: int) -> Iterator[None]:
    """A block with generators of its own: what happens inside leaves those outside untouched."""
    before = random_state()
    try:
        seed_everything(seed)
        yield
    finally:
        restore_random_state(before)
