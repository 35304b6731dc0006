"""A bidirectional Transformer encoder: the backbone of BERT (Devlin et al., 2019).

    h_0 = LN(E_x + E_s + E_p)                token, segment (first or second text) and position
    h_l = Block(h_{l-1})                     l = 1 … L; self-attention to the whole text, then a feed-forward network
    T_i = h_L,i,   C = tanh(W_C h_L,1 + b)   a vector for each token, and the pooled first token for the whole text

Embeddings can be narrower than the model, h_0 = W_h LN(E_x + E_s + E_p) + b, and layers can share blocks (ALBERT,
Lan et al., 2020).

Legend: B rows, T tokens, K chosen positions, D width, E width of embeddings, H heads, L layers, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from ensue.core.errors import InputError
from ensue.core.settings import check, check_not_negative, check_positive
from ensue.kernels.autograd_guards import plain
from ensue.kernels.packing import Packing
from ensue.nn.dropout import Dropout
from ensue.nn.feed_forward import ACTIVATIONS
from ensue.nn.layout import Layout
from ensue.nn.positions import POSITIONS
from ensue.nn.trunk import LastBlock
from ensue.nn.trunk_config import TrunkConfig, attention_of_blocks, build_norm, build_trunk, initialise, last_norm


@dataclass(frozen=True, kw_only=True, slots=True)
class EncoderConfig(TrunkConfig):
    """Configuration of an encoder."""

    directions: ClassVar[tuple[str, ...]] = ("both",)
    labels_with: ClassVar[str] = ""
    """Activation of the dense layer of a head for whole texts; empty means tanh, or relu without segments."""
    vocabulary: int = 0
    """Vocabulary size; set by the tokenizer."""
    context: int = 128
    """Number of tokens the model can read, special tokens included."""
    embedding: int = 0
    """Width of token, segment and position embeddings, which a linear layer maps to hidden; 0 means hidden, without
    such a layer."""
    groups: int = 0
    """Number of different blocks that layers share: layer i of L, from 0, runs block ⌊i · groups / L⌋; 0 means each
    layer has its own."""
    segments: int = 2
    """Number of segments: 2 tells the texts of a pair apart, 0 leaves segments out."""
    pooled: bool = True
    """Whether the first token is pooled to a vector for the whole text."""
    dropout: float = 0.1
    activation: str = "gelu-erf"
    """Activation of a two-layer feed-forward network: gelu-erf (BERT's), gelu (its tanh form) or relu."""
    feed: str = ""
    """Feed-forward network: empty for two layers with ``activation``; swiglu or geglu for one with a gate."""
    norm: str = "post"
    """Norm: pre or post (layer norm before or after each part), rms or post-rms (RMSNorm)."""
    positions: str = "learned"
    """Position encoding: learned, sinusoidal, rotary, alibi, functional (sinusoids of distances in keys and values, as
    NEZHA has) or none."""
    epsilon: float = 1e-12
    """Number that norms add to the variance."""

    def __post_init__(self) -> None:
        check(self, "activation", self.activation in ACTIVATIONS, f"one of {', '.join(ACTIVATIONS)}")
        self.check_trunk()
        check_positive(self, "context")
        check_not_negative(self, "embedding")
        check(self, "groups", 0 <= self.groups <= self.layers, f"between 0 and layers = {self.layers}")
        attention_of_blocks(self, self.groups)
        check(self, "segments", 0 <= self.segments <= 16, "between 0 and 16")
        check(self, "epsilon", 0 < self.epsilon < 1, "between 0 and 1")


@dataclass(frozen=True, slots=True)
class Encoded:
    """The output of an encoder."""

    hidden: Tensor
    """T_i (B, T, D), or (B, K, D) at chosen positions."""
    attention: tuple[Tensor, ...] | None = None
    """Attention weights (B, H, T, T) of every layer, if asked for; (B, H, K, T) in the last with chosen positions."""
    layers: tuple[Tensor, ...] | None = None
    """h_0 … h_L, if asked for."""


class Encoder(nn.Module):
    """h_l = Block(h_{l-1}), h_0 = LN(E_x + E_s + E_p), or W_h LN(E_x + E_s + E_p) + b.

    With ``embeddings`` it has no embeddings of its own but those of another encoder, and the norm after them.
    """

    def __init__(self, config: EncoderConfig, embeddings: Encoder | None = None) -> None:
        super().__init__()
        self.config = config
        D, E, p = config.hidden, config.embedding or config.hidden, config.dropout
        self.width = D
        if embeddings is None:
            self.embed = nn.Embedding(config.vocabulary, E)
            self.positions = POSITIONS[config.positions](config.context, E)
            self.segments = nn.Embedding(config.segments, E) if config.segments else None
            self.norm = build_norm(config, config.epsilon, E)()
        else:
            self.embed, self.positions = embeddings.embed, embeddings.positions
            self.segments, self.norm = embeddings.segments, embeddings.norm
        self.project = nn.Linear(E, D) if config.embedding else nn.Identity()
        self.blocks = build_trunk(
            config,
            causal=False,
            positions=config.positions,
            context=config.context,
            attention_dropout=p,
            epsilon=config.epsilon,
            groups=config.groups,
        )
        self.last_norm = last_norm(config, config.epsilon)
        self.pooler = nn.Linear(D, D) if config.pooled else None
        self.dropout = Dropout(p)
        initialise(self)

    def forward(
        self,
        tokens: Tensor,
        segments: Tensor | None = None,
        lengths: Tensor | None = None,
        positions: Tensor | None = None,
        *,
        weights: bool = False,
        layers: bool = False,
        last: LastBlock | None = None,
    ) -> Encoded:
        """Read tokens (B, T) of segments (B, T), the first by default; with ``positions`` (B, K) return these only.

        ``last`` may say how the last block computes them, as ``Trunk.forward`` takes it.
        """
        if tokens.shape[1] > self.config.context:
            what = f"{tokens.shape[1]} tokens do not fit into a context of {self.config.context}"
            raise InputError(what, hint="cut the text")
        if self._may_branch(tokens):
            if not (weights or layers or self.training or torch.is_grad_enabled()):
                return Encoded(self._packed(tokens, segments, lengths, positions, last))
            if lengths is not None and not bool((lengths < tokens.shape[1]).any()):
                lengths = None  # nothing is padded, so no mask is needed
        x = self._embedded(tokens, segments, torch.arange(tokens.shape[1], device=tokens.device)[None])
        through = self.blocks(x, None, Layout(lengths), weights=weights, at=positions, last=last, layers=layers)
        return Encoded(self.last_norm(through.h), through.weights, through.layers)

    def _may_branch(self, tokens: Tensor) -> bool:
        """True if lengths may decide what is computed: on a CPU, where reading them is cheap, and not while tracing."""
        traced = torch._C._get_tracing_state() is not None
        return tokens.device.type == "cpu" and not traced and plain(self.embed.weight)

    def _packed(
        self,
        tokens: Tensor,
        segments: Tensor | None,
        lengths: Tensor | None,
        positions: Tensor | None,
        last: LastBlock | None,
    ) -> Tensor:
        """Return the last block's output, (B, T, D) or (B, K, D), computed without padding."""
        packing = Packing.of(lengths, *tokens.shape)
        kinds = None if segments is None else packing.pack(segments)
        x = self._embedded(packing.pack(tokens), kinds, packing.positions)
        h = self.last_norm(self.blocks(x, None, Layout.packed(lengths, packing), at=positions, last=last).h)
        return packing.unpack(h) if positions is None else packing.restore(h)

    def _embedded(self, tokens: Tensor, segments: Tensor | None, positions: Tensor) -> Tensor:
        """Return h_0 (…, D) of tokens, segments and positions (…)."""
        x = self.positions(self.embed(tokens), positions, self.config.context)
        if self.segments is not None:
            single = segments is None or self.config.segments == 1
            x = x + (self.segments.weight[0] if single else self.segments(segments))
        return self.project(self.dropout(self.norm(x)))  # type: ignore[no-any-return]

    def pool(self, first: Tensor) -> Tensor:
        """Return C = tanh(W_C h + b) of the first tokens' vectors (B, D)."""
        assert self.pooler is not None
        return torch.tanh(self.pooler(first))
