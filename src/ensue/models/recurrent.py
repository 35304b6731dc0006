"""Recurrent language models: rnn, gru in both forms, lstm.

    e_t = E x_t                            the embedding: row x_t of E, which is Eᵀ times a one-hot vector
    h_t = cell(h_{t-1}, e_t)               layers in sequence; see ensue.nn.recurrent for each cell's equation
    ŷ_t = softmax(U h_t + b_2)

With ``attend`` each layer also attends to its last ``span`` outputs (ensue.nn.intra_attention), so the state's size
does not depend on the length of the text.

Training carries the state from one segment of text to the next and detaches it there (truncated backpropagation
through time).

Legend: B rows, T time, E embedding width, N hidden width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, ClassVar

from torch import Tensor, nn

from ensue.core.settings import Need, check, check_positive
from ensue.models.language import LanguageModel
from ensue.models.model import answer
from ensue.nn.dropout import Dropout
from ensue.nn.intra_attention import IntraAttention
from ensue.nn.mixers.local import LocalAttention
from ensue.nn.mixers.mixer import Mixer, MixerConfig
from ensue.nn.protocol import Output, Wants
from ensue.nn.recurrent import Cell, ChoGRUCell, GRUCell, LSTMCell, ProjectedLSTMCell
from ensue.nn.stack_config import PlainRecurrentNetwork, RecurrentNetwork, RNNStackConfig, StackConfig
from ensue.nn.stacks import Stack, StackState
from ensue.nn.state import State

SMALL_BATCHES = {"train.batch": 12, "train.length": 32}
"""On two cores many small updates train faster than few large ones."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RecurrentConfig(StackConfig):
    """Configuration shared by all recurrent language models."""

    needs: ClassVar[dict[str, Need]] = {"span": ("attend", ())}
    vocabulary: int = 0
    """Vocabulary size; set by the tokenizer."""
    embedding: int = 0
    """Embedding size; 0 means the size of the model's output."""
    tied: bool = True
    """Share weights between the embedding and the output layer (Press and Wolf, 2017)."""
    attend: int = 0
    """Number of attention heads over a layer's outputs: earlier ones, or all if the model is bidirectional; 0 means no
    attention."""
    span: int = 128
    """Number of recent outputs, with the current one, that a head attends to in a unidirectional model."""

    def __post_init__(self) -> None:
        self.check_stack()
        check_positive(self, "layers", "span")
        for name in ("attend", "embedding"):
            check(self, name, getattr(self, name) >= 0, "0 or more")


@dataclass(frozen=True, kw_only=True, slots=True)
class RNNConfig(RecurrentConfig, RNNStackConfig):
    """Configuration of the plain recurrent model."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LSTMConfig(RecurrentConfig):
    """Configuration of the LSTM model."""

    projection: int = 0
    """Size of a projection of the hidden state (Sak et al., 2014); 0 means no projection."""

    def __post_init__(self) -> None:
        super(LSTMConfig, self).__post_init__()
        check(self, "projection", 0 <= self.projection < self.hidden, "0, or less than hidden")


def add_attention(
    layer: nn.Module,
    config: RecurrentConfig,
    attention: Callable[[MixerConfig], Mixer],
    causal: bool,
    norm: Callable[[int], nn.Module] = nn.Identity,
) -> nn.Module:
    """Add attention over a layer's outputs if the config asks for it; ``attention`` builds it from a size and heads."""
    if not config.attend:
        return layer
    width = int(layer.output)  # type: ignore[arg-type]
    check(config, "attend", width % config.attend == 0, f"0, or a divisor of {width}, the width of a layer's outputs")
    mixer = attention(MixerConfig(width=width, heads=config.attend, causal=causal))
    return IntraAttention(layer, mixer, norm(width))


def add_causal_attention(layer: nn.Module, config: RecurrentConfig) -> nn.Module:
    """Add causal attention over a layer's outputs if the config asks for it."""
    return add_attention(layer, config, partial(LocalAttention, span=config.span), causal=True)


class RecurrentLanguageModel(RecurrentNetwork, LanguageModel):
    """ŷ_t = softmax(U h_t + b_2), h_t of a stack of recurrent layers."""

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        self.config = config
        self.check_kernel()
        width = config.embedding or self.cell(1).output
        self.embed = nn.Embedding(config.vocabulary, width)
        numbers = count()
        self.stack = Stack(
            lambda size: add_causal_attention(self.layer(size, next(numbers)), config),
            width,
            config.layers,
            config.connect,
            config.dropout,
        )
        # a tied output layer needs hidden states of the embedding size
        fits = not config.tied or self.stack.output == width
        self.down = nn.Identity() if fits else nn.Linear(self.stack.output, width, bias=False)
        self.head = nn.Linear(width if config.tied else self.stack.output, config.vocabulary)  # U, b_2
        if config.tied:
            self.head.weight = self.embed.weight
        self.dropout = Dropout(config.dropout)
        self.dropout_out = Dropout(config.dropout)  # before the output layer
        nn.init.uniform_(self.embed.weight, -0.1, 0.1)
        nn.init.zeros_(self.head.bias)

    def layer(self, width: int, number: int) -> nn.Module:
        """Build layer ``number`` (from 0) for inputs of this size."""
        return self.recurrent(width)

    def start(self, rows: int) -> StackState:
        """Return zeros for every layer."""
        return self.stack.start(rows)

    def embedded(self, tokens: Tensor) -> Tensor:
        """Return e (B, T, E) of tokens (B, T)."""
        return self.dropout(self.embed(tokens))  # type: ignore[no-any-return]

    def forward(
        self, tokens: Tensor, state: State | None = None, lengths: Tensor | None = None, want: Wants = ("logits",)
    ) -> Output:
        """Read tokens (B, T)."""
        attends = bool(self.config.attend) and "attention" in want
        hidden, after, weights = self.stack(self.embedded(tokens), state, lengths, attends)
        return answer(self.head, self.dropout_out(self.down(hidden)), after, lengths, want, weights)


class RNNLanguageModel(PlainRecurrentNetwork, RecurrentLanguageModel):
    """h_t = f(W_h h_{t-1} + W_e e_t + b_1)."""

    Config = RNNConfig
    presets: ClassVar[dict[str, dict[str, Any]]] = {"default": {**SMALL_BATCHES, "hidden": 384, "train.lr": 1.5e-3}}


class GRULanguageModel(RecurrentLanguageModel):
    """GRU with the reset gate after the matrix multiplication (torch's form)."""

    Config = RecurrentConfig
    presets: ClassVar[dict[str, dict[str, Any]]] = {"default": {**SMALL_BATCHES, "train.lr": 4e-3}}
    cell_type = GRUCell


class ChoGRULanguageModel(RecurrentLanguageModel):
    """GRU with the reset gate before the matrix multiplication (Cho et al., 2014)."""

    Config = RecurrentConfig
    presets: ClassVar[dict[str, dict[str, Any]]] = {"default": {**SMALL_BATCHES, "train.lr": 4e-3}}
    cell_type = ChoGRUCell


class LSTMLanguageModel(RecurrentLanguageModel):
    """Long short-term memory, with an optional projection."""

    Config = LSTMConfig
    cell_type = LSTMCell
    expect: ClassVar[dict[str, str]] = {
        "ptb": "Penn Treebank, words: perplexity 94.9 per word on valid (one seed), 49 minutes on one core"
    }
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {**SMALL_BATCHES, "train.lr": 4e-3},
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

    def cell(self, width: int, hidden: int = 0) -> Cell:
        if self.config.projection:
            return ProjectedLSTMCell(width, hidden or self.config.hidden, self.config.projection)
        return super().cell(width, hidden)
