"""word2vec: a vector for each word, learnt from its neighbours (Mikolov et al., 2013a and b).

Every word has two vectors: v as a centre, u as a word near one.

    J(θ) = −1/T Σ_t Σ_{−m≤j≤m, j≠0} log P(w_{t+j} | w_t)                                      (skip-gram)
    J(θ) = −1/T Σ_t log P(w_t | w_{t−m} … w_{t+m}),   h the mean of the v of those words       (CBOW)

    P(o | c) = exp(u_o · v_c) / Σ_w exp(u_w · v_c)      the exact softmax; for CBOW with h in place of v_c

The sum over the vocabulary is expensive. Negative sampling replaces it by a classifier that tells a word o from k words
w sampled from P_n ∝ count^¾:

    log σ(u_o · v_c) + Σ_{w ~ P_n} log σ(−u_w · v_c)

Its optimal u_o · v_c is log P(o | c) − log P_n(o) − log k (Levy and Goldberg, 2014), so the frequency of o near c is
proportional to P_n(o) exp(u_o · v_c).

With a dynamic window, m is sampled for each centre from 1 to ``window``. Frequent words are subsampled before windows
are formed: a word of frequency f is kept with probability √(s/f) + s/f, where s is ``train.subsample``.

Legend: V vocabulary, D width, T words of the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ensue.core.settings import Need, check, check_positive
from ensue.models.model import StatelessModel, answer
from ensue.nn.protocol import Output, Traits, Wants
from ensue.nn.state import State

Mode = Literal["skipgram", "cbow"]
Goal = Literal["negative", "softmax"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Word2VecConfig:
    """Configuration of word2vec."""

    needs: ClassVar[dict[str, Need]] = dict.fromkeys(("negative", "power"), ("objective", ("negative",)))
    vocabulary: int = 0
    """Vocabulary size; set by the text."""
    mode: Mode = "skipgram"
    """skipgram (predict the context from the word) or cbow (predict the word from its context)."""
    embedding: int = 100
    """Size of the vectors."""
    window: int = 5
    """Maximum distance of a context word from the centre word."""
    objective: Goal = "negative"
    """negative (negative sampling) or softmax (exact, for small vocabularies)."""
    negative: int = 5
    """Number of negative samples per positive pair."""
    power: float = 0.75
    """Exponent of word counts in the noise distribution."""

    def __post_init__(self) -> None:
        check_positive(self, "embedding", "window", "negative")
        check(self, "mode", self.mode in get_args(Mode), " or ".join(get_args(Mode)))
        check(self, "objective", self.objective in get_args(Goal), " or ".join(get_args(Goal)))
        check(self, "power", 0 <= self.power <= 10, "between 0 and 10")
        check(self, "window", self.window <= 1000, "at most 1000")
        check(self, "negative", self.negative <= 1000, "at most 1000")


class Word2Vec(StatelessModel):
    """v is ``embed.weight`` and u is ``head.weight``, both (V, D)."""

    Config: ClassVar[type[Any]] = Word2VecConfig
    task = "words"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {},
        "cbow": {"mode": "cbow"},
        "exact": {"train.threads": 1},
        "softmax": {"objective": "softmax", "train.threads": 1, "train.lr": 0.05, "train.epochs": 20.0},
    }

    def __init__(self, config: Word2VecConfig) -> None:
        super().__init__()
        self.config = config
        V, D = config.vocabulary, config.embedding
        self.embed = nn.Embedding(V, D)  # v
        self.head: nn.Linear = nn.Linear(D, V, bias=False)  # u
        self.counts: Tensor
        self.register_buffer("counts", torch.zeros(V, dtype=torch.int64))
        nn.init.uniform_(self.embed.weight, -0.5 / D, 0.5 / D)
        nn.init.zeros_(self.head.weight)

    @property
    def traits(self) -> Traits:
        """Context of one word."""
        return Traits(steps=False, context=1)

    def forward(
        self, tokens: Tensor, state: State | None = None, lengths: Tensor | None = None, want: Wants = ("logits",)
    ) -> Output:
        """Predict the words near each of ``tokens`` (B, T), independently of the other tokens."""
        return answer(self.head, self.embed(tokens), self.start(len(tokens)), lengths, want)

    def log_probabilities(self, given: Sequence[int], *, of_text: bool = False) -> Tensor:
        """Return log P(w | given) of every word, (V,): the softmax of u_w · h, h the mean of the given words' v.

        After negative sampling the softmax is relative to the noise distribution: how much more often a word occurs
        near the given ones than elsewhere. ``of_text`` multiplies by that distribution, which gives frequencies.
        """
        h = self.embed.weight.detach()[list(given)].double().mean(0)
        scores = self.head.weight.detach().double() @ h
        if of_text and self.config.objective == "negative":
            scores = scores + self.config.power * self.counts.double().log()  # −∞ for words that do not occur
        return scores.log_softmax(0)

    def sampling_loss(self, given: Tensor, outputs: Tensor) -> Tensor:
        """−log σ(u_o · h) − Σ_w log σ(−u_w · h), summed over rows h of ``given`` (n, D); o is the first of ``outputs``.

        The loss that the compiled loops minimise, for autograd.
        """
        scores = given @ self.head.weight[outputs].T  # (n, m)
        sign = torch.ones_like(scores)
        sign[:, 1:] = -1
        return -F.logsigmoid(sign * scores).sum()

    def softmax_loss(self, given: Tensor, wanted: Tensor) -> Tensor:
        """−Σ_o log P(o | h) of one vector h (D,) and the target words."""
        loss: Tensor = -self.head(given).log_softmax(-1)[wanted].sum()
        return loss
