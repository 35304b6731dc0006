"""Convolutional sequence to sequence: an encoder and a decoder of gated convolutions, with attention in every layer.

    e = 0.1 (√E · E_x x + PE),  g = 0.1 (√E · E_y y + PE)            source and target tokens, with positions

    h_0 = W_in e                                                     the encoder; v([a; b]) = a ∘ σ(b) halves the width
    h_l = √½ (v(W_l ∗ h_{l-1} + b_l) + h_{l-1})
    z   = W_out h_L

    s_0 = W_in' g                                                    the decoder; its convolutions are causal
    s_l = √½ (v(W_l' ∗ s_{l-1} + b_l') + s_{l-1})
    d_l = W_d s_l + b_d + g                                          the query: the state and the last token
    α_l = softmax_j(d_l · z_j)
    c_l = √m Σ_j α_{l,j} (z_j + e_j)                                 the token's embedding beside its context
    s_l ← √½ (s_l + W_c c_l + b_c)
    P(y_{t+1}) = softmax(U W_out' s_L + b)

(Gehring et al., 2017). A sum of two is multiplied by √½ and a mean over m source positions by m √(1/m) = √m, which
preserves the variance; weights are initialised as in the paper's section 3.5, for the same reason. Three things differ:

- Positions are sinusoids instead of learned vectors, so the length is not limited. At the paper's scale of 0.1 α is
  flat at first; the mean of sinusoids over positions is not zero, so c is larger at first than in the paper.
- Weights are not normalised.
- The encoder's gradients are not divided by the number of layers that attend: Adam's steps do not depend on the scale
  of gradients, unlike those of the paper's optimiser.

A position sees 1 + layers · (width − 1) target tokens. The state is each convolution's last inputs, the position of the
next token, and the source, stored once per sentence: z and √m (z + e).

Legend: N sentences, S source time, m a source's length, B rows, T target time, D width, E embedding width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ensue.core.settings import check, check_positive
from ensue.models.conditional import ConditionalConfig, ConditionalModel
from ensue.models.model import answer
from ensue.nn.convolution import (
    CausalConvolution,
    Convolution,
    ConvolutionalDecoderState,
    ConvolutionState,
    FullConvolution,
)
from ensue.nn.dropout import Dropout
from ensue.nn.positions import SinusoidalPositions
from ensue.nn.protocol import Output, Traits, Wants
from ensue.nn.scores import attend
from ensue.nn.source import Source
from ensue.nn.state import State

SQRT_HALF = math.sqrt(0.5)
"""Preserves the variance of a sum of two."""
SCALE = 0.1
"""Standard deviation of new embeddings."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ConvS2SConfig(ConditionalConfig):
    """Configuration of the convolutional encoder–decoder."""

    layers: int = 4
    """Number of convolution layers in the encoder and in the decoder."""
    width: int = 3
    """Kernel size; an odd one is symmetric in the encoder."""
    embedding: int = 0
    """Size of embeddings and of attention queries; 0 means hidden."""

    def __post_init__(self) -> None:
        super(ConvS2SConfig, self).__post_init__()
        check_positive(self, "width")
        check(self, "embedding", self.embedding >= 0, "0 or more")


class EncoderBlock(nn.Module):
    """h_l = √½ (v(W ∗ h + b) + h)."""

    def __init__(self, hidden: int, width: int, dropout: float) -> None:
        super().__init__()
        self.convolution = FullConvolution(hidden, 2 * hidden, width)
        self.dropout = Dropout(dropout)

    def forward(self, h: Tensor, lengths: Tensor | None) -> Tensor:
        """(N, S, D) → (N, S, D)."""
        y, _ = self.convolution(self.dropout(h), None, lengths)
        return SQRT_HALF * (F.glu(y, dim=-1) + h)


class DecoderBlock(nn.Module):
    """s_l = √½ (v(W ∗ s + b) + s), then √½ (s_l + W_c c_l + b_c) with the context c_l of attention."""

    def __init__(self, hidden: int, embedding: int, width: int, dropout: float) -> None:
        super().__init__()
        self.convolution = CausalConvolution(hidden, 2 * hidden, width)
        self.query = nn.Linear(hidden, embedding)  # W_d
        self.bring = nn.Linear(embedding, hidden)  # W_c
        self.dropout = Dropout(dropout)

    def forward(
        self, s: Tensor, g: Tensor, state: ConvolutionState, lengths: Tensor | None, source: Source
    ) -> tuple[Tensor, ConvolutionState, Tensor]:
        """(B, T, D) → (B, T, D), the next state, and the attention weights α (B, T, S)."""
        y, after = self.convolution(self.dropout(s), state, lengths)
        s = SQRT_HALF * (F.glu(y, dim=-1) + s)
        keys, values = source.parts
        d = source.fold(self.query(s) + g)  # (N, k·T, E)
        c, weights = attend(d @ keys.transpose(1, 2), values, source.mask(keys.shape[1]))
        return SQRT_HALF * (s + self.bring(source.unfold(c))), after, source.unfold(weights)


class ConvS2S(ConditionalModel):
    """softmax(U W_out' s_L + b): gated convolutions with attention in every layer."""

    Config = ConvS2SConfig
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {"train.lr": 1e-3, "train.batch_tokens": 2000, "train.label_smoothing": 0.1},
        "romanian": {  # the paper's network for WMT'16 English–Romanian
            "layers": 20,
            "hidden": 512,
            "train.lr": 2.5e-4,
            "train.batch_tokens": 4000,
            "tokenizer.vocabulary": 40_000,
        },
    }

    def __init__(self, config: ConvS2SConfig) -> None:
        super().__init__()
        self.config = config
        D, E, p = config.hidden, config.embedding or config.hidden, config.dropout
        self.embed_source = nn.Embedding(config.source_vocabulary, E)  # E_x
        self.embed = nn.Embedding(config.vocabulary, E)  # E_y
        self.positions = SinusoidalPositions(config.context, E)
        self.into_encoder = nn.Linear(E, D)  # W_in
        self.encoder = nn.ModuleList(EncoderBlock(D, config.width, p) for _ in range(config.layers))
        self.out_of_encoder = nn.Linear(D, E)  # W_out
        self.into_decoder = nn.Linear(E, D)  # W_in'
        self.decoder = nn.ModuleList(DecoderBlock(D, E, config.width, p) for _ in range(config.layers))
        self.out_of_decoder = nn.Linear(D, E)  # W_out'
        self.head = nn.Linear(E, config.vocabulary)  # U, b
        if config.tied == "target":
            self.head.weight = self.embed.weight
        self.dropout = Dropout(p)
        self._initialise()

    def _initialise(self) -> None:
        """Normal weights that preserve the variance: √(1/n) for n inputs, √(4/n) before v, √p of that after dropout."""
        kept = 1 - self.config.dropout
        dropped = {self.into_encoder, self.into_decoder, self.head}
        for module in self.modules():
            if isinstance(module, nn.Linear):
                share = kept if module in dropped else 1.0
                nn.init.normal_(module.weight, std=math.sqrt(share / module.in_features))
                nn.init.zeros_(module.bias)
            elif isinstance(module, Convolution):
                nn.init.normal_(module.weight, std=math.sqrt(4 * kept / module.weight[0].numel()))
        for table in (self.embed_source, self.embed):
            nn.init.normal_(table.weight, std=table.embedding_dim**-0.5)

    @property
    def traits(self) -> Traits:
        """The context of stacked convolutions."""
        return Traits(context=1 + self.config.layers * (self.config.width - 1))

    def start(self, source: Tensor, lengths: Tensor | None = None) -> ConvolutionalDecoderState:
        """Encode the source (N, S): z, and √m (z + e)."""
        S = source.shape[1]
        positions = torch.arange(S, device=source.device)[None]
        e = self.dropout(SCALE * self.positions(self.embed_source(source), positions, S))
        h = self.into_encoder(e)
        for block in self.encoder:
            h = block(h, lengths)
        z = self.out_of_encoder(h)
        size = math.sqrt(S) if lengths is None else lengths.to(z.dtype).sqrt()[:, None, None]
        return ConvolutionalDecoderState.start(self.decoder, Source.of((z, size * (z + e)), lengths, S))

    def forward(
        self, tokens: Tensor, state: State | None = None, lengths: Tensor | None = None, want: Wants = ("logits",)
    ) -> Output:
        """Read target tokens (B, T); attention is each decoder layer's α as one head, (B, 1, T, S)."""
        assert isinstance(state, ConvolutionalDecoderState)
        source, clock, T = state.source.even(), state.clock, tokens.shape[1]
        g = self.dropout(SCALE * self.positions(self.embed(tokens), clock.positions(T), clock.used + T))
        s, blocks, attention = self.into_decoder(g), [], []
        for block, past in zip(self.decoder, state.blocks):
            s, new, weights = block(s, g, past, lengths, source)
            blocks.append(new)
            attention.append(weights[:, None])
        hidden = self.dropout(self.out_of_decoder(s))
        after = ConvolutionalDecoderState(tuple(blocks), clock.after(T, lengths), source)
        return answer(self.head, hidden, after, lengths, want, tuple(attention) if "attention" in want else None)
