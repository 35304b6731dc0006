"""What a computation does, written down operation by operation: its products, and what it holds in memory.

A step of training is run on tensors that have shapes, types and a device, but no numbers (``FakeTensorMode``), with the
kernels that would run on this machine. So a model of any size can be counted on any machine, and what is counted is the
program itself, not a formula about it. The same ledger counts a computation on real tensors.

What depends on numbers has none to depend on: a mask that picks places picks all of them, values are all different, a
question is answered with no, and a number that is read is 1.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
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
ROOM = {aten.empty, aten.empty_like, aten.empty_strided, aten.new_empty, aten.new_empty_strided}
"""What makes room and writes nothing into it."""
PICKED = {aten.embedding, aten.gather, aten.index, aten.index_select}
"""What reads as much of a table as it answers, not all of it."""
RECURRENT, RECURRENT_BACKWARD = aten.mkldnn_rnn_layer.default, aten.mkldnn_rnn_layer_backward.default


class Operation(NamedTuple):
    """One operation that is more than another view of what there is."""

    flops: int
    """Two for a multiply-add; 0 where it is no product."""
    moved: int
    """Bytes that it reads and writes."""
    steps: int = 1
    """How many products it does one after the other."""


class Ledger(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A block in which every operation is written down."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: list[Operation] = []
        self.changes: list[tuple[int, int]] = []
        """Memory in order of time: which piece, and by how many bytes (below 0 where it is let go)."""
        self.casts: list[tuple[int, int]] = []
        """Which piece was copied to another type, and the copy."""
        self._pieces: dict[int, int] = {}
        self._number = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do an operation and write it down."""
        kwargs = kwargs or {}
        given = _tensors((args, kwargs))
        if any(isinstance(one, FakeTensor) for one in given):
            args, result = _done_without_numbers(func, args, kwargs)
        else:
            result = func(*args, **kwargs)
        known = {one.untyped_storage()._cdata for one in given}
        fresh = [one for one in _tensors(result) if one.untyped_storage()._cdata not in known]
        for one in fresh:
            self.hold(one)
        if func is aten._to_copy.default and fresh:
            self.casts.append((self.hold(given[0]), self.hold(fresh[0])))
        if func in (RECURRENT, RECURRENT_BACKWARD):
            self._pass(_scratch(func, *args))
        count = _count(func._overloadpacket)
        flops = int(count(*args, **kwargs, out_val=result)) if count else 0
        if (flops or fresh or func._schema.is_mutable) and func._overloadpacket not in ROOM:
            steps = args[0].shape[0] if func in (RECURRENT, RECURRENT_BACKWARD) else 1
            read = given[1:] if func._overloadpacket in PICKED else given
            over = given[:1] if func._overloadpacket.__name__.endswith("_") else []  # read, and written over
            moved = sum(one.nbytes for one in (*read, *fresh, *over, *(fresh if read is not given else ())))
            self.operations.append(Operation(flops, moved, steps))
        return result

    @property
    def flops(self) -> int:
        """Of all operations."""
        return sum(one.flops for one in self.operations)

    def loop(self, name: str, arguments: tuple[Any, ...]) -> None:
        """Write down a loop of our own, of which torch knows nothing."""
        held = [one for one in arguments if isinstance(one, Tensor)]
        flops = LOOPS[name](arguments) if name in LOOPS else 0
        self.operations.append(Operation(flops, sum(one.nbytes for one in held)))

    def hold(self, tensor: Tensor) -> int:
        """Write down that a tensor's memory is held, once; the number of its piece."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._pieces:
            return self._pieces[key]
        self._number += 1
        number, size = self._number, storage.nbytes()
        self._pieces[key] = number
        self.changes.append((number, size))
        weakref.finalize(storage, self._let_go, key, number, size)
        return number

    def _let_go(self, key: int, number: int, size: int) -> None:
        self._pieces.pop(key, None)
        self.changes.append((number, -size))

    def _pass(self, size: int) -> None:
        """Write down memory that an operation held while it ran."""
        self._number += 1
        self.changes += [(self._number, size), (self._number, -size)]

    def most(self, leave_out: Iterable[int] = ()) -> int:
        """The most bytes that were held at once, some pieces not counted."""
        out, held, top = set(leave_out), 0, 0
        for number, size in self.changes:
            held += 0 if number in out else size
            top = max(top, held)
        return top


@contextmanager
def without_numbers(ledger: Ledger) -> Iterator[Ledger]:
    """A block in which tensors have no numbers, and what is done with them is written down."""
    with FakeTensorMode(), counted(ledger.loop), ledger:
        yield ledger


@cache
def _count(packet: Any) -> Callable[..., int] | None:
    """What counts the products of an operation; one that writes over what it is given does as many as its twin."""
    twin = getattr(aten, packet.__name__.removesuffix("_"), packet)
    return next((table[one] for one in (packet, twin) for table in (FLOPS, flop_registry) if one in table), None)


def _tensors(tree: Any) -> list[Tensor]:
    return [one for one in _pytree.tree_leaves(tree) if isinstance(one, Tensor)]


def _done_without_numbers(func: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """What an operation was given and what it answers, where that depends on numbers that there are not."""
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
        args = (args[0], _all_places(args[1]), *args[2:])
    result = func(*args, **kwargs)
    if func is RECURRENT:  # torch says that there is no workspace
        result = (*result[:3], args[0].new_empty(_workspace(*args), dtype=torch.uint8))
    return args, result


def _all_places(indices: Any) -> list[Tensor | None]:
    """Masks as the numbers of all their places."""
    found: list[Tensor | None] = []
    for index in indices:
        if index is not None and index.dtype in (torch.bool, torch.uint8):
            found += [index.new_empty(index.numel(), dtype=torch.long) for _ in index.shape]
        else:
            found.append(index)
    return found


def _workspace(x: Tensor, weight: Tensor, *rest: Any) -> int:
    """Bytes that oneDNN keeps of an LSTM (T, B, D) → (T, B, N) for the way back: gates, states and their gradients.

    It does not say how many; measured, it is 4 N of gates a step, and about 6.4 max(N, D) + 5.1 N of the rest.
    """
    time, rows, width = x.shape
    hidden = weight.shape[0] // 4
    return int(4 * rows * (time * 4 * hidden + (time + 1) * (6.4 * max(width, hidden) + 5.1 * hidden)))


def _scratch(func: Any, x: Tensor, weight_x: Tensor, weight_h: Tensor, *rest: Any) -> int:
    """Bytes that oneDNN holds while it runs: weights in its own order, theirs and their gradients', and gates."""
    weights = weight_x.nbytes + weight_h.nbytes
    return (1 if func is RECURRENT else 2) * weights + 4 * x.shape[0] * x.shape[1] * weight_x.shape[0]


def _recurrent(x: Tensor, weight_x: Tensor, weight_h: Tensor, *rest: Any, **more: Any) -> int:
    """Both products of every step."""
    return 2 * x.shape[0] * x.shape[1] * (weight_x.numel() + weight_h.numel())


def _recurrent_backward(*inputs: Any, **more: Any) -> int:
    return 2 * _recurrent(*inputs)


def _attention(query: Tensor, key: Tensor, value: Tensor, *rest: Any, **more: Any) -> int:
    """Q Kᵀ and P V."""
    return 2 * prod(query.shape[:-1]) * key.shape[-2] * (key.shape[-1] + value.shape[-1])


def _attention_backward(above: Tensor, query: Tensor, key: Tensor, value: Tensor, *rest: Any, **more: Any) -> int:
    """∂V, ∂P, ∂Q and ∂K; that a kernel makes P again is its own affair."""
    return 2 * _attention(query, key, value)


def _linear(x: Tensor, weight: Tensor, *rest: Any, **more: Any) -> int:
    """x Wᵀ, (M, D), (N, D)."""
    return 2 * x.numel() * weight.shape[0]


FLOPS: dict[Any, Callable[..., int]] = {
    torch.ops.mkldnn._linear_pointwise: _linear,
    aten.mkldnn_rnn_layer: _recurrent,
    aten.mkldnn_rnn_layer_backward: _recurrent_backward,
    aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
}
"""What torch does not count."""


def _short_attention(times: int) -> Callable[[tuple[Any, ...]], int]:
    """Of loops whose last argument is the weights (H, T, S), in one row, and whose numbers tell heads and their width;
    T is rounded up to whole tiles there."""

    def flops(arguments: tuple[Any, ...]) -> int:
        return times * 2 * int(arguments[-1].numel()) * int(arguments[2])

    return flops


def _blocked_attention(times: int) -> Callable[[tuple[Any, ...]], int]:
    """Of loops that are told rows, heads and a head's width first, and Q (B T, D) and K (B S, D) after six others."""

    def flops(arguments: tuple[Any, ...]) -> int:
        rows, heads, width = arguments[:3]
        queries, keys = arguments[QUERIES], arguments[QUERIES + 2]
        return int(times * 2 * len(queries) * (len(keys) // rows) * heads * width)

    return flops


QUERIES = 9
"""Where the queries of blocked attention stand; after each part its step is said."""
LOOPS: dict[str, Callable[[tuple[Any, ...]], int]] = {
    "attend": _short_attention(2),
    "attend_backward": _short_attention(4),
    "attend_blocks": _blocked_attention(2),
    "attend_blocks_backward": _blocked_attention(4),
}
"""The products that loops of our own do (see ensue.kernels.short_attention_loops), from what they are given."""
