"""GPT: a decoder-only Transformer language model (Radford et al., 2018, 2019).

    h_0 = x W_e + W_p                      token and position
    h_l = Block(h_{l-1})                   l = 1 … L; causal self-attention, then a feed-forward network
    P(u) = softmax(h_L W_eᵀ)               the embedding again (tied), or a matrix of its own

``norm = "pre"`` is GPT-2's order (a last layer norm before the output), ``"post"`` is GPT's. ``attention``, ``feed``,
``norm``, ``kv_heads`` and ``rope_base`` swap the parts of its blocks; ``logit_cap`` bounds the logits; ``adaptive``
gives rare tokens narrower vectors (``ensue.nn.adaptive``). The state is the trunk's: every block's keys and values, or
whatever its mixer keeps.

Past its ``context`` the model slides: when the window is full, its newer half is read again, so every token is
predicted from at least half a window. The windows depend on the number of tokens only, not on how they are split into
chunks. A model needs no window if all its mixers have a bounded state and its positions have no limit.

With ``experts`` above 1 the feed-forward network is a mixture (see ``ensue.nn.experts``) with ``experts_active`` for
each token; training adds the mean of its load-balancing losses.

Legend: B rows, T time, D width, H heads, L layers, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ensue.core.errors import InputError
from ensue.core.settings import Need, check, check_positive
from ensue.models.language import LanguageModel
from ensue.models.model import answer
from ensue.nn.adaptive import PROJECTIONS, AdaptiveSettings, build_embedding, build_head
from ensue.nn.decode_compiler import DecodeSteps
from ensue.nn.dropout import Dropout
from ensue.nn.experts import GATES, balances
from ensue.nn.key_value_cache import KeyValueCache
from ensue.nn.layout import Layout
from ensue.nn.positions import POSITIONS, ScaledInput
from ensue.nn.protocol import Output, Traits, Wants
from ensue.nn.state import State
from ensue.nn.trunk import Clock, TrunkState
from ensue.nn.trunk_config import TrunkConfig, build_trunk, initialise, last_norm


@dataclass(frozen=True, kw_only=True, slots=True)
class GPTConfig(TrunkConfig, AdaptiveSettings):
    """Configuration of the GPT language model."""

    needs: ClassVar[dict[str, Need]] = {
        name: ("experts", range(2, 1 << 20)) for name in ("experts_gate", "experts_balance")
    }
    vocabulary: int = 0
    """Vocabulary size; set by the tokenizer."""
    context: int = 128
    """Number of tokens the model sees at once."""
    positions: str = "rotary"
    """Position encoding: rotary, learned, sinusoidal, alibi or none."""
    embed_scale: float = 1.0
    """Factor of embeddings, before positions are added; Gemma's is √hidden."""
    attention_cap: float = 0.0
    """Cap c of attention scores, c·tanh(score / c); 0 means none."""
    logit_cap: float = 0.0
    """Cap c of logits, c·tanh(logit / c); 0 means none."""
    past: str = "slide"
    """What happens past the context: slide, or raise an error."""
    epsilon: float = 1e-5
    """Added to the variance in norms."""
    tied: bool = True
    """Share weights between the embedding and the output layer."""
    experts: int = 1
    """Number of feed-forward networks in a block; above 1 they are a mixture of experts."""
    experts_active: int = 1
    """Number of experts for each token."""
    experts_gate: str = "plain"
    """Gate that chooses experts: plain, or noisy (random during training)."""
    experts_balance: float = 0.01
    """Weight of the load-balancing loss."""

    def __post_init__(self) -> None:
        self.check_trunk()
        check_positive(self, "context")
        self.check_adaptive(self.hidden)
        check(self, "adaptive", not (self.adaptive and self.logit_cap), "empty with a logit_cap")
        check(self, "embed_scale", 0 < self.embed_scale < float("inf"), "above 0, and finite")
        for name in ("attention_cap", "logit_cap"):
            check(self, name, 0 <= getattr(self, name) < float("inf"), "0 or more, and finite")
        check(self, "epsilon", 0 < self.epsilon < 1, "between 0 and 1")
        check(self, "past", self.past in ("slide", "raise"), "slide or raise")
        check_positive(self, "experts", "experts_active")
        check(self, "experts_active", self.experts_active <= self.experts, f"at most experts = {self.experts}")
        check(self, "experts_gate", self.experts_gate in GATES, f"one of {', '.join(GATES)}")
        check(self, "experts_balance", 0 <= self.experts_balance < float("inf"), "0 or more")


@dataclass(frozen=True)
class GPTState(State):
    """The tokens of the window so far, and the trunk's state after them."""

    tokens: Tensor  # (B, C), padded on the right to the longest row; empty in a model without a window
    trunk: TrunkState

    def first(self, tokens: int, of: int) -> GPTState | None:
        """The same after fewer tokens of one row; None once the window has moved."""
        trunk = self.trunk.first(tokens, of)
        return None if trunk is None else GPTState(self.tokens[:, :tokens], trunk)

    @classmethod
    def joined(cls, states: Sequence[GPTState]) -> GPTState:
        """Concatenate the rows of several states, which may have different lengths."""
        size = max(state.tokens.shape[1] for state in states)
        window = torch.cat([nn.functional.pad(state.tokens, (0, size - state.tokens.shape[1])) for state in states])
        return GPTState(window, TrunkState.joined([state.trunk for state in states]))


COSINE: dict[str, Any] = {"train.schedule": "cosine", "train.warmup": 0.05}
SMALL: dict[str, Any] = {"layers": 4, "heads": 4, "hidden": 128, "train.weight_decay": 0.1, "tokenizer.kind": "char"}


class GPTLanguageModel(LanguageModel):
    """softmax(h_L W_eᵀ), h_l = Block(h_{l-1}), h_0 = x W_e + W_p."""

    Config = GPTConfig
    cuts = "windows"
    expect: ClassVar[dict[str, str]] = {
        "nanogpt": "tiny Shakespeare, 1.88 nats a character (three seeds: ±0.002), 2.5 to 4.5 minutes on one core",
        "shakespeare": "tiny Shakespeare, 1.49 nats a character (one seed), 9 minutes on two cores (211 ms a step)",
    }
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {**COSINE, "context": 64, "train.lr": 3e-3, "train.batch": 8},
        "nanogpt": {
            **COSINE,
            **SMALL,
            "context": 64,
            "positions": "learned",
            "train.steps": 2000,
            "train.batch": 12,
            "train.lr": 1e-3,
        },
        "shakespeare": {**COSINE, **SMALL, "context": 128, "train.steps": 2600, "train.batch": 24, "train.lr": 3e-3},
        "gpt3": {  # Brown et al. (2020), Table 2.1: 3.2 million tokens in a batch; for ``ensue cost``
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
        D = config.hidden
        self.embed = build_embedding(config, config.vocabulary, D)  # W_e
        self.positions = POSITIONS[config.positions](config.context, D)  # W_p
        if config.embed_scale != 1.0:
            self.positions = ScaledInput(self.positions, config.embed_scale)
        self.blocks = build_trunk(
            config,
            causal=True,
            positions=config.positions,
            context=config.context,
            attention_dropout=config.dropout,
            attention_cap=config.attention_cap,
            epsilon=config.epsilon,
            experts=(config.experts, config.experts_active, config.experts_gate),
        )
        self.norm = last_norm(config, config.epsilon)
        self.head = build_head(self.embed, config, bias=False)
        self.logit_cap = config.logit_cap
        self.dropout = Dropout(config.dropout)
        self.slides = not self.blocks.bounded or config.positions == "learned"
        """Whether there is a window, as the state grows or the positions are limited."""
        self._steps = DecodeSteps()
        initialise(self, config.layers, skip=("positions", *PROJECTIONS))

    @property
    def traits(self) -> Traits:
        """Context of ``context`` tokens if there is a window."""
        return Traits(context=self.config.context if self.slides else None)

    def start(self, rows: int) -> GPTState:
        """Return the state before the first token."""
        trunk = self.blocks.start(rows)
        return GPTState(torch.zeros(rows, 0, dtype=torch.long, device=trunk.clock.lengths.device), trunk)

    def forward(
        self, tokens: Tensor, state: State | None = None, lengths: Tensor | None = None, want: Wants = ("logits",)
    ) -> Output:
        """Read tokens (B, T)."""
        before = state or self.start(len(tokens))
        assert isinstance(before, GPTState)
        if not self.slides or before.trunk.clock.used + tokens.shape[1] <= self.config.context:
            return self._step(tokens, before, lengths, want) or self._read(tokens, before, lengths, want)
        self._check_slide(before, tokens, want)
        if lengths is None and before.trunk.clock.even:
            hidden, after = self._slide(tokens, before, only_last={"logits", "hidden"}.isdisjoint(want))
        else:
            hidden, after = self._slide_rows(tokens, before, lengths)
        return answer(self.logits, hidden, after, lengths, want)

    def loss(self, *args: Any, **kwargs: Any) -> tuple[Tensor, State | None]:
        """As ``Model.loss``; training a mixture of experts adds the mean of its load-balancing losses."""
        with balances() as losses:
            loss, after = super().loss(*args, **kwargs)
        if losses:
            loss = loss + self.config.experts_balance * torch.stack(losses).mean()
        return loss, after

    def _read(self, tokens: Tensor, state: GPTState, lengths: Tensor | None, want: Wants) -> Output:
        """Read tokens that fit into the window."""
        clock, T = state.trunk.clock, tokens.shape[1]
        x = self.dropout(self.positions(self.embed(tokens), clock.positions(T), clock.used + T))
        h, trunk, weights, _ = self.blocks(
            x, state.trunk, Layout(lengths), weights="attention" in want, keep_state="end" not in want
        )
        after = None if trunk is None else self._after(state, tokens, trunk)
        return answer(self.logits, self.norm(h), after, lengths, want, weights)

    def _after(self, state: GPTState, tokens: Tensor, trunk: TrunkState) -> GPTState:
        """Return the state after ``tokens``: the trunk's, and the window with the tokens appended to each row."""
        if not self.slides:
            return GPTState(state.tokens, trunk)
        clock, T = state.trunk.clock, tokens.shape[1]
        before = state.tokens if state.tokens.shape[1] == clock.used else state.tokens[:, : clock.used]
        if clock.even:
            window = torch.cat([before, tokens], dim=1)
        else:
            window = nn.functional.pad(before, (0, T)).scatter(1, clock.positions(T), tokens)
        return GPTState(window if window.shape[1] == trunk.clock.used else window[:, : trunk.clock.used], trunk)

    def _step(self, tokens: Tensor, state: GPTState, lengths: Tensor | None, want: Wants) -> Output | None:
        """Read one token of each row by a decode program; return None if that is not possible."""
        if type(self).forward is not GPTLanguageModel.forward or len(tokens) != state.count:
            return None
        step = self._steps.step(self, self.blocks, tokens, state.trunk, lengths, want)
        return None if step is None else Output(step[0], None, None, self._after(state, tokens, step[1]))

    def _check_slide(self, state: GPTState, tokens: Tensor, want: Wants) -> None:
        """Raise InputError if sliding is switched off, or if attention is wanted."""
        size = state.trunk.clock.used + tokens.shape[1]
        if self.config.past == "raise":
            raise InputError(f"{size} tokens do not fit into a context of {self.config.context}", hint="set past=slide")
        if "attention" in want:
            raise InputError(
                f"attention is shown within one window of {self.config.context} tokens; this text has {size}"
            )

    def _slide(self, tokens: Tensor, state: GPTState, only_last: bool = False) -> tuple[Tensor, GPTState]:
        """Read past the window, all rows at the same position: fill it, read its newer half again, and repeat.

        A window starts from its tokens alone. So ``only_last``, for the hidden state of the last token and the state
        after it, reads only the last window.
        """
        context, hidden = self.config.context, []
        half = context // 2
        new = context - half
        if only_last and (slides := -(-(state.trunk.clock.used + tokens.shape[1] - context) // new)) > 0:
            tokens = torch.cat([state.tokens, tokens], dim=1)[:, slides * new :]
            state, tokens = self._start_from(tokens[:, :half]), tokens[:, half:]
        while tokens.shape[1]:
            if state.trunk.clock.used == context:
                state = self._start_from(state.tokens[:, new:])
            fits = context - state.trunk.clock.used
            piece, tokens = tokens[:, :fits], tokens[:, fits:]
            output = self._read(piece, state, None, ("hidden",))
            assert output.hidden is not None and isinstance(output.state, GPTState)
            state = output.state
            hidden.append(output.hidden)
        return torch.cat(hidden, dim=1), state

    def _start_from(self, tokens: Tensor) -> GPTState:
        """Return the state of a window that begins with ``tokens``, of which there may be none."""
        state: Any = self.start(len(tokens))
        return self._read(tokens, state, None, ("hidden",)).state if tokens.shape[1] else state  # type: ignore[return-value]

    def _slide_rows(self, tokens: Tensor, state: GPTState, lengths: Tensor | None) -> tuple[Tensor, GPTState]:
        """Read past the window, rows at different positions: one row at a time."""
        T = tokens.shape[1]
        hidden, states = [], []
        for b in range(len(tokens)):
            after, length = self._row(state, b), T if lengths is None else int(lengths[b])
            y = self.embed(tokens[b : b + 1, :0])
            if length:
                y, after = self._slide(tokens[b : b + 1, :length], after)
            hidden.append(nn.functional.pad(y, (0, 0, 0, T - length)))
            states.append(after)
        return torch.cat(hidden), GPTState.joined(states)

    @staticmethod
    def _row(state: GPTState, number: int) -> GPTState:
        """Return the state of one row."""
        used = int(state.trunk.clock.lengths[number])
        one = state.rows(torch.tensor([number], device=state.tokens.device))
        blocks = tuple(block.single() if isinstance(block, KeyValueCache) else block for block in one.trunk.blocks)
        return GPTState(one.tokens[:, :used], TrunkState(Clock(one.trunk.clock.lengths, used), blocks))
