"""States of sequence models between two steps.

Every system here is one function, h_t = f(h_{t-1}, x_t). A recurrent network's state is h, an LSTM's (h, c),
attention's the keys and values so far, an n-gram's the last n-1 tokens. A ``State`` is a frozen dataclass of
tensors, rows first, so that search, training and serving handle all of them alike:

    state.rows(index)     select, repeat or reorder rows, for beam search
    state.fork()          copy: a step consumes the state it is given
    state.detach()        detach from the graph, for truncated backpropagation
    state.first(t, of=n)  the state of one row after its first t of n tokens, where it is kept
    State.joined(states)  concatenate the rows of several states, for serving

Legend: B rows, T time, D width, H heads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self, cast

import torch
from torch import Tensor, nn
from torch.utils import _pytree


class State:
    """Base class of states: frozen dataclasses of tensors, states, tuples of states and plain numbers.

    Tensors have rows first. Plain numbers apply to all rows (a capacity, a flag) and are never changed.
    """

    def __init_subclass__(cls) -> None:
        _pytree.register_pytree_node(cls, _flatten, _unflatten, serialized_type_name=f"{cls.__module__}.{cls.__name__}")

    @property
    def count(self) -> int:
        """The number of rows."""
        return _count(getattr(self, field.name) for field in fields(cast(Any, self)))

    def rows(self, index: Tensor) -> Self:
        """Select rows ``index`` (N,), in that order; a row may occur several times.

        The result may share memory with this state: ``fork`` first to keep both.
        """
        return self._each(lambda tensor: tensor.index_select(0, index), lambda state: state.rows(index))

    def fork(self) -> Self:
        """Return a copy that later steps on this state do not change."""
        return self._each(torch.clone, lambda state: state.fork())

    def first(self, tokens: int, of: int) -> Self | None:
        """Return the state after the first ``tokens`` of the ``of`` tokens that one row read; None if it is not kept.

        The result may share memory with this state.
        """
        return self if tokens == of else None

    def detach(self) -> Self:
        """Detach all tensors from the graph (truncated backpropagation through time)."""
        return self._each(torch.Tensor.detach, lambda state: state.detach())

    @classmethod
    def joined(cls, states: Sequence[Self]) -> Self:
        """Concatenate the rows of several states of one model; plain numbers must be equal."""
        held = [cast(Any, state) for state in states]
        parts = {f.name: _joined([getattr(one, f.name) for one in held]) for f in fields(held[0])}
        return cast(Self, replace(held[0], **parts))

    def renewed(self, rows: Tensor, start: Self) -> Self:
        """Replace the rows where the mask ``rows`` (B,) is true by those of ``start``."""
        held, fresh = cast(Any, self), cast(Any, start)
        parts = {f.name: _renewed(getattr(held, f.name), getattr(fresh, f.name), rows) for f in fields(held)}
        return cast(Self, replace(held, **parts))

    def changed(self, **fields: Any) -> Self:
        """Return this state with other values of some fields, for steps: ``dataclasses.replace`` calls the constructor,
        which takes a frozen dataclass several times as long."""
        new = object.__new__(type(self))
        vars(new).update(vars(self), **fields)
        return new

    def map(self, function: Callable[[Tensor], Tensor]) -> Self:
        """Apply a function to every tensor."""
        return self._each(function, lambda state: state.map(function))

    def _each(self, on_tensor: Callable[[Tensor], Tensor], on_state: Callable[[Any], Any]) -> Self:
        """Apply a function to each tensor of this state, and another to each nested state."""
        held = cast(Any, self)
        parts = {f.name: _changed(getattr(held, f.name), on_tensor, on_state) for f in fields(held)}
        return cast(Self, replace(held, **parts))

    def tensors(self, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
        """Yield all tensors with dotted field names, for checkpoints."""
        for field in fields(cast(Any, self)):
            yield from _named(f"{prefix}{field.name}", getattr(self, field.name))

    def filled(self, values: dict[str, Tensor]) -> Self:
        """Return a state of this structure with the tensors that ``tensors`` named."""
        return cast(Self, _filled("", self, values))


def zeros_beside(near: Tensor | nn.Module, *size: int) -> Tensor:
    """Return zeros with a parameter's dtype and device; a plain tensor even if the parameter is sharded.

    Those of a layer have the dtype of its outputs: float32 where its weights are quantised, which decodes none of them.
    """
    if isinstance(near, nn.Module):
        parameter = next(near.parameters(), None)
        if parameter is None:
            stored = next(near.buffers(), None)
            return torch.zeros(size, dtype=torch.float32, device="cpu" if stored is None else stored.device)
        near = parameter
    return torch.zeros(size, dtype=near.dtype, device=near.device)


def _changed(value: Any, on_tensor: Callable[[Tensor], Tensor], on_state: Callable[[Any], Any]) -> Any:
    if isinstance(value, Tensor):
        return on_tensor(value)
    if isinstance(value, State):
        return on_state(value)
    if isinstance(value, tuple):
        return tuple(_changed(item, on_tensor, on_state) for item in value)
    return value


def _renewed(value: Any, fresh: Any, rows: Tensor) -> Any:
    if isinstance(value, Tensor):
        return torch.where(rows.view(-1, *[1] * (value.dim() - 1)), fresh, value) if value.dim() else value
    if isinstance(value, State):
        return value.renewed(rows, fresh)
    if isinstance(value, tuple):
        return tuple(_renewed(*parts, rows) for parts in zip(value, fresh, strict=True))
    return value


def _joined(values: Sequence[Any]) -> Any:
    first = values[0]
    if isinstance(first, Tensor):
        return torch.cat(list(values))
    if isinstance(first, State):
        return type(first).joined(values)
    if isinstance(first, tuple):
        return tuple(_joined(parts) for parts in zip(*values, strict=True))
    if any(value != first for value in values):
        raise ValueError(f"states with different values ({first} and others) cannot be joined")
    return first


def _count(values: Iterable[Any]) -> int:
    """Return the number of rows of the first value that has rows."""
    for value in values:
        if isinstance(value, State):
            return value.count
        if isinstance(value, tuple) and value:
            return _count(value)
        if isinstance(value, Tensor) and value.dim():
            return len(value)
    return 1


def _named(name: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, State):
        yield from value.tensors(f"{name}.")
    elif isinstance(value, tuple):
        for number, item in enumerate(value):
            yield from _named(f"{name}.{number}", item)
    elif isinstance(value, int):  # bool too
        yield name, torch.tensor(int(value))


def _filled(name: str, value: Any, values: dict[str, Tensor]) -> Any:
    if isinstance(value, State):
        held, lead = cast(Any, value), f"{name}." if name else ""
        return replace(held, **{f.name: _filled(lead + f.name, getattr(held, f.name), values) for f in fields(held)})
    if isinstance(value, tuple):
        return tuple(_filled(f"{name}.{number}", item, values) for number, item in enumerate(value))
    if isinstance(value, int):  # a field that is newer than the checkpoint keeps its initial value
        return type(value)(values[name].item()) if name in values else value
    return None if value is None else values[name]


def _flatten(state: Any) -> tuple[list[Any], tuple[type, tuple[tuple[str, bool, Any], ...]]]:
    values = [(field.name, getattr(state, field.name)) for field in fields(state)]
    moving = [value for _, value in values if not isinstance(value, (int, float, str))]
    plan = tuple(
        (name, isinstance(v, (int, float, str)), v if isinstance(v, (int, float, str)) else None) for name, v in values
    )
    return moving, (type(state), plan)


def _unflatten(children: Any, context: tuple[type, tuple[tuple[str, bool, Any], ...]]) -> Any:
    kind, plan = context
    moving = iter(children)
    return kind(**{name: value if fixed else next(moving) for name, fixed, value in plan})


@dataclass(frozen=True)
class NoState(State):
    """The state of a model without memory; it only has rows."""

    row: Tensor  # (B,)
