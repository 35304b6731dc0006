"""DeBERTa: a BERT whose attention compares content and distance apart (He et al., 2021).

    h_0 = LN(E_x)                                      tokens alone: positions are in the attention
    h_l = Block(h_{l-1})                               blocks with disentangled attention (``nn.mixers.disentangled``)
    q_0 = h_{L-1} + E_p,   q_m = Block_L(q_{m-1}; h_{L-1})      enhanced mask decoder, m = 1 … M
    P(x_i | x̂) = softmax(E LN(gelu(W q_M,i + b)) + c)  at masked positions i of a corrupted text x̂

What a word means to another depends on how far they are apart, so blocks see distances alone. Which word is missing
may also depend on where: of two nouns the first is more often the subject. So absolute positions E_p enter just before
the softmax: queries q begin as h_{L-1} + E_p, and the last block, whose keys and values are of h_{L-1}, is applied M
times to them. Without a decoder (M = 0), and in other tasks, a text is h_L, as in BERT. There are no pairs.

Versions 2 and 3 have attention=disentangled-shared. Version 2 also has a convolution beside the first block, which is
not here; version 3 trains another objective, ELECTRA's.

Legend: B rows, T tokens, K masked positions of a row, D width, L layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ensue.core.errors import InputError
from ensue.core.settings import check, check_not_negative
from ensue.models.bert import BERT, TRAINING, BERTConfig
from ensue.models.encoder import Encoded
from ensue.models.model import answer
from ensue.nn.blocks import Block
from ensue.nn.layout import Layout
from ensue.nn.mixers.disentangled import DisentangledAttention
from ensue.nn.mixers.mixer import MIXERS, parse_heads, parse_mixer, parse_turns
from ensue.nn.protocol import Output, Wants
from ensue.nn.state import State
from ensue.nn.trunk_config import initialise


@dataclass(frozen=True, kw_only=True, slots=True)
class DeBERTaConfig(BERTConfig):
    """Configuration of DeBERTa."""

    labels_with: ClassVar[str] = "gelu-erf"
    attention: str = "disentangled"
    positions: str = "none"
    decoder: int = 2
    """M, how often the last block is applied to masked positions after their absolute positions were added; 0 means
    that they are not: masked tokens are predicted from h_L."""
    segments: int = 0
    pooled: bool = False
    next_sentence: bool = False
    epsilon: float = 1e-7

    def __post_init__(self) -> None:
        super(DeBERTaConfig, self).__post_init__()  # with slots, super() would look for the class without them
        check_not_negative(self, "decoder")
        check(self, "next_sentence", not self.next_sentence, "false: deberta is not trained on pairs")
        if self.decoder and not self._disentangled:
            what = f"decoder = {self.decoder} works with disentangled attention only, not {self.attention}"
            raise InputError(what, hint="use attention=disentangled or disentangled-shared, or decoder=0")

    @property
    def _disentangled(self) -> bool:
        """Whether every layer's attention can take other queries than what it attends to."""
        mixers = [one for layer in parse_turns(self.attention) for one in parse_heads(layer)]
        classes = (MIXERS.load(parse_mixer(one)[0]) for one in mixers)
        return "+" not in self.attention and all(issubclass(cls, DisentangledAttention) for cls in classes)


class EnhancedMaskDecoder(nn.Module):
    """q_m = Block_L(q_{m-1}; h_{L-1}) from q_0 = h_{L-1} + E_p."""

    def __init__(self, context: int, width: int, times: int) -> None:
        super().__init__()
        self.positions = nn.Embedding(context, width)  # E_p
        self.times = times

    def forward(
        self, block: Block, h: Tensor, index: Tensor, layout: Layout, weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """q_M at ``index`` (B, K), and the attention weights of its last step; h is (B, T, D), or packed rows."""
        at = index if layout.packing is None else index.index_select(0, layout.packing.order)
        streams = h.shape[-1] // self.positions.embedding_dim
        q, seen = layout.pick(h, index) + self.positions(at).repeat(1, 1, streams), None
        for step in range(self.times):
            q, seen = block.at(h, index, layout, weights and step == self.times - 1, q)
        return q, seen


V3 = "disentangled-shared:longest=512:buckets=256"
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"layers": 2, "heads": 2, "hidden": 128, "context": 128},
    "small": {"layers": 4, "heads": 4, "hidden": 256, "context": 128},
    "base": {"layers": 12, "heads": 12, "hidden": 768, "context": 512},
    "large": {"layers": 24, "heads": 16, "hidden": 1024, "context": 512},
    "v3-xsmall": {"layers": 12, "heads": 6, "hidden": 384, "context": 512, "attention": V3},
    "v3-small": {"layers": 6, "heads": 12, "hidden": 768, "context": 512, "attention": V3},
    "v3-base": {"layers": 12, "heads": 12, "hidden": 768, "context": 512, "attention": V3},
    "v3-large": {"layers": 24, "heads": 16, "hidden": 1024, "context": 512, "attention": V3},
}
"""base and large are the paper's, v3-xsmall to v3-large those of version 3. Without heads and decoder they have
138,601,728 and 405,163,008 parameters for 50,265 tokens; 70,682,112, 141,304,320, 183,831,552 and 434,012,160 for
128,100."""
PUBLISHED: dict[str, Any] = {
    "train.lr": 2e-4,
    "train.warmup": 10_000,
    "train.batch": 2048,
    "train.steps": 1_000_000,
    "tokenizer.vocabulary": 50_265,
}
PUBLISHED_V3: dict[str, Any] = {**PUBLISHED, "tokenizer.kind": "unigram", "tokenizer.vocabulary": 128_100}


class DeBERTa(BERT):
    """softmax(E LN(gelu(W q_M,i + b)) + c) at masked positions."""

    Config: ClassVar[type[Any]] = DeBERTaConfig
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {**SIZES["tiny"], **TRAINING["tiny"], "tokenizer.kind": "bpe"},
        **{name: {**SIZES[name], **TRAINING[name], "tokenizer.kind": "bpe"} for name in ("tiny", "small")},
        **{name: {**SIZES[name], **PUBLISHED, "tokenizer.kind": "bpe"} for name in ("base", "large")},
        **{name: {**size, **PUBLISHED_V3} for name, size in SIZES.items() if name.startswith("v3")},
    }

    def __init__(self, config: DeBERTaConfig) -> None:
        super().__init__(config)
        times = config.decoder
        self.decoder = EnhancedMaskDecoder(config.context, config.hidden, times) if times else None
        initialise(self)

    def forward(
        self,
        tokens: Tensor,
        state: State | None = None,
        lengths: Tensor | None = None,
        want: Wants = ("logits",),
        segments: Tensor | None = None,
    ) -> Output:
        """Read tokens (B, T); every position is decoded as if it were masked."""
        if self.decoder is None:
            return super().forward(tokens, state, lengths, want, segments)
        every = torch.arange(tokens.shape[1], device=tokens.device).expand(tokens.shape)
        encoded = self._decoded(tokens, segments, lengths, every, "attention" in want)
        return answer(self.head, encoded.hidden, self.start(len(tokens)), lengths, want, encoded.attention)

    def encode(self, tokens: Tensor, segments: Tensor | None, lengths: Tensor | None, positions: Tensor) -> Encoded:
        """Return q_M, or h_L, at each row's first token and at ``positions`` (B, K), as (B, 1 + K, D)."""
        first = torch.zeros(len(tokens), 1, dtype=torch.long, device=tokens.device)
        return self._decoded(tokens, segments, lengths, torch.cat([first, positions], dim=1))

    def _decoded(
        self, tokens: Tensor, segments: Tensor | None, lengths: Tensor | None, positions: Tensor, weights: bool = False
    ) -> Encoded:
        return self.body(tokens, segments, lengths, positions, weights=weights, last=self.decoder)  # type: ignore[no-any-return]
