"""Every forecaster keeps the laws and can be trained; a deliberately broken one fails."""

import pytest
import torch

from ensue.data.series_windows import SeriesBatch
from ensue.models.forecast import LinearForecaster
from ensue.models.forecast_laws import forecast_laws
from ensue.models.table import FORECASTERS
from ensue.train.forecast_objectives import ForecastLoss

SHAPE = {"inputs": 3, "targets": 2, "window": 4, "horizon": 3}
THREE = {"quantiles": (0.1, 0.5, 0.9)}
VARIANTS = {
    "last": [{}, {"mode": "step"}],
    "seasonal": [{"season": 2}, {"season": 4, "mode": "step"}],
    "linear": [{}, {"mode": "step"}, THREE],
    "rnn": [
        {"hidden": 6, "layers": 2, "activation": "relu"},
        {"hidden": 6, "head": "cell", "layers": 0, "mode": "sequence"},
        {"hidden": 6, "activation": "sigmoid", **THREE},
    ],
    "gru": [{"hidden": 6, "layers": 2, "connect": "residual"}, {"hidden": 6, "head": "cell", **THREE}],
    "gru-cho": [{"hidden": 6, "mode": "step"}],
    "lstm": [{"hidden": 6, "layers": 2, "connect": "dense"}, {"hidden": 6, "mode": "step", **THREE}],
    "gpt": [
        {"hidden": 8, "heads": 2},
        {"hidden": 8, "heads": 2, "positions": "learned", "norm": "post", "window": 9, **THREE},
        {"hidden": 8, "heads": 2, "positions": "sinusoidal", "mode": "step"},
    ],
}
CASES = [
    pytest.param(name, values, id=f"{name}-{n}") for name, many in VARIANTS.items() for n, values in enumerate(many)
]


def build(name, values, dtype=torch.float32):
    cls = FORECASTERS.load(name)
    return cls(cls.Config(**{**SHAPE, **values})).to(dtype)


def test_every_forecaster_is_tested():
    assert set(FORECASTERS) == set(VARIANTS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["32", "64"])
@pytest.mark.parametrize(("name", "values"), CASES)
def test_the_laws_hold(name, values, dtype):
    for found in forecast_laws(build(name, values, dtype)):
        assert found.kept, found


@pytest.mark.parametrize(("name", "values"), CASES)
def test_forecasts_have_the_configured_shape(name, values):
    model = build(name, values)
    y, _ = model(torch.randn(5, 7, 3))
    ahead, outputs = (1, 3) if model.config.mode == "step" else (3, 2)
    assert y.shape == (5, 7, ahead, outputs, max(1, len(model.config.quantiles)))


@pytest.mark.parametrize("name", ["linear", "rnn", "gru", "gru-cho", "lstm", "gpt"])
def test_one_batch_can_be_overfitted(name):
    torch.manual_seed(1)
    more = {} if name == "linear" else {"hidden": 16}
    model = build(name, {"inputs": 1, "targets": 1, "horizon": 1, "window": 6, **more})
    x, y = torch.randn(4, 6, 1), torch.randn(4, 1, 1, 1)
    batch, loss = SeriesBatch(x, y, torch.ones_like(y, dtype=torch.bool)), ForecastLoss()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.05 if name == "linear" else 0.02)
    for _ in range(150):
        optimiser.zero_grad()
        found, _ = loss(model, batch, None)
        found.backward()
        optimiser.step()
    assert found < 0.01


class Peeks(LinearForecaster):
    """Sees one step too many."""

    def forward(self, x, state=None, lengths=None, last=False):
        return super().forward(x + x.roll(-1, 1), state, lengths, last)


def test_a_model_that_reads_ahead_fails_its_law():
    broken = {found.law for found in forecast_laws(Peeks(Peeks.Config(**SHAPE))) if not found.kept}
    assert "cause law" in broken and "chunk law" in broken
