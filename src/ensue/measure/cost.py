"""The cost of a model: parameters, FLOPs and memory, counted on tensors without data.

    parameters     all, and those active for a token (a few of the experts)
    reading        FLOPs of the forward pass per token, averaged over a text
    training       FLOPs and memory of one training step (see ensue.measure.op_counter)
    generating     FLOPs of one decode step, and the bytes of the state

Training memory is weights, gradients, optimiser state and peak activations. FLOPs are those of matrix multiplications,
two per multiply-add.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree
from torch.utils.flop_counter import FlopCounterMode

from ensue.measure.op_counter import OpCounter, Operation, fake_tensors
from ensue.nn.experts import Experts
from ensue.nn.recompute import recompute_blocks
from ensue.nn.recurrent import Recurrent
from ensue.train.optimisers import build_optimiser
from ensue.train.settings import TrainSettings

LENGTH = 64
"""Tokens of a text, for models without a context size."""


def parameter_parts(model: nn.Module) -> dict[str, int]:
    """Parameters of the model's direct submodules; shared parameters count once, in the first."""
    seen: set[int] = set()
    parts: dict[str, int] = {}
    for name, child in model.named_children():
        new = [p for p in child.parameters() if id(p) not in seen]
        seen |= {id(p) for p in new}
        if new:
            parts[name] = sum(p.numel() for p in new)
    return parts


def active_parameters(model: nn.Module) -> int:
    """The parameters that are active for one token: all but those of experts it is not routed to."""
    idle = sum(part.idle for part in model.modules() if isinstance(part, Experts))
    return sum(p.numel() for p in model.parameters()) - idle


def is_conditional(model: Any) -> bool:
    """True if a model reads a source."""
    return hasattr(model.config, "source_vocabulary")


def default_length(model: Any) -> int:
    """The context size of a model, or 64."""
    return LENGTH if is_conditional(model) else model.traits.context or getattr(model, "window", None) or LENGTH


@contextmanager
def reference_kernels(model: nn.Module) -> Iterator[None]:
    """Run recurrent layers with the reference kernel: fused ones hide their matrix multiplications."""
    layers = [layer for layer in model.modules() if isinstance(layer, Recurrent)]
    kernels = [layer.kernel for layer in layers]
    for layer in layers:
        layer.kernel = "reference"
    try:
        yield
    finally:
        for layer, kernel in zip(layers, kernels):
            layer.kernel = kernel


def flops_per_token(model: Any, time: int = 0) -> int:
    """FLOPs of the forward pass per token, averaged over a text; the model is on the meta device.

    A source is as long as the target, and encoding it counts.
    """
    length = time or default_length(model)
    tokens = torch.zeros(1, length, dtype=torch.long, device="meta")
    with reference_kernels(model), FlopCounterMode(display=False) as counter, torch.no_grad():
        model.eval()
        read = getattr(model, "read", model)  # of two encoders the one that is kept
        model(tokens, model.start(tokens)) if is_conditional(model) else read(tokens)
    return int(counter.get_total_flops()) // length


@dataclass(frozen=True, slots=True)
class Generating:
    """The cost of a decode step after ``context`` tokens."""

    context: int
    flops: int
    state: int
    """Bytes of the state, source included."""
    state_per_token: float
    """Bytes by which it grows per token."""
    weights: int
    """Bytes of active weights; a decode step reads them and the state once."""


def generating(model: Any, time: int = 0) -> Generating | None:
    """The cost of a decode step at the end of a text; None for a model without steps.

    The model is on the meta device.
    """
    if not model.traits.steps or not hasattr(model, "start"):
        return None
    length = max(time or default_length(model), 2)
    model.eval()
    with reference_kernels(model):  # with autograd, states are not preallocated
        half, state = (_state_after(model, size, length) for size in (length // 2, length - 1))
        small, large = _bytes(half), _bytes(state)
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            model(torch.zeros(1, 1, dtype=torch.long, device="meta"), state)
    per_token = (large - small) / max(length - 1 - length // 2, 1)
    size = next(iter(model.parameters())).element_size()
    return Generating(length, int(counter.get_total_flops()), large, per_token, size * active_parameters(model))


def _state_after(model: Any, size: int, source: int) -> Any:
    tokens = torch.zeros(1, size, dtype=torch.long, device="meta")
    start = model.start(torch.zeros(1, source, dtype=torch.long, device="meta")) if is_conditional(model) else None
    return model(tokens, start).state


def _bytes(tree: Any) -> int:
    return sum(leaf.nbytes for leaf in _pytree.tree_leaves(tree) if isinstance(leaf, Tensor))


@dataclass(frozen=True, slots=True)
class TrainingCost:
    """The cost of one training step."""

    rows: int
    length: int
    flops: int
    weights: int
    gradients: int
    optimiser: int
    buffers: int
    """Bytes of buffers, such as position tables."""
    activations: int
    """Peak bytes besides weights (and their bf16 copies), gradients and optimiser state."""
    peak: int
    """Peak bytes in all: gradients grow while activations are freed."""
    operations: tuple[Operation, ...]

    @property
    def tokens(self) -> int:
        """Tokens of a batch."""
        return self.rows * self.length


def training(
    build: Callable[[], nn.Module],
    loss: Callable[[Any, int, int, Any], Tensor],
    rows: int,
    length: int,
    settings: TrainSettings | None = None,
    precision: str = "float32",
) -> TrainingCost:
    """The cost of a training step.

    ``build`` makes the model, on fake tensors, and ``loss`` computes the loss of full rows (``Task.example_loss``).
    ``bf16`` is mixed precision: weights, gradients and optimiser state stay in float32. ``train.recompute`` is
    followed.
    """
    chosen = settings or TrainSettings()
    counter = OpCounter()
    with fake_tensors(counter):
        model: Any = build()
        model.train()
        weights = {counter.hold(p) for p in (*model.parameters(), *model.buffers())}
        if chosen.recompute == "blocks":
            recompute_blocks(model)
        before = len(counter.operations)
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            value = loss(model, rows, length, settings)
        value.backward()  # type: ignore[no-untyped-call]
        done = counter.operations[before:]
        trained = [p for p in model.parameters() if p.grad is not None]
        gradients = {counter.hold(p.grad) for p in trained if p.grad is not None}
        copies = {copy for whole, copy in counter.casts if whole in weights}
        peak_extra, activations = counter.peak(weights), counter.peak(weights | gradients | copies)
        weight_bytes, gradient_bytes = (sum(p.nbytes for p in some) for some in (model.parameters(), trained))
        buffers = sum(buffer.nbytes for buffer in model.buffers())
        optimiser = _optimiser_bytes(model, chosen)
    done.append(Operation(0, 2 * (gradient_bytes + weight_bytes + optimiser)))  # the gradient norm, and the update
    flops, peak = sum(operation.flops for operation in done), weight_bytes + buffers + optimiser + peak_extra
    return TrainingCost(
        rows, length, flops, weight_bytes, gradient_bytes, optimiser, buffers, activations, peak, tuple(done)
    )


def training_state_bytes(model: nn.Module, settings: TrainSettings) -> tuple[int, int, int]:
    """Bytes of weights, gradients and optimiser state; the model may be on the meta device.

    The optimiser state per weight is measured on a small matrix.
    """
    weights = sum(p.nbytes for p in model.parameters())
    gradients = sum(p.nbytes for p in model.parameters() if p.requires_grad)
    small = nn.Linear(64, 64, bias=False)
    return weights, gradients, gradients * (_optimiser_bytes(small, settings) // small.weight.nbytes)


def _optimiser_bytes(model: nn.Module, settings: TrainSettings) -> int:
    """Bytes of the optimiser state after a step."""
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimiser = build_optimiser(model, settings)
    optimiser.step()
    return _bytes(dict(optimiser.state))
