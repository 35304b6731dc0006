"""EncoderDecoder: a trunk with cross-attention that writes after what an encoder has read.

    h = Encoder(x)                          (N, S, D), of whatever x is: tokens, a picture, frames
    g_0 = E_y y + PE
    g_l = Block(g_{l-1}, h)                 causal self-attention, attention to h, a feed-forward network
    P(y_{t+1}) = softmax(g_L W)

A subclass builds the parts (``embed``, ``positions``, ``decoder``, ``norm``, ``head``, ``dropout``) and says how it
encodes. The state is the decoder's trunk state, and the keys and values of the source, computed once a sentence.

Legend: N sentences, S source time, B rows, T target time, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, cast

import torch
from torch import Tensor, nn

from ensue.kernels import short_attention
from ensue.kernels.matmul import linear
from ensue.kernels.packing import Packing, Rows
from ensue.kernels.threads import ROWS
from ensue.models.conditional import ConditionalModel
from ensue.models.model import answer
from ensue.nn.cross_attention import CrossAttention, Memory
from ensue.nn.decode_compiler import DecodeSteps
from ensue.nn.dropout import Dropout
from ensue.nn.layout import Layout
from ensue.nn.mixers.full import SelfAttention
from ensue.nn.protocol import Output, Want
from ensue.nn.source import Source
from ensue.nn.state import State
from ensue.nn.trunk import Trunk, TrunkState


class Encoding(NamedTuple):
    """What an encoder makes of a source."""

    h: Tensor
    """(N, S, D), or packed (M, D)."""
    lengths: Tensor | None = None
    """(N,), the real positions of each; None: all of them."""
    weights: tuple[Tensor, ...] | None = None
    """(N, H, S, S) of every layer, where they were asked for."""
    grid: tuple[int, int] | None = None
    """Rows and columns of a picture's positions; None of a sequence."""


@dataclass(frozen=True)
class EncoderDecoderState(State):
    """The decoder's state, and the keys and values of the source."""

    trunk: TrunkState
    source: Source


class EncoderDecoder(ConditionalModel):
    """softmax(g_L W), g_l = Block(g_{l-1}, h), h = Encoder(x)."""

    packs: ClassVar[bool] = False
    """Whether ``encode`` takes packed rows; said in the class that defines it."""
    embed: nn.Embedding
    positions: nn.Module
    decoder: Trunk
    norm: nn.Module
    dropout: Dropout

    def __init__(self) -> None:
        super().__init__()
        self._steps = DecodeSteps()

    def encode(self, source: Tensor, layout: Layout | None = None, weights: bool = False) -> Encoding:
        """h (N, S, D) of a source (N, S, …), or packed (M, …)."""
        raise TypeError(f"{type(self).__name__} does not say how it encodes")

    @property
    def cross(self) -> list[CrossAttention]:
        """The cross-attention of every decoder block."""
        return [cast(CrossAttention, block.cross) for block in self.decoder.blocks]

    def start(self, source: Tensor, lengths: Tensor | None = None) -> EncoderDecoderState:
        """Encode the source, and compute every decoder block's keys and values of it."""
        found = self.encode(source, Layout(lengths))
        parts = tuple(part for cross in self.cross for part in cross.memory(found.h))
        return EncoderDecoderState(self.decoder.start(len(found.h)), Source.of(parts, found.lengths, found.h.shape[1]))

    def forward(
        self,
        tokens: Tensor,
        state: State | None = None,
        lengths: Tensor | None = None,
        want: Sequence[Want] = ("logits",),
    ) -> Output:
        """Read target tokens (B, T); attention is that of each decoder block to the source."""
        assert isinstance(state, EncoderDecoderState)
        step = self._step(tokens, state, lengths, want)
        if step is not None:
            return step
        source, clock, T = state.source.even(), state.trunk.clock, tokens.shape[1]
        g = self.dropout(self.positions(self.embed(tokens), clock.positions(T), clock.used + T))
        memory = Memory(tuple(zip(source.parts[::2], source.parts[1::2])), source)
        looks, ends = "attention" in want, "end" in want
        h, trunk, seen, _ = self.decoder(g, state.trunk, Layout(lengths), memory, weights=looks, keep_state=not ends)
        after = None if trunk is None else EncoderDecoderState(trunk, source)
        return answer(self.head, self.norm(h), after, lengths, want, seen)

    def _step(
        self, tokens: Tensor, state: EncoderDecoderState, lengths: Tensor | None, want: Sequence[Want]
    ) -> Output | None:
        """Read one token of each row by a decode program; None where that cannot be done."""
        lined_up = len(tokens) == state.trunk.count == state.source.count
        if not lined_up or type(self).forward is not EncoderDecoder.forward:
            return None
        runner = self._steps.runner(self, self.decoder, tokens, lengths, want)
        if runner is None:
            return None
        positions = state.trunk.clock.positions(1)
        g = self.positions(self.embed(tokens), positions, state.trunk.clock.used + 1)
        logits, trunk = self._steps.step(runner, self.decoder, g, positions, state.trunk, state.source)
        return Output(logits, None, None, EncoderDecoderState(trunk, state.source))

    def pair_loss(
        self,
        source: Tensor,
        source_lengths: Tensor,
        tokens: Tensor,
        targets: Tensor,
        lengths: Tensor,
        smoothing: float = 0.0,
    ) -> Tensor:
        """The mean of −log P over all real targets (N, T) of sources (N, S).

        Short sentences are read packed, without padding (see ``ensue.kernels.packing``).
        """
        times = [source.shape[1], tokens.shape[1]]
        if not (self._packs(times) and len(tokens)):
            return super().pair_loss(source, source_lengths, tokens, targets, lengths, smoothing)
        x, y = (
            Packing.of(own, len(own), time, ROWS, spared=True) for own, time in zip((source_lengths, lengths), times)
        )
        h = self.encode(x.pack(source), Layout.packed(source_lengths.clamp(min=1), x)).h
        g = self.dropout(self.positions(self.embed(y.pack(tokens)), y.positions, times[1]))
        memory = Memory(tuple((linear(cross.remember, h),) for cross in self.cross), Rows.of(y, x, source_lengths))
        hidden = self.norm(self.decoder(g, None, Layout.packed(lengths, y), memory).h)
        wanted, count = y.pack(targets), int(lengths.clamp(ROWS, times[1]).sum())
        hidden, wanted = hidden[:count], wanted[:count]
        if int(lengths.min()) < ROWS:  # a shorter row is filled up with tokens that do not count
            real = y.pack(torch.arange(times[1]) < lengths[:, None])[:count]
            hidden, wanted = hidden[real], wanted[real]
        return self.mean_loss(hidden, wanted, smoothing)

    def _packs(self, times: list[int]) -> bool:
        """Whether kernels can read sentences of these lengths packed; nothing is overridden, hooked or compiled."""
        own = all(getattr(type(self), name) is getattr(EncoderDecoder, name) for name in ("start", "forward"))
        encoder = next(cls for cls in type(self).__mro__ if "encode" in vars(cls))
        parts = [part for part in self.modules() if isinstance(part, SelfAttention | CrossAttention)]
        watched = self._forward_hooks or self._forward_pre_hooks or self._compiled_call_impl
        able = short_attention.able(self.config.heads, self.config.hidden, times, self.embed.weight)
        return (
            able
            and own
            and bool(vars(encoder).get("packs"))
            and not watched
            and not any(part.dropout for part in parts)
        )
