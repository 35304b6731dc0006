"""An encoder that reads in both directions: the backbone of BERT and its kin (Devlin et al., 2019).

    h_0 = LN(E_x + E_s + E_p)                token, segment (first or second text) and position
    h_l = Block(h_{l-1})                     l = 1 … L; self-attention to the whole text, then a feed-forward network
    T_i = h_L,i,   C = tanh(W_C h_L,1 + b)   a vector for each token, and one for the whole: the pooled first token

Legend: B rows, T tokens, K positions that are asked for, D width, H heads, L layers, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ensue.core.errors import InputError
from ensue.core.settings import check, check_positive
from ensue.kernels.autograd_guards import plain
from ensue.kernels.packing import Packing
from ensue.nn.dropout import Dropout
from ensue.nn.feed_forward import ACTIVATIONS
from ensue.nn.layout import Layout
from ensue.nn.positions import POSITIONS
from ensue.nn.trunk_config import TrunkConfig, build_norm, build_trunk, last_norm


@dataclass(frozen=True, kw_only=True, slots=True)
class EncoderConfig(TrunkConfig):
    """Settings of an encoder."""

    vocabulary: int = 0
    """Vocabulary size; set by the tokenizer."""
    context: int = 128
    """Number of tokens the model can read, special tokens included."""
    segments: int = 2
    """Number of segments: 2 tells the texts of a pair apart, 0 leaves segments out."""
    pooled: bool = True
    """Whether the first token is pooled to a vector for the whole."""
    dropout: float = 0.1
    """Dropout probability."""
    activation: str = "gelu-erf"
    """Activation of a two-layer feed-forward network: gelu-erf (BERT's), gelu (its tanh form) or relu."""
    feed: str = ""
    """Feed-forward network: empty for two layers with ``activation``; swiglu or geglu for one with a gate."""
    norm: str = "post"
    """Norm: pre or post (layer norm before or after each part), rms or post-rms (RMSNorm)."""
    positions: str = "learned"
    """Position encoding: learned, sinusoidal, rotary, alibi or none."""
    epsilon: float = 1e-12
    """What a norm adds to the variance."""

    def __post_init__(self) -> None:
        check(self, "activation", self.activation in ACTIVATIONS, f"one of {', '.join(ACTIVATIONS)}")
        self.check_trunk(rotary=self.positions == "rotary")
        check_positive(self, "context")
        check(self, "segments", 0 <= self.segments <= 16, "between 0 and 16")
        check(self, "positions", self.positions in POSITIONS, f"one of {', '.join(POSITIONS)}")
        check(self, "epsilon", 0 < self.epsilon < 1, "between 0 and 1")


@dataclass(frozen=True, slots=True)
class Encoded:
    """What an encoder makes of rows of tokens."""

    hidden: Tensor
    """(B, T, D), or (B, K, D) at the positions that were asked for: T_i."""
    attention: tuple[Tensor, ...] | None = None
    """(B, H, T, T) of every layer, where it was asked for; in the last only from the positions asked for."""
    layers: tuple[Tensor, ...] | None = None
    """h_0 … h_L, where they were asked for."""


class Encoder(nn.Module):
    """h_l = Block(h_{l-1}), h_0 = LN(E_x + E_s + E_p)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        D, p = config.hidden, config.dropout
        self.embed = nn.Embedding(config.vocabulary, D)
        self.positions = POSITIONS[config.positions](config.context, D)
        self.segments = nn.Embedding(config.segments, D) if config.segments else None
        self.norm = build_norm(config, config.epsilon)()
        self.blocks = build_trunk(
            config,
            causal=False,
            positions=config.positions,
            context=config.context,
            attention_dropout=p,
            epsilon=config.epsilon,
        )
        self.last_norm = last_norm(config, config.epsilon)
        self.pooler = nn.Linear(D, D) if config.pooled else None
        self.dropout = Dropout(p)
        initialise(self)

    @property
    def width(self) -> int:
        """D."""
        return self.config.hidden

    def forward(
        self,
        tokens: Tensor,
        segments: Tensor | None = None,
        lengths: Tensor | None = None,
        positions: Tensor | None = None,
        *,
        weights: bool = False,
        layers: bool = False,
    ) -> Encoded:
        """Read tokens (B, T) of segments (B, T); without ``segments`` all are of the first.

        With ``positions`` (B, K) the last block computes these only.
        """
        self._check_fits(tokens.shape[1])
        if self._may_branch(tokens):
            if not (weights or layers or self.training or torch.is_grad_enabled()):
                return Encoded(self._packed(tokens, segments, lengths, positions))
            if lengths is not None and not bool((lengths < tokens.shape[1]).any()):
                lengths = None  # nothing is padded, so no mask is needed
        x = self._embedded(tokens, segments, torch.arange(tokens.shape[1], device=tokens.device)[None])
        h, _, seen, every = self.blocks(x, None, Layout(lengths), weights=weights, at=positions, layers=layers)
        return Encoded(self.last_norm(h), seen, every)

    def _may_branch(self, tokens: Tensor) -> bool:
        """Whether lengths may decide what is computed: on a CPU, where it is cheap, if nothing is traced."""
        traced = torch._C._get_tracing_state() is not None
        return tokens.device.type == "cpu" and not traced and plain(self.embed.weight)

    def _packed(
        self, tokens: Tensor, segments: Tensor | None, lengths: Tensor | None, positions: Tensor | None
    ) -> Tensor:
        """The last block's output, (B, T, D) or (B, K, D), of rows without their padding."""
        packing = Packing.of(lengths, *tokens.shape)
        kinds = None if segments is None else packing.pack(segments)
        x = self._embedded(packing.pack(tokens), kinds, packing.positions)
        h = self.last_norm(self.blocks(x, None, Layout.packed(lengths, packing), at=positions).h)
        return packing.unpack(h) if positions is None else packing.restore(h)

    def _check_fits(self, time: int) -> None:
        if time > self.config.context:
            what = f"{time} tokens do not fit into a context of {self.config.context}"
            raise InputError(what, hint="cut the text")

    def _embedded(self, tokens: Tensor, segments: Tensor | None, positions: Tensor) -> Tensor:
        """h_0 (…, D) of tokens, segments and positions (…)."""
        x = self.positions(self.embed(tokens), positions, self.config.context)
        if self.segments is not None:
            alike = segments is None or self.config.segments == 1  # all tokens are of one kind
            x = x + (self.segments.weight[0] if alike else self.segments(segments))
        result: Tensor = self.dropout(self.norm(x))
        return result

    def pool(self, first: Tensor) -> Tensor:
        """C = tanh(W_C h + b) of the first tokens' vectors (B, D)."""
        assert self.pooler is not None
        return torch.tanh(self.pooler(first))


def initialise(module: nn.Module, std: float = 0.02) -> None:
    """N(0, 0.02) for matrices, zeros for biases; norms are left at one and zero."""
    for name, weight in module.named_parameters():
        if weight.dim() >= 2:
            nn.init.normal_(weight, std=std)
        elif name.endswith("bias"):
            nn.init.zeros_(weight)
