"""A fixed-window neural language model (Bengio et al., 2003).

    e = [e_1; e_2; …; e_n]                 the embeddings of the last n tokens, side by side
    h = f(W e + b_1)
    ŷ = softmax(U h + b_2)

Every position in the window has its own weights in W, so a longer window means more parameters, and what is learnt
about a word at one position does not transfer to another. Positions before the start of the text hold zeros.

Legend: B rows, T time, n window, E embedding width, N hidden width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ensue.core.settings import check, check_below_one, check_positive
from ensue.models.language import LanguageModel
from ensue.models.model import answer
from ensue.nn.dropout import Dropout
from ensue.nn.protocol import Output, Traits, Wants
from ensue.nn.recent import RecentTokens
from ensue.nn.state import State

ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu, "sigmoid": torch.sigmoid}


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowConfig:
    """Configuration of the fixed-window model."""

    vocabulary: int = 0
    """Vocabulary size; set by the tokenizer."""
    context: int = 8
    """Window size in tokens."""
    embedding: int = 64
    """Embedding size."""
    hidden: int = 512
    """Size of the hidden layer."""
    activation: str = "tanh"
    """Activation function: tanh, relu or sigmoid."""
    dropout: float = 0.0
    """Dropout probability of embeddings and hidden units."""

    def __post_init__(self) -> None:
        check_positive(self, "context", "embedding", "hidden")
        check(self, "activation", self.activation in ACTIVATIONS, f"one of {', '.join(ACTIVATIONS)}")
        check_below_one(self, "dropout")


class WindowLanguageModel(LanguageModel):
    """ŷ = softmax(U f(W [e_1; …; e_n] + b_1) + b_2)."""

    Config = WindowConfig
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {"train.lr": 2e-3, "train.batch": 12, "train.length": 32}
    }

    def __init__(self, config: WindowConfig) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.vocabulary, config.embedding)
        self.hidden = nn.Linear(config.context * config.embedding, config.hidden)  # W, b_1
        self.head = nn.Linear(config.hidden, config.vocabulary)  # U, b_2
        self.dropout = Dropout(config.dropout)
        nn.init.normal_(self.embed.weight, std=0.1)

    @property
    def traits(self) -> Traits:
        """Context of ``context`` tokens."""
        return Traits(context=self.config.context)

    def start(self, rows: int) -> RecentTokens:
        """Return an empty window."""
        return RecentTokens.empty(rows, self.config.context - 1, self.embed.weight.device)

    def forward(
        self, tokens: Tensor, state: State | None = None, lengths: Tensor | None = None, want: Wants = ("logits",)
    ) -> Output:
        """Read tokens (B, T)."""
        before = state or self.start(len(tokens))
        assert isinstance(before, RecentTokens)
        seen, after = before.extend(tokens, lengths)  # (B, n − 1 + T)
        e = self.embed(seen.clamp(min=0)) * (seen >= 0)[..., None]  # (B, n − 1 + T, E)
        hidden = self.dropout(self._activate(self._windows(self.dropout(e))))  # (B, T, N)
        return answer(self.head, hidden, after, lengths, want)

    def _windows(self, e: Tensor) -> Tensor:
        """W [e_1; …; e_n] + b_1 at every position: a convolution with the window as kernel."""
        n, E = self.config.context, self.config.embedding
        kernel = self.hidden.weight.view(-1, n, E).transpose(1, 2)  # (N, E, n)
        return F.conv1d(e.transpose(1, 2), kernel, self.hidden.bias).transpose(1, 2)

    def _activate(self, x: Tensor) -> Tensor:
        return ACTIVATIONS[self.config.activation](x)
