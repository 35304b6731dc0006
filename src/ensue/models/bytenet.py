"""ByteNet: an encoder and a decoder of dilated convolutions, in linear time (Kalchbrenner et al., 2016).

    x_0 = √D · E_x x                        source tokens, padded with zeros to ⌈a · m⌉ columns
    x_l = EncoderBlock_l(x_{l-1})           symmetric convolutions
    y_0 = √D · E_y y + x_L                  target token t plus column t of the encoded source
    y_l = DecoderBlock_l(y_{l-1})           causal convolutions
    P(y_{t+1}) = softmax(U (W f(y_L) + b)),                                      f(x) = ReLU(LayerNorm(x))

    Block(x) = x + W_3 f(K ∗ f(W_1 f(x)))   W_1: D → D/2, K: a kernel of size ``width``, W_3: D/2 → D; each has a bias

The dilation of K doubles from block to block, 1, 2, 4, 8, 16, and starts again with each set, so a few blocks see far:
a position sees 1 + sets · (width − 1) · (2^layers − 1) target tokens. There is no attention. The decoder unfolds over
the source: token t is added to column t, and to zeros beyond the last column. So the encoder has to move information to
the columns where the decoder needs it.

The state is each convolution's last inputs, the position of the next token, and the source's columns, stored once per
sentence.

Legend: N sentences, S source time, C columns, m a source's length, B rows, T target time, D width, V vocabulary.
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
from ensue.nn.convolution import CausalConvolution, ConvolutionalDecoderState, ConvolutionState, FullConvolution
from ensue.nn.dropout import Dropout
from ensue.nn.protocol import Output, Traits, Wants
from ensue.nn.source import Source
from ensue.nn.state import State


@dataclass(frozen=True, kw_only=True, slots=True)
class ByteNetConfig(ConditionalConfig):
    """Configuration of ByteNet."""

    layers: int = 5
    """Number of blocks in a set; the dilation doubles from block to block: 1, 2, 4, 8, 16."""
    hidden: int = 256
    """Hidden size; convolutions inside a block have half of it."""
    sets: int = 1
    """Number of sets of blocks in the encoder and in the decoder."""
    width: int = 3
    """Kernel size; an odd one is symmetric in the encoder."""
    unfold: float = 1.2
    """a: length of the source representation relative to the source; longer targets read zeros."""

    def __post_init__(self) -> None:
        super(ByteNetConfig, self).__post_init__()
        check_positive(self, "sets", "width", "unfold")
        check(self, "hidden", self.hidden % 2 == 0, "an even number")


class NormReLU(nn.Module):
    """f(x) = ReLU(LayerNorm(x))."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        """(…, D) → (…, D)."""
        return F.relu(self.norm(x))


class DilatedBlock(nn.Module):
    """x + W_3 f(K ∗ f(W_1 f(x))), with a FullConvolution in the encoder and a CausalConvolution in the decoder."""

    def __init__(self, convolution: CausalConvolution | FullConvolution, hidden: int, dropout: float) -> None:
        super().__init__()
        self.down = nn.Sequential(NormReLU(hidden), nn.Linear(hidden, hidden // 2), NormReLU(hidden // 2))  # W_1
        self.convolution = convolution  # K
        self.up = nn.Sequential(NormReLU(hidden // 2), nn.Linear(hidden // 2, hidden), Dropout(dropout))  # W_3

    def forward(
        self, x: Tensor, state: ConvolutionState | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, ConvolutionState | None]:
        """(B, T, D) → (B, T, D), and the convolution's next state."""
        y, after = self.convolution(self.down(x), state, lengths)
        return x + self.up(y), after


class ByteNet(ConditionalModel):
    """softmax(U (W f(y_L) + b)): a decoder of dilated convolutions, unfolded over an encoder of the same kind."""

    Config = ByteNetConfig
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {"train.lr": 2e-3, "train.batch_tokens": 2000, "train.label_smoothing": 0.1},
        "german": {  # the paper's English–German network of characters: 30 blocks in the encoder and in the decoder
            "sets": 6,
            "hidden": 1600,
            "context": 500,
            "train.lr": 3e-4,
            "train.batch_tokens": 12_000,
            "tokenizer.kind": "char",
        },
    }

    def __init__(self, config: ByteNetConfig) -> None:
        super().__init__()
        self.config = config
        D = config.hidden
        self.embed_source = nn.Embedding(config.source_vocabulary, D)  # E_x
        self.embed = nn.Embedding(config.vocabulary, D)  # E_y
        self.encoder = self._blocks(FullConvolution)
        self.decoder = self._blocks(CausalConvolution)
        self.last = nn.Sequential(NormReLU(D), nn.Linear(D, D))  # W, b
        self.head = nn.Linear(D, config.vocabulary, bias=False)  # U
        if config.tied == "target":
            self.head.weight = self.embed.weight
        self.dropout = Dropout(config.dropout)
        for table in (self.embed_source, self.embed):  # so that √D · E has unit variance
            nn.init.normal_(table.weight, std=D**-0.5)

    def _blocks(self, kind: type[CausalConvolution] | type[FullConvolution]) -> nn.ModuleList:
        """Build all sets in sequence."""
        D, k = self.config.hidden, self.config.width
        dilations = [2**layer for layer in range(self.config.layers)] * self.config.sets
        return nn.ModuleList(DilatedBlock(kind(D // 2, D // 2, k, r), D, self.config.dropout) for r in dilations)

    @property
    def traits(self) -> Traits:
        """The context of stacked dilated convolutions."""
        config = self.config
        return Traits(context=1 + config.sets * (config.width - 1) * (2**config.layers - 1))

    def encode(self, source: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Return the encoded source (N, C, D), and the number of columns of each sentence."""
        S = source.shape[1]
        x = math.sqrt(self.config.hidden) * self.embed_source(source)
        columns = None
        if lengths is not None:
            real = torch.arange(S, device=source.device) < lengths[:, None]
            x = x.masked_fill(~real[..., None], 0.0)
            columns = (self.config.unfold * lengths.double()).ceil().long()
        x = self.dropout(F.pad(x, (0, 0, 0, math.ceil(self.config.unfold * S) - S)))
        for block in self.encoder:
            x, _ = block(x, None, columns)
        return x, columns

    def start(self, source: Tensor, lengths: Tensor | None = None) -> ConvolutionalDecoderState:
        """Encode the source (N, S)."""
        x, columns = self.encode(source, lengths)
        return ConvolutionalDecoderState.start(self.decoder, Source.of((x,), columns, x.shape[1]))

    def forward(
        self, tokens: Tensor, state: State | None = None, lengths: Tensor | None = None, want: Wants = ("logits",)
    ) -> Output:
        """Read target tokens (B, T); there are no attention weights."""
        assert isinstance(state, ConvolutionalDecoderState)
        source, clock, T = state.source, state.clock, tokens.shape[1]
        y = self.dropout(math.sqrt(self.config.hidden) * self.embed(tokens)) + _columns(source, clock.positions(T))
        blocks = []
        for block, past in zip(self.decoder, state.blocks):
            y, new = block(y, past, lengths)
            blocks.append(new)
        after = ConvolutionalDecoderState(tuple(blocks), clock.after(T, lengths), source)
        return answer(self.head, self.last(y), after, lengths, want)


def _columns(source: Source, positions: Tensor) -> Tensor:
    """Return the source's columns (B, T, D) at positions (1 or B, T), with zeros beyond its last one."""
    (x,) = source.parts
    columns = x[source.index[:, None], positions.clamp(max=x.shape[1] - 1)]
    beyond = positions >= source.lengths[source.index][:, None]
    return columns.masked_fill(beyond[..., None], 0.0)
