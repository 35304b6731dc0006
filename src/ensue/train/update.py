"""One update: the gradients of a few batches, clipped, and a step of the optimiser."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from dataclasses import fields, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ensue.nn.state import State
from ensue.train.loss_reduction import LOCAL
from ensue.train.optimisers import clipped_step
from ensue.train.settings import TextTrainSettings, TrainSettings
from ensue.train.training import Training


def update(
    training: Training, optimiser: torch.optim.Optimizer, step: int, state: State | None, rate: float
) -> tuple[float, float, State | None, int]:
    """Make one update, unless the loss or the gradient norm is not finite.

    Returns the loss, the gradient norm, the state after the last batch, and the number of tokens.
    """
    settings, ranks = training.settings, training.ranks
    training.model.train()
    optimiser.zero_grad(set_to_none=True)
    total, tokens = 0.0, 0
    for micro_step in range(settings.accumulate):
        full_batch = training.batches.batch(step * settings.accumulate + micro_step)
        batch, reduction = ranks.local_batch(full_batch)
        batch = to_device(batch, training.device)
        before = None if batch.reset_state else with_restarts(training, state)
        with autocast(settings, training.device):
            extra = () if reduction is LOCAL else (reduction,)  # in a single process an objective may take three only
            loss, after = training.with_weights(partial(training.objective, training.model, batch, before, *extra))
        state = after.detach() if after is not None and batch.keep_state else None
        del after  # an unused state would keep its graph alive during the backward pass
        (loss / settings.accumulate).backward()
        total, tokens = total + loss.item() / settings.accumulate, tokens + full_batch.size
    total = ranks.total(total)
    gradients = ranks.reduced_gradients(training.model)
    norm = ranks.gradient_norm(gradients)
    if math.isfinite(total) and math.isfinite(norm):
        for group in optimiser.param_groups:
            group["lr"] = rate * group["scale"]
        clipped_step(optimiser, gradients, norm, settings.clip)
    return total, norm, state, tokens


def with_restarts(training: Training, state: State | None) -> State | None:
    """Reset a few random rows of a carried state to the initial state.

    Otherwise a model would rarely be trained from the initial state, from which it starts when it is used.
    """
    settings = training.settings
    if state is None or not isinstance(settings, TextTrainSettings) or not settings.renew:
        return state
    count = training.batches.rows
    restart = training.ranks.broadcast(torch.rand(count) < settings.renew)[training.ranks.rows(count)]
    return state.renewed(restart.to(training.device), initial_state(training, len(restart)))


def initial_state(training: Training, rows: int) -> State:
    """Return the model's state before the first token."""
    model: Any = training.model
    with torch.no_grad():
        state: State = training.with_weights(partial(model.start, rows))
    return state


def to_device(batch: Any, device: torch.device) -> Any:
    """Move a batch's tensors to the device."""
    if device.type == "cpu":
        return batch
    tensors = {f.name: getattr(batch, f.name) for f in fields(batch)}
    return replace(batch, **{name: value.to(device) for name, value in tensors.items() if isinstance(value, Tensor)})


def autocast(settings: TrainSettings, device: torch.device) -> AbstractContextManager[Any]:
    """bfloat16 autocast if the settings ask for it, or by default on a GPU that supports it."""
    supported = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    wanted = settings.precision == "bf16" or (settings.precision == "auto" and supported)
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=wanted)
