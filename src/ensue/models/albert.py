"""ALBERT: a BERT of few parameters, since its layers share one block (Lan et al., 2020).

    h_0 = W_h LN(E_x + E_s + E_p) + b                 embeddings of width E, E ≪ D, mapped to D
    h_l = Block_g(h_{l-1}),  g = ⌊(l − 1) G / L⌋      layers share G blocks; ALBERT has G = 1
    masked      P(x_i | x̂) = softmax(E_t LN(gelu(W T_i + b)) + c)      W maps D to E; E_t is the embedding (tied)
    order       P(B follows A) = softmax(W_n C)       of [CLS] A [SEP] B [SEP]; otherwise A follows B

V E + E D parameters replace the V D of BERT's embedding, and G blocks its L. A forward pass takes as long as that of a
BERT of the same shape. Where BERT's second text comes from another document, which its words often betray, ALBERT's is
always of the same document, so only the order of both tells.

Legend: D width, E width of embeddings, L layers, G blocks, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ensue.models.bert import BERT, PAPER, TRAINING, BERTConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class ALBERTConfig(BERTConfig):
    """Configuration of ALBERT."""

    embedding: int = 128
    groups: int = 1
    dropout: float = 0.0
    activation: str = "gelu"
    not_next: str = "swapped"


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"layers": 2, "heads": 2, "hidden": 128, "embedding": 64, "context": 128},
    "small": {"layers": 4, "heads": 4, "hidden": 256, "embedding": 128, "context": 128},
    "base": {"layers": 12, "heads": 12, "hidden": 768, "context": 512},
    "large": {"layers": 24, "heads": 16, "hidden": 1024, "context": 512},
    "xlarge": {"layers": 24, "heads": 16, "hidden": 2048, "context": 512},
    "xxlarge": {"layers": 12, "heads": 64, "hidden": 4096, "context": 512},
}
"""base to xxlarge are the published models, version 2: 11,683,584, 17,683,968, 58,724,864 and 222,595,584 parameters
for 30,000 tokens, without heads."""
PUBLISHED: dict[str, Any] = {**PAPER, "tokenizer.vocabulary": 30_000}
"""With BERT's learning rate and batches: ALBERT's own, 4,096 rows at 0.00176, are those of LAMB."""


class ALBERT(BERT):
    """softmax(E_t LN(gelu(W T_i + b)) + c) at masked positions, softmax(W_n C) for the order of a pair."""

    Config: ClassVar[type[Any]] = ALBERTConfig
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {**SIZES["tiny"], **TRAINING["tiny"]},
        **{name: {**SIZES[name], **TRAINING[name]} for name in ("tiny", "small")},
        **{name: {**SIZES[name], **PUBLISHED} for name in ("base", "large", "xlarge", "xxlarge")},
    }
