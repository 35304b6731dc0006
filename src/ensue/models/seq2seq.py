"""Sequence to sequence with recurrent networks: an encoder and a decoder (Sutskever et al., 2014; Cho et al., 2014).

    h_1 … h_S = encoder(x)                  recurrent layers, in one direction or both
    s_0 = the encoder's final state         the whole sentence in one vector: the bottleneck
    s_t = decoder(s_{t-1}, y_t)
    ŷ_t = softmax(U s̃_t + b)                s̃_t = s_t without attention; with attention

    α_t = softmax_i score(s_t, h_i),  a_t = Σ_i α_{t,i} h_i          (Bahdanau et al., 2015; Luong et al., 2015)
    s̃_t = tanh(W_c [a_t; s_t])

``attention`` is one of six score functions (see ensue.nn.scores). With ``feeding = "input"`` the decoder reads
[y_t; s̃_{t-1}], so it knows its last attention (Luong et al., 2015). ``connect`` and ``encoder`` make the deep models:
GNMT has residual layers over a bidirectional first one, Deep-Att has fast-forward connections between layers of
alternating directions.

Legend: N sentences, S source time, B rows, T target time, D width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ensue.core.settings import check
from ensue.models.conditional import ConditionalConfig, ConditionalModel
from ensue.models.cove import SourceReader
from ensue.models.model import answer
from ensue.nn.dropout import Dropout
from ensue.nn.protocol import Output, Wants
from ensue.nn.recurrent import Cell, ChoGRUCell, GRUCell, LSTMCell, Recurrent, RecurrentState, TanhCell
from ensue.nn.scores import SCORES, attend
from ensue.nn.source import Source
from ensue.nn.stacks import CONNECTIONS, Backward, Bidirectional, BidirectionalState, Plain, Stack, StackState
from ensue.nn.state import State

CELLS: dict[str, type[Cell]] = {"lstm": LSTMCell, "gru": GRUCell, "gru-cho": ChoGRUCell, "rnn": TanhCell}
ENCODERS = ("both", "forward", "bottom", "alternating")


@dataclass(frozen=True, kw_only=True, slots=True)
class Seq2SeqConfig(ConditionalConfig):
    """Configuration of the recurrent encoder–decoder."""

    layers: int = 1
    """Number of recurrent layers in the encoder and in the decoder."""
    hidden: int = 256
    """Hidden size of each layer; each of two directions has half of it."""
    dropout: float = 0.2
    """Dropout probability between layers; never inside the recurrence."""
    embedding: int = 0
    """Embedding size; 0 means hidden."""
    cell: str = "lstm"
    """Recurrent cell: lstm, gru, gru-cho or rnn."""
    encoder: str = "both"
    """Direction of the encoder's layers: both, forward, bottom (both in the first layer only, as GNMT) or
    alternating (as Deep-Att)."""
    attention: str = "additive"
    """Attention score function: content, additive, location, general, dot, scaled-dot, or none for no attention."""
    feeding: str = "none"
    """Input feeding: none, or input: the decoder also reads the attention vector of the step before."""
    connect: str = "plain"
    """Connection between layers: plain, residual, dense or fast-forward."""

    def __post_init__(self) -> None:
        super(Seq2SeqConfig, self).__post_init__()
        check(self, "embedding", self.embedding >= 0, "0 or more")
        check(self, "hidden", self.hidden % 2 == 0, "an even number")
        check(self, "cell", self.cell in CELLS, f"one of {', '.join(CELLS)}")
        check(self, "encoder", self.encoder in ENCODERS, f"one of {', '.join(ENCODERS)}")
        check(self, "attention", self.attention in (*SCORES, "none"), f"one of {', '.join(SCORES)}, none")
        check(self, "feeding", self.feeding in ("none", "input"), "none or input")
        check(self, "feeding", self.feeding == "none" or self.attention != "none", "none without attention")
        check(self, "connect", self.connect in CONNECTIONS, f"one of {', '.join(CONNECTIONS)}")


@dataclass(frozen=True)
class Seq2SeqState(State):
    """The decoder's state, s̃_{t-1} with input feeding, and the source with attention."""

    stack: StackState
    attended: Tensor | None
    source: Source | None


class RecurrentEncoder(nn.Module):
    """Recurrent layers over a source; outputs and final states of every layer have size D."""

    def __init__(self, config: Seq2SeqConfig, width: int) -> None:
        super().__init__()
        cell, D = CELLS[config.cell], config.hidden
        numbers = count()

        def layer(size: int) -> nn.Module:
            number = next(numbers)
            if config.encoder == "both" or (config.encoder == "bottom" and number == 0):
                return Bidirectional(Recurrent(cell(size, D // 2)), Recurrent(cell(size, D // 2)))
            backward = config.encoder == "alternating" and number % 2 == 1
            return Backward(Recurrent(cell(size, D))) if backward else Recurrent(cell(size, D))

        self.stack = Stack(layer, width, config.layers, config.connect, config.dropout)
        attention = config.attention != "none"
        narrow = attention and self.stack.output != D
        self.down = nn.Linear(self.stack.output, D, bias=False) if narrow else nn.Identity()
        if not attention:  # only the final states are used, so the last connection needs no weights
            self.stack.connections[-1] = Plain(D, D)

    def forward(self, x: Tensor, lengths: Tensor | None) -> tuple[Tensor, StackState]:
        """Return h (N, S, D) of x (N, S, E), and the final state of every layer, directions concatenated."""
        h, state, _ = self.stack(x, None, lengths)
        return self.down(h), StackState(tuple(_final_state(layer) for layer in state.layers))


def _final_state(state: State) -> RecurrentState:
    """Return a layer's final state, with the states of two directions concatenated."""
    if isinstance(state, BidirectionalState):
        ahead, behind = state.forward, state.backward
        assert isinstance(ahead, RecurrentState) and isinstance(behind, RecurrentState)
        return RecurrentState(tuple(torch.cat(pair, dim=-1) for pair in zip(ahead.memory, behind.memory)))
    assert isinstance(state, RecurrentState)
    return state


class Attention(nn.Module):
    """s̃_t = tanh(W_c [a_t; s_t]), a_t = Σ_i softmax_i(score(s_t, h_i)) h_i."""

    def __init__(self, config: Seq2SeqConfig, width: int) -> None:
        super().__init__()
        self.score = SCORES[config.attention](width, config.hidden, config.context)
        self.join = nn.Linear(config.hidden + width, config.hidden)  # W_c

    def forward(self, s: Tensor, source: Source) -> tuple[Tensor, Tensor]:
        """Return s̃ (B, T, D) of s (B, T, D), and the attention weights α (B, T, S)."""
        h, keys = source.parts
        a, weights = attend(self.score(source.fold(s), keys), h, source.mask(h.shape[1]))
        return torch.tanh(self.join(torch.cat([source.unfold(a), s], dim=-1))), source.unfold(weights)


class Seq2Seq(ConditionalModel):
    """softmax(U s̃_t + b): a recurrent encoder, a recurrent decoder, and attention between them."""

    Config = Seq2SeqConfig
    expect: ClassVar[dict[str, str]] = {
        "multi30k": "Multi30k English to German: 34.7 BLEU, 17.8 without attention (one seed); 22 minutes on one core"
    }
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {"train.lr": 2e-3, "train.label_smoothing": 0.1},
        "multi30k": {
            "dropout": 0.3,
            "context": 128,
            "train.epochs": 15.0,
            "train.lr": 2e-3,
            "train.batch_tokens": 2000,
            "train.label_smoothing": 0.1,
            "tokenizer.kind": "bpe",
            "tokenizer.vocabulary": 6000,
        },
        "gnmt": {  # Wu et al. (2016): eight residual layers, the first of the encoder bidirectional
            "layers": 8,
            "hidden": 1024,
            "encoder": "bottom",
            "connect": "residual",
            "feeding": "input",
            "train.label_smoothing": 0.0,
        },
        "deep-att": {  # Zhou et al. (2016): alternating directions with fast-forward connections
            "layers": 8,
            "hidden": 512,
            "encoder": "alternating",
            "connect": "fast-forward",
            "train.label_smoothing": 0.0,
        },
    }

    def __init__(self, config: Seq2SeqConfig) -> None:
        super().__init__()
        self.config = config
        D = config.hidden
        E = config.embedding or D
        self.embed_source = nn.Embedding(config.source_vocabulary, E)
        self.embed = nn.Embedding(config.vocabulary, E)
        self.encoder = RecurrentEncoder(config, E)
        cell, width = CELLS[config.cell], E + D if config.feeding == "input" else E
        self.decoder = Stack(
            lambda size: Recurrent(cell(size, D)), width, config.layers, config.connect, config.dropout
        )
        self.attend = Attention(config, D) if config.attention != "none" else None
        self.narrow = nn.Identity() if self.decoder.output == D else nn.Linear(self.decoder.output, D, bias=False)
        self.down = nn.Identity() if E == D or config.tied == "none" else nn.Linear(D, E, bias=False)
        self.head = nn.Linear(E if config.tied == "target" else D, config.vocabulary)  # U, b
        if config.tied == "target":
            self.head.weight = self.embed.weight
        self.dropout = Dropout(config.dropout)
        for table in (self.embed_source, self.embed):
            nn.init.uniform_(table.weight, -0.1, 0.1)
        nn.init.zeros_(self.head.bias)

    def reader(self) -> SourceReader:
        """Return the encoder, for features of another model."""
        parts = {"embed": self.embed_source, "encoder": self.encoder, "dropout": self.dropout}
        return SourceReader(parts, lambda own, x, n: own.encoder(own.dropout(own.embed(x)), n)[0], self.config.hidden)

    def start(self, source: Tensor, lengths: Tensor | None = None) -> Seq2SeqState:
        """Encode the source (N, S): its final state is the decoder's first."""
        h, final = self.encoder(self.dropout(self.embed_source(source)), lengths)
        if self.attend is None:
            return Seq2SeqState(final, None, None)
        attended = h.new_zeros(len(h), self.config.hidden) if self.config.feeding == "input" else None
        return Seq2SeqState(final, attended, Source.of((h, self.attend.score.remember(h)), lengths, h.shape[1]))

    def forward(
        self, tokens: Tensor, state: State | None = None, lengths: Tensor | None = None, want: Wants = ("logits",)
    ) -> Output:
        """Read target tokens (B, T); attention is α as one head, (B, 1, T, S)."""
        assert isinstance(state, Seq2SeqState)
        e = self.dropout(self.embed(tokens))
        decode = self._decode if state.attended is None else self._decode_stepwise
        hidden, after, weights = decode(e, state, lengths)
        attention = (weights[:, None],) if weights is not None and "attention" in want else None
        return answer(self.head, self.dropout(self.down(hidden)), after, lengths, want, attention)

    def _decode(
        self, e: Tensor, state: Seq2SeqState, lengths: Tensor | None
    ) -> tuple[Tensor, Seq2SeqState, Tensor | None]:
        """Run all steps of the decoder, then attention for all of them at once."""
        s, stack, _ = self.decoder(e, state.stack, lengths)
        s = self.narrow(s)
        if self.attend is None or state.source is None:
            return s, Seq2SeqState(stack, None, None), None
        source = state.source.even()
        hidden, weights = self.attend(s, source)
        return hidden, Seq2SeqState(stack, None, source), weights

    def _decode_stepwise(
        self, e: Tensor, state: Seq2SeqState, lengths: Tensor | None
    ) -> tuple[Tensor, Seq2SeqState, Tensor | None]:
        """Run the decoder step by step, as with input feeding each step reads s̃ of the one before."""
        assert self.attend is not None and state.source is not None and state.attended is not None
        source, stack, attended = state.source.even(), state.stack, state.attended
        hidden = [e.new_zeros(len(e), 0, attended.shape[1])]
        weights = [e.new_zeros(len(e), 0, source.parts[0].shape[1])]
        for t, e_t in enumerate(e.unbind(1)):
            real = None if lengths is None else (t < lengths).long()
            s, stack, _ = self.decoder(torch.cat([e_t, attended], dim=-1)[:, None], stack, real)
            new, alpha = self.attend(self.narrow(s), source)
            attended = new[:, 0] if real is None else torch.where(real.bool()[:, None], new[:, 0], attended)
            hidden.append(new)
            weights.append(alpha)
        return torch.cat(hidden, dim=1), Seq2SeqState(stack, attended, source), torch.cat(weights, dim=1)
