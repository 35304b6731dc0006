"""What the benchmarks of training share: an update as ``ensue fit`` makes it, one as others write it, and how much of
a program's time is products of matrices, which is what nobody can save.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.turns import Round, Work, take_turns
from ensue.train.optimisers import clipped_step, gradient_norm, gradients_of

PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "mkldnn::_linear_pointwise")
ATTENTION = (
    "aten::_scaled_dot_product_flash_attention_for_cpu",
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
)
RECURRENCE = ("aten::mkldnn_rnn_layer", "aten::mkldnn_rnn_layer_backward")


def ours(model: Any, optimiser: torch.optim.Optimizer, loss: torch.Tensor, clip: float = 1.0) -> float:
    """Backward, clipping and a step, as the training loop does them."""
    loss.backward()  # type: ignore[no-untyped-call]
    gradients = gradients_of(model)
    clipped_step(optimiser, gradients, gradient_norm(gradients), clip)
    return float(loss.item())


def theirs(model: Any, optimiser: torch.optim.Optimizer, loss: torch.Tensor, clip: float = 1.0) -> float:
    """The same as torch's users write it."""
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimiser.step()
    return float(loss.item())


def share_of(work: Work, names: Sequence[str] = PRODUCTS) -> Work:
    """The same work, but a round's result is the share of its time that these operations take."""

    def profiled(turn: int) -> Round:
        if not turn:
            return work(turn)
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            done = work(turn)
        spent = {event.key: event.self_cpu_time_total for event in seen.key_averages()}
        return done._replace(result=sum(spent.get(name, 0) for name in names) / sum(spent.values()))

    return profiled


def profiled(program: Callable[[], Work], names: Sequence[str] = PRODUCTS) -> Work:
    """A program whose rounds answer that share."""
    return share_of(program(), names)


def possible(program: Callable[[], Work], names: Sequence[str] = PRODUCTS) -> dict[str, float]:
    """How many times as fast a peer could be if all but these operations took no time, in one round."""
    (one,) = take_turns({"peer": partial(profiled, program, names)}, 1)["peer"]
    return {"share_of_products_in_theirs": round(one.result, 3), "ratio_possible": round(1 / one.result, 3)}
