"""Settings that every model with a trunk shares, and the trunk that they describe."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import ClassVar

import torch
from torch import nn

from ensue.core.errors import InputError
from ensue.core.settings import Need, check, check_below_one, check_positive
from ensue.nn.blocks import Block, Norm, PostNormBlock, PreNormBlock, SandwichNormBlock
from ensue.nn.cross_attention import CrossAttention
from ensue.nn.experts import GATES as EXPERT_GATES
from ensue.nn.experts import Experts
from ensue.nn.feed_forward import ACTIVATIONS, FeedForward
from ensue.nn.gated_feed_forward import GATES, GatedFeedForward
from ensue.nn.mixers.functional import FunctionalAttention
from ensue.nn.mixers.mixer import Mixer, MixerConfig, build_mixer, check_mixer, parse_heads, parse_pattern, parse_turns
from ensue.nn.norms import RMSNorm
from ensue.nn.planning import without_storage
from ensue.nn.positions import POSITIONS, LinearBias, parse_scaling
from ensue.nn.reversible import ReversibleBlock
from ensue.nn.trunk import Trunk, block_of

NORMS: dict[str, tuple[type[Block], type[nn.Module]]] = {
    "pre": (PreNormBlock, nn.LayerNorm),
    "post": (PostNormBlock, nn.LayerNorm),
    "rms": (PreNormBlock, RMSNorm),
    "post-rms": (PostNormBlock, RMSNorm),
    "sandwich-rms": (SandwichNormBlock, RMSNorm),
    "reversible": (ReversibleBlock, nn.LayerNorm),
    "reversible-rms": (ReversibleBlock, RMSNorm),
}
"""Where norms stand, and which they are."""
FEEDS = (*ACTIVATIONS, *GATES)
"""Feed-forward networks: two layers with an activation, or a gate."""


@dataclass(frozen=True, kw_only=True)
class TrunkConfig:
    """Settings of a trunk. Without ``__slots__``, so that a model's settings can also inherit from others."""

    needs: ClassVar[dict[str, Need]] = dict.fromkeys(("rope_base", "rope_scaling"), ("positions", ("rotary",)))
    directions: ClassVar[tuple[str, ...]] = ("causal",)
    """The directions in which the model's mixers have to mix."""
    layers: int = 4
    """Number of blocks."""
    heads: int = 4
    """Number of attention heads; together they are as wide as the model, unless head_width is set."""
    kv_heads: int = 0
    """Number of key–value heads, shared by groups of query heads; 0 means as many as heads."""
    head_width: int = 0
    """Width of an attention head; 0 means hidden / heads."""
    hidden: int = 128
    """Width D of the model."""
    inner: int = 0
    """Inner width of the feed-forward network; 0 means 4·hidden, or two thirds of that with a gate."""
    dropout: float = 0.0
    """Dropout probability."""
    attention: str = "full"
    """What mixes positions: full, local, linear … (`ensue systems attention` lists them); options after colons, as
    in local:span=64. Several, separated by commas, take turns in the layers: local:span=64*5,full is five local layers,
    then a full one. Several with + share the heads of a layer: full+local:span=64 is one half each.
    """
    feed: str = "gelu"
    """Feed-forward network: gelu, gelu-erf or relu (two layers), swiglu or geglu (with a gate)."""
    norm: str = "pre"
    """Norm: pre or post (layer norm before or after each part; post needs a warm-up), rms or post-rms (RMSNorm),
    sandwich-rms (RMSNorm before and after each part), reversible or reversible-rms (before each part, with two streams:
    training's memory does not grow with the number of layers).
    """
    rope_base: float = 10000.0
    """Base of rotary positions."""
    rope_scaling: str = "none"
    """How rotary positions are stretched to longer texts: none, linear:factor=4, llama3:factor=8:original=8192 or
    yarn:factor=4:original=32768."""
    bias: bool = True
    """Whether linear layers have a bias."""
    qkv_bias: bool = False
    """Whether the projections to queries, keys and values have a bias even if the other layers have none."""
    qk_norm: bool = False
    """Whether queries and keys have a norm of their own, head by head."""

    def check_trunk(self, rotary: bool = False) -> None:
        """Check these settings, and ``positions`` if the model has it; rotary ones need heads of an even width."""
        check_positive(self, "layers", "heads", "hidden")
        check(self, "head_width", self.head_width >= 0, "0 or more")
        divides = self.head_width or self.hidden % self.heads == 0
        check(self, "heads", bool(divides), f"a divisor of hidden = {self.hidden}")
        shared = self.kv_heads >= 0 and self.heads % (self.kv_heads or self.heads) == 0
        check(self, "kv_heads", shared, f"0, or a divisor of heads = {self.heads}")
        check(self, "inner", self.inner >= 0, "0 or more")
        check_below_one(self, "dropout")
        for one in dict.fromkeys(one for layer in parse_turns(self.attention) for one in parse_heads(layer)):
            check_mixer(one, self.directions, getattr(self, "context", 0))
        check(self, "feed", self.feed_kind in FEEDS, f"one of {', '.join(FEEDS)}")
        check(self, "norm", self.norm in NORMS, f"one of {', '.join(NORMS)}")
        parse_scaling(self.rope_scaling)
        check(self, "rope_base", 1 < self.rope_base < inf, "more than 1, and finite")
        positions = getattr(self, "positions", "rotary" if rotary else "none")
        check(self, "positions", positions in POSITIONS, f"one of {', '.join(POSITIONS)}")
        even = positions != "rotary" or (self.head_width or self.hidden // self.heads) % 2 == 0
        check(self, "heads", even, "such that the width of a head is even, for rotary positions")
        self._check_mixers(positions)

    def _check_mixers(self, positions: str) -> None:
        """Build every mixer without storage: only a constructor knows all that its options can be."""
        for direction in self.directions:
            # errors of sizes, or of a mixer that needs storage, are those of the model's constructor
            with suppress(RuntimeError, OverflowError, TypeError), torch.random.fork_rng([]), without_storage():
                mixers = mixer_config(
                    self,
                    causal=direction == "causal",
                    positions=positions,
                    context=getattr(self, "context", 0),
                    attention_cap=getattr(self, "attention_cap", 0.0),
                )
                for one in dict.fromkeys(parse_turns(self.attention)):
                    mixer_of(one, positions, mixers)

    @property
    def feed_kind(self) -> str:
        """Which feed-forward network: ``feed``, or where that is empty two layers with the model's ``activation``."""
        return self.feed or str(getattr(self, "activation", ""))

    @property
    def feed_width(self) -> int:
        """I, the inner width of the feed-forward network."""
        gated = -(-8 * self.hidden // 48) * 16  # two thirds of 4 D, in steps of 16
        return self.inner or (gated if self.feed_kind in GATES else 4 * self.hidden)


def build_norm(config: TrunkConfig, epsilon: float = 1e-5, width: int = 0) -> Norm:
    """What makes the model's norms, of the model's width unless another is given."""
    return partial(NORMS[config.norm][1], width or config.hidden, eps=epsilon)


def last_norm(config: TrunkConfig, epsilon: float = 1e-5) -> nn.Module:
    """The norm after the last block, which a trunk needs that does not normalise the residual path."""
    return nn.Identity() if NORMS[config.norm][0] is PostNormBlock else build_norm(config, epsilon)()


def build_feed(config: TrunkConfig, dropout: float = 0.0) -> FeedForward | GatedFeedForward:
    """A block's feed-forward network."""
    network = GatedFeedForward if config.feed_kind in GATES else FeedForward
    return network(config.hidden, config.feed_width, config.feed_kind, config.bias, dropout)


def build_experts(config: TrunkConfig, experts: int, active: int, gate: str, dropout: float = 0.0) -> nn.Module:
    """A mixture of feed-forward networks, or one where there is one expert."""
    if experts == 1:
        return build_feed(config, dropout)
    many = [build_feed(config, dropout) for _ in range(experts)]
    return Experts(EXPERT_GATES[gate](config.hidden, experts), many, active)


def attention_of_blocks(config: TrunkConfig, groups: int = 0) -> list[str]:
    """The attention of each block, where layers share ``groups`` blocks; 0 means as many as layers.

    >>> attention_of_blocks(TrunkConfig(attention="local,full", layers=4))
    ['local', 'full', 'local', 'full']
    >>> attention_of_blocks(TrunkConfig(attention="local*2,full*2", layers=4), groups=2)
    ['local', 'full']
    """
    kinds, groups = parse_pattern(config.attention, config.layers), groups or config.layers
    blocks: dict[int, str] = {}
    for layer, kind in enumerate(kinds):
        shared = blocks.setdefault(block_of(layer, config.layers, groups), kind)
        if shared != kind:
            what = f"groups = {groups}: layers with attention {shared} and {kind} cannot share a block"
            raise InputError(what, hint="use one attention, more groups, or groups=0")
    return list(blocks.values())


def mixer_config(
    config: TrunkConfig,
    *,
    causal: bool,
    positions: str = "none",
    context: int = 0,
    attention_dropout: float = 0.0,
    attention_cap: float = 0.0,
    epsilon: float = 1e-5,
) -> MixerConfig:
    """What settings tell every mixer."""
    norm = partial(NORMS[config.norm][1], eps=epsilon)
    return MixerConfig(
        width=config.hidden,
        heads=config.heads,
        kv_heads=config.kv_heads,
        head_width=config.head_width,
        causal=causal,
        context=context,
        dropout=attention_dropout,
        rope_base=config.rope_base if positions == "rotary" else 0.0,
        rope_scaling=config.rope_scaling,
        bias=config.bias,
        qkv_bias=config.qkv_bias,
        norm=norm,
        qk_norm=norm if config.qk_norm else None,
        score_cap=attention_cap,
        score_bias=LinearBias(config.heads) if positions == "alibi" else None,
    )


def mixer_of(attention: str, positions: str, mixers: MixerConfig) -> Mixer:
    """The mixer of a block: with functional positions, full attention has them in its keys and values."""
    if positions != "functional":
        return build_mixer(attention, mixers)
    if attention != "full":
        what = f"positions = functional is for attention = full, not {attention}"
        raise InputError(what, hint="use attention=full, or other positions")
    return FunctionalAttention(mixers)


def build_trunk(
    config: TrunkConfig,
    *,
    causal: bool,
    positions: str = "none",
    context: int = 0,
    cross: type[CrossAttention] | None = None,
    attention_dropout: float = 0.0,
    attention_cap: float = 0.0,
    feed_dropout: float = 0.0,
    epsilon: float = 1e-5,
    experts: tuple[int, int, str] = (1, 1, "plain"),
    groups: int = 0,
) -> Trunk:
    """The trunk that settings describe.

    ``positions`` are the model's: mixers apply rotary ones and linear biases. ``cross`` is the cross-attention of a
    decoder. ``experts`` are their number, how many of them a token uses, and the gate. Layers share ``groups`` blocks;
    0 means as many as layers.
    """
    mixers = mixer_config(
        config,
        causal=causal,
        positions=positions,
        context=context,
        attention_dropout=attention_dropout,
        attention_cap=attention_cap,
        epsilon=epsilon,
    )

    def block(attention: str) -> Block:
        mixer = mixer_of(attention, positions, mixers)
        across = None
        if cross is not None:
            across = cross(config.hidden, config.heads, attention_dropout, config.bias, config.head_width)
        feed = build_experts(config, *experts, feed_dropout)
        return NORMS[config.norm][0](mixer, feed, build_norm(config, epsilon), config.dropout, across)

    return Trunk([block(attention) for attention in attention_of_blocks(config, groups)], config.layers)


def initialise(module: nn.Module, layers: int = 0, skip: tuple[str, ...] = ()) -> None:
    """Draw matrices from N(0, 0.02²) and set biases to zero; norms stay as they are, and so do names in ``skip``.

    With ``layers`` L, matrices that write to the residual path are 1/√(2L) of that (GPT-2).
    """
    for name, weight in module.named_parameters():
        if weight.dim() == 2 and not name.startswith(skip):
            residual = layers and name.endswith(("out.weight", "down.weight"))
            nn.init.normal_(weight, std=0.02 / (2 * layers) ** 0.5 if residual else 0.02)
        elif name.endswith("bias"):
            nn.init.zeros_(weight)
