"""ULMFiT: a language model that is fine-tuned, first to a text, then to a task (Howard and Ruder, 2018).

    1  fit ulmfit big.txt                     pre-train a language model on a large text
    2  fit ulmfit reviews.txt --from 1        fine-tune it on the task's text
    3  fit classify train.tsv --from 2        replace the output layer by a head: [h_T; max_t h_t; mean_t h_t] → label

The third step would forget the first two, unless fine-tuned with care. The paper's means, and their settings:

    η_l = 0.7 η_{l+1} (the paper: / 2.6)      a learning rate for each layer            train.layer_decay
    η_t = η_max (1 + p (ratio − 1)) / ratio   slanted triangular schedule, 0 ≤ p ≤ 1    train.schedule = slanted
    gradual unfreezing                        layer by layer from the head downward     train.freeze, train.unfreeze
    ∂h_t/∂h_s = 0 for s before t's chunk      truncated BPTT over a long text           train.reach

The model is the AWD-LSTM (Merity et al., 2018): an LSTM with four kinds of dropout, whose masks are the same for all
steps of a batch.

    e_t = (E ∘ m_word)_{x_t} ∘ m_e            whole words, then units of the embedding
    h_t = LSTM(h_{t-1}, e_t), U ∘ m_U         hidden-to-hidden weights (DropConnect, Wan et al., 2013)
    h_t ∘ m_l                                 between layers, and before the output layer
    ŷ_t = softmax(E h_t + b)                  tied weights: the last layer has the embedding size

``fit lstm``, ``gru``, ``gru-cho`` and ``rnn`` can be fine-tuned like this too, with ``--preset ulmfit`` in step 3.

Legend: B rows, T time, E embedding width, N hidden width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.func import functional_call

from ensue.core.settings import check, check_below_one
from ensue.models.recurrent import RecurrentConfig, RecurrentLanguageModel
from ensue.nn.dropout import Dropout, LockedDropout, WordDropout
from ensue.nn.recurrent import LSTMCell, Recurrent, RecurrentState


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
        check_below_one(self, "layer_dropout", "input_dropout", "word_dropout", "weight_dropout")


class WeightDropped(nn.Module):
    """A recurrent layer with dropout on its weights, U ∘ m / (1 − p); one mask per call (Merity et al., 2018)."""

    def __init__(self, layer: Recurrent, p: float) -> None:
        super().__init__()
        self.layer, self.dropout = layer, Dropout(p)
        self.output = layer.output

    def start(self, rows: int) -> RecurrentState:
        """Return the layer's initial state."""
        return self.layer.start(rows)

    def forward(
        self, x: Tensor, state: RecurrentState | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, RecurrentState]:
        """Run over x (B, T, D)."""
        if not self.dropout.active:
            return self.layer(x, state, lengths)  # type: ignore[no-any-return]
        dropped = {"cell.weight_h": self.dropout(self.layer.cell.weight_h)}
        return functional_call(self.layer, dropped, (x, state, lengths))  # type: ignore[no-any-return]


class ULMFiT(RecurrentLanguageModel):
    """ŷ_t = softmax(E h_t + b), h_t of an LSTM with dropout of words, units and weights."""

    Config = ULMFiTConfig
    cell_type = LSTMCell
    recipe: ClassVar[str] = "ulmfit"
    """The default recipe for fine-tuning; see ensue.tasks.recipes."""
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {"train.batch": 32, "train.length": 64, "train.lr": 4e-3},
        "paper": {  # the paper's sizes and rates; for a GPU
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

    def layer(self, width: int, number: int) -> nn.Module:
        """A layer with dropout on its weights; the last one has the embedding size."""
        config = self.config
        hidden = config.embedding if number == config.layers - 1 else config.hidden
        return WeightDropped(self.recurrent(width, hidden), config.weight_dropout)

    def embedded(self, tokens: Tensor) -> Tensor:
        return self.inputs(self.words.embed(self.embed, tokens))  # type: ignore[no-any-return]
