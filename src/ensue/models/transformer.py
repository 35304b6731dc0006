"""The Transformer: an encoder–decoder of attention alone (Vaswani et al., 2017).

    h_0 = √D · E_x x + PE                   source tokens and positions
    h_l = EncoderBlock(h_{l-1})             self-attention over the whole source, a two-layer network
    g_0 = √D · E_y y + PE
    g_l = DecoderBlock(g_{l-1}, h_L)        masked self-attention, attention to the source, a two-layer network
    P(y_{t+1}) = softmax(g_L W)             W = E_y; with one vocabulary for both languages also E_x

``norm = "post"`` is the paper's order and wants a warm-up of the learning rate; ``"pre"`` normalises what goes into a
block, with one more norm at the end of each side. The state is every decoder block's keys and values, and the keys and
values of the source, made once a sentence.

Legend: N sentences, S source time, B rows, T target time, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ensue.core.settings import check, check_positive
from ensue.kernels import short_attention
from ensue.kernels.decode_program import Memory, Player, Recorder, Tape, single
from ensue.kernels.matmul import linear
from ensue.kernels.packing import Packing, Rows
from ensue.kernels.threads import ROWS
from ensue.models.conditional import ConditionalConfig, ConditionalModel
from ensue.models.model import answer
from ensue.models.source_reader import SourceReader
from ensue.nn.attention import CrossAttention, FullAttention, SelfAttention
from ensue.nn.attention_state import AttentionState, all_longer
from ensue.nn.blocks import BLOCKS, DECODER_BLOCKS
from ensue.nn.dropout import Dropout
from ensue.nn.feed_forward import ACTIVATIONS, FeedForward
from ensue.nn.positions import SinusoidalPositions
from ensue.nn.protocol import Output, Want
from ensue.nn.source import Source
from ensue.nn.state import State


@dataclass(frozen=True, kw_only=True, slots=True)
class TransformerConfig(ConditionalConfig):
    """Settings of the Transformer."""

    tied: str = "auto"
    """Which embeddings are one matrix: all (source, target, output), target (and output), none, or auto: all where the
    languages share a vocabulary, else target."""
    ties: ClassVar[tuple[str, ...]] = ("auto", "all", "target", "none")
    heads: int = 4
    """How many heads each attention has; they share the width."""
    inner: int = 0
    """The width inside the two-layer networks; 0 means 4 D."""
    norm: str = "pre"
    """Where the layer norm stands: pre, or post as in the paper (needs a warm-up)."""
    activation: str = "relu"
    """f of the two-layer networks: relu or gelu."""

    def __post_init__(self) -> None:
        super(TransformerConfig, self).__post_init__()
        check_positive(self, "heads")
        check(self, "inner", self.inner >= 0, "0 or more")
        check(self, "heads", self.hidden % self.heads == 0, f"a divisor of hidden = {self.hidden}")
        check(self, "norm", self.norm in BLOCKS, "pre or post")
        check(self, "activation", self.activation in ACTIVATIONS, " or ".join(ACTIVATIONS))


@dataclass(frozen=True)
class TransformerState(State):
    """Every decoder block's keys and values so far, and those of the source."""

    blocks: tuple[AttentionState, ...]
    source: Source


class AttendingSource(nn.Module):
    """h_L: the parts of a Transformer that read a source, under the names they have there."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.embed_source, self.positions, self.dropout = model.embed_source, model.positions, model.dropout
        self.encoder, self.norm_source = model.encoder, model.norm_source

    def forward(self, source: Tensor, lengths: Tensor | None) -> Tensor:
        """h_L (N, S, D) of a source (N, S)."""
        h, _ = Transformer.encode(self, source, lengths)  # type: ignore[arg-type]
        return h


class Transformer(ConditionalModel):
    """softmax(g_L E_yᵀ), g_l = DecoderBlock(g_{l-1}, h_L), h_l = EncoderBlock(h_{l-1})."""

    Config = TransformerConfig
    places: ClassVar[bool] = True
    """Its encoder numbers places, so it reads no more than ``context`` tokens."""
    expect: ClassVar[dict[str, str]] = {
        "dates": "dates of 40 languages to ISO 8601, all of 1,000 exactly right (one seed), 4 minutes on two cores",
        "multi30k": "Multi30k English to German, test2016: 39.9 BLEU (one seed), 45 minutes on one core",
    }
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {
            "train.label_smoothing": 0.1,
            "train.lr": 2e-3,
            "train.batch_tokens": 2000,
            "train.beta2": 0.98,
        },
        "dates": {
            "layers": 2,
            "hidden": 128,
            "train.lr": 2e-3,
            "train.batch_tokens": 2000,
            "train.beta2": 0.98,
            "train.label_smoothing": 0.0,
            "train.budget": 240.0,
            "tokenizer.kind": "char",
        },
        "multi30k": {  # small data wants a small model and much dropout (Wu et al., 2021)
            "layers": 4,
            "hidden": 128,
            "inner": 256,
            "dropout": 0.25,
            "context": 128,
            "train.epochs": 45.0,
            "train.lr": 4e-3,
            "train.batch_tokens": 4000,
            "train.beta2": 0.98,
            "train.label_smoothing": 0.1,
            "train.average": 5,
            "tokenizer.kind": "bpe",
            "tokenizer.vocabulary": 6000,
        },
        "base": {
            "layers": 6,
            "hidden": 512,
            "heads": 8,
            "norm": "post",
            "train.schedule": "inverse-sqrt",
            "train.warmup": 4000,
            "train.lr": 7e-4,
            "train.beta2": 0.98,
            "train.label_smoothing": 0.1,
            "train.average": 5,
            "train.batch_tokens": 25_000,
            "train.steps": 100_000,
            "tokenizer.vocabulary": 37_000,
        },
        "big": {
            "layers": 6,
            "hidden": 1024,
            "heads": 16,
            "dropout": 0.3,
            "norm": "post",
            "train.schedule": "inverse-sqrt",
            "train.warmup": 4000,
            "train.lr": 5e-4,
            "train.beta2": 0.98,
            "train.label_smoothing": 0.1,
            "train.average": 20,
            "train.batch_tokens": 25_000,
            "train.steps": 300_000,
            "tokenizer.vocabulary": 37_000,
        },
    }

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        D, p, inner = config.hidden, config.dropout, config.inner or 4 * config.hidden
        self.embed = nn.Embedding(config.vocabulary, D)  # E_y
        same = config.tied == "all"
        self.embed_source = self.embed if same else nn.Embedding(config.source_vocabulary, D)  # E_x
        self.positions = SinusoidalPositions(config.context, D)
        self.encoder = nn.ModuleList(
            BLOCKS[config.norm](FullAttention(D, config.heads), FeedForward(D, inner, config.activation), D, p)
            for _ in range(config.layers)
        )
        self.decoder = nn.ModuleList(
            DECODER_BLOCKS[config.norm](
                SelfAttention(D, config.heads),
                CrossAttention(D, config.heads),
                FeedForward(D, inner, config.activation),
                D,
                p,
            )
            for _ in range(config.layers)
        )
        last = config.norm == "pre"
        self.norm_source = nn.LayerNorm(D) if last else nn.Identity()
        self.norm = nn.LayerNorm(D) if last else nn.Identity()
        self.head = nn.Linear(D, config.vocabulary, bias=False)
        if config.tied != "none":
            self.head.weight = self.embed.weight
        self.dropout = Dropout(p)
        self._steps = Recorder()
        self._initialise()

    def _initialise(self) -> None:
        """Embeddings of length about 1 before the √D; Glorot's uniform for all other matrices."""
        for name, weight in self.named_parameters():
            if name.startswith(("embed", "head")):
                nn.init.normal_(weight, std=self.config.hidden**-0.5)
            elif weight.dim() == 2:
                nn.init.xavier_uniform_(weight)
            elif name.endswith("bias"):
                nn.init.zeros_(weight)

    def encode(
        self,
        source: Tensor,
        lengths: Tensor | Rows | None = None,
        weights: bool = False,
        places: Tensor | None = None,
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """h_L of a source (N, S), and on request where each layer looked.

        Packed sentences (M,) come with rows in place of lengths, and the place of each token in its sentence.
        """
        S = lengths.queries if isinstance(lengths, Rows) else source.shape[1]
        if places is None:
            places = torch.arange(S, device=source.device)[None]
        h = self.dropout(self.positions(self.embed_source(source), places, S))
        seen = []
        for block in self.encoder:
            h, _, attention = block(h, None, lengths, weights)
            seen.append(attention)
        return self.norm_source(h), tuple(seen) if weights else ()

    def reader(self) -> SourceReader:
        """The encoder alone, as features of another model."""
        return SourceReader(AttendingSource(self), self.config.hidden)

    def start(self, source: Tensor, lengths: Tensor | None = None) -> TransformerState:
        """Encode the source (N, S), and make every decoder block's keys and values of it."""
        h, _ = self.encode(source, lengths)
        parts = tuple(part for block in self.decoder for part in block.cross.memory(h))  # type: ignore[operator,union-attr]
        blocks = tuple(block.start(len(source)) for block in self.decoder)  # type: ignore[operator]
        return TransformerState(blocks, Source.of(parts, lengths, source.shape[1]))

    def forward(
        self,
        tokens: Tensor,
        state: State | None = None,
        lengths: Tensor | None = None,
        want: Sequence[Want] = ("logits",),
    ) -> Output:
        """Read target tokens (B, T); attention is where each decoder layer looked in the source."""
        assert isinstance(state, TransformerState)
        player = self._player(tokens, state, lengths, want)
        if player is not None:
            return self._step(player, tokens, state)
        source, weights = state.source.even(), "attention" in want
        T, past = tokens.shape[1], state.blocks[0]
        g = self.dropout(self.positions(self.embed(tokens), past.places(T), past.used + T))
        memories = zip(source.parts[::2], source.parts[1::2])
        hidden, after, seen = self._decode(g, state.blocks, lengths, memories, source, weights, "end" in want)
        left = TransformerState(after, source) if after else None
        return answer(self.head, hidden, left, lengths, want, seen if weights else None)

    def _write(self, tape: Tape) -> Tensor:
        """One token of each row, as instructions; answers where g_0 goes."""
        return tape.decoder(self.decoder, self.norm, self.head)

    def _player(
        self, tokens: Tensor, state: TransformerState, lengths: Tensor | None, want: Sequence[Want]
    ) -> Player | None:
        """What reads one token of each row in one call, where it can; see ``ensue.kernels.decode_program``."""
        own = type(self).forward is Transformer.forward
        lined_up = len(tokens) == state.blocks[0].count == state.source.count
        if not own or not lined_up or not single(tokens, lengths, want):
            return None
        return self._steps.ready(self, len(tokens), self._write)

    def _step(self, player: Player, tokens: Tensor, state: TransformerState) -> Output:
        """Read one token of each row by a tape."""
        blocks, source = [block.roomy() for block in state.blocks], state.source
        past = blocks[0]
        g = self.positions(self.embed(tokens), past.places(1), past.used + 1)[:, 0]
        sizes = source.lengths.index_select(0, source.index).long().clamp(0, source.parts[0].shape[2])
        memories = []
        for block, keys, values in zip(blocks, source.parts[::2], source.parts[1::2], strict=True):
            if keys.dtype != torch.float32 or keys.stride() != values.stride() or keys.stride(-1) != 1:
                keys, values = (part.float().contiguous() for part in (keys, values))
            memories += [block.memory, Memory(keys, values, sizes, source.index.long().contiguous())]
        logits = player.play(g, memories)[:, None]
        return Output(logits, None, None, TransformerState(all_longer(blocks), source))

    def _decode(
        self,
        g: Tensor,
        pasts: Iterable[AttentionState | None],
        lengths: Tensor | Rows | None,
        memories: Iterable[tuple[Tensor, ...]],
        source: Source | Rows,
        weights: bool = False,
        ends: bool = False,
    ) -> tuple[Tensor, tuple[Any, ...], tuple[Any, ...]]:
        """g_L of g_0, every block's state after it unless the text ``ends``, and where each looked in the source."""
        after, seen = [], []
        for block, past, memory in zip(self.decoder, pasts, memories, strict=True):
            g, new, attention = block(g, past, lengths, memory, source, weights)
            after += [] if ends else [new]
            seen.append(attention)
            del new
        return self.norm(g), tuple(after), tuple(seen)

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

        Short sentences are read one after the other, without padding (see ``ensue.kernels.packing``).
        """
        config, times = self.config, [source.shape[1], tokens.shape[1]]
        able = short_attention.able(config.heads, config.hidden, times, self.embed.weight)
        if not (able and len(tokens) and self._is_plain()):
            return super().pair_loss(source, source_lengths, tokens, targets, lengths, smoothing)
        sizes = zip((source_lengths, lengths), times)
        x, y = (Packing.of(own, len(own), time, ROWS, spared=True) for own, time in sizes)
        h, _ = self.encode(x.pack(source), Rows.of(x, x, source_lengths.clamp(min=1)), places=x.positions)
        g = self.dropout(self.positions(self.embed(y.pack(tokens)), y.positions, times[1]))
        memories = ((linear(block.cross.remember, h),) for block in self.decoder)  # type: ignore[arg-type,union-attr]
        pasts = repeat(None, len(self.decoder))
        hidden, _, _ = self._decode(g, pasts, Rows.of(y, y, lengths), memories, Rows.of(y, x, source_lengths))
        wanted, places = y.pack(targets), int(lengths.clamp(ROWS, times[1]).sum())
        hidden, wanted = hidden[:places], wanted[:places]
        if int(lengths.min()) < ROWS:  # such a row has places that are nobody's
            real = y.pack(torch.arange(times[1]) < lengths[:, None])[:places]
            hidden, wanted = hidden[real], wanted[real]
        return self.mean_loss(hidden, wanted, smoothing)

    def _is_plain(self) -> bool:
        """Whether nobody has put something of their own in: methods, hooks, a compiler, dropout of attention."""
        own = all(getattr(type(self), name) is getattr(Transformer, name) for name in ("encode", "start", "forward"))
        attentions = (
            part for part in self.modules() if isinstance(part, SelfAttention | FullAttention | CrossAttention)
        )
        watched = self._forward_hooks or self._forward_pre_hooks or self._compiled_call_impl
        return own and not watched and not any(part.dropout for part in attentions)
