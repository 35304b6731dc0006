"""Forecasting: numbers in, the numbers that come next out. What all forecasters share, and the simplest of them.

    last       ŷ_{t+k} = x_t
    seasonal   ŷ_{t+k} = x_{t+k−m⌈k/m⌉}                    the value of the same place in the last season of m steps
    linear     ŷ_{t+1…t+H} = b + Σ_{j=0}^{W−1} A_j x_{t−j}   one layer on the flattened window

A forecaster reads steps as a language model reads tokens, state in, state out: ``y, state = model(x, state)`` with x of
any number of steps. It answers at every step (or the last one only), in one of three modes:

    vector     the whole horizon at once, learnt at the end of a window (sequence to vector)
    sequence   the whole horizon at once, learnt at every step of a window (sequence to sequence)
    step       one step ahead, of every column, learnt at every step; further steps read what was forecast before them

With quantiles τ_1 < … < τ_Q it answers each of them. The middle one is free and the others are sums of positive steps
away from it, so they never cross:  q_{i+1} = q_i + softplus(a_{i+1}).

Legend: B rows, T steps, C columns that are read, Y of them that are forecast, H steps ahead, Q quantiles, W window.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ensue.core.settings import check
from ensue.nn.convolution import CausalConvolution, ConvolutionState
from ensue.nn.protocol import Traits
from ensue.nn.state import State

MODES = ("vector", "sequence", "step")
LECTURE = {"window": 50, "data.scale": "none", "data.centre": "none", "train.epochs": 20.0, "train.batch": 32}
"""How the lecture has the series of ``waves``: as they are, 20 epochs of 32 rows."""
CYCLE: dict[str, Any] = {"train.lr": 5e-3, "train.floor": 0.02, "train.weight_decay": 0.0, "train.beta2": 0.999}
"""Adam with a rate that rises and falls once: in 20 epochs it gets further than Keras's steady 1e-3."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ForecastConfig:
    """Settings that all forecasters share."""

    inputs: int = 1
    """How many columns are read, targets and covariates; the data says."""
    targets: int = 1
    """How many of them are forecast; the data says."""
    window: int = 0
    """How many steps a forecast looks back; 0 means what suits the season, the horizon and the length of the series."""
    horizon: int = 1
    """How many steps ahead are forecast."""
    mode: str = "vector"
    """vector (the horizon at once), sequence (the same, learnt at every step) or step (one step, iterated)."""
    quantiles: tuple[float, ...] = ()
    """Which quantiles are forecast, e.g. 0.1,0.5,0.9; none means one value."""
    season: int = 0
    """Steps of a season; 0 means what the dates suggest: 24 of hours, 7 of days, 12 of months, else 1."""

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
    def ahead(self) -> int:
        """H, how many steps are said at once."""
        return 1 if self.mode == "step" else self.horizon

    @property
    def outputs(self) -> int:
        """Y, how many columns are said: all of them where they are read again."""
        return self.inputs if self.mode == "step" else self.targets

    @property
    def middle(self) -> int:
        """Where the median stands among the quantiles."""
        return self.quantiles.index(0.5) if self.quantiles else 0

    @property
    def numbers(self) -> int:
        """H · Y · Q, what an output layer says."""
        return self.ahead * self.outputs * max(1, len(self.quantiles))


class Forecaster(nn.Module):
    """The base of all forecasters."""

    Config: ClassVar[type[Any]]
    task: ClassVar[str] = "forecast"
    presets: ClassVar[dict[str, dict[str, Any]]] = {}
    expect: ClassVar[dict[str, str]] = {}
    config: Any

    @property
    def traits(self) -> Traits:
        """What it promises."""
        return Traits()

    def start(self, rows: int) -> State:
        """The state before the first step."""
        raise TypeError(f"{type(self).__name__} does not say how it starts")

    def forward(
        self, x: Tensor, state: State | None = None, lengths: Tensor | None = None, last: bool = False
    ) -> tuple[Tensor, State]:
        """Read x (B, T, C) and forecast from every step, or each row's ``last`` one: (B, T or 1, H, Y, Q)."""
        raise TypeError(f"{type(self).__name__} does not say how it reads")

    def shaped(self, raw: Tensor) -> Tensor:
        """What an output layer says, (B, T, H·Y·Q), as forecasts (B, T, H, Y, Q) with quantiles in order."""
        c = self.config
        return ordered(raw.view(*raw.shape[:2], c.ahead, c.outputs, max(1, len(c.quantiles))), c.middle)


def ordered(raw: Tensor, middle: int) -> Tensor:
    """Quantiles (…, Q) that never cross: the middle one, and positive steps away from it on both sides.

    >>> ordered(torch.tensor([0.0, 1.0, 0.0]), 1).tolist()[1]
    1.0
    """
    if raw.shape[-1] == 1:
        return raw
    centre = raw[..., middle : middle + 1]
    above = centre + F.softplus(raw[..., middle + 1 :]).cumsum(-1)
    below = centre - F.softplus(raw[..., :middle]).flip(-1).cumsum(-1).flip(-1)
    return torch.cat([below, centre, above], dim=-1)


def last_place(y: Tensor, lengths: Tensor | None) -> Tensor:
    """Each row's last real step, (B, T, …) → (B, 1, …)."""
    if lengths is None:
        return y[:, -1:]
    rows = torch.arange(len(y), device=y.device)
    return y[rows, (lengths - 1).clamp(min=0)][:, None]


class Nothing:
    """What forecasters learn that have nothing to learn: they are ready without a pass over the data."""

    passes = done = 0

    def __init__(self, model: Naive) -> None:
        self.model = model

    def count(self, tokens: Any) -> Iterator[tuple[int, int]]:
        """There is nothing to count."""
        return iter(())

    def tensors(self) -> dict[str, Tensor]:
        """Nothing is known."""
        return {}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Nothing was known."""

    def finish(self) -> Naive:
        """The model as it was."""
        return self.model


@dataclass(frozen=True, kw_only=True, slots=True)
class NaiveConfig(ForecastConfig):
    """Settings of forecasts that repeat what was."""

    def __post_init__(self) -> None:
        super(NaiveConfig, self).__post_init__()
        check(self, "quantiles", not self.quantiles, "empty: what repeats the past says one value")


class Naive(Forecaster):
    """ŷ_{t+k} = x_{t+k−m⌈k/m⌉}: the last m steps again and again."""

    Config = NaiveConfig
    presets: ClassVar[dict[str, dict[str, Any]]] = {"default": {}, "waves": {"window": 50, "data.scale": "none"}}
    notes: tuple[str, ...] = ()

    def __init__(self, config: NaiveConfig) -> None:
        super().__init__()
        self.config = config

    @property
    def steps(self) -> int:
        """m."""
        raise TypeError(f"{type(self).__name__} does not say what it repeats")

    def counter(self) -> Nothing:
        """It learns nothing."""
        return Nothing(self)

    def start(self, rows: int) -> ConvolutionState:
        """Zeros."""
        return ConvolutionState(torch.zeros(rows, self.steps, self.config.inputs))

    def forward(
        self, x: Tensor, state: State | None = None, lengths: Tensor | None = None, last: bool = False
    ) -> tuple[Tensor, State]:
        before = state or self.start(len(x))
        assert isinstance(before, ConvolutionState)
        joined, after = ConvolutionState(before.inputs.to(x)).extend(x, lengths)  # (B, m + T, C)
        k = torch.arange(self.config.ahead) % self.steps
        place = 1 + torch.arange(x.shape[1])[:, None] + k  # (T, H)
        y = joined[:, place, : self.config.outputs, None]
        return (last_place(y, lengths) if last else y), after


class LastValue(Naive):
    """ŷ_{t+k} = x_t: tomorrow is as today."""

    @property
    def steps(self) -> int:
        return 1


@dataclass(frozen=True, kw_only=True, slots=True)
class SeasonalConfig(NaiveConfig):
    """Settings of a forecast that repeats a season."""

    def __post_init__(self) -> None:
        super(SeasonalConfig, self).__post_init__()
        whole = not self.window or self.window >= self.season
        check(self, "window", whole, f"at least season = {self.season}: a whole season is repeated")


class SeasonalValue(Naive):
    """ŷ_{t+k} = x_{t+k−m⌈k/m⌉}: this season is as the last one was."""

    Config = SeasonalConfig

    @property
    def steps(self) -> int:
        return max(1, int(self.config.season))


class LinearForecaster(Forecaster):
    """ŷ = b + Σ_j A_j x_{t−j}: one dense layer on the flattened window; its state is the window."""

    Config = ForecastConfig
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {"train.lr": 2e-3, "train.weight_decay": 0.0},
        "waves": {**LECTURE, **CYCLE},
    }

    def __init__(self, config: ForecastConfig) -> None:
        super().__init__()
        self.config = config
        self.dense = CausalConvolution(config.inputs, config.numbers, max(1, config.window))  # A, b

    def start(self, rows: int) -> ConvolutionState:
        """Zeros."""
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
        return self.shaped(self.dense.convolve(joined)), after
