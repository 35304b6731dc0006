"""Optimisers, learning-rate schedules and gradient clipping.

SGD        θ ← θ − α ∇J(θ)
clipping   if ‖g‖ ≥ threshold: g ← threshold · g / ‖g‖          (Pascanu et al., 2013, Algorithm 1)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from ensue.train.settings import TrainSettings


def build_optimiser(
    model: nn.Module, settings: TrainSettings, scales: Mapping[str, float] | None = None
) -> torch.optim.Optimizer:
    """Build the optimiser that the settings name; weight decay applies to matrices only.

    ``scales`` maps parameter names to learning-rate factors, 1 by default; parameters named in it are included even if
    they are frozen for now.
    """
    scales = scales or {}
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad or name in scales]
    groups = []
    for scale in sorted({scales.get(name, 1.0) for name, _ in trained}, reverse=True):
        scaled = [p for name, p in trained if scales.get(name, 1.0) == scale]
        for decays in (True, False):
            params = [p for p in scaled if (p.dim() >= 2) == decays]
            decay = settings.weight_decay if decays else 0.0
            groups += [{"params": params, "weight_decay": decay, "scale": scale}] if params else []
    if settings.optimiser == "sgd":
        plain = [{**group, "weight_decay": 0.0} for group in groups]
        return torch.optim.SGD(plain, lr=settings.lr, momentum=settings.momentum)
    return torch.optim.AdamW(groups, lr=settings.lr, betas=(settings.beta1, settings.beta2), fused=True)


def constant(at: float, warm: float, floor: float) -> float:
    """1 after the warm-up."""
    return 1.0


def cosine(at: float, warm: float, floor: float) -> float:
    """From 1 to the floor along half a cosine (Loshchilov and Hutter, 2017)."""
    share = (at - warm) / max(1 - warm, 1e-9)
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * min(share, 1.0)))


def one_cycle(at: float, warm: float, floor: float) -> float:
    """From 1 to the floor along a straight line (Smith and Topin, 2018)."""
    share = (at - warm) / max(1 - warm, 1e-9)
    return 1 - (1 - floor) * min(share, 1.0)


def inverse_sqrt(at: float, warm: float, floor: float) -> float:
    """√(warm / at): the Transformer paper's schedule, scaled to a maximum of 1."""
    return math.sqrt(max(warm, 1e-9) / max(at, 1e-9))


def slanted(step: float, steps: int, warm: float, floor: float) -> float:
    """Slanted triangular learning rate (Howard and Ruder, 2018, equation 3) at t = ``step`` of T = ``steps``.

    cut = ⌊T · cut_frac⌋
    p   = t / cut                                     if t < cut
    p   = 1 − (t − cut) / (cut · (1 / cut_frac − 1))  else
    η_t = η_max · (1 + p · (ratio − 1)) / ratio

    Here cut_frac is ``warm``, the share of steps in which the rate rises, and 1 / ratio is ``floor``. Where ⌊·⌋ rounds
    down, the paper's p becomes negative before the last step; here it is clamped to 0.
    """
    cut = max(1, math.floor(steps * warm + 1e-9))  # 0.1 · 30 must be 3 despite rounding errors
    p = step / cut if step < cut else 1 - (step - cut) / max(cut * (1 / max(warm, 1 / steps) - 1), 1e-9)
    return floor + max(p, 0.0) * (1 - floor)  # (1 + p · (ratio − 1)) / ratio


SHAPES: dict[str, Callable[[float, float, float], float]] = {
    "constant": constant,
    "plateau": constant,
    "cosine": cosine,
    "one-cycle": one_cycle,
    "inverse-sqrt": inverse_sqrt,
}


def learning_rate(step: float, steps: int, settings: TrainSettings) -> float:
    """Return the learning rate of update ``step`` (from 0) of ``steps``: a linear warm-up, then the schedule.

    In a revised plan steps are fractions: see ``ensue.train.plan.Plan.schedule_step``.
    """
    warm = settings.warmup * steps if settings.warmup <= 1 else settings.warmup  # in steps
    if settings.schedule == "slanted":
        return settings.lr * slanted(step, steps, min(warm / steps, 1.0), settings.floor)
    if settings.schedule == "inverse-sqrt":
        warm = max(warm, 1.0)
    if step + 1 < warm:
        return settings.lr * (step + 1) / warm
    return settings.lr * SHAPES[settings.schedule]((step + 1) / steps, warm / steps, settings.floor)


def gradients_of(model: nn.Module) -> list[Tensor]:
    """Return the gradients of all parameters that have one."""
    return [p.grad for p in model.parameters() if p.grad is not None]


def gradient_norm(gradients: list[Tensor]) -> float:
    """Return ‖g‖ of all gradients as one vector."""
    return float(torch.nn.utils.get_total_norm(gradients))


def clipped_step(optimiser: torch.optim.Optimizer, gradients: list[Tensor], norm: float, threshold: float) -> None:
    """Clip gradients with the given norm and step the optimiser; a fused optimiser clips in the same pass."""
    if not 0 < threshold <= norm < float("inf"):
        optimiser.step()
    elif optimiser.defaults.get("fused") and gradients:
        # the fused kernel takes a float32 scale for gradients of any dtype
        scale = torch.tensor(norm / threshold, dtype=torch.float32, device=gradients[0].device)
        optimiser.grad_scale = scale  # type: ignore[attr-defined]
        try:
            optimiser.step()
        finally:
            del optimiser.grad_scale  # type: ignore[attr-defined]
    else:
        torch._foreach_mul_(gradients, threshold / norm)
        optimiser.step()


def optimiser_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the optimiser's state as tensors named by parameter number and key."""
    state = optimiser.state_dict()["state"]
    return {
        f"{number}.{key}": value for number, entry in state.items() for key, value in entry.items() if value is not None
    }


def restore_optimiser(optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Load the state that ``optimiser_tensors`` returned."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        number, _, key = name.partition(".")
        state.setdefault(int(number), {})[key] = value
    optimiser.load_state_dict({**optimiser.state_dict(), "state": state})
