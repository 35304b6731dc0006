"""Convolutional sequence to sequence: gated convolutions that read, others that write, attention in every layer.

    e = 0.1 (√E · E_x x + PE),  g = 0.1 (√E · E_y y + PE)            source and target tokens, with positions

    h_0 = W_in e                                                     the encoder; v([a; b]) = a ∘ σ(b) halves the width
    h_l = √½ (v(W_l ∗ h_{l-1} + b_l) + h_{l-1})
    z   = W_out h_L

    s_0 = W_in' g                                                    the decoder; its convolutions see nothing later
    s_l = √½ (v(W_l' ∗ s_{l-1} + b_l') + s_{l-1})
    d_l = W_d s_l + b_d + g                                          what is looked for: the state and the last token
    α_l = softmax_j(d_l · z_j)
    c_l = √m Σ_j α_{l,j} (z_j + e_j)                                 the token itself is seen beside its context
    s_l ← √½ (s_l + W_c c_l + b_c)
    P(y_{t+1}) = softmax(U W_out' s_L + b)

(Gehring et al., 2017). A sum of two is multiplied by √½ and a mean of m source places by m √(1/m) = √m, so that the
variance stays what it was; the weights begin as the paper's section 3.5 says, for the same reason. Three things differ.
Positions are sinusoids instead of learnt vectors, so that a sentence has no longest length, at the paper's scale of
0.1, at which α begins flat; their mean over places is not zero, so that c begins larger than it does in the paper.
Weights are not normalised, and the encoder's gradients are not divided by the number of layers that attend: Adam,
unlike the paper's plain gradient, takes steps that the scale of a gradient does not change.

A target place sees 1 + layers · (width − 1) target tokens back. The state is each convolution's last inputs, the place
of the next token, and the source, kept once a sentence: z and √m (z + e).

Legend: N sentences, S source time, m a source's length, B rows, T target time, D width, E embedding width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ensue.core.settings import check, check_positive
from ensue.models.conditional import ConditionalConfig, ConditionalModel
from ensue.models.model import answer
from ensue.nn.convolution import CausalConvolution, Convolution, ConvolutionState, FullConvolution
from ensue.nn.dropout import Dropout
from ensue.nn.positions import SinusoidalPositions
from ensue.nn.protocol import Output, Traits, Want
from ensue.nn.scores import attend
from ensue.nn.source import Source
from ensue.nn.state import State

HALF = math.sqrt(0.5)
"""What keeps the variance of a sum of two."""
SCALE = 0.1
"""The standard deviation with which an embedding begins."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ConvS2SConfig(ConditionalConfig):
    """Configuration of the convolutional encoder–decoder."""

    layers: int = 4
    """Number of convolution layers in the encoder and in the decoder."""
    hidden: int = 256
    """Hidden size."""
    width: int = 3
    """Kernel size; an odd one is symmetric in the encoder."""
    embedding: int = 0
    """Size of embeddings and of attention queries; 0 means hidden."""

    def __post_init__(self) -> None:
        super(ConvS2SConfig, self).__post_init__()
        check_positive(self, "width")
        check(self, "embedding", self.embedding >= 0, "0 or more")


@dataclass(frozen=True)
class ConvS2SState(State):
    """Every decoder convolution's last inputs, where each row's next token stands, and the source."""

    blocks: tuple[ConvolutionState, ...]
    place: Tensor  # (B,)
    source: Source
    used: int = 0
    """No row's next token stands farther than this."""


class EncoderBlock(nn.Module):
    """h_l = √½ (v(W ∗ h + b) + h)."""

    def __init__(self, hidden: int, width: int, dropout: float) -> None:
        super().__init__()
        self.convolution = FullConvolution(hidden, 2 * hidden, width)
        self.dropout = Dropout(dropout)

    def forward(self, h: Tensor, lengths: Tensor | None) -> Tensor:
        """(N, S, D) → (N, S, D)."""
        y, _ = self.convolution(self.dropout(h), None, lengths)
        return HALF * (F.glu(y, dim=-1) + h)


class DecoderBlock(nn.Module):
    """s_l = √½ (v(W ∗ s + b) + s), and then √½ (s_l + W_c c_l + b_c) with what attention brings."""

    def __init__(self, hidden: int, embedding: int, width: int, dropout: float) -> None:
        super().__init__()
        self.convolution = CausalConvolution(hidden, 2 * hidden, width)
        self.query = nn.Linear(hidden, embedding)  # W_d
        self.bring = nn.Linear(embedding, hidden)  # W_c
        self.dropout = Dropout(dropout)

    def forward(
        self, s: Tensor, g: Tensor, state: ConvolutionState, lengths: Tensor | None, source: Source
    ) -> tuple[Tensor, ConvolutionState, Tensor]:
        """(B, T, D) → (B, T, D), the next state, and where in the source each token looked, α (B, T, S)."""
        y, after = self.convolution(self.dropout(s), state, lengths)
        s = HALF * (F.glu(y, dim=-1) + s)
        keys, values = source.parts
        d = source.fold(self.query(s) + g)  # (N, k·T, E)
        c, weights = attend(d @ keys.transpose(1, 2), values, source.mask(keys.shape[1]))
        return HALF * (s + self.bring(source.unfold(c))), after, source.unfold(weights)


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
        """Normal weights that keep the variance: √(1/n) of n inputs, √(4/n) before v, √p of that after dropout."""
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
        """Layers of convolutions see so many target tokens back."""
        return Traits(context=1 + self.config.layers * (self.config.width - 1))

    def start(self, source: Tensor, lengths: Tensor | None = None) -> ConvS2SState:
        """Encode the source (N, S): z, and √m (z + e) beside it."""
        places = torch.arange(source.shape[1], device=source.device)[None]
        e = self.dropout(SCALE * self.positions(self.embed_source(source), places, source.shape[1]))
        h = self.into_encoder(e)
        for block in self.encoder:
            h = block(h, lengths)
        z = self.out_of_encoder(h)
        size = math.sqrt(source.shape[1]) if lengths is None else lengths.to(z.dtype).sqrt()[:, None, None]
        blocks = tuple(block.convolution.start(len(source)) for block in self.decoder)  # type: ignore[operator,union-attr]
        first = torch.zeros(len(source), dtype=torch.long, device=source.device)
        return ConvS2SState(blocks, first, Source.of((z, size * (z + e)), lengths, source.shape[1]))

    def forward(
        self,
        tokens: Tensor,
        state: State | None = None,
        lengths: Tensor | None = None,
        want: Sequence[Want] = ("logits",),
    ) -> Output:
        """Read target tokens (B, T); attention is each decoder layer's α as one head, (B, 1, T, S)."""
        assert isinstance(state, ConvS2SState)
        source, T = state.source.even(), tokens.shape[1]
        used = state.used + T
        places = state.place[:, None] + torch.arange(T, device=tokens.device)
        g = self.dropout(SCALE * self.positions(self.embed(tokens), places, used))
        s, after, seen = self.into_decoder(g), [], []
        for block, past in zip(self.decoder, state.blocks):
            s, new, weights = block(s, g, past, lengths, source)
            after.append(new)
            seen.append(weights[:, None])
        place = state.place + (T if lengths is None else lengths)
        hidden = self.dropout(self.out_of_decoder(s))
        shown = tuple(seen) if "attention" in want else None
        return answer(self.head, hidden, ConvS2SState(tuple(after), place, source, used), lengths, want, shown)
