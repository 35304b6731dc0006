"""ELMo: words in context, from the layers of language models in both directions (Peters et al., 2018).

    x_k = characters(w_k)                                    a convolution over letters: see ensue.nn.characters
    →h_{k,1} = LSTM(→h_{k−1,1}, x_k)                         forward; ←h from the right, with weights of its own
    →h_{k,j} = →h_{k,j−1} + LSTM(→h_{k−1,j}, →h_{k,j−1})     j > 1: a residual connection between layers
    log →P(w_k | w_<k) = log softmax(W →h_{k−1,J} + b)[w_k]       one softmax for both directions, as x is one for both
    maximise Σ_k log →P(w_k | w_<k) + log ←P(w_k | w_>k)

Cells are wide and what they show is a projection (Sak et al., 2014): h = W_p (o ∘ tanh c). A task then takes

    ELMo_k = γ Σ_j s_j h_{k,j},   h_{k,0} = [x_k; x_k],   h_{k,j} = [→h_{k,j}; ←h_{k,j}]       see ensue.models.features

→h_{k−1} has not read w_k and ←h_{k+1} has not either, so a gap can be filled: P(w | both sides) ∝ →P ←P / P(w), which
with one softmax for both, whose bias is near log P(w), is softmax(W (→h_{k−1} + ←h_{k+1}) + b).

In a large vocabulary training weighs a word against some others that are drawn, not against all (sampled softmax, Jean
et al., 2015; see ensue.nn.sampling). Scoring is exact.

Legend: B rows, T tokens, D what a layer shows (projection), V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ensue.core.settings import check, check_below_one, check_positive
from ensue.kernels.cross_entropy import mean_cross_entropy
from ensue.models.context import ContextModel, known, neighbours
from ensue.models.model import answer
from ensue.nn.characters import CharacterWords
from ensue.nn.dropout import Dropout
from ensue.nn.protocol import Output, Traits, Want
from ensue.nn.recurrent import ProjectedLSTMCell, Recurrent
from ensue.nn.sampling import sampled_cross_entropy
from ensue.nn.stacks import reverse
from ensue.nn.state import NoState, State


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
    """h_{k,0} … h_{k,J} of words: what features are mixed of."""

    def __init__(self, config: ELMoConfig) -> None:
        super().__init__()
        self.config = config
        D = config.projection
        self.embed = CharacterWords(config.filters, config.letter, D, config.highways, config.longest)
        self.onward, self.backward = (
            nn.ModuleList(
                Recurrent(ProjectedLSTMCell(D, config.hidden, D), config.kernel) for _ in range(config.layers)
            )
            for _ in range(2)
        )
        self.dropout = Dropout(config.dropout)

    @property
    def depth(self) -> int:
        """J + 1."""
        return 1 + self.config.layers

    @property
    def width(self) -> int:
        """Of [→h; ←h]."""
        return 2 * self.config.projection

    def forward(self, tokens: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """x (B, T, D), and →h and ←h of every layer, both in the order of the text."""
        x = self.embed(tokens)
        turned = self._climb(self.backward, reverse(x, lengths), lengths)
        return x, self._climb(self.onward, x, lengths), [reverse(h, lengths) for h in turned]

    def _climb(self, layers: nn.ModuleList, x: Tensor, lengths: Tensor | None) -> list[Tensor]:
        """What each layer of one direction shows (B, T, D), lowest first; from the second on the one below is added."""
        held: list[Tensor] = []
        for number, layer in enumerate(layers):
            y, _ = layer(self.dropout(x), None, lengths)
            x = x + y if number else y
            held.append(x)
        return held

    def layers_of(self, tokens: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, ...]:
        """[x; x], then [→h_j; ←h_j] of each layer, all (B, T, 2 D)."""
        x, onward, backward = self(tokens, lengths)
        return tuple(torch.cat(pair, dim=-1) for pair in zip([x, *onward], [x, *backward], strict=True))


class ELMo(ContextModel):
    """Two directions over words from letters; the answer at place k is about w_k, from both its sides."""

    Config = ELMoConfig
    spells: ClassVar[bool] = True
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
        self.head: nn.Linear = nn.Linear(config.projection, config.vocabulary)  # W, b: one for both directions
        nn.init.normal_(self.head.weight, std=config.projection**-0.5)
        nn.init.zeros_(self.head.bias)

    @property
    def traits(self) -> Traits:
        """It needs the whole text at once."""
        return Traits(causal=False, steps=False)

    @property
    def width(self) -> int:
        """Of [→h; ←h]."""
        return self.body.width

    @property
    def embed(self) -> CharacterWords:
        """What makes words of letters."""
        return self.body.embed

    def reader(self) -> ELMoReader:
        """What of it reads, without the softmax."""
        return self.body

    def learn_counts(self, counts: Tensor) -> None:
        """The softmax begins as words are: b = log P(w)."""
        with torch.no_grad():
            self.head.bias.copy_(((counts + 1) / (counts + 1).sum()).log())

    def start(self, rows: int) -> NoState:
        """Nothing is remembered: it begins anew at each call."""
        return NoState(torch.zeros(rows, device=self.head.weight.device))

    def forward(
        self,
        tokens: Tensor,
        state: State | None = None,
        lengths: Tensor | None = None,
        want: Sequence[Want] = ("logits",),
    ) -> Output:
        """Read tokens (B, T). Logits at place k are for w_k, from all others; hidden is [→h_k; ←h_k], which read it."""
        _, onward, backward = self.body(tokens, lengths)
        before, after = neighbours(onward[-1], reverse(backward[-1], lengths), lengths)
        found = answer(self.head, before + after, self.start(len(tokens)), lengths, want)
        hidden = torch.cat([onward[-1], backward[-1]], dim=-1) if "hidden" in want else None
        return Output(found.logits, hidden, None, found.state)

    def gaps(self, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        """→h_{k−1} + ←h_{k+1} (B, T, D)."""
        _, onward, backward = self.body(tokens, lengths)
        before, after = neighbours(onward[-1], reverse(backward[-1], lengths), lengths)
        return before + after

    def context_loss(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """−1/N Σ_k (log →P(w_k) + log ←P(w_k)), each over the places that have something before or after them."""
        hidden, targets = (torch.cat(parts) for parts in zip(*self._sides(tokens, lengths)))
        out, samples = self.head, self.config.samples
        if self.training and 0 < 4 * samples <= self.config.vocabulary:
            return 2 * sampled_cross_entropy(hidden, out.weight, out.bias, targets, samples)
        return 2 * mean_cross_entropy(hidden, out.weight, out.bias, targets)

    def predicted(self, lengths: Tensor) -> Tensor:
        """Of each direction: the places that have something before them."""
        return (lengths - 1).clamp(min=0).sum()

    def side_losses(self, tokens: Tensor, lengths: Tensor) -> dict[str, Tensor]:
        """−log P of every word that is predicted, forward and backward, each (N,)."""
        sides = zip(("forward", "backward"), self._sides(tokens, lengths))
        return {name: self.cross_entropy(hidden, targets) for name, (hidden, targets) in sides}

    def _sides(self, tokens: Tensor, lengths: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """For each direction the states that predict (N, D) and the words that they predict (N,)."""
        _, onward, backward = self.body(tokens, lengths)
        words = known(tokens, self.config.vocabulary)
        real = torch.arange(1, tokens.shape[1], device=tokens.device) < lengths[:, None]
        yield self.body.dropout(onward[-1])[:, :-1][real], words[:, 1:][real]
        yield self.body.dropout(backward[-1])[:, 1:][real], words[:, :-1][real]
