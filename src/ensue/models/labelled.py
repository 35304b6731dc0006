"""Labelling models: a pre-trained backbone and a small head for a task.

    classify, pair   p(y | x) = softmax(W_y C)             C represents the whole text: the pooled first token of an
    regress          y = w · C + b                         encoder, the last token of a language model, a mean, or
                                                           C = [h_T; max_t h_t; mean_t h_t] (Howard and Ruder, 2018)
    choose           p(i | x) = softmax_i(w · C_i)         over the choices, each with its context
    tag              p(y_t | x) = softmax(W_y T_t)         at every token
    answer           p(start = i) = softmax_i(s · T_i),  p(end = j) = softmax_j(e · T_j)

The backbone (``body`` in weight files) is an encoder (bert, albert …), a whole language model (gpt, lstm …), whose own
output layer computes the auxiliary loss of Radford et al. (2018), or a bidirectional recurrent network
(ensue.models.bidirectional_encoder). Heads are those of BERT, RoBERTa, DistilBERT, ELECTRA and GPT-2 in Hugging Face's
library, so that weights can be exchanged.

Legend: B rows, T tokens, D width, Y labels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ensue.core.settings import check, check_below_one, check_not_negative
from ensue.models.bidirectional_encoder import BidirectionalEncoder
from ensue.models.encoder import Encoder
from ensue.models.layer_depths import layers_of, parameter_depths
from ensue.models.recurrent import RecurrentLanguageModel
from ensue.nn.batch_norm import BatchNorm
from ensue.nn.dropout import Dropout

POOLINGS = ("auto", "first", "last", "mean", "max", "concat")
DENSE = {"none": None, "tanh": torch.tanh, "relu": torch.relu, "gelu-erf": F.gelu}
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
    """Activation of a dense layer before the output layer: none, tanh, relu or gelu-erf; auto means the pooler of the
    encoder, or the default of the system."""
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
        check_not_negative(self, "hidden", "outputs")
        check(self, "kind", self.kind in KINDS, f"one of {', '.join(KINDS)}")


@dataclass(frozen=True, slots=True)
class LabelOutput:
    """The output of a labelling model."""

    logits: Tensor
    """(B, Y) for whole texts, (B / choices, choices) for choices, (B, T, Y) for tokens, (B, T, 2) for spans."""
    hidden: Tensor
    """(B, T, D), or (B, 1, D) if only the first token was computed."""
    layers: tuple[Tensor, ...] | None = None
    """h_0 … h_L of an encoder, on request."""
    attention: tuple[Tensor, ...] | None = None


class Labelled(nn.Module):
    """A head on a backbone: head(body(x))."""

    def __init__(self, backbone: nn.Module, config: HeadConfig, choices: int = 1) -> None:
        super().__init__()
        self.body = backbone
        self.config = resolved_head(backbone, config)
        self.choices = choices
        self.reach = 0
        """Length in tokens of truncated backpropagation in a recurrent backbone; 0 means all."""
        width = width_of(backbone) * (3 if self.config.pooling == "concat" else 1)
        has_dense = DENSE[self.config.dense] is not None and not self._backbone_pools
        self.dense = nn.Linear(width, self.config.hidden or width) if has_dense else None
        self.norm_dense = NORMS[self.config.norm](width) if has_dense else None
        width = self.dense.out_features if self.dense is not None else width
        self.norm_out = NORMS[self.config.norm](width)
        self.dropout = Dropout(self.config.dropout)
        if self.config.norm != "none" and isinstance(backbone, RecurrentLanguageModel | BidirectionalEncoder):
            backbone.dropout_out.p = 0.0  # dropout before a norm would change the variance that the norm estimates
        self.out = nn.Linear(width, self.config.outputs)
        for layer in (self.dense, self.out):
            if layer is not None:
                nn.init.normal_(layer.weight, std=0.02)
                nn.init.zeros_(layer.bias)

    @property
    def _backbone_pools(self) -> bool:
        """Whether the dense layer is the pre-trained pooler of the encoder."""
        body, head = self.body, self.config
        own = head.dense == "tanh" and head.pooling != "concat" and not head.hidden
        return own and isinstance(body, Encoder) and body.pooler is not None

    @property
    def vocabulary(self) -> int:
        """V, the vocabulary size of the backbone."""
        return int(self.body.config.vocabulary)  # type: ignore[union-attr, arg-type]

    @property
    def context(self) -> int | None:
        """The maximum number of tokens of the backbone; None means unlimited."""
        body: Any = self.body
        size: int | None = body.config.context if isinstance(body, Encoder) else body.traits.context
        return size

    def forward(
        self,
        tokens: Tensor,
        segments: Tensor | None = None,
        lengths: Tensor | None = None,
        *,
        layers: bool = False,
        weights: bool = False,
    ) -> LabelOutput:
        """Label rows of tokens (B, T)."""
        whole = self.config.kind in ("whole", "choice")
        hidden, all_layers, attention = self._read(tokens, segments, lengths, whole, layers, weights)
        return LabelOutput(self.label(hidden, lengths), hidden, all_layers, attention)

    def label(self, hidden: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Apply the head: return logits of the backbone's hidden states (B, T, D)."""
        x = self._pooled(hidden, lengths) if self.config.kind in ("whole", "choice") else hidden
        logits: Tensor = self.out(self.dropout(self.norm_out(x)))
        return logits.view(-1, self.choices) if self.config.kind == "choice" else logits

    def _read(
        self, tokens: Tensor, segments: Tensor | None, lengths: Tensor | None, whole: bool, layers: bool, weights: bool
    ) -> tuple[Tensor, Any, Any]:
        """Return the backbone's hidden states; an encoder's last layer only at the first token if that is enough."""
        if not isinstance(self.body, Encoder):
            if self.reach and self.training and tokens.shape[1] > self.reach:
                return read_truncated(self.body, tokens, lengths, self.reach), None, None
            want = ("hidden", "attention") if weights else ("hidden",)
            output = self.body(tokens, None, lengths, want=want)
            return output.hidden, None, output.attention
        positions = None
        if whole and self.config.pooling == "first" and not layers and not weights:
            positions = torch.zeros(tokens.shape[0], 1, dtype=torch.long, device=tokens.device)
        output = self.body(tokens, segments, lengths, positions, layers=layers, weights=weights)
        return output.hidden, output.layers, output.attention

    def _pooled(self, hidden: Tensor, lengths: Tensor | None) -> Tensor:
        """Pool each row to one vector, (B, T, D) → (B, D)."""
        x = pool(hidden, lengths, self.config.pooling)
        if self._backbone_pools:
            assert isinstance(self.body, Encoder)
            return self.body.pool(x)
        function = DENSE[self.config.dense]
        if function is None or self.dense is None or self.norm_dense is None:
            return x
        return function(self.dense(self.dropout(self.norm_dense(x))))

    def language_loss(self, hidden: Tensor, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Return the auxiliary loss: the mean of −log P(x_{t+1} | x_≤t) over all tokens but padding."""
        real = torch.arange(1, tokens.shape[1], device=tokens.device) < lengths[:, None]
        body: Any = self.body
        loss: Tensor = body.mean_loss(hidden[:, :-1][real], tokens[:, 1:][real])
        return loss

    def depths(self) -> dict[str, int]:
        """Return the depth of each parameter: 0 for embeddings, l for layer l, L + 1 for the head."""
        top = len(layers_of(self.body)) + 1
        inner = {f"body.{name}": depth for name, depth in parameter_depths(self.body).items()}
        return inner | {name: top for name, _ in self.named_parameters() if not name.startswith("body.")}


def resolved_head(backbone: nn.Module, config: HeadConfig) -> HeadConfig:
    """Return a head's settings with ``auto`` replaced by what suits the backbone."""
    encoder = isinstance(backbone, Encoder)
    pooling, dense = config.pooling, config.dense
    if isinstance(backbone, BidirectionalEncoder | RecurrentLanguageModel):
        config = replace(config, directions="both" if isinstance(backbone, BidirectionalEncoder) else "one")
    if config.kind in ("token", "span"):
        return replace(config, pooling="first", dense="none", hidden=0, norm="none")
    if pooling == "auto":
        pooling = "first" if encoder else "last" if getattr(backbone, "cuts", "") == "windows" else "max"
    if dense == "auto":
        dense = "none"
        if isinstance(backbone, Encoder) and pooling == "first":
            dense = backbone.config.labels_with or ("tanh" if backbone.config.segments else "relu")
    return replace(config, pooling=pooling, dense=dense)


def read_truncated(backbone: Any, tokens: Tensor, lengths: Tensor | None, reach: int) -> Tensor:
    """Return hidden states (B, T, D) of a recurrent backbone with truncated backpropagation.

    Hidden states do not change; only gradients stop every ``reach`` tokens (BPTT for text classification, Howard and
    Ruder, 2018).
    """
    state, hidden = None, []
    for begin in range(0, tokens.shape[1], reach):
        part = tokens[:, begin : begin + reach]
        part_lengths = None if lengths is None else (lengths - begin).clamp(0, part.shape[1])
        output = backbone(part, state, part_lengths, want=("hidden",))
        hidden.append(output.hidden)
        state = output.state.detach()
    return torch.cat(hidden, dim=1)


def pool(hidden: Tensor, lengths: Tensor | None, pooling: str) -> Tensor:
    """Pool each row's tokens without padding, (B, T, D) → (B, D); concat gives (B, 3 D)."""
    if pooling == "first":
        return hidden[:, 0]
    if lengths is None:
        lengths = torch.full((hidden.shape[0],), hidden.shape[1], device=hidden.device)
    if pooling == "concat":
        before = (lengths - 1).clamp(min=1)  # at the end token a language model forgets the text
        return torch.cat(
            [pool(hidden, n, part) for n, part in ((before, "last"), (lengths, "max"), (lengths, "mean"))], -1
        )
    if pooling == "last":
        return hidden[torch.arange(hidden.shape[0], device=hidden.device), (lengths - 1).clamp(min=0)]
    real = (torch.arange(hidden.shape[1], device=hidden.device) < lengths[:, None])[..., None]
    if pooling == "max":
        return hidden.masked_fill(~real, float("-inf")).amax(1)
    return hidden.masked_fill(~real, 0.0).sum(1) / lengths.clamp(min=1)[:, None]


def width_of(backbone: Any) -> int:
    """Return D, the size of a backbone's hidden states."""
    return int(backbone.width) if hasattr(backbone, "width") else int(backbone.head.weight.shape[1])
