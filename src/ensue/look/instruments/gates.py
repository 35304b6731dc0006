"""Gates and states of a recurrent layer over a text, token by token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ensue.core.errors import InputError
from ensue.kernels.recurrent import CellState
from ensue.look.instruments.gradient_flow import RecurrentStateProbe, find_probe
from ensue.nn.recurrent import watched

LEGEND = {
    "forget": "1 keeps the cell, 0 erases it",
    "input": "1 writes the candidate into the cell",
    "output": "1 shows the cell",
    "reset": "0 computes the candidate without the past",
    "h": "hidden state",
    "c": "cell",
}
"""What each gate and state means."""
UPDATE_LEGEND = {
    "GRUCell": "1 keeps the old state, 0 takes the candidate",
    "ChoGRUCell": "1 takes the candidate, 0 keeps the old state",
}
"""The update gate has opposite meanings in the two variants of the GRU."""


@dataclass(frozen=True)
class Gates:
    """The values of a layer over a text of T tokens, each (T, N)."""

    gates: dict[str, np.ndarray]
    states: dict[str, np.ndarray]
    of: str
    """The name of the layer, for titles."""
    legend: dict[str, str]

    @property
    def parts(self) -> dict[str, np.ndarray]:
        """Gates and states."""
        return {**self.gates, **self.states}


@torch.no_grad()
def gates_over(model: Any, read: Tensor, layer: int = 0) -> Gates:
    """The gates and states of a recurrent layer (from 1; default: the last) at each of the tokens ``read`` (T,)."""
    probe = find_probe(model, layer)
    if not isinstance(probe, RecurrentStateProbe):
        raise InputError("a model without recurrent layers has no gates", hint="name an rnn, gru or lstm")
    cell, gates, states = probe.layer.cell, [], []

    def keep(a: Tensor, before: CellState, after: CellState) -> CellState:
        gates.append({name: value[0].numpy() for name, value in cell.gated(a, before).items() if name != "candidate"})
        states.append({name: value[0].numpy() for name, value in zip("hc", after)})
        return after

    model.eval()
    with watched(probe.layer, keep):
        model(read[None], want=("hidden",))
    legend = {**LEGEND, "update": UPDATE_LEGEND.get(type(cell).__name__, "")}
    stacked = [{name: np.stack([step[name] for step in steps]) for name in steps[0]} for steps in (gates, states)]
    return Gates(stacked[0], stacked[1], probe.of.removesuffix(" after token k"), legend)


def most_active(parts: dict[str, np.ndarray], count: int) -> list[int]:
    """The ``count`` units whose hidden state varies most over the text, in ascending order."""
    deviation = parts["h"].std(axis=0)
    return sorted(np.argsort(-deviation, kind="stable")[:count].tolist())
