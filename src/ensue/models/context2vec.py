"""context2vec: vectors of contexts, near the vectors of words that fit into them (Melamud et al., 2016).

    →h_k = LSTM(→h_{k−1}, e_k),   ←h_k = LSTM(←h_{k+1}, e_k)
    c_k = W_2 relu(W_1 [→h_{k−1}; ←h_{k+1}] + b_1) + b_2                    the context of position k, without w_k
    J = −log σ(u_w · c) − Σ_{v ~ P^α} log σ(−u_v · c)                       negative sampling (Mikolov et al., 2013)

J is least where u_w · c = log P(w | c) / (m P^α(w)) with m samples (Levy and Goldberg, 2014). So u_w · c alone ranks
words by how well they fit, however rare they are, and P(w | c) = softmax(u · c + log P^α)[w].

Legend: B rows, T tokens, D width of words and contexts, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ensue.core.settings import check, check_below_one, check_positive
from ensue.models.context import ContextModel, read_both_sides, replace_unknown
from ensue.nn.dropout import Dropout
from ensue.nn.recurrent import LSTMCell, Recurrent
from ensue.nn.sampling import negative_sampling
from ensue.nn.stacks import Stack


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


class WordScores(nn.Module):
    """Scores u · c + log P^α of all words."""

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
    head: WordScores

    def __init__(self, config: Context2vecConfig) -> None:
        super().__init__()
        self.config = config
        N, D = config.hidden, config.embedding
        self.width = D
        self.embed = nn.Embedding(config.vocabulary, D)
        self.onward, self.backward = (
            Stack(lambda size: Recurrent(LSTMCell(size, N)), D, config.layers, "plain", config.dropout)
            for _ in range(2)
        )
        self.join = nn.Sequential(nn.Linear(2 * N, N), nn.ReLU(), nn.Linear(N, D))
        self.head = WordScores(config.vocabulary, D)
        self.dropout = Dropout(config.dropout)
        nn.init.uniform_(self.embed.weight, -0.1, 0.1)

    def set_word_counts(self, counts: Tensor) -> None:
        """Set P^α from the counts of all words (V,)."""
        p = (counts.double() + 1) ** self.config.power
        self.head.noise.copy_((p / p.sum()).log())

    def context_vectors(self, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return c_k (B, T, D)."""
        e = self.dropout(self.embed(replace_unknown(tokens, self.config.vocabulary)))
        h, _ = read_both_sides(self.onward, self.backward, e, lengths)
        return self.join(self.dropout(h))  # type: ignore[no-any-return]

    def context_loss(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Return the mean of J over words; end tokens are context only."""
        context, targets = self._predictions(tokens, lengths)
        count = len(targets) * self.config.negatives
        negatives = torch.multinomial(self.head.noise.exp(), count, replacement=True).view(len(targets), -1)
        return negative_sampling(context, self.head.weight, targets, negatives)

    def word_losses(self, tokens: Tensor, lengths: Tensor) -> dict[str, Tensor]:
        """Return −log P(w_k | c_k) of every word, (N,)."""
        return {"gap": self.cross_entropy(*self._predictions(tokens, lengths))}

    def _predictions(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return the contexts (N, D) and words (N,) of all positions but each row's first and last."""
        position = torch.arange(tokens.shape[1], device=tokens.device)
        inside = (position > 0) & (position < lengths[:, None] - 1)
        words = replace_unknown(tokens, self.config.vocabulary)
        return self.context_vectors(tokens, lengths)[inside], words[inside]
