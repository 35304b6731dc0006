"""Training steps of small models as people train them first, against loops of plain PyTorch, in turns.

python -m benchmarks.speed.small [--short] [--only gpt llama gru lstm] [--rounds N]

The sizes are those of ``ensue fit`` without settings, on characters. ``gpt`` has rotary positions, ``gpt, learned`` has
those of its peers. Ours is ``ensue.train.update.update``, which the training loop calls: batches, zeroing, forward,
backward, the norm of the gradients, clipping, AdamW and the state. The peers are loops as people write them, over the
same batches: nanoGPT's equations (learned positions, gelu, tied output, scaled_dot_product_attention, weight decay of
matrices only), Llama's (``nn.RMSNorm``, rotary positions, shared key–value heads by ``enable_gqa``, SwiGLU, no biases),
and embedding, ``nn.LSTM`` or ``nn.GRU``, and a linear layer; all with clip_grad_norm_ and fused AdamW.
An LSTM is torch's own kernel on both sides: what ours saves is around it.
First losses differ by what weights each begins with; all have to be near log V, and to fall.
"""

from __future__ import annotations

import argparse
import math
import time
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.turns import Contest, Mark, Round, Work, hold
from ensue.core.memory import keep_freed_memory
from ensue.models.gpt import GPTConfig, GPTLanguageModel
from ensue.models.llama import LlamaConfig, LlamaLanguageModel
from ensue.models.recurrent import GRULanguageModel, LSTMConfig, LSTMLanguageModel, RecurrentConfig
from ensue.train.checkpoints import Checkpoints
from ensue.train.objectives import next_token_loss
from ensue.train.optimisers import build_optimiser
from ensue.train.settings import TextTrainSettings
from ensue.train.training import Training
from ensue.train.update import update

VOCABULARY, RATE, DECAY, CLIP = 66, 1e-3, 0.1, 1.0
WIDTH, LAYERS, HEADS, CONTEXT, HIDDEN = 128, 4, 4, 64, 256
KV_HEADS, INNER = 2, 352
"""Of llama: heads of keys and values, and the inner width of its feed-forward network."""
SHAPES = {
    "gpt": (12, CONTEXT),
    "gpt, learned": (12, CONTEXT),
    "llama": (12, CONTEXT),
    "gru": (12, 32),
    "lstm": (12, 32),
}
"""Rows and tokens of a batch."""
NANOGPT = "nanoGPT's equations in a plain loop"
LOOPS = {
    "llama": "Llama's equations in a plain loop",
    "gru": "nn.GRU in a plain loop",
    "lstm": "nn.LSTM in a plain loop",
}
MARKS = {"gpt": 1.3, "gpt, learned": 1.3, "llama": 1.3, "gru": 1.2, "lstm": 1.2}
STEPS = {"gpt": 60, "gpt, learned": 60, "llama": 60, "gru": 150, "lstm": 150}


RECURRENT = ("gru", "lstm")


class Batch(NamedTuple):
    """A batch as the training loop takes it."""

    tokens: Tensor
    targets: Tensor
    keep_state: bool
    reset_state: bool
    lengths: None = None

    @property
    def size(self) -> int:
        return self.targets.numel()


class Batches:
    """Batches of text with some structure, by number, the same for all: a step up or down from the token before."""

    def __init__(self, name: str) -> None:
        self.rows, time = SHAPES[name]
        chance = torch.Generator().manual_seed(0)
        steps = torch.randint(-1, 2, (50, self.rows, time + 1), generator=chance)
        self.text = steps.cumsum(-1).add_(VOCABULARY // 2).remainder_(VOCABULARY)
        self.carries = name in RECURRENT

    def batch(self, number: int) -> Batch:
        text = self.text[number % len(self.text)]
        return Batch(text[:, :-1].contiguous(), text[:, 1:].contiguous(), self.carries, not self.carries)


class Block(nn.Module):
    """x + Attention(LayerNorm(x)), then x + W_2 gelu(W_1 LayerNorm(x))."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.project, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.project(self.norm_1(x)).split(WIDTH, dim=-1)
        q, k, v = (one.unflatten(-1, (HEADS, -1)).transpose(1, 2) for one in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


class NanoGPT(nn.Module):
    """Token and position embeddings, blocks, a last norm, and the embedding again as the output layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.normal_(weight, std=0.02)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor, state: None) -> tuple[Tensor, None]:
        x = self.embed(tokens) + self.positions(torch.arange(tokens.shape[1]))
        return self.head(self.norm(self.blocks(x))), None


def rotated(x: Tensor) -> Tensor:
    """Rotary positions of heads (B, H, T, d)."""
    half = x.shape[-1] // 2
    rates = 10000.0 ** (-torch.arange(half) / half)
    angles = torch.arange(x.shape[2])[:, None] * rates.repeat(2)  # (T, d)
    left, right = x.chunk(2, dim=-1)
    return x * angles.cos() + torch.cat([-right, left], dim=-1) * angles.sin()


class LlamaBlock(nn.Module):
    """x + Attention(RMSNorm(x)), then x + W_2 (silu(W_g z) ∘ W_1 z), z = RMSNorm(x)."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.RMSNorm(WIDTH, 1e-5), nn.RMSNorm(WIDTH, 1e-5)
        self.sizes = [WIDTH, *[WIDTH // HEADS * KV_HEADS] * 2]
        self.project, self.out = nn.Linear(WIDTH, sum(self.sizes), False), nn.Linear(WIDTH, WIDTH, False)
        self.gate, self.up = nn.Linear(WIDTH, INNER, False), nn.Linear(WIDTH, INNER, False)
        self.down = nn.Linear(INNER, WIDTH, False)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.project(self.norm_1(x)).split(self.sizes, dim=-1)
        q, k, v = (one.unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2) for one in parts)
        y = F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        z = self.norm_2(x)
        return x + self.down(F.silu(self.gate(z)) * self.up(z))


class Llama(nn.Module):
    """An embedding, blocks, a last norm, and the embedding again as the output layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.Sequential(*(LlamaBlock() for _ in range(LAYERS)))
        self.norm, self.head = nn.RMSNorm(WIDTH, 1e-5), nn.Linear(WIDTH, VOCABULARY, bias=False)
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.normal_(weight, std=0.02)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor, state: None) -> tuple[Tensor, None]:
        return self.head(self.norm(self.blocks(self.embed(tokens)))), None


class PlainRecurrent(nn.Module):
    """Embedding, torch's recurrent layer, and the embedding again as the output layer."""

    def __init__(self, layer: type[nn.Module]) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(VOCABULARY, HIDDEN), nn.Linear(HIDDEN, VOCABULARY)
        self.layer = layer(HIDDEN, HIDDEN, batch_first=True)
        nn.init.uniform_(self.embed.weight, -0.1, 0.1)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        y, state = self.layer(self.embed(tokens), state)
        return self.head(y), state


def our_model(name: str) -> nn.Module:
    """Ours at its default size."""
    if name == "lstm":
        return LSTMLanguageModel(LSTMConfig(vocabulary=VOCABULARY, hidden=HIDDEN))
    if name == "gru":
        return GRULanguageModel(RecurrentConfig(vocabulary=VOCABULARY, hidden=HIDDEN))
    positions = "learned" if "learned" in name else "rotary"
    shape = {"layers": LAYERS, "heads": HEADS, "hidden": WIDTH, "context": CONTEXT}
    if name == "llama":
        return LlamaLanguageModel(LlamaConfig(vocabulary=VOCABULARY, kv_heads=KV_HEADS, inner=INNER, **shape))  # type: ignore[arg-type]
    return GPTLanguageModel(GPTConfig(vocabulary=VOCABULARY, positions=positions, **shape))  # type: ignore[arg-type]


def ours(name: str, steps: int) -> Work:
    """Updates of ``ensue fit``, with what it does to its process."""
    keep_freed_memory()
    torch.manual_seed(0)
    settings = TextTrainSettings(lr=RATE, weight_decay=DECAY, clip=CLIP)
    training = Training(
        model=our_model(name),
        objective=next_token_loss,
        batches=Batches(name),
        settings=settings,
        checkpoints=Checkpoints.__new__(Checkpoints),  # none is written
    )
    optimiser = build_optimiser(training.model, settings)
    state: Any = None

    def work(turn: int) -> Round:
        nonlocal state
        begun, losses = time.perf_counter(), []
        for step in range(steps):
            loss, _, state, _ = update(training, optimiser, turn * steps + step, state, RATE)
            losses.append(loss)
        return Round(steps * math.prod(SHAPES[name]), time.perf_counter() - begun, losses)

    return work


def theirs(name: str, steps: int) -> Work:
    """The same as people write it."""
    torch.manual_seed(0)
    makers = {"lstm": partial(PlainRecurrent, nn.LSTM), "gru": partial(PlainRecurrent, nn.GRU), "llama": Llama}
    model: nn.Module = makers.get(name, NanoGPT)()
    weights = [weight for weight in model.parameters() if weight.dim() > 1]
    rest = [weight for weight in model.parameters() if weight.dim() < 2]
    groups = [{"params": weights, "weight_decay": DECAY}, {"params": rest, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, lr=RATE, fused=True)
    batches, state = Batches(name), None

    def detached(state: Any) -> Any:
        return tuple(one.detach() for one in state) if isinstance(state, tuple) else state.detach()

    def work(turn: int) -> Round:
        nonlocal state
        begun, losses = time.perf_counter(), []
        for step in range(steps):
            batch = batches.batch(turn * steps + step)
            logits, state = model(batch.tokens, state)
            state = None if state is None else detached(state)
            loss = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten())
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimiser.step()
            losses.append(loss.item())
        return Round(steps * math.prod(SHAPES[name]), time.perf_counter() - begun, losses)

    return work


def agree(done: dict[str, list[Round]]) -> dict[str, Any]:
    """Whether all learn the same task."""
    last = {who: rounds[-1].result[-1] for who, rounds in done.items()}
    assert all(loss < math.log(VOCABULARY) for loss in last.values()), last
    return {"last_losses": {who: round(loss, 3) for who, loss in last.items()}}


def flops(name: str) -> float:
    """Of a token's products, forward and twice that on the way back."""
    if name not in RECURRENT:
        project = (1 + 2 * KV_HEADS / HEADS if name == "llama" else 3) * WIDTH
        layer = WIDTH * (project + WIDTH + (3 * INNER if name == "llama" else 8 * WIDTH))
        return 6.0 * (LAYERS * layer + VOCABULARY * WIDTH + LAYERS * WIDTH * CONTEXT)
    return 6.0 * ({"lstm": 8, "gru": 6}[name] * HIDDEN * HIDDEN + VOCABULARY * HIDDEN)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--only", nargs="+", choices=tuple(SHAPES), default=tuple(SHAPES), help="some of the models")
    parser.add_argument("--rounds", type=int, default=9)
    typed = parser.parse_args()
    for name in typed.only:
        steps, peer = STEPS[name] // (3 if typed.short else 1), LOOPS.get(name, NANOGPT)
        rows, tokens = SHAPES[name]
        size = f"{LAYERS} layers, width {WIDTH}" if name not in RECURRENT else f"1 layer, width {HIDDEN}"
        hold(
            Contest(
                result="small_speed",
                work=f"training of a small {name}",
                size=f"{size}, {VOCABULARY} tokens, {rows} rows of {tokens}",
                unit="tokens",
                programs={"ours": partial(ours, name, steps), peer: partial(theirs, name, steps)},
                marks=(Mark("ours", peer, MARKS[name]),),
                flops=flops(name),
            ),
            3 if typed.short else typed.rounds,
            agree,
        )


if __name__ == "__main__":
    main()
