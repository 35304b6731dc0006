"""State: what a sequence model remembers between two steps.

Every system here is one function, h_t = f(h_{t-1}, x_t). A recurrent network's state is h, an LSTM's (h, c),
attention's the keys and values so far, an n-gram's the last n-1 tokens. A ``State`` is a frozen dataclass of
tensors, rows first, so that search, training and serving can treat all of them alike:

    state.rows(index)     pick, repeat or reorder rows: what beam search needs
    state.fork()          a copy to keep: a step consumes the state it is given
    state.detach()        the same values with the graph cut: truncated backpropagation
    State.joined(states)  rows of several states as one: what serving needs, where rows come and go

Legend: B rows, T time, D width, H heads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self, cast

import torch
from torch import Tensor
from torch.utils import _pytree


class State:
    """The base of all states. Subclasses are frozen dataclasses of tensors, states, tuples of states and plain numbers.

    Tensors have rows first. Plain numbers say something of all rows (a capacity, a flag) and survive every
    operation unchanged.
    """

    def __init_subclass__(cls) -> None:
        _pytree.register_pytree_node(cls, _flatten, _unflatten, serialized_type_name=f"{cls.__module__}.{cls.__name__}")

    @property
    def count(self) -> int:
        """How many rows there are."""
        return _count(getattr(self, field.name) for field in fields(cast(Any, self)))

    def rows(self, index: Tensor) -> Self:
        """The state of rows ``index`` (N,), in that order; a row may be taken several times.

        It may share memory with this one: who needs this one still takes a ``fork`` first.
        """
        return self._each(lambda tensor: tensor.index_select(0, index), lambda state: state.rows(index))

    def fork(self) -> Self:
        """A copy that a later step on this state cannot touch."""
        return self._each(torch.clone, lambda state: state.fork())

    def detach(self) -> Self:
        """The same values, cut from the graph that made them (truncated backpropagation through time)."""
        return self._each(torch.Tensor.detach, lambda state: state.detach())

    @classmethod
    def joined(cls, states: Sequence[Self]) -> Self:
        """The rows of several states of one model as one state, in their order; plain numbers must be the same."""
        held = [cast(Any, state) for state in states]
        parts = {f.name: _joined([getattr(one, f.name) for one in held]) for f in fields(held[0])}
        return cast(Self, replace(held[0], **parts))

    def renewed(self, rows: Tensor, start: Self) -> Self:
        """This state, with the rows where the mask ``rows`` (B,) is true taken from ``start``."""
        held, fresh = cast(Any, self), cast(Any, start)
        parts = {f.name: _renewed(getattr(held, f.name), getattr(fresh, f.name), rows) for f in fields(held)}
        return cast(Self, replace(held, **parts))

    def map(self, function: Callable[[Tensor], Tensor]) -> Self:
        """The state with ``function`` applied to every tensor in it."""
        return self._each(function, lambda state: state.map(function))

    def _each(self, on_tensor: Callable[[Tensor], Tensor], on_state: Callable[[Any], Any]) -> Self:
        """The state with its own tensors and the states inside it changed; those know how they are changed."""
        held = cast(Any, self)
        parts = {f.name: _changed(getattr(held, f.name), on_tensor, on_state) for f in fields(held)}
        return cast(Self, replace(held, **parts))

    def tensors(self, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
        """All that the state holds as tensors, named by the fields that lead to it, for checkpoints."""
        for field in fields(cast(Any, self)):
            yield from _named(f"{prefix}{field.name}", getattr(self, field.name))

    def filled(self, values: dict[str, Tensor]) -> Self:
        """A state of this shape with all it holds taken from ``values``, named as ``tensors`` names it."""
        return cast(Self, _filled("", self, values))


def zeros_beside(parameter: Tensor, *size: int) -> Tensor:
    """Zeros of a parameter's kind, where it is; whole, even where the parameter itself is spread over processes."""
    return torch.zeros(size, dtype=parameter.dtype, device=parameter.device)


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
        raise ValueError(f"states that say {first} and others of all their rows cannot be joined")
    return first


def _count(values: Iterable[Any]) -> int:
    """Rows of the first of these that has rows."""
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
    elif isinstance(value, int):  # truth values too
        yield name, torch.tensor(int(value))


def _filled(name: str, value: Any, values: dict[str, Tensor]) -> Any:
    if isinstance(value, State):
        held, lead = cast(Any, value), f"{name}." if name else ""
        return replace(held, **{f.name: _filled(lead + f.name, getattr(held, f.name), values) for f in fields(held)})
    if isinstance(value, tuple):
        return tuple(_filled(f"{name}.{number}", item, values) for number, item in enumerate(value))
    if isinstance(value, int):  # one that was not there yet when the values were written is as it begins
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
    """Nothing is remembered: rows, so that they can be counted and picked."""

    row: Tensor  # (B,)
