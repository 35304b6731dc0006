"""context2vec: a vector for what stands around a place, near those of words that fit there (Melamud et al., 2016).

    →h_k = LSTM(→h_{k−1}, e_k),   ←h_k = LSTM(←h_{k+1}, e_k)
    c_k = W_2 relu(W_1 [→h_{k−1}; ←h_{k+1}] + b_1) + b_2                    the context of place k, without w_k
    J = −log σ(u_w · c) − Σ_{v drawn from P^α} log σ(−u_v · c)              negative sampling (Mikolov et al., 2013)

Where J is least, u_w · c = log P(w | c) / (m P^α(w)) with m draws (Levy and Goldberg, 2014). So words fit a gap by
u_w · c alone, however rare they are, and the probability of a word is P(w | c) = softmax(u · c + log P^α)[w].

Legend: B rows, T tokens, D width of words and contexts, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ensue.core.settings import check, check_below_one, check_positive
from ensue.models.context import ContextModel, known, neighbours
from ensue.models.model import answer
from ensue.nn.dropout import Dropout
from ensue.nn.protocol import Output, Traits, Want
from ensue.nn.recurrent import LSTMCell, Recurrent
from ensue.nn.sampling import negative_sampling
from ensue.nn.stacks import Stack, reverse
from ensue.nn.state import NoState, State


@dataclass(frozen=True, kw_only=True, slots=True)
class Context2vecConfig:
    """Configuration of context2vec."""

    vocabulary: int = 0
    """Vocabulary size; set by the tokenizer."""
    layers: int = 1
    """Number of recurrent layers in each direction."""
    hidden: int = 256
    """Hidden size of each direction, and of the layer that joins them."""
    embedding: int = 128
    """Size of word and context vectors."""
    dropout: float = 0.1
    """Dropout probability between layers; never inside the recurrence."""
    negatives: int = 10
    """Number of negative samples per word."""
    power: float = 0.75
    """α: exponent of word counts in the noise distribution."""

    def __post_init__(self) -> None:
        check_positive(self, "layers", "hidden", "embedding", "negatives")
        check_below_one(self, "dropout")
        check(self, "power", 0 <= self.power <= 1, "between 0 and 1")


class Words(nn.Module):
    """Scores u · c + log P^α of all words; u alone says what fits."""

    noise: Tensor

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocabulary, width).uniform_(-0.5 / width, 0.5 / width))
        self.register_buffer("noise", torch.full((vocabulary,), 1 / max(1, vocabulary)).log())  # log P^α

    def forward(self, context: Tensor) -> Tensor:
        """(…, D) → (…, V)."""
        return nn.functional.linear(context, self.weight, self.noise)


class Context2vec(ContextModel):
    """c_k of both sides, u_w of the words that fit."""

    Config = Context2vecConfig
    presets: ClassVar[dict[str, dict[str, Any]]] = {"default": {"train.lr": 2e-3, "train.batch_tokens": 1500}}
    cell_type = LSTMCell

    def __init__(self, config: Context2vecConfig) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.vocabulary, config.embedding)
        self.onward, self.backward = (
            Stack(
                lambda size: Recurrent(LSTMCell(size, config.hidden)),
                config.embedding,
                config.layers,
                "plain",
                config.dropout,
            )
            for _ in range(2)
        )
        self.join = nn.Sequential(
            nn.Linear(2 * config.hidden, config.hidden), nn.ReLU(), nn.Linear(config.hidden, config.embedding)
        )
        self.head = Words(config.vocabulary, config.embedding)
        self.dropout = Dropout(config.dropout)
        nn.init.uniform_(self.embed.weight, -0.1, 0.1)

    @property
    def traits(self) -> Traits:
        """It needs the whole text at once."""
        return Traits(causal=False, steps=False)

    @property
    def width(self) -> int:
        """D."""
        return int(self.config.embedding)

    def learn_counts(self, counts: Tensor) -> None:
        """P^α of words that occur so often (V,)."""
        assert isinstance(self.head, Words)
        p = (counts.double() + 1) ** self.config.power
        self.head.noise.copy_((p / p.sum()).log())

    def start(self, rows: int) -> NoState:
        """Nothing is remembered: it begins anew at each call."""
        return NoState(torch.zeros(rows, device=self.embed.weight.device))

    def forward(
        self,
        tokens: Tensor,
        state: State | None = None,
        lengths: Tensor | None = None,
        want: Sequence[Want] = ("logits",),
    ) -> Output:
        """Read tokens (B, T); logits and the context c (B, T, D) at place k are of w_k's place, from all others."""
        return answer(self.head, self.gaps(tokens, lengths), self.start(len(tokens)), lengths, want)

    def gaps(self, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        """c_k (B, T, D)."""
        e = self.dropout(self.embed(known(tokens, self.config.vocabulary)))
        right, _ = self.onward(e, None, lengths)
        left, _ = self.backward(reverse(e, lengths), None, lengths)
        c: Tensor = self.join(self.dropout(torch.cat(neighbours(right, left, lengths), dim=-1)))
        return c

    def context_loss(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """The mean of J over words; the marks at the ends of rows are context only."""
        assert isinstance(self.head, Words)
        context, targets = self._inside(tokens, lengths)
        count = len(targets) * self.config.negatives
        drawn = torch.multinomial(self.head.noise.exp(), count, replacement=True).view(len(targets), -1)
        return negative_sampling(context, self.head.weight, targets, drawn)

    def side_losses(self, tokens: Tensor, lengths: Tensor) -> dict[str, Tensor]:
        """−log P(w_k | c_k) of every word, (N,)."""
        return {"gap": self.cross_entropy(*self._inside(tokens, lengths))}

    def _inside(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Contexts (N, D) and words (N,) of places that are neither a row's first nor its last."""
        place = torch.arange(tokens.shape[1], device=tokens.device)
        inside = (place > 0) & (place < lengths[:, None] - 1)
        return self.gaps(tokens, lengths)[inside], known(tokens, self.config.vocabulary)[inside]
