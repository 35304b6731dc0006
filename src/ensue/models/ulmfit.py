"""ULMFiT: a language model that is fine-tuned, first to a text, then to a task (Howard and Ruder, 2018).

    1  fit ulmfit big.txt                     a language model of much text
    2  fit ulmfit reviews.txt --from 1        the same model goes on with the task's own text
    3  fit classify train.tsv --from 2        its output layer gives way to a head: [h_T; max_t h_t; mean_t h_t] → label

What keeps the third step from forgetting the first two, and how it is called here:

    η_l = 0.7 η_{l+1} (the paper: / 2.6)      a rate for each layer                     train.layer_decay
    η_t = η_max (1 + p (ratio − 1)) / ratio   p rises to 1 and falls: slanted triangle  train.schedule = slanted
    one more layer learns, and one more       from the head downward                    train.freeze, train.unfreeze
    ∂h_t/∂h_s = 0 for s before t's part       a long text is read in parts              train.reach

The model is the AWD-LSTM (Merity et al., 2018): an LSTM that forgets at random in four places, each time the same for
all steps of a stretch of text.

    e_t = (E ∘ m_word)_{x_t} ∘ m_e            whole words, then units of the embedding
    h_t = LSTM(h_{t-1}, e_t), U ∘ m_U         weights from state to state (DropConnect, Wan et al., 2013)
    h_t ∘ m_l                                 between layers, and before the output layer
    ŷ_t = softmax(E h_t + b)                  E again: the last layer is as wide as an embedding

``fit lstm``, ``gru``, ``gru-cho`` and ``rnn`` take the same three steps with ``--preset ulmfit`` in the third.

Legend: B rows, T time, E embedding width, N hidden width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.func import functional_call

from ensue.core.settings import check, check_below_one
from ensue.models.model import answer
from ensue.models.recurrent import RecurrentConfig, RecurrentLanguageModel
from ensue.nn.dropout import Dropout, LockedDropout, WordDropout
from ensue.nn.protocol import Output, Want
from ensue.nn.recurrent import LSTMCell, Recurrent, RecurrentState
from ensue.nn.state import State


@dataclass(frozen=True, kw_only=True, slots=True)
class ULMFiTConfig(RecurrentConfig):
    """Configuration of the AWD-LSTM."""

    layers: int = 2
    """Number of recurrent layers; the last has the embedding size."""
    hidden: int = 512
    """Hidden size of each layer but the last."""
    embedding: int = 256
    """Size of embeddings and of the last layer."""
    dropout: float = 0.1
    """Dropout probability before the output layer; one mask for all steps of a row."""
    layer_dropout: float = 0.1
    """Dropout probability between recurrent layers."""
    input_dropout: float = 0.1
    """Dropout probability of embedding units."""
    word_dropout: float = 0.02
    """Probability that a word's embedding is zero throughout a batch."""
    weight_dropout: float = 0.1
    """Dropout probability of hidden-to-hidden weights; one mask for all steps of a row."""

    def __post_init__(self) -> None:
        super(ULMFiTConfig, self).__post_init__()
        check(self, "embedding", self.embedding > 0, "above 0")
        check(self, "connect", self.connect == "plain", "plain")
        for name in ("layer_dropout", "input_dropout", "word_dropout", "weight_dropout"):
            check_below_one(self, name)


class WeightDropped(nn.Module):
    """A recurrent layer that runs on U ∘ m / (1 − p) as it learns; m is drawn once a call (Merity et al., 2018)."""

    def __init__(self, layer: Recurrent, p: float) -> None:
        super().__init__()
        self.layer, self.dropout = layer, Dropout(p)
        self.output = layer.output

    def start(self, rows: int) -> RecurrentState:
        """The layer's own start."""
        return self.layer.start(rows)

    def forward(
        self, x: Tensor, state: RecurrentState | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, RecurrentState]:
        """Run over x (B, T, D)."""
        if not self.dropout.active:
            y, after = self.layer(x, state, lengths)
            return y, after
        dropped = {"cell.weight_h": self.dropout(self.layer.cell.weight_h)}
        y, after = functional_call(self.layer, dropped, (x, state, lengths))
        return y, after


class ULMFiT(RecurrentLanguageModel):
    """ŷ_t = softmax(E h_t + b), h_t of an LSTM that forgets words, units and weights at random."""

    Config = ULMFiTConfig
    cell_type = LSTMCell
    recipe: ClassVar[str] = "ulmfit"
    """How it is fine-tuned where nothing else is said; see ensue.tasks.recipes."""
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {"train.batch": 32, "train.length": 64, "train.lr": 4e-3},
        "paper": {  # the sizes and rates of the paper; a GPU's work
            "layers": 3,
            "hidden": 1150,
            "embedding": 400,
            "dropout": 0.4,
            "layer_dropout": 0.3,
            "input_dropout": 0.4,
            "word_dropout": 0.05,
            "weight_dropout": 0.5,
            "train.batch": 64,
            "train.length": 70,
            "train.lr": 4e-3,
            "train.beta1": 0.7,
            "tokenizer.kind": "word",
            "tokenizer.vocabulary": 30_000,
        },
    }

    def __init__(self, config: ULMFiTConfig) -> None:
        super().__init__(config)
        self.words = WordDropout(config.word_dropout)
        self.inputs = LockedDropout(config.input_dropout)
        self.stack.dropout = LockedDropout(config.layer_dropout)
        self.dropout_out = LockedDropout(config.dropout)

    def layer(self, width: int, place: int) -> nn.Module:
        """A layer whose weights are dropped; the last of all is as wide as an embedding."""
        config = self.config
        assert isinstance(config, ULMFiTConfig)
        output = config.embedding if place == config.layers - 1 else config.hidden
        return WeightDropped(Recurrent(LSTMCell(width, output), config.kernel), config.weight_dropout)

    def forward(
        self,
        tokens: Tensor,
        state: State | None = None,
        lengths: Tensor | None = None,
        want: Sequence[Want] = ("logits",),
    ) -> Output:
        """Read tokens (B, T)."""
        e = self.inputs(self.words.embed(self.embed, tokens))
        looks = self.looks(want)
        hidden, after = self.stack(e, state, lengths, looks)
        return answer(self.head, self.dropout_out(hidden), after, lengths, want, tuple(looks) if looks else None)
