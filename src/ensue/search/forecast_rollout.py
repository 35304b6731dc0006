"""Forecasts past what a model says at once: it reads what it has forecast, and goes on from its state.

A model that says quantiles cannot read all of them at once. So many paths are drawn, each reading its own numbers, and
the quantiles of the paths are the answer: what is uncertain adds up from step to step.

Legend: B rows, W window, C columns, Y targets, H steps ahead, Q quantiles, R paths of a row.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ensue.core.errors import InputError

PATHS = 100
"""How many paths are drawn where quantiles are iterated."""


def forecast(model: Any, past: Tensor, horizon: int, *, paths: int = PATHS, seed: int = 0) -> Tensor:
    """The next ``horizon`` steps after windows (B, W, C), as (B, horizon, Y, Q)."""
    config = model.config
    targets = config.targets
    y, state = model(past, None, None, True)
    if horizon <= config.ahead:
        first: Tensor = y[:, 0, :horizon, :targets]
        return first
    if config.outputs < config.inputs:
        said = f"the {config.ahead} that it forecasts at once"
        what = f"{horizon} steps are more than {said}, and covariates are not forecast"
        raise InputError(what, hint=f"train with --horizon {horizon}, or with mode=step")
    if config.quantiles and paths:
        return _drawn(model, y, state, horizon, paths, seed)
    parts = [y[:, 0]]
    for _ in range(config.ahead, horizon, config.ahead):
        y, state = model(parts[-1][..., config.middle], state, None, True)
        parts.append(y[:, 0])
    return torch.cat(parts, dim=1)[:, :horizon, :targets]


def _drawn(model: Any, y: Tensor, state: Any, horizon: int, paths: int, seed: int) -> Tensor:
    """Quantiles of paths that each read what was drawn for them."""
    config = model.config
    generator = torch.Generator(y.device).manual_seed(seed)
    levels = torch.tensor(config.quantiles, dtype=y.dtype, device=y.device)
    rows = len(y)
    state = state.rows(torch.arange(rows, device=y.device).repeat_interleave(paths))
    found = y[:, 0].repeat_interleave(paths, dim=0)  # (B·R, H, Y, Q)
    parts = [_draw(found, levels, generator)]
    for _ in range(config.ahead, horizon, config.ahead):
        found, state = model(parts[-1], state, None, True)
        parts.append(_draw(found[:, 0], levels, generator))
    ways = torch.cat(parts, dim=1)[:, :horizon, : config.targets].view(rows, paths, horizon, config.targets)
    return ways.quantile(levels, dim=1).permute(1, 2, 3, 0)


def _draw(quantiles: Tensor, levels: Tensor, generator: torch.Generator) -> Tensor:
    """A number for each distribution that is known by its quantiles (…, Q): straight lines between them, and the outer
    ones go on as steeply as the last piece."""
    u = torch.rand(quantiles.shape[:-1], generator=generator, dtype=quantiles.dtype, device=quantiles.device)
    if len(levels) == 1:
        return quantiles[..., 0]
    place = torch.searchsorted(levels, u.contiguous()).clamp(1, len(levels) - 1)
    low, high = levels[place - 1], levels[place]
    left, right = (quantiles.gather(-1, at[..., None])[..., 0] for at in (place - 1, place))
    return left + (right - left) * (u - low) / (high - low)
