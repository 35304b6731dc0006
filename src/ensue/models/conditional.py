"""The base class of encoder–decoders: language models conditioned on a source.

    P(y | x) = ∏_t P(y_t | y_1 … y_{t-1}, x)

The source is encoded once, in ``start``. After that a decoder is a model like any other, so everything written for
language models (search, scoring, the laws) applies to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from ensue.core.settings import check, check_below_one, check_positive
from ensue.models.language import LanguageModel
from ensue.models.model import Model
from ensue.nn.protocol import Output, Traits, Wants
from ensue.nn.state import State


@dataclass(frozen=True, kw_only=True, slots=True)
class ConditionalConfig:
    """Configuration shared by all encoder–decoders."""

    vocabulary: int = 0
    """Target vocabulary size; set by the tokenizer."""
    source_vocabulary: int = 0
    """Source vocabulary size; set by the tokenizer."""
    layers: int = 3
    """Number of blocks in the encoder and in the decoder."""
    hidden: int = 256
    """Hidden size."""
    context: int = 256
    """Maximum sentence length in tokens, source or target; training skips longer ones, inference truncates them."""
    dropout: float = 0.1
    """Dropout probability."""
    tied: str = "target"
    """Weight sharing: target (target embedding and output layer) or none."""
    ties: ClassVar[tuple[str, ...]] = ("target", "none")
    """Allowed values of ``tied``."""

    def __post_init__(self) -> None:
        check_positive(self, "layers", "hidden", "context")
        check_below_one(self, "dropout")
        check(self, "tied", self.tied in self.ties, f"one of {', '.join(self.ties)}")


class ConditionalModel(Model):
    """Base class of all encoder–decoders; a subclass implements ``start`` and ``forward``."""

    task = "translation"

    def start(self, source: Tensor, lengths: Tensor | None = None) -> State:
        """Encode the source (N, S) and return the state before the first target token."""
        raise TypeError(f"{type(self).__name__} does not implement start")

    def first(self, end: int) -> int:
        """Return the token before a target's first: the end token, unless a model has another one."""
        return end

    def pair_loss(
        self,
        source: Tensor,
        source_lengths: Tensor,
        tokens: Tensor,
        targets: Tensor,
        lengths: Tensor,
        smoothing: float = 0.0,
    ) -> Tensor:
        """Return the training loss: the mean of −log P over all targets (N, T) but padding, given sources (N, S)."""
        loss, _ = self.loss(tokens, targets, self.start(source, source_lengths), lengths, smoothing, keep_state=False)
        return loss


class FixedSourceModel(LanguageModel):
    """An encoder–decoder with one source (S,) for all rows, as a language model."""

    source: Tensor

    def __init__(self, model: ConditionalModel, source: Tensor) -> None:
        super().__init__()
        self.model, self.config = model, model.config
        self.register_buffer("source", source, persistent=False)

    @property
    def traits(self) -> Traits:
        """The decoder's traits."""
        return self.model.traits

    @property
    def embed(self) -> nn.Module:
        """The target embedding."""
        return self.model.embed  # type: ignore[return-value]

    def start(self, rows: int) -> State:
        """Encode the source once, for all rows."""
        return self.model.start(self.source[None]).rows(torch.zeros(rows, dtype=torch.long, device=self.source.device))

    def forward(
        self, tokens: Tensor, state: State | None = None, lengths: Tensor | None = None, want: Wants = ("logits",)
    ) -> Output:
        """Read tokens (B, T)."""
        return self.model(tokens, state or self.start(len(tokens)), lengths, want)  # type: ignore[no-any-return]

    def log_prob(
        self, tokens: Tensor, targets: Tensor, state: State | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Return log P(targets_t | source, tokens_1…t)."""
        return self.model.log_prob(tokens, targets, state or self.start(len(tokens)), lengths)
