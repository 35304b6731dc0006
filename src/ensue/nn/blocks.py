"""Transformer blocks: attention and a two-layer network, each with a residual path and a layer norm.

LayerNorm normalises the features of one token (Ba et al., 2016), never along the sequence. A block with FullAttention
is an encoder's, one with SelfAttention a language model's; a decoder's has attention to the source between the two.
"""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor, nn

from ensue.kernels.decode_program import Tape, written
from ensue.kernels.packing import Packing, Rows
from ensue.nn.attention import CrossAttention, FullAttention, SelfAttention
from ensue.nn.attention_state import AttentionState
from ensue.nn.dropout import Dropout
from ensue.nn.experts import Experts
from ensue.nn.feed_forward import FeedForward
from ensue.nn.recompute import Recomputed
from ensue.nn.residual import add_norm
from ensue.nn.source import Source


class Block(Recomputed):
    """The parts that both orders of norm share."""

    def __init__(
        self,
        attention: SelfAttention | FullAttention,
        feed: FeedForward | Experts,
        width: int,
        dropout: float = 0.0,
        epsilon: float = 1e-5,
    ) -> None:
        super().__init__()
        self.norm_attention = nn.LayerNorm(width, eps=epsilon)
        self.attention = attention
        self.norm_feed = nn.LayerNorm(width, eps=epsilon)
        self.feed = feed
        self.dropout = Dropout(dropout)

    def start(self, rows: int) -> AttentionState | None:
        """The attention's empty memory."""
        return self.attention.start(rows)


class PreNormBlock(Block):
    """GPT-2's order: the residual path is never normalised, so depth trains without warm-up.

    x = x + Attention(LN(x));  x = x + FFN(LN(x))
    """

    def forward(
        self,
        x: Tensor,
        state: AttentionState | None = None,
        lengths: Tensor | None = None,
        weights: bool = False,
    ) -> tuple[Tensor, AttentionState | None, Tensor | None]:
        """(B, T, D) → (B, T, D)."""
        y, state, seen = self.attention(self.norm_attention(x), state, lengths, weights)
        x = self.dropout.add(x, y)
        return self.dropout.add(x, self.feed(self.norm_feed(x))), state, seen

    def write(self, tape: Tape, x: Tensor) -> Tensor:
        """The same for one token of each row, as instructions."""
        attention, feed = written(self.attention, self.feed)
        y = attention.write(tape, tape.norm(self.norm_attention, x))
        tape.linear(attention.out, y, onto=x)
        feed.write(tape, tape.norm(self.norm_feed, x), onto=x)
        return x


class PostNormBlock(Block):
    """The order of the Transformer paper and of GPT: it needs a warm-up of the learning rate.

    x = LN(x + Attention(x));  x = LN(x + FFN(x))
    """

    def forward(
        self,
        x: Tensor,
        state: AttentionState | None = None,
        lengths: Tensor | Packing | None = None,
        weights: bool = False,
    ) -> tuple[Tensor, AttentionState | None, Tensor | None]:
        """(B, T, D) → (B, T, D)."""
        y, state, seen = self.attention(x, state, lengths, weights)
        x = add_norm(x, y, self.dropout, self.norm_attention)
        return add_norm(x, self.feed(x), self.dropout, self.norm_feed), state, seen

    def write(self, tape: Tape, x: Tensor) -> Tensor:
        """The same for one token of each row, as instructions."""
        attention, feed = written(self.attention, self.feed)
        tape.linear(attention.out, attention.write(tape, x), onto=x)
        x = tape.norm(self.norm_attention, x)
        feed.write(tape, x, onto=x)
        return tape.norm(self.norm_feed, x)


class EncoderBlock(PostNormBlock):
    """BERT's block: post-norm, and where only some places are asked for, the rest is not computed.

    Every place is still attended to; queries, the residual path and the two-layer network are at ``places`` only. That
    is exact in a last block, whose other outputs nobody reads.
    """

    entries: ClassVar[tuple[str, ...]] = ("at",)
    """What is used from outside, beside ``forward``."""

    def at(
        self, x: Tensor, places: Tensor, lengths: Tensor | Packing | None = None, weights: bool = False
    ) -> tuple[Tensor, Any]:
        """(B, T, D), places (B, K) → (B, K, D), and where they looked; packed rows (M, D) as the packing has them."""
        assert isinstance(self.attention, FullAttention)
        if isinstance(lengths, Packing):
            here = lengths.pick(x, places)
        else:
            here = x.gather(1, places[..., None].expand(-1, -1, x.shape[-1]))
        y, seen = self.attention.at(here, x, lengths, weights)
        here = add_norm(here, y, self.dropout, self.norm_attention)
        return add_norm(here, self.feed(here), self.dropout, self.norm_feed), seen


BLOCKS: dict[str, type[Block]] = {"pre": PreNormBlock, "post": PostNormBlock}


class DecoderBlock(Recomputed):
    """The parts that both orders of norm share: masked self-attention, attention to the source, a two-layer network."""

    def __init__(
        self,
        attention: SelfAttention,
        cross: CrossAttention,
        feed: FeedForward,
        width: int,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.norm_attention = nn.LayerNorm(width)
        self.attention = attention
        self.norm_cross = nn.LayerNorm(width)
        self.cross = cross
        self.norm_feed = nn.LayerNorm(width)
        self.feed = feed
        self.dropout = Dropout(dropout)

    def start(self, rows: int) -> AttentionState:
        """The self-attention's empty memory."""
        return self.attention.start(rows)


class PreNormDecoderBlock(DecoderBlock):
    """x = x + Attention(LN(x));  x = x + Cross(LN(x), source);  x = x + FFN(LN(x))."""

    def forward(
        self,
        x: Tensor,
        state: AttentionState | None,
        lengths: Tensor | Rows | None,
        memory: tuple[Tensor, ...],
        source: Source | Rows,
        weights: bool = False,
    ) -> tuple[Tensor, AttentionState | None, Tensor | None]:
        """(B, T, D) → (B, T, D), and where in the source each token looked; packed rows (M, D) → (M, D)."""
        y, state, _ = self.attention(self.norm_attention(x), state, lengths)
        x = self.dropout.add(x, y)
        y, seen = self.cross(self.norm_cross(x), memory, source, weights)
        x = self.dropout.add(x, y)
        return self.dropout.add(x, self.feed(self.norm_feed(x))), state, seen

    def write(self, tape: Tape, x: Tensor) -> Tensor:
        """The same for one token of each row, as instructions."""
        attention, cross, feed = written(self.attention, self.cross, self.feed)
        tape.linear(attention.out, attention.write(tape, tape.norm(self.norm_attention, x)), onto=x)
        tape.linear(cross.out, cross.write(tape, tape.norm(self.norm_cross, x)), onto=x)
        feed.write(tape, tape.norm(self.norm_feed, x), onto=x)
        return x


class PostNormDecoderBlock(DecoderBlock):
    """x = LN(x + Attention(x));  x = LN(x + Cross(x, source));  x = LN(x + FFN(x))."""

    def forward(
        self,
        x: Tensor,
        state: AttentionState | None,
        lengths: Tensor | Rows | None,
        memory: tuple[Tensor, ...],
        source: Source | Rows,
        weights: bool = False,
    ) -> tuple[Tensor, AttentionState | None, Tensor | None]:
        """(B, T, D) → (B, T, D), and where in the source each token looked; packed rows (M, D) → (M, D)."""
        y, state, _ = self.attention(x, state, lengths)
        x = add_norm(x, y, self.dropout, self.norm_attention)
        y, seen = self.cross(x, memory, source, weights)
        x = add_norm(x, y, self.dropout, self.norm_cross)
        return add_norm(x, self.feed(x), self.dropout, self.norm_feed), state, seen

    def write(self, tape: Tape, x: Tensor) -> Tensor:
        """The same for one token of each row, as instructions."""
        attention, cross, feed = written(self.attention, self.cross, self.feed)
        tape.linear(attention.out, attention.write(tape, x), onto=x)
        x = tape.norm(self.norm_attention, x)
        tape.linear(cross.out, cross.write(tape, x), onto=x)
        x = tape.norm(self.norm_cross, x)
        feed.write(tape, x, onto=x)
        return tape.norm(self.norm_feed, x)


DECODER_BLOCKS: dict[str, type[DecoderBlock]] = {"pre": PreNormDecoderBlock, "post": PostNormDecoderBlock}
