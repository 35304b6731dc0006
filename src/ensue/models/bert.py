"""BERT: an encoder trained to fill in masked tokens (Devlin et al., 2019).

    masked      P(x_i | x̂) = softmax(E LN(gelu(W T_i + b)) + c)       at masked positions i of a corrupted text x̂; E is
                                                                       the embedding again (tied), or its own matrix
    next        P(B follows A) = softmax(W_n C)                        of [CLS] A [SEP] B [SEP]

The masked head is computed at masked positions only, and so is the encoder's last block. RoBERTa (Liu et al., 2019) is
the same without the next sentence, its tokens masked anew each time a text is read; DistilBERT's form (Sanh et al.,
2019) has no segments and no pooling either.

Legend: B rows, T tokens, K masked positions of a row, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ensue.core.settings import check
from ensue.kernels.cross_entropy import mean_cross_entropy
from ensue.models.encoder import Encoded, Encoder, EncoderConfig, initialise
from ensue.models.model import Model, answer
from ensue.nn.feed_forward import ACTIVATIONS
from ensue.nn.protocol import Output, Traits, Want
from ensue.nn.state import NoState, State


@dataclass(frozen=True, kw_only=True, slots=True)
class BERTConfig(EncoderConfig):
    """Settings of BERT."""

    next_sentence: bool = True
    """Whether it also learns to tell if the second text follows the first."""
    tied: bool = True
    """Whether the output layer is the embedding matrix again."""

    def __post_init__(self) -> None:
        super(BERTConfig, self).__post_init__()  # with slots, super() would look for the class without them
        check(self, "next_sentence", self.pooled or not self.next_sentence, "false without pooled")


@dataclass(frozen=True, kw_only=True, slots=True)
class RoBERTaConfig(BERTConfig):
    """Settings of RoBERTa: BERT's, without what it leaves out."""

    segments: int = 1
    """Number of segments: RoBERTa has one vector that all tokens share."""
    pooled: bool = False
    """Whether the first token is pooled to a vector for the whole."""
    next_sentence: bool = False
    """Whether it also learns to tell if the second text follows the first."""
    epsilon: float = 1e-5
    """What a norm adds to the variance."""


class MaskedHead(nn.Module):
    """LN(gelu(W h + b)), and then the logits E · + c."""

    def __init__(self, embed: nn.Embedding, activation: str, epsilon: float, tied: bool = True) -> None:
        super().__init__()
        vocabulary, width = embed.weight.shape
        self.activation = activation
        self.dense = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width, eps=epsilon)
        self.out = nn.Linear(width, vocabulary)
        if tied:
            self.out.weight = embed.weight

    def features(self, hidden: Tensor) -> Tensor:
        """What the tied output layer sees, (…, D) → (…, D)."""
        features: Tensor = self.norm(ACTIVATIONS[self.activation].plain(self.dense(hidden)))
        return features

    def forward(self, hidden: Tensor) -> Tensor:
        """(…, D) → (…, V)."""
        logits: Tensor = self.out(self.features(hidden))
        return logits


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"layers": 2, "heads": 2, "hidden": 128, "context": 128},
    "small": {"layers": 4, "heads": 4, "hidden": 256, "context": 128},
    "base": {"layers": 12, "heads": 12, "hidden": 768, "context": 512},
    "large": {"layers": 24, "heads": 16, "hidden": 1024, "context": 512},
}
"""The sizes people know: tiny is Turc et al.'s (2019); base and large are the paper's, 109,482,240 and 335,141,888
parameters with 30,522 tokens, heads not counted."""
LEARNING: dict[str, dict[str, Any]] = {
    "tiny": {"train.lr": 2e-3},
    "small": {"train.lr": 1e-3},
    "base": {"train.lr": 1e-4, "train.warmup": 10_000, "train.batch": 256, "train.steps": 1_000_000},
    "large": {"train.lr": 1e-4, "train.warmup": 10_000, "train.batch": 256, "train.steps": 1_000_000},
}


class BERT(Model):
    """softmax(E LN(gelu(W T_i + b)) + c) at masked positions, softmax(W_n C) for the pair."""

    Config: ClassVar[type[Any]] = BERTConfig
    task = "masked"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {**SIZES["tiny"], **LEARNING["tiny"]},
        **{name: {**size, **LEARNING[name]} for name, size in SIZES.items()},
    }

    def __init__(self, config: BERTConfig) -> None:
        super().__init__()
        self.config = config
        self.body = Encoder(config)
        self.head = MaskedHead(self.body.embed, config.activation, config.epsilon, config.tied)
        self.next = nn.Linear(config.hidden, 2) if config.next_sentence else None
        initialise(self)

    @property
    def traits(self) -> Traits:
        """It needs the whole text at once, and sees every token that is not masked."""
        return Traits(causal=False, steps=False, blind=False, context=self.config.context)

    def start(self, rows: int) -> NoState:
        """Nothing is remembered."""
        return NoState(torch.zeros(rows, device=self.body.embed.weight.device))

    def forward(
        self,
        tokens: Tensor,
        state: State | None = None,
        lengths: Tensor | None = None,
        want: Sequence[Want] = ("logits",),
        segments: Tensor | None = None,
    ) -> Output:
        """Read tokens (B, T); logits at position t are for token t, which it sees unless it is masked."""
        found = self.body(tokens, segments, lengths, weights="attention" in want)
        return answer(self.head, found.hidden, self.start(len(tokens)), lengths, want, found.attention)

    def encode(self, tokens: Tensor, segments: Tensor | None, lengths: Tensor | None, positions: Tensor) -> Encoded:
        """The encoder's output at each row's first token and at ``positions`` (B, K), in that order: (B, 1 + K, D)."""
        first = torch.zeros(len(tokens), 1, dtype=torch.long, device=tokens.device)
        found: Encoded = self.body(tokens, segments, lengths, torch.cat([first, positions], dim=1))
        return found

    def masked_loss(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """The mean of −log P(x_i | x̂) over masked positions, (M, D), (M,) → a scalar."""
        assert isinstance(self.head, MaskedHead)
        out = self.head.out
        return mean_cross_entropy(self.head.features(hidden), out.weight, out.bias, targets)

    def next_logits(self, first: Tensor) -> Tensor:
        """Logits of whether the second text follows (0) or not (1), of the first tokens (B, D) → (B, 2)."""
        assert self.next is not None
        logits: Tensor = self.next(self.body.pool(first))
        return logits

    def next_loss(self, first: Tensor, other: Tensor) -> Tensor:
        """Cross-entropy of the pair; ``other`` (B,) is 1 where the second text is from elsewhere."""
        return F.cross_entropy(self.next_logits(first), other)


class RoBERTa(BERT):
    """The same without the next sentence and with one segment; full texts, masked anew each time they are read."""

    Config: ClassVar[type[Any]] = RoBERTaConfig
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        name: {**preset, "tokenizer.kind": "bpe"} for name, preset in BERT.presets.items()
    }
