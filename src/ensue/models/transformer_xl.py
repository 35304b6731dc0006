"""Transformer-XL: a Transformer with a memory of the segments before (Dai et al., 2019).

    h_0 = √D x W_e
    h_l = Block([SG(m_{l-1}); h_{l-1}])        l = 1 … L; attention to the memory and the segment, then a feed-forward
    m_l = the last M of [m_l; h_l]             after each segment; SG: no gradient flows into the memory
    P(u) = softmax(h_L W_eᵀ + b)

Each layer's memory is what the layer below computed for earlier segments, so the model sees up to L · M positions back,
and one more with every segment it reads. Attention is by distance (``ensue.nn.mixers.xl``), as positions of the memory
would clash with those of the segment. Training carries the memory from batch to batch of parallel streams; a batch is
one segment unless ``train.length`` says otherwise.

The result does not depend on how a text is split into chunks: segments begin at every ``segment``-th position. It does
not depend on ``segment`` either where the memory covers all of the text. A model may be evaluated with a longer memory
than it was trained with (``ensue.nn.mixers.xl.use_memory``).

Legend: B rows, T time, D width, L layers, M memory, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from torch import Tensor

from ensue.core.settings import NOTHING, Need, check, check_not_negative, check_positive
from ensue.models.gpt import COSINE
from ensue.models.language import LanguageModel
from ensue.models.model import answer
from ensue.nn.adaptive import PROJECTIONS, AdaptiveSettings, build_embedding, build_head
from ensue.nn.dropout import Dropout
from ensue.nn.layout import Layout
from ensue.nn.mixers.mixer import parse_heads, parse_mixer, parse_turns
from ensue.nn.mixers.xl import BEGINNINGS, WINDOWS, XLAttention
from ensue.nn.protocol import Output, Wants
from ensue.nn.state import State
from ensue.nn.trunk import TrunkState
from ensue.nn.trunk_config import TrunkConfig, build_trunk, initialise, last_norm

MEMORY = "xl"
"""The attention that has a memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TransformerXLConfig(TrunkConfig, AdaptiveSettings):
    """Configuration of Transformer-XL."""

    needs: ClassVar[dict[str, Need]] = dict.fromkeys(("rope_base", "rope_scaling"), NOTHING)  # refused where checked
    vocabulary: int = 0
    """Vocabulary size; set by the tokenizer."""
    segment: int = 64
    """Tokens of a segment: gradients flow within one, and what came before is the memory."""
    memory: int = 64
    """Positions before a segment that each layer sees; 0 means none."""
    window: str = "segment"
    """What a token sees: segment (the memory and its segment so far), or fixed (the last ``memory`` positions, itself
    included, which is the same for every token).
    """
    begin: str = "empty"
    """What the memory holds before the first token: empty, or zeros (vectors that are attended to)."""
    clamp: int = 0
    """The largest distance that positions tell apart; 0 means no limit."""
    attention: str = MEMORY
    """What mixes positions: xl, the attention with a memory. Layers can take turns with others, as in
    xl,local:span=16.
    """
    norm: str = "post"
    feed: str = "relu"
    embed_scale: float = 0.0
    """Factor of embeddings; 0 means √hidden."""
    epsilon: float = 1e-5
    """Added to the variance in norms."""
    tied: bool = True
    """Share weights between the embedding and the output layer."""

    def __post_init__(self) -> None:
        check_positive(self, "segment")
        check_not_negative(self, "memory", "clamp")
        check(self, "window", self.window in WINDOWS, f"one of {', '.join(WINDOWS)}")
        check(self, "begin", self.begin in BEGINNINGS, f"one of {', '.join(BEGINNINGS)}")
        check(self, "memory", self.memory > 0 or self.window != "fixed", "1 or more with window=fixed")
        check_not_negative(self, "embed_scale")
        check(self, "epsilon", 0 < self.epsilon < 1, "between 0 and 1")
        for name, unused in {"rope_base": 10000.0, "rope_scaling": "none"}.items():
            check(self, name, getattr(self, name) == unused, f"{unused}, as no position is rotated here")
        self.check_trunk()
        self.check_adaptive(self.hidden)
        mixers = [parse_mixer(one)[0] for layer in parse_turns(self.attention) for one in parse_heads(layer)]
        check(self, "attention", MEMORY in mixers, f"{MEMORY} in some layer, as no other has a memory")

    def with_memory(self) -> TransformerXLConfig:
        """These settings with segment and memory as options of the attention, except where it has its own."""
        names = ("segment", "memory", "window", "begin", "clamp")
        own = {name: str(getattr(self, name)) for name in names}

        def filled(text: str) -> str:
            name, options = parse_mixer(text)
            values = own | options if name == MEMORY else options
            return ":".join([name, *(f"{key}={value}" for key, value in values.items())])

        layers = ("+".join(map(filled, parse_heads(layer))) for layer in parse_turns(self.attention))
        return replace(self, attention=",".join(layers))


class TransformerXL(LanguageModel):
    """softmax(h_L W_eᵀ + b), h_l = Block([SG(m_{l-1}); h_{l-1}]), h_0 = √D x W_e."""

    Config = TransformerXLConfig
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {**COSINE, "norm": "pre", "train.lr": 3e-3, "train.batch": 8},
        "wt103": {  # Dai et al. (2019), the large model; for ``ensue cost``
            "layers": 18,
            "heads": 16,
            "hidden": 1024,
            "inner": 4096,
            "segment": 384,
            "memory": 384,
            "dropout": 0.2,
            "train.batch": 128,
            "train.lr": 2.5e-4,
            "train.schedule": "cosine",
            "tokenizer.kind": "word",
            "tokenizer.vocabulary": 267735,
        },
    }

    def __init__(self, config: TransformerXLConfig) -> None:
        super().__init__()
        self.config = config
        self.embed = build_embedding(config, config.vocabulary, config.hidden)  # W_e
        self.blocks = build_trunk(
            config.with_memory(), causal=True, attention_dropout=config.dropout, epsilon=config.epsilon
        )
        self.norm = last_norm(config, config.epsilon)
        self.head = build_head(self.embed, config, bias=True)  # W_eᵀ, b
        self.dropout = Dropout(config.dropout)
        initialise(self, config.layers, skip=PROJECTIONS)

    @property
    def window(self) -> int:
        """A training row is one segment."""
        return int(self.config.segment)

    @property
    def warm_up(self) -> int:
        """Tokens after which the memory of every layer is full once."""
        layers = (module for module in self.modules() if isinstance(module, XLAttention))
        return max(layer.memory + layer.segment for layer in layers)

    def start(self, rows: int) -> TrunkState:
        """Return the state before the first token."""
        return self.blocks.start(rows)

    def forward(
        self, tokens: Tensor, state: State | None = None, lengths: Tensor | None = None, want: Wants = ("logits",)
    ) -> Output:
        """Read tokens (B, T)."""
        before = state or self.start(len(tokens))
        assert isinstance(before, TrunkState)
        x = self.dropout(self.embed(tokens) * (self.config.embed_scale or self.config.hidden**0.5))
        h, after, weights, _ = self.blocks(
            x, before, Layout(lengths), weights="attention" in want, keep_state="end" not in want
        )
        return answer(self.logits, self.norm(h), after, lengths, want, weights)
