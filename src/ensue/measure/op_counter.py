"""Counts the FLOPs and the memory of a computation, operation by operation.

A training step runs on fake tensors, which have shape, dtype and device but no data (``FakeTensorMode``), with the
kernels of this machine. So a model of any size can be counted, and the count is of the program itself, not of a
formula. The same counter works on real tensors.

Results that depend on data are fixed: a mask selects all positions, all values are distinct, a bool is False, and a
number is 1.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from ensue.kernels.threads import counted

aten = torch.ops.aten
PICKS = (aten.index.Tensor, aten.index_put_.default, aten.index_put.default, aten._index_put_impl_.default)
ALLOCATIONS = {aten.empty, aten.empty_like, aten.empty_strided, aten.new_empty, aten.new_empty_strided}
"""Operations that allocate without writing."""
LOOKUPS = {aten.embedding, aten.gather, aten.index, aten.index_select}
"""Operations that read only the rows of a table that they return."""
RECURRENT, RECURRENT_BACKWARD = aten.mkldnn_rnn_layer.default, aten.mkldnn_rnn_layer_backward.default


class Operation(NamedTuple):
    """One operation that is not just a view."""

    flops: int
    """Two per multiply-add; 0 if it is no matrix multiplication."""
    moved: int
    """Bytes that it reads and writes."""
    steps: int = 1
    """The number of consecutive matrix multiplications in it."""


class OpCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A context that records every operation."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: list[Operation] = []
        self.times = 1
        """How often an operation counts: more than once in a loop of which not every step is run."""
        self.changes: list[tuple[int, int]] = []
        """Allocations in order of time: the storage, and its bytes (negative when it is freed)."""
        self.casts: list[tuple[int, int]] = []
        """Storages that were cast to another dtype, with the copy."""
        self._storages: dict[int, int] = {}
        self._number = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation and record it."""
        kwargs = kwargs or {}
        given = _tensors((args, kwargs))
        if any(isinstance(one, FakeTensor) for one in given):
            args, result = _run_fake(func, args, kwargs)
        else:
            result = func(*args, **kwargs)
        known = {one.untyped_storage()._cdata for one in given}
        fresh = [one for one in _tensors(result) if one.untyped_storage()._cdata not in known]
        for one in fresh:
            self.hold(one)
        if func is aten._to_copy.default and fresh:
            self.casts.append((self.hold(given[0]), self.hold(fresh[0])))
        if func in (RECURRENT, RECURRENT_BACKWARD):
            self._temporary(_scratch(func, *args))
        count = _count(func._overloadpacket)
        flops = int(count(*args, **kwargs, out_val=result)) if count else 0
        if (flops or fresh or func._schema.is_mutable) and func._overloadpacket not in ALLOCATIONS:
            steps = args[0].shape[0] if func in (RECURRENT, RECURRENT_BACKWARD) else 1
            read = given[1:] if func._overloadpacket in LOOKUPS else given
            over = given[:1] if func._overloadpacket.__name__.endswith("_") else []  # read, and written over
            moved = sum(one.nbytes for one in (*read, *fresh, *over, *(fresh if read is not given else ())))
            self.operations += [Operation(flops, moved, steps)] * self.times
        return result

    @property
    def flops(self) -> int:
        """FLOPs of all operations."""
        return sum(one.flops for one in self.operations)

    def loop(self, name: str, arguments: tuple[Any, ...]) -> None:
        """Record one of our compiled loops, which torch does not see."""
        flops = LOOPS[name](arguments) if name in LOOPS else 0
        moved = sum(a.nbytes for a in arguments if isinstance(a, Tensor))
        self.operations += [Operation(flops, moved)] * self.times

    def hold(self, tensor: Tensor) -> int:
        """Record the allocation of a tensor's storage, once, and return the number of the storage."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._storages:
            return self._storages[key]
        self._number += 1
        number, size = self._number, storage.nbytes()
        self._storages[key] = number
        self.changes.append((number, size))
        weakref.finalize(storage, self._free, key, number, size)
        return number

    def _free(self, key: int, number: int, size: int) -> None:
        self._storages.pop(key, None)
        self.changes.append((number, -size))

    def _temporary(self, size: int) -> None:
        """Record memory that an operation held while it ran."""
        self._number += 1
        self.changes += [(self._number, size), (self._number, -size)]

    def peak(self, without: Iterable[int] = ()) -> int:
        """Peak memory in bytes, some storages not counted."""
        ignored, now, peak = set(without), 0, 0
        for number, size in self.changes:
            now += 0 if number in ignored else size
            peak = max(peak, now)
        return peak


@contextmanager
def fake_tensors(counter: OpCounter) -> Iterator[OpCounter]:
    """A context with fake tensors, whose operations are counted."""
    with FakeTensorMode(), counted(counter), counter:
        yield counter


@cache
def _count(packet: Any) -> Callable[..., int] | None:
    """The function that counts the FLOPs of an operation; in-place operations use that of their twin."""
    twin = getattr(aten, packet.__name__.removesuffix("_"), packet)
    return next((table[one] for one in (packet, twin) for table in (FLOPS, flop_registry) if one in table), None)


def _tensors(tree: Any) -> list[Tensor]:
    return [one for one in _pytree.tree_leaves(tree) if isinstance(one, Tensor)]


def _run_fake(func: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The arguments and the result of an operation on fake tensors."""
    if func is aten._local_scalar_dense.default and args[0].constant is None:
        return args, False if args[0].dtype == torch.bool else 1
    if func is aten._unique2.default:
        x = args[0]
        return args, (x.new_empty(x.numel()), torch.empty_like(x), x.new_empty(x.numel()))
    if func is aten.nonzero.default:
        return args, args[0].new_empty(args[0].numel(), args[0].dim(), dtype=torch.long)
    if func is aten.repeat_interleave.Tensor and kwargs.get("output_size") is None:
        return args, args[0].new_empty(args[0].numel())
    if func in PICKS:
        args = (args[0], _all_positions(args[1]), *args[2:])
    result = func(*args, **kwargs)
    if func is RECURRENT:  # torch says that there is no workspace
        result = (*result[:3], args[0].new_empty(_workspace(*args), dtype=torch.uint8))
    return args, result


def _all_positions(indices: Any) -> list[Tensor | None]:
    """Boolean masks as indices of all their positions."""
    result: list[Tensor | None] = []
    for index in indices:
        if index is not None and index.dtype in (torch.bool, torch.uint8):
            result += [index.new_empty(index.numel(), dtype=torch.long) for _ in index.shape]
        else:
            result.append(index)
    return result


def _workspace(x: Tensor, weight: Tensor, *rest: Any) -> int:
    """Bytes that oneDNN keeps of an LSTM (T, B, D) → (T, B, N) for the backward pass.

    Measured, since oneDNN does not report it: 4 N of gates per step, and about 6.4 max(N, D) + 5.1 N of the rest.
    """
    time, rows, width = x.shape
    hidden = weight.shape[0] // 4
    return int(4 * rows * (time * 4 * hidden + (time + 1) * (6.4 * max(width, hidden) + 5.1 * hidden)))


def _scratch(func: Any, x: Tensor, weight_x: Tensor, weight_h: Tensor, *rest: Any) -> int:
    """Bytes that oneDNN holds while it runs: reordered weights, their gradients, and gates."""
    weights = weight_x.nbytes + weight_h.nbytes
    return (1 if func is RECURRENT else 2) * weights + 4 * x.shape[0] * x.shape[1] * weight_x.shape[0]


def _recurrent(x: Tensor, weight_x: Tensor, weight_h: Tensor, *rest: Any, **more: Any) -> int:
    """Both matrix multiplications of every step."""
    return 2 * x.shape[0] * x.shape[1] * (weight_x.numel() + weight_h.numel())


def _attention(query: Tensor, key: Tensor, value: Tensor, *rest: Any, **more: Any) -> int:
    """Q Kᵀ and P V."""
    return 2 * prod(query.shape[:-1]) * key.shape[-2] * (key.shape[-1] + value.shape[-1])


def _attention_backward(above: Tensor, query: Tensor, key: Tensor, value: Tensor, *rest: Any, **more: Any) -> int:
    """∂V, ∂P, ∂Q and ∂K; recomputing P is not counted."""
    return 2 * _attention(query, key, value)


def _linear(x: Tensor, weight: Tensor, *rest: Any, **more: Any) -> int:
    """x Wᵀ, (M, D), (N, D)."""
    return 2 * x.numel() * weight.shape[0]


FLOPS: dict[Any, Callable[..., int]] = {
    torch.ops.mkldnn._linear_pointwise: _linear,
    aten.mkldnn_rnn_layer: _recurrent,
    aten.mkldnn_rnn_layer_backward: lambda *inputs, **more: 2 * _recurrent(*inputs),
    aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
}
"""Operations that torch does not count."""


def _short_attention(times: int, arguments: tuple[Any, ...]) -> int:
    """FLOPs of loops whose last argument is the weights (H, T, S), flat, with T rounded up to whole tiles."""
    return times * 2 * int(arguments[-1].numel()) * int(arguments[2])


def _blocked_attention(times: int, arguments: tuple[Any, ...]) -> int:
    """FLOPs of loops with rows, heads and head width first, and Q (B T, D) and K (B S, D) after eight others.

    The fifth number is 1 where no query sees a later key, the sixth the span of keys that one sees; 0: all.
    """
    rows, heads, width = arguments[:3]
    queries, keys, (causal, span) = arguments[QUERIES], arguments[QUERIES + 2], arguments[CAUSAL : SPAN + 1]
    near, seen = span if causal else 2 * span - 1, len(keys) // rows
    return int(times * 2 * len(queries) * (min(near, seen) if span else seen) * heads * width)


def _recurrent_steps(arguments: tuple[Any, ...]) -> int:
    """FLOPs of loops with rows, steps, width, a barrier and U (G N, N) first: U h of every step, or its gradient."""
    return int(2 * arguments[0] * arguments[1] * arguments[4].numel())


CAUSAL, SPAN, QUERIES = 4, 5, 11
"""Where direction, span and queries are in the arguments of blocked attention; tensors are followed by strides."""
LOOPS: dict[str, Callable[[tuple[Any, ...]], int]] = {
    "attend": partial(_short_attention, 2),
    "attend_backward": partial(_short_attention, 4),
    "attend_blocks": partial(_blocked_attention, 2),
    "attend_blocks_backward": partial(_blocked_attention, 4),
    "gru_steps": _recurrent_steps,
    "gru_steps_backward": _recurrent_steps,
}
"""FLOPs of our compiled loops (files that end in _loops in ensue.kernels), from their arguments."""
