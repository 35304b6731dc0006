"""Training steps of gpt against transformers' GPT-2 of the same size, with the same weights, in turns.

python -m benchmarks.speed.gpt [--short]

Both do the same work: forward, loss, backward, clipping, fused AdamW. Losses are compared so that the work is the same.
Reported is theirs ÷ ours in time, so above 1 means ours is faster: the median of the rounds and their spread.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from benchmarks.record import record
from benchmarks.turns import Round, Work, ratio, take_turns
from ensue.core.memory import keep_freed_memory
from ensue.exchange.huggingface import gpt_from
from ensue.train.optimisers import gradients_of, move, norm_of

SIZES = {
    "nanogpt characters": {"vocab": 66, "context": 64, "width": 128, "layers": 4, "heads": 4, "rows": 12},
    "small words": {"vocab": 10000, "context": 128, "width": 256, "layers": 4, "heads": 4, "rows": 8},
}


def ours_step(model: Any, optimiser: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor) -> float:
    optimiser.zero_grad(set_to_none=True)
    loss, _ = model.loss(x, y)
    loss.backward()
    gradients = gradients_of(model)
    move(optimiser, gradients, norm_of(gradients), 1.0)
    return float(loss.item())


def theirs_step(model: Any, optimiser: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor) -> float:
    optimiser.zero_grad(set_to_none=True)
    loss = torch.nn.functional.cross_entropy(model(x, use_cache=False).logits.flatten(0, 1), y.flatten())
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimiser.step()
    return float(loss.item())


def training(who: str, size: dict[str, int], steps: int) -> Work:
    """So many steps a round on one batch; ours with what ``ensue fit`` does to its process."""
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=size["vocab"],
        n_positions=size["context"],
        n_embd=size["width"],
        n_layer=size["layers"],
        n_head=size["heads"],
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    model: Any = GPT2LMHeadModel(config)
    step = theirs_step
    if who == "ours":
        keep_freed_memory()
        model, step = gpt_from("gpt2", config.to_dict(), model.state_dict()), ours_step
    model.train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    torch.manual_seed(1)
    text = torch.randint(size["vocab"], (size["rows"], size["context"] + 1))

    def work(turn: int) -> Round:
        begun = time.perf_counter()
        losses = [step(model, optimiser, text[:, :-1], text[:, 1:]) for _ in range(steps)]
        return Round(steps * size["rows"] * size["context"], time.perf_counter() - begun, losses)

    return work


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true")
    rounds, steps = (3, 5) if parser.parse_args().short else (9, 15)
    for name, size in SIZES.items():
        done = take_turns({who: partial(training, who, size, steps) for who in ("ours", "theirs")}, rounds)
        first = [done[who][0].result[0] for who in ("ours", "theirs")]  # later they drift apart, as any two do
        assert abs(first[0] - first[1]) < 1e-2, first
        figures = ratio(done["ours"], done["theirs"], "tokens")
        record("gpt_speed", {"peer": "transformers 4.57.6 GPT2LMHeadModel", "size": name, **size, **figures})


if __name__ == "__main__":
    main()
