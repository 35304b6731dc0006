"""Lengths of chains of operations in a model, measured by tracking tensors through it.

    sequential   the longest chain of dependent operations: these cannot run in parallel
    path         the shortest chain of operations from the first token to the output at the last one: the distance that
                 a signal, and its gradient, travels

Arithmetic counts as an operation: a matmul, a sum, a sigmoid, softmax(Q Kᵀ) V as one. Copying, indexing and
concatenating do not. The longest chain is measured while the model reads the whole text at once. The shortest is
measured token by token, through the states: only the first token is tracked, and each result computed from a tracked
tensor is one operation further. By the chunk law this is the same function, and it keeps tokens apart. One exception:
for restricted attention with several heads the path may come out too short.

The table of layers (Vaswani et al., 2017, Table 1) is measured in the same way. Its FLOPs are those of one layer of n
tokens and width d: for attention only softmax(Q Kᵀ) V, as in the paper, for the others all.

Legend: n tokens, d width, k kernel width, r span of restricted attention.
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
"""Operations that move numbers and compute none."""


class Reach(NamedTuple):
    """A range of elements of a storage, and the length of the chain that computed them."""

    begin: int
    end: int
    length: float


class ChainTracker(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A context that tracks the length of the chain of operations behind every tensor.

    ``join`` combines the chains of an operation's inputs: max for the longest chain, min for the shortest.
    """

    def __init__(self, join: Callable[..., float], untracked: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.join, self.untracked = join, untracked
        self._spans: dict[int, list[Reach]] = {}
        self._storages: list[Any] = []  # kept alive, so that no address is used again

    def track(self, tensor: Tensor) -> None:
        """Start chains at a tensor."""
        self._add(tensor, [Reach(*_extent(tensor), 0)])

    def length(self, tensor: Tensor) -> float:
        """The length of the chain behind a tensor."""
        return self.join((span.length for span in self._overlapping(tensor)), default=self.untracked)

    def _overlapping(self, tensor: Tensor) -> list[Reach]:
        """The spans of a tensor's storage, cut to the tensor."""
        begin, end = _extent(tensor)
        spans = self._spans.get(tensor.untyped_storage()._cdata, [])
        return [Reach(max(a, begin), min(b, end), length) for a, b, length in spans if a < end and begin < b]

    def _add(self, tensor: Tensor, spans: list[Reach]) -> None:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._spans:
            self._storages.append(storage)
        self._spans.setdefault(storage._cdata, []).extend(spans)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation and store the chain length of its result."""
        inputs = [leaf for leaf in _pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        copied = self._concatenated(inputs) if func._overloadpacket in (aten.cat, aten.clone, aten._to_copy) else None
        length = self.join(map(self.length, inputs), default=self.untracked)
        length += func._overloadpacket not in COPIES
        result = func(*args, **(kwargs or {}))
        for output in () if func.is_view else _pytree.tree_leaves(result):  # a view shares its storage
            if isinstance(output, Tensor) and length != self.untracked:
                in_order = copied is not None and output.is_contiguous() and _leading(output, args) == 1
                self._add(output, copied if in_order else [Reach(*_extent(output), length)])  # type: ignore[arg-type]
        return result

    def _concatenated(self, inputs: list[Tensor]) -> list[Reach] | None:
        """The spans of tensors stored one after the other; None if a tensor is not contiguous."""
        if not all(tensor.is_contiguous() for tensor in inputs):
            return None
        spans: list[Reach] = []
        offset = 0
        for tensor in inputs:
            shift = offset - int(tensor.storage_offset())
            for begin, end, length in self._overlapping(tensor):
                extends = spans and spans[-1].end == begin + shift and spans[-1].length == length
                first = spans.pop().begin if extends else begin + shift
                spans.append(Reach(first, end + shift, length))
            offset += tensor.numel()
        return spans


def _extent(tensor: Tensor) -> tuple[int, int]:
    """The index of a tensor's first element in its storage, and the index after the last."""
    begin = int(tensor.storage_offset())
    if not tensor.numel():
        return begin, begin
    return begin, begin + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride())) + 1


def _leading(result: Tensor, args: Any) -> int:
    """The product of the sizes of the dimensions before the one that tensors are concatenated along."""
    dim = args[1] if len(args) > 1 and isinstance(args[1], int) else 0
    return math.prod(result.shape[: dim % max(result.dim(), 1)])


@dataclass(frozen=True, slots=True)
class Depth:
    """The lengths of a model's chains for a text of ``length`` tokens."""

    length: int
    sequential: int
    path: int | None
    """None if the first token does not reach the last, and for models that cannot read token by token."""


def depth(model: Any, length: int) -> Depth:
    """The chain lengths of a model on the meta device.

    For an encoder–decoder the source has as many tokens, and the path is that within the target.
    """
    model.eval()
    tokens = torch.zeros(1, length, dtype=torch.long, device="meta")
    with reference_kernels(model), torch.no_grad():
        with ChainTracker(max, 0) as tracker:
            output = model(tokens, model.start(tokens)) if is_conditional(model) else model(tokens)
        sequential = int(tracker.length(output.logits))
        if not model.traits.steps:
            return Depth(length, sequential, None)

        def step(x: Tensor, state: Any) -> tuple[Tensor, Any]:
            output = model(x, state)
            return output.logits, output.state

        first = model.start(tokens) if is_conditional(model) else None
        return Depth(length, sequential, shortest_path(step, tokens, first))


def shortest_path(step: Callable[[Tensor, Any], Any], x: Tensor, state: Any = None) -> int | None:
    """The shortest chain from the first position of x (1, n, …) to the output at the last, step by step."""
    inputs = [part.clone() for part in torch.split(x, 1, dim=1)]
    with torch.no_grad(), ChainTracker(min, math.inf) as tracker:
        tracker.track(inputs[0])
        for one in inputs:
            y, state, *_ = step(one, state)
    length = tracker.length(y)
    return int(length) if length < math.inf else None


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerSettings:
    """Settings of the table of layers."""

    length: int = 1000
    """n, the number of tokens."""
    hidden: int = 1000
    """d, the width of a layer."""
    kernel: int = 3
    """k, the kernel width of a convolution."""
    span: int = 100
    """r, the number of tokens that restricted attention reads."""

    def __post_init__(self) -> None:
        check_positive(self, "length", "hidden", "kernel", "span")
        check(self, "kernel", self.kernel >= 2, "at least 2")
        check(self, "length", self.length >= 2, "at least 2")


@dataclass(frozen=True, slots=True)
class LayerCost:
    """A row of the table of layers."""

    layer: str
    flops: int
    """FLOPs of one layer for n tokens."""
    order: str
    """The order of the FLOPs, without O(·)."""
    constant: float
    """FLOPs divided by the order."""
    sequential: int
    path: int
    """Over as many layers as the first token needs to reach the last."""
    layers: int
    """The number of those layers."""


class Dilated(nn.Module):
    """A stack of causal convolutions, each k times as dilated as the one below, until it reaches the first token."""

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
"""The width for measuring chains, whose length does not depend on it."""


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
    """The table for self-attention, recurrent (LSTM) and convolutional layers and restricted attention."""
    n, d, k, r = settings.length, settings.hidden, settings.kernel, min(settings.span, settings.length)
    x, dilated, narrow = torch.zeros(1, n, NARROW), Dilated(NARROW, k, n), MixerConfig(width=NARROW)
    attention, near = SelfAttention(narrow), LocalAttention(narrow, span=r)
    recurrent = Recurrent(LSTMCell(NARROW, NARROW), "reference")
    hops = math.ceil((n - 1) / max(r - 1, 1))  # a layer of restricted attention reaches r − 1 tokens back
    flops = layer_flops(settings)
    measured: dict[str, tuple[nn.Module, str, int, int | None, int]] = {
        "self-attention": (attention, "n² d", n**2 * d, shortest_path(attention, x), 1),
        "recurrent (LSTM)": (recurrent, "n d²", n * d**2, shortest_path(recurrent, x), 1),
        "convolutional": (dilated.layers[0], "k n d²", k * n * d**2, shortest_path(dilated, x), len(dilated.layers)),
        "restricted attention": (near, "r n d", r * n * d, hops * (shortest_path(near, x[:, :r]) or 0), hops),
    }
    return [
        LayerCost(name, flops[name], order, flops[name] / unit, _sequential(layer, x), path or 0, layers)
        for name, (layer, order, unit, path, layers) in measured.items()
    ]


def _flops(build: Callable[[], nn.Module], length: int, width: int) -> int:
    """FLOPs of one layer; for attention without its projections."""
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
    with torch.no_grad(), ChainTracker(max, 0) as tracker:
        y = layer(x)[0]
    return int(tracker.length(y))
