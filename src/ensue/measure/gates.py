"""Gates and states of a recurrent layer over a text: what it lets in, keeps and shows, token by token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ensue.core.errors import InputError
from ensue.measure.gradients import Carried, find_part
from ensue.nn.recurrent import Memory, watched

SENSES = {
    "forget": "1 keeps the cell, 0 erases it",
    "input": "1 writes the candidate into the cell",
    "output": "1 shows the cell",
    "reset": "0 makes the candidate without the past",
    "h": "the visible state",
    "c": "the cell",
}
"""What a gate or a state says."""
UPDATES = {
    "GRUCell": "1 keeps the old state, 0 takes the candidate",
    "ChoGRUCell": "1 takes the candidate, 0 keeps the old state",
}
"""The update gate means opposite things in the two forms of the gated recurrent unit."""


@dataclass(frozen=True)
class Gates:
    """The values of a layer over a text of T tokens, each (T, N)."""

    gates: dict[str, np.ndarray]
    states: dict[str, np.ndarray]
    of: str
    senses: dict[str, str]

    @property
    def parts(self) -> dict[str, np.ndarray]:
        """Gates and states together."""
        return {**self.gates, **self.states}


@torch.no_grad()
def gates_over(model: Any, read: Tensor, layer: int = 0) -> Gates:
    """The gates and states of a recurrent layer (from 1; without it the last) at each of the tokens ``read`` (T,)."""
    part = find_part(model, layer)
    if not isinstance(part, Carried):
        raise InputError("a model without recurrent layers has no gates", hint="name an rnn, gru or lstm")
    cell, gates, states = part.layer.cell, [], []

    def keep(a: Tensor, before: Memory, after: Memory) -> Memory:
        gates.append({name: value[0].numpy() for name, value in cell.gated(a, before).items() if name != "candidate"})
        states.append({name: value[0].numpy() for name, value in zip("hc", after)})
        return after

    model.eval()
    with watched(part.layer, keep):
        model(read[None], want=("hidden",))
    senses = {**SENSES, "update": UPDATES.get(type(cell).__name__, "")}
    held = [{name: np.stack([step[name] for step in seen]) for name in seen[0]} for seen in (gates, states)]
    return Gates(held[0], held[1], part.of.removesuffix(" after token k"), senses)


def liveliest(parts: dict[str, np.ndarray], count: int) -> list[int]:
    """The units whose visible state changes most over the text, at most so many, in their order."""
    moved = parts["h"].std(axis=0)
    return sorted(np.argsort(-moved, kind="stable")[:count].tolist())
