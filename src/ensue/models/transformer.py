"""The Transformer: an encoder–decoder made of attention (Vaswani et al., 2017).

    h_0 = √D · E_x x + PE                   source tokens and positions
    h_l = Block(h_{l-1})                    self-attention over the whole source, a feed-forward network
    g_0 = √D · E_y y + PE
    g_l = Block(g_{l-1}, h_L)               causal self-attention, attention to the source, a feed-forward network
    P(y_{t+1}) = softmax(g_L W)             W = E_y; with one vocabulary for both languages also E_x

``norm = "post"`` is the paper's order and needs a warm-up of the learning rate; ``"pre"`` normalises the inputs of each
block, with one more norm after the last one of the encoder and of the decoder.

Legend: N sentences, S source time, B rows, T target time, D width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ensue.core.settings import check
from ensue.models.conditional import ConditionalConfig
from ensue.models.cove import SourceReader
from ensue.models.encoder_decoder import EncoderDecoder, Encoding
from ensue.nn.cross_attention import CrossAttention
from ensue.nn.dropout import Dropout
from ensue.nn.feed_forward import ACTIVATIONS
from ensue.nn.layout import Layout
from ensue.nn.positions import POSITIONS
from ensue.nn.trunk_config import TrunkConfig, build_trunk, last_norm


@dataclass(frozen=True, kw_only=True, slots=True)
class TransformerConfig(ConditionalConfig, TrunkConfig):
    """Configuration of the Transformer."""

    directions: ClassVar[tuple[str, ...]] = ("causal", "both")
    tied: str = "auto"
    """Weight sharing: all (source, target and output), target (and output), none, or auto: all if the languages share a
    vocabulary, otherwise target."""
    ties: ClassVar[tuple[str, ...]] = ("auto", "all", "target", "none")
    activation: str = "relu"
    """Activation of a two-layer feed-forward network: relu, gelu or gelu-erf."""
    feed: str = ""
    """Feed-forward network: empty for two layers with ``activation``; swiglu or geglu for one with a gate."""
    positions: str = "sinusoidal"
    """Position encoding: sinusoidal, learned, rotary, alibi or none."""

    def __post_init__(self) -> None:
        super(TransformerConfig, self).__post_init__()
        check(self, "activation", self.activation in ACTIVATIONS, " or ".join(ACTIVATIONS))
        self.check_trunk()


SMALL: dict[str, Any] = {"train.lr": 2e-3, "train.batch_tokens": 2000, "train.beta2": 0.98}
PAPER: dict[str, Any] = {
    "layers": 6,
    "norm": "post",
    "train.schedule": "inverse-sqrt",
    "train.warmup": 4000,
    "train.beta2": 0.98,
    "train.label_smoothing": 0.1,
    "train.batch_tokens": 25_000,
    "tokenizer.vocabulary": 37_000,
}
"""Settings that the paper's base and big models share."""


class Transformer(EncoderDecoder):
    """softmax(g_L E_yᵀ), g_l = Block(g_{l-1}, h_L), h_l = Block(h_{l-1})."""

    Config = TransformerConfig
    packs = True
    limits_source: ClassVar[bool] = True
    """Whether the encoder reads at most ``context`` tokens, as it numbers their positions."""
    expect: ClassVar[dict[str, str]] = {
        "dates": "dates of 40 languages to ISO 8601, all of 1,000 exactly right (one seed), 4 minutes on two cores",
        "multi30k": "Multi30k English to German, test2016: 39.9 BLEU (one seed), 45 minutes on one core",
    }
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {**SMALL, "train.label_smoothing": 0.1},
        "dates": {
            **SMALL,
            "layers": 2,
            "hidden": 128,
            "train.label_smoothing": 0.0,
            "train.budget": 240.0,
            "tokenizer.kind": "char",
        },
        "multi30k": {  # little data needs a small model and much dropout (Wu et al., 2021)
            "layers": 4,
            "hidden": 128,
            "inner": 256,
            "dropout": 0.25,
            "context": 128,
            "train.epochs": 45.0,
            "train.lr": 4e-3,
            "train.batch_tokens": 4000,
            "train.beta2": 0.98,
            "train.label_smoothing": 0.1,
            "train.average": 5,
            "tokenizer.kind": "bpe",
            "tokenizer.vocabulary": 6000,
        },
        "base": {**PAPER, "hidden": 512, "heads": 8, "train.lr": 7e-4, "train.average": 5, "train.steps": 100_000},
        "big": {
            **PAPER,
            "hidden": 1024,
            "heads": 16,
            "dropout": 0.3,
            "train.lr": 5e-4,
            "train.average": 20,
            "train.steps": 300_000,
        },
    }

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        D = config.hidden
        self.embed = nn.Embedding(config.vocabulary, D)  # E_y
        shared = config.tied == "all"
        self.embed_source = self.embed if shared else nn.Embedding(config.source_vocabulary, D)  # E_x
        self.positions = POSITIONS[config.positions](config.context, D)
        build = partial(build_trunk, config, positions=config.positions, context=config.context)
        self.encoder = build(causal=False)
        self.decoder = build(causal=True, cross=CrossAttention)
        self.norm_source, self.norm = last_norm(config), last_norm(config)
        self.head = nn.Linear(D, config.vocabulary, bias=False)
        if config.tied != "none":
            self.head.weight = self.embed.weight
        self.dropout = Dropout(config.dropout)
        self._initialise()

    def _initialise(self) -> None:
        """N(0, 1/D) for embeddings, Glorot's uniform for all other matrices, zero for biases."""
        for name, weight in self.named_parameters():
            if name.startswith(("embed", "head")):
                nn.init.normal_(weight, std=self.config.hidden**-0.5)
            elif weight.dim() == 2:
                nn.init.xavier_uniform_(weight)
            elif name.endswith("bias"):
                nn.init.zeros_(weight)

    def encode(self, source: Tensor, layout: Layout | None = None, weights: bool = False) -> Encoding:
        """Return h_L of source tokens (N, S), or packed (M,)."""
        layout = layout or Layout()
        S = source.shape[-1] if layout.packing is None else layout.packing.shape[1]
        positions = layout.positions
        if positions is None:
            positions = torch.arange(S, device=source.device)[None]
        x = self.dropout(self.positions(self.embed_source(source), positions, S))
        through = self.encoder(x, None, layout, weights=weights)
        return Encoding(self.norm_source(through.h), layout.lengths, through.weights)

    def reader(self) -> SourceReader:
        """Return the encoder, for features of another model."""
        names = ("embed_source", "positions", "dropout", "encoder", "norm_source")
        parts = {name: self.get_submodule(name) for name in names}
        return SourceReader(parts, lambda own, x, n: Transformer.encode(own, x, Layout(n)).h, self.config.hidden)
