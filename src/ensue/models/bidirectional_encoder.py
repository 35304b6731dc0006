"""A bidirectional recurrent encoder: the backbone of tasks that label, with features beside its own embeddings.

    x_k = [E w_k; f_k]                   a word's embedding, and features from a pre-trained model
    h_k = [→h_k; ←h_k]                   layers of any recurrent cell, in both directions (Schuster, 1997)
    h_k + W_O Σ_i a_{k,i} W_V LN(h_i)    with ``attend``: a layer attends to all its outputs (ensue.nn.intra_attention)

A language model must not see the words that follow; a model that labels may.

Legend: B rows, T tokens, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ensue.models.context import replace_unknown
from ensue.models.features import Features
from ensue.models.recurrent import RecurrentLanguageModel, add_attention
from ensue.nn.dropout import Dropout
from ensue.nn.mixers.full import SelfAttention
from ensue.nn.protocol import Output, Traits, Wants
from ensue.nn.stacks import Bidirectional, Stack
from ensue.nn.state import State


class BidirectionalEncoder(nn.Module):
    """h_k = [→h_k; ←h_k] over [E w_k; f_k]."""

    def __init__(self, model: RecurrentLanguageModel, features: Features | None = None) -> None:
        """Build an encoder with the settings and cells of a language model, but not its weights."""
        super().__init__()
        config = self.config = model.config
        embedding = config.embedding or config.hidden
        self.embed = nn.Embedding(config.vocabulary, embedding)
        self.features = features
        self.feature_dropout = Dropout(features.config.dropout if features else 0.0)

        def layer(size: int) -> nn.Module:
            both = Bidirectional(model.recurrent(size), model.recurrent(size))
            return add_attention(both, config, SelfAttention, False, nn.LayerNorm)

        width = embedding + (features.width if features else 0)
        self.stack = Stack(layer, width, config.layers, config.connect, config.dropout)
        self.dropout, self.dropout_out = Dropout(config.dropout), Dropout(config.dropout)
        self.width = self.stack.output
        nn.init.uniform_(self.embed.weight, -0.1, 0.1)

    @property
    def traits(self) -> Traits:
        """Bidirectional: it needs the whole text, and outputs depend on the token at their own position."""
        return Traits(causal=False, steps=False, blind=False)

    def forward(
        self, tokens: Tensor, state: State | None = None, lengths: Tensor | None = None, want: Wants = ("hidden",)
    ) -> Output:
        """Read tokens (B, T); there are hidden states, but no logits."""
        x = self.dropout(self.embed(replace_unknown(tokens, self.config.vocabulary)))
        if self.features is not None:
            x = torch.cat([x, self.feature_dropout(self.features(tokens, lengths))], dim=-1)
        attends = bool(self.config.attend) and "attention" in want
        hidden, after, weights = self.stack(x, None, lengths, attends)
        return Output(None, self.dropout_out(hidden), weights, after)


def features_of(body: Any) -> Features | None:
    """Return the features that a backbone reads, if there are any."""
    features = getattr(body, "features", None)
    return features if isinstance(features, Features) else None
