"""Recurrent cells, and the layer that runs one over time.

A cell is one step and holds the equation, in ``step``; a layer is the loop, ``ensue.kernels.recurrent.scan``.

    a_t = W x_t + b                      for all t at once
    h_t = step(a_t, h_{t-1})             one cell

Cells have one bias per gate, as the equations do; a fused kernel gets zeros as its second bias.

Legend: B rows, T time, D input width, N hidden width, G gates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from ensue.kernels.recurrent import CellState, scan
from ensue.nn.state import State, zeros_beside

Watch = Callable[[Tensor, CellState, CellState], CellState]
"""Called at every step with W x_t + b and the states before and after it; returns the state to continue with."""


@dataclass(frozen=True)
class RecurrentState(State):
    """The state of one recurrent layer."""

    memory: CellState


class Cell(nn.Module):
    """One step of a recurrent network: parameters, and ``step``.

    ``fused`` names torch's kernel for the same equation, where there is one, with gates in the same order.
    """

    gates: ClassVar[int] = 1
    fused: ClassVar[str] = ""
    bounded: ClassVar[bool] = True
    """Whether h stays finite for any input; otherwise padding must be skipped."""
    watch: Watch | None = None
    """Called at every step; see ``watched``."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.width, self.hidden, self.output = width, hidden, hidden
        bound = hidden**-0.5
        self.weight_x = nn.Parameter(torch.empty(self.gates * hidden, width).uniform_(-bound, bound))
        self.weight_h = nn.Parameter(torch.empty(self.gates * hidden, hidden).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(self.gates * hidden))

    def start(self, rows: int) -> CellState:
        """Return the state before the first token: zeros."""
        return (zeros_beside(self.bias, rows, self.hidden),)

    def step(self, a: Tensor, memory: CellState) -> CellState:
        """One step; ``a`` is W x_t + b of all gates (B, G·N)."""
        raise TypeError(f"{type(self).__name__} does not implement step")

    def gated(self, a: Tensor, memory: CellState) -> dict[str, Tensor]:
        """Return the gates of a step, each (B, N) in [0, 1], and the candidate; empty for a cell without gates."""
        return {}

    def weights(self) -> list[Tensor]:
        """Return the parameters as torch's fused kernels expect them; the second bias is zero."""
        return [self.weight_x, self.weight_h, self.bias, torch.zeros_like(self.bias)]

    def hold(self) -> Tensor:
        """Gate bias that freezes c at padding."""
        return torch.zeros_like(self.bias)


SHUT = 1e4
"""σ(1e4) = 1 and σ(−1e4) = 0, exactly."""


class TanhCell(Cell):
    """h_t = tanh(W_hh h_{t-1} + W_xh x_t + b) (Elman, 1990)."""

    fused = "rnn_tanh"

    def step(self, a: Tensor, memory: CellState) -> CellState:
        return (torch.tanh(torch.addmm(a, memory[0], self.weight_h.T)),)


class ReluCell(Cell):
    """h_t = max(0, W_hh h_{t-1} + W_xh x_t + b), W_hh initialised to the identity (Le, Jaitly and Hinton, 2015)."""

    fused = "rnn_relu"
    bounded = False

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__(width, hidden)
        nn.init.eye_(self.weight_h)

    def step(self, a: Tensor, memory: CellState) -> CellState:
        return (torch.relu(torch.addmm(a, memory[0], self.weight_h.T)),)


class SigmoidCell(Cell):
    """h_t = σ(W_h h_{t-1} + W_e e_t + b_1): the form in which lectures often write the RNN language model."""

    def step(self, a: Tensor, memory: CellState) -> CellState:
        return (torch.sigmoid(torch.addmm(a, memory[0], self.weight_h.T)),)


class GRUCell(Cell):
    """GRU with the reset gate after the matrix multiplication, as in torch and cuDNN.

    r_t = σ(W_r x_t + U_r h_{t-1} + b_r)                reset
    z_t = σ(W_z x_t + U_z h_{t-1} + b_z)                keep
    h̃_t = tanh(W x_t + b + r_t ∘ (U h_{t-1}))
    h_t = z_t ∘ h_{t-1} + (1 − z_t) ∘ h̃_t
    """

    gates = 3
    fused = "gru"

    def gated(self, a: Tensor, memory: CellState) -> dict[str, Tensor]:
        u = memory[0] @ self.weight_h.T
        a_r, a_z, a_n = a.chunk(3, dim=-1)
        u_r, u_z, u_n = u.chunk(3, dim=-1)
        r = torch.sigmoid(a_r + u_r)
        return {"reset": r, "update": torch.sigmoid(a_z + u_z), "candidate": torch.tanh(a_n + r * u_n)}

    def step(self, a: Tensor, memory: CellState) -> CellState:
        gates = self.gated(a, memory)
        z = gates["update"]
        return (z * memory[0] + (1 - z) * gates["candidate"],)


class ChoGRUCell(Cell):
    """GRU with the reset gate before the matrix multiplication (Cho et al., 2014).

    r_t = σ(W_r h_{t-1} + U_r x_t + b_r)                reset
    u_t = σ(W_u h_{t-1} + U_u x_t + b_u)                update
    h̃_t = tanh(W_h (r_t ∘ h_{t-1}) + U_h x_t + b_h)
    h_t = (1 − u_t) ∘ h_{t-1} + u_t ∘ h̃_t

    The update gate has the opposite sense of ``GRUCell``'s: u = 1 − z. No fused kernel computes this form.
    """

    gates = 3

    def gated(self, a: Tensor, memory: CellState) -> dict[str, Tensor]:
        (h,) = memory
        N = self.hidden
        r, u = torch.sigmoid(torch.addmm(a[:, : 2 * N], h, self.weight_h[: 2 * N].T)).chunk(2, dim=-1)
        candidate = torch.tanh(torch.addmm(a[:, 2 * N :], r * h, self.weight_h[2 * N :].T))
        return {"reset": r, "update": u, "candidate": candidate}

    def step(self, a: Tensor, memory: CellState) -> CellState:
        gates = self.gated(a, memory)
        u = gates["update"]
        return ((1 - u) * memory[0] + u * gates["candidate"],)


class LSTMCell(Cell):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997; with the forget gate of Gers et al., 2000).

    i_t, f_t, o_t = σ(W x_t + U h_{t-1} + b)            input, forget, output: three gates, three weights
    c̃_t = tanh(W_c x_t + U_c h_{t-1} + b_c)
    c_t = f_t ∘ c_{t-1} + i_t ∘ c̃_t                     so ∂c_t/∂c_{t-1} = diag(f_t)
    h_t = o_t ∘ tanh(c_t)

    The forget bias is initialised to 1 (Jozefowicz et al., 2015).
    """

    gates = 4
    fused = "lstm"

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__(width, hidden)
        with torch.no_grad():
            self.bias[hidden : 2 * hidden] = 1.0

    def start(self, rows: int) -> CellState:
        return (zeros_beside(self.bias, rows, self.output), zeros_beside(self.bias, rows, self.hidden))

    def gated(self, a: Tensor, memory: CellState) -> dict[str, Tensor]:
        i, f, candidate, o = torch.addmm(a, memory[0], self.weight_h.T).chunk(4, dim=-1)
        gates = {"input": torch.sigmoid(i), "forget": torch.sigmoid(f), "output": torch.sigmoid(o)}
        return {**gates, "candidate": torch.tanh(candidate)}

    def step(self, a: Tensor, memory: CellState) -> CellState:
        gates = self.gated(a, memory)
        c = gates["forget"] * memory[1] + gates["input"] * gates["candidate"]
        return (gates["output"] * torch.tanh(c), c)

    def hold(self) -> Tensor:
        gates = torch.zeros_like(self.bias)
        gates[: self.hidden], gates[self.hidden : 2 * self.hidden] = -SHUT, SHUT  # i = 0, f = 1
        return gates


class ProjectedLSTMCell(LSTMCell):
    """LSTM with a projected output (Sak et al., 2014): h_t = W_p (o_t ∘ tanh(c_t)), of size P instead of N."""

    def __init__(self, width: int, hidden: int, projection: int) -> None:
        super().__init__(width, hidden)
        bound = hidden**-0.5
        self.output = projection
        self.weight_h = nn.Parameter(torch.empty(self.gates * hidden, projection).uniform_(-bound, bound))
        self.weight_p = nn.Parameter(torch.empty(projection, hidden).uniform_(-bound, bound))

    def step(self, a: Tensor, memory: CellState) -> CellState:
        h, c = super().step(a, memory)
        return (h @ self.weight_p.T, c)

    def weights(self) -> list[Tensor]:
        return [*super().weights(), self.weight_p]


class Recurrent(nn.Module):
    """Runs a cell over time: (B, T, D) → (B, T, N), and returns the state at each row's last token.

    ``kernel`` is "auto" (fused where the cell has a fused form), "reference" or "fused".
    """

    def __init__(self, cell: Cell, kernel: str = "auto") -> None:
        super().__init__()
        self.cell = cell
        self.kernel = kernel if kernel != "auto" else ("fused" if cell.fused else "reference")
        self.output = cell.output

    def start(self, rows: int) -> RecurrentState:
        """Zeros."""
        return RecurrentState(self.cell.start(rows))

    def forward(
        self, x: Tensor, state: RecurrentState | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, RecurrentState]:
        """Run over x (B, T, D)."""
        state = state or self.start(len(x))
        if x.shape[1] == 0:
            return x.new_zeros(len(x), 0, self.output), state
        run = scan if self.kernel == "fused" else scan.reference
        y, memory = run(self.cell, x, state.memory, lengths)
        return y, RecurrentState(memory)


@contextmanager
def watched(layer: Recurrent, watch: Watch) -> Iterator[None]:
    """Call ``watch`` at every step of a layer inside the block, which then runs the reference loop.

    >>> layer, seen = Recurrent(TanhCell(2, 3)), []
    >>> with watched(layer, lambda a, before, after: seen.append(after) or after):
    ...     y, _ = layer(torch.ones(1, 4, 2))
    >>> len(seen), bool(torch.equal(seen[-1][0], y[:, -1]))
    (4, True)
    """
    layer.cell.watch = watch
    try:
        yield
    finally:
        layer.cell.watch = None
