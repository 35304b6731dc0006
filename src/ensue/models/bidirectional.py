"""A bidirectional language model that does not see the word it predicts.

    →h_t = LSTM(→h_{t-1}, e_t)                         reads from the left
    ←h_t = LSTM(←h_{t+1}, e_t)                         reads from the right, with weights of its own
    P(x_t | all other words) = softmax(U [→h_{t-1}; ←h_{t+1}] + b)

→h_t and ←h_t would leak, as both have read x_t. The product over t is the pseudo-likelihood, not a distribution over
texts, so there are no bits per byte; perplexity measures how well a masked word is predicted.

Legend: B rows, T time, N hidden width, V vocabulary.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ensue.models.context import read_both_sides
from ensue.models.language import LanguageModel
from ensue.models.model import answer
from ensue.models.recurrent import SMALL_BATCHES, RecurrentConfig, add_causal_attention
from ensue.nn.dropout import Dropout
from ensue.nn.protocol import Output, Traits, Wants
from ensue.nn.recurrent import LSTMCell
from ensue.nn.stack_config import RecurrentNetwork
from ensue.nn.stacks import BidirectionalState, Stack
from ensue.nn.state import State


class BidirectionalLanguageModel(RecurrentNetwork, LanguageModel):
    """P(x_t | all other words): the output at position t is for x_t, not for x_{t+1}."""

    Config = RecurrentConfig
    presets: ClassVar[dict[str, dict[str, Any]]] = {"default": {**SMALL_BATCHES, "train.lr": 3e-3}}
    objective: ClassVar[str] = "cloze"
    cuts = "windows"
    cell_type = LSTMCell

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        self.config = config
        width = config.embedding or config.hidden
        self.embed = nn.Embedding(config.vocabulary, width)
        self.onward, self.backward = (
            Stack(
                lambda size: add_causal_attention(self.recurrent(size), config),
                width,
                config.layers,
                config.connect,
                config.dropout,
            )
            for _ in range(2)
        )
        self.join = nn.Linear(self.onward.output + self.backward.output, width)
        self.head = nn.Linear(width, config.vocabulary)
        if config.tied:
            self.head.weight = self.embed.weight
        self.dropout = Dropout(config.dropout)
        nn.init.uniform_(self.embed.weight, -0.1, 0.1)
        nn.init.zeros_(self.head.bias)

    @property
    def traits(self) -> Traits:
        """Bidirectional: it needs the whole text."""
        return Traits(causal=False, steps=False)

    def start(self, rows: int) -> BidirectionalState:
        """Return zeros for both directions."""
        return BidirectionalState(self.onward.start(rows), self.backward.start(rows))

    def forward(
        self, tokens: Tensor, state: State | None = None, lengths: Tensor | None = None, want: Wants = ("logits",)
    ) -> Output:
        """Read tokens (B, T); logits at position t are for token t, given all others."""
        sides, after = read_both_sides(self.onward, self.backward, self.dropout(self.embed(tokens)), lengths)
        hidden = self.dropout(torch.tanh(self.join(sides)))
        return answer(self.head, hidden, after, lengths, want)
