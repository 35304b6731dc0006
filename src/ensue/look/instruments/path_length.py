"""How long the chains of operations in a model are, counted by following tensors through it.

    sequential   the longest chain of operations, each of which needs the one before: what no machine can do at once
    path         the shortest chain of operations from the first token to the answer at the last one: how far a signal,
                 and its gradient, has to go

An operation is what computes: a product, a sum, a sigmoid, softmax(Q Kᵀ) V as one; to copy, pick or join is none. The
first is followed while a text is read as a whole. The second is followed token by token, through the states: only the
first token is marked, and whatever is made of something marked is one operation further. That is the same function as
the whole text (the chunk law), and keeps apart what belongs to which token; but for what several heads of restricted
attention remember, whose path may come out too short.

The table of layers (Vaswani et al., 2017, Table 1) is counted the same way. Its products are those of one layer of n
tokens and width d: of attention only softmax(Q Kᵀ) V, as the table has it, of the others all.

Legend: n tokens, d width, k width of a kernel, r tokens that restricted attention sees.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from ensue.core.settings import check, check_positive
from ensue.measure.cost import is_conditional, reference_kernels
from ensue.nn.convolution import CausalConvolution
from ensue.nn.mixers.full import SelfAttention
from ensue.nn.mixers.local import LocalAttention
from ensue.nn.mixers.mixer import MixerConfig
from ensue.nn.recurrent import LSTMCell, Recurrent

FAR = math.inf
aten = torch.ops.aten
# fmt: off
COPIES = {
    aten.alias, aten.arange, aten.cat, aten.clone, aten.constant_pad_nd, aten.copy, aten.copy_, aten.detach,
    aten.embedding, aten.empty, aten.empty_like, aten.expand, aten.fill_, aten.full, aten.full_like, aten.gather,
    aten.index, aten.index_select, aten.lift_fresh, aten.new_empty, aten.new_full, aten.new_ones, aten.new_zeros,
    aten.ones, aten.ones_like, aten._reshape_alias, aten.scatter, aten.scatter_, aten.stack, aten._to_copy,
    aten._unsafe_view, aten.zero_, aten.zeros, aten.zeros_like,
}
# fmt: on
"""What moves numbers and computes none."""


class Mark(NamedTuple):
    """How many operations lie behind some numbers of a piece of memory."""

    begin: int
    end: int
    behind: float


class Chains(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A block in which it is followed how many operations lie behind what is in memory.

    ``join`` says what counts where several things come together: max for the longest chain, min for the shortest.
    """

    def __init__(self, join: Callable[..., float], unmarked: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.join, self.unmarked = join, unmarked
        self._marks: dict[int, list[Mark]] = {}
        self._held: list[Any] = []  # so that no piece of memory gets the name of one that is gone

    def mark(self, tensor: Tensor) -> None:
        """Begin to count at a tensor."""
        self._put(tensor, [Mark(*_extent(tensor), 0)])

    def of(self, tensor: Tensor) -> float:
        """How many operations lie behind a tensor."""
        marks = self._marks.get(tensor.untyped_storage()._cdata)
        if not marks:
            return self.unmarked
        begin, end = _extent(tensor)
        return self.join((behind for a, b, behind in marks if a < end and begin < b), default=self.unmarked)

    def _within(self, tensor: Tensor) -> list[Mark]:
        begin, end = _extent(tensor)
        marks = self._marks.get(tensor.untyped_storage()._cdata, [])
        return [Mark(max(a, begin), min(b, end), behind) for a, b, behind in marks if a < end and begin < b]

    def _put(self, tensor: Tensor, marks: list[Mark]) -> None:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._marks:
            self._held.append(storage)
        self._marks.setdefault(storage._cdata, []).extend(marks)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do an operation and note how far its answer is."""
        given = [one for one in _pytree.tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
        moved = self._moved(given) if func._overloadpacket in (aten.cat, aten.clone, aten._to_copy) else None
        behind = self.join((self.of(one) for one in given), default=self.unmarked)
        behind += func._overloadpacket not in COPIES
        result = func(*args, **(kwargs or {}))
        for one in () if func.is_view else _pytree.tree_leaves(result):  # a view has what it is a view of
            if isinstance(one, Tensor) and behind != self.unmarked:
                straight = moved is not None and one.is_contiguous() and _leading(one, args) == 1
                self._put(one, moved if straight else [Mark(*_extent(one), behind)])  # type: ignore[arg-type]
        return result

    def _moved(self, given: list[Tensor]) -> list[Mark] | None:
        """The marks of tensors that are put one after the other; None where their numbers do not lie in order."""
        if not all(one.is_contiguous() for one in given):
            return None
        found: list[Mark] = []
        at = 0
        for one in given:
            shift = at - int(one.storage_offset())
            for begin, end, behind in self._within(one):
                joins = found and found[-1].end == begin + shift and found[-1].behind == behind
                first = found.pop().begin if joins else begin + shift
                found.append(Mark(first, end + shift, behind))
            at += one.numel()
        return found


def _extent(tensor: Tensor) -> tuple[int, int]:
    """Where a tensor's first number stands in its memory, and what comes after the last."""
    begin = int(tensor.storage_offset())
    if not tensor.numel():
        return begin, begin
    return begin, begin + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride())) + 1


def _leading(result: Tensor, args: Any) -> int:
    """How many rows stand before the dimension along which tensors are joined."""
    dim = args[1] if len(args) > 1 and isinstance(args[1], int) else 0
    return math.prod(result.shape[: dim % max(result.dim(), 1)])


@dataclass(frozen=True, slots=True)
class Depth:
    """How long the chains of a model are for a text of ``length`` tokens."""

    length: int
    sequential: int
    path: int | None
    """None where the first token does not reach the last, and of a model that has no steps: what belongs to which token
    is not kept apart there."""


def depth(model: Any, length: int) -> Depth:
    """The chains of a model on the meta device; of one that reads a source, of as many tokens, the path is within the
    target."""
    model.eval()
    tokens = torch.zeros(1, length, dtype=torch.long, device="meta")
    with reference_kernels(model), torch.no_grad():
        with Chains(max, 0) as chains:
            output = model(tokens, model.start(tokens)) if is_conditional(model) else model(tokens)
        sequential = int(chains.of(output.logits))
        if not model.traits.steps:
            return Depth(length, sequential, None)
        first = model.start(tokens) if is_conditional(model) else None
        return Depth(length, sequential, _path(lambda x, state: _answer(model, x, state), tokens, first))


def _answer(model: Any, x: Tensor, state: Any) -> tuple[Tensor, Any]:
    output = model(x, state)
    return output.logits, output.state


def _path(step: Callable[[Tensor, Any], Any], x: Tensor, state: Any = None) -> int | None:
    """The shortest chain from the first of x (1, n, …) to the answer at the last, step by step."""
    places = [one.clone() for one in torch.split(x, 1, dim=1)]
    with torch.no_grad(), Chains(min, FAR) as chains:
        chains.mark(places[0])
        for place in places:
            y, state, *_ = step(place, state)
    return int(chains.of(y)) if chains.of(y) < FAR else None


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerSettings:
    """What the table of layers is counted for."""

    length: int = 1000
    """n, how many tokens there are."""
    hidden: int = 1000
    """d, the width of a layer."""
    kernel: int = 3
    """k, how many tokens a convolution sees."""
    span: int = 100
    """r, how many tokens restricted attention sees."""

    def __post_init__(self) -> None:
        check_positive(self, "length", "hidden", "kernel", "span")
        check(self, "kernel", self.kernel >= 2, "at least 2")
        check(self, "length", self.length >= 2, "at least 2")


@dataclass(frozen=True, slots=True)
class LayerCost:
    """A line of the table of layers."""

    layer: str
    flops: int
    """Of one layer that reads n tokens."""
    order: str
    """What that is in the order of."""
    constant: float
    """How many times that it is: the table's O(·) with its constant."""
    sequential: int
    path: int
    """Over as many layers as the first token needs to reach the last."""
    layers: int
    """How many layers that are."""


class Dilated(nn.Module):
    """Causal convolutions on each other, each k times as dilated as the one before, until the first token is seen."""

    def __init__(self, width: int, kernel: int, length: int) -> None:
        super().__init__()
        reach, layers = 1, []
        while reach < length:
            layers.append(CausalConvolution(width, width, kernel, reach))
            reach *= kernel
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """(B, T, D) → (B, T, D)."""
        after = []
        for layer, past in zip(self.layers, state or [None] * len(self.layers)):
            x, new = layer(x, past)
            after.append(new)
        return x, after


NARROW = 2
"""The width that chains are followed with: they are as long whatever it is."""


def layer_flops(settings: LayerSettings) -> dict[str, int]:
    """FLOPs of one layer of each kind."""
    n, d, r = settings.length, settings.hidden, min(settings.span, settings.length)
    kinds: dict[str, Callable[[], nn.Module]] = {
        "self-attention": lambda: SelfAttention(MixerConfig(width=d)),
        "recurrent (LSTM)": lambda: Recurrent(LSTMCell(d, d), "reference"),
        "convolutional": lambda: CausalConvolution(d, d, settings.kernel),
        "restricted attention": lambda: LocalAttention(MixerConfig(width=d), span=r),
    }
    return {name: _flops(build, n, d) for name, build in kinds.items()}


def layer_table(settings: LayerSettings) -> list[LayerCost]:
    """Self-attention, recurrent (LSTM), convolutional and restricted attention, counted."""
    n, d, k, r = settings.length, settings.hidden, settings.kernel, min(settings.span, settings.length)
    x, dilated, narrow = torch.zeros(1, n, NARROW), Dilated(NARROW, k, n), MixerConfig(width=NARROW)
    attention, near = SelfAttention(narrow), LocalAttention(narrow, span=r)
    recurrent = Recurrent(LSTMCell(NARROW, NARROW), "reference")
    hops = math.ceil((n - 1) / max(r - 1, 1))  # a layer of restricted attention reaches r − 1 tokens back
    flops = layer_flops(settings)
    found: dict[str, tuple[nn.Module, str, int, int | None, int]] = {
        "self-attention": (attention, "n² d", n**2 * d, _path(attention, x), 1),
        "recurrent (LSTM)": (recurrent, "n d²", n * d**2, _path(recurrent, x), 1),
        "convolutional": (dilated.layers[0], "k n d²", k * n * d**2, _path(dilated, x), len(dilated.layers)),
        "restricted attention": (near, "r n d", r * n * d, hops * (_path(near, x[:, :r]) or 0), hops),
    }
    return [
        LayerCost(name, flops[name], order, flops[name] / unit, _sequential(layer, x), path or 0, layers)
        for name, (layer, order, unit, path, layers) in found.items()
    ]


def _flops(build: Callable[[], nn.Module], length: int, width: int) -> int:
    """FLOPs of one layer; of attention without what is projected."""
    with torch.device("meta"):
        layer, x = build(), torch.zeros(1, length, width)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        layer(x)
    flops = int(counter.get_total_flops())
    if isinstance(layer, SelfAttention):
        flops -= 2 * length * sum(part.weight.numel() for part in (layer.project, layer.out))
    return flops


def _sequential(layer: nn.Module, x: Tensor) -> int:
    """The longest chain of one layer."""
    with torch.no_grad(), Chains(max, 0) as chains:
        y = layer(x)[0]
    return int(chains.of(y))
