"""Several models that search as one (Sutskever et al., 2014).

    log P(y_t | y_<t, x) = 1/M Σ_m log P_m(y_t | y_<t, x) − log Z        the geometric mean, made to sum to one

Members may be of different kinds (an LSTM and a Transformer), so long as they share a vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ensue.core.errors import InputError
from ensue.nn.protocol import Output, Want
from ensue.nn.state import State
from ensue.search.model_step import quiet


@dataclass(frozen=True)
class EnsembleState(State):
    """The state of every member."""

    members: tuple[State, ...]


class Ensemble:
    """A model for search made of several."""

    def __init__(self, models: Sequence[Any]) -> None:
        if not models:
            raise InputError("an ensemble needs a model", hint="give at least one")
        self.models = tuple(models)
        sizes = [model.config.vocabulary for model in models if hasattr(getattr(model, "config", None), "vocabulary")]
        _same_vocabulary(sizes)

    def eval(self) -> Ensemble:
        """Switch off what only training needs in every member."""
        for model in self.models:
            quiet(model)
        return self

    def start(self, *args: Any) -> EnsembleState:
        """Every member's start, from the same rows or the same source."""
        return EnsembleState(tuple(model.start(*args) for model in self.models))

    def __call__(self, tokens: Tensor, state: Any = None, *, want: Sequence[Want] = ("logits",)) -> Output:
        """Let all read the same tokens (B, T); logits are the mean of their log-probabilities.

        Attention is the last layer's of each member, on average over heads and members, (B, 1, T, S); of members that
        do not look at the same number of places, the first one's.
        """
        states = state.members if state is not None else (None,) * len(self.models)
        outputs = [model(tokens, own, want=want) for model, own in zip(self.models, states)]
        logits = [output.logits for output in outputs if output.logits is not None]
        _same_vocabulary([part.shape[-1] for part in logits])
        return Output(
            logits=torch.stack([_wide(part).log_softmax(-1) for part in logits]).mean(0) if logits else None,
            attention=_mean_attention(
                [output.attention[-1].mean(1, keepdim=True) for output in outputs if output.attention]
            ),
            state=EnsembleState(tuple(output.state for output in outputs)),
        )


def _wide(logits: Tensor) -> Tensor:
    return logits if logits.dtype in (torch.float32, torch.float64) else logits.float()


def _mean_attention(seen: list[Tensor]) -> tuple[Tensor, ...] | None:
    """The mean of those that have the first one's shape."""
    if not seen:
        return None
    if any(one.shape != seen[0].shape for one in seen):
        return (seen[0],)
    return (torch.stack(seen).mean(0),)


def _same_vocabulary(sizes: list[int]) -> None:
    if len(set(sizes)) > 1:
        what = f"the models of an ensemble have vocabularies of {', '.join(map(str, sizes))} tokens"
        raise InputError(what, hint="train them with one tokenizer")
