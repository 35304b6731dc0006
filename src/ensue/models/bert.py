"""BERT: an encoder trained to fill in masked tokens (Devlin et al., 2019).

    masked      P(x_i | x̂) = softmax(E LN(gelu(W T_i + b)) + c)       at masked positions i of a corrupted text x̂; E is
                                                                       the embedding (tied), or its own matrix
    pairs       P(B follows A) = softmax(W_n C)                        of [CLS] A [SEP] B [SEP]; B continues A, or it is
                                                                       from another document (next-sentence prediction),
                                                                       or A continues B (sentence-order prediction)

The masked head and the encoder's last block are computed at masked positions only. RoBERTa (Liu et al., 2019) has no
next-sentence loss and masks other tokens each time a text is read; DistilBERT (Sanh et al., 2019) has no segments and
no pooling either. ALBERT is in ``ensue.models.albert``, ELECTRA in ``ensue.models.electra``.

Legend: B rows, T tokens, K masked positions of a row, D width, E width of embeddings, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ensue.core.settings import Need, check
from ensue.kernels.cross_entropy import mean_cross_entropy
from ensue.models.encoder import Encoded, Encoder, EncoderConfig
from ensue.models.model import StatelessModel, answer
from ensue.nn.feed_forward import ACTIVATIONS
from ensue.nn.protocol import Output, Traits, Wants
from ensue.nn.state import State
from ensue.nn.trunk_config import initialise

NOT_NEXT = ("random", "swapped")
"""What the second text of a pair can be where it does not follow the first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BERTConfig(EncoderConfig):
    """Configuration of BERT."""

    needs: ClassVar[dict[str, Need]] = {"not_next": ("next_sentence", (True,))}
    next_sentence: bool = True
    """Whether to train on pairs too: whether the second text follows the first."""
    not_next: str = "random"
    """The second text of a pair that does not follow: random (from another document; next-sentence prediction) or
    swapped (what precedes the first; sentence-order prediction)."""
    tied: bool = True
    """Share weights between the embedding and the output layer."""

    def __post_init__(self) -> None:
        super(BERTConfig, self).__post_init__()  # with slots, super() would look for the class without them
        check(self, "next_sentence", self.pooled or not self.next_sentence, "false without pooled")
        check(self, "not_next", self.not_next in NOT_NEXT, " or ".join(NOT_NEXT))

    @property
    def pairs(self) -> str:
        """The rows of training: none for single texts, else ``not_next``."""
        return self.not_next if self.next_sentence else "none"


@dataclass(frozen=True, kw_only=True, slots=True)
class RoBERTaConfig(BERTConfig):
    """Configuration of RoBERTa."""

    segments: int = 1
    """Number of segments: one vector for all tokens."""
    pooled: bool = False
    next_sentence: bool = False
    epsilon: float = 1e-5


class MaskedHead(nn.Module):
    """The logits E LN(gelu(W h + b)) + c."""

    def __init__(self, embed: nn.Embedding, hidden: int, activation: str, epsilon: float, tied: bool = True) -> None:
        super().__init__()
        vocabulary, width = embed.weight.shape
        self.activation = activation
        self.dense = nn.Linear(hidden, width)
        self.norm = nn.LayerNorm(width, eps=epsilon)
        self.out = nn.Linear(width, vocabulary)
        if tied:
            self.out.weight = embed.weight

    def features(self, hidden: Tensor) -> Tensor:
        """Return the output layer's input, (…, D) → (…, E)."""
        return self.norm(ACTIVATIONS[self.activation].plain(self.dense(hidden)))  # type: ignore[no-any-return]

    def forward(self, hidden: Tensor) -> Tensor:
        """(…, D) → (…, V)."""
        return self.out(self.features(hidden))  # type: ignore[no-any-return]


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"layers": 2, "heads": 2, "hidden": 128, "context": 128},
    "small": {"layers": 4, "heads": 4, "hidden": 256, "context": 128},
    "base": {"layers": 12, "heads": 12, "hidden": 768, "context": 512},
    "large": {"layers": 24, "heads": 16, "hidden": 1024, "context": 512},
}
"""Published sizes: tiny is Turc et al.'s (2019); base and large are the paper's, with 109,482,240 and 335,141,888
parameters for 30,522 tokens, without heads."""
PAPER: dict[str, Any] = {"train.lr": 1e-4, "train.warmup": 10_000, "train.batch": 256, "train.steps": 1_000_000}
TRAINING = {"tiny": {"train.lr": 2e-3}, "small": {"train.lr": 1e-3}, "base": PAPER, "large": PAPER}


class BERT(StatelessModel):
    """softmax(E LN(gelu(W T_i + b)) + c) at masked positions, softmax(W_n C) for the pair."""

    Config: ClassVar[type[Any]] = BERTConfig
    task = "masked"
    objective: ClassVar[str] = "masked"
    """What training minimises: a name in ``ensue.train.masked_objectives.MASKED_OBJECTIVES``."""
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {**SIZES["tiny"], **TRAINING["tiny"]},
        **{name: {**size, **TRAINING[name]} for name, size in SIZES.items()},
    }
    head: MaskedHead
    next: nn.Linear | None

    def __init__(self, config: BERTConfig) -> None:
        super().__init__()
        self.config = config
        self.body = Encoder(config)
        self.head = MaskedHead(self.body.embed, config.hidden, config.activation, config.epsilon, config.tied)
        self.next = nn.Linear(config.hidden, 2) if config.next_sentence else None
        initialise(self)

    @property
    def masked_encoder(self) -> Encoder:
        """The encoder that the masked head reads."""
        return self.body

    @property
    def traits(self) -> Traits:
        """Bidirectional: it needs the whole text, and sees every token that is not masked."""
        return Traits(causal=False, steps=False, blind=False, context=self.config.context)

    def forward(
        self,
        tokens: Tensor,
        state: State | None = None,
        lengths: Tensor | None = None,
        want: Wants = ("logits",),
        segments: Tensor | None = None,
    ) -> Output:
        """Read tokens (B, T); logits at position t are for token t, which it sees unless it is masked."""
        encoded = self.masked_encoder(tokens, segments, lengths, weights="attention" in want)
        return answer(self.head, encoded.hidden, self.start(len(tokens)), lengths, want, encoded.attention)

    def encode(self, tokens: Tensor, segments: Tensor | None, lengths: Tensor | None, positions: Tensor) -> Encoded:
        """Return the encoder's output at each row's first token and at ``positions`` (B, K), as (B, 1 + K, D)."""
        first = torch.zeros(len(tokens), 1, dtype=torch.long, device=tokens.device)
        return self.masked_encoder(tokens, segments, lengths, torch.cat([first, positions], dim=1))  # type: ignore[no-any-return]

    def masked_loss(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Return the mean of −log P(x_i | x̂) over masked positions, (M, D), (M,) → a scalar."""
        out = self.head.out
        return mean_cross_entropy(self.head.features(hidden), out.weight, out.bias, targets)

    def next_logits(self, first: Tensor) -> Tensor:
        """Return the logits of "B follows A" (0) and "it does not" (1), of first tokens' vectors (B, D) → (B, 2)."""
        assert self.next is not None
        return self.next(self.body.pool(first))  # type: ignore[no-any-return]

    def next_loss(self, first: Tensor, other: Tensor) -> Tensor:
        """Return the loss of pairs; ``other`` (B,) is 1 if the second text does not follow the first."""
        return F.cross_entropy(self.next_logits(first), other)


class RoBERTa(BERT):
    """BERT with one segment and without next-sentence prediction."""

    Config: ClassVar[type[Any]] = RoBERTaConfig
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        name: {**preset, "tokenizer.kind": "bpe"} for name, preset in BERT.presets.items()
    }
