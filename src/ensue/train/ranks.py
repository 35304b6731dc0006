"""What training asks of the processes that train together; ``Ranks`` is one process alone, for which it is nothing.

    rank r of n holds rows ⌊rB/n⌋ … ⌊(r+1)B/n⌋ − 1 of a batch of B
    loss = Σ_r loss_r,   ∇ = Σ_r ∇loss_r          each loss_r the rank's share of the whole mean
    (ensue.train.loss_reduction)

A batch is a pure function of its number, so every rank knows the whole batch and takes its rows: nothing is sent about,
and each token is seen once. What is decided (to stop, which weights are best) is decided by the first rank, or by all
of them together. ``ensue.train.data_parallel`` is one of several processes, each with all weights;
``ensue.train.sharding``
one of several with a part of them; ``ensue.train.process_group`` is how they find each other.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ensue.core.events import Abandoned
from ensue.nn.state import State
from ensue.train.checkpoints import Checkpoint, Checkpoints, Tensors
from ensue.train.interrupts import Interrupts
from ensue.train.loss_reduction import ALONE, Pool
from ensue.train.optimisers import gradients_of, norm_of, restore_optimiser

Value = TypeVar("Value")
Ask = Callable[[Callable[[], Any]], Any]
"""Answers a question about a model, once all its weights that are needed are here."""
Measure = Callable[..., dict[str, float]]
"""An evaluation. It is given a question to ask now and then, and raises ``Abandoned`` where the answer is that somebody
wants to stop; and, where there are several, the ranks, among which it may divide what it reads."""


def plainly(question: Callable[[], Any]) -> Any:
    """Ask where all weights are here anyway."""
    return question()


class Ranks:
    """One process that trains alone."""

    rank = 0
    count = 1

    @property
    def first(self) -> bool:
        """Whether this is the rank that writes and speaks."""
        return self.rank == 0

    def device(self, name: str) -> torch.device:
        """The device of this rank."""
        return torch.device(name)

    def rows(self, count: int) -> slice:
        """Which of so many rows are this rank's; one that has none reads the first, for nothing."""
        return slice(0, count)

    def part(self, batch: Any) -> tuple[Any, Pool]:
        """This rank's rows of a batch, and what says how much they count."""
        return batch, ALONE

    def total(self, value: float) -> float:
        """The sum over all ranks."""
        return value

    def agree(self, value: Value) -> Value:
        """What the first rank has."""
        return value

    def asked(self, wish: str) -> str:
        """The signal by which somebody asked any rank to stop."""
        return wish

    def wait(self) -> None:
        """Go on only when all ranks are here."""

    def spread(self, model: nn.Module, device: torch.device) -> Ask:
        """Give all ranks the weights of the first."""
        return plainly

    def gradients(self, model: nn.Module) -> list[Tensor]:
        """The gradients of all ranks together, of what is here."""
        return gradients_of(model)

    def norm(self, gradients: list[Tensor]) -> float:
        """‖g‖ of all gradients as one vector."""
        return norm_of(gradients)

    def measured(self, ask: Ask, evaluate: Measure, wish: Interrupts) -> dict[str, float] | None:
        """What an evaluation found; None where it was given up because somebody asked to stop."""

        def question() -> dict[str, float] | None:
            try:
                return evaluate(lambda: bool(self.asked(wish.asked)))
            except Abandoned:  # weights that were gathered for the question are given back when it is answered
                return None

        found: dict[str, float] | None = ask(question)
        return found

    def written(self, ask: Ask, sample: Callable[[], str]) -> str:
        """What the model writes as it learns."""
        return str(ask(sample))

    def gathered(self, state: State | None, rows: int) -> State | None:
        """The state of all ``rows`` rows, on the first rank."""
        return state

    def own(self, state: State, rows: int) -> State:
        """Of a state of all rows that of this rank's."""
        return state

    def chances(self) -> Tensors:
        """Where the random numbers of the other ranks stand."""
        return {}

    def set_chance(self, held: Tensors, step: int) -> None:
        """Random numbers of its own for each rank but the first: those it had, or new ones."""

    def checkpoints(self, folder: Path, keep: int) -> Checkpoints:
        """The checkpoints of a run, written once and read by all."""
        return Checkpoints(folder, keep)

    def take_up(self, model: nn.Module, optimiser: torch.optim.Optimizer, found: Checkpoint) -> None:
        """Give the model and the optimiser what a checkpoint holds."""
        model.load_state_dict(found.tensors["model"])
        restore_optimiser(optimiser, found.tensors["optimiser"])

    def kept_whole(self, model: nn.Module) -> nn.Module:
        """A model to take up all weights when training has ended: the one that is trained, or a copy."""
        return model

    def give_whole(self, model: nn.Module, whole: nn.Module) -> None:
        """Give what was kept, on the first rank, all weights of the model that was trained."""


SINGLE = Ranks()
