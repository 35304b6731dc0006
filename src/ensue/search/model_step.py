"""What search asks of a model: to read a token and say what may come next.

Anything that is called like this can be searched: an n-gram, a recurrent network, GPT, an encoder and decoder, or an
ensemble of them. The state comes from the caller (``model.start(rows)`` or ``model.start(source, lengths)``), one row
a sentence, and is consumed.

Legend: N sentences, R rows, V vocabulary, S source time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from ensue.core.errors import InputError
from ensue.nn.protocol import Output, Want
from ensue.nn.state import State


class Model(Protocol):
    """Reads tokens (R, T) after a state and answers logits (R, 1, V) of what comes next, and the next state."""

    def __call__(self, tokens: Tensor, state: Any, *, want: Sequence[Want]) -> Output:
        """The answer to ``want``."""


class Reading(NamedTuple):
    """What a model says after a token."""

    logits: Tensor
    """(R, V), in single precision at least"""
    attention: Tensor | None
    """(R, S), of the last layer that attends, on average over its heads"""
    state: Any


def read(model: Model, tokens: Tensor, state: Any, attend: bool = False) -> Reading:
    """Let a model read tokens (R, T) and say what comes after the last."""
    output = model(tokens, state, want=("last", "attention") if attend else ("last",))
    assert output.logits is not None
    logits = output.logits[:, -1]
    if logits.dtype not in (torch.float32, torch.float64):
        logits = logits.float()
    seen = output.attention[-1][:, :, -1].to(logits.dtype).mean(1) if attend and output.attention else None
    return Reading(logits, seen, output.state)


def picked(state: Any, index: Tensor, rows: int) -> Any:
    """Rows ``index`` of a state that has so many rows: itself where that changes nothing."""
    if len(index) == rows and torch.equal(index, torch.arange(rows, device=index.device)):
        return state
    return state.rows(index)


def quiet(model: Any) -> None:
    """Switch off what only training needs, such as dropout."""
    if hasattr(model, "eval"):
        model.eval()


def lined_up(begin: int | Tensor, longest: int | Tensor, state: Any) -> tuple[Tensor, Tensor]:
    """The first token that each sentence reads, and the most tokens it may get, both (N,)."""
    device, rows = _place(state)
    sizes = [len(given) for given in (begin, longest) if isinstance(given, Tensor) and given.dim()]
    if len(set(sizes)) > 1:
        raise InputError(f"there are {sizes[0]} first tokens, but {sizes[1]} longest lengths")
    rows = sizes[0] if sizes else rows
    device = begin.device if isinstance(begin, Tensor) else device
    first, most = (torch.as_tensor(given, dtype=torch.long, device=device).expand(rows) for given in (begin, longest))
    if rows and int(most.min()) < 1:
        raise InputError(f"the longest length is {int(most.min())}", hint="it must be at least 1")
    return first, most


def _place(state: Any) -> tuple[torch.device, int]:
    """Where a state lives and how many rows it has; one row where it does not say."""
    if isinstance(state, State):
        for _, tensor in state.tensors():
            if tensor.dim():
                return tensor.device, state.count
    return torch.device("cpu"), 1
