"""Forecasting: the base class of forecasters, and the simplest of them.

    last       ŷ_{t+k} = x_t
    seasonal   ŷ_{t+k} = x_{t+k−m⌈k/m⌉}                    the last season of m steps, repeated
    linear     ŷ_{t+1…t+H} = b + Σ_{j=0}^{W−1} A_j x_{t−j}   one layer on the flattened window

A forecaster reads steps as a language model reads tokens: ``y, state = model(x, state)`` with x of any number of steps.
It forecasts from every step, or from the last one only, in one of three modes:

    vector     the whole horizon, trained at the end of a window (sequence to vector)
    sequence   the whole horizon, trained at every step of a window (sequence to sequence)
    step       one step ahead, of every column, trained at every step; later steps read the forecasts before them

Quantiles τ_1 < … < τ_Q never cross: the median is free, and the others are sums of positive steps away from it,
q_{i+1} = q_i + softplus(a_{i+1}).

Legend: B rows, T steps, C input columns, Y forecast columns, H steps ahead, Q quantiles, W window.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ensue.core.settings import check
from ensue.models.model import last_position
from ensue.nn.convolution import CausalConvolution, ConvolutionState
from ensue.nn.protocol import Traits
from ensue.nn.state import State

MODES = ("vector", "sequence", "step")
ONE_CYCLE: dict[str, Any] = {"train.lr": 5e-3, "train.floor": 0.02, "train.weight_decay": 0.0, "train.beta2": 0.999}
LECTURE = {"window": 50, "data.scale": "none", "data.centre": "none", "train.epochs": 20.0, "train.batch": 32}
WAVES: dict[str, Any] = LECTURE | ONE_CYCLE
"""The lecture's settings for the series of ``waves``: unscaled, 20 epochs of 32 rows; and Adam with one cycle of the
learning rate, which gets further in 20 epochs than Keras's constant 1e-3."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ForecastConfig:
    """Configuration shared by all forecasters."""

    inputs: int = 1
    """Number of input columns, targets and covariates; set by the data."""
    targets: int = 1
    """Number of forecast columns; set by the data."""
    window: int = 0
    """Number of steps that a forecast reads; 0 means a value that suits the season, the horizon and the series."""
    horizon: int = 1
    """Number of steps ahead that are forecast."""
    mode: str = "vector"
    """vector (the whole horizon), sequence (the same, trained at every step) or step (one step, iterated)."""
    quantiles: tuple[float, ...] = ()
    """Quantiles to forecast, e.g. 0.1,0.5,0.9; empty means one value."""
    season: int = 0
    """Number of steps in a season; 0 means as the dates suggest: 24 for hours, 7 for days, 12 for months, else 1."""

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "quantiles", tuple(float(q) for q in self.quantiles))
        except ValueError:
            check(self, "quantiles", False, "numbers between 0 and 1, such as 0.1,0.5,0.9")
        check(self, "horizon", self.horizon >= 1, "at least 1")
        for name in ("window", "season"):
            check(self, name, getattr(self, name) >= 0, "0 or more")
        check(self, "mode", self.mode in MODES, f"one of {', '.join(MODES)}")
        inside = all(0 < q < 1 for q in self.quantiles) and list(self.quantiles) == sorted(set(self.quantiles))
        check(self, "quantiles", inside, "between 0 and 1, each larger than the one before")
        check(self, "quantiles", not self.quantiles or 0.5 in self.quantiles, "some with 0.5 among them")

    @property
    def steps_ahead(self) -> int:
        """H: the number of steps that one call forecasts."""
        return 1 if self.mode == "step" else self.horizon

    @property
    def output_columns(self) -> int:
        """Y: the number of columns that one call forecasts; all if forecasts are read again."""
        return self.inputs if self.mode == "step" else self.targets

    @property
    def median_index(self) -> int:
        """The index of the median among the quantiles."""
        return self.quantiles.index(0.5) if self.quantiles else 0

    @property
    def output_size(self) -> int:
        """H · Y · Q: the size of an output layer."""
        return self.steps_ahead * self.output_columns * max(1, len(self.quantiles))


class Forecaster(nn.Module):
    """Base class of all forecasters."""

    Config: ClassVar[type[Any]]
    task: ClassVar[str] = "forecast"
    presets: ClassVar[dict[str, dict[str, Any]]] = {}
    expect: ClassVar[dict[str, str]] = {}
    config: Any

    @property
    def traits(self) -> Traits:
        """The properties that the model guarantees."""
        return Traits()

    def start(self, rows: int) -> State:
        """Return the state before the first step."""
        raise TypeError(f"{type(self).__name__} does not implement start")

    def forward(
        self, x: Tensor, state: State | None = None, lengths: Tensor | None = None, last: bool = False
    ) -> tuple[Tensor, State]:
        """Read x (B, T, C) and forecast from every step, or each row's ``last`` one: (B, T or 1, H, Y, Q)."""
        raise TypeError(f"{type(self).__name__} does not implement forward")

    def to_forecasts(self, raw: Tensor) -> Tensor:
        """Reshape an output layer's (B, T, H·Y·Q) to forecasts (B, T, H, Y, Q) with quantiles in order."""
        c = self.config
        raw = raw.view(*raw.shape[:2], c.steps_ahead, c.output_columns, max(1, len(c.quantiles)))
        return order_quantiles(raw, c.median_index)


def order_quantiles(raw: Tensor, median: int) -> Tensor:
    """Return quantiles (…, Q) that never cross: the median, and positive steps away from it on both sides.

    >>> order_quantiles(torch.tensor([0.0, 1.0, 0.0]), 1).tolist()[1]
    1.0
    """
    if raw.shape[-1] == 1:
        return raw
    centre = raw[..., median : median + 1]
    above = centre + F.softplus(raw[..., median + 1 :]).cumsum(-1)
    below = centre - F.softplus(raw[..., :median]).flip(-1).cumsum(-1).flip(-1)
    return torch.cat([below, centre, above], dim=-1)


class NoCounter:
    """The counter of forecasters without parameters: there is nothing to count."""

    passes = done = 0

    def __init__(self, model: Naive) -> None:
        self.model = model

    def count(self, tokens: Any) -> Iterator[tuple[int, int]]:
        """Count nothing."""
        return iter(())

    def tensors(self) -> dict[str, Tensor]:
        """Return no tensors for a checkpoint."""
        return {}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Restore nothing."""

    def finish(self) -> Naive:
        """Return the model unchanged."""
        return self.model


@dataclass(frozen=True, kw_only=True, slots=True)
class NaiveConfig(ForecastConfig):
    """Configuration of forecasts that repeat past values."""

    def __post_init__(self) -> None:
        super(NaiveConfig, self).__post_init__()
        check(self, "quantiles", not self.quantiles, "empty: a repeated value has no quantiles")


class Naive(Forecaster):
    """ŷ_{t+k} = x_{t+k−m⌈k/m⌉}: the last m steps, repeated."""

    Config = NaiveConfig
    presets: ClassVar[dict[str, dict[str, Any]]] = {"default": {}, "waves": {"window": 50, "data.scale": "none"}}
    notes: tuple[str, ...] = ()

    def __init__(self, config: NaiveConfig) -> None:
        super().__init__()
        self.config = config
        self.steps = 1  # m

    def counter(self) -> NoCounter:
        """Return a counter that needs no data."""
        return NoCounter(self)

    def start(self, rows: int) -> ConvolutionState:
        """Return zeros."""
        return ConvolutionState(torch.zeros(rows, self.steps, self.config.inputs))

    def forward(
        self, x: Tensor, state: State | None = None, lengths: Tensor | None = None, last: bool = False
    ) -> tuple[Tensor, State]:
        before = state or self.start(len(x))
        assert isinstance(before, ConvolutionState)
        joined, after = ConvolutionState(before.inputs.to(x)).extend(x, lengths)  # (B, m + T, C)
        k = torch.arange(self.config.steps_ahead) % self.steps
        index = 1 + torch.arange(x.shape[1])[:, None] + k  # (T, H)
        y = joined[:, index, : self.config.output_columns, None]
        return (last_position(y, lengths) if last else y), after


class LastValue(Naive):
    """ŷ_{t+k} = x_t: the last value, repeated."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SeasonalConfig(NaiveConfig):
    """Configuration of a forecast that repeats a season."""

    def __post_init__(self) -> None:
        super(SeasonalConfig, self).__post_init__()
        whole = not self.window or self.window >= self.season
        check(self, "window", whole, f"at least season = {self.season}: a whole season is repeated")


class SeasonalValue(Naive):
    """ŷ_{t+k} = x_{t+k−m⌈k/m⌉}: the last season, repeated."""

    Config = SeasonalConfig

    def __init__(self, config: SeasonalConfig) -> None:
        super().__init__(config)
        self.steps = max(1, config.season)


class LinearForecaster(Forecaster):
    """ŷ = b + Σ_j A_j x_{t−j}: one dense layer on the flattened window; its state is the window."""

    Config = ForecastConfig
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {"train.lr": 2e-3, "train.weight_decay": 0.0},
        "waves": WAVES,
    }

    def __init__(self, config: ForecastConfig) -> None:
        super().__init__()
        self.config = config
        self.dense = CausalConvolution(config.inputs, config.output_size, max(1, config.window))  # A, b

    def start(self, rows: int) -> ConvolutionState:
        """Return zeros."""
        return self.dense.start(rows)

    def forward(
        self, x: Tensor, state: State | None = None, lengths: Tensor | None = None, last: bool = False
    ) -> tuple[Tensor, State]:
        before = state or self.start(len(x))
        assert isinstance(before, ConvolutionState)
        joined, after = before.extend(x, lengths)
        if last:  # only the window that ends at each row's last step
            end = torch.full((len(x),), x.shape[1], device=x.device) if lengths is None else lengths
            index = end[:, None] - 1 + torch.arange(self.dense.reach + 1, device=x.device)
            joined = joined.gather(1, index.clamp(min=0)[..., None].expand(-1, -1, x.shape[-1]))
        return self.to_forecasts(self.dense.convolve(joined)), after
