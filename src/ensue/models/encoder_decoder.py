"""EncoderDecoder: a decoder trunk with cross-attention to an encoded source.

    h = Encoder(x)                          (N, S, D), of any source x: tokens, an image, frames
    g_0 = E_y y + PE
    g_l = Block(g_{l-1}, h)                 causal self-attention, attention to h, a feed-forward network
    P(y_{t+1}) = softmax(g_L W)

A subclass builds the parts (``embed``, ``positions``, ``decoder``, ``norm``, ``head``, ``dropout``) and implements
``encode``. The state is the decoder's trunk state, and the keys and values of the source, computed once per sentence.

Legend: N sentences, S source time, B rows, T target time, D width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, cast

import torch
from torch import Tensor, nn

from ensue.kernels import short_attention
from ensue.kernels.matmul import linear
from ensue.kernels.packing import AttentionRows, Packing
from ensue.kernels.threads import ROWS
from ensue.models.conditional import ConditionalModel
from ensue.models.model import answer
from ensue.nn.cross_attention import CrossAttention, Memory
from ensue.nn.decode_compiler import DecodeSteps
from ensue.nn.dropout import Dropout
from ensue.nn.layout import Layout
from ensue.nn.mixers.full import SelfAttention
from ensue.nn.protocol import Output, Wants
from ensue.nn.source import Source
from ensue.nn.state import State
from ensue.nn.trunk import Trunk, TrunkState


class Encoding(NamedTuple):
    """An encoded source."""

    h: Tensor
    """(N, S, D), or packed (M, D)."""
    lengths: Tensor | None = None
    """(N,), the number of positions of each without padding; None: all."""
    weights: tuple[Tensor, ...] | None = None
    """Attention weights (N, H, S, S) of every layer, if asked for."""
    grid: tuple[int, int] | None = None
    """Rows and columns of an image's positions; None for a sequence."""


@dataclass(frozen=True)
class EncoderDecoderState(State):
    """The decoder's state, and the keys and values of the source."""

    trunk: TrunkState
    source: Source


class EncoderDecoder(ConditionalModel):
    """softmax(g_L W), g_l = Block(g_{l-1}, h), h = Encoder(x)."""

    packs: ClassVar[bool] = False
    """Whether ``encode`` takes packed rows; set in the class that defines it."""
    embed: nn.Embedding
    positions: nn.Module
    decoder: Trunk
    norm: nn.Module
    dropout: Dropout

    def __init__(self) -> None:
        super().__init__()
        self._steps = DecodeSteps()

    def encode(self, source: Tensor, layout: Layout | None = None, weights: bool = False) -> Encoding:
        """Return h (N, S, D) of a source (N, S, …), or packed (M, …)."""
        raise TypeError(f"{type(self).__name__} does not implement encode")

    @property
    def cross(self) -> list[CrossAttention]:
        """The cross-attention of every decoder block."""
        return [cast(CrossAttention, block.cross) for block in self.decoder.blocks]

    def start(self, source: Tensor, lengths: Tensor | None = None) -> EncoderDecoderState:
        """Encode the source, and compute every decoder block's keys and values of it."""
        h, lengths, *_ = self.encode(source, Layout(lengths))
        parts = tuple(part for cross in self.cross for part in cross.memory(h))
        return EncoderDecoderState(self.decoder.start(len(h)), Source.of(parts, lengths, h.shape[1]))

    def forward(
        self, tokens: Tensor, state: State | None = None, lengths: Tensor | None = None, want: Wants = ("logits",)
    ) -> Output:
        """Read target tokens (B, T); attention is each decoder block's cross-attention."""
        assert isinstance(state, EncoderDecoderState)
        if (step := self._step(tokens, state, lengths, want)) is not None:
            return step
        source, clock, T = state.source.even(), state.trunk.clock, tokens.shape[1]
        g = self.dropout(self.positions(self.embed(tokens), clock.positions(T), clock.used + T))
        memory = Memory(tuple(zip(source.parts[::2], source.parts[1::2])), source)
        h, trunk, weights, _ = self.decoder(
            g, state.trunk, Layout(lengths), memory, weights="attention" in want, keep_state="end" not in want
        )
        after = None if trunk is None else EncoderDecoderState(trunk, source)
        return answer(self.head, self.norm(h), after, lengths, want, weights)

    def _step(self, tokens: Tensor, state: EncoderDecoderState, lengths: Tensor | None, want: Wants) -> Output | None:
        """Read one token of each row by a decode program; return None if that is not possible."""
        aligned = len(tokens) == state.trunk.count == state.source.count
        if not aligned or type(self).forward is not EncoderDecoder.forward:
            return None
        step = self._steps.step(self, self.decoder, tokens, state.trunk, lengths, want, state.source)
        return None if step is None else Output(step[0], None, None, EncoderDecoderState(step[1], state.source))

    def pair_loss(
        self,
        source: Tensor,
        source_lengths: Tensor,
        tokens: Tensor,
        targets: Tensor,
        lengths: Tensor,
        smoothing: float = 0.0,
    ) -> Tensor:
        """Return the training loss; short sentences are packed, without padding (see ``ensue.kernels.packing``)."""
        times = [source.shape[1], tokens.shape[1]]
        if not (self._packs(times) and len(tokens)):
            return super().pair_loss(source, source_lengths, tokens, targets, lengths, smoothing)
        x, y = (
            Packing.of(own, len(own), time, ROWS, spared=True) for own, time in zip((source_lengths, lengths), times)
        )
        h = self.encode(x.pack(source), Layout.packed(source_lengths.clamp(min=1), x)).h
        g = self.dropout(self.positions(self.embed(y.pack(tokens)), y.positions, times[1]))
        memory = Memory(
            tuple((linear(cross.remember, h),) for cross in self.cross), AttentionRows.of(y, x, source_lengths)
        )
        hidden = self.norm(self.decoder(g, None, Layout.packed(lengths, y), memory).h)
        count = int(lengths.clamp(ROWS, times[1]).sum())
        hidden, packed_targets = hidden[:count], y.pack(targets)[:count]
        if int(lengths.min()) < ROWS:  # a shorter row is padded
            real = y.pack(torch.arange(times[1]) < lengths[:, None])[:count]
            hidden, packed_targets = hidden[real], packed_targets[real]
        return self.mean_loss(hidden, packed_targets, smoothing)

    def _packs(self, times: list[int]) -> bool:
        """True if kernels can read packed sentences of these lengths and nothing is overridden, hooked or compiled."""
        encoder = next(cls for cls in type(self).__mro__ if "encode" in vars(cls))
        parts = [part for part in self.modules() if isinstance(part, SelfAttention | CrossAttention)]
        return (
            short_attention.able(self.config.heads, self.config.hidden, times, self.embed.weight)
            and all(getattr(type(self), name) is getattr(EncoderDecoder, name) for name in ("start", "forward"))
            and bool(vars(encoder).get("packs"))
            and not (self._forward_hooks or self._forward_pre_hooks or self._compiled_call_impl)
            and not any(part.dropout for part in parts)
        )
