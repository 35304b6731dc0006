"""Forecasts beyond a model's horizon: the model reads its own forecasts and continues from its state.

A quantile model cannot read all its quantiles at once. Instead many paths are sampled, each reading its own values, and
the quantiles over the paths are returned, so that uncertainty accumulates from step to step.

Legend: B rows, W window, C columns, Y targets, H steps ahead, Q quantiles, R paths of a row.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ensue.core.errors import InputError

PATHS = 100
"""The number of sampled paths."""


def forecast(model: Any, past: Tensor, horizon: int, *, paths: int = PATHS, seed: int = 0) -> Tensor:
    """The next ``horizon`` steps after windows (B, W, C), as (B, horizon, Y, Q)."""
    config = model.config
    targets = config.targets
    y, state = model(past, None, None, True)
    if horizon <= config.steps_ahead:
        first: Tensor = y[:, 0, :horizon, :targets]
        return first
    if config.output_columns < config.inputs:
        most = f"the model's horizon of {config.steps_ahead}"
        what = f"{horizon} steps are more than {most}, and covariates are not forecast"
        raise InputError(what, hint=f"train with --horizon {horizon}, or with mode=step")
    if config.quantiles and paths:
        return _sampled(model, y, state, horizon, paths, seed)
    parts = [y[:, 0]]
    for _ in range(config.steps_ahead, horizon, config.steps_ahead):
        y, state = model(parts[-1][..., config.median_index], state, None, True)
        parts.append(y[:, 0])
    return torch.cat(parts, dim=1)[:, :horizon, :targets]


def _sampled(model: Any, y: Tensor, state: Any, horizon: int, paths: int, seed: int) -> Tensor:
    """Quantiles over sampled paths."""
    config = model.config
    generator = torch.Generator(y.device).manual_seed(seed)
    levels = torch.tensor(config.quantiles, dtype=y.dtype, device=y.device)
    rows = len(y)
    state = state.rows(torch.arange(rows, device=y.device).repeat_interleave(paths))
    quantiles = y[:, 0].repeat_interleave(paths, dim=0)  # (B·R, H, Y, Q)
    parts = [_draw(quantiles, levels, generator)]
    for _ in range(config.steps_ahead, horizon, config.steps_ahead):
        quantiles, state = model(parts[-1], state, None, True)
        parts.append(_draw(quantiles[:, 0], levels, generator))
    values = torch.cat(parts, dim=1)[:, :horizon, : config.targets].view(rows, paths, horizon, config.targets)
    return values.quantile(levels, dim=1).permute(1, 2, 3, 0)


def _draw(quantiles: Tensor, levels: Tensor, generator: torch.Generator) -> Tensor:
    """Sample from distributions given by quantiles (…, Q), interpolated linearly and extrapolated at the ends."""
    u = torch.rand(quantiles.shape[:-1], generator=generator, dtype=quantiles.dtype, device=quantiles.device)
    if len(levels) == 1:
        return quantiles[..., 0]
    upper = torch.searchsorted(levels, u.contiguous()).clamp(1, len(levels) - 1)
    low, high = levels[upper - 1], levels[upper]
    left, right = (quantiles.gather(-1, at[..., None])[..., 0] for at in (upper - 1, upper))
    return left + (right - left) * (u - low) / (high - low)
