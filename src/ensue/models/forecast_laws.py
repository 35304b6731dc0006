"""The laws of forecasters, as ``ensue.models.laws`` has those of language models: the same laws, on numbers.

chunk law      whole = in chunks = step by step
rows law       picking rows before a step = after it
padding law    what is padded never changes what is real
cause law      no forecast depends on a later step, by gradients
last law       what is said at the last step alone is what is said there among all
order law      quantiles never cross
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from ensue.models.forecast import Forecaster
from ensue.models.laws import TOLERANCE, Finding
from ensue.nn.eval_mode import eval_mode


def chunk_law(model: Forecaster, x: Tensor, cuts: list[int]) -> float:
    """Whole against chunks that end at ``cuts``, and against one step at a time."""
    whole, _ = model(x)
    worst = 0.0
    for ends in ([*cuts, x.shape[1]], list(range(1, x.shape[1] + 1))):
        state, parts, begin = model.start(len(x)), [], 0
        for end in ends:
            part, state = model(x[:, begin:end], state)
            parts.append(part)
            begin = end
        worst = max(worst, _gap(whole, torch.cat(parts, dim=1)))
    return worst


def rows_law(model: Forecaster, x: Tensor, index: Tensor) -> float:
    """Read, pick rows, read on; against pick rows, read all. A fork outlives its origin."""
    half = x.shape[1] // 2
    _, state = model(x[:, :half])
    kept = state.fork()
    later, _ = model(x[index, half:], state.rows(index))
    first, _ = model(x[index])
    again, _ = model(x[:, half:], kept)
    return max(_gap(later, first[:, half:]), _gap(again[index], later))


def padding_law(model: Forecaster, x: Tensor, lengths: Tensor) -> float:
    """Each row alone against all rows padded to the longest, with whatever stands in the padding."""
    junk = torch.where((torch.arange(x.shape[1]) < lengths[:, None])[..., None], x, torch.full_like(x, 9.0))
    together, state = model(junk, None, lengths)
    onward, _ = model(x[:, :1], state)
    worst = 0.0
    for row, length in enumerate(lengths.tolist()):
        alone, memory = model(x[row : row + 1, :length])
        worst = max(worst, _gap(together[row : row + 1, :length], alone))
        worst = max(worst, _gap(onward[row : row + 1], model(x[row : row + 1, :1], memory)[0]))
    return worst


def cause_law(model: Forecaster, x: Tensor) -> float:
    """The gradient of each forecast with respect to later steps."""
    with torch.enable_grad():
        inputs = x.clone().requires_grad_()
        y, _ = model(inputs)
        worst = 0.0
        for place in range(x.shape[1] - 1):
            (gradient,) = torch.autograd.grad(y[:, place].square().sum(), inputs, retain_graph=True)
            worst = max(worst, gradient[:, place + 1 :].abs().max().item())
    return worst


def last_law(model: Forecaster, x: Tensor, lengths: Tensor) -> float:
    """``last`` against all places, with rows of one length and of several."""
    rows = torch.arange(len(x))
    whole = _gap(model(x)[0][:, -1:], model(x, last=True)[0])
    uneven = model(x, None, lengths)[0][rows, lengths - 1][:, None]
    return max(whole, _gap(uneven, model(x, None, lengths, True)[0]))


def crossing(model: Forecaster, x: Tensor) -> float:
    """How far a quantile lies below the one before it."""
    return max(0.0, -float(model(x)[0].diff(dim=-1).min())) if model.config.quantiles else 0.0


def forecast_laws(model: Forecaster, seed: int = 0, rows: int = 3, time: int = 7) -> Iterator[Finding]:
    """Test every law on random numbers, in evaluation mode."""
    generator = torch.Generator().manual_seed(seed)
    kind = next((p.dtype for p in model.parameters()), torch.float32)
    x = torch.randn(rows, time, model.config.inputs, generator=generator, dtype=kind)
    lengths = torch.randint(1, time + 1, (rows,), generator=generator)
    index = torch.randint(rows, (rows + 1,), generator=generator)
    tolerance = TOLERANCE.get(kind, 1e-5)
    with eval_mode(model):
        with torch.no_grad():
            yield Finding("chunk law", chunk_law(model, x, [2, 5]), tolerance)
            yield Finding("rows law", rows_law(model, x, index), tolerance)
            yield Finding("padding law", padding_law(model, x, lengths), tolerance)
            yield Finding("cause law", cause_law(model, x), 0.0)
            yield Finding("last law", last_law(model, x, lengths), tolerance)
            yield Finding("order law", crossing(model, x), 0.0)
        with torch.enable_grad():  # under autograd states append instead of writing in place
            yield Finding("chunk law, with gradients", chunk_law(model, x, [3]), tolerance)


def _gap(left: Tensor, right: Tensor) -> float:
    if left.shape != right.shape:
        return float("inf")
    difference = (left - right).abs().max().item() if left.numel() else 0.0
    return float("inf") if math.isnan(difference) else difference
