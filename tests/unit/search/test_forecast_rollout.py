"""Forecasts beyond a model's horizon: from its state, and by sampled paths."""

import pytest
import torch

from ensue.core.errors import InputError
from ensue.models.forecast import LastValue, LinearForecaster, SeasonalValue
from ensue.models.forecast_networks import GPTForecaster, LSTMForecaster
from ensue.search.forecast_rollout import _draw, forecast

X = torch.randn(3, 8, 1)


def again(model, past, horizon):
    """The same by reading everything anew at each step."""
    known = past
    while known.shape[1] < past.shape[1] + horizon:
        y, _ = model(known, last=True)
        known = torch.cat([known, y[:, 0, :, :, model.config.median_index]], dim=1)
    return known[:, past.shape[1] : past.shape[1] + horizon]


@pytest.mark.parametrize("mode", ["step", "vector"])
@pytest.mark.parametrize("cls", [LSTMForecaster, GPTForecaster, LinearForecaster])
def test_continuing_from_the_state_equals_reading_everything_again(cls, mode):
    model = cls(cls.Config(window=8, horizon=2, mode=mode)).eval()
    with torch.no_grad():
        found = forecast(model, X, 7)
        assert found.shape == (3, 7, 1, 1)
        torch.testing.assert_close(found[..., 0], again(model, X, 7), atol=1e-5, rtol=0)


@torch.no_grad()
def test_each_step_reads_one_step_only(monkeypatch):
    model = LSTMForecaster(LSTMForecaster.Config(window=8, mode="step"))
    read = []
    monkeypatch.setattr(
        model.stack, "forward", lambda x, *more, own=model.stack.forward: (read.append(x.shape[1]), own(x, *more))[1]
    )
    forecast(model, X, 4)
    assert read == [8, 1, 1, 1]


def test_naive_forecasts_repeat_the_past():
    past = torch.arange(1.0, 7.0)[None, :, None]
    last, seasonal = LastValue(LastValue.Config(horizon=5)), SeasonalValue(SeasonalValue.Config(horizon=5, season=3))
    assert forecast(last, past, 5).flatten().tolist() == [6] * 5
    assert forecast(seasonal, past, 5).flatten().tolist() == [4, 5, 6, 4, 5]
    assert forecast(SeasonalValue(SeasonalValue.Config(mode="step", season=3)), past, 5).flatten().tolist() == [
        4,
        5,
        6,
        4,
        5,
    ]


def test_covariates_cannot_be_read_past_the_horizon():
    model = LSTMForecaster(LSTMForecaster.Config(inputs=2, window=8, horizon=3))
    with (
        torch.no_grad(),
        pytest.raises(InputError, match=r"5 steps are more than the model's horizon of 3.*mode=step"),
    ):
        forecast(model, torch.randn(2, 8, 2), 5)
    stepping = LSTMForecaster(LSTMForecaster.Config(inputs=2, window=8, mode="step"))
    with torch.no_grad():
        assert forecast(stepping, torch.randn(2, 8, 2), 5).shape == (2, 5, 1, 1)


def test_quantiles_of_paths_are_in_order_and_widen():
    torch.manual_seed(3)
    model = LastAndSpread()
    found = forecast(model, torch.zeros(2, 4, 1), 16, paths=400)
    assert found.shape == (2, 16, 1, 3) and (found.diff(dim=-1) >= 0).all()
    width = found[..., 2] - found[..., 0]
    assert 3 < float(width[0, 15, 0] / width[0, 0, 0]) < 5  # a random walk's grows as √16 = 4
    assert torch.equal(found, forecast(model, torch.zeros(2, 4, 1), 16, paths=400))


class LastAndSpread(LastValue):
    """A random walk: the last value, give or take one."""

    Config = LinearForecaster.Config

    def __init__(self):
        super().__init__(self.Config(mode="step", quantiles=(0.1, 0.5, 0.9)))

    def forward(self, x, state=None, lengths=None, last=False):
        y, state = super().forward(x, state, lengths, last)
        return y + torch.tensor([-1.0, 0.0, 1.0]), state


def test_samples_follow_their_quantiles():
    levels, generator = torch.tensor([0.1, 0.5, 0.9]), torch.Generator().manual_seed(0)
    drawn = _draw(torch.tensor([-1.0, 0.0, 3.0]).expand(20_000, 3), levels, generator)
    assert drawn.quantile(levels).tolist() == pytest.approx([-1, 0, 3], abs=0.06)
