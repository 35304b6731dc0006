"""GPT: a decoder-only Transformer language model (Radford et al., 2018, 2019).

    h_0 = x W_e + W_p                      token and position
    h_l = Block(h_{l-1})                   l = 1 … L; masked self-attention, then a two-layer network
    P(u) = softmax(h_L W_eᵀ)               the embedding again (tied)

``norm = "pre"`` is GPT-2's order (a last layer norm before the output), ``"post"`` is GPT's. The state is every
layer's keys and values. Past its ``context`` the model slides: when the window is full it is read again from its newer
half, so every token is predicted from at least half a window; where in the text that happens depends on the number
of tokens alone, never on how they were cut into chunks.

With ``experts`` above 1 the two-layer network is a mixture of so many (see ``ensue.nn.experts``), of which each token
meets ``experts_active``; training then also makes the mean of the mixtures' balances small.

Legend: B rows, T time, D width, H heads, L layers, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ensue.core.errors import InputError
from ensue.core.settings import check, check_below_one, check_positive
from ensue.kernels.decode_program import Player, Recorder, Tape, single
from ensue.models.language import LanguageModel
from ensue.models.model import answer
from ensue.nn.attention import SelfAttention
from ensue.nn.attention_state import AttentionState, all_longer
from ensue.nn.blocks import BLOCKS
from ensue.nn.dropout import Dropout
from ensue.nn.experts import GATES, Experts, balances
from ensue.nn.feed_forward import FeedForward
from ensue.nn.positions import POSITIONS
from ensue.nn.protocol import Output, Traits, Want
from ensue.nn.state import State


@dataclass(frozen=True, kw_only=True, slots=True)
class GPTConfig:
    """Settings of the GPT language model."""

    vocabulary: int = 0
    """How many different tokens there are; the tokenizer says."""
    layers: int = 4
    """How many blocks stand on each other."""
    heads: int = 4
    """How many heads each attention has; they share the width."""
    hidden: int = 128
    """The width D of the model."""
    context: int = 128
    """How many tokens the model can see at once."""
    dropout: float = 0.0
    """The share of units that training switches off at random."""
    positions: str = "rotary"
    """How a token knows its place: rotary, learned, sinusoidal or none."""
    norm: str = "pre"
    """Where the layer norm stands: pre (GPT-2) or post (GPT, needs a warm-up)."""
    past: str = "slide"
    """What happens past the context: slide, or raise an error."""
    experts: int = 1
    """How many two-layer networks a block has; 1 means the plain one, more a mixture of experts."""
    experts_active: int = 1
    """How many of them a token meets."""
    experts_gate: str = "plain"
    """What chooses them: plain, or noisy (random while it learns)."""
    experts_balance: float = 0.01
    """The weight, in training's loss, of sending as much to each expert."""

    def __post_init__(self) -> None:
        check_positive(self, "layers", "heads", "hidden", "context")
        check(self, "heads", self.hidden % self.heads == 0, f"a divisor of hidden = {self.hidden}")
        check_below_one(self, "dropout")
        check(self, "positions", self.positions in POSITIONS, f"one of {', '.join(POSITIONS)}")
        check(self, "norm", self.norm in BLOCKS, "pre or post")
        check(self, "past", self.past in ("slide", "raise"), "slide or raise")
        check_positive(self, "experts", "experts_active")
        check(self, "experts_active", self.experts_active <= self.experts, f"at most experts = {self.experts}")
        check(self, "experts_gate", self.experts_gate in GATES, f"one of {', '.join(GATES)}")
        check(self, "experts_balance", 0 <= self.experts_balance < float("inf"), "0 or more")
        even = self.positions != "rotary" or self.hidden // self.heads % 2 == 0
        check(self, "heads", even, "such that hidden / heads is even, for rotary positions")


def feed_forward(config: GPTConfig) -> FeedForward | Experts:
    """The two-layer network of a block, or a mixture of them."""
    D = config.hidden
    if config.experts == 1:
        return FeedForward(D, 4 * D)
    many = [FeedForward(D, 4 * D) for _ in range(config.experts)]
    return Experts(GATES[config.experts_gate](D, config.experts), many, config.experts_active)


@dataclass(frozen=True)
class GPTState(State):
    """The tokens of the window so far, and every block's keys and values of them."""

    tokens: Tensor  # (B, C), padded on the right to the longest row
    blocks: tuple[AttentionState, ...]

    @classmethod
    def joined(cls, states: Sequence[GPTState]) -> GPTState:
        """Rows of several states as one state; they may have read differently much."""
        size = max(state.tokens.shape[1] for state in states)
        window = torch.cat([nn.functional.pad(state.tokens, (0, size - state.tokens.shape[1])) for state in states])
        return GPTState(window, tuple(AttentionState.joined(own) for own in zip(*(state.blocks for state in states))))


class GPTLanguageModel(LanguageModel):
    """softmax(h_L W_eᵀ), h_l = Block(h_{l-1}), h_0 = x W_e + W_p."""

    Config = GPTConfig
    cuts = "windows"
    expect: ClassVar[dict[str, str]] = {
        "nanogpt": "tiny Shakespeare, 1.88 nats a character (three seeds: ±0.002), 2.5 to 4.5 minutes on one core",
        "shakespeare": "tiny Shakespeare, 1.49 nats a character (one seed), 9 minutes on two cores (211 ms a step)",
    }
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {
            "context": 64,
            "train.lr": 3e-3,
            "train.batch": 8,
            "train.schedule": "cosine",
            "train.warmup": 0.05,
        },
        "nanogpt": {
            "layers": 4,
            "heads": 4,
            "hidden": 128,
            "context": 64,
            "positions": "learned",
            "train.steps": 2000,
            "train.batch": 12,
            "train.lr": 1e-3,
            "train.schedule": "cosine",
            "train.warmup": 0.05,
            "train.weight_decay": 0.1,
            "tokenizer.kind": "char",
        },
        "shakespeare": {
            "layers": 4,
            "heads": 4,
            "hidden": 128,
            "context": 128,
            "train.steps": 2600,
            "train.batch": 24,
            "train.lr": 3e-3,
            "train.schedule": "cosine",
            "train.warmup": 0.05,
            "train.weight_decay": 0.1,
            "tokenizer.kind": "char",
        },
        "gpt3": {  # Brown et al. (2020), Table 2.1: 3.2 million tokens in a batch; to count, not to train here
            "layers": 96,
            "heads": 96,
            "hidden": 12288,
            "context": 2048,
            "positions": "learned",
            "train.batch": 1562,
            "train.lr": 6e-5,
            "train.beta2": 0.95,
            "train.schedule": "cosine",
            "train.floor": 0.1,
            "train.weight_decay": 0.1,
            "tokenizer.kind": "bpe",
            "tokenizer.vocabulary": 50257,
        },
    }

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        D, p = config.hidden, config.dropout
        self.embed = nn.Embedding(config.vocabulary, D)  # W_e
        self.positions = POSITIONS[config.positions](config.context, D)  # W_p
        self.blocks = nn.ModuleList(
            BLOCKS[config.norm](
                SelfAttention(D, config.heads, p, rotary=config.positions == "rotary"),
                feed_forward(config),
                D,
                p,
            )
            for _ in range(config.layers)
        )
        self.norm = nn.LayerNorm(D) if config.norm == "pre" else nn.Identity()
        self.head = nn.Linear(D, config.vocabulary, bias=False)
        self.head.weight = self.embed.weight
        self.dropout = Dropout(p)
        self._steps = Recorder()
        self._initialise()

    def _initialise(self) -> None:
        """N(0, 0.02), and 1/√(2L) of that where a block joins the residual path (GPT-2)."""
        for name, weight in self.named_parameters():
            if weight.dim() == 2 and not name.startswith("positions"):
                joins = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(weight, std=0.02 / (2 * self.config.layers) ** 0.5 if joins else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(weight)

    @property
    def traits(self) -> Traits:
        """It sees ``context`` tokens."""
        return Traits(context=self.config.context)

    def start(self, rows: int) -> GPTState:
        """No tokens yet."""
        blocks = tuple(block.start(rows) for block in self.blocks)  # type: ignore[operator]
        return GPTState(torch.zeros(rows, 0, dtype=torch.long, device=self.embed.weight.device), blocks)

    def forward(
        self,
        tokens: Tensor,
        state: State | None = None,
        lengths: Tensor | None = None,
        want: Sequence[Want] = ("logits",),
    ) -> Output:
        """Read tokens (B, T)."""
        before = state or self.start(len(tokens))
        assert isinstance(before, GPTState)
        if before.blocks[0].used + tokens.shape[1] <= self.config.context:
            player = self._player(tokens, before, lengths, want)
            if player is not None:
                return self._step(player, tokens, before)
            hidden, blocks, seen = self._read(tokens, before, lengths, "attention" in want, "end" in want)
            after = self._left(before, tokens, blocks) if blocks else None
            return answer(self.head, hidden, after, lengths, want, seen)
        self._may_slide(before, tokens, want)
        if lengths is None and before.blocks[0].even:
            hidden, after = self._slide(tokens, before)
        else:
            hidden, after = self._slide_rows(tokens, before, lengths)
        return answer(self.head, hidden, after, lengths, want)

    def loss(
        self,
        tokens: Tensor,
        targets: Tensor,
        state: State | None = None,
        lengths: Tensor | None = None,
        smoothing: float = 0.0,
        goes_on: bool = True,
    ) -> tuple[Tensor, State | None]:
        """The mean of −log P over all real targets; of a mixture of experts that learns, their balance is added."""
        with balances() as found:
            loss, after = super().loss(tokens, targets, state, lengths, smoothing, goes_on)
        if found:
            loss = loss + self.config.experts_balance * torch.stack(found).mean()
        return loss, after

    def _read(
        self, tokens: Tensor, state: GPTState, lengths: Tensor | None, weights: bool = False, ends: bool = False
    ) -> tuple[Tensor, tuple[AttentionState, ...], tuple[Tensor, ...] | None]:
        """Read tokens that fit into the window: h, each block's state, and where each looked.

        Where the text ``ends`` no state is kept, not even until the last block: it is most of what blocks that are
        computed again would hold.
        """
        memory = state.blocks[0]
        T = tokens.shape[1]
        x = self.dropout(self.positions(self.embed(tokens), memory.places(T), memory.used + T))
        after, seen = [], []
        for block, past in zip(self.blocks, state.blocks):
            x, new, attention = block(x, past, lengths, weights)
            after += [] if ends else [new]
            seen.append(attention)
            del new
        return self.norm(x), tuple(after), tuple(seen) if weights else None

    def _left(self, state: GPTState, tokens: Tensor, blocks: tuple[AttentionState, ...]) -> GPTState:
        """The state that is left: the blocks' and the window with the new tokens."""
        return GPTState(self._window(state, tokens, blocks[0].used), blocks)

    def _write(self, tape: Tape) -> Tensor:
        """One token of each row, as instructions; answers where h_0 goes."""
        return tape.decoder(self.blocks, self.norm, self.head)

    def _player(self, tokens: Tensor, state: GPTState, lengths: Tensor | None, want: Sequence[Want]) -> Player | None:
        """What reads one token of each row in one call, where it can; see ``ensue.kernels.decode_program``."""
        own = type(self).forward is GPTLanguageModel.forward
        if not own or not single(tokens, lengths, want) or len(tokens) != state.count:
            return None
        return self._steps.ready(self, len(tokens), self._write)

    def _step(self, player: Player, tokens: Tensor, state: GPTState) -> Output:
        """Read one token of each row by a tape."""
        blocks = [block.roomy() for block in state.blocks]
        memory = blocks[0]
        places = memory.places(1)
        x = self.positions(self.embed(tokens), places, memory.used + 1)[:, 0]
        rotary = self.blocks[0].attention.rotary  # type: ignore[union-attr]
        turn = rotary(places, x) if rotary is not None else None  # type: ignore[operator]
        logits = player.play(x, [block.memory for block in blocks], turn)[:, None]
        return Output(logits, None, None, self._left(state, tokens, all_longer(blocks)))

    @staticmethod
    def _window(state: GPTState, tokens: Tensor, used: int) -> Tensor:
        """The window's tokens with the new ones at each row's end."""
        memory, time = state.blocks[0], tokens.shape[1]
        if memory.even:
            return torch.cat([state.tokens[:, : memory.used], tokens], dim=1)[:, :used]
        wide = nn.functional.pad(state.tokens[:, : memory.used], (0, time))
        return wide.scatter(1, memory.places(time), tokens)[:, :used]

    def _may_slide(self, state: GPTState, tokens: Tensor, want: Sequence[Want]) -> None:
        """Refuse where sliding is switched off or would hide what was asked for."""
        size = state.blocks[0].used + tokens.shape[1]
        if self.config.past == "raise":
            raise InputError(f"{size} tokens do not fit into a context of {self.config.context}", hint="set past=slide")
        if "attention" in want:
            raise InputError(
                f"attention is shown within one window of {self.config.context} tokens; this text has {size}"
            )

    def _slide(self, tokens: Tensor, state: GPTState) -> tuple[Tensor, GPTState]:
        """Read past the window, all rows at the same place: fill it, read its newer half again, go on."""
        context, hidden = self.config.context, []
        while tokens.shape[1]:
            if state.blocks[0].used == context:
                kept, state = state.tokens[:, context - context // 2 :], self.start(len(tokens))
                if kept.shape[1]:
                    state = self._left(state, kept, self._read(kept, state, None)[1])
            room = context - state.blocks[0].used
            piece, tokens = tokens[:, :room], tokens[:, room:]
            y, blocks, _ = self._read(piece, state, None)
            state = self._left(state, piece, blocks)
            hidden.append(y)
        return torch.cat(hidden, dim=1), state

    def _slide_rows(self, tokens: Tensor, state: GPTState, lengths: Tensor | None) -> tuple[Tensor, GPTState]:
        """Read past the window where rows stand at different places: one row at a time."""
        T = tokens.shape[1]
        hidden, states = [], []
        for b in range(len(tokens)):
            used = int(state.blocks[0].lengths[b])
            one = state.rows(torch.tensor([b], device=tokens.device))
            blocks = tuple(AttentionState(m.keys, m.values, m.lengths, used, True) for m in one.blocks)
            after, length = GPTState(one.tokens[:, :used], blocks), T if lengths is None else int(lengths[b])
            y = self.embed.weight.new_zeros(1, 0, self.config.hidden)
            if length:
                y, after = self._slide(tokens[b : b + 1, :length], after)
            hidden.append(nn.functional.pad(y, (0, 0, 0, T - length)))
            states.append(after)
        return torch.cat(hidden), GPTState.joined(states)
