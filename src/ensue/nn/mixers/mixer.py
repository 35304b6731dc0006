"""Mixer: the part of a block that mixes positions, and how one is built by name.

    y_t = mix(x_1 … x_t)       causal: position t sees itself and what came before
    y_t = mix(x_1 … x_T)       in both directions: position t sees the whole row

Attention is one, and so is a recurrence, a convolution or a running mean. A mixer takes a state and gives one back, so
that a text can be read in chunks (protocol: the chunk law). One that is written against this interface works in every
model with a trunk and with every verb; ``ensue.mixers`` is the entry point for those of other packages.

Legend: B rows, T tokens, D width, H heads.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from keyword import iskeyword
from typing import Any, ClassVar, NamedTuple

from torch import Tensor, nn

from ensue.core.errors import InputError, unknown_name
from ensue.core.settings import convert
from ensue.core.table import Entry, Table
from ensue.nn.layout import PADDED, Layout
from ensue.nn.state import State


@dataclass(frozen=True, kw_only=True, slots=True)
class MixerConfig:
    """What a model tells every mixer."""

    width: int
    """D, the width of inputs and outputs."""
    heads: int = 1
    """H, the number of heads."""
    kv_heads: int = 0
    """Key–value heads, each shared by H / kv_heads query heads; 0 means H."""
    head_width: int = 0
    """Width of a head; 0 means D / H."""
    causal: bool = True
    """Whether a position sees only itself and earlier ones."""
    context: int = 0
    """The longest row the model is trained on; 0 means unknown."""
    dropout: float = 0.0
    """Dropout probability of attention weights."""
    rope_base: float = 0.0
    """Base of rotary positions; 0 means none."""
    rope_scaling: str = "none"
    """How rotary positions are stretched; see ``ensue.nn.positions.Rotary``."""
    bias: bool = True
    """Whether linear layers have a bias."""
    qkv_bias: bool = False
    """Whether the projections to queries, keys and values have one even without ``bias``."""
    norm: Callable[[int], nn.Module] = nn.LayerNorm
    """Makes the model's norms, given their width."""
    qk_norm: Callable[[int], nn.Module] | None = None
    """Makes the norms of queries and of keys, given the width of a head; None means none."""
    score_cap: float = 0.0
    """c of scores c tanh(s / c); 0 means none."""
    score_bias: nn.Module | None = None
    """Maps positions of queries (…, T) and keys (…, S) to a bias of scores (…, H, T, S); None means no bias."""
    shared: dict[Hashable, Any] = field(default_factory=dict, compare=False, repr=False)
    """Weights, or modules, that several layers share: the first mixer that needs one puts it here, those after it find
    it."""


class Mixed(NamedTuple):
    """What a mixer returns."""

    y: Tensor
    """(B, T, D)."""
    state: Any
    """The ``State`` after these tokens; None where there is none."""
    weights: Tensor | None
    """(B, H, T, S), how much each position takes of each; None unless asked for, or if the mixer has no weights."""


class Mixer(nn.Module):
    """Base of all mixers. A subclass is built as ``cls(config, **options)`` and implements ``forward``."""

    directions: ClassVar[tuple[str, ...]] = ("causal", "both")
    """In which directions it can mix: causal, both."""
    packed: bool = False
    """Whether it takes packed rows (M, D); one that doesn't gets padded ones."""
    bounded: bool = False
    """Whether its state stays as large however long the text is: decoding then costs the same for every token."""
    caps: ClassVar[bool] = False
    """Whether it can cap its scores (``MixerConfig.score_cap``)."""
    lengths: ClassVar[tuple[str, ...]] = ()
    """Options that count positions: none may be more than the context of a model."""
    paper: ClassVar[str] = ""
    """Where it is from, as in "Vaswani et al., 2017"."""
    complexity: ClassVar[str] = ""
    """How time and memory grow with n tokens, as in "O(n²)"."""
    decoding: ClassVar[str] = ""
    """How the time of one more token grows with the n before it, as in "O(n)"."""

    @classmethod
    def check_sizes(cls, name: str, context: int, options: Mapping[str, Any]) -> None:
        """Raise InputError if an option that was given is too large for this context.

        Defaults are not checked: they suit every context.
        """
        for key in cls.lengths:
            if options.get(key, 0) > context:
                what = f"attention = {name}: {key} = {options[key]} is larger than the context, {context}"
                raise InputError(what, hint=f"use at most {context}, or a larger context")

    def start(self, rows: int) -> State | None:
        """The state before the first token; None for a mixer that has none."""
        return None

    def forward(self, x: Tensor, state: Any = None, layout: Layout = PADDED, weights: bool = False) -> Mixed:
        """Mix x (B, T, D) after ``state``."""
        raise TypeError(f"{type(self).__name__} has no forward")

    def after_update(self, updates: int) -> None:
        """Called in training after each update, with their number, and before the first one of a process.

        What a mixer changes by itself (a new draw of random features, running means) it changes here, as a function of
        ``updates`` and its own buffers, so that a resumed training has the same bits.
        """

    def at(
        self, index: Tensor, here: Tensor, x: Tensor, layout: Layout, weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """The outputs at ``index`` (B, K) only, (B, K, D), and the weights there; ``here`` is x at ``index``.

        A mixer may override it to save work.
        """
        y, _, seen = self(x, None, layout, weights)
        if seen is not None:
            seen = seen.gather(2, index[:, None, :, None].expand(-1, seen.shape[1], -1, seen.shape[3]))
        return layout.pick(y, index), seen


MIXERS = Table(
    "attention",
    "ensue.mixers",
    {
        "full": Entry("ensue.nn.mixers.full:SelfAttention", "softmax attention to every position"),
        "local": Entry("ensue.nn.mixers.local:LocalAttention", "softmax attention to the nearest positions"),
        "sparse": Entry("ensue.nn.mixers.sparse:SparseAttention", "softmax attention to near and every √n-th position"),
        "xl": Entry("ensue.nn.mixers.xl:XLAttention", "softmax attention to a segment and a memory of those before it"),
        "relative": Entry(
            "ensue.nn.mixers.relative:RelativeAttention", "softmax attention with a learnt bias for each distance"
        ),
        "bigbird": Entry("ensue.nn.mixers.bigbird:BigBird", "softmax attention to near, global and random blocks"),
        "disentangled": Entry(
            "ensue.nn.mixers.disentangled:DisentangledAttention",
            "softmax attention that compares content and distances apart",
        ),
        "disentangled-shared": Entry(
            "ensue.nn.mixers.disentangled:SharedDisentangledAttention",
            "the same, with distances in buckets that are projected as content is",
        ),
        "linear": Entry("ensue.nn.mixers.linear:LinearAttention", "attention with a feature map instead of a softmax"),
        "performer": Entry("ensue.nn.mixers.performer:Performer", "softmax attention by positive random features"),
        "retention": Entry("ensue.nn.mixers.retention:Retention", "linear attention with a fixed decay for each head"),
        "gated-linear": Entry(
            "ensue.nn.mixers.gated_linear:GatedLinearAttention", "linear attention with decays computed from the input"
        ),
        "mamba": Entry("ensue.nn.mixers.mamba:Mamba", "a state-space model as a recurrence (Mamba-2)"),
        "linformer": Entry("ensue.nn.mixers.linformer:Linformer", "softmax attention to projected keys and values"),
        "sinkhorn": Entry(
            "ensue.nn.mixers.sinkhorn:SinkhornAttention", "attention to one's own block and a sorted one"
        ),
        "reformer": Entry("ensue.nn.mixers.reformer:Reformer", "softmax attention to tokens with the same hash"),
        "routing": Entry("ensue.nn.mixers.routing:Routing", "softmax attention within clusters of k-means"),
        "mean": Entry("ensue.nn.mixers.mean:RunningMean", "the mean of all positions so far"),
    },
)
"""Mixers by name."""
MAX_REPEATS = 1 << 16
"""How often a mixer can be repeated in a pattern."""


def block_size(context: int) -> int:
    """The positions of a block where nobody says: a sixteenth of the context, from 8 to 64.

    So also in a short context an attention in blocks leaves something out.

    >>> block_size(64), block_size(512), block_size(4096), block_size(0)
    (8, 32, 64, 64)
    """
    return min(64, max(8, context // 16)) if context else 64


def parse_heads(text: str) -> list[str]:
    """The mixers that share the heads of a layer.

    >>> parse_heads("bigbird:block=32+local:span=64")
    ['bigbird:block=32', 'local:span=64']
    """
    return re.split(r"\+(?=[^\d+]|$)", text)  # not that of a number, such as 1e+16


def parse_mixer(text: str) -> tuple[str, dict[str, str]]:
    """A mixer as people type it: its name, then its options. Several that share the heads are a name without options.

    >>> parse_mixer("local:span=64")
    ('local', {'span': '64'})
    """
    if len(parse_heads(text)) > 1:
        return text, {}
    name, *rest = text.split(":")
    options = {}
    for one in rest:
        key, equals, value = one.partition("=")
        if not (key and equals) or key in options:
            what = f"{key!r} is given twice" if key in options else f"{one!r} is not option=value"
            raise InputError(f"attention = {text!r}: {what}", hint="write for example local:span=64")
        options[key] = value
    return name, options


def parse_pattern(text: str, layers: int) -> list[str]:
    """The mixer of each layer: names with options, each perhaps repeated, and all of them over and over again.

    >>> parse_pattern("local:span=64*2,full", 5)
    ['local:span=64', 'local:span=64', 'full', 'local:span=64', 'local:span=64']
    """
    pattern = parse_turns(text)
    return [pattern[layer % len(pattern)] for layer in range(layers)]


def parse_turns(text: str) -> list[str]:
    """The mixers that take turns in the layers, once each time."""
    pattern: list[str] = []
    for one in text.split(","):
        mixer, times, count = one.strip().partition("*")
        if times and not (count.isdecimal() and 0 < int(count) <= MAX_REPEATS):
            raise InputError(
                f"attention = {text!r}: {one!r} is not mixer*times", hint="for example local:span=64*5,full"
            )
        pattern += [mixer] * (int(count) if times else 1)
    return pattern


def pattern_text(mixers: Sequence[str]) -> str:
    """The shortest pattern of which ``parse_pattern`` makes the mixers of these layers.

    >>> pattern_text(["local", "local", "full", "local", "local"])
    'local*2,full'
    """
    size = next(n for n in range(1, len(mixers) + 1) if all(one == mixers[at % n] for at, one in enumerate(mixers)))
    runs = [(mixer, len(list(many))) for mixer, many in groupby(mixers[:size])]
    return ",".join(f"{mixer}*{count}" if count > 1 else mixer for mixer, count in runs)


def build_mixer(text: str, config: MixerConfig) -> Mixer:
    """The mixer that ``text`` names, such as ``full``, ``local:span=64`` or ``full+local``."""
    texts = parse_heads(text)
    if len(texts) > 1:
        from ensue.nn.mixers.heads import MixedHeads  # which needs this module

        return MixedHeads(config, texts)
    cls, options = check_mixer(text, ("causal",) if config.causal else ("both",))
    if config.score_cap and not cls.caps:
        raise InputError(f"attention = {text!r} cannot cap its scores", hint="leave out attention_cap")
    mixer: Mixer = cls(config, **options)
    return mixer


def check_mixer(text: str, directions: Sequence[str], context: int = 0) -> tuple[type[Mixer], dict[str, Any]]:
    """The class of a mixer and its options; raise InputError unless it has them and can mix in these directions.

    With the ``context`` of a model, options that are larger than it are refused too.
    """
    name, typed = parse_mixer(text)
    cls: type[Mixer] = MIXERS.load(name)
    if missing := set(directions) - set(cls.directions):
        what = "reads from left to right only" if "both" in missing else "reads in both directions only"
        raise InputError(f"attention = {name!r} {what}, which this model cannot use", hint="use attention=full")
    known = options_of(cls)
    for key in typed:
        if not known:
            raise InputError(f"attention = {name!r} has no options", hint=f"use attention={name}")
        if key not in known:
            raise unknown_name(f"option of attention {name!r}", key, known)
    values = {key: convert(f"attention.{key}", value, known[key]) for key, value in typed.items()}
    if context:
        cls.check_sizes(name, context, values)
    return cls, {f"{key}_" if iskeyword(key) else key: value for key, value in values.items()}


def check_heads(text: str, directions: Sequence[str], context: int = 0) -> None:
    """``check_mixer`` of one mixer, or of each that shares the heads of a layer."""
    for one in parse_heads(text):
        check_mixer(one, directions, context)


def options_of(cls: type[Any]) -> dict[str, Any]:
    """The options of a mixer's constructor and their types: its keyword-only parameters.

    An option whose name is a keyword of Python is a parameter with an underscore at the end.
    """
    parameters = inspect.signature(cls.__init__, eval_str=True).parameters.values()
    return {one.name.rstrip("_"): one.annotation for one in parameters if one.kind is one.KEYWORD_ONLY}
