"""A language model of both directions that does not see the word it predicts.

    →h_t = LSTM(→h_{t-1}, e_t)                         reads from the left
    ←h_t = LSTM(←h_{t+1}, e_t)                         reads from the right, with weights of its own
    P(x_t | all other words) = softmax(U [→h_{t-1}; ←h_{t+1}] + b)

Joining →h_t and ←h_t instead would leak: both have read x_t. This is no distribution over texts (its product over t
is the pseudo-likelihood), so it has no bits per byte; its perplexity says how well a gap is filled.

Legend: B rows, T time, N hidden width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ensue.models.context import neighbours
from ensue.models.language import LanguageModel
from ensue.models.model import answer
from ensue.models.recurrent import SMALL, RecurrentConfig, looking_back
from ensue.nn.dropout import Dropout
from ensue.nn.protocol import Output, Traits, Want
from ensue.nn.recurrent import LSTMCell, Recurrent
from ensue.nn.stacks import BidirectionalState, Stack, reverse
from ensue.nn.state import State


class BidirectionalLanguageModel(LanguageModel):
    """P(x_t | all other words): the answer at place t is about x_t itself, not about x_{t+1}."""

    Config = RecurrentConfig
    presets: ClassVar[dict[str, dict[str, Any]]] = {"default": {**SMALL, "train.lr": 3e-3}}
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
                lambda size: looking_back(Recurrent(LSTMCell(size, config.hidden), config.kernel), config),
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
        """It needs the whole text at once."""
        return Traits(causal=False, steps=False)

    def start(self, rows: int) -> BidirectionalState:
        """Zeros in both directions."""
        return BidirectionalState(self.onward.start(rows), self.backward.start(rows))

    def forward(
        self,
        tokens: Tensor,
        state: State | None = None,
        lengths: Tensor | None = None,
        want: Sequence[Want] = ("logits",),
    ) -> Output:
        """Read tokens (B, T); logits at place t are for token t, from all others."""
        e = self.dropout(self.embed(tokens))
        right, ahead = self.onward(e, None, lengths)
        left, behind = self.backward(reverse(e, lengths), None, lengths)
        sides = neighbours(right, left, lengths)
        hidden = self.dropout(torch.tanh(self.join(torch.cat(sides, dim=-1))))
        return answer(self.head, hidden, BidirectionalState(ahead, behind), lengths, want)
