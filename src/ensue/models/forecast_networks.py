"""Forecasting with recurrent cells and with the causal Transformer: as their language models, but numbers come in.

    h_t = cell(h_{t-1}, x_t)                layer on layer; see ensue.nn.recurrent for each cell's equation
    ŷ_{t+1…t+H} = V h_t + b                 head = dense
    ŷ_{t+1…t+H} = cell(ŷ_t, h_t)            head = cell: a last recurrent layer as wide as the forecast is the forecast

and of the Transformer, h_0 = W x_t + b in place of an embedding, then blocks of masked self-attention as GPT has them.
The first layer's matrices begin as Glorot and Bengio (2010) have them, W_h as an orthogonal one (Saxe et al., 2014).

Legend: B rows, T steps, C columns that are read, N hidden width, D width of a Transformer, H steps ahead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from ensue.core.errors import InputError
from ensue.core.settings import check, check_below_one, check_positive
from ensue.models.forecast import CYCLE, LECTURE, ForecastConfig, Forecaster, last_place
from ensue.nn.dropout import Dropout
from ensue.nn.layout import Layout
from ensue.nn.positions import POSITIONS
from ensue.nn.recurrent import Cell, ChoGRUCell, GRUCell, LSTMCell, Recurrent, ReluCell, SigmoidCell, TanhCell
from ensue.nn.stacks import CONNECTIONS, Stack, StackState
from ensue.nn.state import State
from ensue.nn.trunk import TrunkState
from ensue.nn.trunk_config import TrunkConfig, build_trunk, last_norm


@dataclass(frozen=True, kw_only=True, slots=True)
class RecurrentForecastConfig(ForecastConfig):
    """Settings that all recurrent forecasters share."""

    layers: int = 1
    """How many recurrent layers stand on each other; 0 where the head is a cell and there is nothing below it."""
    hidden: int = 64
    """The width of each layer's state."""
    head: str = "dense"
    """What says the forecast: dense (a layer on the last state), or cell (one more recurrent layer, as wide as it)."""
    dropout: float = 0.0
    """The share of units that training switches off at random, between layers."""
    connect: str = "plain"
    """How layers join: plain, residual (the input is added) or dense (the input is kept beside the output)."""
    kernel: str = "auto"
    """Which loop runs the cell: auto, fused (torch's own) or reference (the equation, step by step)."""

    def __post_init__(self) -> None:
        super(RecurrentForecastConfig, self).__post_init__()
        check(self, "head", self.head in ("dense", "cell"), "dense or cell")
        check(self, "layers", self.layers >= (1 if self.head == "dense" else 0), "at least 1, or 0 with head = cell")
        check_positive(self, "hidden")
        check_below_one(self, "dropout")
        check(self, "connect", self.connect in CONNECTIONS, f"one of {', '.join(CONNECTIONS)}")
        check(self, "kernel", self.kernel in ("auto", "fused", "reference"), "auto, fused or reference")


@dataclass(frozen=True, kw_only=True, slots=True)
class RNNForecastConfig(RecurrentForecastConfig):
    """Settings of the plain recurrent forecaster."""

    activation: str = "tanh"
    """f: tanh, relu or sigmoid."""

    def __post_init__(self) -> None:
        super(RNNForecastConfig, self).__post_init__()
        check(self, "activation", self.activation in CELLS, f"one of {', '.join(CELLS)}")


CELLS: dict[str, type[Cell]] = {"tanh": TanhCell, "relu": ReluCell, "sigmoid": SigmoidCell}


class RecurrentForecaster(Forecaster):
    """ŷ = V h_t + b, h_t of a stack of recurrent layers; or the state of a last, narrow cell itself."""

    Config = RecurrentForecastConfig
    cell_type: ClassVar[type[Cell]]
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {"train.lr": 3e-3},
        "waves": {**LECTURE, **CYCLE, "mode": "sequence", "layers": 2, "hidden": 48},
    }

    def __init__(self, config: RecurrentForecastConfig) -> None:
        super().__init__()
        self.config = config
        if config.kernel == "fused" and not self.cell(1, 1).fused:
            check(config, "kernel", False, f"auto or reference: {type(self.cell(1, 1)).__name__} has no fused form")
        sizes = [config.hidden] * config.layers + ([config.numbers] if config.head == "cell" else [])
        widths = iter(sizes)
        self.stack = Stack(
            lambda width: Recurrent(self.cell(width, next(widths)), config.kernel),
            config.inputs,
            len(sizes),
            config.connect if config.head == "dense" else "plain",
            config.dropout,
        )
        self.out = nn.Linear(self.stack.output, config.numbers) if config.head == "dense" else nn.Identity()  # V, b
        self._initialise()

    def cell(self, width: int, hidden: int) -> Cell:
        """A new cell for inputs of this width."""
        return self.cell_type(width, hidden)

    def _initialise(self) -> None:
        """Glorot's bound for what comes in, an orthogonal matrix for what is carried on, gate by gate."""
        for layer in self.stack.layers:
            assert isinstance(layer, Recurrent)
            for gate in range(layer.cell.gates):
                own = slice(gate * layer.cell.hidden, (gate + 1) * layer.cell.hidden)
                nn.init.xavier_uniform_(layer.cell.weight_x.data[own])
                if not isinstance(layer.cell, ReluCell):
                    nn.init.orthogonal_(layer.cell.weight_h.data[own])
        if isinstance(self.out, nn.Linear):
            nn.init.xavier_uniform_(self.out.weight)
            nn.init.zeros_(self.out.bias)

    def start(self, rows: int) -> StackState:
        """Zeros in every layer."""
        return self.stack.start(rows)

    def forward(
        self, x: Tensor, state: State | None = None, lengths: Tensor | None = None, last: bool = False
    ) -> tuple[Tensor, State]:
        hidden, after = self.stack(x, state, lengths)
        return self.shaped(self.out(last_place(hidden, lengths) if last else hidden)), after


class RNNForecaster(RecurrentForecaster):
    """The plain recurrent network."""

    Config = RNNForecastConfig
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {"train.lr": 1e-3},
        "waves": {**LECTURE, **CYCLE, "layers": 2, "hidden": 20},  # SimpleRNN 20-20-Dense
        "one-unit": {**LECTURE, **CYCLE, "layers": 0, "head": "cell", "train.lr": 1e-2},  # SimpleRNN(1)
        "deep": {**LECTURE, **CYCLE, "layers": 2, "hidden": 20, "head": "cell"},  # SimpleRNN 20-20-1
    }

    def cell(self, width: int, hidden: int) -> Cell:
        return CELLS[self.config.activation](width, hidden)


class GRUForecaster(RecurrentForecaster):
    """The gated recurrent unit that resets after the product (torch's form)."""

    cell_type = GRUCell


class ChoGRUForecaster(RecurrentForecaster):
    """The gated recurrent unit that resets before the product (Cho et al., 2014)."""

    cell_type = ChoGRUCell


class LSTMForecaster(RecurrentForecaster):
    """Long short-term memory."""

    cell_type = LSTMCell


@dataclass(frozen=True, kw_only=True, slots=True)
class GPTForecastConfig(ForecastConfig, TrunkConfig):
    """Settings of the Transformer that forecasts."""

    layers: int = 2
    """Number of blocks."""
    hidden: int = 64
    """Width D of the model."""
    positions: str = "rotary"
    """Position encoding: rotary, learned, sinusoidal, alibi or none."""

    def __post_init__(self) -> None:
        super(GPTForecastConfig, self).__post_init__()
        self.check_trunk(rotary=self.positions == "rotary")
        check(self, "positions", self.positions in POSITIONS, f"one of {', '.join(POSITIONS)}")


class GPTForecaster(Forecaster):
    """ŷ = V h_L + b, h_l = Block(h_{l-1}), h_0 = W x_t + b."""

    Config = GPTForecastConfig
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {"train.lr": 1e-3},
        "waves": {**LECTURE, **CYCLE, "mode": "sequence", "train.lr": 2e-3},
    }

    def __init__(self, config: GPTForecastConfig) -> None:
        super().__init__()
        self.config = config
        D, p = config.hidden, config.dropout
        self.longest = config.window + config.horizon
        self.read = nn.Linear(config.inputs, D)  # W, b in place of an embedding
        self.positions = POSITIONS[config.positions](self.longest, D)
        self.blocks = build_trunk(
            config, causal=True, positions=config.positions, context=self.longest, attention_dropout=p
        )
        self.norm = last_norm(config)
        self.out = nn.Linear(D, config.numbers)  # V, b
        self.dropout = Dropout(p)
        self._initialise()

    def _initialise(self) -> None:
        """N(0, 0.02) inside the blocks, and 1/√(2L) of that where a block joins the residual path (GPT-2)."""
        for name, weight in self.blocks.named_parameters():
            if weight.dim() == 2:
                joins = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(weight, std=0.02 / (2 * self.config.layers) ** 0.5 if joins else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(weight)

    def start(self, rows: int) -> TrunkState:
        """No steps yet."""
        return self.blocks.start(rows)

    def forward(
        self, x: Tensor, state: State | None = None, lengths: Tensor | None = None, last: bool = False
    ) -> tuple[Tensor, State]:
        before = state or self.start(len(x))
        assert isinstance(before, TrunkState)
        clock, T = before.clock, x.shape[1]
        size = clock.used + T
        if self.config.positions == "learned" and size > self.longest:
            what = f"{size} steps are more than the {self.longest} that learned positions reach"
            raise InputError(what, hint="train with positions=rotary, or with a longer horizon")
        h = self.dropout(self.positions(self.read(x), clock.positions(T), size))
        h, after, _, _ = self.blocks(h, before, Layout(lengths))
        h = self.norm(last_place(h, lengths) if last else h)
        return self.shaped(self.out(h)), after
