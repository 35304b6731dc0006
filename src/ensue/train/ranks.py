"""Operations across the ranks of distributed training; ``Ranks`` itself is a single process, where they do nothing.

    rank r of n holds rows ⌊rB/n⌋ … ⌊(r+1)B/n⌋ − 1 of a batch of B
    loss = Σ_r loss_r,   ∇ = Σ_r ∇loss_r     loss_r: a term of the global mean (ensue.train.loss_reduction)

A batch is a pure function of its number, so every rank builds the whole batch and takes its rows: no data is sent. The
first rank decides what all must agree on (when to stop, which weights are best).

``ensue.train.data_parallel`` implements several processes with all weights each, ``ensue.train.sharding`` several with
a part of the weights each; ``ensue.train.process_group`` connects them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ensue.core.events import Abandoned
from ensue.nn.adapters import load_trained_state
from ensue.nn.state import State
from ensue.train.checkpoints import Checkpoint, Checkpoints, Tensors
from ensue.train.interrupts import Interrupts
from ensue.train.loss_reduction import LOCAL, LossReduction
from ensue.train.optimisers import gradient_norm, gradients_of, restore_optimiser

Value = TypeVar("Value")
RunWithWeights = Callable[[Callable[[], Any]], Any]
"""Runs a callable with full parameters gathered."""
Evaluate = Callable[..., dict[str, float]]
"""Measures on held-out data, ``valid_loss`` among them. Its argument is a callable that returns True when evaluation
should stop; it then raises ``Abandoned``. With several ranks it gets them as ``ranks`` and may divide the data."""


def run_directly(function: Callable[[], Any]) -> Any:
    """Call a function; all parameters are in this process already."""
    return function()


class Ranks:
    """A single process."""

    rank = 0
    world_size = 1

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which writes files and reports progress."""
        return self.rank == 0

    def device(self, name: str) -> torch.device:
        """Return the device of this rank."""
        return torch.device(name)

    def rows(self, count: int) -> slice:
        """Return which of ``count`` rows belong to this rank; a rank without rows gets the first one."""
        return slice(0, count)

    def local_batch(self, batch: Any) -> tuple[Any, LossReduction]:
        """Return this rank's rows of a batch, and the reduction of its loss."""
        return batch, LOCAL

    def total(self, value: float) -> float:
        """Sum a value over all ranks."""
        return value

    def broadcast(self, value: Value) -> Value:
        """Return the first rank's value."""
        return value

    def stop_signal(self, name: str) -> str:
        """Return the name of a signal received by any rank, or an empty string."""
        return name

    def barrier(self) -> None:
        """Wait for all ranks."""

    def distribute(self, model: nn.Module, device: torch.device) -> RunWithWeights:
        """Give all ranks the first rank's weights."""
        return run_directly

    def reduced_gradients(self, model: nn.Module) -> list[Tensor]:
        """Sum the gradients over ranks and return those of the parameters that are here."""
        return gradients_of(model)

    def gradient_norm(self, gradients: list[Tensor]) -> float:
        """Return ‖g‖ of all gradients as one vector."""
        return gradient_norm(gradients)

    def evaluate(
        self, with_weights: RunWithWeights, evaluate: Evaluate, interrupts: Interrupts
    ) -> dict[str, float] | None:
        """Run an evaluation; None if a signal interrupted it."""

        def run() -> dict[str, float] | None:
            try:
                return evaluate(lambda: bool(self.stop_signal(interrupts.signal)))
            except Abandoned:  # caught inside, so that gathered weights are released as usual
                return None

        measures: dict[str, float] | None = with_weights(run)
        return measures

    def sample(self, with_weights: RunWithWeights, sample: Callable[[], str]) -> str:
        """Return a text that the model generates."""
        return str(with_weights(sample))

    def gather_state(self, state: State | None, rows: int) -> State | None:
        """Gather the state of all ``rows`` rows on the first rank."""
        return state

    def local_state(self, state: State, rows: int) -> State:
        """Select this rank's rows of a state of all ``rows`` rows."""
        return state

    def random_states(self) -> Tensors:
        """Gather the random number generators' states of the other ranks."""
        return {}

    def set_random_state(self, saved: Tensors, step: int) -> None:
        """On every rank but the first, restore the random state saved for it, or seed a new one."""

    def checkpoints(self, folder: Path, keep: int) -> Checkpoints:
        """Return a run's checkpoints, written once and read by all ranks."""
        return Checkpoints(folder, keep)

    def restore(self, model: nn.Module, optimiser: torch.optim.Optimizer, checkpoint: Checkpoint) -> None:
        """Load the model and the optimiser from a checkpoint."""
        load_trained_state(model, checkpoint.tensors["model"])
        restore_optimiser(optimiser, checkpoint.tensors["optimiser"])

    def full_copy(self, model: nn.Module) -> nn.Module:
        """Return a module that can hold all weights after training: the model itself, or a copy where it is sharded."""
        return model

    def copy_full_weights(self, model: nn.Module, full: nn.Module) -> None:
        """Copy all weights of the trained model into ``full``, on the first rank."""


SINGLE = Ranks()
