"""A model that labels: a body that has learnt to read, and a small head that answers about what was read.

    classify, pair   p(y | x) = softmax(W_y C)             C stands for the whole text: the pooled first token of an
    regress          y = w · C + b                         encoder, the last token of a language model, a mean, or
                                                           C = [h_T; max_t h_t; mean_t h_t] (Howard and Ruder, 2018)
    choose           p(i | x) = softmax_i(w · C_i)         over the choices, each read with its context
    tag              p(y_t | x) = softmax(W_y T_t)         at every token
    answer           p(start = i) = softmax_i(s · T_i),  p(end = j) = softmax_j(e · T_j)

The body is an encoder (bert, roberta), a whole language model (gpt, lstm …), whose own output layer then serves the
auxiliary loss of Radford et al. (2018), or a bidirectional recurrent network (ensue.models.bidirectional_encoder).
Heads are laid out as BERT, RoBERTa, DistilBERT and GPT-2 have them in Hugging Face's library, so that weights can be
exchanged.

Legend: B rows, T tokens, D width, Y labels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ensue.core.settings import check, check_below_one
from ensue.kernels.cross_entropy import mean_cross_entropy
from ensue.models.bidirectional_encoder import BidirectionalEncoder
from ensue.models.encoder import Encoder
from ensue.models.layer_depths import body_depths, layers_of
from ensue.models.recurrent import RecurrentLanguageModel
from ensue.nn.batch_norm import BatchNorm
from ensue.nn.dropout import Dropout

POOLINGS = ("auto", "first", "last", "mean", "max", "concat")
DENSE = {"none": None, "tanh": torch.tanh, "relu": torch.relu}
NORMS: dict[str, Callable[[int], nn.Module]] = {"none": nn.Identity, "batch": BatchNorm}
DIRECTIONS = ("auto", "one", "both")
KINDS = ("whole", "choice", "token", "span")


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadConfig:
    """Settings of a head, under ``head.`` in run.toml."""

    pooling: str = "auto"
    """Pooling of a text's hidden states: first, last, mean, max, or concat (the last one before the end token, max and
    mean concatenated); auto means first for encoders, last for gpt, max for recurrent networks."""
    dense: str = "auto"
    """Activation of a dense layer before the output layer: none, tanh or relu; auto means the encoder's pooler, or the
    default of the system."""
    hidden: int = 0
    """Size of the dense layer; 0 means its input size."""
    norm: str = "none"
    """Normalisation before each of the head's layers for whole texts: none, or batch (batch normalisation; it switches
    off a recurrent network's ``dropout`` before the head)."""
    dropout: float = 0.1
    """Dropout probability before the last layer."""
    directions: str = "auto"
    """Directions of a recurrent network: one (it can be initialised from a language model), both, or auto: both for
    token labels or features unless it is initialised from a run."""
    outputs: int = 0
    """Number of outputs; set by the labels."""
    kind: str = "whole"
    """What is labelled: whole, choice, token or span; set by the task."""

    def __post_init__(self) -> None:
        check(self, "pooling", self.pooling in POOLINGS, f"one of {', '.join(POOLINGS)}")
        check(self, "dense", self.dense in ("auto", *DENSE), f"one of auto, {', '.join(DENSE)}")
        check(self, "norm", self.norm in NORMS, f"one of {', '.join(NORMS)}")
        check_below_one(self, "dropout")
        check(self, "directions", self.directions in DIRECTIONS, f"one of {', '.join(DIRECTIONS)}")
        for name in ("hidden", "outputs"):
            check(self, name, getattr(self, name) >= 0, "0 or more")
        check(self, "kind", self.kind in KINDS, f"one of {', '.join(KINDS)}")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a labelling model answers."""

    logits: Tensor
    """(B, Y) for whole texts, (B / choices, choices), (B, T, Y) for tokens, (B, T, 2) for spans."""
    hidden: Tensor
    """(B, T, D), or (B, 1, D) where only the first token was computed."""
    layers: tuple[Tensor, ...] | None = None
    """h_0 … h_L of an encoder, where they were asked for."""
    attention: tuple[Tensor, ...] | None = None


class Labelled(nn.Module):
    """head(body(x))."""

    def __init__(self, body: nn.Module, config: HeadConfig, choices: int = 1) -> None:
        super().__init__()
        self.body = body
        self.config = resolved_head(body, config)
        self.choices = choices
        self.reach = 0
        """Tokens over which gradients reach back in a recurrent body as it learns; 0 means all."""
        width = width_of(body) * (3 if self.config.pooling == "concat" else 1)
        made = self.config.dense in ("tanh", "relu") and not self._body_pools
        self.dense = nn.Linear(width, self.config.hidden or width) if made else None
        self.norm_dense = NORMS[self.config.norm](width) if made else None
        width = self.dense.out_features if self.dense is not None else width
        self.norm_out = NORMS[self.config.norm](width)
        self.dropout = Dropout(self.config.dropout)
        if self.config.norm != "none" and isinstance(body, RecurrentLanguageModel | BidirectionalEncoder):
            body.dropout_out.p = 0.0  # units that are switched off before a norm change the variance it learns
        self.out = nn.Linear(width, self.config.outputs)
        for layer in (self.dense, self.out):
            if layer is not None:
                nn.init.normal_(layer.weight, std=0.02)
                nn.init.zeros_(layer.bias)

    @property
    def _body_pools(self) -> bool:
        """Whether the dense layer is the encoder's own, trained before."""
        body, head = self.body, self.config
        own = head.dense == "tanh" and head.pooling != "concat" and not head.hidden
        return own and isinstance(body, Encoder) and body.pooler is not None

    @property
    def vocabulary(self) -> int:
        """V, of the body."""
        return int(self.body.config.vocabulary)  # type: ignore[union-attr, arg-type]

    @property
    def context(self) -> int | None:
        """How many tokens the body reads at once."""
        body: Any = self.body
        found: int | None = body.config.context if isinstance(body, Encoder) else body.traits.context
        return found

    def forward(
        self,
        tokens: Tensor,
        segments: Tensor | None = None,
        lengths: Tensor | None = None,
        *,
        layers: bool = False,
        weights: bool = False,
    ) -> Answer:
        """Label rows of tokens (B, T)."""
        whole = self.config.kind in ("whole", "choice")
        hidden, held, seen = self._read(tokens, segments, lengths, whole, layers, weights)
        return Answer(self.label(hidden, lengths), hidden, held, seen)

    def label(self, hidden: Tensor, lengths: Tensor | None = None) -> Tensor:
        """The head alone: logits of the body's hidden states (B, T, D)."""
        x = self._pooled(hidden, lengths) if self.config.kind in ("whole", "choice") else hidden
        logits: Tensor = self.out(self.dropout(self.norm_out(x)))
        return logits.view(-1, self.choices) if self.config.kind == "choice" else logits

    def _read(
        self, tokens: Tensor, segments: Tensor | None, lengths: Tensor | None, whole: bool, layers: bool, weights: bool
    ) -> tuple[Tensor, Any, Any]:
        """The body's hidden states; of an encoder whose first token is enough, the last layer at that one only."""
        if not isinstance(self.body, Encoder):
            if self.reach and self.training and tokens.shape[1] > self.reach:
                return read_in_parts(self.body, tokens, lengths, self.reach), None, None
            want = ("hidden", "attention") if weights else ("hidden",)
            output = self.body(tokens, None, lengths, want=want)
            return output.hidden, None, output.attention
        places = None
        if whole and self.config.pooling == "first" and not layers and not weights:
            places = torch.zeros(tokens.shape[0], 1, dtype=torch.long, device=tokens.device)
        found = self.body(tokens, segments, lengths, places, layers=layers, weights=weights)
        return found.hidden, found.layers, found.attention

    def _pooled(self, hidden: Tensor, lengths: Tensor | None) -> Tensor:
        """One vector a row, (B, T, D) → (B, D)."""
        x = pool(hidden, lengths, self.config.pooling)
        if self._body_pools:
            assert isinstance(self.body, Encoder)
            return self.body.pool(x)
        function = DENSE[self.config.dense]
        if function is None or self.dense is None or self.norm_dense is None:
            return x
        return function(self.dense(self.dropout(self.norm_dense(x))))

    def language_loss(self, hidden: Tensor, tokens: Tensor, lengths: Tensor) -> Tensor:
        """The auxiliary loss: the mean of −log P(x_{t+1} | x_≤t) over the real tokens of a language model's rows."""
        head: Any = self.body.head
        real = torch.arange(1, tokens.shape[1], device=tokens.device) < lengths[:, None]
        return mean_cross_entropy(hidden[:, :-1][real], head.weight, head.bias, tokens[:, 1:][real])

    def depths(self) -> dict[str, int]:
        """How deep each parameter lies: 0 for what reads tokens, l for layer l, L + 1 for the head."""
        top = len(layers_of(self.body)) + 1
        inner = {f"body.{name}": depth for name, depth in body_depths(self.body).items()}
        learns = [name for name, _ in self.named_parameters() if name in inner or not name.startswith("body.")]
        return {name: inner.get(name, top) for name in learns}


def resolved_head(body: nn.Module, config: HeadConfig) -> HeadConfig:
    """A head's settings with what was left to us filled in."""
    from dataclasses import replace

    encoder = isinstance(body, Encoder)
    pooling, dense = config.pooling, config.dense
    if isinstance(body, BidirectionalEncoder | RecurrentLanguageModel):
        config = replace(config, directions="both" if isinstance(body, BidirectionalEncoder) else "one")
    if config.kind in ("token", "span"):
        return replace(config, pooling="first", dense="none", hidden=0, norm="none")
    if pooling == "auto":
        pooling = "first" if encoder else "last" if getattr(body, "cuts", "") == "windows" else "max"
    if dense == "auto":
        dense = "none"
        if isinstance(body, Encoder) and pooling == "first":
            dense = "relu" if not body.config.segments else "tanh"
    return replace(config, pooling=pooling, dense=dense)


def read_in_parts(body: Any, tokens: Tensor, lengths: Tensor | None, reach: int) -> Tensor:
    """Hidden states (B, T, D) of a recurrent body that reads ``reach`` tokens at a time and carries its state on.

    Every state is the same as without parts; only gradients end where a part begins (BPTT for text classification,
    Howard and Ruder, 2018).
    """
    state, found = None, []
    for at in range(0, tokens.shape[1], reach):
        part = tokens[:, at : at + reach]
        here = None if lengths is None else (lengths - at).clamp(0, part.shape[1])
        output = body(part, state, here, want=("hidden",))
        found.append(output.hidden)
        state = output.state.detach()
    return torch.cat(found, dim=1)


def pool(hidden: Tensor, lengths: Tensor | None, pooling: str) -> Tensor:
    """One vector for each row's real tokens, (B, T, D) → (B, D); concat gives (B, 3 D)."""
    if pooling == "first":
        return hidden[:, 0]
    if lengths is None:
        lengths = torch.full((hidden.shape[0],), hidden.shape[1], device=hidden.device)
    if pooling == "concat":
        before = (lengths - 1).clamp(min=1)  # at its end mark a language model forgets what it has read
        return torch.cat(
            [pool(hidden, n, part) for n, part in ((before, "last"), (lengths, "max"), (lengths, "mean"))], -1
        )
    if pooling == "last":
        return hidden[torch.arange(hidden.shape[0], device=hidden.device), (lengths - 1).clamp(min=0)]
    real = (torch.arange(hidden.shape[1], device=hidden.device) < lengths[:, None])[..., None]
    if pooling == "max":
        return hidden.masked_fill(~real, float("-inf")).amax(1)
    return hidden.masked_fill(~real, 0.0).sum(1) / lengths.clamp(min=1)[:, None]


def width_of(body: Any) -> int:
    """D, of a body's hidden states."""
    return int(body.width) if hasattr(body, "width") else int(body.head.weight.shape[1])
