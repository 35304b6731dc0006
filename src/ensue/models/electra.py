"""ELECTRA: an encoder that learns which tokens of a text were replaced (Clark et al., 2020).

    generator         P_G(x_i | x̂) = softmax(E LN(gelu(W h_G(x̂)_i + b)) + c)       at masked positions i of x̂, as BERT's
    replacement       x̃_i ~ P_G(x_i | x̂) where i is masked, x̃_i = x_i elsewhere
    discriminator     D(x̃, t) = σ(w · gelu(W_D h_D(x̃)_t + b_D) + c_D)            P(x̃_t is not x_t), at every position t
    training          L = −log P_G(x_i | x̂) + λ (−log of D where x̃_t ≠ x_t, of 1 − D elsewhere), each term its mean

The generator is a smaller encoder beside the discriminator, with the same embeddings. It is trained to fill in masks,
not to deceive: no gradient passes through x̃. Every position gives the discriminator something to learn, not only 15 %
of them, and it never sees [MASK]. It is ``body``, what labelling models begin with; the generator fills in masks.

Legend: B rows, T tokens, M masked positions, D width, E embedding (its width may be smaller than D).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ensue.core.settings import check, check_not_negative
from ensue.models.bert import BERT, BERTConfig, MaskedHead
from ensue.models.encoder import Encoder, EncoderConfig
from ensue.nn.feed_forward import ACTIVATIONS
from ensue.nn.sampling import inverse_transform
from ensue.nn.trunk_config import initialise


@dataclass(frozen=True, kw_only=True, slots=True)
class ELECTRAConfig(BERTConfig):
    """Configuration of ELECTRA."""

    labels_with: ClassVar[str] = "gelu-erf"
    pooled: bool = False
    next_sentence: bool = False
    generator: float = 0.25
    """Size of the generator: its width, heads and inner width as a share of the discriminator's."""
    generator_layers: int = 0
    """Number of blocks of the generator; 0 means layers."""
    detection: float = 50.0
    """λ, the weight of the discriminator's loss beside the generator's."""

    def __post_init__(self) -> None:
        super(ELECTRAConfig, self).__post_init__()  # with slots, super() would look for the class without them
        check(self, "next_sentence", not self.next_sentence, "false: ELECTRA is not trained on pairs")
        check(self, "pooled", not self.pooled, "false: no pooled vector is trained")
        check(self, "generator", 0 < self.generator <= 1, "above 0 and at most 1")
        check_not_negative(self, "generator_layers")
        check(self, "detection", 0 < self.detection < float("inf"), "above 0, and finite")
        check(self, "generator", self.generator_width > 0, f"large enough for hidden = {self.hidden}")

    @property
    def generator_width(self) -> int:
        """Width of the generator."""
        return round(self.generator * self.hidden)

    @property
    def generator_heads(self) -> int:
        """Number of the generator's attention heads, which divide its width."""
        most = max(1, int(self.generator * self.heads + 1e-6))
        return next(heads for heads in range(most, 0, -1) if self.generator_width % heads == 0)

    def generator_config(self) -> EncoderConfig:
        """Return the configuration of the generator."""
        own = {field.name: getattr(self, field.name) for field in fields(EncoderConfig)}
        width, embedding = self.generator_width, self.embedding or self.hidden
        own |= {"hidden": width, "heads": self.generator_heads, "kv_heads": 0}
        own |= {"layers": self.generator_layers or self.layers, "inner": round(self.generator * self.inner)}
        own |= {"groups": min(self.groups, own["layers"]), "embedding": 0 if embedding == width else embedding}
        return EncoderConfig(**own)


class ReplacedHead(nn.Module):
    """The logit w · gelu(W h + b) + c that a token was replaced."""

    def __init__(self, width: int, activation: str) -> None:
        super().__init__()
        self.activation = activation
        self.dense = nn.Linear(width, width)
        self.out = nn.Linear(width, 1)

    def forward(self, hidden: Tensor) -> Tensor:
        """(…, D) → (…)."""
        logits: Tensor = self.out(ACTIVATIONS[self.activation].plain(self.dense(hidden)))
        return logits[..., 0]


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"layers": 2, "heads": 2, "hidden": 128, "context": 128},
    "small": {"layers": 4, "heads": 4, "hidden": 256, "embedding": 128, "context": 128},
    "paper-small": {"layers": 12, "heads": 4, "hidden": 256, "embedding": 128, "context": 512},
    "base": {"layers": 12, "heads": 12, "hidden": 768, "context": 512, "generator": 1 / 3},
    "large": {"layers": 24, "heads": 16, "hidden": 1024, "context": 512, "generator": 0.25},
}
"""paper-small, base and large are the paper's, with 13,483,008, 108,891,648 and 334,092,288 parameters in the
discriminator for 30,522 tokens, without heads."""
MASKS: dict[str, Any] = {"train.mask_as_mask": 1.0, "train.mask_as_random": 0.0, "train.keep": "last"}
"""All masked tokens become [MASK]. The last weights are kept: a better generator makes the discriminator's loss grow,
so the lowest loss is not the best discriminator's."""
PAPER: dict[str, Any] = {"train.warmup": 10_000, "tokenizer.vocabulary": 30_522}
TRAINING: dict[str, dict[str, Any]] = {
    "tiny": {"train.lr": 2e-3},
    "small": {"train.lr": 1e-3},
    "paper-small": {"train.lr": 5e-4, "train.batch": 128, "train.steps": 1_000_000, **PAPER},
    "base": {"train.lr": 2e-4, "train.batch": 256, "train.steps": 766_000, **PAPER},
    "large": {"train.lr": 2e-4, "train.batch": 2048, "train.steps": 400_000, "train.mask": 0.25, **PAPER},
}


class ELECTRA(BERT):
    """P_G at masked positions, and σ(w · gelu(W_D h_D(x̃)_t + b_D) + c_D) at all."""

    Config: ClassVar[type[Any]] = ELECTRAConfig
    objective = "replaced"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {**SIZES["tiny"], **MASKS, **TRAINING["tiny"]},
        **{name: {**size, **MASKS, **TRAINING[name]} for name, size in SIZES.items()},
    }

    def __init__(self, config: ELECTRAConfig) -> None:
        super(BERT, self).__init__()
        self.config = config
        small = config.generator_config()
        self.body = Encoder(config)
        self.generator = Encoder(small, self.body)
        self.head = MaskedHead(self.body.embed, small.hidden, config.activation, config.epsilon, config.tied)
        self.replaced = ReplacedHead(config.hidden, config.activation)
        self.next = None
        initialise(self)

    @property
    def masked_encoder(self) -> Encoder:
        """The generator."""
        return self.generator

    @torch.no_grad()
    def sample(self, hidden: Tensor, noise: Tensor) -> Tensor:
        """Draw a token from P_G for each of the generator's vectors (M, D), given noise (M,) in [0, 1), → (M,)."""
        return inverse_transform(self.head(hidden), noise)

    def read(self, tokens: Tensor) -> Tensor:
        """Read tokens (B, T) with the discriminator: what a use of the model costs."""
        return self.replaced_logits(tokens)

    def replaced_logits(self, tokens: Tensor, segments: Tensor | None = None, lengths: Tensor | None = None) -> Tensor:
        """Return the discriminator's logits that each of the tokens (B, T) was replaced, (B, T)."""
        return self.replaced(self.body(tokens, segments, lengths).hidden)  # type: ignore[no-any-return]

    def replaced_loss(
        self, tokens: Tensor, segments: Tensor | None, lengths: Tensor | None, replaced: Tensor
    ) -> Tensor:
        """Return the mean of the discriminator's loss over all tokens but padding; ``replaced`` (B, T) is the truth."""
        logits, wanted = self.replaced_logits(tokens, segments, lengths), replaced
        if lengths is not None:
            real = torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None]
            logits, wanted = logits[real], replaced[real]
        return F.binary_cross_entropy_with_logits(logits, wanted.to(logits.dtype))
