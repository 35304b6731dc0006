"""T5: an encoder–decoder for which every task is text to text (Raffel et al., 2020).

    h_0 = E x,  h_l = Block(h_{l-1})            self-attention in both directions, a feed-forward network
    g_0 = E y,  g_l = Block(g_{l-1}, h)         causal self-attention, attention to h, a feed-forward network
    h   = RMSNorm(h_L)
    P(y_{t+1} | y_1 … y_t, x) = softmax(E RMSNorm(g_L) / √D)        v1.1: softmax(W RMSNorm(g_L))
    Block: z + Mix(RMSNorm(z)) and so on; FFN(z) = W_2 relu(W_1 z)   v1.1: W_2 (gelu(W_g z) ∘ W_1 z)

No layer has a bias. Attention is not scaled by √d; where a token stands is a learnt bias of scores for each bucket of
distances, which the layers of a stack share (``ensue.nn.mixers.relative``). Dropout is on embeddings, attention
weights, inside feed-forward networks, after every part, and after the last norm.

It is pre-trained to fill in spans of a text that sentinels stand for (``ensue.data.spans``), then trained on pairs of
texts: a prefix of the source says which task it is.

Legend: N sentences, S source time, B rows, T target time, D width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from torch import Tensor, nn

from ensue.core.settings import NOTHING, Need, check, check_not_negative
from ensue.models.conditional import ConditionalConfig
from ensue.models.encoder_decoder import EncoderDecoder, Encoding
from ensue.nn.dropout import Dropout
from ensue.nn.layout import Layout
from ensue.nn.mixers.relative import UnscaledCrossAttention
from ensue.nn.positions import NoPositions
from ensue.nn.trunk_config import TrunkConfig, build_trunk, last_norm


@dataclass(frozen=True, kw_only=True, slots=True)
class T5Config(ConditionalConfig, TrunkConfig):
    """Configuration of T5."""

    directions: ClassVar[tuple[str, ...]] = ("causal", "both")
    needs: ClassVar[dict[str, Need]] = dict.fromkeys(("rope_base", "rope_scaling"), NOTHING)  # refused where checked
    decoder_layers: int = 0
    """Number of blocks of the decoder; 0 means as many as the encoder's."""
    context: int = 512
    """Maximum length in tokens, source or target, of training; longer sources are cut."""
    tied: str = "all"
    """Weight sharing: all (source, target and output, which is then scaled by 1/√hidden; v1.0) or embeddings (source
    and target; v1.1)."""
    ties: ClassVar[tuple[str, ...]] = ("all", "embeddings")
    attention: str = "relative:buckets=32:distance=128"
    """What mixes positions: relative, with its number of buckets and the largest distance that they tell apart; `ensue
    systems attention` lists others."""
    feed: str = "relu"
    """Feed-forward network: relu (v1.0), geglu (v1.1), gelu, gelu-erf or swiglu."""
    norm: str = "rms"
    bias: bool = False
    epsilon: float = 1e-6
    """Number that norms add to the mean square."""
    start: int = -1
    """The token before a target's first; -1 means the end token."""

    def __post_init__(self) -> None:
        super(T5Config, self).__post_init__()
        self.check_trunk()
        check_not_negative(self, "decoder_layers")
        check(self, "norm", self.norm in ("rms", "pre", "sandwich-rms"), "rms, pre or sandwich-rms")
        check(self, "epsilon", 0 < self.epsilon < 1, "between 0 and 1")
        for name, unused in {"rope_base": 10000.0, "rope_scaling": "none"}.items():
            check(self, name, getattr(self, name) == unused, f"{unused}: t5 has relative positions")


class LastNorm(nn.Module):
    """factor · dropout(Norm(x)): the output of a stack."""

    def __init__(self, norm: nn.Module, dropout: float, factor: float = 1.0) -> None:
        super().__init__()
        self.norm, self.dropout, self.factor = norm, Dropout(dropout), factor

    def forward(self, x: Tensor) -> Tensor:
        """(…, D) → (…, D)."""
        y: Tensor = self.dropout(self.norm(x))
        return y if self.factor == 1.0 else y * self.factor


PAPER: dict[str, Any] = {
    "train.lr": 1e-2,
    "train.schedule": "inverse-sqrt",
    "train.warmup": 10_000,
    "train.steps": 524_288,
    "train.batch": 128,
    "context": 512,
    "tokenizer.kind": "unigram",
    "tokenizer.vocabulary": 32_128,
}
"""Settings that all published sizes share; their optimiser was Adafactor."""
SIZES: dict[str, dict[str, Any]] = {
    "t5-small": {"layers": 6, "heads": 8, "hidden": 512, "inner": 2048},
    "t5-base": {"layers": 12, "heads": 12, "hidden": 768, "inner": 3072},
    "t5-large": {"layers": 24, "heads": 16, "hidden": 1024, "inner": 4096},
    "t5-3b": {"layers": 24, "heads": 32, "head_width": 128, "hidden": 1024, "inner": 16_384},
    "t5-11b": {"layers": 24, "heads": 128, "head_width": 128, "hidden": 1024, "inner": 65_536},
}
"""The published models; 60,506,624 parameters of the first."""
NEWER: dict[str, Any] = {"feed": "geglu", "tied": "embeddings", "dropout": 0.0}
"""What version 1.1 changed; there is no dropout in pre-training."""
NEWER_SIZES: dict[str, dict[str, Any]] = {
    "t5-v1.1-small": {"layers": 8, "heads": 6, "head_width": 64, "hidden": 512, "inner": 1024},
    "t5-v1.1-base": {"layers": 12, "heads": 12, "hidden": 768, "inner": 2048},
    "t5-v1.1-large": {"layers": 24, "heads": 16, "hidden": 1024, "inner": 2816},
}
SMALL: dict[str, Any] = {"layers": 3, "heads": 4, "hidden": 128, "inner": 512, "context": 128, "train.lr": 3e-3}


class T5(EncoderDecoder):
    """softmax(E RMSNorm(g_L) / √D), g_l = Block(g_{l-1}, h), h = RMSNorm(h_L), h_l = Block(h_{l-1})."""

    Config = T5Config
    task = "spans"
    more_tasks: ClassVar[tuple[str, ...]] = ("translation",)
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {**SMALL, "dropout": 0.0},
        "v1.1": {**SMALL, **NEWER, "inner": 336},
        **{name: {**PAPER, **size} for name, size in SIZES.items()},
        **{name: {**PAPER, **NEWER, **size} for name, size in NEWER_SIZES.items()},
    }

    def __init__(self, config: T5Config) -> None:
        super().__init__()
        self.config = config
        D, p = config.hidden, config.dropout
        self.embed = nn.Embedding(config.vocabulary, D)  # E
        self.positions = NoPositions(config.context, D)
        build = partial(
            build_trunk,
            context=config.context,
            attention_dropout=p,
            feed_dropout=p,
            epsilon=config.epsilon,
        )
        self.encoder = build(config, causal=False)
        of_decoder = replace(config, layers=config.decoder_layers or config.layers)
        self.decoder = build(of_decoder, causal=True, cross=UnscaledCrossAttention)
        tied = config.tied == "all"
        self.norm_source = LastNorm(last_norm(config, config.epsilon), p)
        self.norm = LastNorm(last_norm(config, config.epsilon), p, D**-0.5 if tied else 1.0)
        self.head = nn.Linear(D, config.vocabulary, bias=False)  # W
        if tied:
            self.head.weight = self.embed.weight
        self.dropout = Dropout(p)
        self._initialise()

    def _initialise(self) -> None:
        """N(0, 1) for embeddings, N(0, 1 / fan-in) for other matrices; queries are 1/√d of that."""
        config = self.config
        for name, weight in self.named_parameters():
            if name.startswith("embed"):
                nn.init.normal_(weight)
            elif weight.dim() == 2:
                nn.init.normal_(weight, std=(config.hidden if name.endswith(".bias") else weight.shape[1]) ** -0.5)
        wide = config.head_width or config.hidden // config.heads
        for name, module in self.named_modules():
            if name.endswith("attention.project"):
                module.weight.data[: config.heads * wide] *= wide**-0.5
            elif name.endswith("cross.query"):
                module.weight.data *= wide**-0.5

    def first(self, end: int) -> int:
        """The token before a target's first."""
        return end if self.config.start < 0 else int(self.config.start)

    def encode(self, source: Tensor, layout: Layout | None = None, weights: bool = False) -> Encoding:
        """Return h of source tokens (N, S)."""
        layout = layout or Layout()
        through = self.encoder(self.dropout(self.embed(source)), None, layout, weights=weights)
        return Encoding(self.norm_source(through.h), layout.lengths, through.weights)
