"""Forecasting with recurrent cells and with the causal Transformer: their language models, reading numbers.

    h_t = cell(h_{t-1}, x_t)                layers in sequence; see ensue.nn.recurrent for each cell's equation
    ŷ_{t+1…t+H} = V h_t + b                 head = dense
    ŷ_{t+1…t+H} = cell(ŷ_t, h_t)            head = cell: the state of a last recurrent layer of that size

The Transformer has h_0 = W x_t + b instead of an embedding, then GPT's blocks of causal self-attention.

Input matrices of cells are initialised as by Glorot and Bengio (2010), W_h to orthogonal matrices (Saxe et al., 2014).

Legend: B rows, T steps, C input columns, N hidden width, D width of a Transformer, H steps ahead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from ensue.core.errors import InputError
from ensue.core.settings import check
from ensue.models.forecast import WAVES, ForecastConfig, Forecaster
from ensue.models.model import last_position
from ensue.nn.dropout import Dropout
from ensue.nn.layout import Layout
from ensue.nn.positions import POSITIONS
from ensue.nn.recurrent import ChoGRUCell, GRUCell, LSTMCell, Recurrent, ReluCell
from ensue.nn.stack_config import PlainRecurrentNetwork, RecurrentNetwork, RNNStackConfig, StackConfig
from ensue.nn.stacks import Stack, StackState
from ensue.nn.state import State
from ensue.nn.trunk import TrunkState
from ensue.nn.trunk_config import TrunkConfig, build_trunk, initialise, last_norm


@dataclass(frozen=True, kw_only=True, slots=True)
class RecurrentForecastConfig(ForecastConfig, StackConfig):
    """Configuration shared by all recurrent forecasters."""

    layers: int = 1
    """Number of recurrent layers; with head = cell the head is one more, and 0 is allowed."""
    hidden: int = 64
    head: str = "dense"
    """Output layer: dense, or cell (one more recurrent layer, whose state is the forecast)."""

    def __post_init__(self) -> None:
        super(RecurrentForecastConfig, self).__post_init__()
        self.check_stack()
        check(self, "head", self.head in ("dense", "cell"), "dense or cell")
        check(self, "layers", self.layers >= (1 if self.head == "dense" else 0), "at least 1, or 0 with head = cell")


@dataclass(frozen=True, kw_only=True, slots=True)
class RNNForecastConfig(RecurrentForecastConfig, RNNStackConfig):
    """Configuration of the plain recurrent forecaster."""


class RecurrentForecaster(RecurrentNetwork, Forecaster):
    """ŷ = V h_t + b, h_t of a stack of recurrent layers; or the state of a last cell itself."""

    Config = RecurrentForecastConfig
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {"train.lr": 3e-3},
        "waves": {**WAVES, "mode": "sequence", "layers": 2, "hidden": 48},
    }

    def __init__(self, config: RecurrentForecastConfig) -> None:
        super().__init__()
        self.config = config
        self.check_kernel(hidden=1)
        dense = config.head == "dense"
        sizes = [config.hidden] * config.layers + ([] if dense else [config.output_size])
        remaining = iter(sizes)
        self.stack = Stack(
            lambda width: self.recurrent(width, next(remaining)),
            config.inputs,
            len(sizes),
            config.connect if dense else "plain",
            config.dropout,
        )
        self.out = nn.Linear(self.stack.output, config.output_size) if dense else nn.Identity()  # V, b
        self._initialise()

    def _initialise(self) -> None:
        """Glorot's uniform for input matrices and the head, orthogonal recurrent matrices, gate by gate."""
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
        """Return zeros for every layer."""
        return self.stack.start(rows)

    def forward(
        self, x: Tensor, state: State | None = None, lengths: Tensor | None = None, last: bool = False
    ) -> tuple[Tensor, State]:
        hidden, after, _ = self.stack(x, state, lengths)
        return self.to_forecasts(self.out(last_position(hidden, lengths) if last else hidden)), after


class RNNForecaster(PlainRecurrentNetwork, RecurrentForecaster):
    """The plain recurrent network."""

    Config = RNNForecastConfig
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {"train.lr": 1e-3},
        "waves": {**WAVES, "layers": 2, "hidden": 20},  # SimpleRNN 20-20-Dense
        "one-unit": {**WAVES, "layers": 0, "head": "cell", "train.lr": 1e-2},  # SimpleRNN(1)
        "deep": {**WAVES, "layers": 2, "hidden": 20, "head": "cell"},  # SimpleRNN 20-20-1
    }


class GRUForecaster(RecurrentForecaster):
    """GRU with the reset gate after the matrix multiplication (torch's form)."""

    cell_type = GRUCell


class ChoGRUForecaster(RecurrentForecaster):
    """GRU with the reset gate before the matrix multiplication (Cho et al., 2014)."""

    cell_type = ChoGRUCell


class LSTMForecaster(RecurrentForecaster):
    """Long short-term memory."""

    cell_type = LSTMCell


@dataclass(frozen=True, kw_only=True, slots=True)
class GPTForecastConfig(ForecastConfig, TrunkConfig):
    """Configuration of the Transformer that forecasts."""

    layers: int = 2
    hidden: int = 64
    positions: str = "rotary"
    """Position encoding: rotary, learned, sinusoidal, alibi or none."""

    def __post_init__(self) -> None:
        super(GPTForecastConfig, self).__post_init__()
        self.check_trunk()

    @property
    def context(self) -> int:
        """The longest row of training: the window, and the steps after it."""
        return self.window + self.horizon


class GPTForecaster(Forecaster):
    """ŷ = V h_L + b, h_l = Block(h_{l-1}), h_0 = W x_t + b."""

    Config = GPTForecastConfig
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {"train.lr": 1e-3},
        "waves": {**WAVES, "mode": "sequence", "train.lr": 2e-3},
    }

    def __init__(self, config: GPTForecastConfig) -> None:
        super().__init__()
        self.config = config
        D, p = config.hidden, config.dropout
        self.context = config.context
        self.read = nn.Linear(config.inputs, D)  # W, b instead of an embedding
        self.positions = POSITIONS[config.positions](self.context, D)
        self.blocks = build_trunk(
            config, causal=True, positions=config.positions, context=self.context, attention_dropout=p
        )
        self.norm = last_norm(config)
        self.out = nn.Linear(D, config.output_size)  # V, b
        self.dropout = Dropout(p)
        initialise(self.blocks, config.layers)

    def start(self, rows: int) -> TrunkState:
        """Return the state before the first step."""
        return self.blocks.start(rows)

    def forward(
        self, x: Tensor, state: State | None = None, lengths: Tensor | None = None, last: bool = False
    ) -> tuple[Tensor, State]:
        before = state or self.start(len(x))
        assert isinstance(before, TrunkState)
        clock, T = before.clock, x.shape[1]
        size = clock.used + T
        if self.config.positions == "learned" and size > self.context:
            what = f"{size} steps are more than the {self.context} that learned positions reach"
            raise InputError(what, hint="train with positions=rotary, or with a longer horizon")
        h = self.dropout(self.positions(self.read(x), clock.positions(T), size))
        h, after, _, _ = self.blocks(h, before, Layout(lengths))
        h = self.norm(last_position(h, lengths) if last else h)
        return self.to_forecasts(self.out(h)), after
