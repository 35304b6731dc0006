"""Layers and their states. Nothing here reads data or files. Public names are imported when first used."""

# ruff: noqa: I001 (names of one module stay on one line)
from __future__ import annotations

from typing import TYPE_CHECKING

from ensue.core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from ensue.nn.adapters import LowRank as LowRank
    from ensue.nn.attention import (
        CrossAttention as CrossAttention,
        FullAttention as FullAttention,
        SelfAttention as SelfAttention,
    )
    from ensue.nn.batch_norm import BatchNorm as BatchNorm
    from ensue.nn.characters import CharacterWords as CharacterWords, Highway as Highway
    from ensue.nn.convolution import (
        CausalConvolution as CausalConvolution,
        Convolution as Convolution,
        ConvolutionState as ConvolutionState,
        FullConvolution as FullConvolution,
    )
    from ensue.nn.dropout import Dropout as Dropout, LockedDropout as LockedDropout, WordDropout as WordDropout
    from ensue.nn.experts import Experts as Experts
    from ensue.nn.feed_forward import FeedForward as FeedForward
    from ensue.nn.intra_attention import IntraAttention as IntraAttention
    from ensue.nn.positions import (
        LearnedPositions as LearnedPositions,
        NoPositions as NoPositions,
        Rotary as Rotary,
        SinusoidalPositions as SinusoidalPositions,
    )
    from ensue.nn.protocol import Output as Output, Traits as Traits
    from ensue.nn.recent import RecentTokens as RecentTokens
    from ensue.nn.recurrent import (
        Cell as Cell,
        ChoGRUCell as ChoGRUCell,
        GRUCell as GRUCell,
        LSTMCell as LSTMCell,
        ProjectedLSTMCell as ProjectedLSTMCell,
        Recurrent as Recurrent,
        RecurrentState as RecurrentState,
        ReluCell as ReluCell,
        SigmoidCell as SigmoidCell,
        TanhCell as TanhCell,
    )
    from ensue.nn.scores import (
        Additive as Additive,
        Content as Content,
        Dot as Dot,
        General as General,
        Location as Location,
        ScaledDot as ScaledDot,
        Score as Score,
    )
    from ensue.nn.source import Source as Source
    from ensue.nn.stacks import (
        Bidirectional as Bidirectional,
        BidirectionalState as BidirectionalState,
        Stack as Stack,
        StackState as StackState,
    )
    from ensue.nn.state import NoState as NoState, State as State

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
