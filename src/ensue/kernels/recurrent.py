"""A recurrent cell over time.

    a_t = W x_t + b                      for all t at once
    h_t = step(a_t, h_{t-1})             one cell

The reference is the loop that defines every recurrent layer. The fused implementation is torch's own layer for the
same equation, where the cell names one; a GRU trains faster by a loop of ours (ensue.kernels.gru).

Legend: B rows, T time, D input width, N hidden width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ensue.kernels.gru import able, gru
from ensue.kernels.kernel import Fast, Kernel
from ensue.kernels.lstmp import lstmp

CellState = tuple[Tensor, ...]
"""A cell's state, with the output h first: (h,) or (h, c), each (B, N)."""


def _reference(cell: Any, x: Tensor, memory: CellState, lengths: Tensor | None = None) -> tuple[Tensor, CellState]:
    outputs = []
    for t, a in enumerate(F.linear(x, cell.weight_x, cell.bias).unbind(1)):
        new = cell.step(a, memory)
        if lengths is not None:  # a row that has ended keeps its state
            new = tuple(torch.where((t < lengths)[:, None], n, m) for n, m in zip(new, memory))
        memory = new if cell.watch is None else cell.watch(a, memory, new)
        outputs.append(memory[0])
    return torch.stack(outputs, 1), memory


def _projected(cell: Any, x: Tensor, memory: CellState, lengths: Tensor | None) -> tuple[Tensor, CellState]:
    """The LSTM with a projection on the CPU, which oneDNN does not have."""
    h, c = memory
    y, cells = lstmp(x, cell.weight_x, cell.weight_h, cell.bias, cell.weight_p, h, c)
    if lengths is None:
        return y, (y[:, -1], cells[:, -1])
    last = (torch.arange(len(x), device=x.device), (lengths - 1).clamp(min=0))
    begun = (lengths > 0)[:, None]
    return y, (torch.where(begun, y[last], h), torch.where(begun, cells[last], c))


def _fused(cell: Any, x: Tensor, memory: CellState, lengths: Tensor | None = None) -> tuple[Tensor, CellState]:
    """torch's layer for the cell's equation: oneDNN on the CPU, cuDNN on a GPU.

    Padded rows run to the end of the longest row. The final h is read at each row's last token; c is frozen at padding
    by an extra input that closes the gates, c_t = 1 ∘ c_{t-1} + 0 ∘ c̃_t. This takes a third of the time of packed
    sequences.
    """
    weights = cell.weights()
    if len(weights) > 4 and x.device.type == "cpu":
        return _projected(cell, x, memory, lengths)
    kernel: Callable[..., Any] = getattr(torch, cell.fused)
    first = tuple(part[None].contiguous() for part in memory)
    if lengths is not None and len(memory) > 1:
        padded = torch.arange(x.shape[1], device=x.device) >= lengths[:, None]
        x = torch.cat([x, padded[..., None].to(x.dtype)], dim=-1)
        weights[0] = torch.cat([weights[0], cell.hold()[:, None]], dim=-1)
    start = first if len(first) > 1 else first[0]
    y, *last = kernel(x, start, weights, True, 1, 0.0, cell.training, False, True)
    if lengths is None:
        return y, tuple(part[0] for part in last)
    h = y.gather(1, (lengths - 1).clamp(min=0)[:, None, None].expand(-1, 1, y.shape[-1]))[:, 0]
    return y, (torch.where((lengths > 0)[:, None], h, memory[0]), *(part[0] for part in last[1:]))


def _can_fuse(cell: Any, x: Tensor, memory: CellState, lengths: Tensor | None = None) -> bool:
    return bool(cell.fused) and cell.watch is None and (lengths is None or cell.bounded)


def _gru(cell: Any, x: Tensor, memory: CellState, lengths: Tensor | None = None) -> tuple[Tensor, CellState]:
    """A GRU by a compiled loop over time."""
    y = gru(x, cell.weight_x, cell.weight_h, cell.bias, memory[0])
    return y, (y[:, -1],)


def _can_run_gru(cell: Any, x: Tensor, memory: CellState, lengths: Tensor | None = None) -> bool:
    plain_gru = cell.fused == "gru" and cell.watch is None and lengths is None
    return plain_gru and able(x, cell.weight_x, cell.weight_h, cell.bias, memory[0])


scan = Kernel("recurrent", _reference, Fast("gru", _gru, _can_run_gru), Fast("fused", _fused, _can_fuse))
"""Outputs (B, T, N) and the state at each row's last token: (cell, x (B, T, D), state, lengths=None).

``cell`` is an ``ensue.nn.recurrent.Cell``.
"""
