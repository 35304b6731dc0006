"""The laws of forecasters: the chunk, rows and padding laws of ``ensue.models.laws``, and three more.

cause law      no forecast depends on a later step, by gradients
last law       the forecast at the last step alone = that among all steps
order law      quantiles never cross
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ensue.models.forecast import Forecaster
from ensue.models.laws import (
    Finding,
    chunk_law,
    difference,
    evaluation,
    largest_gradient,
    padding_law,
    rows_law,
    tolerance,
)


def cause_law(model: Forecaster, x: Tensor) -> float:
    """Return the largest gradient of a forecast with respect to later steps."""
    with torch.enable_grad():
        inputs = x.clone().requires_grad_()
        return largest_gradient(model(inputs)[0], inputs, lambda t: slice(t + 1, None))


def last_law(model: Forecaster, x: Tensor, lengths: Tensor) -> float:
    """Compare ``last`` with all steps, for rows of one length and of several."""
    rows = torch.arange(len(x))
    even = difference(model(x)[0][:, -1:], model(x, last=True)[0])
    uneven = model(x, None, lengths)[0][rows, lengths - 1][:, None]
    return max(even, difference(uneven, model(x, None, lengths, True)[0]))


def crossing(model: Forecaster, x: Tensor) -> float:
    """Return how far a quantile lies below the one before it."""
    return max(0.0, -float(model(x)[0].diff(dim=-1).min())) if model.config.quantiles else 0.0


def forecast_laws(model: Forecaster, seed: int = 0, rows: int = 3, time: int = 7) -> Iterator[Finding]:
    """Test every law on random numbers, in evaluation mode."""
    generator = torch.Generator().manual_seed(seed)
    dtype = next((p.dtype for p in model.parameters()), torch.float32)
    x = torch.randn(rows, time, model.config.inputs, generator=generator, dtype=dtype)
    lengths = torch.randint(1, time + 1, (rows,), generator=generator)
    index = torch.randint(rows, (rows + 1,), generator=generator)
    with evaluation(model):
        allowed = tolerance(model(x)[0])
        yield Finding("chunk law", chunk_law(model, x, [2, 5]), allowed)
        yield Finding("rows law", rows_law(model, x, index), allowed)
        yield Finding("padding law", padding_law(model, x, lengths, more=1), allowed)
        yield Finding("cause law", cause_law(model, x), 0.0)
        yield Finding("last law", last_law(model, x, lengths), allowed)
        yield Finding("order law", crossing(model, x), 0.0)
        with torch.enable_grad():  # under autograd states append instead of writing in place
            yield Finding("chunk law, with gradients", chunk_law(model, x, [3]), allowed)
