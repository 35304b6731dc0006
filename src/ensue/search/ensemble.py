"""An ensemble of models for search (Sutskever et al., 2014).

    log P(y_t | y_<t, x) = 1/M Σ_m log P_m(y_t | y_<t, x) − log Z        the normalised geometric mean

Members may differ in kind (an LSTM and a Transformer) but must share a vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ensue.core.errors import InputError
from ensue.kernels.cross_entropy import full_precision
from ensue.nn.protocol import Output, Want
from ensue.nn.state import State
from ensue.search.model_step import set_eval


@dataclass(frozen=True)
class EnsembleState(State):
    """The state of every member."""

    members: tuple[State, ...]


class Ensemble:
    """Several models as one, for search."""

    def __init__(self, models: Sequence[Any]) -> None:
        if not models:
            raise InputError("an ensemble needs a model", hint="give at least one")
        self.models = tuple(models)
        sizes = [model.config.vocabulary for model in models if hasattr(getattr(model, "config", None), "vocabulary")]
        _same_vocabulary(sizes)

    def eval(self) -> Ensemble:
        """Set every member to evaluation mode."""
        for model in self.models:
            set_eval(model)
        return self

    def start(self, *args: Any) -> EnsembleState:
        """The start state of every member, for the same rows or source."""
        return EnsembleState(tuple(model.start(*args) for model in self.models))

    def __call__(self, tokens: Tensor, state: Any = None, *, want: Sequence[Want] = ("logits",)) -> Output:
        """Run all members on the same tokens (B, T); logits are the mean of their log-probabilities.

        Attention is that of the last layer, averaged over heads and members, (B, 1, T, S); only the first member's if
        shapes differ.
        """
        states = state.members if state is not None else (None,) * len(self.models)
        outputs = [model(tokens, member, want=want) for model, member in zip(self.models, states)]
        logits = [output.logits for output in outputs if output.logits is not None]
        _same_vocabulary([part.shape[-1] for part in logits])
        return Output(
            logits=torch.stack([full_precision(part).log_softmax(-1) for part in logits]).mean(0) if logits else None,
            attention=_mean_attention(
                [output.attention[-1].mean(1, keepdim=True) for output in outputs if output.attention]
            ),
            state=EnsembleState(tuple(output.state for output in outputs)),
        )


def _mean_attention(weights: list[Tensor]) -> tuple[Tensor, ...] | None:
    """The mean over members, or the first member's if shapes differ."""
    if not weights:
        return None
    if any(member.shape != weights[0].shape for member in weights):
        return (weights[0],)
    return (torch.stack(weights).mean(0),)


def _same_vocabulary(sizes: list[int]) -> None:
    if len(set(sizes)) > 1:
        what = f"the models of an ensemble have vocabularies of {', '.join(map(str, sizes))} tokens"
        raise InputError(what, hint="train them with one tokenizer")
