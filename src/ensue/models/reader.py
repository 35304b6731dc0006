"""The recurrent body of a task that labels: it reads each row from both ends, and features beside its own embeddings.

    x_k = [E w_k; f_k]                   a word's own vector, and what a model that was trained before says of it here
    h_k = [→h_k; ←h_k]                   layers of any recurrent cell, in both directions (Schuster, 1997)
    h_k + W_O Σ_i a_{k,i} W_V LN(h_i)    with ``attend``: a layer attends to all its outputs (ensue.nn.intra_attention)

A language model may not see what follows, so it reads from one end; where labels are wanted there is nothing to hide.

Legend: B rows, T tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ensue.models.context import known
from ensue.models.features import Features
from ensue.models.recurrent import RecurrentLanguageModel, attending
from ensue.nn.dropout import Dropout
from ensue.nn.mixers.full import SelfAttention
from ensue.nn.protocol import Output, Traits, Want
from ensue.nn.recurrent import Recurrent
from ensue.nn.stacks import Bidirectional, Stack
from ensue.nn.state import State


class BidirectionalReader(nn.Module):
    """h_k = [→h_k; ←h_k] over [E w_k; f_k]."""

    def __init__(self, model: RecurrentLanguageModel, features: Features | None = None) -> None:
        """A body of the same settings and cells as a language model, whose weights are not taken."""
        super().__init__()
        config = self.config = model.config
        embedding = config.embedding or config.hidden
        self.embed = nn.Embedding(config.vocabulary, embedding)
        self.features = features
        self.fall = Dropout(features.config.dropout if features else 0.0)
        self.stack = Stack(
            lambda size: attending(
                Bidirectional(*(Recurrent(model.cell(size), config.kernel) for _ in range(2))),
                config,
                SelfAttention,
                False,
                nn.LayerNorm,
            ),
            embedding + (features.width if features else 0),
            config.layers,
            config.connect,
            config.dropout,
        )
        self.dropout, self.dropout_out = Dropout(config.dropout), Dropout(config.dropout)
        self.width = self.stack.output
        nn.init.uniform_(self.embed.weight, -0.1, 0.1)

    @property
    def traits(self) -> Traits:
        """It needs the whole text at once, and sees every token of it."""
        return Traits(causal=False, steps=False, blind=False)

    def forward(
        self,
        tokens: Tensor,
        state: State | None = None,
        lengths: Tensor | None = None,
        want: Sequence[Want] = ("hidden",),
    ) -> Output:
        """Read tokens (B, T); it has hidden states, and no logits of tokens."""
        x = self.dropout(self.embed(known(tokens, self.config.vocabulary)))
        if self.features is not None:
            x = torch.cat([x, self.fall(self.features(tokens, lengths))], dim=-1)
        looks: list[Tensor] | None = [] if self.config.attend and "attention" in want else None
        hidden, after = self.stack(x, None, lengths, looks)
        return Output(None, self.dropout_out(hidden), tuple(looks) if looks else None, after)


def features_of(body: Any) -> Features | None:
    """The features that a body reads, if it reads any."""
    found = getattr(body, "features", None)
    return found if isinstance(found, Features) else None
