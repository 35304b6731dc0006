"""ELMo: words in context, from the layers of language models in both directions (Peters et al., 2018).

    x_k = characters(w_k)                                    a convolution over letters: see ensue.nn.characters
    →h_{k,1} = LSTM(→h_{k−1,1}, x_k)                         forward; ←h backward, with weights of its own
    →h_{k,j} = →h_{k,j−1} + LSTM(→h_{k−1,j}, →h_{k,j−1})     j > 1: a residual connection between layers
    log →P(w_k | w_<k) = log softmax(W →h_{k−1,J} + b)[w_k]       one softmax for both directions, as x is one for both
    maximise Σ_k log →P(w_k | w_<k) + log ←P(w_k | w_>k)

Cells are projected (Sak et al., 2014): h = W_p (o ∘ tanh c). A task then uses

    ELMo_k = γ Σ_j s_j h_{k,j},   h_{k,0} = [x_k; x_k],   h_{k,j} = [→h_{k,j}; ←h_{k,j}]       see ensue.models.features

Neither →h_{k−1} nor ←h_{k+1} has read w_k, so they can fill a gap: P(w | both sides) ∝ →P ←P / P(w). With one softmax
for both, whose bias is near log P(w), this is softmax(W (→h_{k−1} + ←h_{k+1}) + b).

With a large vocabulary, training uses a sampled softmax (Jean et al., 2015; see ensue.nn.sampling). Scoring is exact.

Legend: B rows, T tokens, D projection, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ensue.core.settings import check, check_below_one, check_positive
from ensue.kernels.cross_entropy import mean_cross_entropy
from ensue.models.context import ContextModel, neighbour_states, replace_unknown
from ensue.models.model import answer
from ensue.nn.characters import CharacterWords
from ensue.nn.dropout import Dropout
from ensue.nn.protocol import Output, Wants
from ensue.nn.recurrent import ProjectedLSTMCell, Recurrent
from ensue.nn.sampling import sampled_cross_entropy
from ensue.nn.stacks import reverse
from ensue.nn.state import State


@dataclass(frozen=True, kw_only=True, slots=True)
class ELMoConfig:
    """Configuration of ELMo."""

    vocabulary: int = 0
    """Number of words that are predicted; set by the tokenizer. Any word can be read."""
    layers: int = 2
    """Number of recurrent layers in each direction."""
    hidden: int = 512
    """Hidden size of each LSTM cell."""
    projection: int = 128
    """Size of a layer's projected output and of word vectors."""
    filters: tuple[int, ...] = (16, 16, 32, 64, 64, 64, 64)
    """Number of character convolution filters of width 1, 2, …"""
    letter: int = 16
    """Character embedding size."""
    highways: int = 1
    """Number of highway layers after the convolutions."""
    longest: int = 50
    """Maximum number of bytes read from a word."""
    dropout: float = 0.1
    """Dropout probability between layers; never inside the recurrence."""
    samples: int = 2048
    """Number of sampled words in training's softmax; 0, or more than a quarter of the vocabulary, means the full
    softmax."""
    kernel: str = "auto"
    """Kernel: auto, fused (torch's) or reference (a loop over the equation)."""

    def __post_init__(self) -> None:
        check_positive(self, "layers", "projection", "letter", "longest")
        check(self, "hidden", self.hidden > self.projection, f"more than projection = {self.projection}")
        right = bool(self.filters) and all(isinstance(n, int) and n >= 0 for n in self.filters) and any(self.filters)
        check(self, "filters", right, "whole numbers, one for each width, not all 0")
        check(self, "highways", self.highways >= 0, "0 or more")
        check(self, "samples", self.samples >= 0, "0 or more")
        check_below_one(self, "dropout")
        check(self, "kernel", self.kernel in ("auto", "fused", "reference"), "auto, fused or reference")


class ELMoReader(nn.Module):
    """h_{k,0} … h_{k,J} of words, without the softmax: a reader of ensue.models.features."""

    def __init__(self, config: ELMoConfig) -> None:
        super().__init__()
        self.config = config
        D = config.projection
        self.depth, self.width = 1 + config.layers, 2 * D
        self.embed = CharacterWords(config.filters, config.letter, D, config.highways, config.longest)
        self.onward, self.backward = (
            nn.ModuleList(
                Recurrent(ProjectedLSTMCell(D, config.hidden, D), config.kernel) for _ in range(config.layers)
            )
            for _ in range(2)
        )
        self.dropout = Dropout(config.dropout)

    def forward(self, tokens: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Return x (B, T, D), and →h and ←h of every layer, both in the order of the text."""
        x = self.embed(tokens)
        backward = self._run(self.backward, reverse(x, lengths), lengths)
        return x, self._run(self.onward, x, lengths), [reverse(h, lengths) for h in backward]

    def _run(self, layers: nn.ModuleList, x: Tensor, lengths: Tensor | None) -> list[Tensor]:
        """Return the output (B, T, D) of each layer of one direction, with residual connections from the second on."""
        outputs: list[Tensor] = []
        for number, layer in enumerate(layers):
            y, _ = layer(self.dropout(x), None, lengths)
            x = x + y if number else y
            outputs.append(x)
        return outputs

    def layers_of(self, tokens: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, ...]:
        """Return [x; x], then [→h_j; ←h_j] of each layer, all (B, T, 2 D)."""
        x, forward, backward = self(tokens, lengths)
        return tuple(torch.cat(pair, dim=-1) for pair in zip([x, *forward], [x, *backward], strict=True))


class ELMo(ContextModel):
    """Two directions over words from letters; the output at position k is for w_k, given both sides."""

    Config = ELMoConfig
    head: nn.Linear
    spells: ClassVar[bool] = True
    """It reads the letters of words, so it reads any word."""
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {"train.lr": 2e-3, "train.batch_tokens": 1500},
        "tiny": {"hidden": 256, "projection": 64, "filters": (16, 16, 32, 32, 32), "train.lr": 3e-3},
        "original": {
            "hidden": 4096,
            "projection": 512,
            "filters": (32, 32, 64, 128, 256, 512, 1024),
            "highways": 2,
            "samples": 8192,
            "tokenizer.vocabulary": 793_471,
            "train.epochs": 10.0,
            "train.lr": 1e-3,
            "train.batch_tokens": 2560,
        },
    }

    def __init__(self, config: ELMoConfig) -> None:
        super().__init__()
        self.config = config
        self.body = ELMoReader(config)
        self.width = self.body.width
        self.head = nn.Linear(config.projection, config.vocabulary)  # W, b: one for both directions
        nn.init.normal_(self.head.weight, std=config.projection**-0.5)
        nn.init.zeros_(self.head.bias)

    @property
    def embed(self) -> CharacterWords:
        """The module that computes word vectors from letters."""
        return self.body.embed

    def reader(self) -> ELMoReader:
        """Return the model without the softmax, for features of another model."""
        return self.body

    def set_word_counts(self, counts: Tensor) -> None:
        """Initialise the bias of the softmax to b = log P(w)."""
        with torch.no_grad():
            self.head.bias.copy_(((counts + 1) / (counts + 1).sum()).log())

    def forward(
        self, tokens: Tensor, state: State | None = None, lengths: Tensor | None = None, want: Wants = ("logits",)
    ) -> Output:
        """Read tokens (B, T). Logits at position k are for w_k, given all others; hidden is [→h_k; ←h_k] with w_k."""
        _, forward, backward = self.body(tokens, lengths)
        output = answer(self.head, _gap(forward, backward, lengths), self.start(len(tokens)), lengths, want)
        hidden = torch.cat([forward[-1], backward[-1]], dim=-1) if "hidden" in want else None
        return replace(output, hidden=hidden)

    def context_vectors(self, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return →h_{k−1} + ←h_{k+1} (B, T, D)."""
        _, forward, backward = self.body(tokens, lengths)
        return _gap(forward, backward, lengths)

    def context_loss(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Return −1/N Σ_k (log →P(w_k) + log ←P(w_k)), each over positions that have a word before or after them."""
        hidden, targets = (torch.cat(parts) for parts in zip(*self._predictions(tokens, lengths)))
        out, samples = self.head, self.config.samples
        if self.training and 0 < 4 * samples <= self.config.vocabulary:
            return 2 * sampled_cross_entropy(hidden, out.weight, out.bias, targets, samples)
        return 2 * mean_cross_entropy(hidden, out.weight, out.bias, targets)

    def target_count(self, lengths: Tensor) -> Tensor:
        """Return the number of words that each direction predicts: all but the first."""
        return (lengths - 1).clamp(min=0).sum()

    def word_losses(self, tokens: Tensor, lengths: Tensor) -> dict[str, Tensor]:
        """Return −log P of every predicted word, forward and backward, each (N,)."""
        directions = zip(("forward", "backward"), self._predictions(tokens, lengths))
        return {name: self.cross_entropy(hidden, targets) for name, (hidden, targets) in directions}

    def _predictions(self, tokens: Tensor, lengths: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the states (N, D) of each direction that predict a word, and these words (N,)."""
        _, forward, backward = self.body(tokens, lengths)
        words = replace_unknown(tokens, self.config.vocabulary)
        real = torch.arange(1, tokens.shape[1], device=tokens.device) < lengths[:, None]
        yield self.body.dropout(forward[-1])[:, :-1][real], words[:, 1:][real]
        yield self.body.dropout(backward[-1])[:, 1:][real], words[:, :-1][real]


def _gap(forward: list[Tensor], backward: list[Tensor], lengths: Tensor | None) -> Tensor:
    """Return →h_{k−1} + ←h_{k+1} (B, T, D) of the last layer's states."""
    before, after = neighbour_states(forward[-1], reverse(backward[-1], lengths), lengths)
    return before + after
