"""What every encoder–decoder here is: a language model that has read something first.

    P(y | x) = ∏_t P(y_t | y_1 … y_{t-1}, x)

The source is read once, in ``start``; from then on a decoder is a model like any other, so that everything written
for language models (search, scoring, the laws) serves it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from ensue.core.settings import check, check_below_one, check_positive
from ensue.models.language import LanguageModel
from ensue.models.model import Model
from ensue.nn.protocol import Output, Traits, Want
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
    """The base of all encoder–decoders. Its config has ``source_vocabulary``, ``vocabulary`` and ``context``."""

    task = "translation"

    def start(self, source: Tensor, lengths: Tensor | None = None) -> State:
        """The state before the first target token, with the encoded source (N, S) inside."""
        raise TypeError(f"{type(self).__name__} does not say how it reads a source")

    def pair_loss(
        self,
        source: Tensor,
        source_lengths: Tensor,
        tokens: Tensor,
        targets: Tensor,
        lengths: Tensor,
        smoothing: float = 0.0,
    ) -> Tensor:
        """The mean of −log P over all real targets (N, T) of sources (N, S), as training wants it."""
        loss, _ = self.loss(tokens, targets, self.start(source, source_lengths), lengths, smoothing, goes_on=False)
        return loss


class Given(LanguageModel):
    """An encoder–decoder that has been given its source: a language model of what follows from it."""

    def __init__(self, model: ConditionalModel, source: Tensor) -> None:
        super().__init__()
        self.model, self.config = model, model.config
        self.register_buffer("source", source, persistent=False)

    @property
    def traits(self) -> Traits:
        """The decoder's."""
        return self.model.traits

    @property
    def embed(self) -> nn.Module:
        """The target's embedding."""
        return self.model.embed  # type: ignore[return-value]

    def start(self, rows: int) -> State:
        """So many rows, all of the one source (S,)."""
        first = self.model.start(self.get_buffer("source")[None])
        return first.rows(torch.zeros(rows, dtype=torch.long, device=self.get_buffer("source").device))

    def forward(
        self,
        tokens: Tensor,
        state: State | None = None,
        lengths: Tensor | None = None,
        want: Sequence[Want] = ("logits",),
    ) -> Output:
        """Read tokens (B, T)."""
        return self.model(tokens, state or self.start(len(tokens)), lengths, want)  # type: ignore[no-any-return]

    def log_prob(
        self, tokens: Tensor, targets: Tensor, state: State | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """log P(targets_t | source, tokens_1…t)."""
        return self.model.log_prob(tokens, targets, state or self.start(len(tokens)), lengths)
