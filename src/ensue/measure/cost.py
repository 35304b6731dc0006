"""What a model costs: parameters, FLOPs, memory; counted on tensors that have shapes, but no numbers.

    parameters     all, and those that a token meets (of experts it meets only a few)
    reading        FLOPs of reading one token and predicting the next, averaged over a stretch of text
    training       FLOPs and memory of one step: the loss of a batch and its gradients (see ensue.measure.op_counter)
    generating     FLOPs of one token more, with a state that holds what was before; the state's bytes

Bytes of training: weights, their gradients, what the optimiser remembers of each, and activations: the most that a step
holds besides. FLOPs are of products, two for a multiply-add.
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

from ensue.data.batches import Batch
from ensue.measure.op_counter import Ledger, Operation, without_numbers
from ensue.nn.experts import Experts
from ensue.nn.recompute import recompute_blocks
from ensue.nn.recurrent import Recurrent
from ensue.train.label_objectives import masked_language_loss
from ensue.train.objectives import OBJECTIVES, context_loss
from ensue.train.optimisers import build_optimiser
from ensue.train.settings import TrainSettings

LENGTH = 64
"""Tokens of a text, where a model does not say how far it sees."""
HIDDEN = 0.15
"""The share of tokens that is hidden from an encoder, where nothing is said."""


def parameter_parts(model: nn.Module) -> dict[str, int]:
    """Parameters by the model's direct parts; what two parts share counts once, in the first."""
    seen: set[int] = set()
    parts: dict[str, int] = {}
    for name, child in model.named_children():
        own = [p for p in child.parameters() if id(p) not in seen]
        seen |= {id(p) for p in own}
        if own:
            parts[name] = sum(p.numel() for p in own)
    return parts


def active_parameters(model: nn.Module) -> int:
    """The parameters that one token meets: all but those of the experts that it is not sent to."""
    idle = sum(part.idle for part in model.modules() if isinstance(part, Experts))
    return sum(p.numel() for p in model.parameters()) - idle


def is_conditional(model: Any) -> bool:
    """Whether a model reads a source first."""
    return hasattr(model.config, "source_vocabulary")


def usual_length(model: Any) -> int:
    """A stretch of text that suits a model: its window, or 64."""
    return LENGTH if is_conditional(model) else model.traits.context or LENGTH


@contextmanager
def by_equation(model: nn.Module) -> Iterator[None]:
    """A block in which recurrent layers run their loop: fused kernels hide their products."""
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
    """FLOPs (two for a multiply-add) of reading one token and predicting the next, averaged over a stretch of text.

    Where there is a source, it is as long as the target, and reading it counts. The model is on the meta device.
    """
    length = time or usual_length(model)
    tokens = torch.zeros(1, length, dtype=torch.long, device="meta")
    with by_equation(model), FlopCounterMode(display=False) as counter, torch.no_grad():
        model.eval()
        model(tokens, model.start(tokens)) if is_conditional(model) else model(tokens)
    return int(counter.get_total_flops()) // length


@dataclass(frozen=True, slots=True)
class Generating:
    """What one token more costs, after ``context`` tokens whose state is there."""

    context: int
    flops: int
    state: int
    """Bytes of the state that hold something of a text: of its tokens, and of its source."""
    state_per_token: float
    """By how much each token makes it larger."""
    weights: int
    """Bytes of weights that a token meets; each token passes over them and over the state."""


def generating(model: Any, time: int = 0) -> Generating | None:
    """What generating costs at the end of a stretch of text; None of a model that cannot go on from a state.

    The model is on the meta device.
    """
    if not model.traits.steps or not hasattr(model, "start"):
        return None
    length = max(time or usual_length(model), 2)
    model.eval()
    with by_equation(model):  # where gradients may be asked for, a state holds what it holds, without room to spare
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
    return sum(one.nbytes for one in _pytree.tree_leaves(tree) if isinstance(one, Tensor))


@dataclass(frozen=True, slots=True)
class Training:
    """What one step of training costs."""

    rows: int
    length: int
    flops: int
    weights: int
    gradients: int
    optimiser: int
    buffers: int
    """What a model holds that is not learnt, such as a table of positions."""
    activations: int
    """The most bytes that a step holds besides weights (and copies of them in sixteen bits), their gradients and what
    the optimiser remembers."""
    peak: int
    """The most bytes that are held at once: gradients come while activations go."""
    operations: tuple[Operation, ...]

    @property
    def tokens(self) -> int:
        """Tokens of a batch."""
        return self.rows * self.length


def training(
    build: Callable[[], nn.Module],
    rows: int,
    length: int,
    settings: TrainSettings | None = None,
    precision: str = "float32",
) -> Training | None:
    """What a step of training costs; None of a model that is not trained by gradients.

    ``build`` makes the model; it is called where tensors have no numbers. In ``bf16`` products are in sixteen bits, and
    weights, gradients and the optimiser's memory in float32 (mixed precision). Where the settings have blocks computed
    again (``train.recompute``), they are.
    """
    chosen = settings or TrainSettings()
    ledger = Ledger()
    with without_numbers(ledger):
        model: Any = build()
        if getattr(model, "task", "") not in LOSSES:
            return None
        model.train()
        weights = {ledger.hold(p) for p in (*model.parameters(), *model.buffers())}
        if chosen.recompute == "blocks":
            recompute_blocks(model)
        begun = len(ledger.operations)
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            loss = LOSSES[model.task](model, rows, length, settings)
        loss.backward()  # type: ignore[no-untyped-call]
        done = ledger.operations[begun:]
        learnt = [p for p in model.parameters() if p.grad is not None]
        gradients = {ledger.hold(p.grad) for p in learnt if p.grad is not None}
        copies = {copy for whole, copy in ledger.casts if whole in weights}
        most, besides = ledger.most(weights), ledger.most(weights | gradients | copies)
        held, own = (sum(p.nbytes for p in many) for many in (model.parameters(), learnt))
        fixed = sum(one.nbytes for one in model.buffers())
        remembered = _remembered(model, chosen)
    done.append(Operation(0, 2 * own + 2 * held + 2 * remembered))  # the norm of gradients, and the update
    flops, peak = sum(one.flops for one in done), held + fixed + remembered + most
    return Training(rows, length, flops, held, own, remembered, fixed, besides, peak, tuple(done))


def held(model: nn.Module, settings: TrainSettings) -> tuple[int, int, int]:
    """Bytes of weights, of their gradients, and of what the optimiser remembers, before any activation.

    The model may be on the meta device. What is remembered of a small matrix says how much it is of a large one.
    """
    weights = sum(p.nbytes for p in model.parameters())
    learnt = sum(p.nbytes for p in model.parameters() if p.requires_grad)
    small = nn.Linear(64, 64, bias=False)
    return weights, learnt, learnt * (_remembered(small, settings) // small.weight.nbytes)


def _remembered(model: nn.Module, settings: TrainSettings) -> int:
    """Bytes of what the optimiser remembers after a step."""
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimiser = build_optimiser(model, settings)
    optimiser.step()
    return _bytes(dict(optimiser.state))


def _tokens(rows: int, length: int) -> Tensor:
    return torch.zeros(rows, length, dtype=torch.long)


def _language(model: Any, rows: int, length: int, settings: TrainSettings | None) -> Tensor:
    tokens = _tokens(rows, length)
    return OBJECTIVES[model.objective](model, Batch(tokens, tokens, reset_state=True), None)[0]


def _translation(model: Any, rows: int, length: int, settings: TrainSettings | None) -> Tensor:
    tokens = _tokens(rows, length)
    smoothing = float(getattr(settings, "label_smoothing", 0.0))
    loss: Tensor = model.loss(tokens, tokens, model.start(tokens), None, smoothing, goes_on=False)[0]
    return loss


@dataclass(frozen=True)
class _Hidden:
    """A batch of full rows with some places hidden."""

    tokens: Tensor
    places: Tensor
    hidden: Tensor
    targets: Tensor
    segments: Tensor | None
    other: Tensor | None
    lengths: None = None


def _masked(model: Any, rows: int, length: int, settings: TrainSettings | None) -> Tensor:
    tokens = _tokens(rows, length)
    places = _tokens(rows, max(1, round(length * float(getattr(settings, "mask", HIDDEN)))))
    pairs = model.config.next_sentence
    batch = _Hidden(
        tokens,
        places,
        torch.ones_like(places, dtype=torch.bool),
        places.flatten(),
        tokens if pairs else None,
        tokens[:, 0] if pairs else None,
    )
    return masked_language_loss(model, batch, None)[0]


def _contexts(model: Any, rows: int, length: int, settings: TrainSettings | None) -> Tensor:
    return context_loss(
        model, Batch(_tokens(rows, length), _tokens(rows, length), True, torch.full((rows,), length)), None
    )[0]


LOSSES: dict[str, Callable[[Any, int, int, TrainSettings | None], Tensor]] = {
    "language": _language,
    "translation": _translation,
    "masked": _masked,
    "contexts": _contexts,
}
"""The loss of a batch of full rows, by what a model is trained for."""
