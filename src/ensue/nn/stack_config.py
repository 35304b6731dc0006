"""Settings that recurrent language models and forecasters share, and the layers that they describe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ensue.core.settings import check, check_below_one, check_positive
from ensue.nn.recurrent import Cell, Recurrent, ReluCell, SigmoidCell, TanhCell
from ensue.nn.stacks import CONNECTIONS

RNN_CELLS: dict[str, type[Cell]] = {"tanh": TanhCell, "relu": ReluCell, "sigmoid": SigmoidCell}
"""Cells of the plain recurrent network by activation function."""


@dataclass(frozen=True, kw_only=True)
class StackConfig:
    """Settings of a stack of recurrent layers. Without ``__slots__``, so that others can be inherited beside it."""

    layers: int = 1
    """Number of recurrent layers."""
    hidden: int = 256
    """Hidden size of each layer."""
    dropout: float = 0.0
    """Dropout probability between layers; never inside the recurrence."""
    connect: str = "plain"
    """Connection between layers: plain, residual (adds the input), dense (concatenates it) or fast-forward."""
    kernel: str = "auto"
    """Kernel: auto, fused (torch's) or reference (a loop over the equation)."""

    def check_stack(self) -> None:
        """Check these settings, except ``layers``."""
        check_positive(self, "hidden")
        check_below_one(self, "dropout")
        check(self, "connect", self.connect in CONNECTIONS, f"one of {', '.join(CONNECTIONS)}")
        check(self, "kernel", self.kernel in ("auto", "fused", "reference"), "auto, fused or reference")


@dataclass(frozen=True, kw_only=True)
class RNNStackConfig(StackConfig):
    """Settings of a stack of plain recurrent layers."""

    activation: str = "tanh"
    """Activation function: tanh, relu or sigmoid."""

    def check_stack(self) -> None:
        super().check_stack()
        check(self, "activation", self.activation in RNN_CELLS, "tanh, relu or sigmoid")


class RecurrentNetwork:
    """Base class of models whose layers run one kind of cell, beside the base class of their task."""

    cell_type: ClassVar[type[Cell]]
    config: Any

    def cell(self, width: int, hidden: int = 0) -> Cell:
        """Build a cell for inputs of this size; ``hidden`` is the config's unless given."""
        return self.cell_type(width, hidden or self.config.hidden)

    def recurrent(self, width: int, hidden: int = 0) -> Recurrent:
        """Build a layer that runs such a cell with the config's kernel."""
        return Recurrent(self.cell(width, hidden), self.config.kernel)

    def check_kernel(self, hidden: int = 0) -> None:
        """Check that there is a fused kernel of the cell if the config asks for one."""
        if self.config.kernel == "fused" and not (cell := self.cell(1, hidden)).fused:
            check(self.config, "kernel", False, f"auto or reference: {type(cell).__name__} has no fused form")


class PlainRecurrentNetwork(RecurrentNetwork):
    """A network whose cell is chosen by the config's activation function."""

    cell_type = TanhCell

    def cell(self, width: int, hidden: int = 0) -> Cell:
        return RNN_CELLS[self.config.activation](width, hidden or self.config.hidden)
