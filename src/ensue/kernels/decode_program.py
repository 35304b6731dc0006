"""A decode program: everything a decoder does to one token of a few rows, as instructions that run in one call.

What a model does to one token is hundreds of small operations, and each call costs as much as it computes. A program
holds them as instructions (which weights, from where, to where), and a compiled loop interprets all of them on torch's
threads (ensue.kernels.decode_loops). ``ensue.nn.decode_compiler`` writes the program of a model:

    h = program.norm(block.norm_feed, x)
    u = program.linear(block.feed.up, h, "gelu")
    program.linear(block.feed.down, u, onto=x)                    x + W_2 f(W_1 LN(x) + b_1) + b_2

A program points to the model's weights and copies only small ones (see ``copied``), so it sees weights that change in
place. It is for few
rows, one token each, outside autograd.

Legend: R rows, D width, H heads, G key–value heads, d head width, N sequences of a cache, C its columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from ensue.kernels.grouped import GroupedLinear
from ensue.kernels.int8 import QuantisedLinear
from ensue.kernels.threads import LANES

NORM, LINEAR, ATTEND, RECUR = 1, 2, 3, 4
"""Operations."""
WIDTH = 32
"""int64s of an instruction: 0 is the operation, the rest are its fields."""
STORE, ADD, MULTIPLY = 0, 1, 2
"""What a linear layer does with its result: store it, add it to what is there, or multiply the two."""
ACTIVATIONS = {"": 0, "gelu": 1, "relu": 2, "silu": 3}
FEATURES = {"": 0, "elu": 1}
"""Features φ of queries and keys: themselves, or elu(x) + 1."""
FEW, MANY = ROWS = (16, 128)
"""The most rows of a program, of few rows or of many hypotheses; with more, torch is as fast."""
MAX_INPUTS = 16384
"""The most inputs of a linear layer."""
OUT = 10
"""The field of a linear layer that has the address of its result."""
OUTPUTS = 32
"""Outputs of a linear layer that are one chunk of work."""
LINE = 64
"""Bytes of a cache line, which has one counter of a range, so that threads do not write into the same one."""
FINISHED, PREPARED, PREPARING, RANGES = BOARD = 0, 8, 16, LINE
"""Where an instruction's counters are in its part of them, all 0 at first: how many chunks are finished; how many are
finished and taken of what has to be done before; and from RANGES on, how many are taken of each range of chunks."""


Rotary = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Positions (R or 1, T) and a tensor of the wanted type → cos and sin (R or 1, T, d)."""


class NotCompilable(Exception):
    """Something for which there is no instruction."""


class StateLayer(NamedTuple):
    """An instruction that changes a layer's own state: a cache that it appends to, or a matrix."""

    number: int
    """Of the instruction."""
    rotary: Rotary | None
    span: int = 0
    """How many columns of a cache a row sees; 0 means all."""
    recurrent: bool = False
    """Whether the state is a matrix."""


@cache
def optimiser_steps() -> list[int]:
    """The number of steps that all optimisers have made since the first call, as a list of one number."""
    steps = [0]

    def count(*_: Any) -> None:
        steps[0] += 1

    register_optimizer_step_post_hook(count)
    return steps


@dataclass(eq=False)
class DecodeProgram:
    """Instructions, and buffers (rows, width) for what is passed between them."""

    rows: int = FEW
    code: list[list[int]] = field(default_factory=list)
    weights: list[Tensor] = field(default_factory=list)
    """Weights that the program points to, kept alive."""
    buffers: list[Tensor] = field(default_factory=list)
    attends: list[int] = field(default_factory=list)
    """The numbers of the instructions that attend to a cache, in order."""
    layers: list[StateLayer] = field(default_factory=list)
    """The instructions that change the states of layers, in order."""
    rotaries: dict[Any, Rotary] = field(default_factory=dict)
    """Rotary positions by what they depend on."""
    angles: dict[Rotary, tuple[int, Tensor, Tensor]] = field(default_factory=dict)
    """cos and sin of a block of positions by rotary positions, with the block's number, for steps to look up."""
    answers: list[int] = field(default_factory=list)
    """The numbers of the instructions that write the program's output."""
    head_width: int = 0
    """The widest head."""
    inputs: int = 0
    """The most inputs of a linear layer."""
    sources: list[Tensor] = field(default_factory=list)
    """Weights of which the program has copies."""
    copies: list[tuple[Tensor, Callable[[], Tensor]]] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    """What ``_versions`` was when they were copied."""

    def buffer(self, width: int) -> Tensor:
        """A new buffer (rows, width)."""
        with torch.inference_mode(False):  # else it could be written in that mode alone
            self.buffers.append(torch.zeros(self.rows, width, dtype=torch.float32, device="cpu"))
        return self.buffers[-1]

    def norm(self, layer: nn.Module, x: Tensor, onto: Tensor | None = None) -> Tensor:
        """LayerNorm or RMSNorm of x, in a new buffer or added to the buffer ``onto``; x itself for an identity."""
        if type(layer) is nn.Identity and onto is None:
            return x
        z = self.buffer(x.shape[1]) if onto is None else onto
        self._check_width(z.shape[1], x)
        self._norm(layer, x, z, 1, STORE if onto is None else ADD)
        return z

    def norm_heads(self, layer: nn.Module, x: Tensor, heads: int) -> None:
        """LayerNorm or RMSNorm of each of the heads in a part x (rows, H·d) of a buffer, in place."""
        self._norm(layer, x, x, heads, STORE)

    def _norm(self, layer: nn.Module, x: Tensor, z: Tensor, parts: int, how: int) -> None:
        """The norm of each of ``parts`` equal parts of the rows of x, in z."""
        if not isinstance(layer, nn.LayerNorm | nn.RMSNorm) or len(layer.normalized_shape) != 1:
            raise NotCompilable(type(layer).__name__)
        if layer.weight is None:
            raise NotCompilable("a norm without weights")
        width = layer.normalized_shape[0]
        self._check_width(parts * width, x)
        epsilon = self._constant(torch.finfo(torch.float32).eps if layer.eps is None else layer.eps)
        bias = getattr(layer, "bias", None)
        weight, shift = self._weight(layer.weight), 0 if bias is None else self._weight(bias)
        centred, row = int(isinstance(layer, nn.LayerNorm)), x.stride(0)
        self._add(NORM, width, x, z, weight, shift, epsilon, centred, parts, row, z.stride(0), how)

    def linear(
        self,
        layer: nn.Module,
        x: Tensor,
        activation: str = "",
        onto: Tensor | None = None,
        combine: int = ADD,
        answer: bool = False,
        plus: Tensor | None = None,
    ) -> Tensor:
        """f(W x + b + plus): in a new buffer, combined with the buffer ``onto``, or as the program's output."""
        weight: Tensor
        scale: Tensor | int = 0
        most = 0
        groups: tuple[Tensor | int, ...] = (0, 0, 0, 0, 0)
        if isinstance(layer, QuantisedLinear) and plus is not None:
            raise NotCompilable("something added to an int8 layer")
        if isinstance(layer, QuantisedLinear):
            weight, scale, most = self._weight(layer.panels), self._weight(layer.scale), layer.most
        elif type(layer) is GroupedLinear:
            weight, scale, most, groups = self._groups(layer)
        elif type(layer) is nn.Linear:
            weight = self._weight(layer.weight)
        else:
            raise NotCompilable(type(layer).__name__)
        outputs, inputs = layer.out_features, layer.in_features
        self._check_width(inputs, x)
        whole = inputs % LANES == 0 and outputs >= LANES and not (activation and outputs % LANES)
        if not whole or inputs > MAX_INPUTS or activation not in ACTIVATIONS:
            raise NotCompilable(f"a layer of {inputs} inputs and {outputs} outputs with activation {activation!r}")
        for one in (onto, plus):
            if one is not None:
                self._check_width(outputs, one)
        bias = self._weight(layer.bias) if isinstance(layer.bias, Tensor) else 0
        y = x if answer else self.buffer(outputs) if onto is None else onto
        if answer:
            self.answers.append(len(self.code))
        kind, self.inputs = ACTIVATIONS[activation], max(self.inputs, inputs)
        how = STORE if onto is None else combine
        self._add(
            LINEAR, inputs, outputs, kind, how, weight, scale, bias, x, y, most, *groups, 0 if plus is None else plus
        )
        return y

    def copied(self, sources: Sequence[Tensor], make: Callable[[], Tensor]) -> nn.Linear:
        """A layer whose weights are made of others, and made again when those change."""
        made = make().detach()
        layer = nn.Linear(made.shape[1], made.shape[0], bias=False, device="meta")
        layer.weight = nn.Parameter(made, requires_grad=False)
        self.sources += sources
        self.copies.append((made, make))
        self.versions = self._versions()
        return layer

    def refresh(self) -> None:
        """Make copies again if their sources have changed."""
        if not self.copies or (versions := self._versions()) == self.versions:
            return
        for copy, make in self.copies:
            copy.copy_(make())
        self.versions = versions

    def _versions(self) -> list[int]:
        """The versions of the sources, and the steps of optimisers: fused ones change weights without a new version."""
        return [*optimiser_steps(), *(source._version for source in self.sources)]

    def attend(
        self,
        projected: Tensor,
        heads: int,
        kv_heads: int,
        width: int,
        append: bool,
        span: int = 0,
        cap: float = 0.0,
        rotary: tuple[Any, Rotary] | None = None,
    ) -> Tensor:
        """What each row sees of a cache, which the runner is given: (rows, H·d).

        ``projected`` begins with queries of ``width`` H·d; with ``append`` new keys and values of G·d each follow,
        which first join the cache. With a ``span`` a row sees its last ``span`` columns only, with a ``cap`` c its
        scores s are c tanh(s / c). ``rotary`` is what its rotary positions depend on, and the positions.
        """
        d = width // heads
        if d % LANES:
            raise NotCompilable(f"heads of width {d}")
        self._check_width(width + (2 * kv_heads * d if append else 0), projected)
        y = self.buffer(width)
        new = (projected[:, width:], projected[:, width + kv_heads * d :]) if append else (0, 0)
        if append:
            self._state_layer(rotary, span)
        bound = self._constant(cap) if cap else 0
        row, cache, rest = projected.stride(0), [0] * 5, [0] * 8  # what the runner writes
        self.attends.append(len(self.code))
        self._add(ATTEND, heads, d, int(append), projected, *new, row, *cache, y, *rest, kv_heads, 0, span, bound)
        self.head_width = max(self.head_width, d)
        return y

    def recur(
        self,
        projected: Tensor,
        heads: int,
        kv_heads: int,
        width: int,
        features: str = "",
        decays: Tensor | None = None,
        roots: int = 0,
        rotary: tuple[Any, Rotary] | None = None,
    ) -> Tensor:
        """What each row reads of a matrix, which its new key and value first join: (rows, H·d).

        ``projected`` is as for ``attend``. With the features ``elu`` y is divided by the sum of weights, without them
        by √d. ``decays`` are the log-decays of heads (1, H, 1, 1), or u (rows, H·d) of the decays of channels,
        σ(u)^(1/2ⁿ) with n ``roots``. See ensue.kernels.decode_recurrence.
        """
        d = width // heads
        if d % LANES or features not in FEATURES:
            raise NotCompilable(f"heads of width {d} with features {features!r}")
        self._check_width(width + 2 * kv_heads * d, projected)
        each = 0
        if decays is not None and decays.dim() == 2:
            self._check_width(width, decays)
            each = decays.stride(0)
        elif decays is not None:
            if decays.shape != (1, heads, 1, 1) or decays.dtype != torch.float32:
                raise NotCompilable(f"decays {tuple(decays.shape)}")
            self._weight(decays)
        y = self.buffer(width)
        self._state_layer(rotary, recurrent=True)
        new = projected[:, width:], projected[:, width + kv_heads * d :]
        kind, fall, states, angles = FEATURES[features], 0 if decays is None else decays, [0] * 4, [0] * 3
        row = projected.stride(0)
        self._add(RECUR, heads, d, kv_heads, projected, *new, row, *states, y, *angles, kind, fall, each, roots)
        self.head_width = max(self.head_width, d)
        return y

    def _state_layer(self, rotary: tuple[Any, Rotary] | None, span: int = 0, recurrent: bool = False) -> None:
        """The next instruction changes a layer's state."""
        positions = None if rotary is None else self.rotaries.setdefault(*rotary)
        self.layers.append(StateLayer(len(self.code), positions, span, recurrent))

    def _groups(self, layer: GroupedLinear) -> tuple[Tensor, Tensor, int, tuple[Tensor | int, ...]]:
        """Codes, scales of outputs (1), the largest x̂, and the rest: scales, offsets, bits, group, whether float32."""
        if (
            layer.in_features % (2 * LANES)
            or layer.group % LANES
            or layer.scales.dtype not in (torch.float16, torch.float32)
        ):
            raise NotCompilable("groups that are not a multiple of two vectors")
        ones = torch.ones(layer.out_features, dtype=torch.float32, device="cpu")
        offsets = 0 if layer.offsets is None else self._weight(layer.offsets)
        wide = int(layer.scales.dtype == torch.float32)
        rest = self._weight(layer.scales), offsets, layer.bits, layer.group, wide
        return self._weight(layer.codes), self._weight(ones), layer.most, rest

    def _constant(self, x: float) -> Tensor:
        """A float that instructions can point to."""
        self.buffers.append(torch.tensor([x], dtype=torch.float32, device="cpu"))
        return self.buffers[-1]

    def _weight(self, weight: Tensor) -> Tensor:
        if not weight.is_contiguous():
            raise NotCompilable("weights that are not contiguous")
        self.weights.append(weight)
        return weight

    @staticmethod
    def _check_width(width: int, x: Tensor) -> None:
        """Addresses have no shapes: refuse what torch would refuse."""
        if width != x.shape[1]:
            raise NotCompilable(f"width {x.shape[1]} where {width} is needed")

    def _add(self, operation: int, *fields: Tensor | int) -> None:
        numbers = [one if isinstance(one, int) else one.data_ptr() for one in fields]
        self.code.append([operation, 0, *numbers, *[0] * (WIDTH - 2 - len(numbers))])


@dataclass(eq=False)
class CacheView:
    """What the rows of a program attend to: keys and values (N, G, C, d), and how many columns each row sees."""

    keys: Tensor
    values: Tensor
    lengths: Tensor  # (R,), int64
    index: Tensor | None = None  # (R,), which of N is a row's; None: its own number
    each: int = 1
    """How many rows share one, in order."""
    seen: Tensor | None = None  # (R, P), which columns are a row's own past, where rows share them
    rotation: tuple[Tensor, Tensor] | None = None
    """cos and sin (R or 1, 1, d) of the rows' rotary positions."""

    def alike(self, other: CacheView) -> bool:
        """Whether the two differ in the contents of keys and values alone."""
        return (
            self.lengths is other.lengths
            and self.index is other.index
            and self.seen is other.seen
            and self.rotation is other.rotation
            and self.each == other.each
            and self.keys.shape == other.keys.shape
            and self.keys.stride() == other.keys.stride() == self.values.stride()
            and self.keys.dtype == self.values.dtype == other.keys.dtype
        )
