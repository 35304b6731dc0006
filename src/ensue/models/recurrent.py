"""Recurrent language models: rnn, gru in both forms, lstm.

    e_t = E x_t                            the embedding: row x_t of E, which is Eᵀ times a one-hot vector
    h_t = cell(h_{t-1}, e_t)               layer on layer; see ensue.nn.recurrent for each cell's equation
    ŷ_t = softmax(U h_t + b_2)

With ``attend`` each layer also attends to its own outputs (ensue.nn.intra_attention), the last ``span`` of them: a
state that is carried through a long text stays as small as for a short one.

The same weights at every step, so the model is as large for a long text as for a short one. Training carries the state
from one stretch of text to the next and cuts the graph there (truncated backpropagation through time).

Legend: B rows, T time, E embedding width, N hidden width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, ClassVar

from torch import Tensor, nn

from ensue.core.settings import check, check_below_one, check_positive
from ensue.models.language import LanguageModel
from ensue.models.model import answer
from ensue.nn.dropout import Dropout
from ensue.nn.intra_attention import IntraAttention
from ensue.nn.mixers.full import SelfAttention
from ensue.nn.mixers.local import LocalAttention
from ensue.nn.mixers.mixer import Mixer, MixerConfig
from ensue.nn.protocol import Output, Want
from ensue.nn.recurrent import (
    Cell,
    ChoGRUCell,
    GRUCell,
    LSTMCell,
    ProjectedLSTMCell,
    Recurrent,
    ReluCell,
    SigmoidCell,
    TanhCell,
)
from ensue.nn.stacks import CONNECTIONS, Stack, StackState
from ensue.nn.state import State

SMALL = {"train.batch": 12, "train.length": 32}
"""Many small updates learn more in a minute on two cores than few large ones."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RecurrentConfig:
    """Settings that all recurrent language models share."""

    vocabulary: int = 0
    """How many different tokens there are; the tokenizer says."""
    layers: int = 1
    """How many recurrent layers stand on each other."""
    hidden: int = 256
    """The width of each layer's state."""
    embedding: int = 0
    """The width of a token's vector; 0 means as wide as the model's output."""
    dropout: float = 0.0
    """The share of units that training switches off at random, between layers and never inside the recurrence."""
    tied: bool = True
    """Use the embedding as output layer too (Press and Wolf, 2017)."""
    connect: str = "plain"
    """How layers join: plain, residual (the input is added) or dense (the input is kept beside the output)."""
    kernel: str = "auto"
    """Which loop runs the cell: auto, fused (torch's own) or reference (the equation, step by step)."""
    attend: int = 0
    """How many heads attend to a layer's own outputs, those of before or, where a text is read from both ends, all; 0
    means that there is no attention."""
    span: int = 128
    """How many outputs such a head sees of a text that is read from one end, the newest included."""

    def __post_init__(self) -> None:
        check_positive(self, "layers", "hidden", "span")
        check(self, "attend", self.attend >= 0, "0 or more")
        check(self, "embedding", self.embedding >= 0, "0 or more")
        check_below_one(self, "dropout")
        check(self, "connect", self.connect in CONNECTIONS, f"one of {', '.join(CONNECTIONS)}")
        check(self, "kernel", self.kernel in ("auto", "fused", "reference"), "auto, fused or reference")


@dataclass(frozen=True, kw_only=True, slots=True)
class RNNConfig(RecurrentConfig):
    """Settings of the plain recurrent model."""

    activation: str = "tanh"
    """f: tanh, relu or sigmoid."""

    def __post_init__(self) -> None:
        super(RNNConfig, self).__post_init__()
        check(self, "activation", self.activation in RNNLanguageModel.cells, "tanh, relu or sigmoid")


@dataclass(frozen=True, kw_only=True, slots=True)
class LSTMConfig(RecurrentConfig):
    """Settings of the LSTM model."""

    projection: int = 0
    """Project the visible state to this width (Sak et al., 2014); 0 means no projection."""

    def __post_init__(self) -> None:
        super(LSTMConfig, self).__post_init__()
        check(self, "projection", 0 <= self.projection < self.hidden, "0, or less than hidden")


def attending(
    layer: nn.Module,
    config: RecurrentConfig,
    attention: Callable[[MixerConfig], Mixer],
    causal: bool,
    norm: Callable[[int], nn.Module] = nn.Identity,
) -> nn.Module:
    """A layer as the settings have it: alone, or with attention, of a width and heads, to its own outputs."""
    if not config.attend:
        return layer
    width = int(layer.output)  # type: ignore[arg-type]
    check(config, "attend", width % config.attend == 0, f"0, or a divisor of {width}, the width of a layer's outputs")
    mixer = attention(MixerConfig(width=width, heads=config.attend, causal=causal))
    return IntraAttention(layer, mixer, norm(width))


def looking_back(layer: nn.Module, config: RecurrentConfig) -> nn.Module:
    """A layer that may attend to its own outputs of before."""
    local = partial(LocalAttention, span=config.span)
    return attending(layer, config, local if config.span else SelfAttention, causal=True)


class RecurrentLanguageModel(LanguageModel):
    """ŷ_t = softmax(U h_t + b_2), h_t of a stack of recurrent layers."""

    cell_type: ClassVar[type[Cell]]

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        self.config = config
        if config.kernel == "fused" and not self.cell(1).fused:
            check(config, "kernel", False, f"auto or reference: {type(self.cell(1)).__name__} has no fused form")
        width = config.embedding or self.cell(1).output
        self.embed = nn.Embedding(config.vocabulary, width)
        places = count()
        self.stack = Stack(
            lambda size: looking_back(self.layer(size, next(places)), config),
            width,
            config.layers,
            config.connect,
            config.dropout,
        )
        # a tied output layer needs states as wide as an embedding
        fits = not config.tied or self.stack.output == width
        self.down = nn.Identity() if fits else nn.Linear(self.stack.output, width, bias=False)
        self.head = nn.Linear(width if config.tied else self.stack.output, config.vocabulary)  # U, b_2
        if config.tied:
            self.head.weight = self.embed.weight
        self.dropout = Dropout(config.dropout)
        self.dropout_out = Dropout(config.dropout)  # before the output layer
        nn.init.uniform_(self.embed.weight, -0.1, 0.1)
        nn.init.zeros_(self.head.bias)

    def cell(self, width: int) -> Cell:
        """A new cell for inputs of this width."""
        return self.cell_type(width, self.config.hidden)

    def layer(self, width: int, place: int) -> nn.Module:
        """A new layer for inputs of this width; its place counts from 0."""
        return Recurrent(self.cell(width), self.config.kernel)

    def start(self, rows: int) -> StackState:
        """Zeros in every layer."""
        return self.stack.start(rows)

    def forward(
        self,
        tokens: Tensor,
        state: State | None = None,
        lengths: Tensor | None = None,
        want: Sequence[Want] = ("logits",),
    ) -> Output:
        """Read tokens (B, T)."""
        e = self.dropout(self.embed(tokens))
        looks = self.looks(want)
        hidden, after = self.stack(e, state, lengths, looks)
        return answer(
            self.head, self.dropout_out(self.down(hidden)), after, lengths, want, tuple(looks) if looks else None
        )

    def looks(self, want: Sequence[Want]) -> list[Tensor] | None:
        """A list for each layer's attention, where there is some and it is wanted."""
        return [] if self.config.attend and "attention" in want else None


class RNNLanguageModel(RecurrentLanguageModel):
    """h_t = f(W_h h_{t-1} + W_e e_t + b_1)."""

    Config = RNNConfig
    presets: ClassVar[dict[str, dict[str, Any]]] = {"default": {**SMALL, "hidden": 384, "train.lr": 1.5e-3}}
    cell_type = TanhCell
    cells: ClassVar[dict[str, type[Cell]]] = {"tanh": TanhCell, "relu": ReluCell, "sigmoid": SigmoidCell}

    def cell(self, width: int) -> Cell:
        return self.cells[self.config.activation](width, self.config.hidden)


class GRULanguageModel(RecurrentLanguageModel):
    """The gated recurrent unit that resets after the product (torch's form)."""

    Config = RecurrentConfig
    presets: ClassVar[dict[str, dict[str, Any]]] = {"default": {**SMALL, "train.lr": 4e-3}}
    cell_type = GRUCell


class ChoGRULanguageModel(RecurrentLanguageModel):
    """The gated recurrent unit that resets before the product (Cho et al., 2014)."""

    Config = RecurrentConfig
    presets: ClassVar[dict[str, dict[str, Any]]] = {"default": {**SMALL, "train.lr": 4e-3}}
    cell_type = ChoGRUCell


class LSTMLanguageModel(RecurrentLanguageModel):
    """Long short-term memory, with an optional projection."""

    Config = LSTMConfig
    cell_type = LSTMCell
    expect: ClassVar[dict[str, str]] = {
        "ptb": "Penn Treebank, words: perplexity 94.9 per word on valid (one seed), 49 minutes on one core",
    }
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {**SMALL, "train.lr": 4e-3},
        "ptb": {
            "layers": 2,
            "hidden": 256,
            "dropout": 0.35,
            "train.epochs": 11.0,
            "train.optimiser": "sgd",  # leaves the plateau of single words' frequencies in a third of AdamW's steps
            "train.lr": 20.0,
            "train.clip": 0.25,
            "train.warmup": 0.02,
            "train.floor": 0.02,
            "train.batch": 20,
            "train.length": 35,
        },
    }

    def cell(self, width: int) -> Cell:
        if self.config.projection:
            return ProjectedLSTMCell(width, self.config.hidden, self.config.projection)
        return super().cell(width)
