"""Layers and their states. Nothing here reads data or files. Public names are imported when first used."""

# ruff: noqa: I001 (names of one module stay on one line)
from __future__ import annotations

from typing import TYPE_CHECKING

from ensue.core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from ensue.nn.adapters import LowRank as LowRank
    from ensue.nn.batch_norm import BatchNorm as BatchNorm
    from ensue.nn.blocks import Block as Block, PostNormBlock as PostNormBlock, PreNormBlock as PreNormBlock
    from ensue.nn.blocks import SandwichNormBlock as SandwichNormBlock
    from ensue.nn.characters import CharacterWords as CharacterWords, Highway as Highway
    from ensue.nn.convolution import CausalConvolution as CausalConvolution, Convolution as Convolution
    from ensue.nn.convolution import ConvolutionState as ConvolutionState, FullConvolution as FullConvolution
    from ensue.nn.cross_attention import CrossAttention as CrossAttention, Memory as Memory
    from ensue.nn.dropout import Dropout as Dropout, LockedDropout as LockedDropout, WordDropout as WordDropout
    from ensue.nn.experts import Experts as Experts
    from ensue.nn.feed_forward import FeedForward as FeedForward
    from ensue.nn.gated_feed_forward import GatedFeedForward as GatedFeedForward
    from ensue.nn.intra_attention import IntraAttention as IntraAttention
    from ensue.nn.key_value_cache import KeyValueCache as KeyValueCache
    from ensue.nn.layout import Layout as Layout
    from ensue.nn.mixers.full import SelfAttention as SelfAttention
    from ensue.nn.mixers.local import LocalAttention as LocalAttention
    from ensue.nn.mixers.mean import RunningMean as RunningMean
    from ensue.nn.mixers.mixer import MIXERS as MIXERS, Mixed as Mixed, Mixer as Mixer, MixerConfig as MixerConfig
    from ensue.nn.positions import LearnedPositions as LearnedPositions, LinearBias as LinearBias
    from ensue.nn.positions import NoPositions as NoPositions, Rotary as Rotary, ScaledInput as ScaledInput
    from ensue.nn.positions import SinusoidalPositions as SinusoidalPositions
    from ensue.nn.protocol import Output as Output, Traits as Traits
    from ensue.nn.recent import RecentTokens as RecentTokens
    from ensue.nn.recurrent import Cell as Cell, ChoGRUCell as ChoGRUCell, GRUCell as GRUCell, LSTMCell as LSTMCell
    from ensue.nn.recurrent import ProjectedLSTMCell as ProjectedLSTMCell, Recurrent as Recurrent
    from ensue.nn.recurrent import RecurrentState as RecurrentState, ReluCell as ReluCell, SigmoidCell as SigmoidCell
    from ensue.nn.recurrent import TanhCell as TanhCell
    from ensue.nn.scores import Additive as Additive, Content as Content, Dot as Dot, General as General
    from ensue.nn.scores import Location as Location, ScaledDot as ScaledDot, Score as Score
    from ensue.nn.source import Source as Source
    from ensue.nn.stacks import Bidirectional as Bidirectional, BidirectionalState as BidirectionalState, Stack as Stack
    from ensue.nn.stacks import StackState as StackState
    from ensue.nn.state import NoState as NoState, State as State
    from ensue.nn.trunk import Clock as Clock, Trunk as Trunk, TrunkState as TrunkState
    from ensue.nn.trunk_config import TrunkConfig as TrunkConfig, build_trunk as build_trunk

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
