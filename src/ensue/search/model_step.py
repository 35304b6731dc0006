"""One decode step: a model reads tokens and returns the logits of the next one.

Search works with any such model: an n-gram, a recurrent network, GPT, an encoder–decoder, or an ensemble. The state
comes from the caller (``model.start(rows)`` or ``model.start(source, lengths)``), with one row per sentence, and is
consumed.

Legend: N sentences, R rows, V vocabulary, S source time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from ensue.core.errors import InputError
from ensue.kernels.cross_entropy import full_precision
from ensue.nn.protocol import Output, Want
from ensue.nn.state import State


class SearchModel(Protocol):
    """Reads tokens (R, T) after a state; returns logits (R, 1, V) of the next token and the next state."""

    def __call__(self, tokens: Tensor, state: Any, *, want: Sequence[Want]) -> Output:
        """The outputs that ``want`` names."""


class StepOutput(NamedTuple):
    """The outputs of a decode step."""

    logits: Tensor
    """(R, V), float32 or float64"""
    attention: Tensor | None
    """(R, S), of the last layer with attention, mean over heads"""
    state: Any


def model_step(model: SearchModel, tokens: Tensor, state: Any, attend: bool = False) -> StepOutput:
    """Run a model on tokens (R, T) and return the logits after the last."""
    output = model(tokens, state, want=("last", "attention") if attend else ("last",))
    assert output.logits is not None
    logits = full_precision(output.logits[:, -1])
    attention = output.attention[-1][:, :, -1].to(logits.dtype).mean(1) if attend and output.attention else None
    return StepOutput(logits, attention, output.state)


def select_rows(state: Any, index: Tensor, rows: int) -> Any:
    """Rows ``index`` of a state of ``rows`` rows; the state itself if that is all of them in order."""
    if len(index) == rows and torch.equal(index, torch.arange(rows, device=index.device)):
        return state
    return state.rows(index)


def set_eval(model: Any) -> None:
    """Set a model to evaluation mode, if it has one."""
    if hasattr(model, "eval"):
        model.eval()


def expand_start(begin: int | Tensor, longest: int | Tensor, state: Any) -> tuple[Tensor, Tensor]:
    """The first token and the maximum length of each sentence, both expanded to (N,)."""
    device, rows = _device_and_rows(state)
    sizes = [len(given) for given in (begin, longest) if isinstance(given, Tensor) and given.dim()]
    if len(set(sizes)) > 1:
        raise InputError(f"there are {sizes[0]} first tokens, but {sizes[1]} maximum lengths")
    rows = sizes[0] if sizes else rows
    device = begin.device if isinstance(begin, Tensor) else device
    first, most = (torch.as_tensor(given, dtype=torch.long, device=device).expand(rows) for given in (begin, longest))
    if rows and int(most.min()) < 1:
        raise InputError(f"the maximum length is {int(most.min())}", hint="it must be at least 1")
    return first, most


def _device_and_rows(state: Any) -> tuple[torch.device, int]:
    """The device of a state and its number of rows; 1 if it has no tensors."""
    if isinstance(state, State):
        for _, tensor in state.tensors():
            if tensor.dim():
                return tensor.device, state.count
    return torch.device("cpu"), 1
