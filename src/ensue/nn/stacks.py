"""Stacks of layers with plain, residual, dense or fast-forward connections, and bidirectional layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ensue.nn.dropout import Dropout
from ensue.nn.state import State


@dataclass(frozen=True)
class StackState(State):
    """The states of a stack's layers, from the first to the last."""

    layers: tuple[State, ...]


class Stacked(NamedTuple):
    """What a stack returns."""

    h: Tensor
    """(B, T, D), the last layer's output."""
    state: StackState
    weights: tuple[Tensor, ...] | None
    """The attention weights of every layer (B, H, T, S), if they were asked for."""


class Plain(nn.Module):
    """y: no connection."""

    def __init__(self, width: int, output: int) -> None:
        super().__init__()
        self.output = output

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Combine a layer's input x and its output y into the input of the next layer."""
        return y


class Residual(Plain):
    """x + y (He et al., 2016); y alone where sizes differ, as at the first layer."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y if x.shape[-1] == y.shape[-1] else y


class Dense(Plain):
    """[x; y]: every layer reads the outputs of all layers before it (Huang et al., 2017)."""

    def __init__(self, width: int, output: int) -> None:
        super().__init__(width, width + output)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.cat([x, y], dim=-1)


class FastForward(Plain):
    """W_f [x; y]: a linear path through all layers (Zhou et al., 2016)."""

    def __init__(self, width: int, output: int) -> None:
        super().__init__(width, output)
        self.straight = nn.Linear(width + output, output, bias=False)  # W_f

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        z: Tensor = self.straight(torch.cat([x, y], dim=-1))
        return z


CONNECTIONS: dict[str, type[Plain]] = {
    "plain": Plain,
    "residual": Residual,
    "dense": Dense,
    "fast-forward": FastForward,
}
"""Connections by name."""


class Stack(nn.Module):
    """Layers in sequence: the output of layer i is the input of layer i + 1.

    ``build(width)`` builds a layer for an input size. Dropout applies between layers, never inside a recurrence.
    """

    def __init__(
        self,
        build: Callable[[int], nn.Module],
        width: int,
        layers: int,
        connect: str = "plain",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.layers, self.connections = nn.ModuleList(), nn.ModuleList()
        for _ in range(layers):
            layer = build(width)
            joined = CONNECTIONS[connect](width, int(layer.output))  # type: ignore[arg-type]
            self.layers.append(layer)
            self.connections.append(joined)
            width = joined.output
        self.output = width
        self.dropout = Dropout(dropout)

    def start(self, rows: int) -> StackState:
        """Return the initial state of each layer."""
        return StackState(tuple(layer.start(rows) for layer in self.layers))  # type: ignore[operator]

    def forward(
        self,
        x: Tensor,
        state: StackState | None = None,
        lengths: Tensor | None = None,
        weights: bool = False,
    ) -> Stacked:
        """Run all layers over x (B, T, D). Only layers that attend have ``weights``."""
        states: Sequence[State | None] = state.layers if state else [None] * len(self.layers)
        new: list[State] = []
        seen: list[Tensor] = []
        for number, (layer, join, below) in enumerate(zip(self.layers, self.connections, states)):
            y, after, *own = layer(x if number == 0 else self.dropout(x), below, lengths, *([True] if weights else []))
            x = join(x, y)
            new.append(after)
            seen += own if weights else []
        return Stacked(x, StackState(tuple(new)), tuple(seen) if weights else None)


def reverse(x: Tensor, lengths: Tensor | None = None) -> Tensor:
    """Reverse each row (B, T, …); padding stays on the right."""
    if lengths is None:
        return x.flip(1)
    time = torch.arange(x.shape[1], device=x.device)
    index = torch.where(time < lengths[:, None], lengths[:, None] - 1 - time, time)
    return x.gather(1, index.view(*index.shape, *[1] * (x.dim() - 2)).expand_as(x))


@dataclass(frozen=True)
class BidirectionalState(State):
    """The final states of both directions: at the last token, and at the first."""

    forward: State
    backward: State


class Backward(nn.Module):
    """Runs a layer over reversed rows and reverses its output. It cannot run step by step."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.output = int(layer.output)  # type: ignore[arg-type]

    def start(self, rows: int) -> State:
        """Return the layer's initial state."""
        state: State = self.layer.start(rows)  # type: ignore[operator]
        return state

    def forward(self, x: Tensor, state: State | None = None, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        """Run over x (B, T, D) from each row's end."""
        y, after = self.layer(reverse(x, lengths), None, lengths)
        return reverse(y, lengths), after


class Bidirectional(nn.Module):
    """h_t = [→h_t; ←h_t]: a forward and a backward layer (Schuster, 1997).

    It needs the whole text, so it cannot run step by step and starts anew at each call.
    """

    def __init__(self, onward: nn.Module, backward: nn.Module) -> None:
        super().__init__()
        self.onward, self.backward = onward, Backward(backward)
        self.output = int(onward.output) + self.backward.output  # type: ignore[arg-type]

    def start(self, rows: int) -> BidirectionalState:
        """Return the initial states of both directions."""
        return BidirectionalState(self.onward.start(rows), self.backward.start(rows))  # type: ignore[operator]

    def forward(
        self, x: Tensor, state: State | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, BidirectionalState]:
        """Run both directions over x (B, T, D)."""
        right, ahead = self.onward(x, None, lengths)
        left, behind = self.backward(x, None, lengths)
        return torch.cat([right, left], dim=-1), BidirectionalState(ahead, behind)
