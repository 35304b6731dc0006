"""ByteNet: dilated convolutions read, others on top of them write, in linear time (Kalchbrenner et al., 2016).

    x_0 = √D · E_x x                        source tokens, and zeros behind them up to ⌈a · m⌉ columns
    x_l = EncoderBlock_l(x_{l-1})           convolutions that look to both sides
    y_0 = √D · E_y y + x_L                  column t of the source's representation under target token t
    y_l = DecoderBlock_l(y_{l-1})           convolutions that see nothing later
    P(y_{t+1}) = softmax(U (W f(y_L) + b)),                                      f(x) = ReLU(LayerNorm(x))

    Block(x) = x + W_3 f(K ∗ f(W_1 f(x)))   W_1: D → D/2, K: a kernel of ``width`` places, W_3: D/2 → D; each has a bias

The dilation of K doubles from block to block, 1, 2, 4, 8, 16, and begins again with each set, so that a few blocks see
far: a target place sees 1 + sets · (width − 1) · (2^layers − 1) target tokens back. There is no attention. The decoder
unfolds over the source as it writes: what it writes at t stands on column t, and where a target goes on longer than
the source's representation, on zeros. The encoder therefore has to move what it read to where it will be needed.

The state is each convolution's last inputs, the place of the next token, and the source's columns, kept once a
sentence.

Legend: N sentences, S source time, C columns, m a source's length, B rows, T target time, D width, V vocabulary.
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
from ensue.nn.convolution import CausalConvolution, ConvolutionState, FullConvolution
from ensue.nn.dropout import Dropout
from ensue.nn.protocol import Output, Traits, Want
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


@dataclass(frozen=True)
class ByteNetState(State):
    """Every decoder convolution's last inputs, where each row's next token stands, and the source's columns."""

    blocks: tuple[ConvolutionState, ...]
    place: Tensor  # (B,)
    source: Source


class Activation(nn.Module):
    """f(x) = ReLU(LayerNorm(x))."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        """(…, D) → (…, D)."""
        return F.relu(self.norm(x))


class Block(nn.Module):
    """x + W_3 f(K ∗ f(W_1 f(x))): an encoder's with a FullConvolution, a decoder's with a CausalConvolution."""

    def __init__(self, convolution: CausalConvolution | FullConvolution, hidden: int, dropout: float) -> None:
        super().__init__()
        self.down = nn.Sequential(Activation(hidden), nn.Linear(hidden, hidden // 2), Activation(hidden // 2))  # W_1
        self.convolution = convolution  # K
        self.up = nn.Sequential(Activation(hidden // 2), nn.Linear(hidden // 2, hidden), Dropout(dropout))  # W_3

    def forward(
        self, x: Tensor, state: ConvolutionState | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, ConvolutionState | None]:
        """(B, T, D) → (B, T, D), and the convolution's next state."""
        y, after = self.convolution(self.down(x), state, lengths)
        return x + self.up(y), after


class ByteNet(ConditionalModel):
    """softmax(U (W f(y_L) + b)): a decoder of dilated convolutions that unfolds over an encoder of the same kind."""

    Config = ByteNetConfig
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {"train.lr": 2e-3, "train.batch_tokens": 2000, "train.label_smoothing": 0.1},
        "german": {  # the paper's network for English–German by characters: thirty blocks on each side
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
        self.last = nn.Sequential(Activation(D), nn.Linear(D, D))  # W, b
        self.head = nn.Linear(D, config.vocabulary, bias=False)  # U
        if config.tied == "target":
            self.head.weight = self.embed.weight
        self.dropout = Dropout(config.dropout)
        for table in (self.embed_source, self.embed):  # of length about 1 before the √D
            nn.init.normal_(table.weight, std=D**-0.5)

    def _blocks(self, kind: type[CausalConvolution] | type[FullConvolution]) -> nn.ModuleList:
        """All sets, one after another."""
        D, k = self.config.hidden, self.config.width
        dilations = [2**layer for layer in range(self.config.layers)] * self.config.sets
        return nn.ModuleList(Block(kind(D // 2, D // 2, k, r), D, self.config.dropout) for r in dilations)

    @property
    def traits(self) -> Traits:
        """The dilated convolutions see so many target tokens back."""
        config = self.config
        return Traits(context=1 + config.sets * (config.width - 1) * (2**config.layers - 1))

    def encode(self, source: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """The source's representation (N, C, D), and how many columns each sentence has."""
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

    def start(self, source: Tensor, lengths: Tensor | None = None) -> ByteNetState:
        """Encode the source (N, S)."""
        x, columns = self.encode(source, lengths)
        blocks = tuple(block.convolution.start(len(source)) for block in self.decoder)  # type: ignore[operator,union-attr]
        first = torch.zeros(len(source), dtype=torch.long, device=source.device)
        return ByteNetState(blocks, first, Source.of((x,), columns, x.shape[1]))

    def forward(
        self,
        tokens: Tensor,
        state: State | None = None,
        lengths: Tensor | None = None,
        want: Sequence[Want] = ("logits",),
    ) -> Output:
        """Read target tokens (B, T); there is no attention to show."""
        assert isinstance(state, ByteNetState)
        T = tokens.shape[1]
        places = state.place[:, None] + torch.arange(T, device=tokens.device)  # (B, T)
        y = self.dropout(math.sqrt(self.config.hidden) * self.embed(tokens)) + _columns(state.source, places)
        after = []
        for block, past in zip(self.decoder, state.blocks):
            y, new = block(y, past, lengths)
            after.append(new)
        place = state.place + (T if lengths is None else lengths)
        return answer(self.head, self.last(y), ByteNetState(tuple(after), place, state.source), lengths, want)


def _columns(source: Source, places: Tensor) -> Tensor:
    """The source's columns at each row's places (B, T), as (B, T, D): zeros behind its last one."""
    (x,) = source.parts
    seen = x[source.index[:, None], places.clamp(max=x.shape[1] - 1)]
    behind = places >= source.lengths[source.index][:, None]
    return seen.masked_fill(behind[..., None], 0.0)
