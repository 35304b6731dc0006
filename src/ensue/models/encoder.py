"""An encoder of attention in both directions: the body of BERT and its kin (Devlin et al., 2019).

    h_0 = LN(E_x + E_s + E_p)                token, segment (first or second text) and position
    h_l = Block(h_{l-1})                     l = 1 … L; full self-attention, then a two-layer network, post-norm
    T_i = h_L,i,   C = tanh(W_C h_L,1 + b)   a vector for each token, and one for the whole: the pooled first token

Legend: B rows, T tokens, K places that are asked for, D width, H heads, L layers, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ensue.core.errors import InputError
from ensue.core.settings import check, check_below_one, check_positive
from ensue.kernels.autograd_guards import plain
from ensue.kernels.packing import Packing
from ensue.nn.attention import FullAttention
from ensue.nn.blocks import EncoderBlock
from ensue.nn.dropout import Dropout
from ensue.nn.feed_forward import ACTIVATIONS, FeedForward
from ensue.nn.positions import LearnedPositions


@dataclass(frozen=True, kw_only=True, slots=True)
class EncoderConfig:
    """Settings of an encoder."""

    vocabulary: int = 0
    """How many different tokens there are; the tokenizer says."""
    layers: int = 4
    """How many blocks stand on each other."""
    heads: int = 4
    """How many heads each attention has; they share the width."""
    hidden: int = 128
    """The width D of the model."""
    inner: int = 0
    """The width inside the two-layer network; 0 means four times hidden."""
    context: int = 128
    """How many tokens the model can read, marks included."""
    segments: int = 2
    """How many kinds of text a token can be of: 2 tells the texts of a pair apart, 0 leaves segments out."""
    pooled: bool = True
    """Whether the first token is pooled to a vector for the whole."""
    dropout: float = 0.1
    """The share of units that training switches off at random."""
    activation: str = "gelu-erf"
    """What stands between the layers of the two-layer network: gelu-erf (BERT's), gelu (its tanh form) or relu."""
    epsilon: float = 1e-12
    """What a layer norm adds to the variance."""

    def __post_init__(self) -> None:
        check_positive(self, "layers", "heads", "hidden", "context")
        check(self, "heads", self.hidden % self.heads == 0, f"a divisor of hidden = {self.hidden}")
        check(self, "inner", self.inner >= 0, "0 or more")
        check(self, "segments", 0 <= self.segments <= 16, "between 0 and 16")
        check_below_one(self, "dropout")
        check(self, "activation", self.activation in ACTIVATIONS, f"one of {', '.join(ACTIVATIONS)}")
        check(self, "epsilon", 0 < self.epsilon < 1, "between 0 and 1")


@dataclass(frozen=True, slots=True)
class Encoded:
    """What an encoder makes of rows of tokens."""

    hidden: Tensor
    """(B, T, D), or (B, K, D) at the places that were asked for: T_i."""
    attention: tuple[Tensor, ...] | None = None
    """(B, H, T, T) of every layer, where it was asked for; in the last only from the places asked for."""
    layers: tuple[Tensor, ...] | None = None
    """h_0 … h_L, where they were asked for."""


class Encoder(nn.Module):
    """h_l = Block(h_{l-1}), h_0 = LN(E_x + E_s + E_p)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        D, p = config.hidden, config.dropout
        self.embed = nn.Embedding(config.vocabulary, D)
        self.positions = LearnedPositions(config.context, D)
        self.segments = nn.Embedding(config.segments, D) if config.segments else None
        self.norm = nn.LayerNorm(D, eps=config.epsilon)
        self.blocks = nn.ModuleList(
            EncoderBlock(
                FullAttention(D, config.heads, p),
                FeedForward(D, config.inner or 4 * D, config.activation),
                D,
                p,
                config.epsilon,
            )
            for _ in range(config.layers)
        )
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
        places: Tensor | None = None,
        *,
        weights: bool = False,
        layers: bool = False,
    ) -> Encoded:
        """Read tokens (B, T) of segments (B, T); without ``segments`` all are of the first.

        Only ``places`` (B, K) of the last block are computed where they are given.
        """
        self._check_fits(tokens.shape[1])
        if self._may_look(tokens):
            if not (weights or layers or self.training or torch.is_grad_enabled()):
                return Encoded(self._packed(tokens, segments, lengths, places))
            if lengths is not None and not bool((lengths < tokens.shape[1]).any()):
                lengths = None  # nothing is padded, so no mask is needed
        x = self._embedded(tokens, segments, torch.arange(tokens.shape[1], device=tokens.device)[None])
        held, seen = [x], []
        last = len(self.blocks) - 1
        for number, block in enumerate(self.blocks):
            if number == last and places is not None:
                assert isinstance(block, EncoderBlock)
                x, looked = block.at(x, places, lengths, weights)
            else:
                x, _, looked = block(x, None, lengths, weights)
            held.append(x)
            seen.append(looked)
        return Encoded(x, tuple(seen) if weights else None, tuple(held) if layers else None)

    def _may_look(self, tokens: Tensor) -> bool:
        """Whether lengths may decide what is computed: on a CPU, where it is cheap, if nothing is traced."""
        traced = torch._C._get_tracing_state() is not None
        return tokens.device.type == "cpu" and not traced and plain(self.embed.weight)

    def _packed(self, tokens: Tensor, segments: Tensor | None, lengths: Tensor | None, places: Tensor | None) -> Tensor:
        """The last block's output, (B, T, D) or (B, K, D), of rows without their padding."""
        packing = Packing.of(lengths, *tokens.shape)
        kinds = None if segments is None else packing.pack(segments)
        x = self._embedded(packing.pack(tokens), kinds, packing.positions)
        for block in self.blocks[: -1 if places is not None else None]:
            x, _, _ = block(x, None, packing)
        if places is None:
            return packing.unpack(x)
        last = self.blocks[-1]
        assert isinstance(last, EncoderBlock)
        return packing.restore(last.at(x, places, packing)[0])

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
